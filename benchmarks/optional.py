"""Packages of the dependency group `benchmarks`: nothing that is measured of the store needs them."""

from __future__ import annotations

from importlib import metadata


class NotInstalled(ImportError):
    """A package is not there; the message is one line that says how to get it."""

    def __init__(self, package: str) -> None:
        command = "uv run --group benchmarks python -m benchmarks"
        super().__init__(f"{package}: not installed; `{command}` brings it", name=package)


def version_of(package: str) -> str | None:
    """The version that is installed, None without one."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def require_installed(package: str) -> None:
    """Raise NotInstalled unless the package is there."""
    if version_of(package) is None:
        raise NotInstalled(package)
