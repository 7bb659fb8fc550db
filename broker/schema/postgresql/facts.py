"""Every schema fact of a store on PostgreSQL, by its catalogue."""

from __future__ import annotations

from sqlalchemy import Connection

from broker.schema.facts import Facts


def live_facts(connection: Connection) -> Facts:
    """Of the first schema of the search path."""
    raise NotImplementedError


def expected_facts(connection: Connection) -> Facts:
    """Of a schema that is made from the models, in a savepoint that is rolled back."""
    raise NotImplementedError
