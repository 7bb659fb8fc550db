"""Text of others, made fit for a terminal or a log."""

from __future__ import annotations


def printable(line: str) -> str:
    """A line whose characters are all for reading: the others are written as their escapes.

    Names and texts in a database are anybody's, and to a terminal some characters are commands.
    """
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def one_line(message: str) -> str:
    """A message in one line that is printable, whatever it holds."""
    return printable(" ".join(message.split()))
