"""The one connection by which a `Broker` writes: a group of writes to a transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias, cast

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from broker import forking
from broker.clock import LogicalClock
from broker.errors import CorruptRow, DatabaseBusy, Refusal
from broker.options import Options
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.corruption import as_ours
from broker.sqlite.database_file import file_of
from broker.sqlite.engine import in_transaction, translate_commit
from broker.sqlite.log import Log
from broker.sqlite.pending import Pending
from broker.sqlite.same_file import SameFile
from broker.statements import Channel, Undecodable
from broker.transaction import Batch, Spoilt, Transaction

Group: TypeAlias = Sequence[Pending[Any]]
_ApplyAll: TypeAlias = Callable[[Transaction, Sequence[Any]], Sequence[Any]]

_OF_THE_DATABASE = (sqlite3.Error, SQLAlchemyError, Undecodable)


class Writer:
    """Runs groups of writes on a connection that it keeps, for one thread at a time."""

    def __init__(self, engine: Engine, options: Options, same_file: SameFile) -> None:
        self._engine = engine
        self._same_file = same_file
        self._log = Log(file_of(engine.url))
        self._options = options
        self._connection: Any = None
        self._channel: Channel | None = None

    def run(
        self,
        leader: Pending[Any],
        start: Callable[[], Group],
        clock: LogicalClock,
        timeout_ms: int,
    ) -> None:
        """Do what a group asks for, in its order, and commit it; each one is settled then.

        `start` is called once the transaction has begun, and answers the group, the leader first.
        Each write is done or undone by itself: one that is refused, or fails otherwise, leaves
        nothing but the clock. If COMMIT fails, each has an error that says so.

        While another process writes, what the leader asks for is looked up first: if it was done
        before, that settles it without a transaction. Else up to `timeout_ms` are waited; a
        transaction that cannot begin is the leader's error alone.

        Raises only what is no Exception, such as KeyboardInterrupt: who is not settled by then has
        had nothing stored.
        """

        def recover(channel: Channel) -> bool:
            return leader.recover(Transaction(channel, clock, self._options))

        try:
            try:
                if self._begin(timeout_ms, recover):
                    self._run(start(), clock)
            except Exception as error:
                leader.fail(self._ours(error), error)
        except BaseException:
            self.disconnect()
            raise

    def disconnect(self) -> None:
        """Let go of the connection, and of what it has not committed; the next is another."""
        connection, channel = self._connection, self._channel
        self._connection = self._channel = None
        try:
            if channel is not None:
                with contextlib.suppress(Exception):
                    channel.control("ROLLBACK")
        finally:  # also when it is interrupted
            if channel is not None:
                with contextlib.suppress(Exception):
                    channel.close()  # a cursor that a traceback keeps alive keeps the file open
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.invalidate()

    def forget(self) -> None:
        """In the child of a fork: leave the parent's connection alone."""
        forking.abandon(self._connection, self._channel)
        self._connection = self._channel = None

    # ------------------------------------------------------------------------------ the connection

    def _connect(self) -> Channel:
        self._connection = self._engine.raw_connection()
        self._channel = SQLiteChannel(self._connection.dbapi_connection)
        _be_patient(self._channel, 0)  # so that a busy database is noticed before it is waited for
        return self._channel

    def _begin(self, timeout_ms: int, recover: Callable[[Channel], bool]) -> bool:
        """BEGIN IMMEDIATE, unless the database is busy and `recover` finds another way."""
        self._same_file.require()
        channel = self._channel or self._connect()
        try:
            channel.control("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not isinstance(as_ours(error, channel), DatabaseBusy):
                raise
        else:
            return True

        _be_patient(channel, timeout_ms)
        try:
            if recover(channel):
                return False
            channel.control("BEGIN IMMEDIATE")
            return True
        finally:
            _be_patient(channel, 0)

    def _ours(self, error: Exception) -> Exception:
        """What to tell the caller of a failure; a connection that may be broken is let go of."""
        ours = as_ours(error, self._channel)
        if not isinstance(ours, DatabaseBusy | CorruptRow):
            self.disconnect()
        return ours

    # ----------------------------------------------------------------------------- the transaction

    def _run(self, group: Group, clock: LogicalClock) -> None:
        rest = _still_wanted(group)
        has_savepoints = False
        while not has_savepoints or rest:  # once for nobody too, to end the transaction
            channel = cast(Channel, self._channel)  # of the transaction that has begun
            transaction = Transaction(channel, clock, self._options, has_savepoints=has_savepoints)
            rest = self._try(rest, transaction)
            has_savepoints = True

    def _try(self, group: Group, transaction: Transaction) -> Group:
        """Do a group's writes and commit them; those to be done again, for which it has begun."""
        for apply_all, members in _alike(group, transaction):
            if apply_all is not None:
                try:
                    outcomes = apply_all(transaction, [_subject_of(each) for each in members])
                except Exception:  # which of them it was, the next try will tell
                    return self._start_over(group)
                for each, outcome in zip(members, outcomes, strict=True):
                    each.keep(outcome)
                continue
            for each in members:
                try:
                    each.apply(transaction)
                except Spoilt:
                    return self._start_over(group)
                if each.error is not None and not self._survives(each, transaction):
                    return self._start_over([other for other in group if other is not each])
        self._commit(group, transaction.channel)
        return ()

    def _survives(self, failed: Pending[Any], transaction: Transaction) -> bool:
        """Settle a write that has failed, unless it was refused; whether the others can go on."""
        error = cast(Exception, failed.error)
        is_refused = isinstance(error, Refusal)
        # Where a savepoint cannot be undone, all is undone, and the refusal is all there is to tell.
        if is_refused and in_transaction(transaction.channel.connection):
            return True
        failed.fail(self._ours(error) if isinstance(error, _OF_THE_DATABASE) else error, error)
        return (
            transaction.has_savepoints
            and self._channel is transaction.channel
            and in_transaction(transaction.channel.connection)
        )

    def _start_over(self, rest: Group) -> Group:
        """Undo everything and begin anew for `rest`; those for whom that succeeded."""
        try:
            if self._channel is not None and in_transaction(self._channel.connection):
                self._roll_back(self._channel)
            if rest:
                self._begin(self._options.busy_timeout_ms, lambda _channel: False)
        except Exception as error:
            for each in rest:
                each.fail(self._ours(error), error)
            return ()
        return rest

    def _roll_back(self, channel: Channel) -> None:
        try:
            channel.control("ROLLBACK")
        except Exception:
            self.disconnect()  # which undoes it as well

    def _commit(self, group: Group, channel: Channel) -> None:
        unsettled = [each for each in group if not each.is_settled]
        try:
            channel.control("COMMIT" if unsettled else "ROLLBACK")
            for each in unsettled:
                each.is_settled = True
        except BaseException as error:
            for each in unsettled:
                if not each.is_settled:  # else an interrupt came after the COMMIT
                    each.fail(translate_commit(error), error)
            self.disconnect()
            if not isinstance(error, Exception):
                raise
        else:
            self._log.look_after(channel)


def _still_wanted(group: Group) -> Group:
    """Those of a group that somebody waits for; the others are settled by that."""
    for each in group:
        each.is_settled = not each.is_wanted
    return [each for each in group if not each.is_settled]


def _alike(group: Group, transaction: Transaction) -> Iterable[tuple[_ApplyAll | None, Group]]:
    """The parts of a group, in their order, with how to do each part at once if that is possible."""
    if len(group) <= 1 or transaction.has_savepoints:
        return [(None, group)]
    parts = [(how, list(part)) for how, part in groupby(group, key=_how_to_apply_all)]
    return [(how if len(part) > 1 else None, part) for how, part in parts]


def _how_to_apply_all(pending: Pending[Any]) -> _ApplyAll | None:
    batch = pending.write.batch
    return None if batch is None else batch.apply_all


def _subject_of(pending: Pending[Any]) -> Any:
    return cast(Batch[Any], pending.write.batch).subject


def _be_patient(channel: Channel, timeout_ms: int) -> None:
    """How long the connection waits for others, from now on."""
    channel.control(f"PRAGMA busy_timeout={timeout_ms:d}")
