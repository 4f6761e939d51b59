"""A database without a server, and the metrics about it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.events import Notifier, RunEnded
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe import prometheus
from bedrockjobs.observe.prometheus import Metrics
from bedrockjobs.observe.stats import Measurements, Stats
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import Views

NOW = datetime(2026, 11, 21, 3, 0, 0, tzinfo=UTC)
DUE, LATER = "2026-11-21 02:59:00", "2026-11-21 04:00:00"
OLD = "2026-11-21 01:00:00"

Samples = dict[str, dict[tuple[str, ...], float]]


def run_ended(status: str, took_s: float) -> RunEnded:
    """Return a run that ended."""
    return RunEnded(1, 1, "a", 1, "retry", "w", "", "", status, None, "", "", took_s)


class Work:
    """A fake dispatcher."""

    pending, commands, commits, waiting = 3, 1_000, 40, 7

    def __init__(self) -> None:
        """Start healthy."""
        self.health: Any = SimpleNamespace(problem="")


class Site:
    """A database, a server's state in memory, and their metrics."""

    def __init__(self, path: Path, reader: SQLiteReader, settings: Settings) -> None:
        """Write to the database at ``path``, read it by ``reader``."""
        self.reader = reader
        self.db = sqlite3.connect(path, isolation_level=None)
        self.clock = ManualClock(NOW)
        self.presence, self.measurements, self.notifier = (
            WorkerRegistry(self.clock, self.clock),
            Measurements(),
            Notifier(),
        )
        self.views = Views(reader, self.notifier, self.presence, Stats(), self.clock, settings)
        self.work = Work()
        self.metrics = Metrics(
            reader, self.views, self.work, self.presence, self.measurements, lambda: {"created": 5}, settings
        )
        self._number = 0

    def job(self, name: str, next_run: str = DUE, **more: Any) -> int:
        """Add a queued job."""
        self._number += 1
        row = {"created": OLD, "jobID": self._number, "state": "QUEUED", "name": name, "nextRun": next_run}
        self.add("jobs", **{**row, **more})
        return self._number

    def add(self, table: str, **row: Any) -> None:
        """Add a row."""
        columns = ", ".join(f'"{column}"' for column in row)
        marks = ", ".join("?" * len(row))
        self.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))

    def schedule(self, name: str = "nightly", **more: Any) -> int:
        """Add a schedule."""
        return self.job(name, LATER, repeat="CRON 0 3 * * *", **more)

    def run(self, run_id: int, job_id: int, status: str = "success", **more: Any) -> None:
        """Add a run of a schedule, ended or still running."""
        row = {
            "runID": run_id,
            "jobID": job_id,
            "name": "nightly",
            "attempt": 1,
            "cause": "schedule",
            "scheduledFor": OLD,
            "started": OLD,
            "worker": "w",
            "status": status,
            "ended": "" if status == "running" else f"{OLD}.000",
        }
        self.add("runs", **{**row, **more})

    def tick(self, job_id: int, tick: str, outcome: str, reason: str = "") -> None:
        """Add a row of the tick history."""
        self.add("ticks", jobID=job_id, tick=tick, until=tick, count=1, outcome=outcome, reason=reason)

    async def samples(self) -> Samples:
        """Return the samples of a scrape: name, then values of labels, then value."""
        found: Samples = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prometheus, "FRESH_S", 0.0)
            families = await self.metrics.scrape()
        for family in families:
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sample.labels.values())] = float(sample.value)
        return found


@asynccontextmanager
async def scraped(path: Path) -> AsyncIterator[Site]:
    """Return an empty database with its metrics."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    settings = Settings(database=str(path))
    reader = SQLiteReader(path, settings)
    await reader.open()
    found = Site(path, reader, settings)
    yield found
    await reader.close()
    found.db.close()
