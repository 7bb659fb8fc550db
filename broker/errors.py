"""Every error that `broker` raises, in one place.

Two families share one base:

* a `Refusal` says that a request was understood and turned down; its five codes are part of the
  wire protocol, with the details named in each class;
* everything else says that the store itself cannot serve: a wrong schema, a closed store, a busy
  or unreachable database, an engine that cannot keep the promises.

A driver's exception never reaches the caller bare; it is the `__cause__` of one of these.
"""

from __future__ import annotations

from typing import Any, ClassVar


class BrokerError(Exception):
    """Base of every error of this package.

    `code` is stable and machine-readable, `message` is for people, `details` holds the facts
    (camelCase, JSON values only); an empty `details` means that there are none.
    """

    code: ClassVar[str] = "broker_error"

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The wire form: `{"code", "message"}`, and `"details"` where there are any."""
        form: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            form["details"] = self.details
        return form

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword details do not survive BaseException's own pickling (multiprocessing needs it).
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(kind: type[BrokerError], message: str, details: dict[str, Any]) -> BrokerError:
    return kind(message, **details)


class Refusal(BrokerError):
    """A request was turned down; nothing but the store's clock has changed."""


class InvalidRequest(Refusal):
    """The request cannot be accepted as it stands. Details: usually `field`, a path."""

    code = "invalid_request"


class IdempotencyConflict(Refusal):
    """An id was used before for something else.

    Details: `messageId`; or `requestId, method`; or `field, id`; or `projectionId, streamId`.
    """

    code = "idempotency_conflict"


class LeaseUnavailable(Refusal):
    """Someone holds the lease. Details: `actorId`, and `expiresAt`, `streamId` where known."""

    code = "lease_unavailable"


class StaleLease(Refusal):
    """The credential is not, or no longer, the live one.

    Details: `actorId`; for a live lease on another stream also `authorizedStreamId, streamId`.
    """

    code = "stale_lease"


class RevisionConflict(Refusal):
    """The stream has moved on. Details: `streamId, expectedRevision, actualRevision`."""

    code = "revision_conflict"


class SchemaError(BrokerError):
    """The database is not one that this version of `broker` can use; it was left as it was."""

    code = "schema_error"


class SchemaDrift(SchemaError):
    """The live schema differs from the models. Details: `facts`, one line each."""

    code = "schema_drift"


class CorruptRow(BrokerError):
    """A stored value cannot be decoded. Details: `table`, `row`, `column`."""

    code = "corrupt_row"


class ConfigurationError(BrokerError):
    """The engine, session or option given cannot keep the store's promises."""

    code = "configuration_error"


class StoreClosed(BrokerError):
    """The `Broker` was closed."""

    code = "store_closed"


class DatabaseError(BrokerError):
    """The database could not do its work; nothing of the operation was stored."""

    code = "database_error"


class DatabaseBusy(DatabaseError):
    """Another transaction holds the database; nothing was stored. Run the whole unit again."""

    code = "database_busy"


class DatabaseUnavailable(DatabaseError):
    """The database cannot be opened, read or written; nothing of the operation was stored."""

    code = "database_unavailable"


class OutcomeUnknown(DatabaseError):
    """COMMIT failed in a way that leaves open whether it took effect.

    Repeat the call with the same `messageId` or `requestId`: it takes effect once.
    """

    code = "outcome_unknown"


def said_by(error: Exception) -> str:
    """What an error of SQLAlchemy's says of itself, without a statement and the values it had."""
    said = str(error.args[0]) if error.args else type(error).__name__
    return said.partition(" Original exception was:")[0]
