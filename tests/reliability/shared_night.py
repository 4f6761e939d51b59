"""The nightly rounds of several servers on one PostgreSQL: ``python -m tests.reliability --postgresql``."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from tests.history import Report
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.test_cuts import Cut
from tests.postgresql.test_failover import failovers as fail_over
from tests.reliability.shared import Shared
from tests.reliability.shared_stall import stall
from tests.reliability.shared_storm import SharedStorm
from tests.reliability.shared_ticks import TickStorm
from tests.reliability.shared_work import Waits, followed, lifecycles, share
from tests.reliability.workflow_storm import BATCH, several

NOTIFICATION_S = 0.05
"""Maximum of the 99th percentile of waits while notifications work, on an otherwise idle machine."""

WAIT_S_MAX = 1.1
"""Maximum of a wait, also without notifications."""

CUT_EVERY_S = 10.0


class Round(NamedTuple):
    """One kind of round."""

    play: Callable[[Path, int, int, str], Awaitable[Report]]
    """Given a folder, how much to do, a seed and a fault."""
    night: int
    """How much a night does."""
    batch: int
    """How much of it is done on one database."""


async def kills(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Kill servers under load."""
    return await SharedStorm(folder, count, seed, fault).run()


async def ticks(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Kill servers that have schedules."""
    return await TickStorm(folder, count, seed, fault=fault).run()


async def events(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Follow events at three servers."""
    async with Shared(folder, seed=seed) as shared:
        await shared.start(3, fault=fault)
        return await followed(shared, count)


async def waits(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Wait for jobs from another server, with and without notifications."""
    async with Shared(folder, seed=seed) as shared:
        await shared.start(4, fault=fault)
        waits = Waits(shared)
        await waits.run(count, cut_every_s=CUT_EVERY_S, limit_ms=2_000)
    report = Report()
    report.counts["waits"] = len(waits.all_s)
    if share(waits.heard_s, 99) > NOTIFICATION_S or waits.all_s[-1] > WAIT_S_MAX:
        report.fault("late", str(waits))
    print(waits)
    return report


async def takes(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Take existing jobs at four servers at the same time."""
    async with Shared(folder, seed=seed) as shared:
        await shared.start(4, fault=fault)
        return await lifecycles(shared, count)


async def stalls(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Stop a server in the middle of a unit."""
    async with Shared(folder, seed=seed) as shared:
        await shared.start(3, fault=fault)
        return await stall(shared, count)


async def failovers(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Kill a primary under load and promote its standby; an assertion fails if anything is lost."""
    await fail_over(count)
    report = Report()
    report.counts["failovers"] = count
    return report


async def cuts(folder: Path, count: int, seed: int, fault: str) -> Report:
    """Break connections, most of them at a commit; an assertion fails if anything is done twice or not."""
    report = Report()
    try:
        cut = Cut(seed)
        await asyncio.to_thread(cut.often, count)
        cut.close()
    finally:
        CLUSTER.stop()
    report.counts["answers swallowed"] = count
    report.counts["units lost"] = cut.lost
    return report


ROUNDS = {
    "kills": Round(kills, 5_000, 250),
    "ticks": Round(ticks, 100_000, 40_000),
    "events": Round(events, 100_000, 50_000),
    "waits": Round(waits, 10_000, 10_000),
    "takes": Round(takes, 50_000, 50_000),
    "stalls": Round(stalls, 20, 5),
    "failovers": Round(failovers, 500, 100),
    "cuts": Round(cuts, 10_000, 10_000),
    "workflows": Round(several, 200, BATCH),
}


def nightly(what: str, count: int, seed: int, fault: str) -> int:
    """Run rounds, print the counts and return the exit status: 1 if there was any fault."""
    play, night, batch = ROUNDS[what]
    count = count or night
    faults = 0
    for number, first in enumerate(range(0, count, batch)):
        folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-shared-"))
        folder.chmod(0o711)
        report = asyncio.run(play(folder, min(batch, count - first), seed + number, fault))
        print(f"{what}, seed {seed + number}: {report}", flush=True)
        faults += report.faults.total()
        if report.faults:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if faults else 0
