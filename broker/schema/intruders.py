"""What hangs on the store's tables, is not its own, and could change, lose or hide what is stored.

Other things that differ are drift; with these no answer of the store could be trusted. Looked for at
every opening, in the catalogue alone: a fraction of a millisecond.
"""

from __future__ import annotations

from sqlalchemy import Connection

from broker.errors import SchemaError
from broker.schema.backends import catalogue_of


def refuse_intruders(connection: Connection) -> None:
    """Raise SchemaError, with their names in `intruders`, if there are any."""
    found = sorted(catalogue_of(connection).intruders(connection))
    if found:
        raise SchemaError(
            f"not the store's own, and able to change or hide what it stores: {', '.join(found)};"
            " drop it, or put back what belongs there",
            intruders=found,
        )
