"""The same inputs made up by atheris, which follows the branches that the store takes.

It does so in a process of its own, for libFuzzer ends the process it runs in, and instruments what is
imported after it. It is of the dependency group `fuzz`: there are wheels for some Pythons and
platforms only.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.places import Place, PostgresPlace, url_of
from tests.proof.fuzz.bench import bench_on
from tests.proof.fuzz.inputs import INPUTS, fuzzed
from tests.proof.report import Report
from tests.support import ROOT

KINDS = ("requests", "JSON values", "JSON texts", "lines")
_TAKE_BYTES = {"JSON texts", "lines"}  # as they are; the others are made up from them
_SEEDS = (
    b'{"method":"commit","params":{"actorId":"a","lease":{"epoch":1,"nonce":"n"}}}',
    b'{"method":"stream.events","params":{"streamId":"s"},"requestId":null}',
    b'[1,-0,1e-7,"\\ud83d\\ude00",{"a":null}]',
)
_SECONDS = 900
_SCRIPT = """
import atheris, sys
with atheris.instrument_imports(include=["broker"]):
    from tests.proof.fuzz.coverage_guided import fuzz
fuzz(*sys.argv[1:])
"""


def is_here() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def try_coverage_guided(kind: str, seed: int, runs: int, place: Place, folder: Path) -> Report:
    """So many inputs of a kind, made up from a seed."""
    words = [kind, str(runs), str(seed), url_of(place), str(folder)]
    report = Report()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *words], capture_output=True, cwd=ROOT, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        report.broken(seed, f"coverage-guided {kind}: no end within {_SECONDS} s")
        return report
    said = done.stderr.decode(errors="replace")
    report.counts["coverage-guided inputs"] = _count(said)
    if done.returncode != 0:
        report.broken(seed, f"coverage-guided {kind}: {said[-2_000:]}")
    return report


def _count(said: str) -> int:
    """How many inputs libFuzzer says that there were: `Done 1000 in 2 second(s)`."""
    words = said.split()
    return next((int(words[at + 1]) for at, word in enumerate(words[:-1]) if word == "Done"), 0)


def fuzz(kind: str, runs: str, seed: str, url: str, folder: str) -> None:
    """Let libFuzzer make up inputs of a kind, and end the process."""
    atheris = importlib.import_module("atheris")
    corpus = Path(folder) / "corpus" / kind.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(_SEEDS):
        (corpus / str(number)).write_bytes(text)
    is_file = url.startswith("sqlite")
    place: Place = Path(url.removeprefix("sqlite:///")) if is_file else PostgresPlace(url)
    found = next(each for each in INPUTS if each.name == kind)
    with bench_on(place, Path(folder)) as bench:

        def judge(data: bytes) -> None:
            found.check(bench, data)

        one = judge if kind in _TAKE_BYTES else fuzzed(found, bench)
        options = [f"-seed={int(seed) + 1}", f"-atheris_runs={runs}", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *options, "-max_len=4096", str(corpus)], one)
        atheris.Fuzz()
