"""A database of schema version 1, before there were runs and schedules, is opened as it is."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from bedrockjobs.store import schema
from tests.runs.conftest import Open

OLD = Path(__file__).with_name("schema_1.sql").read_text()

ROWS = """
INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES
    ('2026-11-20 00:00:00', 1, 'QUEUED', 'plain', '2026-11-20 00:00:00.123');
INSERT INTO jobs (created, jobID, state, name, nextRun, lastRun, attempt, runID) VALUES
    ('2026-11-20 00:00:00', 2, 'RUNNING', 'running', '2026-11-20 00:00:00', '2026-11-20 00:00:01', 1, 5);
INSERT INTO jobs (created, jobID, state, name, nextRun, repeat) VALUES
    ('2026-11-20 00:00:00', 3, 'QUEUED', 'cron', '2026-11-21 03:28:00', 'CRON * * * * *');
INSERT INTO jobs (created, jobID, state, name, nextRun, lane, data) VALUES
    ('2026-11-20 00:00:00', 4, 'QUEUED', 'mocked', '2026-11-20 00:00:00', 'mock', '{"mockRequest":true}');
INSERT INTO jobs (created, jobID, state, name, nextRun, options) VALUES
    ('2026-11-20 00:00:00', 5, 'FAILED', 'failed', '2026-11-20 00:00:00', '{"error":"no disk","exitCode":3}');
UPDATE meta SET value = 6 WHERE key IN ('nextJobID', 'nextRunID');
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a database of version 1 with a job of each kind."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.executescript(ROWS)
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    return path


def described(path: Path) -> dict[str, object]:
    """Return what a database is made of, apart from comments and spaces."""
    connection = sqlite3.connect(path)
    found: dict[str, object] = {}
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql <> ''"):
        found[f"{kind} {name}"] = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).replace(" ,", ",")
        if kind == "table":
            found[f"columns {name}"] = connection.execute(f"PRAGMA table_info({name})").fetchall()
    found["version"] = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return found


async def test_it_equals_a_new_one(old: Path, tmp_path: Path, open_site: Open) -> None:
    site = await open_site(database=str(old))
    await site.server.stop()
    new = tmp_path / "new.db"
    connection = sqlite3.connect(new, isolation_level=None)
    schema.apply(connection)
    connection.close()
    assert described(old) == described(new)


async def test_its_jobs_go_on(old: Path, open_site: Open) -> None:
    site = await open_site(database=str(old))
    assert (await site.take("plain", None))["nextRun"] == "2026-11-20 00:00:00.123"
    await site.ok("FinishJob", jobID=2, runID=5)
    assert await site.state(2) == "(deleted)"
    assert (await site.take("mocked", None, getMockedJobs=True))["jobID"] == 4
    assert (await site.ok("QueryJob", jobID=5))["error"] == "no disk"
    await site.ok("RetryJob", jobID=5, revive=True)
    job = await site.take("failed")
    assert (job["runID"], await site.create("next")) == (6, 6)


async def test_a_run_of_before_has_a_fence_although_it_has_no_row(old: Path, open_site: Open) -> None:
    site = await open_site(database=str(old))
    assert await site.refused("FailJob", jobID=2, runID=4) == (405, "Run is over")
    await site.beat(5)
    await site.ok("FailJob", jobID=2, runID=5, error="x")
    assert await site.state(2) == "FAILED"


async def test_its_schedules_go_on(old: Path, open_site: Open) -> None:
    site = await open_site(database=str(old))
    job = await site.take("cron")
    assert (await site.run(job["runID"]))["scheduledFor"] == "2026-11-21 03:29:00"
    assert await site.ticks(3) == [
        ("2026-11-21 03:28:00", "2026-11-21 03:28:00", 1, "skipped", "server down"),
        ("2026-11-21 03:29:00", "2026-11-21 03:29:00", 1, "caught up", ""),
    ]
    await site.finish(job)
    assert await site.due(3) == "2026-11-21 03:30:00"
