"""The application's Alembic environment: an ordinary one, with one line for the broker."""

from alembic import context
from sqlalchemy import create_engine

from broker import schema
from examples.shared_database.models import AppBase

engine = create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=AppBase.metadata,
        **schema.autogenerate_options(),  # leaves the broker's tables to the broker
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
