"""A server under load that is killed again and again, then emptied and verified."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.history import Ledger, Report, judge
from tests.history_rules import PENDING, RUNS
from tests.reliability.load import Load
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Launcher

LIFE_S = 0.15
"""Mean life of a server between its start and its kill."""

LEAVING = 0.01
"""Share of takers that are gone before their answer comes."""

STILLBORN = 0.1
"""Share of starts that are killed before the server can be asked anything."""

START_S = 0.06
"""About the time a start takes."""

ROUNDS_MAX = 30
"""Rounds in which the queue must be empty at the end."""

ROUND_S = 1.3
"""Time workers get in a round: more than a retryAfter and a repeat of the load need."""


@dataclass
class Storm:
    """What to do to a server, and with which seed."""

    folder: Path
    kills: int
    seed: int = 1
    fault: str = ""
    life_s: float = LIFE_S

    async def run(self, until: Set[str] = frozenset()) -> Report:
        """Run it and return the report; it ends as soon as the answers show a fault of one of some kinds."""
        dice = random.Random(self.seed)
        path = self.folder / "jobs.db"
        settings = {"database": str(path), "wal_bytes": 262_144}
        began = time.monotonic()
        with (self.folder / "ledger.jsonl").open("w") as file:
            ledger = Ledger(file)
            load = Load(ledger, self.seed, LEAVING)
            async with Launcher(self.folder / "server.log") as launcher:
                load.start()
                for kill in range(self.kills + 1):
                    fault = self.fault if kill < self.kills else ""
                    if dice.random() < STILLBORN:
                        pid = await launcher.order(settings)
                        await asyncio.sleep(dice.random() * START_S)
                        await launcher.kill(pid)
                        launcher.forget()
                    pid, port = await launcher.start(settings, fault=fault, seed=self.seed * 1_000 + kill)
                    load.server_is_at(port)
                    if until and kill:
                        report = await so_far(load, await Recorded.connect(port, ledger))
                        if report.faults.keys() & until:
                            return report
                        load.start()
                    if kill == self.kills:
                        break
                    await asyncio.sleep(min(dice.expovariate(1 / self.life_s), 10 * self.life_s))
                    load.fail_if_a_client_did()
                    await launcher.kill(pid)
                    load.server_is_gone()
                stormed = time.monotonic()
                left = await _empty(load, port)
                status = await launcher.terminate(pid)
        drained = time.monotonic()
        report = judge(ledger)
        report.counts["seconds of storm"] = round(stormed - began)
        report.counts["seconds of drain"] = round(drained - stormed)
        report.counts["seconds of judgement"] = round(time.monotonic() - drained)
        if status != 0:
            report.fault("bad end", f"the server ended with {status}")
        for job in left:
            if job["state"] in PENDING:
                report.fault("orphaned" if job["state"] == "PAUSED" else "left over", str(job))
        _check_file(path, left, report)
        return report


async def so_far(load: Load, looker: Recorded, late_s: float = 0.0) -> Report:
    """Judge what clients have seen until now, while none of them is at work; see ``judge``."""
    await load.stop()
    await look(looker)
    looker.close()
    return judge(load.ledger, late_s)


SETTLE_S = 0.5
"""Time in which jobs on their way to disconnected clients are requeued."""


async def _empty(load: Load, port: int) -> list[dict[str, Any]]:
    """Let workers empty the queue; return the remaining jobs."""
    await load.stop()
    load.ending = True
    load.leaving = 0.0  # a job that is requeued and lost once more would look like a fault
    await asyncio.sleep(SETTLE_S)
    looker = await Recorded.connect(port, load.ledger)
    for _ in range(ROUNDS_MAX):
        jobs = await look(looker)
        if not any(job["state"] in RUNS or job["state"] == "QUEUED" for job in jobs):
            break
        # No client is working now: RUNNING jobs were taken by clients that never got the reply.
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


def _check_file(path: Path, left: list[dict[str, Any]], report: Report) -> None:
    """Compare the file with the last replies."""
    with closing(sqlite3.connect(path)) as database:
        found = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            report.fault("damaged", "; ".join(found))
        rows = database.execute("SELECT jobID, state FROM jobs ORDER BY jobID").fetchall()
        highest = database.execute("SELECT value FROM meta WHERE key = 'nextJobID'").fetchone()[0]
    if rows != [(job["jobID"], job["state"]) for job in left]:
        report.fault("file differs", f"the wire showed {len(left)} jobs, the file holds {len(rows)}")
    report.counts["jobIDs used"] = int(highest) - 1
