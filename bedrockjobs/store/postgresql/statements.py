"""The named statements as PostgreSQL is given them: of its own ``queries.sql``, and of ``records.sql``."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

from bedrockjobs.store import statements

_ROW = f"{statements.COLUMNS}, parental"
_OPEN = (
    "jobID <> ALL ($4::bigint[])"
    " AND (found LIKE 'now%' OR NOT EXISTS (SELECT 1 FROM pauses WHERE jobs.name ~ pauses.regex))"
    " AND (lock = '' OR (lock <> ALL ($7::text[]) AND NOT EXISTS (SELECT 1 FROM jobs AS holder"
    " WHERE holder.lock = jobs.lock AND holder.lock <> '' AND holder.state = 'RUNNING')))"
)
"""That a queued job may be taken: it is not to be left out, no pause covers it, and nobody holds its lock."""
_LANES = (
    "SELECT asked.lane FROM unnest({0}::text[]) AS asked (lane)"
    " WHERE (SELECT true FROM jobs WHERE found = asked.lane AND {{queued}} LIMIT 1)"
)
"""The lanes of a list in which anything is queued: of all that a worker may look into, few are in use."""


def _filled(text: str) -> str:
    text = text.replace("{row}", _ROW).replace("{open}", _OPEN)
    return re.sub(r"\{lanes:(\$\d)\}", lambda match: _LANES.format(match[1]), text)


def numbered(text: str) -> str:
    """Return a statement of SQLite with PostgreSQL's parameters: ``?`` and ``?1`` become ``$1``."""
    numbers = count(1)
    return re.sub(r"\?(\d?)", lambda match: f"${match[1] or next(numbers)}", text)


QUERIES = statements.read_statements(Path(__file__).with_name("queries.sql"), _filled)
RECORDS = {name: numbered(text) for name, text in statements.RECORDS.items()}
EVENTS = frozenset({RECORDS["add_event"]})
"""What is written last of all in a unit, as its numbers have to count up in the order of commits."""
