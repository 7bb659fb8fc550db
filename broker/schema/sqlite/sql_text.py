"""SQL text compared by meaning: a tokeniser, and what of a CREATE TABLE no PRAGMA tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/
    | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\]
    | [A-Za-z_\x80-\U0010FFFF][\w$]* | \d+(?:\.\d+)?(?:[eE][+-]?\d+)?
    | <> | != | <= | >= | == | \|\| | << | >> | ->> | -> | .""",
    re.DOTALL | re.VERBOSE,
)
_TABLE_LEVEL = {"constraint", "check", "foreign", "primary", "unique"}
_SAME = {"<>": "!=", "==": "="}
_LONG_FORM = {"isnull": ["is", "null"], "notnull": ["is", "not", "null"]}
_OPERATORS = {"and", "or", "not", "is", "between", "case", "when", "then", "else"}


@dataclass(slots=True)
class TableClauses:
    """The clauses of a CREATE TABLE: checks as normalised text, the columns of deferred keys."""

    checks: set[str] = field(default_factory=set)
    deferred: set[tuple[str, ...]] = field(default_factory=set)
    collations: dict[str, str] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    autoincrement: bool = False


def tokens(sql: str) -> list[str]:
    """The words of a statement, without space and comments.

    Case does not count outside strings, nor does the quoting of names.
    """
    found = []
    for match in _TOKEN.finditer(sql):
        token = match.group()
        if token.isspace() or token.startswith(("--", "/*")):
            continue
        if token[0] in '"`[':
            token = token[1:-1].replace('""', '"')
        found.append(token if token[0:1] == "'" else _SAME.get(token, token.lower()))
    return found


def normalised(sql: str) -> str:
    """A statement or expression with all that has no meaning taken away."""
    return " ".join(tokens(sql))


def trigger_text(sql: str) -> str:
    """A CREATE TRIGGER as normalised text, from its time and event on.

    FOR EACH ROW, IF NOT EXISTS, the schema's name and a last semicolon mean nothing.
    """
    words = normalised(sql).removesuffix(" ;")
    words = words.replace(" for each row ", " ", 1)
    return re.sub(r"^create trigger (if not exists )?(main \. )?\S+ ", "", words)


def index_where(sql: str) -> str:
    """The predicate of a CREATE INDEX as normalised text; empty if it has none."""
    words = tokens(sql)
    rest = words[_end_of_group(words, words.index("(")) :]
    return _expression(rest[1:]) if rest[:1] == ["where"] else ""


def index_terms(sql: str) -> list[str]:
    """The indexed columns and expressions of a CREATE INDEX, without ASC and DESC."""
    words = tokens(sql)
    start = words.index("(")
    terms = _split(words[start + 1 : _end_of_group(words, start) - 1])
    return [_expression([w for w in term if w not in {"asc", "desc"}]) for term in terms]


def table_clauses(sql: str) -> TableClauses:
    """Read the clauses of a CREATE TABLE statement."""
    words = tokens(sql)
    start = words.index("(")
    clauses = TableClauses()
    for item in _split(words[start + 1 : _end_of_group(words, start) - 1]):
        _read_item(item, clauses)
    return clauses


def _read_item(item: list[str], clauses: TableClauses) -> None:
    column = None if item[0] in _TABLE_LEVEL else item[0]
    key_columns = [column] if column else []
    for place, word in _top_level(item):
        after = item[place + 1 :]
        if word == "check":
            group = item[place + 1 : _end_of_group(item, place + 1)]
            clauses.checks.add(_expression(group))
        elif word == "key" and item[place - 1] == "foreign":
            key_columns = [w for w in after[1 : after.index(")")] if w != ","]
        elif word == "deferrable":
            # NOT DEFERRABLE INITIALLY DEFERRED is immediate; of several clauses the last counts.
            is_deferred = item[place - 1] != "not" and after[:2] == ["initially", "deferred"]
            change = clauses.deferred.add if is_deferred else clauses.deferred.discard
            change(tuple(key_columns))
        elif word == "collate" and column:
            clauses.collations[column] = after[0]
        elif word == "conflict":
            clauses.conflicts.add(f"{column or item[0]} on conflict {after[0]}")
        elif word == "autoincrement":
            clauses.autoincrement = True


def _top_level(item: list[str]) -> Iterator[tuple[int, str]]:
    """The words outside brackets; the first names a column, or says what the clause is."""
    place = 0
    while place < len(item):
        if item[place] == "(":
            place = _end_of_group(item, place)
        else:
            yield place, item[place]
            place += 1


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _end_of_group(words: list[str], start: int) -> int:
    """The place just after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(words)):
        depth += (words[place] == "(") - (words[place] == ")")
        if depth == 0:
            return place + 1
    raise ValueError(f"unbalanced brackets in {' '.join(words)}")


def _expression(words: list[str]) -> str:
    """An expression without brackets round all of it or round a single word of it."""
    plain: list[str] = []
    for word in words:
        plain += _LONG_FORM.get(word, [word])
        if word == ")" and plain[-3:-2] == ["("] and not _is_called(plain[:-3]):
            plain[-3:] = [plain[-2]]
    while plain[:1] == ["("] and _end_of_group(plain, 0) == len(plain):
        plain = plain[1:-1]
    return " ".join(plain)


def _is_called(before: list[str]) -> bool:
    """Whether a bracket after these words belongs to the last: a function, or IN."""
    return bool(before) and _is_name(before[-1]) and before[-1] not in _OPERATORS


def _is_name(word: str) -> bool:
    return word[0] == "_" or word[0].isalpha()
