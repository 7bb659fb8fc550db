"""Several processes upgrade one file at once; whichever way they meet, each one succeeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from broker import schema
from tests.migrations.support import ROOT, contents, looking, url, version_1
from tests.processes import WarmProcess

# Says what it does, and waits for a line of input: to start together with others, or in the middle
# of the backfill.
PROCESS = """
import json, sys
from broker import schema

def pause(done, total):
    print("in the middle", flush=True)
    sys.stdin.readline()

print("starting", flush=True)
if sys.argv[2] == "together":
    import broker.schema.migrate, psycopg
    sys.stdin.readline()
progress = pause if sys.argv[2] == "slow" else None
namespace = sys.argv[3] if len(sys.argv) > 3 else None
reports = schema.upgrade(sys.argv[1], schema=namespace, progress=progress)
print(json.dumps([report.revision for report in reports]), flush=True)
"""


def start(target: Path | str, pace: str = "fast", *namespace: str) -> subprocess.Popen[str]:
    database = target if isinstance(target, str) else url(target)
    process = WarmProcess(
        [sys.executable, "-c", PROCESS, database, pace, *namespace],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    return process


def start_together(database: str, *namespace: str) -> list[subprocess.Popen[str]]:
    processes = [start(database, "together", *namespace) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return processes


def reach_the_middle(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "in the middle\n"


def finish(process: subprocess.Popen[str]) -> list[str]:
    output, errors = process.communicate("\n" * 10, timeout=60)
    assert process.returncode == 0, errors
    done: list[str] = json.loads(output.splitlines()[-1])
    return done


def test_b16_of_processes_that_start_together_on_an_empty_file_one_does_the_work(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    processes = [start(path) for _ in range(4)]

    done = sorted(finish(process) for process in processes)

    assert done == [[], [], [], ["0001", "0002", "0003", "0004"]]
    with looking(path) as connection:
        assert schema.drift(connection) == []


def test_b16_processes_wait_for_a_slow_backfill_and_find_it_done(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    slow = start(path, "slow")
    reach_the_middle(slow)
    others = [start(path), start(path)]
    assert [other.poll() for other in others] == [None, None]

    done = [finish(slow), *(finish(other) for other in others)]

    assert done == [["0002", "0003", "0004"], [], []]


def test_b15_a_process_killed_in_the_middle_leaves_the_old_version_to_the_next(
    tmp_path: Path,
) -> None:
    path = version_1(tmp_path / "1.db")
    before = contents(path)
    killed = start(path, "slow")
    reach_the_middle(killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()

    assert contents(path) == before
    assert finish(start(path)) == ["0002", "0003", "0004"]
