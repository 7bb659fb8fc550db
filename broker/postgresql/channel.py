"""Channels to PostgreSQL: one for connections of the store's own, one for a session's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.postgresql.engine import driver_error, hide_values
from broker.postgresql.wire import Wire
from broker.statements import Channel, Row, Statement, Style, Violation

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_INTEGERS = {20, 21, 23, 26}  # OIDs of int8, int2, int4, oid
_BOOLEAN = 16
_VIOLATION = "23"  # the class of SQLSTATEs


class _Expected(NamedTuple):
    """What the next answer of the server is to; `keeps` if somebody asks for it."""

    keeps: bool
    prepares: str | None = None


class PipelineChannel(Channel):
    """Statements on libpq's pipeline: what is put goes with the next question, in one round trip.

    For connections that nobody else uses meanwhile; `close` before anybody does. After an error the
    server takes nothing of what was put behind it, and in a transaction nothing but ROLLBACK.

    `prepared` are the statements that the connection has prepared, which outlives the channel; None
    if none may be. Text goes both ways as text: the store's values are texts and integers.
    """

    def __init__(
        self, connection: Any, schema: str | None, prepared: dict[str, bytes] | None
    ) -> None:
        self.style = Style("postgresql", "numeric_dollar", schema)
        self._connection = connection
        self._wire = Wire(connection.pgconn)
        self._prepared = prepared
        self._expected: list[_Expected] = []

    @property
    def connection(self) -> Any:
        return self._connection

    def one(self, statement: Statement, *parameters: Any) -> Row | None:
        rows = self.all(statement, *parameters)
        return rows[0] if rows else None

    def all(self, statement: Statement, *parameters: Any) -> list[Row]:
        self._send(statement, parameters, keeps=True)
        (result,) = self._receive()
        return _rows_of(result)

    @contextmanager
    def each(self, statement: Statement, *parameters: Any) -> Iterator[Iterable[Row]]:
        """No more than a row is kept here at a time, whatever the server sends."""
        sql, _ = statement.compiled[self.style]
        if self._prepared is not None:
            self._prepare(sql, self._prepared)
        self.settle()
        self._send(statement, parameters)
        self._expected.clear()
        results = self._wire.answer_by_rows()
        try:
            yield (_rows_of(result)[0] for result in results)
        finally:
            for _ in results:  # what nobody wanted to see
                pass

    def run(self, statement: Statement, *parameters: Any) -> int:
        self._send(statement, parameters, keeps=True)
        (result,) = self._receive()
        return result.command_tuples or 0

    def put(self, statement: Statement, *parameters: Any) -> None:
        self._send(statement, parameters)

    def put_each(self, statement: Statement, rows: Sequence[Row]) -> None:
        for row in rows:
            self._send(statement, row)

    def copy(self, statement: Statement, rows: Sequence[Row]) -> None:
        """Send rows by COPY … FROM STDIN, after all that was put, in round trips of its own."""
        self.settle()
        self._wire.leave()
        sql, _ = statement.compiled[self.style]
        try:
            with self._connection.cursor() as cursor, cursor.copy(sql) as copy:
                for row in rows:
                    copy.write_row(row)
        except Exception as error:
            with suppress(Exception):  # it may be lost
                self._wire.enter()
            hide_values(error)
            raise_violation(error)
            raise
        self._wire.enter()

    def control(self, sql: str) -> None:
        self._wire.send(sql.encode(), ())
        self._expected.append(_Expected(keeps=False))

    def settle(self) -> None:
        if self._expected:
            self._receive()

    def require_connection(self) -> None:
        """Raise if the server has ended the session already, as far as it is known here."""
        self._wire.require_connection()

    def close(self) -> None:
        self._wire.leave()

    # ------------------------------------------------------------------------------ asking, answers

    def _send(self, statement: Statement, parameters: Row, *, keeps: bool = False) -> None:
        sql, arrange = statement.compiled[self.style]
        values = [_encode(value) for value in (arrange(parameters) if arrange else parameters)]
        if self._prepared is None:
            self._wire.send(sql.encode(), values)
        else:
            self._wire.send_prepared(self._prepare(sql, self._prepared), values)
        self._expected.append(_Expected(keeps))

    def _prepare(self, sql: str, prepared: dict[str, bytes]) -> bytes:
        name = prepared.get(sql)
        if name is None:
            name = prepared[sql] = f"broker_{len(prepared)}".encode()
            self._wire.prepare(name, sql.encode())
            self._expected.append(_Expected(keeps=False, prepares=sql))
        return name

    def _receive(self) -> list[PGresult]:
        """The answers that somebody asks for, once all have come; raises the first error."""
        expected, self._expected = self._expected, []
        kept: list[PGresult] = []
        error: Exception | None = None
        for each, result in zip(expected, self._wire.answers(len(expected)), strict=True):
            failed = self._wire.error_of(result)
            if failed is not None:
                error = error or driver_error(*failed)
                if each.prepares is not None and self._prepared is not None:
                    del self._prepared[each.prepares]
            elif each.keeps:
                kept.append(result)
        if error is not None:
            raise_violation(error)
            raise error
        return kept


def raise_violation(error: Exception) -> None:
    """Raise Violation from an error that says that a constraint has objected."""
    if (getattr(error, "sqlstate", None) or "").startswith(_VIOLATION):
        raise Violation from error


def _encode(value: str | int | None) -> bytes | None:
    if isinstance(value, str):
        if "\0" in value:  # where libpq would end the text
            raise driver_error("22021", "a text holds NUL, which PostgreSQL cannot store")
        return value.encode()
    return None if value is None else b"%d" % value


def _rows_of(result: PGresult) -> list[Row]:
    columns = range(result.nfields)
    decoders = [_decoder(result.ftype(column)) for column in columns]
    get = result.get_value
    rows: list[Row] = []
    for number in range(result.ntuples):
        row = []
        for column, decode in zip(columns, decoders, strict=True):
            value = get(number, column)
            row.append(None if value is None else decode(value))
        rows.append(tuple(row))
    return rows


def _decoder(oid: int) -> Callable[[bytes], Any]:
    if oid in _INTEGERS:
        return int
    return _boolean if oid == _BOOLEAN else bytes.decode


def _boolean(value: bytes) -> bool:
    return value == b"t"


# ------------------------------------------------------------------------------ a session's channel


class CursorChannel(Channel):
    """The cursor of a session's connection, or of its asynchronous driver's adaption."""

    def __init__(self, dbapi_connection: Any, schema: str | None) -> None:
        self.style = Style("postgresql", "format", schema)
        self._connection = dbapi_connection
        self._cursor = dbapi_connection.cursor()

    @property
    def connection(self) -> Any:
        return self._connection

    def one(self, statement: Statement, *parameters: Any) -> Row | None:
        self._execute(statement, parameters)
        row: Row | None = self._cursor.fetchone()
        return row

    def all(self, statement: Statement, *parameters: Any) -> list[Row]:
        self._execute(statement, parameters)
        rows: list[Row] = self._cursor.fetchall()
        return rows

    @contextmanager
    def each(self, statement: Statement, *parameters: Any) -> Iterator[Iterable[Row]]:
        """The rows are all fetched; the reading statements that use it have a limit."""
        yield self.all(statement, *parameters)

    def run(self, statement: Statement, *parameters: Any) -> int:
        self._execute(statement, parameters)
        met: int = self._cursor.rowcount
        return met

    def put(self, statement: Statement, *parameters: Any) -> None:
        self._execute(statement, parameters)

    def put_each(self, statement: Statement, rows: Sequence[Row]) -> None:
        for row in rows:
            self._execute(statement, row)

    def control(self, sql: str) -> None:
        self._cursor.execute(sql)

    def close(self) -> None:
        self._cursor.close()

    def _execute(self, statement: Statement, parameters: Row) -> None:
        sql, arrange = statement.compiled[self.style]
        try:
            self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
        except Exception as error:
            hide_values(error)
            raise_violation(error)
            raise
