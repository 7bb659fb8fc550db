"""`broker schemas`: the messages, for whoever writes a client in another language."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from broker.messages import json_schemas


def schemas(
    name: Annotated[
        str | None, typer.Argument(help="Only this message, such as CommitRequest.")
    ] = None,
) -> None:
    """Print the JSON Schemas of all requests and results as one document, by their names."""
    known = json_schemas()
    if name is not None and name not in known:
        raise typer.BadParameter(f"there is no {name!r}; there are {', '.join(known)}")
    print(json.dumps(known if name is None else known[name], indent=2))
