"""`broker apply`: every method, every kind of bad line, and the ends that a pipe can come to."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker import Broker, Options
from broker.cli.apply import METHODS, Method, answer
from broker.errors import OutcomeUnknown
from tests.cli.support import BROKER, Served, broker, environment, serving
from tests.places import Place, PlaceOn, url_of

TYPE = "teammate.runtime-read-model.frame.v2"


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, backend: str, place_on: PlaceOn
) -> Iterator[Served]:
    """One process for all bad lines: none of them may be fatal to the next."""
    folder = tmp_path_factory.mktemp("served")
    with (
        place_on(f"empty {backend}") as place,
        serving(folder, BROKER_DATABASE_URL=url_of(place)) as process,
    ):
        yield process
        assert process.call("stream.revision", {"streamId": "s"}) == 0
        assert process.finish() == 0


def frame(stream_id: str, sequence: int) -> dict[str, Any]:
    actor = {"version": 2, "workspaceId": "w", "actorId": "a", "actorKind": "root", "generation": 1}
    return {
        "version": 2,
        "streamId": stream_id,
        "sequence": sequence,
        "actor": actor,
        "occurredAt": 1,
        "kind": "domain.event",
        "eventType": TYPE,
        "eventId": f"frame-{sequence}",
    }


def commit(lease: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "messageId": "m",
        "actorId": "a",
        "lease": {"epoch": lease["epoch"], "nonce": lease["nonce"]},
        "streamId": "w/s",
        "expectedRevision": 0,
        "events": [{"eventId": "e", "eventType": "domain.event", "payload": frame("w/s", 1)}],
        "outbox": [{"outboxId": "o", "destination": "d", "payload": None}],
        "projections": [{"projectionId": "p", "value": [1, {"x": None}]}],
        "inboxResult": None,
    } | more


def test_every_method_answers_through_a_pipe_line_by_line(
    tmp_path: Path, empty_place: Place
) -> None:
    with serving(tmp_path, BROKER_DATABASE_URL=url_of(empty_place)) as process:
        call = process.call
        acquire = {"actorId": "a", "streamId": "w/s", "holderId": "h", "ttlMs": 60_000}
        lease = call("lease.acquire", acquire, requestId="r1")
        assert lease["epoch"] == 1
        assert call("lease.acquire", acquire, requestId="r1") == lease
        credential = {"epoch": 1, "nonce": lease["nonce"]}
        held = {"actorId": "a", "lease": credential}
        beaten = call("lease.heartbeat", held | {"ttlMs": 60_000}, requestId="r2")
        assert beaten["nonce"] == lease["nonce"]

        result = call("commit", commit(lease))
        assert (result["revision"], result["recovered"], result["reply"]) == (1, False, None)
        assert result["eventCursors"] == [1]
        assert call("commit", commit(lease))["recovered"] is True

        assert call("stream.revision", {"streamId": "w/s"}) == 1
        (event,) = call("stream.events", {"streamId": "w/s"})
        assert event["payload"] == frame("w/s", 1)
        assert "causationId" not in event
        authorized = {"streamId": "w/s", "authorization": held}
        assert call("stream.events", authorized) == [event]
        assert call("stream.events", {"streamId": "w/s", "authorization": None}) == [event]
        page = call(
            "stream.events.page", held | {"streamId": "w/s", "afterRevision": 0, "limit": 1}
        )
        assert page == {"events": [event], "nextRevision": 1, "throughRevision": 1, "done": True}
        assert call("stream.list", {"workspaceId": "w", "prefix": "w/", "limit": 9}) == ["w/s"]
        assert call("journal.events", {}) == [event | {"cursor": 1}]
        assert call("journal.events", {"afterCursor": 1, "limit": 2}) == []
        assert call("read-model.events", {"workspaceId": "w"}) == [event | {"cursor": 1}]
        assert call("read-model.sources", {"workspaceId": "w"}) == [
            {"streamId": "w/s", "generation": 1, "active": True}
        ]
        projection = call("projection.read", {"projectionId": "p"})
        assert projection["value"] == [1, {"x": None}]
        assert call("projection.read", {"projectionId": "none"}) is None

        (message,) = call("outbox.pending", {})
        assert (message["outboxId"], message["payload"], message["attempts"]) == ("o", None, 0)
        assert call("outbox.delivered", {"outboxId": "o"}) is True
        assert call("outbox.delivered", {"outboxId": "o"}) is False

        swapped = call("lease.compare-and-swap", held | {"nextHolderId": "h2", "ttlMs": 60_000})
        assert (swapped["epoch"], swapped["holderId"]) == (2, "h2")
        credential = {"epoch": 2, "nonce": swapped["nonce"]}
        assert call("lease.release", {"actorId": "a", "lease": credential}) is None
        taken = call("lease.takeover", acquire | {"holderId": "h3"})
        assert (taken["epoch"], taken["holderId"]) == (3, "h3")
        assert call("lease.get", {"actorId": "a"}) == taken
        assert call("lease.get", {"actorId": "nobody"}) is None
        assert process.finish() == 0


def test_refusals_are_answers_with_code_and_details(served: Served) -> None:
    acquire = {"actorId": "b", "streamId": "b", "holderId": "h", "ttlMs": 60_000}
    lease = served.call("lease.acquire", acquire)
    refused = served.ask("lease.acquire", acquire)["error"]
    assert refused["code"] == "lease_unavailable"
    assert refused["details"] == {"actorId": "b", "expiresAt": lease["expiresAt"]}

    stale = commit({"epoch": 1, "nonce": "other"}, actorId="b", streamId="b")
    assert served.ask("commit", stale)["error"]["code"] == "stale_lease"
    ahead = commit(lease, actorId="b", streamId="b", expectedRevision=4, events=[])
    assert served.ask("commit", ahead)["error"]["details"] == {
        "streamId": "b",
        "expectedRevision": 4,
        "actualRevision": 0,
    }


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"hello", "request"),
    "half of an object": (b'{"method": "commit", "params": {', "request"),
    "not UTF-8": (b'{"method": "lease.get", "params": {"actorId": "\xff\xfe"}}', "request"),
    "a lone byte": (b"\x80", "request"),
    "NUL": (b"\0", "request"),
    "a list": (b"[]", "request"),
    "null": (b"null", "request"),
    "B30, a key twice": (
        b'{"method": "lease.get", "params": {"actorId": "a", "actorId": "b"}}',
        "request",
    ),
    "B30, NaN": (b'{"method": "outbox.pending", "params": {"limit": NaN}}', "request"),
    "B30, 1e400": (b'{"method": "outbox.pending", "params": {"limit": 1e400}}', "request"),
    "B31, 1,000 levels": (
        b'{"method": "commit", "params": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        "request",
    ),
    "B31, 100,000 levels": (b"[" * 100_000, "request"),
    "B31, 5,000 digits": (
        b'{"method": "outbox.pending", "params": {"limit": ' + b"9" * 5_000 + b"}}",
        "request",
    ),
    "no method": (b'{"params": {}}', "method"),
    "a method that is a number": (b'{"method": 1, "params": {}}', "method"),
    "an unknown method": (b'{"method": "drop", "params": {}}', "method"),
    "a method of Python's": (b'{"method": "close", "params": {}}', "method"),
    "B30, a surrogate in the method": (b'{"method": "\\ud83d", "params": {}}', "method"),
    "no params": (b'{"method": "outbox.pending"}', "params"),
    "params that are a list": (b'{"method": "outbox.pending", "params": []}', "params"),
    "params that are null": (b'{"method": "outbox.pending", "params": null}', "params"),
    "an unknown field": (b'{"method": "outbox.pending", "params": {}, "id": 1}', "id"),
    "an unknown field of params": (b'{"method": "outbox.pending", "params": {"x": 1}}', "x"),
    "a request id for a read": (
        b'{"method": "lease.get", "params": {"actorId": "a"}, "requestId": "r"}',
        "requestId",
    ),
    "a request id that is a number": (
        b'{"method": "lease.acquire", "requestId": 1,'
        b' "params": {"actorId": "a", "holderId": "h", "ttlMs": 1}}',
        "requestId",
    ),
    "B30, a surrogate in an id": (
        b'{"method": "lease.get", "params": {"actorId": "\\ud83d"}}',
        "actorId",
    ),
    "a wrong authorization": (
        b'{"method": "stream.events", "params": {"streamId": "s", "authorization": 1}}',
        "authorization",
    ),
    "B57, a number in quotes": (b'{"method": "outbox.pending", "params": {"limit": "1"}}', "limit"),
    "a field below params": (
        b'{"method": "commit", "params": {"messageId": "m", "actorId": "a", "streamId": "s",'
        b' "lease": {"epoch": 0, "nonce": "n"}, "expectedRevision": 0, "events": []}}',
        "lease.epoch",
    ),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_answered_and_not_fatal(served: Served, name: str) -> None:
    line, field = BAD_LINES[name]
    assert served.refusal(line) == ("invalid_request", {"field": field})


def test_text_like_sql_parameters_and_quotes_is_only_text(served: Served) -> None:
    actor = "':true; DROP TABLE events; --\" % ? \u2028"  # B22, and its kin
    acquire = {"actorId": actor, "holderId": ":h", "ttlMs": 1_000}
    assert served.call("lease.acquire", acquire)["streamId"] == actor
    assert served.call("lease.get", {"actorId": actor})["holderId"] == ":h"


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def commit_line(lease: dict[str, Any], message: str, **parts: bytes) -> bytes:
    """A commit line with raw JSON for the payload of its event and for `inboxResult`."""
    request = commit(lease, messageId=message, actorId="x", streamId="x")
    request |= {"outbox": [], "projections": [], "inboxResult": "REPLY", "expectedRevision": 0}
    request["events"] = [{"eventId": message, "eventType": "t", "payload": "PAYLOAD"}]
    text = json.dumps({"method": "commit", "params": request}).encode()
    return text.replace(b'"REPLY"', parts["reply"]).replace(b'"PAYLOAD"', parts["payload"])


def test_numbers_surrogates_and_depth_survive_exactly(tmp_path: Path) -> None:
    big, lone = b"123456789012345678901234567890", b'"\\ud83d \xf0\x9f\x98\x80"'
    with serving(tmp_path) as process:
        acquire = {"actorId": "x", "holderId": "h", "ttlMs": 60_000}
        lease = process.call("lease.acquire", acquire)
        at = process.refusal(commit_line(lease, "m", payload=deep(201), reply=b"1"))
        assert at == ("invalid_request", {"field": "events[0].payload"})
        at = process.refusal(commit_line(lease, "m", payload=b"1", reply=deep(201)))
        assert at == ("invalid_request", {"field": "inboxResult"})

        exact = b'{"n":' + big + b',"s":' + lone + b',"f":1e-7,"d":' + deep(199) + b"}"
        answer = process.send(commit_line(lease, "m", payload=exact, reply=deep(200)))
        assert answer["result"]["reply"] == json.loads(deep(200))

        (event,) = process.call("stream.events", {"streamId": "x"})
        assert event["payload"]["n"] == int(big)
        assert event["payload"]["s"] == "\ud83d \U0001f600"
        assert event["payload"]["d"] == json.loads(deep(199))
        assert event["payload"]["f"] == 1e-7


def test_answers_are_compact_and_byte_for_byte_what_was_stored(tmp_path: Path) -> None:
    value = '{"b":12345678901234567890123,"a":"\\ud83d é","f":1e-7}'
    with serving(tmp_path) as process:
        lease = process.call("lease.acquire", {"actorId": "x", "holderId": "h", "ttlMs": 60_000})
        process.send(commit_line(lease, "m", payload=value.encode(), reply=b"1"))
        process._stdin.write(b'{"method": "stream.events", "params": {"streamId": "x"}}\n')
        process._stdin.flush()
        line = process._stdout.readline().decode()
    assert f'"payload":{value},"producerEpoch":1' in line
    assert line.startswith('{"ok":true,"result":[{"eventId":"m",')


def test_a_stored_payload_of_another_writer_that_is_deeper_is_still_answered(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as process:
        lease = process.call("lease.acquire", {"actorId": "x", "holderId": "h", "ttlMs": 60_000})
        process.send(commit_line(lease, "m", payload=b"1", reply=b"1"))
        for levels in (300, 900, 5_000):
            with closing(sqlite3.connect(tmp_path / "broker.db")) as other, other:
                other.execute("DROP TRIGGER IF EXISTS events_no_update")
                other.execute("UPDATE events SET payload_json = ?", (deep(levels).decode(),))
            answer = process.ask("stream.events", {"streamId": "x"})
            if answer["ok"]:
                assert answer["result"][0]["payload"] == json.loads(deep(levels))
            else:
                assert answer["error"]["code"] == "corrupt_row"
        assert process.call("stream.revision", {"streamId": "x"}) == 1


def test_a_database_that_is_busy_is_an_answer(tmp_path: Path) -> None:
    acquire = {"actorId": "x", "holderId": "h", "ttlMs": 60_000}
    line = json.dumps({"method": "lease.acquire", "params": acquire}).encode()
    url = f"sqlite:///{tmp_path / 'broker.db'}"
    with Broker.open(url, options=Options(busy_timeout_ms=50)) as store:
        with closing(sqlite3.connect(tmp_path / "broker.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert answer(store, line)["error"]["code"] == "database_busy"
            other.execute("ROLLBACK")
        assert answer(store, line)["result"]["epoch"] == 1


def test_a_commit_whose_outcome_is_unknown_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_store: Broker, _request: object) -> None:
        raise OutcomeUnknown("COMMIT failed")

    monkeypatch.setitem(METHODS, "commit", Method(fails))
    with Broker.open(f"sqlite:///{tmp_path / 'broker.db'}") as store:
        told = answer(store, b'{"method": "commit", "params": {}}')
    assert told == {"ok": False, "error": {"code": "outcome_unknown", "message": "COMMIT failed"}}


def test_blank_lines_are_skipped_and_the_last_line_needs_no_end(tmp_path: Path) -> None:
    line = b'{"method": "stream.revision", "params": {"streamId": "s"}}'
    (tmp_path / "lines").write_bytes(b"\n  \t\r\n" + line + b"\r\n\n" + line)
    done = broker("apply", "lines", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == '{"ok":true,"result":0}\n' * 2


@pytest.mark.parametrize("before", [b"", b"\r\n"])
def test_the_byte_order_mark_of_an_editor_is_ignored_at_the_beginning_only(
    before: bytes, tmp_path: Path
) -> None:
    line = b'{"method": "stream.revision", "params": {"streamId": "s"}}\n'
    mark = b"\xef\xbb\xbf"
    done = broker("apply", "-", cwd=tmp_path, stdin=mark + before + line + mark + line)
    first, second = done.stdout.splitlines()
    assert (done.returncode, first) == (0, '{"ok":true,"result":0}')
    assert json.loads(second)["error"]["details"] == {"field": "request"}


def test_refusals_do_not_change_the_exit_code(tmp_path: Path) -> None:
    done = broker("apply", "-", cwd=tmp_path, stdin=b"nonsense\n{}\n")
    assert done.returncode == 0
    assert [json.loads(line)["ok"] for line in done.stdout.splitlines()] == [False, False]


def test_a_line_beyond_the_limit_is_answered_and_skipped(tmp_path: Path) -> None:
    line = b'{"method": "stream.revision", "params": {"streamId": "s"}}\n'
    huge = b'"' + b"x" * (65 * 1024 * 1024) + b'"\n'
    done = broker("apply", "-", cwd=tmp_path, stdin=line + huge + line)
    answers = [json.loads(text) for text in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, False, True]
    assert answers[1]["error"]["details"] == {"field": "request"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("apply", "missing.jsonl"), "missing.jsonl"),
        (("apply", "."), "Is a directory"),
        (("apply",), "Missing argument"),
        (("apply", "-", "--url", "nonsense"), "not a database URL"),
        (("apply", "-", "--url", "sqlite://"), "in-memory"),
        (("apply", "-", "--url", "sqlite:///no.db"), "not an SQLite database"),
    ],
)
def test_what_cannot_be_opened_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "no.db").write_text("no database at all, but long enough")
    done = broker(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "broker.db").exists()


def test_a_reader_who_goes_away_ends_it_without_a_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BROKER, "apply", "-"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, stderr = process.communicate(b"x\n" * 20_000, timeout=20)
    assert stderr == b""
    assert process.returncode == 1


def test_a_full_disk_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*BROKER, "apply", "-"],
            cwd=tmp_path,
            input=b"x\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr == b"error: [Errno 28] No space left on device\n"
