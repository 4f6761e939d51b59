"""Several servers on one PostgreSQL under load, each killed again and again, then verified."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.history import Ledger, Report, judge
from tests.history_rules import PENDING, RUNS
from tests.reliability.load import Load
from tests.reliability.recorded import Recorded, look
from tests.reliability.shared import Shared
from tests.reliability.storm import LEAVING, ROUND_S, ROUNDS_MAX, SETTLE_S, STILLBORN, so_far

SERVERS = 5

LIFE_S = 0.25
"""Mean time between two kills: of five servers, most are up and each dies within seconds."""

AT_ONCE = 0.1
"""Share of kills that hit two servers at the same moment."""

START_S = 0.3
"""About the time a start takes."""

LATE_S = 5.0
"""How long after a server was killed PostgreSQL may commit what it had read of it: two statements may wait
for a lock, two seconds each (``lock_timeout``)."""

HELD = """SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'bedrockjobs' AND state LIKE 'idle in transaction%'"""

AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bedrockjobs' AND state <> 'idle'"


@dataclass
class SharedStorm:
    """The parameters of a storm on the servers."""

    folder: Path
    kills: int
    seed: int = 1
    fault: str = ""
    servers: int = SERVERS
    life_s: float = LIFE_S

    async def run(self, until: Set[str] = frozenset()) -> Report:
        """Run it and return the report; it ends as soon as the answers show a fault of one of some kinds."""
        dice = random.Random(self.seed)
        began = time.monotonic()
        with (self.folder / "ledger.jsonl").open("w") as file:
            ledger = Ledger(file)
            async with Shared(self.folder, seed=self.seed) as shared:
                load = Load(ledger, self.seed, LEAVING, connect=shared.connect)
                await shared.start(self.servers, fault=self.fault, seed=self.seed)
                load.server_is_at(0)
                load.start()
                kills = 0
                while kills < self.kills:
                    await asyncio.sleep(min(dice.expovariate(1 / self.life_s), 10 * self.life_s))
                    load.fail_if_a_client_did()
                    victims = dice.sample(range(self.servers), 2 if dice.random() < AT_ONCE else 1)
                    for victim in victims:
                        await shared.kill(victim)
                        ledger.killed(time.monotonic())
                    load.era += 1  # other unique names, so that their families stay small
                    if dice.random() < STILLBORN:
                        await shared.stillborn(dice.random() * START_S)
                    for victim in victims:
                        await shared.replace(victim, fault=self.fault, seed=self.seed * 1_000 + kills)
                    kills += len(victims)
                    if until:
                        report = await so_far(load, Recorded(await shared.connect(), ledger), LATE_S)
                        if report.faults.keys() & until:
                            return report
                        load.start()
                stormed = time.monotonic()
                left = await _empty(load, shared)
                statuses = await asyncio.gather(*map(shared.terminate, range(self.servers)))
                rows = shared.rows("SELECT jobID, state FROM jobs ORDER BY jobID")
                held = shared.rows(HELD)[0][0]
        drained = time.monotonic()
        report = judge(ledger, LATE_S)
        report.counts["seconds of storm"] = round(stormed - began)
        report.counts["seconds of drain"] = round(drained - stormed)
        report.counts["seconds of judgement"] = round(time.monotonic() - drained)
        if any(statuses):
            report.fault("bad end", f"the servers ended with {statuses}")
        if held:
            report.fault("held", f"{held} connections of servers that are gone are in a transaction")
        for job in left:
            if job["state"] in PENDING:
                report.fault("orphaned" if job["state"] == "PAUSED" else "left over", str(job))
        if rows != [(job["jobID"], job["state"]) for job in left]:
            report.fault("rows differ", f"the wire showed {len(left)} jobs, the table has {len(rows)}")
        return report


async def _empty(load: Load, shared: Shared) -> list[dict[str, Any]]:
    """Let workers empty the queue; return the remaining jobs."""
    await load.stop()
    load.ending = True
    load.leaving = 0.0
    await asyncio.sleep(SETTLE_S)
    until = time.monotonic() + LATE_S
    while shared.rows(AT_WORK) != [(0,)] and time.monotonic() < until:
        await asyncio.sleep(SETTLE_S / 10)
    looker = Recorded(await shared.connect(), load.ledger)
    for _ in range(ROUNDS_MAX):
        jobs = await look(looker)
        if not any(job["state"] in RUNS or job["state"] == "QUEUED" for job in jobs):
            break
        running = [job["jobID"] for job in jobs if job["state"] == "RUNNING"]
        if running:
            answer = await looker.ask("RequeueJobs", jobIDs=running)
            assert answer is not None
            assert answer.code == 200
        load.start(producers=0)
        await asyncio.sleep(ROUND_S)
        await load.stop()
    looker.close()
    return jobs
