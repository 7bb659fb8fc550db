"""What may be given as a revision. Decided by the history alone, before a database is opened."""

from __future__ import annotations

import re

from alembic.script import ScriptDirectory

from broker.errors import ConfigurationError

BASE = "base"

_FORM = re.compile(r"([0-9a-z]*)([+-][0-9]{1,9})?")


def require_revision(scripts: ScriptDirectory, command: str, given: str) -> None:
    """Raise ConfigurationError unless `command` (upgrade, downgrade, stamp) can take `given`.

    That is head, heads, base, the whole id of a revision that exists, or a number of steps, from
    the database's own revision (+N to upgrade, -N to downgrade) or from a named one (REV+N, REV-N).
    Steps must end within the history, and an upgrade's at a revision: Alembic itself would trip
    over anything else, in the middle of a transaction. Whether there are as many steps above or
    below where the database stands is left to Alembic.
    """
    if not _is_revision(scripts, command, given):
        raise ConfigurationError(
            f"{_shortened(given)} is not a revision to {command} to: say head, base, one of"
            f" {', '.join(_ids(scripts))}{_STEPS[command]}"
        )


_STEPS = {
    "upgrade": ", or steps: +N, REV+N, REV-N",
    "downgrade": ", or steps: -N, REV+N, REV-N",
    "stamp": "",
}


def _is_revision(scripts: ScriptDirectory, command: str, given: str) -> bool:
    match = _FORM.fullmatch(given)
    if match is None:
        return False
    name, steps = match.group(1), int(match.group(2) or 0)
    history = [BASE, *_ids(scripts)]
    newest = len(history) - 1
    if match.group(2) is None:
        return name in {*history, "head", "heads"}

    if steps == 0 or command == "stamp":
        return False
    if not name:
        return 0 < (steps if command == "upgrade" else -steps) <= newest
    lowest = 1 if command == "upgrade" else 0
    places = {**{each: place for place, each in enumerate(history)}, "head": newest}
    return name in places and lowest <= places[name] + steps <= newest


def _ids(scripts: ScriptDirectory) -> list[str]:
    """Every revision, the oldest first; the history is one line."""
    return [script.revision for script in scripts.walk_revisions()][::-1]


def _shortened(given: str) -> str:
    return repr(given if len(given) <= 40 else f"{given[:40]}…")
