"""Schedules of every second on several servers, which are killed at random moments; each tick fires once."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.history import Report
from tests.reliability.accounts import Effect, judge_tables
from tests.reliability.crew import EVERY_SECOND
from tests.reliability.recorded import SILENCE_S
from tests.reliability.shared import RETRY_S, Shared
from tests.reliability.wire import Answer, Cut, Wire

SERVERS = 5
WORKERS = 8
TAKEN_MAX = 16
"""Runs that a worker takes at once."""

LEASE_S = 5
"""Short, so that a schedule whose take's reply was lost continues soon."""

TICKS_EACH_MAX = 800
"""Ticks of one schedule: its ledger keeps a thousand rows."""

LIFE_S = 0.5
"""Mean time between two kills."""

REST_S = 60.0
"""Time in which all schedules have caught up after the last kill."""

POLL_S = 0.05

BEHIND = "SELECT count(*) FROM jobs WHERE state <> 'QUEUED' OR nextRun <= '{now}'"


@dataclass
class TickStorm:
    """The parameters of a storm."""

    folder: Path
    ticks: int
    seed: int = 1
    schedules: int = 50
    fault: str = ""
    servers: int = SERVERS
    runs: list[tuple[str, int]] = field(default_factory=list)
    """Name and number of each run that a worker did, in order."""
    _over: bool = False

    async def run(self) -> Report:
        """Run it and return the report."""
        assert self.ticks <= self.schedules * TICKS_EACH_MAX
        dice = random.Random(self.seed)
        async with Shared(self.folder, seed=self.seed) as shared:
            await shared.start(self.servers, fault=self.fault)
            for number in range(self.schedules):
                await _ask(
                    shared,
                    "CreateJob",
                    name=f"tick/{number}",
                    repeat=EVERY_SECOND,
                    catchup="all",
                    overlap="queue",
                    lease=LEASE_S,
                    keepSuccess=10_000,
                    keepFail=10_000,
                    unique=True,
                )
            workers = [asyncio.create_task(self._work(shared, f"w{number}")) for number in range(WORKERS)]
            began, kills = time.monotonic(), 0
            while time.monotonic() - began < self.ticks / self.schedules:
                await asyncio.sleep(min(dice.expovariate(1 / LIFE_S), 5 * LIFE_S))
                victim = dice.randrange(self.servers)
                await shared.kill(victim)
                await shared.replace(victim, fault=self.fault)
                kills += 1
            now = str((await _ask(shared, "Status")).reply["now"])
            await self._until_none(shared, now)
            await _ask(shared, "PauseJobs", name="*")  # else workers are given more all the time
            await self._until_none(shared, "")
            self._over = True
            await asyncio.gather(*workers)
            assert [await shared.terminate(place) for place in range(self.servers)] == [0] * self.servers
            ticks = dict(shared.rows("SELECT runID, substr(scheduledFor, 1, 19) FROM runs"))
            effects = [Effect("end", name, run, ticks.get(run, "")) for name, run in self.runs]
            report = judge_tables(shared.rows, effects)
        report.counts["kills"] = kills
        report.counts["ticks"] = sum(report.counts[outcome] for outcome in ("fired", "caught up"))
        return report

    async def _until_none(self, shared: Shared, now: str) -> None:
        """Wait until no schedule is running, or due before a given time."""
        async with asyncio.timeout(REST_S):
            while shared.rows(BEHIND.replace("{now}", now)) != [(0,)]:
                await asyncio.sleep(POLL_S)

    async def _work(self, shared: Shared, worker: str) -> None:
        """Take runs at any server, write their effects, and report their ends."""
        wish = {
            "name": "tick/*",
            "worker": worker,
            "heartbeat": True,
            "numResults": TAKEN_MAX,
            "connection": "wait",
            "timeout": 200,
        }
        while not self._over:
            with suppress(Cut, OSError):
                wire = await shared.connect()
                while not self._over:
                    answer = await _answer(wire, "GetJobs", wish)
                    if answer.code == 200:
                        jobs = answer.reply["jobs"]
                        self.runs += [(job["name"], job["runID"]) for job in jobs]
                        ends = [{"jobID": job["jobID"], "runID": job["runID"]} for job in jobs]
                        await _ask(shared, "FinishJobs", jobs=ends)
                wire.close()
            await asyncio.sleep(RETRY_S)


async def _answer(wire: Wire, verb: str, given: dict[str, Any]) -> Answer:
    async with asyncio.timeout(SILENCE_S):
        return await wire.ask(verb, **given)


async def _ask(shared: Shared, verb: str, **given: Any) -> Answer:
    """Send a request to one server after another until one succeeds; it may be executed twice."""
    until = time.monotonic() + REST_S
    while time.monotonic() < until:
        with suppress(Cut, OSError):
            wire = await shared.connect()
            answer = await _answer(wire, verb, given)
            wire.close()
            if answer.code == 200:
                return answer
        await asyncio.sleep(RETRY_S)
    raise AssertionError(f"no server does {verb}")
