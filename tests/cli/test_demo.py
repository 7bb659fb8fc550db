"""`broker demo`: what it shows, what it leaves behind, and that it can fail.

The last are the point: a demo whose checks pass whatever the store does would prove nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.cli.demo import legacy
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.report import Display, Figures
from broker.cli.demo.scenario import Plan
from broker.cli.demo.story import tell
from broker.errors import BrokerError, StaleLease
from broker.messages import CommitResult, Lease
from tests.cli.support import broker, run_sql
from tests.reference_checks import assert_reference_would_open

SMALL = Plan(windows=4, runs=16)


@pytest.fixture
def story(tmp_path: Path) -> Callable[[], tuple[Figures, Checks]]:
    """The demo in this process, on a smaller scale, so that the store can be tampered with."""
    path = tmp_path / "demo.db"
    legacy.make(path)
    return lambda: tell(path, SMALL, Display(silent=True))


Story = Callable[[], tuple[Figures, Checks]]


def failed(checks: Checks) -> set[Claim]:
    return {claim for claim in Claim if checks.failed(claim)}


# ----------------------------------------------------------------------------------- as it should


def test_the_demo_shows_the_story_and_exits_0(tmp_path: Path) -> None:
    done = broker("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "0001  adopted",
        "0002  version 2: leases belong to streams",
        "0003  version 3",
        "0004  guards",
        "16 windows race for 128 runs",
        "-> notifications: ",
        "391 in all: 1 to audit, 130 to notifications, 260 to timeline",
        *(claim.value for claim in Claim),
        "every claim was checked and holds",
    ):
        assert words in done.stdout
    assert "FAILED" not in done.stdout
    assert "nonce" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_cut_off_where_no_terminal_is(tmp_path: Path) -> None:
    done = broker("demo", "--json", cwd=tmp_path)
    added = [", ".join(step["added"]) for step in json.loads(done.stdout)["migration"]]
    assert max(map(len, added)) > 80

    shown = broker("demo", cwd=tmp_path, COLUMNS="80").stdout.splitlines()

    assert [line for line in shown if line.startswith("        new: ")] == [
        f"        new: {names}" for names in added if names
    ]


def test_the_file_is_kept_where_it_is_told_and_the_figures_are_json(tmp_path: Path) -> None:
    done = broker("demo", "--db", "kept 100%.db", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["ok"] is True
    assert (figures["windows"], figures["runs"]) == (16, 128)
    assert (figures["commits"], figures["events"], figures["takeovers"]) == (384, 896, 16)
    assert figures["delivered"] == {"audit": 1, "notifications": 130, "timeline": 260}
    assert figures["failures"] == []
    assert all(claim["checked"] and not claim["failed"] for claim in figures["claims"].values())
    assert [step["revision"] for step in figures["migration"]] == ["0001", "0002", "0003", "0004"]

    path = tmp_path / "kept 100%.db"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert_reference_would_open(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (35 + 896,)
        assert database.execute("SELECT count(*) FROM actor_leases").fetchone() == (128,)


@pytest.mark.parametrize("name", ["taken.db", "no/folder.db"])
def test_a_file_that_exists_or_cannot_be_made_is_one_line_and_exit_code_2(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "taken.db").write_text("mine")
    done = broker("demo", "--db", name, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert name in done.stderr
    assert (tmp_path / "taken.db").read_text() == "mine"


def test_the_example_is_a_sound_database_of_version_1(tmp_path: Path) -> None:
    run_sql(tmp_path / "old.db", legacy.example_sql())
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    old = legacy.look(tmp_path / "old.db")
    assert set(old.owners.values()) == {"atlas", "borealis"}
    assert (len(old.rows["events"]), len(old.pending), len(old.frames)) == (35, 7, 15)
    assert "notes" in old.revisions
    assert "notes" not in old.owners


def test_a_smaller_story_holds_as_well(story: Story) -> None:
    figures, checks = story()
    assert failed(checks) == set(), checks.failures
    assert (figures.windows, figures.runs) == (4, 16)


# ---------------------------------------------------------------------------------- and if it fails


def applied_again(store: Broker, request: Any, apply: Callable[..., CommitResult]) -> CommitResult:
    """A commit under ids of its own, as a store without an inbox would apply it once more."""
    form = json.loads(json.dumps(request))
    form |= {"messageId": f"{form['messageId']}/again", "outbox": [], "projections": []}
    for event in form["events"]:
        event["eventId"] += "/again"
    form["expectedRevision"] = store.get_stream_revision({"streamId": form["streamId"]})
    return apply(store, form)


@pytest.mark.parametrize("admits", [True, False])
def test_a_retried_commit_that_is_applied_twice_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch, admits: bool
) -> None:
    honest = Broker.commit

    def commit(store: Broker, request: Any) -> CommitResult:
        result = honest(store, request)
        if result.recovered and result.message_id.endswith("/start"):
            again = applied_again(store, request, honest)
            return again if admits else result
        return result

    monkeypatch.setattr(Broker, "commit", commit)
    _, checks = story()
    assert not checks.passed
    assert failed(checks) >= {Claim.STREAMS, Claim.ROWS}
    assert (Claim.RETRY in failed(checks)) is admits


def test_a_takeover_that_does_not_fence_the_old_holder_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.commit

    def commit(store: Broker, request: Any) -> CommitResult:
        try:
            return honest(store, request)
        except StaleLease:
            live = store.get_lease({"actorId": request["actorId"]})
            assert live is not None
            return honest(store, request | {"lease": live.credential.to_json()})

    monkeypatch.setattr(Broker, "commit", commit)
    _, checks = story()
    assert Claim.STALE in failed(checks)


def test_an_epoch_that_starts_anew_after_the_migration_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.acquire_lease

    def acquire(store: Broker, request: Any, **more: Any) -> Lease:
        return replace(honest(store, request, **more), epoch=1)

    monkeypatch.setattr(Broker, "acquire_lease", acquire)
    _, checks = story()
    assert Claim.EPOCHS in failed(checks)


def test_two_winners_of_one_race_fail_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.acquire_lease

    def acquire(store: Broker, request: Any, **more: Any) -> Lease:
        try:
            return honest(store, request, **more)
        except BrokerError:
            held = store.get_lease({"actorId": request["actorId"]})
            assert held is not None
            return held

    monkeypatch.setattr(Broker, "acquire_lease", acquire)
    _, checks = story()
    assert Claim.RACE in failed(checks)


def test_a_message_that_stays_pending_fails_the_demo_and_does_not_hang_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "mark_outbox_delivered", lambda _store, _request: True)
    _, checks = story()
    assert Claim.DELIVERY in failed(checks)


def test_a_message_that_is_left_out_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.list_pending_outbox

    def list_pending(store: Broker, request: Any) -> list[Any]:
        return [each for each in honest(store, request) if "run-011/end" not in each.outbox_id]

    monkeypatch.setattr(Broker, "list_pending_outbox", list_pending)
    _, checks = story()
    assert Claim.DELIVERY in failed(checks)


@pytest.mark.parametrize(
    ("method", "claim"),
    [
        ("read_model_events", Claim.FRAMES),
        ("read_model_sources", Claim.SOURCES),
        ("list_streams", Claim.LISTS),
        ("read_events", Claim.STREAMS),
    ],
)
def test_a_read_that_skips_something_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch, method: str, claim: Claim
) -> None:
    honest = getattr(Broker, method)
    monkeypatch.setattr(Broker, method, lambda store, request: honest(store, request)[1:])
    _, checks = story()
    assert claim in failed(checks)


def test_an_error_in_the_middle_ends_the_story_and_fails_the_demo(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heartbeat(_store: Broker, _request: Mapping[str, Any]) -> Lease:
        raise StaleLease("not live", actorId="a")

    monkeypatch.setattr(Broker, "heartbeat_lease", heartbeat)
    _, checks = story()
    assert Claim.NO_ERROR in failed(checks)
    assert any("stale_lease" in failure.reason for failure in checks.failures)


def test_drift_fails_the_demo(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Broker.close

    def close(store: Broker) -> None:
        honest(store)
        run_sql(tmp_path / "demo.db", "DROP INDEX IF EXISTS events_message_idx")

    monkeypatch.setattr(Broker, "close", close)
    _, checks = story()
    assert not checks.passed  # the store itself refuses to open it again
    assert Claim.SCHEMA in failed(checks)


def test_a_claim_that_was_never_checked_has_failed() -> None:
    checks = Checks()
    assert failed(checks) == set(Claim)
    for claim in Claim:
        checks.holds(claim, "it", truth=True)
    assert checks.passed


def test_a_failure_is_named_on_the_screen_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from broker.cli import main

    honest = Broker.get_lease
    monkeypatch.setattr(
        Broker,
        "get_lease",
        lambda store, request: (lease := honest(store, request)) and replace(lease, epoch=99),
    )
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--db", str(tmp_path / "demo.db")])
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert f"FAILED  {Claim.LEASES.value}: " in shown
    assert "1 of 28 claims FAILED" in shown
    assert (tmp_path / "demo.db").exists()  # to be looked into
