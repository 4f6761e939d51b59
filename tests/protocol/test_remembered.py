"""What a server remembers of its clients is bounded, however many strangers come with ever new words."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bedrockjobs.base.config import GLOB_CHARS_MAX, PATTERNS_MAX, WORKER_CHARS_MAX, WORKERS_BYTES_MAX
from bedrockjobs.engine import workers
from tests.conftest import Serve
from tests.effort import PROFILE
from tests.engines import sqlite_only
from tests.protocol.spent import LOOP_S_MAX, Spender, watched
from tests.protocol.talk import Talk, post, request

pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(600)]

AT_NIGHT = PROFILE == "random"
WORKERS = 2_000 if AT_NIGHT else 120
"""Workers that come and go: with their patterns, three times what the registry may hold."""
BUDGET = WORKERS_BYTES_MAX if AT_NIGHT else 3_000_000
TOGETHER = 20
"""Connections at once."""
GROWTH_MAX = 256 * 1024 * 1024 if AT_NIGHT else 64 * 1024 * 1024
LOOK_S_MAX = 5.0 if AT_NIGHT else LOOP_S_MAX
"""Processor time of a list or page of all workers that are left; it is made in turns."""
FILE_MAX = 64 * 1024 * 1024
"""What the database with its log may take in the end; the log alone begins with 20 MiB."""


def long_ask(number: int) -> bytes:
    """Return a GetJobs of a new worker with the longest name, which waits for the longest patterns."""
    worker = f"{number:06}".ljust(WORKER_CHARS_MAX, "w")
    names = [f"{number:06}/{each:03}/".ljust(GLOB_CHARS_MAX - 1, "n") + "*" for each in range(PATTERNS_MAX)]
    return request("GetJobs", names=names, numResults=1, worker=worker, connection="wait", timeout=600_000)


async def flood(server: Spender) -> float:
    """Let workers come and go; return the longest time that a new client computed at the server's loop."""
    longest_s = 0.0
    for first in range(0, WORKERS, TOGETHER):
        async with AsyncExitStack() as stack:
            for number in range(first, first + TOGETHER):
                talk = await stack.enter_async_context(await Talk.open(server.port))
                talk.send(long_ask(number))
            await server.settled()
            _, spent_s = await server.ask(request("Ping"))
            longest_s = max(longest_s, spent_s)
    await server.settled()
    return longest_s


@asynccontextmanager
async def served(
    serve: Serve, tmp_path: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Spender, Path]]:
    """Return a server: by day in this process with a smaller registry, at night one as users have it."""
    if AT_NIGHT:
        with watched(tmp_path / "jobs.db") as server:
            yield server, tmp_path / "jobs.db"
        return
    patch.setattr(workers, "WORKERS_BYTES_MAX", BUDGET)
    live = await serve()
    yield Spender(os.getpid(), live.port), Path(live.server.settings.database)
    registry = live.server.service.presence
    assert 0 < len(registry.workers) < WORKERS / 2, "most are forgotten"
    assert registry._size <= BUDGET


@sqlite_only("about the size of the file")
async def test_a_flood_of_invented_workers_leaves_room_and_time_for_others(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(serve, tmp_path, monkeypatch) as (server, database):
        before = server.memory_bytes()
        assert await flood(server) < LOOP_S_MAX
        grew = server.memory_bytes() - before
        size = sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
        for look in (post("ListWorkers", {}), b"GET /ui/workers HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reply, spent_s = await server.least(server.ask, look)
            print(f"{look[:20]!r}: {spent_s * 1000:.0f} ms, {len(reply.body):,} characters")
            assert reply.code == 200
            assert spent_s < LOOK_S_MAX
        print(f"{WORKERS} workers: memory grew by {grew / 1e6:.0f} MB, the files have {size / 1e6:.0f} MB")
        assert grew < GROWTH_MAX
        assert size < FILE_MAX
