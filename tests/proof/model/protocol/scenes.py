"""The scenes of which every interleaving is tried."""

from __future__ import annotations

from tests.proof.model.protocol.search import Scene

TWO_HOLDERS_AND_ANOTHER = Scene(
    actors=("a", "a", "b"),
    streams=("s",),
    asks=2,
    expiries=1,
    crashes=0,
    repetitions=0,
    kinds=("acquire", "swap", "release", "commit"),
)
CRASHES = Scene(actors=("a", "b"), streams=("s",), asks=2, expiries=2, crashes=1, repetitions=1)
TWO_STREAMS = Scene(
    actors=("a", "b"), streams=("s", "t"), asks=2, expiries=2, crashes=0, repetitions=0
)
THREE_ACTORS = Scene(
    actors=("a", "b", "c"),
    streams=("s",),
    asks=2,
    expiries=1,
    crashes=1,
    repetitions=1,
    kinds=("acquire", "commit"),
)
SMALL = (TWO_HOLDERS_AND_ANOTHER, CRASHES, TWO_STREAMS, THREE_ACTORS)

#: More than a million states, a gigabyte of memory.
LARGE = (
    Scene(actors=("a", "a", "b"), streams=("s",), asks=2, expiries=1, crashes=1, repetitions=1),
)
