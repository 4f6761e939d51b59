"""Schedules of every second whose server and workers are killed at random moments, then judged."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.history import Report
from tests.reliability.crew import Crew, Worker

LIFE_S = 0.6
"""Mean time between two kills."""

AWAY_S = 0.5
"""Mean time until a killed process is started again."""

LEASE_S = 3
"""Short, so that a schedule whose run was lost continues soon."""

SCHEDULES = 2
BATCH = 100
"""Kills on one database before it is judged: its ledger keeps a thousand rows of each schedule."""

SERVER_SHARE = 0.5
"""Share of kills that hit the server; the others hit a worker, one in four of them both."""


@dataclass
class ScheduleStorm:
    """The parameters of a storm on a server and its workers."""

    folder: Path
    kills: int
    seed: int = 1

    async def run(self) -> Report:
        """Run it and return the report."""
        dice = random.Random(self.seed)
        names = [f"storm-{number}" for number in range(SCHEDULES)]
        async with Crew(self.folder) as crew:
            await crew.serve()
            for name in names:
                await crew.schedule(name, LEASE_S)
            workers: dict[str, Worker] = {name: await crew.work(name) for name in names}
            for _ in range(self.kills):
                await asyncio.sleep(min(dice.expovariate(1 / LIFE_S), 5 * LIFE_S))
                server = dice.random() < SERVER_SHARE
                victim = dice.choice(names)
                if server:
                    await crew.kill_server()
                if not server or dice.random() < 0.25:
                    await workers[victim].kill()
                await asyncio.sleep(min(dice.expovariate(1 / AWAY_S), 3 * AWAY_S))
                if server:
                    await crew.serve()
                if workers[victim].process.returncode is not None:
                    workers[victim] = await crew.work(victim)
            report = await crew.account()
        report.counts["kills"] = self.kills
        return report


def nightly(kills: int, seed: int) -> int:
    """Kill repeatedly, print the counts and return the exit status: 1 if there was any fault."""
    faults = 0
    for first in range(0, kills, BATCH):
        folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-schedules-"))
        report = asyncio.run(ScheduleStorm(folder, min(BATCH, kills - first), seed).run())
        print(f"seed {seed}: {report}", flush=True)
        faults += report.faults.total()
        if report.faults:
            print(f"database, effects and log: {folder}")
        else:
            shutil.rmtree(folder)
        seed += 1
    return 1 if faults else 0
