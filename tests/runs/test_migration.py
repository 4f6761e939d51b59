"""A database of schema version 1, before there were runs and schedules, is opened as it is."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from bedrockjobs.job.rows import MEMORY_KEYS
from bedrockjobs.store import schema
from tests.engines import sqlite_only
from tests.runs.conftest import Open

pytestmark = sqlite_only("about older versions of the file")

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


def database(path: Path, version: int, *scripts: str) -> Path:
    """Make a database of a version by its scripts; return its path."""
    with closing(sqlite3.connect(path)) as connection:
        for script in scripts:
            connection.executescript(script)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a database of version 1 with a job of each kind."""
    return database(tmp_path / "old.db", 1, OLD, ROWS)


def described(path: Path) -> dict[str, object]:
    """Return what a database is made of, apart from comments and spaces."""
    connection = sqlite3.connect(path)
    found: dict[str, object] = {}
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql <> ''"):
        found[f"{kind} {name}"] = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).replace(" ,", ",")
        if kind in ("table", "view"):
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


# --- version 2 ------------------------------------------------------------------------------------------

VERSION_2 = Path(__file__).with_name("schema_2.sql").read_text()
"""A database as a server of version 2 left it, with jobs in every state; recorded, not written by hand."""

NO_CLOCK_WAS_SET = "UPDATE meta SET value = '2026-11-21 03:29:56' WHERE key = 'seen';"


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Return a database of version 2."""
    return database(tmp_path / "second.db", 2, VERSION_2, NO_CLOCK_WAS_SET)


async def test_version_2_equals_a_new_one_and_the_log_says_what_was_done(
    second: Path, tmp_path: Path, open_site: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = await open_site(database=str(second))
    await site.server.stop()
    new = tmp_path / "new.db"
    connection = sqlite3.connect(new, isolation_level=None)
    schema.apply(connection)
    connection.close()
    assert described(second) == described(new)
    assert "from schema version 2 to 13: 20 jobs were copied" in caplog.text
    assert "about 9 of them moved from the column options to the column memory" in caplog.text


async def test_what_version_2_noted_stands_in_memory(second: Path, open_site: Open) -> None:
    site = await open_site(database=str(second))
    before = {}
    connection = sqlite3.connect(":memory:")
    connection.executescript(VERSION_2)
    for job_id, text in connection.execute("SELECT jobID, options FROM jobs"):
        before[job_id] = json.loads(text)
    for job_id, old in before.items():
        options, memory = await site.options(job_id), await site.memory(job_id)
        assert set(options) | set(memory) == set(old)
        assert not set(options) & set(memory)
        assert set(memory) <= MEMORY_KEYS
        for key, value in old.items():
            if key == "trigger":
                assert memory[key] == (value["nextRun"] or "")
            else:
                assert {**options, **memory}[key] == value


async def test_jobs_of_version_2_go_on(second: Path, open_site: Open) -> None:
    site = await open_site(database=str(second))
    assert (await site.take("plain", None))["data"] == {"n": 1}
    shown = await site.ok("QueryJob", jobID=2)
    assert (shown["error"], shown["exitCode"], shown["retries"], shown["tags"]) == ("first try", 3, 3, ["a"])
    assert await site.memory(2) == {"error": "first try", "exitCode": 3, "failures": 1, "cause": "retry"}
    again = await site.take("again")
    await site.finish(again)
    assert await site.due(3) == "2026-11-21 04:00:00", "its own next run comes after the other"
    await site.ok("RetryJob", jobID=5, returned=True)
    assert (await site.state(5), await site.due(5)) == ("QUEUED", "2026-11-21 03:29:56.332")
    child = await site.take("child", None)
    await site.finish(child)
    parent = await site.take("parent", None)
    assert [one["jobID"] for one in parent["finishedChildJobs"]] == [7, 8]
    assert (await site.ok("QueryJob", jobID=9))["exitCode"] == 4
    same = {
        "name": "ops/clean",
        "repeat": "CRON @hourly",
        "argv": ["true"],
        "jitter": 60,
        "data": {"days": 7},
    }
    synced = await site.ok("SyncSchedules", source="ops", schedules=[same])
    assert synced["unchanged"] == ["ops/clean"]
    assert await site.create("next") == 22


# --- version 3 ------------------------------------------------------------------------------------------

VERSION_3 = Path(__file__).with_name("schema_3.sql").read_text()
"""A database of version 3, whose data has no checksums."""

CRONS = """
INSERT INTO jobs (created, jobID, state, name, nextRun, repeat, options) VALUES
    ('2026-11-20 00:00:00', 4, 'QUEUED', 'echo.ping', '2026-11-21 03:30:00', 'CRON * * * * *',
     '{"source":"app"}');
UPDATE meta SET value = 5 WHERE key = 'nextJobID';
"""


@pytest.fixture
def third(tmp_path: Path) -> Path:
    """Return a database of version 3, with a schedule."""
    return database(tmp_path / "third.db", 3, VERSION_3, CRONS)


async def test_version_3_equals_a_new_one_with_checksums_and_a_view(
    third: Path, tmp_path: Path, open_site: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = await open_site(database=str(third))
    assert [(await site.row(job_id))["checksum"] for job_id in (1, 2)] == [
        crc32('{"n":1,"text":"größer"}'.encode()),
        crc32(b"{}"),
    ]
    assert (await site.ok("QueryJob", jobID=2))["error"] == "no disk"
    assert (await site.options(3)) == {"catchup": "skip"}
    assert (await site.take("plain", None))["data"] == {"n": 1, "text": "größer"}
    (found,) = await site.select("SELECT id, verb, deployment_id FROM cron_jobs WHERE verb = 'ping'")
    assert found == {"id": 4, "verb": "ping", "deployment_id": "app"}
    assert "from schema version 3 to 13" in caplog.text
    assert await site.create("next") == 5
    await site.server.stop()
    new = tmp_path / "new.db"
    connection = sqlite3.connect(new, isolation_level=None)
    schema.apply(connection)
    connection.close()
    assert described(third) == described(new)


async def test_a_view_of_ours_is_made_anew_and_one_of_others_stays(third: Path, open_site: Open) -> None:
    connection = sqlite3.connect(third)
    connection.execute("CREATE VIEW cron_jobs AS SELECT 7 AS id")
    connection.execute("CREATE VIEW mine AS SELECT jobID FROM jobs")
    connection.commit()
    connection.close()
    site = await open_site(database=str(third))
    assert await site.select("SELECT id FROM cron_jobs WHERE id > 3") == [{"id": 4}]
    assert len(await site.select("SELECT jobID FROM mine")) == 4


# --- version 4 ------------------------------------------------------------------------------------------

VERSION_4 = Path(__file__).with_name("schema_4.sql").read_text()
"""A database of version 4, before there were tokens."""


async def test_version_4_equals_a_new_one(tmp_path: Path, open_site: Open) -> None:
    fourth = database(tmp_path / "fourth.db", 4, VERSION_4)
    site = await open_site(database=str(fourth))
    assert (await site.take("plain", None))["data"] == {"n": 1}
    assert await site.create("next") == 2
    await site.server.stop()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(fourth) == described(new)


# --- version 5 ------------------------------------------------------------------------------------------

VERSION_5 = Path(__file__).with_name("schema_5.sql").read_text()
"""A database of version 5, before the name of its job was kept with an idempotency key."""

ROWS_5 = """
INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES
    ('2026-11-20 00:00:00', 1, 'QUEUED', 'plain', '2026-11-20 00:00:00.123');
INSERT INTO keys (key, jobID, created) VALUES ('k', 1, '2026-11-21 03:29:50.000');
INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker) VALUES
    (1, 9, 'a', 1, 'schedule', '2026-11-20 00:00:00', '2026-11-21 03:29:00.000', 'w');
INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes) VALUES
    (1, 1, 1, '2026-11-21 03:29:30.000', '', 0, 2, X'610A');
UPDATE meta SET value = 10 WHERE key IN ('nextJobID', 'nextRunID');
"""


async def test_version_5_equals_a_new_one_and_keeps_its_keys_and_output(
    tmp_path: Path, open_site: Open
) -> None:
    fifth = database(tmp_path / "fifth.db", 5, VERSION_5, ROWS_5)
    with closing(sqlite3.connect(fifth)) as before:
        output = before.execute("SELECT * FROM output").fetchall()
    site = await open_site(database=str(fifth))
    assert await site.create("plain", idempotencyKey="k") == 1
    assert await site.refused("CreateJob", name="other", idempotencyKey="k") == (405, "Key is used")
    await site.server.stop()
    with closing(sqlite3.connect(fifth)) as after:
        assert after.execute("SELECT * FROM output").fetchall() == output
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(fifth) == described(new)


# --- version 6 ------------------------------------------------------------------------------------------

KEY_6 = """
DROP INDEX keysByJob;
INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES
    ('2026-11-20 00:00:00', 1, 'QUEUED', 'plain', '2026-11-20 00:00:00.123');
INSERT INTO keys VALUES (char(31) || 'unique' || char(31) || 'plain' || char(31) || 'k', 1,
    '2026-11-21 03:29:50.000', '', 'finished');
UPDATE meta SET value = 10 WHERE key IN ('nextJobID', 'nextRunID');
"""
"""What makes a new database one of version 6, in which the unique key of a job was not found."""


async def test_version_6_equals_a_new_one_and_keeps_its_keys(tmp_path: Path, open_site: Open) -> None:
    sixth = database(tmp_path / "sixth.db", 6, schema.schema_text(), KEY_6)
    site = await open_site(database=str(sixth))
    assert (await site.ok("QueryJob", jobID=1))["uniqueKey"] == "k"
    assert await site.ok("CreateJob", name="plain", uniqueKey="k") == {"jobID": 1, "created": False}
    await site.server.stop()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(sixth) == described(new)


# --- version 8 ------------------------------------------------------------------------------------------

VERSION_8 = Path(__file__).with_name("schema_8.sql").read_text()
"""A database as a server of version 8 left it, before there were workflows; recorded, not written by hand."""


async def test_version_8_equals_a_new_one_and_its_jobs_go_on(tmp_path: Path, open_site: Open) -> None:
    eighth = database(tmp_path / "eighth.db", 8, VERSION_8)
    site = await open_site(database=str(eighth))
    assert await site.create("keyed", uniqueKey="k") == 7
    await site.ok("FinishJob", jobID=2, runID=1)
    await site.ok("RetryJob", jobID=8, revive=True)
    for name in ("plain", "child/b", "failed"):
        await site.finish(await site.take(name))
    parent = await site.take("parent")
    assert [child["jobID"] for child in parent["finishedChildJobs"]] == [4, 5]
    await site.finish(parent)
    await site.later(60)
    await site.finish(await site.take("cron"))
    assert await site.due(6) == "2026-11-21 03:31:00"
    jobs = [{"ref": "a", "name": "a"}, {"ref": "b", "name": "b", "after": ["a"]}]
    made = await site.ok("CreateWorkflow", name="w", jobs=jobs)
    for name in ("a", "b"):
        await site.finish(await site.take(name))
    assert (await site.ok("QueryWorkflow", workflowID=made["workflowID"]))["state"] == "FINISHED"
    await site.server.stop()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(eighth) == described(new)


# --- version 12 -----------------------------------------------------------------------------------------

PACED_12 = """
DROP TABLE paced;
INSERT INTO meta (key, value) VALUES ('paced api/*', '1795923030.500000'),
    ('limits', '[["api/*", 0, 0, 0, "", "2026-11-21 03:00:00", "3/1m", 0]]');
"""
"""What makes a new database one of version 12, which kept the starts of a limit in ``meta``."""


async def test_version_12_equals_a_new_one_and_keeps_the_starts_of_limits(
    tmp_path: Path, open_site: Open
) -> None:
    twelfth = database(tmp_path / "twelfth.db", 12, schema.schema_text(), PACED_12)
    site = await open_site(database=str(twelfth))
    assert await site.select("SELECT key, pattern, until FROM paced") == [
        {"key": "", "pattern": "api/*", "until": 1_795_923_030_500_000}
    ]
    assert await site.select("SELECT key FROM meta WHERE key LIKE 'paced%'") == []
    await site.server.stop()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    assert described(twelfth) == described(new)
