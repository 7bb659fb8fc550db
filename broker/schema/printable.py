"""Text of others, made fit for a terminal or a log."""

from __future__ import annotations

import re

# Of a URL in the wrong place, in which there may be an @ that should have been %40.
_PASSWORD = re.compile(r"(:/+[^\s/:@]*):\S*@")


def printable(line: str) -> str:
    """A line whose characters are all for reading: the others are written as their escapes.

    Names and texts in a database are anybody's, and to a terminal some characters are commands.
    """
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def one_line(message: str) -> str:
    """A message in one line that is printable, whatever it holds; no password in a URL is."""
    return without_passwords(printable(" ".join(message.split())))


def without_passwords(message: str) -> str:
    """A message in which URLs, wherever they came from, have no password."""
    return _PASSWORD.sub(r"\1:***@", message)
