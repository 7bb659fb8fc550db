"""Files and schemas that were damaged, or made to deceive: an error, or an answer that is right."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.proof.files.damages import try_cut, try_flip, try_log, try_other
from tests.proof.files.judging import (
    COUNTS,
    Original,
    Whole,
    judge_operations,
    judge_reads,
    judge_writes,
)
from tests.proof.files.original import fill
from tests.proof.files.postgres_schemas import try_schema as try_schema_on_postgresql
from tests.proof.files.schemas import SCHEMAS, damage
from tests.proof.report import Proof, Report
from tests.proof.task import Task
from tests.proof.watchdog import watched

_KINDS = (try_flip, try_flip, try_flip, try_cut, try_log, try_other)
_SECONDS = 120.0  # for a file, which takes a tenth of one


def try_file(seed: int, folder: Path) -> Report:
    """One file, damaged as the seed says."""
    report = Report()
    rng = random.Random(seed)
    rng.choice(_KINDS)(report, seed, _original(folder), rng)
    return report


def try_schema(seed: int, folder: Path) -> Report:
    """One schema of those that are made to deceive, by its number."""
    report = Report()
    whole = _original(folder)
    name, change = list(SCHEMAS.items())[seed % len(SCHEMAS)]
    report.counts["hostile schemas"] += 1
    path = whole.copy()
    damage(path, change)
    judge_operations(report, seed, name, path)
    path = whole.copy()
    damage(path, change)
    judge_reads(report, seed, name, path, whole.answers, lambda _: False)
    judge_writes(report, seed, name, path, whole)
    return report


_originals: dict[Path, Original] = {}


def _original(folder: Path) -> Original:
    """Made once for all the files of a process, anew if one before it has died."""
    if folder not in _originals:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        _originals[folder] = Original(folder)
    return _originals[folder]


def try_it(task: Task) -> Report:
    """Each file, and all the schemas, in a process that is watched."""
    report = Report()
    report.counts.update(dict.fromkeys((*COUNTS, "hung", "died"), 0))
    if task.databases is not None:
        whole = whole_on_postgresql(task)
        for seed in task.seeds:
            with task.place() as place:
                try_schema_on_postgresql(report, seed, place, whole)
        report.left_out.append("files: a server's files are its own")
        return report
    with watched(try_file, _SECONDS) as files:
        for seed in task.seeds:
            report.add(files.round(seed, task.folder / "files"))
    with watched(try_schema, _SECONDS) as schemas:
        for number in range(len(SCHEMAS) if task.runs > 1 else 1):
            report.add(schemas.round(task.seed + number, task.folder / "schemas"))
    report.left_out.append("a file without permission: whoever runs this may be root")
    return report


def whole_on_postgresql(task: Task) -> Whole:
    """What a store on a server answers that nobody has touched."""
    with task.place() as place:
        fill(place)
        return Whole(place)


PROOF = Proof(
    name="files",
    shows="A damaged or hostile file or schema is refused, or what it answers is right.",
    unit="files",
    runs=1_000,
    try_it=try_it,
)
