"""Soak: everything at once and at full speed for long, and nothing grows that should not."""

from __future__ import annotations

from tests.proof.report import Proof
from tests.proof.soak.verdicts import soak

PROOF = Proof(
    name="soak",
    shows="That under mixed load memory, files, the log and latencies stay as they are.",
    unit="minutes",
    runs=30,
    try_it=soak,
    # The server of the tests neither cleans up nor waits for its disk.
    server={
        "autovacuum": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
    },
)
