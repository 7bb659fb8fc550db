"""An application with a table of its own in the store's database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.support import rows


class Application(DeclarativeBase):
    """An application's own table, in the same database."""


class Order(Application):
    __tablename__ = "orders"

    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")


def orders(path: Path) -> list[str]:
    """The application's rows as another client reads them."""
    return [name for (name,) in rows(path, "SELECT name FROM orders ORDER BY name")]
