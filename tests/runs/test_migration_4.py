"""A database of version 4, which stored output line by line, on both engines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.store import schema
from tests.engines import sqlite_only
from tests.runs.conftest import Open
from tests.runs.rig import Site
from tests.runs.test_migration import database, described

VERSION_4 = Path(__file__).with_name("schema_4.sql").read_text()

LINES = [f"line {n}" if n % 7 else 'quote " and \\ ü' for n in range(1, 1_001)]

ROWS = """
DELETE FROM jobs;
INSERT INTO jobs (created, jobID, state, name, nextRun, data, attempt, runID) VALUES
    ('2026-11-20 00:00:00', 1, 'RUNNING', 'a', '2026-11-20 00:00:00', '{"n":1}', 1, 1);
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker) VALUES
    (1, 1, 'a', 1, 'schedule', '2026-11-20 00:00:00', '2026-11-21 03:29:00.000', 'w'),
    (2, 2, 'b', 1, 'schedule', '2026-11-20 00:00:00', '2026-11-21 03:29:00.000', 'w');
UPDATE runs SET status = 'success', ended = '2026-11-21 03:29:01.000', result = '{"r":2}' WHERE runID = 2;
UPDATE meta SET value = 3 WHERE key IN ('nextJobID', 'nextRunID');
UPDATE meta SET value = '2026-11-21 03:29:56' WHERE key = 'seen';
"""


@pytest.fixture
def fourth(tmp_path: Path) -> Path:
    """Return a database of version 4 with a long output, and one that has a character 0."""
    path = database(tmp_path / "fourth.db", 4, VERSION_4, ROWS)
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = [(1, n, "2026-11-21 03:29:30.000", "out", line) for n, line in enumerate(LINES, start=1)]
        connection.executemany("INSERT INTO output VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO output VALUES (2, 1, '2026-11-21 03:29:31.000', 'err', ?)", ("a\0b",))
    return path


async def read(site: Site, run_id: int) -> list[tuple[int, str, str, str]]:
    """Return a run's lines."""
    answer = await site.ok("ReadOutput", runID=run_id, limit=LIST_MAX)
    return [(line["seq"], line["at"], line["stream"], line["line"]) for line in answer["lines"]]


@sqlite_only("about a file")
async def test_a_file_equals_a_new_one_and_its_output_goes_on(
    fourth: Path, tmp_path: Path, open_site: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = await open_site(database=str(fourth))
    assert "migrated from schema version 4 to 13: 1 jobs were copied." in caplog.text
    assert await read(site, 1) == [
        (n, "2026-11-21 03:29:30.000", "out", line) for n, line in enumerate(LINES, start=1)
    ]
    assert await read(site, 2) == [(1, "2026-11-21 03:29:31.000", "err", "a\ufffdb")]
    run = await site.run(2)
    assert (run["result"], run["data"]) == ({"r": 2}, None), "its input was not stored"
    await site.ok("AppendOutput", runID=1, seq=1_001, lines=["new"])
    assert (await site.ok("ReadOutput", runID=1, after=999))["lines"][-1]["line"] == "new"
    await site.ok("FinishJob", jobID=1, runID=1)
    assert (await site.run(1))["output"][-2:] == [LINES[-1], "new"]
    await site.server.stop()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(fourth) == described(new)
