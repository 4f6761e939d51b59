"""A server that hangs in the middle of a unit: the effect on others, and when its rows are free."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

from bedrockjobs.base.settings import Settings
from tests.history import Report
from tests.reliability.shared import Shared
from tests.reliability.shared_work import CLIENTS_EACH, asked, done, share, together
from tests.reliability.wire import Wire

CALM_S = 3.0
"""Time in which the others are measured, before and during the stop of a server."""

TRIES_MAX = 200
"""Stops until one falls into a unit, which is open most of the time."""

UNIT_S_MAX = Settings(database="unused").unit_s_max

STANDING = """SELECT pid, xact_start FROM pg_stat_activity
WHERE state = 'idle in transaction' AND state_change < clock_timestamp() - interval '100 ms'"""
"""Units whose server has not gone on for longer than any that lives, on a machine that does nothing else."""

LARGE = 500
"""Jobs in a large command."""

STANDS_S = 0.2
"""Time after which the test checks whether a unit is open."""

POLL_S = 0.02


class Busy:
    """Clients that create, take and finish jobs, each of its own name, and the time of each step."""

    def __init__(self, shared: Shared) -> None:
        """Ask ``shared``."""
        self._shared = shared
        self._ends = False
        self._took: list[tuple[float, float]] = []
        self._open: dict[int, float] = {}

    def end(self) -> None:
        """Let all end."""
        self._ends = True

    async def _step(self, wire: Wire, verb: str, **given: Any) -> Any:
        """Execute a command; note how long it took."""
        self._open[id(wire)] = began = time.monotonic()
        reply = await done(wire, verb, **given)
        self._took.append((began, time.monotonic() - began))
        del self._open[id(wire)]
        return reply

    async def client(self, place: int, number: int) -> None:
        """Run one client of one server."""
        wire = await Wire.connect(self._shared.port(place))
        name = f"busy/{place}.{number}"
        while not self._ends:
            await self._step(wire, "CreateJob", name=name)
            job_id = (await self._step(wire, "GetJob", name=name))["jobID"]
            await self._step(wire, "FinishJob", jobID=job_id)

    async def large(self, place: int) -> None:
        """Run a client with large commands, whose units stay open long."""
        wire = await Wire.connect(self._shared.port(place))
        while not self._ends:
            await done(wire, "CreateJobs", jobs=[{"name": "large"}] * LARGE)
            jobs = (await done(wire, "GetJobs", name="large", numResults=LARGE))["jobs"]
            await done(wire, "FinishJobs", jobs=[{"jobID": job["jobID"]} for job in jobs])

    def p99(self, since: float, until: float) -> float:
        """Return the 99th percentile of the times of steps in a period, including unfinished steps."""
        now = time.monotonic()
        steps = [*self._took, *((began, now - began) for began in self._open.values())]
        return share(sorted(took for began, took in steps if began < until and began + took > since), 99)


async def _stopped_in_a_unit(shared: Shared) -> tuple[float, set[tuple[Any, ...]]]:
    """Stop the first server during a unit; return the time, and the open units."""
    for _ in range(TRIES_MAX):
        stopped = time.monotonic()
        shared.signal(0, signal.SIGSTOP)
        await asyncio.sleep(STANDS_S)
        if units := shared.rows(STANDING):
            return stopped, {*units}
        shared.signal(0, signal.SIGCONT)
        await asyncio.sleep(POLL_S)
    raise AssertionError("no unit was ever open")


async def _freed(shared: Shared, units: set[tuple[Any, ...]], until: float) -> float:
    """Return when the last of some units ended, or the present time if one is still open."""
    while units.intersection(shared.rows(STANDING)) and time.monotonic() < until:
        await asyncio.sleep(POLL_S)
    return time.monotonic()


async def stall(
    shared: Shared, count: int, *, unit_s: float = UNIT_S_MAX, calm_s: float = CALM_S, more_s: float = 0.0
) -> Report:
    """Stop the first server in a unit repeatedly: others continue, and its rows are released in time.

    ``more_s`` is the permitted growth of the others' p99 on a machine with other load.
    """
    report = Report()
    others = Busy(shared)
    victim = Busy(shared)

    async def stalls() -> None:
        for _ in range(count):
            await asyncio.sleep(calm_s)
            before = others.p99(time.monotonic() - calm_s, time.monotonic())
            stopped, units = await _stopped_in_a_unit(shared)
            await asyncio.sleep(calm_s)
            during = others.p99(stopped, time.monotonic())
            freed = await _freed(shared, units, stopped + unit_s + 1 + STANDS_S)
            report.counts["others' p99 before, ms"] = round(before * 1000)
            report.counts["others' p99 meanwhile, ms"] = round(during * 1000)
            report.counts["rows free after, ms"] = round((freed - stopped) * 1000)
            if during >= 2 * before + more_s:
                report.fault("others wait", f"p99 {before * 1000:.1f} ms, then {during * 1000:.1f} ms")
            if freed - stopped > unit_s + 1:
                report.fault("held", f"rows were free after {freed - stopped:.1f} s")
            shared.signal(0, signal.SIGCONT)
            wire = await Wire.connect(shared.port(0))
            assert (await asked(wire, "Ping")).code == 200
            wire.close()
        others.end()
        victim.end()

    await together(
        stalls(),
        victim.large(0),
        *(others.client(place, n) for place in range(1, len(shared)) for n in range(CLIENTS_EACH)),
    )
    return report
