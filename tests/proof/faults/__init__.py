"""Proof that faults of disks, locks, clocks and servers break no promise, and are told as they are."""

from __future__ import annotations

from collections.abc import Mapping

from tests.proof.faults import clocks, servers, surroundings, suspended
from tests.proof.faults.power import lose_power
from tests.proof.faults.scene import Scenario, play
from tests.proof.faults.shimmed import meet_faults
from tests.proof.report import Proof, Report
from tests.proof.task import Task

ON_BOTH: Mapping[str, Scenario] = {
    "jumping clocks": clocks.jumping_clocks,
    "a lease after a jump of the clock": clocks.after_a_jump,
    "suspended past its lease": suspended.suspended_past_its_lease,
    "suspended in a transaction": suspended.suspended_in_a_transaction,
    "killed while suspended": suspended.killed_while_suspended,
}
OF_FILES: Mapping[str, Scenario] = {
    "locked by a transaction": surroundings.locked_by_a_transaction,
    "locked by a stranger": surroundings.locked_by_a_stranger,
    "not to be written": surroundings.not_to_be_written,
    "not to grow": surroundings.not_to_grow,
    "deleted": surroundings.deleted,
    "replaced": surroundings.replaced,
}
OF_SERVERS: Mapping[str, Scenario] = {
    "lost connections": servers.lost_connections,
    "ended sessions": servers.ended_sessions,
    "restarted server": servers.restarted_server,
    "timeouts": servers.timeouts,
    "cut off server": servers.cut_off_server,
}
ON_FILES, ON_SERVERS = {**ON_BOTH, **OF_FILES}, {**ON_BOTH, **OF_SERVERS}

LEFT_OUT_ON_FILES = (
    "a file system that is remounted read-only, or too small: to mount takes privileges; the shim"
    " refuses to open for writing, and has no space, instead",
    "rights that are taken away by another user than the file's owner",
    "power cuts of a real disk: what was flushed is taken to stay, and a folder's entries to change in"
    " their order",
)
LEFT_OUT_ON_SERVERS = (
    "a server whose disk is full, or whose clock is set: both are the whole machine's; clocks that"
    " jump are those that a store was given",
    "faults of the server's own system calls",
)
EVERY = 20  # so many faults of system calls for one of the others, and one process without power
POWER = 10


def try_it(task: Task) -> Report:
    """Meet a fault for each seed: of a system call or the power, or on a server one of the others."""
    report = Report()
    if task.backend == "sqlite":
        of_calls = [seed for seed in task.seeds if seed % EVERY not in {0, POWER}]
        report.add(meet_faults(of_calls, task.folder))
        for seed in task.seeds:
            if seed % EVERY == 0:
                report.add(_play(task, seed, seed // EVERY, ON_FILES))
        powerless = [seed for seed in task.seeds if seed % EVERY == POWER]
        report.add(lose_power(powerless, task.folder))
        report.left_out += LEFT_OUT_ON_FILES
    else:
        for seed in task.seeds:
            report.add(_play(task, seed, seed, ON_SERVERS))
        report.left_out += LEFT_OUT_ON_SERVERS
    return report


def _play(task: Task, seed: int, number: int, scenarios: Mapping[str, Scenario]) -> Report:
    name = list(scenarios)[number % len(scenarios)]
    return play(task, seed, name, scenarios[name])


PROOF = Proof(
    name="faults",
    shows="Faults of disks, locks, clocks and servers break no promise.",
    unit="faults",
    runs=4_000,
    try_it=try_it,
    server={"synchronous_commit": "on"},
)
