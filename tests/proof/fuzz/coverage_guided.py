"""The same inputs made up by atheris, which follows the branches that the store takes.

    python -m tests.proof.fuzz.coverage_guided KIND RUNS SEED URL FOLDER

is the process that does it, for libFuzzer ends the process it runs in. It is of the dependency group
`fuzz`, as there are wheels for some Pythons and platforms only.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.places import Place, PostgresPlace, url_of
from tests.proof.report import Report
from tests.support import ROOT

KINDS = ("requests", "JSON values", "JSON texts", "lines")
_TAKE_BYTES = {"JSON texts", "lines"}  # as they are; the others are made up from them
_SEEDS = (
    b'{"method":"commit","params":{"actorId":"a","lease":{"epoch":1,"nonce":"n"}}}',
    b'{"method":"stream.events","params":{"streamId":"s"},"requestId":null}',
    b'[1,-0,1e-7,"\\ud83d\\ude00",{"a":null}]',
)
_SECONDS = 600


def is_here() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def try_coverage_guided(seed: int, runs: int, place: Place, folder: Path) -> Report:
    """So many inputs of each kind, in a process for each kind."""
    report = Report()
    for kind in KINDS:
        words = [kind, str(runs), str(seed), url_of(place), str(folder)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, *words],
                capture_output=True,
                cwd=ROOT,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            report.broken(seed, f"coverage-guided {kind}: no end within {_SECONDS} s")
            continue
        said = done.stderr.decode(errors="replace")
        report.counts["coverage-guided inputs"] += _count(said)
        if done.returncode != 0:
            report.broken(seed, f"coverage-guided {kind}: {said[-2_000:]}")
    return report


def _count(said: str) -> int:
    """How many inputs libFuzzer says that there were: `Done 1000 in 2 second(s)`."""
    words = said.split()
    return next((int(words[at + 1]) for at, word in enumerate(words[:-1]) if word == "Done"), 0)


def main(kind: str, runs: str, seed: str, url: str, folder: str) -> None:
    """Let libFuzzer make up inputs of a kind, and end the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["broker"]):
        from tests.proof.fuzz.bench import bench_on
        from tests.proof.fuzz.inputs import INPUTS, fuzzed

    corpus = Path(folder) / "corpus" / kind.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(_SEEDS):
        (corpus / str(number)).write_bytes(text)
    place: Place = Path(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite"):
        place = PostgresPlace(url)
    found = next(each for each in INPUTS if each.name == kind)
    with bench_on(place, Path(folder)) as bench:

        def judge(data: bytes) -> None:
            found.check(bench, data)

        one = judge if kind in _TAKE_BYTES else fuzzed(found, bench)
        options = [f"-seed={int(seed) + 1}", f"-atheris_runs={runs}", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *options, "-max_len=4096", str(corpus)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
