"""A database file with many jobs: written by the store, read with plain SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from bedrockjobs.job.rows import Job
from bedrockjobs.store.sqlite import SQLiteEngine

STAMP = "2026-11-21 03:29:56"


def add_jobs(store: SQLiteEngine, count: int) -> None:
    """Add jobs in one commit."""
    store.begin()
    for _ in range(count):
        store.unit.insert(
            Job(STAMP, store.unit.new_job_id(), "QUEUED", "foo", STAMP, data=f'{{"a":"{"x" * 500}"}}')
        )
    store.commit()


def rows_of(path: Path, sql: str) -> list[Any]:
    """Run a SELECT on a file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()
