"""Proof of what the store promises: crashes, faults, races and every input, against the real thing.

    python -m tests.proof kill --runs 10000 --seed 7 --backend sqlite

Each proof is a package or module here that defines `PROOF`; its twin runs a short form in the suite.
"""
