"""The file is the truth: changes by another process while the server runs are noticed and logged."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.engines import sqlite_only
from tests.protocol.talk import DEADLINE_S
from tests.runs.rig import Site

ROW = (
    "INSERT INTO jobs (created, jobID, state, name, nextRun)"
    " VALUES ('2026-11-21 00:00:00', {id}, 'QUEUED', '{name}', '2026-11-21 00:00:00')"
)


async def test_a_changed_row_is_handed_out_as_it_is(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.create("a", data={"k": 1})
    await site.change("UPDATE jobs SET data = '{\"k\":2}', priority = 1000 WHERE jobID = 1")
    job = await site.take("a")
    assert (job["data"], job["priority"]) == ({"k": 2}, 1000)
    if site.databases.name == "sqlite":  # where somebody else may always have written, it is not said
        assert "another process changed" in caplog.text


async def test_a_deleted_row_is_gone(site: Site) -> None:
    await site.create("a")
    await site.change("DELETE FROM jobs")
    assert await site.refused("UpdateJob", jobID=1, data={}) == (404, "No job with this jobID")
    assert await site.nothing("a")
    assert await site.create("b") == 2, "its number is not given again"


async def test_a_taken_row_that_is_deleted_ends_its_run(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.change("DELETE FROM jobs")
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == (404, "No job with this jobID")
    await site.silence(50)
    assert await site.create("b") == 2


async def test_moved_rows_are_found_where_they_are(site: Site) -> None:
    for _ in range(3):
        await site.create("a/1")
    assert (await site.take("a/*", None))["jobID"] == 1
    await site.change("UPDATE jobs SET nextRun = '2026-11-20 00:00:00', name = 'a/0' WHERE jobID = 3")
    assert (await site.take("a/*", None))["jobID"] == 3
    await site.change("UPDATE jobs SET state = 'QUEUED' WHERE jobID = 1")
    assert (await site.take("a/*", None))["jobID"] == 1


@sqlite_only("on PostgreSQL, pausing by hand needs a new epoch in `control`, since servers cache pauses")
async def test_a_pause_and_its_end_are_seen(site: Site) -> None:
    await site.create("a")
    await site.change("INSERT INTO pauses (pattern, since) VALUES ('a', '2026-11-21 00:00:00')")
    assert await site.nothing("a")
    await site.change("DELETE FROM pauses")
    assert (await site.take("a"))["jobID"] == 1


async def test_an_idle_server_serves_who_waits(site: Site) -> None:
    talk = await site.asking("a", "w")
    await site.change(ROW.format(id=70, name="a"))
    async with asyncio.timeout(DEADLINE_S):
        assert (await talk.reply()).json["jobID"] == 70
    await site.change(ROW.format(id=2, name="b"))
    assert [await site.create("c") for _ in range(2)] == [1, 3], "numbers in use are passed over"


async def test_our_own_commits_and_readers_are_no_change(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await site.create("a")
        await site.select("SELECT * FROM jobs")
        await site.take("a")
    assert "another process changed" not in caplog.text


@sqlite_only("about checkpoints of the file")
async def test_a_checkpoint_by_another_is_cheap_and_loses_nothing(site: Site) -> None:
    for number in range(200):
        await site.create(f"n/{number % 7}")
    assert (await site.take("n/*", None))["jobID"] == 1
    for expected in range(2, 20):
        with closing(sqlite3.connect(site.server.settings.database, timeout=5)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        assert (await site.take("n/*", None))["jobID"] == expected


async def test_options_and_memory_by_hand_are_read(site: Site) -> None:
    await site.create("a")
    await site.change(
        'UPDATE jobs SET options = \'{"retries":1,"lock":5,"what":[1]}\', memory = \'{"failures":"x"}\''
    )
    job = await site.take("a")
    await site.fail(job, error="first")
    assert await site.state(1) == "QUEUED", "the retry that was written by hand counts"
