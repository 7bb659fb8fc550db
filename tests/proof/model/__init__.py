"""Model: the store beside a plain one, history by history; and every interleaving of its protocol."""

from __future__ import annotations

from tests.proof.model.trying import try_model
from tests.proof.report import Proof

PROOF = Proof(
    name="model",
    shows="The store answers and keeps what a plain model of its rules does.",
    unit="histories",
    runs=200,
    try_it=try_model,
)
