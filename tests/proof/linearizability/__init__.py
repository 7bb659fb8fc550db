"""Linearizability: real processes do things to one store at once, and some order explains it all."""

from __future__ import annotations

from tests.proof.linearizability.histories import try_histories
from tests.proof.report import Proof

PROOF = Proof(
    name="linearizability",
    shows="That whatever several processes are told by one store, some order of it explains.",
    unit="histories",
    runs=300,
    try_it=try_histories,
)
