"""Named SQL statements: those of ``queries.sql`` and ``records.sql`` for the writer, the others for views."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.vocabulary import FAILED_STATUSES

COLUMNS = (
    "created, jobID, state, name, nextRun, lastRun, repeat, data, priority, parentJobID, retryAfter,"
    " attempt, runID, expires, lane, options, memory, checksum"
)
QUEUED = "state IN ('QUEUED', 'RUNQUEUED')"
RUN = (
    "runID, jobID, name, attempt, cause, scheduledFor, started, ended, worker, host, pid, status, exitCode,"
    " error, result, progress, output, stop"
)
MOMENT = "CASE :moment WHEN 'next' THEN nextRun WHEN 'last' THEN lastRun ELSE created END"
JOB_FOUND = (
    "(:state IS NULL OR state = :state OR (:state = 'RUNNING' AND state = 'RUNQUEUED'))"
    " AND (:pattern IS NULL OR name GLOB :pattern) AND (:text IS NULL OR instr(data, :text) > 0)"
    " AND (:since IS NULL OR {moment} >= :since) AND (:until IS NULL OR {moment} < :until)"
)
RUN_LISTED = "runID, jobID, name, attempt, status, started, ended, worker, exitCode, error, output"
HAS_STATUS = "(:statuses IS NULL OR instr(:statuses, status) > 0)"
"""Filter by ``:statuses``, words separated by spaces, or null for any. No status is a part of another one."""

ERROR_NAMES = (
    "(:raised IS NULL OR instr('\n' || error || '\n', :raised) > 0"
    " OR instr('\n' || error || '\n', :raisedAlone) > 0)"
)
"""Filter by the type of an exception: a line of the error begins with the type, or is the type alone."""

RUN_FOUND = (
    f"{HAS_STATUS} AND (:pattern IS NULL OR name GLOB :pattern)"
    " AND (:worker IS NULL OR worker GLOB :worker) AND {kept}"
    " AND (:text IS NULL OR instr(output, :text) > 0 OR instr(error, :text) > 0)"
    f" AND {ERROR_NAMES}"
    " AND (:since IS NULL OR started >= :since) AND (:until IS NULL OR started < :until)"
)
KEPT = "kept <> '' AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jobID = runs.jobID)"
"""Condition for the kept run of a finished job whose row was deleted."""

NO_JOB_FAILED = (
    "NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobsAside WHERE jobs.state = 'FAILED'"
    " AND jobs.jobID = runs.jobID AND NOT EXISTS"
    " (SELECT 1 FROM runs AS later WHERE later.jobID = runs.jobID AND later.runID > runs.runID))"
)
"""Condition that excludes a run that made its job FAILED: such lists show the failed job instead. An
index of FAILED jobs is searched, as it is smaller than the table."""

EVENT_FOUND = "(:kind IS NULL OR kind = :kind) AND (:pattern IS NULL OR name GLOB :pattern)"
EVENT = 'seq, at, kind, name, jobID, runID, "by", detail'
VISIBLE_ROW = (
    "EXISTS (WITH visible AS MATERIALIZED (SELECT value FROM json_each(:visible))"
    " SELECT 1 FROM visible WHERE name GLOB value)"
)
VISIBLE = f"(:visible IS NULL OR {VISIBLE_ROW})"
"""Filter by the scope of the caller: a JSON array of patterns, null for all names. It is parsed only once."""

_SPANS = ", ".join(f"{span}{bucket}" for span in ("wait", "took") for bucket in range(15))
STATS = f"stats.name, step, at, created, taken, finished, failed, retried, lost, {_SPANS}, depth"

RUN_FILTERS = f"{HAS_STATUS} AND (:worker IS NULL OR worker = :worker) AND {ERROR_NAMES}"


PREFIX = (
    "CASE WHEN instr(walk.name, '/') > 0 THEN substr(walk.name, 1, instr(walk.name, '/') - 1)"
    " ELSE walk.name END"
)
"""The part before the first slash of the scan's current name."""

ALIKE = f"CASE WHEN {PREFIX} = walk.before THEN walk.counted + 1 ELSE 1 END"
"""Number of names with this prefix that the scan has found so far."""


def _found(table: str, key: str, columns: str, wanted: str) -> str:
    """Return the end of a search in ``finding.sql``, which examines the rows of the query ``stretch``."""
    return (
        f"SELECT lowest, looked, found.* FROM (SELECT min({key}) AS lowest, count(*) AS looked"  # noqa: S608
        " FROM stretch) AS seen"
        f" LEFT JOIN (SELECT {columns} FROM {table} WHERE {key} IN (SELECT {key} FROM stretch"
        f" CROSS JOIN {table} USING ({key}) WHERE {wanted} ORDER BY {key} DESC LIMIT :limit)) AS found"
        " ON true"
        f" ORDER BY found.{key} DESC LIMIT :limit"
    )


FAMILY_STATES = ("'FINISHED'", "'FAILED'", "'RUNNING', 'RUNQUEUED'", "'QUEUED', 'PAUSED'", "'CANCELLED'")
FAMILY_COUNTS = " || ' ' || ".join(
    ("count(*)", *(f"count(*) FILTER (WHERE seen AND state IN ({states}))" for states in FAMILY_STATES))
)
"""Number of children examined, then the number of visible children that are finished, failed, running,
waiting and cancelled, separated by spaces."""

HELD = "(SELECT holds || key FROM keys WHERE keys.jobID = jobs.jobID AND holds <> '')"
"""The columns ``holds`` (until when) and ``key`` of a job's unique key, as one text; null if it has none."""

MARKS = {
    "children": (
        "stretch AS MATERIALIZED (SELECT jobID, state, name FROM jobs WHERE parentJobID = :jobID"
        " AND parentJobID <> 0 AND jobID > :after ORDER BY jobID LIMIT :stretch)"
    ),
    "looked_children": "(SELECT max(jobID) AS highest, count(*) AS looked FROM stretch) AS seen",
    "family_counts": FAMILY_COUNTS,
    "found_jobs": _found("jobs", "jobID", COLUMNS, JOB_FOUND),
    "found_runs": _found("runs", "runID", RUN_LISTED, RUN_FOUND),
    "found_events": _found("events", "seq", EVENT, EVENT_FOUND),
    "alike": ALIKE,
    "prefix": PREFIX,
    "columns": COLUMNS,
    "held": HELD,
    "event": EVENT,
    "queued": QUEUED,
    "run": RUN,
    "visible": VISIBLE,
    "run_filters": RUN_FILTERS,
    "stats": STATS,
    "kept": f"(:kept IS NULL OR ({KEPT}))",
    "moment": MOMENT,
    "no_job_failed": NO_JOB_FAILED,
    "failed_statuses": ", ".join(f"'{status}'" for status in FAILED_STATUSES),
}
"""The texts of the placeholders in the statement files; they are replaced in this order."""


def read_statements(path: Path, fill: Callable[[str], str] = str) -> dict[str, str]:
    """Return the statements of a file by name; ``fill`` replaces an engine's own placeholders first."""
    found: dict[str, str] = {}
    for part in path.read_text().split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        body = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip().rstrip(";")
        found[name.strip()] = _filled(fill(body))
    return found


def _read(file: str) -> dict[str, str]:
    return read_statements(Path(__file__).with_name(file))


_OLDEST = (
    "(SELECT min((SELECT nextRun FROM jobs WHERE jobs.lane = {lane} AND jobs.name = {name}"
    " AND jobs.priority = column1 AND {queued} ORDER BY nextRun LIMIT 1))"
    " FROM (VALUES {priorities}) AS classes)"
)
"""The lowest nextRun of a lane and name, by one seek per priority."""


def _filled(body: str) -> str:
    body = re.sub(
        r"\{oldest:([a-z.]+):([a-z.]+)\}",
        lambda match: _OLDEST.replace("{lane}", match[1]).replace("{name}", match[2]),
        body,
    )
    priorities = ", ".join(f"({priority})" for priority in PRIORITIES)
    body = body.replace("{priorities}", priorities)
    for mark, text in MARKS.items():
        body = body.replace(f"{{{mark}}}", text)

    def branches(match: re.Match[str]) -> str:
        return " UNION ALL ".join(match[1].replace("{priority}", str(p)) for p in PRIORITIES)

    return re.sub(r"\{branches:((?:[^{}]|\{priority\})*)\}", branches, body)


STATEMENTS = _read("queries.sql")
RECORDS = _read("records.sql")
VIEWS = _read("views.sql") | _read("finding.sql")
METRICS = _read("metrics.sql")
QUEUES = _read("queues.sql")
