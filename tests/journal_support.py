"""Parts of commits for the tests of the journal."""

from __future__ import annotations

from typing import Any

from tests.support import event, runtime_event

WORKSPACE = "ws"


def owned(event_id: str, stream: str, workspace: str = WORKSPACE, **others: Any) -> dict[str, Any]:
    """A runtime event, which gives its stream an owner."""
    return event(event_id, runtime_event(stream, workspace, **others))


def projection(projection_id: str, value: Any = 1) -> dict[str, Any]:
    return {"projectionId": projection_id, "value": value}
