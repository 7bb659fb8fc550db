"""Alembic's environment. Everything of substance is in `broker.schema.environment`."""

from broker.schema.environment import run

run()
