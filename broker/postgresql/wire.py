"""Sending ahead of the answers: libpq's pipeline mode on a connection of psycopg.

After the documentation of libpq, "Pipeline Mode". psycopg's own pipeline costs about as much again
for each statement as the server does, in cursors, adaptation and bookkeeping that texts and
integers do not need.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.postgresql.engine import driver_error

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult


class Wire:
    """The pipeline of one connection, entered when it is made."""

    def __init__(self, pgconn: PGconn) -> None:
        from psycopg import pq

        self._pgconn = pgconn
        self._failures = {pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED}
        self._single, self._synced = pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.PIPELINE_SYNC
        self._sqlstate, self._message = (
            pq.DiagnosticField.SQLSTATE,
            pq.DiagnosticField.MESSAGE_PRIMARY,
        )
        self._poll = select.poll()
        self._poll.register(pgconn.socket, select.POLLIN)
        self.enter()

    def enter(self) -> None:
        """Begin to send ahead."""
        self._pgconn.enter_pipeline_mode()

    def leave(self) -> None:
        """Let others use the connection; nothing may be under way."""
        self._pgconn.exit_pipeline_mode()

    def send(self, sql: bytes, values: Sequence[bytes | None]) -> None:
        """Send a statement with its parameters as text; the server finds out their types."""
        self._pgconn.send_query_params(sql, values or None)

    def prepare(self, name: bytes, sql: bytes) -> None:
        """Send a statement to be prepared."""
        self._pgconn.send_prepare(name, sql)

    def send_prepared(self, name: bytes, values: Sequence[bytes | None]) -> None:
        """Send the parameters of a statement that was prepared."""
        self._pgconn.send_query_prepared(name, values or None)

    def answers(self, count: int) -> list[PGresult]:
        """Wait for the answers to all that was sent, which are `count`, one for each."""
        self._pgconn.pipeline_sync()
        results = []
        for _ in range(count):
            result = self._next()
            if result is None:
                raise self._lost()
            results.append(result)
            while self._next() is not None:  # what ends the answer to a statement
                pass
        self._require_synced()
        return results

    def answer_by_rows(self) -> Iterator[PGresult]:
        """The answer to a query that alone was sent, a row at a time; raises what the server says.

        Has to be read to its end before anything else is sent.
        """
        self._pgconn.pipeline_sync()
        self._pgconn.set_single_row_mode()
        failure = None
        while (result := self._next()) is not None:
            if result.status == self._single:
                yield result
            failure = failure or self.error_of(result)
        self._require_synced()
        if failure is not None:
            raise driver_error(*failure)

    def require_connection(self) -> None:
        """Raise if the other side has hung up, as far as it is known here without asking."""
        while self._poll.poll(0):  # bytes to take, or the end
            self._pgconn.consume_input()

    def error_of(self, result: PGresult) -> tuple[str | None, str] | None:
        """SQLSTATE and message of an answer that is an error."""
        if result.status not in self._failures:
            return None
        state, message = result.error_field(self._sqlstate), result.error_field(self._message)
        text = message or result.error_message or self._pgconn.error_message
        return state.decode() if state else None, text.decode(errors="replace").strip()

    def _require_synced(self) -> None:
        synced = self._next()
        if synced is None or synced.status != self._synced:
            raise self._lost()

    def _next(self) -> PGresult | None:
        pgconn = self._pgconn
        unsent = pgconn.flush()
        while pgconn.is_busy() or unsent:
            if unsent:
                self._wait_to_send()
            else:
                self._poll.poll()
            pgconn.consume_input()
            unsent = unsent and pgconn.flush()
        return pgconn.get_result()

    def _wait_to_send(self) -> None:
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        poll.poll()

    def _lost(self) -> Exception:
        import psycopg

        said = self._pgconn.error_message.decode(errors="replace").strip()
        return psycopg.OperationalError(said or "the connection to the server was lost")
