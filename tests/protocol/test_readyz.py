"""`/readyz` gives the reason if the server is not ready: stopping, full or failing disk, damaged file."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import Live, Serve
from tests.damage import spoil
from tests.engines import sqlite_only
from tests.protocol.talk import DEADLINE_S, Reply

READY = (200, "ok\n")


async def ready(live: Live) -> tuple[int, str]:
    """Return what `/readyz` says."""
    async with asyncio.timeout(DEADLINE_S):
        talk = await live.connect()
        talk.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply: Reply = await talk.reply()
        await talk.close()
    return reply.code, reply.body


async def until_ready(live: Live) -> None:
    """Wait until it says that all is well; nothing is written meanwhile."""
    async with asyncio.timeout(DEADLINE_S):
        while await ready(live) != READY:
            await asyncio.sleep(0)


@sqlite_only("disk space is PostgreSQL's concern: it refuses, and the server reports that")
async def test_a_full_disk_is_told_until_there_is_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ready(await serve(ballast_bytes=4096)) == READY

    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    live = await serve(ballast_bytes=4096)
    assert await ready(live) == (503, "disk full: no jobs are created until space is freed\n")
    assert (await live.ask("CreateJob", name="a")).status == "503 Disk full"
    monkeypatch.undo()
    await until_ready(live)
    assert (await live.ask("CreateJob", name="a")).code == 200


@sqlite_only("about the lock of the file")
async def test_a_database_that_others_lock_is_told_until_it_is_written(serve: Serve) -> None:
    live = await serve(busy_s=0.1)
    with sqlite3.connect(live.server.settings.database, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert (await live.ask("CreateJob", name="a")).status == "503 Database busy"
        code, words = await ready(live)
        assert (code, words.partition(":")[0]) == (503, "database busy")
        other.execute("ROLLBACK")
    other.close()
    assert (await live.ask("CreateJob", name="a")).code == 200
    assert await ready(live) == READY


@sqlite_only("about the lock of the file")
async def test_trouble_is_forgotten_where_nobody_writes(serve: Serve, clock: object) -> None:
    live = await serve(clock, busy_s=0.1)  # type: ignore[arg-type]
    with sqlite3.connect(live.server.settings.database, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        asked = asyncio.ensure_future(live.ask("CreateJob", name="a"))
        while not asked.done():
            live.advance(0.05)
            await asyncio.wait({asked}, timeout=0.01)
        assert (await ready(live))[0] == 503
        other.execute("ROLLBACK")
    other.close()
    live.clock.advance(9)
    assert (await ready(live))[0] == 503
    live.clock.advance(2)
    assert await ready(live) == READY


@sqlite_only("about a damaged file")
@pytest.mark.parametrize("command", ["ListJobs", "GetJobs", "Query"])
async def test_damage_is_told_by_whoever_sees_it(serve: Serve, tmp_path: Path, command: str) -> None:
    first = await serve(database=str(tmp_path / "jobs.db"))
    jobs = [{"name": "a", "data": {"x": "x" * 1_000}}] * 1_000
    assert (await first.http("CreateJobs", {"jobs": jobs})).code == 200
    await first.server.stop()
    spoil(tmp_path / "jobs.db")
    live = await serve(database=str(tmp_path / "jobs.db"))
    assert await ready(live) == READY
    given = {
        "ListJobs": {"limit": 1_000},
        "GetJobs": {"name": "*", "numResults": 1_000},
        "Query": {"query": "SELECT count(data) FROM jobs WHERE length(data) > 5;"},
    }[command]
    asked = asyncio.ensure_future(live.http(command, given))
    async with asyncio.timeout(DEADLINE_S):
        error = await asyncio.shield(live.server.failed)
    assert "malformed" in str(error)
    code, words = await ready(live)
    assert (code, words.partition(":")[0]) == (503, "database damaged")
    if command != "GetJobs":  # who takes is not answered: nobody knows what is on disk
        assert (await asked).json["reason"] == "Disk error"
    asked.cancel()
