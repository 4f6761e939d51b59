"""One simulated history: clients, a server with several lives, and faults, all decided by one seed.

``tests.history`` verifies the result; it also verifies tests with real kills.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.settings import Settings
from tests.history import Ledger, Report, judge
from tests.history_rules import PENDING, RUNS
from tests.reliability.load import Load
from tests.reliability.wire import Wire
from tests.simulation.disk import Disk
from tests.simulation.life import Life
from tests.simulation.loop import VirtualClock, VirtualLoop
from tests.simulation.network import Network

PRODUCERS, WORKERS = 2, 4

LIVES_MAX = 3
LIFE_S = 0.06
"""Mean life of a server."""

LEAVING = 0.02
"""Share of takers that are gone before their answer comes."""

STARTS_MAX = 5
"""Starts that may fail in a row, where the disk fails."""

ROUNDS_MAX = 30
ROUND_S = 1.3
"""As in ``tests.reliability.storm``: rounds in which the queue must be empty at the end."""

SETTLE_S = 0.5
"""Time in which jobs on their way to disconnected clients are requeued."""

JUMPS_S = (-31_536_000.0, -3_600.0, -30.0, 30.0, 3_600.0, 31_536_000.0)
"""By how much a clock is set."""

LOCK_S = 0.3
"""The longest time for which another process keeps the database locked."""


@dataclass
class Outcome:
    """The result of a history."""

    report: Report
    digest: str
    """A digest of all requests and replies: equal for equal seeds."""


def simulate(seed: int, *, durability: str = "full") -> Outcome:
    """Run the history of a seed."""
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    loop = VirtualLoop()
    with tempfile.TemporaryDirectory(prefix="bedrockjobs-simulation-") as name:
        world = World(loop, seed, Path(name), durability)
        try:
            loop.run_until_complete(world.run())
        finally:
            world.close()
            loop.close()
            logging.disable(logging.NOTSET)
            Wire.ever.clear()
    digest = hashlib.sha256(repr(world.ledger.records).encode()).hexdigest()
    report = judge(world.ledger)
    report.faults.update(world.report.faults)
    report.counts.update(world.report.counts)
    report.examples += world.report.examples
    return Outcome(report, digest)


class World:
    """A machine, its network, and its clients."""

    def __init__(self, loop: VirtualLoop, seed: int, folder: Path, durability: str) -> None:
        """Prepare the history of a seed."""
        self._dice = dice = random.Random(seed)
        self._loop = loop
        self._folder = folder
        self._clock = VirtualClock(loop)
        self._network = Network(loop, random.Random(dice.random()))
        self._disk = Disk(folder, random.Random(dice.random()))
        self._jumps = dice.random() < 0.3
        self._durability = durability
        self.ledger = Ledger()
        self.report = Report()
        self._load = Load(
            self.ledger,
            seed,
            LEAVING,
            now=loop.time,
            connect=self._network.connect,
            leases=not self._jumps,  # which end early or late where the clock is set
        )
        self._life: Life | None = None
        self._lives: list[Life] = []
        self._outside: sqlite3.Connection | None = None

    async def run(self) -> None:
        """Run it."""
        self._load.start(producers=PRODUCERS, workers=WORKERS)
        for _ in range(self._dice.randint(1, LIVES_MAX)):
            life = await self._begin(faults=True)
            why = await self._trouble(life)
            self._load.fail_if_a_client_did()
            await self._end(life, why)
        life = await self._begin(faults=False)
        left = await self._empty()
        await self._end(life, "stopped")
        self._check(left)

    def close(self) -> None:
        """Release what is left."""
        for life in self._lives:
            life.close()

    # --- a life -------------------------------------------------------------------------------------------

    async def _begin(self, *, faults: bool) -> Life:
        """Start a server; if a failing disk prevents that, try again."""
        dice, disk = self._dice, self._disk
        for _ in range(STARTS_MAX):
            disk.begin()
            early = faults and dice.random() < 0.1
            if early:
                dice.choice((disk.fail_once, disk.cut_power))()
            settings = Settings(
                database=str(disk.path), durability=self._durability, wal_bytes=0, ballast_bytes=0
            )
            life = Life(self._loop, self._clock, disk, settings)
            self._lives.append(life)
            try:
                life.start(dice)
            except (sqlite3.Error, OSError) as error:
                if not disk.happened:
                    self.report.fault("does not start", repr(error))
                life.alive = False
            if life.alive:
                self._network.accept = life.accept
                self._load.server_is_at(1)
                return life
            self.report.counts["stillborn"] += 1
            disk.end_of_power()
            life.close()
        raise AssertionError("it does not start again")

    async def _trouble(self, life: Life) -> str:
        """Run a server with faults; return how it ended."""
        dice = self._dice
        lasts_s = min(dice.expovariate(1 / LIFE_S), 10 * LIFE_S)
        likely = [
            (0.5, self._disk.fail_once),
            (0.3, self._disk.cut_power),
            (float(self._jumps), self._jump),
            (0.3, partial(self._other_hands, life)),
        ]
        troubles = [
            asyncio.ensure_future(_later(dice.random() * lasts_s, trouble))
            for share, trouble in likely
            if dice.random() < share
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(lasts_s):
                await asyncio.shield(life.over)
        for trouble in troubles:
            trouble.cancel()
        await asyncio.gather(*troubles, return_exceptions=True)
        return life.over.result() if life.over.done() else dice.choice(("killed", "power", "stopped"))

    async def _end(self, life: Life, why: str) -> None:
        """End a life and its connections."""
        self.report.counts[f"ended: {why}"] += 1
        if why == "stopped":
            stopping = asyncio.ensure_future(life.stop())
            await asyncio.wait({stopping, life.over}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                stopping.result()
                life.close()
            else:
                stopping._log_destroy_pending = False  # type: ignore[attr-defined]  # it hangs forever
                why = life.over.result()
        life.die()
        if why in ("power", "failure"):  # after a failed sync it is unknown what the system has kept
            how = self._disk.end_of_power()
            self.report.counts[f"power cut: {how} unsynced"] += 1
        else:
            self._disk.end_of_process()
        self._network.server_died()
        self._load.server_is_gone()
        life.close()
        self._look_for_damage()

    def _look_for_damage(self) -> None:
        copy = self._disk.copy(self._folder / "copy.db")
        with closing(sqlite3.connect(copy)) as database:
            found = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            self.report.fault("damaged", "; ".join(found))

    # --- troubles -----------------------------------------------------------------------------------------

    def _jump(self) -> None:
        """Set the clock."""
        self._clock.ahead += timedelta(seconds=self._dice.choice(JUMPS_S))
        self.report.counts["clock set"] += 1

    async def _other_hands(self, life: Life) -> None:
        """Lock the database for a while, as another process may, and change rows by hand."""
        if not life.alive:
            return
        with closing(sqlite3.connect(self._disk.path, isolation_level=None, timeout=0)) as other:
            other.execute("PRAGMA wal_autocheckpoint = 0")
            try:
                other.execute("BEGIN IMMEDIATE")
                self.report.counts["locked by others"] += 1
                if self._dice.random() < 0.7:
                    other.execute("UPDATE jobs SET priority = 1000 - priority WHERE state = 'QUEUED'")
                    self.report.counts["changed by others"] += 1
                await asyncio.sleep(self._dice.random() * LOCK_S)
                other.execute("COMMIT")
            except sqlite3.OperationalError:
                return

    # --- the end ------------------------------------------------------------------------------------------

    async def _empty(self) -> list[dict[str, Any]]:
        """Let workers empty the queue; return the remaining jobs."""
        load = self._load
        await load.stop()
        load.ending, load.leaving = True, 0.0
        if self._jumps:  # nothing is still to come
            self._clock.ahead = timedelta(seconds=max(JUMPS_S) * LIVES_MAX)
        await asyncio.sleep(SETTLE_S)
        for _ in range(ROUNDS_MAX):
            jobs = self._see()
            if not any(job["state"] in RUNS or job["state"] == "QUEUED" for job in jobs):
                break
            running = [job["jobID"] for job in jobs if job["state"] == "RUNNING"]
            if running:  # taken by a client that never got the reply
                await self._requeue(running)
            load.start(producers=0, workers=WORKERS)
            await asyncio.sleep(ROUND_S)
            await load.stop()
        return jobs

    def _see(self) -> list[dict[str, Any]]:
        """Inspect all jobs, and record that they were seen."""
        now = self._loop.time()
        with closing(sqlite3.connect(f"file:{self._disk.path}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT jobID, state, json_extract(data, '$.token') FROM jobs").fetchall()
        jobs = [{"jobID": row[0], "state": row[1], "data": {"token": row[2]}} for row in rows]
        number = self.ledger.sent(now, "looker", "Look", {"whole": True})
        self.ledger.answered(number, now, 200, {"jobs": jobs})
        return jobs

    async def _requeue(self, job_ids: list[int]) -> None:
        asked = {"jobIDs": job_ids}
        while True:
            wire = await self._network.connect(1)
            number = self.ledger.sent(self._loop.time(), "looker", "RequeueJobs", asked)
            wire.send("RequeueJobs", asked)
            try:
                answer = await wire.receive()
            except Exception:
                self.ledger.cut(number, self._loop.time())
                continue
            self.ledger.answered(number, self._loop.time(), answer.code, answer.reply)
            wire.close()
            assert answer.code == 200
            return

    def _check(self, left: list[dict[str, Any]]) -> None:
        for job in left:
            if job["state"] in PENDING:
                kind = "orphaned" if job["state"] == "PAUSED" else "left over"
                self.report.fault(kind, f"{job} at {timestamp_ms(self._clock.now())}")


async def _later(seconds: float, trouble: Callable[[], Awaitable[None] | None]) -> None:
    await asyncio.sleep(seconds)
    doing = trouble()
    if doing is not None:
        await doing
