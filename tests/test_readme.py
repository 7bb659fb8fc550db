"""The README's examples run as they stand, and its tables are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker import errors

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON_EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL_EXAMPLES = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMANDS = [example for example in SHELL_EXAMPLES if "uv run" not in example]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a newcomer would, in a folder of its own."""
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_there_is_an_example_for_each_of_the_three_doors() -> None:
    assert len(PYTHON_EXAMPLES) == 2
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("example", PYTHON_EXAMPLES)
def test_a_python_example_runs_in_at_most_thirty_odd_lines(example: str, tmp_path: Path) -> None:
    finished = run([sys.executable, "-W", "error", "-c", example], tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout
    assert len(example.splitlines()) <= 36


@pytest.mark.parametrize("example", COMMANDS)
def test_a_shell_example_runs(example: str, tmp_path: Path) -> None:
    finished = run(["bash", "-euc", example], tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert '"ok":false' not in finished.stdout.replace(" ", "")


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
