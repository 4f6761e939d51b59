"""A database that a test fills, with its views and no server."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, ListJobs, ListRuns, Query
from bedrockjobs.engine.events import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.chunks import PrintedLine, chunk_of
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import Views

NOW = datetime(2026, 11, 21, 3, 29, 56, 332_000, UTC)
AT = "2026-11-21 03:00:00"
LONG_MS = 60_000
"""A wait that must not last."""

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;"


class Table:
    """A database that a test fills, and the views of it."""

    def __init__(self, path: Path, reader: SQLiteReader, settings: Settings) -> None:
        """Write to the database at ``path``, read it by ``reader``."""
        self.db = sqlite3.connect(path, isolation_level=None)
        self.reader = reader
        self.notifier = Notifier()
        self.clock = ManualClock(NOW)
        self.stats = Stats()
        self.presence = WorkerRegistry(self.clock)
        self.views = Views(reader, self.notifier, self.presence, self.stats, self.clock, settings)

    def add(self, table: str, **values: Any) -> None:
        """Add a row."""
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def run(self, run_id: int, **values: Any) -> None:
        """Add a run; by default it has succeeded."""
        values = {"name": "a", "jobID": 1, "status": "success", "worker": "w", **values}
        self.add("runs", runID=run_id, attempt=1, cause="schedule", scheduledFor=AT, started=AT, **values)

    def line(self, run_id: int, seq: int, line: str = "x", stream: str = "out") -> None:
        """Add a line of output."""
        chunk = chunk_of(run_id, seq, 0, [PrintedLine(AT, stream, line)])
        self.db.execute("INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chunk)

    def event(self, seq: int, kind: str = "paused", **values: Any) -> None:
        """Add an event."""
        self.add("events", seq=seq, at=AT, kind=kind, **values)

    def job(self, job_id: int, **values: Any) -> None:
        """Add a job, by default a queued one."""
        values = {"state": "QUEUED", "name": f"j{job_id}", "nextRun": AT, **values}
        self.add("jobs", jobID=job_id, created=AT, **values)

    async def ask(self, command: Command[Any]) -> Any:
        """Execute a command; return the parsed reply, which must match the command's reply class."""
        found = json.loads((await self.views.answer(command)).body)
        if not isinstance(command, (Query, ListJobs)):
            type(command).reply.model_validate(found)
        return found

    async def run_ids(self, **given: Any) -> list[int]:
        """Return the runIDs of a ListRuns."""
        return [run["runID"] for run in (await self.ask(ListRuns.read(given)))["runs"]]

    async def waiting(self, count: int = 1) -> None:
        """Wait until a number of commands have read and found nothing."""
        listening = self.notifier._listening.values
        async with asyncio.timeout(10):
            while sum(len(rung._waiters) for rungs in listening() for rung in rungs) != count:
                await asyncio.sleep(0)
