"""Puts a queue in a file on hold, as ``bedrockjobs restore`` leaves it for the next server."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bedrockjobs.job.hold import HOLD_PATTERN, without_haste
from bedrockjobs.job.rows import DamagedJob, Job, PauseRow, job_from
from bedrockjobs.store.statements import COLUMNS

HASTY = (
    f"SELECT {COLUMNS} FROM jobs WHERE state = 'QUEUED' AND lane LIKE 'now%'"  # noqa: S608 - names of ours
    " OR state IN ('RUNNING', 'RUNQUEUED') AND memory LIKE '%\"pending\"%'"
)
"""Triggered jobs, which ignore a pause."""


def hold_row(by: str, reason: str, now: str) -> PauseRow:
    """Return the pause that holds everything."""
    return PauseRow(HOLD_PATTERN, by, reason, now, "")


def calmed(rows: list[tuple[object, ...]]) -> list[Job]:
    """Return the jobs of ``HASTY`` without their trigger, and without damaged ones, which are never taken."""
    jobs = [job for row in rows if type(job := job_from(row)) is not DamagedJob]
    return [without_haste(job) if job.state == "QUEUED" else job.noting(pending=False) for job in jobs]


def hold(connection: sqlite3.Connection, by: str, reason: str, now: str) -> None:
    """Hold everything in a file in one transaction; the connection is in autocommit mode."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT OR REPLACE INTO pauses (pattern, by, reason, since, until) VALUES (?, ?, ?, ?, ?)",
        hold_row(by, reason, now),
    )
    connection.execute(
        "INSERT INTO events (at, kind, name, by, detail) VALUES (?, 'held', '*', ?, ?)", (now, by, reason)
    )
    for job in calmed(connection.execute(HASTY).fetchall()):
        connection.execute(
            "UPDATE jobs SET nextRun = ?, expires = ?, lane = ?, memory = ? WHERE jobID = ?",
            (job.next_run, job.expires, job.lane, job.memory_json, job.job_id),
        )
    connection.execute("COMMIT")


def held_file(path: Path) -> sqlite3.Connection:
    """Open a file for ``hold``."""
    return sqlite3.connect(path, isolation_level=None)
