"""Every proof there is, in the order in which the README lists them."""

from __future__ import annotations

from tests.proof import faults, files, fuzz, kill, linearizability, model, soak
from tests.proof.report import Proof

PROOFS: tuple[Proof, ...] = (
    kill.PROOF,
    faults.PROOF,
    linearizability.PROOF,
    model.PROOF,
    fuzz.PROOF,
    files.PROOF,
    soak.PROOF,
)
