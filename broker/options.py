"""What a store can be told: clocks, nonces, capacities, budgets."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from broker.clock import LogicalClock, ServerClock, monotonic_clock, wall_clock
from broker.errors import ConfigurationError
from broker.messages import is_id
from broker.runtime_events import READ_MODEL_EVENT_TYPE

BUSY_TIMEOUT_MS = 5_000
MAX_RECEIPT_CAPACITY = 65_536
MAX_SCHEMA_BYTES = 63  # a longer name is cut off by the server


def random_nonce() -> str:
    """A fresh nonce: 32 lower-case hex digits from the system's secure source."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Options:
    """Options of a `Broker` or a `UnitOfWork`; raises ConfigurationError for one out of range.

    `wall_clock` answers milliseconds since 1970, `monotonic_clock` milliseconds from any start;
    None means the system's, or a monotonic clock that stands still where only the wall clock was
    given. `nonce` makes the secret of each new lease. At most `receipt_capacity` lease receipts
    are kept. `busy_timeout_ms` is how long to wait for other writers, those of this process and of
    others; at most `queue_capacity` of this process wait, and one more is turned away at once.
    `page_max_bytes` and `read_model_max_bytes` are the byte budgets of pages,
    `read_model_event_type` what the read model is made of.

    For PostgreSQL alone: `schema` is the namespace that holds the store, None the first one of the
    connection's search path. Up to `pool_size` connections are kept, and so many operations run side
    by side. `transaction_pooler` says that a pooler hands a connection on after each transaction, so
    that nothing may be left in a session: no prepared statements, no settings.
    """

    wall_clock: Callable[[], int] | None = None
    monotonic_clock: Callable[[], float] | None = None
    nonce: Callable[[], str] = random_nonce
    receipt_capacity: int = 4_096
    busy_timeout_ms: int = BUSY_TIMEOUT_MS
    queue_capacity: int = 8_192
    page_max_bytes: int = 1_024 * 1_024 - 4 * 1_024
    read_model_max_bytes: int = 512 * 1_024
    read_model_event_type: str = READ_MODEL_EVENT_TYPE
    schema: str | None = None
    pool_size: int = 10
    transaction_pooler: bool = False

    def __post_init__(self) -> None:
        _require("receipt_capacity", self.receipt_capacity, 1, MAX_RECEIPT_CAPACITY)
        _require("busy_timeout_ms", self.busy_timeout_ms, 0, 2**31 - 1)
        _require("queue_capacity", self.queue_capacity, 1, 2**31 - 1)
        _require("pool_size", self.pool_size, 1, 2**15)
        _require("page_max_bytes", self.page_max_bytes, 1, 2**31 - 1)
        _require("read_model_max_bytes", self.read_model_max_bytes, 1, 2**31 - 1)
        _require_callable("nonce", self.nonce)
        if self.wall_clock is not None:
            _require_callable("wall_clock", self.wall_clock)
        if self.monotonic_clock is not None:
            _require_callable("monotonic_clock", self.monotonic_clock)
        if self.schema is not None and not _is_schema(self.schema):
            raise ConfigurationError(
                "schema must be the name of a PostgreSQL schema: 1 to 63 bytes, without NUL, and not"
                " $user, which means another to every role"
            )
        if type(self.transaction_pooler) is not bool:
            raise ConfigurationError("transaction_pooler must be True or False")
        if not is_id(self.read_model_event_type):
            raise ConfigurationError("read_model_event_type must be the type of an event")

    def make_clock(self) -> LogicalClock:
        """A logical clock on the clocks chosen here, not booted yet."""
        standing_still = self.monotonic_clock is None and self.wall_clock is not None
        monotonic = _no_time if standing_still else self.monotonic_clock or monotonic_clock
        return LogicalClock(self.wall_clock or wall_clock, monotonic)

    def make_server_clock(self) -> LogicalClock:
        """As `make_clock`, for a database whose server tells the time unless a clock was chosen."""
        if self.wall_clock is not None:
            return self.make_clock()
        return ServerClock(self.monotonic_clock or monotonic_clock)


def _is_schema(name: object) -> bool:
    return (
        isinstance(name, str)
        and is_id(name)
        and len(name.encode()) <= MAX_SCHEMA_BYTES
        and name != "$user"
    )


def _no_time() -> float:
    return 0.0


def _require(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(
            f"{name} must be an integer from {least} to {most}, not {_shown(value)}"
        )


def _require_callable(name: str, value: object) -> None:
    if not callable(value):
        raise ConfigurationError(f"{name} must be a function, not {_shown(value)}")


def _shown(value: object) -> str:
    """A number that is not too long, or the type: a value need not be one that can be shown."""
    is_short = type(value) is int and abs(value) < 2**64
    return str(value) if is_short else f"a {type(value).__name__}"
