"""A write on its way: its outcome, given out once, and its waiting."""

from __future__ import annotations

import sqlite3
import threading
from time import monotonic
from typing import Any, cast

import pytest

from broker.errors import OutcomeUnknown, RevisionConflict, StaleLease
from broker.sqlite.pending import Pending
from broker.transaction import Spoilt, Transaction, Write
from tests.group_support import PATIENCE, Caller, pending

NO_TRANSACTION = cast(Transaction, None)  # what these writes do not look at


def raising(error: Exception, *, in_a_block: bool = False) -> Write[Any]:
    def apply(_transaction: Transaction) -> None:
        if in_a_block:
            raise Spoilt from error
        raise error

    return Write(apply)


def test_it_is_prepared_once() -> None:
    made: list[Write[None]] = []

    def make() -> Write[None]:
        made.append(Write(lambda _transaction: None))
        return made[-1]

    prepared = Pending(make, 0)
    assert not prepared.is_prepared
    assert prepared.prepare()
    assert prepared.prepare()
    assert made == [prepared.write]


def test_one_that_cannot_be_prepared_has_that_for_its_outcome() -> None:
    def fail() -> Write[None]:
        raise KeyError

    failing = Pending(fail, 0)
    assert not failing.prepare()
    assert failing.is_settled
    with pytest.raises(KeyError):
        failing.outcome()


def test_an_exit_that_its_preparation_asks_for_is_its_own_and_an_interrupt_is_the_threads() -> None:
    def leave() -> Write[None]:
        raise SystemExit(3)

    def interrupt() -> Write[None]:
        raise KeyboardInterrupt

    leaving = Pending(leave, 0)
    assert not leaving.prepare()
    with pytest.raises(SystemExit):
        leaving.outcome()
    interrupted = Pending(interrupt, 0)
    with pytest.raises(KeyboardInterrupt):
        interrupted.prepare()
    assert not interrupted.is_settled


def test_it_has_the_result_of_its_write() -> None:
    done = pending(Write(lambda _transaction: "result"))
    done.apply(NO_TRANSACTION)
    assert done.outcome() == "result"


@pytest.mark.parametrize("in_a_block", [False, True])
@pytest.mark.parametrize(
    "error", [StaleLease("stale"), ZeroDivisionError(), sqlite3.OperationalError()]
)
def test_it_keeps_the_error_of_its_write(error: Exception, in_a_block: bool) -> None:
    failed = pending(raising(error, in_a_block=in_a_block))
    failed.apply(NO_TRANSACTION)
    assert failed.error is error
    assert not failed.is_settled
    with pytest.raises(type(error)) as caught:
        failed.outcome()
    assert caught.value is error


def test_what_further_statements_must_explain_is_raised_for_another_try() -> None:
    error = sqlite3.IntegrityError()
    with pytest.raises(Spoilt) as caught:
        pending(raising(error, in_a_block=True)).apply(NO_TRANSACTION)
    assert caught.value.__cause__ is error


def test_another_try_forgets_what_came_of_the_first() -> None:
    errors: list[Exception] = [RevisionConflict("moved on")]

    def apply(_transaction: Transaction) -> str:
        for error in errors:
            raise error
        return "result"

    tried = pending(Write(apply))
    tried.apply(NO_TRANSACTION)
    errors.clear()
    tried.apply(NO_TRANSACTION)
    assert tried.outcome() == "result"


def test_an_interrupt_passes_through() -> None:
    def interrupt(_transaction: Transaction) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pending(Write(interrupt)).apply(NO_TRANSACTION)


@pytest.mark.parametrize(("found", "is_found"), [(None, False), ((None,), True), (("x",), True)])
def test_the_answer_to_an_earlier_call_settles_it(found: Any, is_found: bool) -> None:
    repeated = pending(Write(lambda _transaction: "new", lambda _transaction: found))
    assert repeated.recover(NO_TRANSACTION) is is_found
    assert repeated.is_settled is is_found
    if is_found:
        assert repeated.outcome() == found[0]


def test_an_earlier_call_with_another_request_settles_it_too() -> None:
    def refuse(_transaction: Transaction) -> tuple[Any] | None:
        raise StaleLease("another")

    repeated = pending(Write(lambda _transaction: None, refuse))
    assert repeated.recover(NO_TRANSACTION)
    with pytest.raises(StaleLease) as caught:
        repeated.outcome()
    assert caught.value.__cause__ is None


def test_a_failure_has_its_cause_and_takes_the_place_of_a_result() -> None:
    failed, cause = pending(Write(lambda _transaction: "result")), KeyError()
    failed.apply(NO_TRANSACTION)
    failed.fail(OutcomeUnknown("who knows"), cause)
    assert failed.is_settled
    with pytest.raises(OutcomeUnknown) as caught:
        failed.outcome()
    assert caught.value.__cause__ is cause


# ------------------------------------------------------------------------------------- the waiting


def waiting(deadline: float) -> Pending[Any]:
    made: Pending[Any] = Pending(lambda: Write(lambda _transaction: None), deadline)
    made.expect_to_wait()
    return made


def test_one_that_is_woken_before_it_waits_goes_on_at_once() -> None:
    woken = waiting(monotonic() + PATIENCE)
    woken.wake()
    assert woken.wait()


def test_one_that_waits_is_woken_however_often() -> None:
    woken = waiting(monotonic() + PATIENCE)
    caller = Caller(woken.wait)
    woken.wake()
    woken.wake()
    assert caller.outcome() is True
    woken.wake()


def test_it_waits_until_its_deadline_and_patiently_beyond() -> None:
    late = waiting(monotonic() - 1)
    assert not late.wait()
    is_there = threading.Event()

    def wait() -> bool:
        is_there.set()
        return late.wait(patiently=True)

    caller = Caller(wait)
    assert is_there.wait(PATIENCE)
    assert caller.is_alive()
    late.wake()
    assert caller.outcome() is True


def test_one_that_does_not_wait_can_be_woken_and_is_done_as_ever() -> None:
    woken = pending(Write(lambda _transaction: "result"))
    woken.wake()
    woken.apply(NO_TRANSACTION)
    assert woken.outcome() == "result"
