"""Proof 1: processes that are killed at any moment lose nothing that they were told.

python -m tests.proof kill --runs 10000 --seed 7 --backend sqlite
"""

from __future__ import annotations

from tests.proof.kill.runs import try_kills
from tests.proof.report import Proof

PROOF = Proof(
    name="kill",
    shows="What was acknowledged survives a kill at any system call, statement or moment.",
    unit="kills",
    runs=500,
    try_it=try_kills,
)
