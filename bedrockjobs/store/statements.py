"""The named statements of ``queries.sql``, read once."""

from __future__ import annotations

import re
from pathlib import Path

from bedrockjobs.config import PRIORITIES

COLUMNS = (
    "created, jobID, state, name, nextRun, lastRun, repeat, data, priority, parentJobID, retryAfter,"
    " attempt, runID, expires, lane, options"
)
QUEUED = "state IN ('QUEUED', 'RUNQUEUED')"


def _read() -> dict[str, str]:
    text = Path(__file__).with_name("queries.sql").read_text()
    found: dict[str, str] = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        body = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip().rstrip(";")
        found[name.strip()] = _filled(body)
    return found


def _filled(body: str) -> str:
    body = body.replace("{columns}", COLUMNS).replace("{queued}", QUEUED)

    def branches(match: re.Match[str]) -> str:
        return " UNION ALL ".join(match[1].replace("{priority}", str(p)) for p in PRIORITIES)

    return re.sub(r"\{branches:((?:[^{}]|\{priority\})*)\}", branches, body)


STATEMENTS = _read()
