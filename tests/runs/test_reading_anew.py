"""After a change by another process everything is reloaded in slices; the loop serves others meanwhile."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conftest import Live, Serve
from tests.effort import PROFILE
from tests.engines import sqlite_only
from tests.pace import slowness
from tests.runs.test_outside_changes import ROW

pytestmark = sqlite_only("nothing is reloaded on PostgreSQL: each unit reads what it needs")

SLICE_S_MAX = 0.05
"""CPU time of one turn of the loop: over twice the 20 ms that are meant, for slower machines."""


@pytest.fixture
def _frozen() -> Iterator[None]:
    """Let the collector not look at what earlier tests left in memory, as the server does with its own."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # again what ``tests/conftest.py`` had frozen


def fill(live: Live, locks: int) -> None:
    """Queue a job for each of many locks, as another process may."""
    with closing(sqlite3.connect(live.server.settings.database, timeout=10)) as other:
        other.execute("PRAGMA synchronous = OFF")
        other.executemany(
            "INSERT INTO jobs (created, jobID, state, name, nextRun, lane, options) VALUES"
            " ('2026-11-21 00:00:00', ?1, 'QUEUED', 'locked', '2026-11-21 00:00:00', 'lock l' || ?1,"
            " json_object('lock', 'l' || ?1))",
            ((job_id,) for job_id in range(1, locks + 1)),
        )
        other.execute("UPDATE meta SET value = ? WHERE key = 'nextJobID'", (locks + 1,))
        other.commit()


async def longest_turn(asked: asyncio.Future[object]) -> tuple[float, int]:
    """Return the most CPU time that a turn of the loop took until something is answered, and the turns."""
    longest, turns = 0.0, 0
    while not asked.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest, turns = max(longest, time.thread_time() - before), turns + 1
    return longest / slowness(), turns


@pytest.mark.usefixtures("_frozen")
@pytest.mark.parametrize("locks", [10_000, 50_000] if PROFILE == "random" else [10_000])
async def test_the_loop_serves_others_while_many_locks_are_read(
    serve: Serve, locks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    live = await serve()
    await asyncio.to_thread(fill, live, locks)
    asked = asyncio.ensure_future(live.ask("CreateJob", name="other", lock="l1"))
    longest, turns = await longest_turn(asked)
    assert (await asked).json["jobID"] == locks + 1
    with capsys.disabled():
        print(f"\n{locks:,} locks: {turns} turns, the longest {longest * 1000:.1f} ms of CPU")
    assert longest < SLICE_S_MAX
    assert turns > locks / 1_000


async def test_what_was_read_in_slices_is_whole(serve: Serve) -> None:
    live = await serve()
    await asyncio.to_thread(fill, live, 2_500)
    taken = (await live.ask("GetJobs", name="locked", numResults=2)).json["jobs"]
    assert [job["jobID"] for job in taken] == [1, 2]
    with closing(sqlite3.connect(live.server.settings.database, timeout=10)) as other:
        other.execute(ROW.format(id=9_000, name="plain"))
        other.execute("UPDATE jobs SET lane = 'lock l2500', nextRun = '2026-11-20 00:00:00' WHERE jobID = 3")
        other.execute("UPDATE jobs SET state = 'RUNNING' WHERE jobID = 2500")
        other.commit()
    assert (await live.ask("GetJob", name="plain")).json["jobID"] == 9_000
    assert (await live.ask("GetJob", name="locked")).json["jobID"] == 4, "the lock of 3 is held by 2500"
    assert (await live.ask("FinishJob", jobID=2500)).code == 200
    assert (await live.ask("GetJob", name="locked")).json["jobID"] == 3
