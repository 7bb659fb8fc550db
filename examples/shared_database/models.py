"""The application's own table, in the same file as the broker's."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class AppBase(DeclarativeBase):
    """The base of the application's tables."""


class Order(AppBase):
    """An order, which the application writes in one transaction with the broker's events."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(primary_key=True)
    stream_id: Mapped[str]
    note: Mapped[str | None]
