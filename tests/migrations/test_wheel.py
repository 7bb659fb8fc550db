"""The installed package: revisions inside the wheel, no configuration file, the host's logging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from broker import schema
from tests.migrations.support import ROOT, run_sql

# A host with handlers and loggers of its own upgrades a database, then opens it once more.
HOST = """
import json, logging, sys
import broker.schema

path, = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)
mine = logging.getLogger("the.host")
root = logging.getLogger()
before = (list(map(id, root.handlers)), root.level, mine.disabled)

lazy = "alembic" not in sys.modules
reports = broker.schema.upgrade(f"sqlite:///{path}")
from broker.schema.migrate import script_location

after = (list(map(id, root.handlers)), root.level, mine.disabled)
print(json.dumps({
    "package": broker.schema.__file__,
    "scripts": str(script_location()),
    "revisions": [report.revision for report in reports],
    "logging untouched": before == after,
    "alembic imported late": lazy,
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network and unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run_host(site: Path, cwd: Path) -> dict[str, object]:
    answer = subprocess.run(
        [sys.executable, "-c", HOST, str(cwd / "new.db")],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    told: dict[str, object] = json.loads(answer.stdout)
    return told


def test_b20_the_wheel_carries_the_revisions_and_no_package_of_that_name(site: Path) -> None:
    carried = {str(file.relative_to(site)) for file in site.rglob("*.py")}

    assert {f"broker/_alembic/versions/{n}" for n in revisions()} <= carried
    assert "broker/_alembic/env.py" in carried
    assert not [name for name in carried if name.startswith("alembic/")]
    assert "broker/_alembic/__init__.py" not in carried
    assert not list((site / "broker").rglob("*.pyc"))


def test_b20_an_upgrade_works_from_the_wheel_alone_and_leaves_the_hosts_logging(
    site: Path, tmp_path: Path
) -> None:
    told = run_host(site, tmp_path)

    assert told == {
        "package": str(site / "broker" / "schema" / "__init__.py"),
        "scripts": str(site / "broker" / "_alembic"),
        "revisions": ["0001", "0002", "0003", "0004"],
        "logging untouched": True,
        "alembic imported late": True,
    }


def test_opening_a_database_at_head_does_not_import_alembic(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom broker import schema\nfrom broker.sqlite.engine import make_engine\n"
        "engine = make_engine(sys.argv[1])\n"
        "with engine.connect() as connection:\n"
        "    found = schema.state(connection)\n"
        "    schema.drift(connection)\n"
        "print(found.at_head, any(name.split('.')[0] == 'alembic' for name in sys.modules))"
    )
    path = run_sql(tmp_path / "new.db", "")
    schema.upgrade(f"sqlite:///{path}")

    answer = subprocess.run(
        [sys.executable, "-c", script, f"sqlite:///{path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout == "True False\n"


def revisions() -> list[str]:
    return [file.name for file in (ROOT / "alembic" / "versions").glob("*.py")]
