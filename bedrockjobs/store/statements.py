"""The named statements: of ``queries.sql`` and ``records.sql`` for the writer, of ``views.sql`` for views."""

from __future__ import annotations

import re
from pathlib import Path

from bedrockjobs.config import PRIORITIES

COLUMNS = (
    "created, jobID, state, name, nextRun, lastRun, repeat, data, priority, parentJobID, retryAfter,"
    " attempt, runID, expires, lane, options"
)
QUEUED = "state IN ('QUEUED', 'RUNQUEUED')"
RUN = (
    "runID, jobID, name, attempt, cause, scheduledFor, started, ended, worker, host, pid, status, exitCode,"
    " error, result, progress, output, stop"
)
FOUND = (
    "SELECT lowest, looked, found.* FROM"
    " (SELECT min(jobID) AS lowest, count(*) AS looked FROM stretch) LEFT JOIN"
    " (SELECT {columns} FROM jobs WHERE jobID IN (SELECT jobID FROM stretch CROSS JOIN jobs USING (jobID)"
    " WHERE (:state IS NULL OR state = :state) AND (:pattern IS NULL OR name GLOB :pattern)"
    " AND (:text IS NULL OR instr(data, :text) > 0) ORDER BY jobID DESC LIMIT :limit)) AS found"
    " ORDER BY found.jobID DESC LIMIT :limit"
)
RUN_FILTERS = "(:status IS NULL OR status = :status) AND (:worker IS NULL OR worker = :worker)"


def _read(file: str) -> dict[str, str]:
    text = Path(__file__).with_name(file).read_text()
    found: dict[str, str] = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        body = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip().rstrip(";")
        found[name.strip()] = _filled(body)
    return found


def _filled(body: str) -> str:
    priorities = ", ".join(f"({priority})" for priority in PRIORITIES)
    body = body.replace("{priorities}", priorities).replace("{found}", FOUND)
    for mark, text in (("columns", COLUMNS), ("queued", QUEUED), ("run", RUN), ("run_filters", RUN_FILTERS)):
        body = body.replace(f"{{{mark}}}", text)

    def branches(match: re.Match[str]) -> str:
        return " UNION ALL ".join(match[1].replace("{priority}", str(p)) for p in PRIORITIES)

    return re.sub(r"\{branches:((?:[^{}]|\{priority\})*)\}", branches, body)


STATEMENTS = _read("queries.sql")
RECORDS = _read("records.sql")
VIEWS = _read("views.sql") | _read("finding.sql")
METRICS = _read("metrics.sql")
