"""A build of the store that is broken on purpose: proof that a check can fail.

    python -m tests.proof.edited '[["broker.leases", "epoch + 1", "epoch"]]' tests.worker ARGUMENT…

runs a module of the tests' own in a process that has the edits; the files stay as they are. It is to
be started before anything of `broker` is imported, so nothing here imports it.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import NamedTuple


class Edit(NamedTuple):
    """A text of a module's source, which must be there exactly once, and what comes in its place."""

    module: str
    old: str
    new: str


def command(edits: Sequence[Edit], module: str, *arguments: str) -> list[str]:
    """What starts a module with edits, as `python -m` does without."""
    how = ["-m", "tests.proof.edited", json.dumps(edits)] if edits else ["-m"]
    return [sys.executable, *how, module, *arguments]


def install(edits: Sequence[Edit]) -> None:
    """Edit modules when they are imported from now on, which they must not be yet."""
    for edit in edits:
        if edit.module in sys.modules:
            raise ImportError(f"{edit.module} was imported before it could be edited")
    sys.meta_path.insert(0, _Finder(edits))


class _Finder(MetaPathFinder):
    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        edits = [edit for edit in self._edits if edit.module == fullname]
        spec = PathFinder.find_spec(fullname, path, target) if edits else None
        if spec is not None and spec.origin is not None:
            loader: Loader = _Editing(fullname, spec.origin, edits)
            spec.loader = loader
        return spec


class _Editing(SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Compiled from the edited source, past what is cached of the other."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        for edit in self._edits:
            if source.count(edit.old) != 1:
                raise ImportError(f"{fullname} has {edit.old!r} {source.count(edit.old)} times")
            source = source.replace(edit.old, edit.new)
        return compile(source, path, "exec", dont_inherit=True)


def main() -> None:
    """Run a module with edits."""
    _, edits, module, *arguments = sys.argv
    install([Edit(*each) for each in json.loads(edits)])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
