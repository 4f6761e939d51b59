"""The statements of views in PostgreSQL's words: those that need their own, and the others translated.

SQLite's text is the source: its parameters have names, PostgreSQL's have numbers. A GLOB becomes a regular
expression, which its pattern is turned into where the statement is given it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.store import statements

_LOCKED = r"^((?:now )?(?:(?:cmd|argv|url) )?lock) ."
_LOWEST = (
    "(SELECT min((SELECT nextRun FROM jobs WHERE jobs.found = {found:<lane>} AND jobs.lane = <lane>"  # noqa: S608
    " AND jobs.name BETWEEN <name> AND <name> AND jobs.priority = column1 AND {queued}"
    " ORDER BY jobs.name, nextRun LIMIT 1))"
    f" FROM (VALUES {', '.join(f'({priority})' for priority in PRIORITIES)}) AS classes)"
)
"""The lowest nextRun of a lane and a name: a seek for each priority.

Were the name asked for by ``=``, both indexes would give the order, and where PostgreSQL knows nothing of the
names it might take the one that has none.
"""

_WORDS = (
    (r" INDEXED BY \w+", ""),
    (
        r"CROSS JOIN (\w+) USING \((\w+)\)",
        r"JOIN LATERAL (SELECT * FROM \1 AS one WHERE one.\2 = stretch.\2 OFFSET 0) AS \1 USING (\2)",
    ),
    (re.escape(statements.VISIBLE_ROW), "name ~ :visible_regex"),
    (r"(\w[\w.]*) GLOB :(\w+)", r"\1 ~ :\2_regex"),
    (r"(\w[\w.]*) GLOB pattern\b", r"\1 ~ pauses.regex"),
    (r":(\w+) IS NULL", r":\1::text IS NULL"),
    (r"\binstr\(", "strpos("),
    (r"\bchar\(10, 13, 32\)", r"E'\\n\\r '"),
    (r"\bchar\(", "chr("),
    (r"\bLIKE 'CRON %'", "ILIKE 'CRON %'"),
    (
        r"CASE WHEN json_valid\((\w+\.memory)\) THEN \1 ->> 'trigger' END",
        r"(members_of(\1) ->> 'trigger')",
    ),
    (r"(\w+\.)?options ->> 'source'", r"(\1options::json ->> 'source')"),
)
"""What PostgreSQL says otherwise, as regular expressions.

``OFFSET 0`` keeps the order that stands there: a stretch first, then its rows one by one.
"""


_LARGE = re.compile(r"\b(data|result|bytes)\b")
"""The data of a job, the result of a run: columns that may have megabytes."""


class View(NamedTuple):
    """A statement, and the names of its parameters in the order of their numbers."""

    sql: str
    names: list[str]
    large: bool
    """Whether a row may be large."""

    def parameters(self, given: Mapping[str, Any]) -> list[Any]:
        """Return what the statement is given; patterns as a regular expression where it asks for that."""
        found = []
        for name in self.names:
            pattern = name.removesuffix("_regex")
            value = given[name] if pattern == name or name in given else given[pattern]
            if value is not None and pattern != name:
                value = anchored_regex(jsontext.parse(value) if pattern == "visible" else [value])
            found.append(value)
        return found


def _filled(text: str) -> str:
    text = re.sub(
        r"\{lowest:([\w.]+):([\w.]+)\}",
        lambda match: _LOWEST.replace("<lane>", match[1]).replace("<name>", match[2]),
        text,
    )
    return re.sub(r"\{found:([^{}]+)\}", rf"coalesce(substring(\1 FROM '{_LOCKED}'), \1)", text)


def _numbered(sql: str) -> View:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"(?<![:?]):([a-zA-Z_]\w*)", number, sql)
    return View(text, names, _LARGE.search(sql) is not None)


def translated(sql: str) -> View:
    """Return a statement of SQLite in PostgreSQL's words."""
    for pattern, words in _WORDS:
        sql = re.sub(pattern, words, sql)
    return _numbered(sql)


OWN = statements.read_statements(Path(__file__).with_name("views.sql"), _filled)
"""The statements that PostgreSQL has words of its own for."""

VIEWS: dict[str, View] = {
    name: translated(sql)
    for name, sql in {**statements.VIEWS, **statements.METRICS, **statements.QUEUES}.items()
    if name not in OWN
}
VIEWS |= {name: _numbered(re.sub(r"\binstr\(", "strpos(", sql)) for name, sql in OWN.items()}
