"""Every proof there is, in the order in which the README lists them."""

from __future__ import annotations

from tests.proof import fuzz, kill, linearizability
from tests.proof.report import Proof

PROOFS: tuple[Proof, ...] = (
    kill.PROOF,
    linearizability.PROOF,
    fuzz.PROOF,
)
