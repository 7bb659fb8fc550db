"""The README's examples run as they stand, and its tables are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import broker
from broker import errors
from tests.places import Place, url_of
from tests.proof.proofs import PROOFS
from tests.proof.report import Proof

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON_EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL_EXAMPLES = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMANDS = [example for example in SHELL_EXAMPLES if "uv run" not in example]

SAID = (["mail {'to': 'ann'}", "'stale_lease'"], ["True", "started"], ["['placed']"])


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a newcomer would, in a folder of its own."""
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"} | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_there_is_an_example_for_each_door() -> None:
    assert len(PYTHON_EXAMPLES) == 4
    assert len(COMMANDS) == 2


@pytest.mark.parametrize(
    ("example", "said"),
    list(zip(PYTHON_EXAMPLES[:3], SAID, strict=True)),
)
def test_a_python_example_runs_and_has_at_most_thirty_lines(
    example: str, said: list[str], tmp_path: Path
) -> None:
    finished = run([sys.executable, "-W", "error", "-c", example], tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert all(text in finished.stdout for text in said)
    assert len(example.splitlines()) <= 30


def test_the_example_for_more_than_one_machine_is_for_either_backend(
    place: Place, tmp_path: Path
) -> None:
    command = [sys.executable, "-W", "error", "-c", PYTHON_EXAMPLES[3]]
    finished = run(command, tmp_path, BROKER_DATABASE_URL=url_of(place))

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "1 0\n"


def test_the_commands_do_what_they_are_said_to(tmp_path: Path) -> None:
    finished = run(["bash", "-euc", COMMANDS[0]], tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count('{"ok":true,') == 3
    assert "no drift" in finished.stdout
    assert '"CommitRequest"' in finished.stdout


def test_the_drift_check_of_ci_runs(tmp_path: Path) -> None:
    finished = run(["bash", "-euc", COMMANDS[1]], tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert "no drift" in finished.stdout


def test_every_part_of_the_package_stands_in_the_table() -> None:
    parts = {
        f"{part.name}/" if part.is_dir() else part.name
        for part in Path(broker.__file__).parent.iterdir()
        if not part.name.startswith("_") and part.suffix in {"", ".py"}
    }
    assert [part for part in sorted(parts) if f"`{part}`" not in README] == []


def test_every_error_stands_in_the_table_with_its_code() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.BrokerError)
    ]
    concrete = [kind for kind in kinds if kind not in {errors.BrokerError, errors.Refusal}]

    missing = [kind for kind in concrete if f"| `{kind.__name__}` | `{kind.code}` |" not in README]

    assert concrete
    assert missing == []


@pytest.mark.parametrize("proof", PROOFS, ids=lambda each: each.name)
def test_every_proof_is_listed_with_what_it_said_last_on_each_backend(proof: Proof) -> None:
    assert f"| `{proof.name}` |" in README
    said = re.findall(
        rf"^{proof.name} on (\w+), seed \d+\n{proof.name}: [\d,]+ {proof.unit}, [\d,]+ \w",
        README,
        re.MULTILINE,
    )
    assert said == [*proof.backends]
