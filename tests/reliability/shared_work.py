"""Guarantees for clients of several servers on one PostgreSQL: takes, waits, events."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from tests.history import Report
from tests.reliability.shared import RETRY_S, Shared
from tests.reliability.wire import Answer, Cut, Wire

PATIENCE_S = 60.0
"""Time for any single answer: on a busy machine, too."""

CLIENTS_EACH = 4
"""Clients of each server."""

BUSY = 503
"""The refusal of a command that waited too long for a lock, as may happen on an overloaded machine."""


async def asked(wire: Wire, verb: str, **given: Any) -> Answer:
    """Send a request until it is answered and was not refused because the database was busy."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await wire.ask(verb, **given)).code == BUSY:
            pass
    return answer


async def done(wire: Wire, verb: str, **given: Any) -> Any:
    """Send a request, which must succeed; return its body."""
    answer = await asked(wire, verb, **given)
    assert answer.code == 200, answer
    return answer.reply


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines concurrently; the first failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


# --- takes -----------------------------------------------------------------------------------------------


async def lifecycles(shared: Shared, count: int, clients_each: int = CLIENTS_EACH) -> Report:
    """Let clients of all servers create, take and finish a number of jobs of one name.

    A client asks for a job after its own is created, and all end what they took: there is one for each.
    """
    report = Report()
    left = iter(range(count))

    async def client(place: int) -> None:
        wire = await Wire.connect(shared.port(place))
        for _ in left:
            await done(wire, "CreateJob", name="life")
            while (answer := await asked(wire, "GetJob", name="life")).code == 404:
                report.fault("404 where jobs are", f"at server {place}")
            await done(wire, "FinishJob", jobID=answer.reply["jobID"])
            report.counts["lifecycles"] += 1

    await together(*(client(place) for place in range(len(shared)) for _ in range(clients_each)))
    return report


# --- waits -----------------------------------------------------------------------------------------------

PARKED_S = 0.02
"""Time after which a request for a job is waiting."""

DEAF_S = 2.2
"""Time after its LISTEN was cut in which a server may miss notifications: two exchanges and a reconnect."""

LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"


class Waits:
    """Clients that wait at one server for jobs created at another."""

    def __init__(self, shared: Shared) -> None:
        """Wait at ``shared``."""
        self._shared = shared
        self._cuts: list[float] = []
        self.heard_s: list[float] = []
        """Sorted waiting times while no LISTEN was cut."""
        self.all_s: list[float] = []
        """All waiting times, sorted."""

    async def run(self, count: int, *, cut_every_s: float = 0.0, limit_ms: int = 60_000) -> None:
        """Wait repeatedly, each time up to ``limit_ms``; cut a LISTEN now and then."""
        left = iter(range(count))
        heard: list[tuple[float, float]] = []

        async def client(number: int) -> None:
            places = len(self._shared)
            waiter = await Wire.connect(self._shared.port(number % places))
            creator = await Wire.connect(self._shared.port((number + 1) % places))
            name = f"wait/{number}"
            for _ in left:
                waiter.send("GetJob", {"name": name, "connection": "wait", "timeout": limit_ms})
                await asyncio.sleep(PARKED_S)
                await done(creator, "CreateJob", name=name)
                created = time.monotonic()
                async with asyncio.timeout(PATIENCE_S):
                    answer = await waiter.receive()
                took_s = time.monotonic() - created
                heard.append((created, took_s))
                if answer.code != 200:
                    answer = await asked(waiter, "GetJob", name=name)
                await done(waiter, "FinishJob", jobID=answer.reply["jobID"])

        cutting = asyncio.create_task(self._cut(cut_every_s)) if cut_every_s else None
        await together(*(client(number) for number in range(len(self._shared))))
        if cutting is not None:
            cutting.cancel()
        self.all_s = sorted(took_s for _, took_s in heard)
        self.heard_s = sorted(
            took_s
            for created, took_s in heard
            if not any(cut - took_s <= created <= cut + DEAF_S for cut in self._cuts)
        )

    async def _cut(self, every_s: float) -> None:
        while True:
            pids = [pid for (pid,) in self._shared.rows(LISTENERS)]
            if pids:
                self._cuts.append(time.monotonic())
                self._shared.rows(f"SELECT pg_terminate_backend({pids[len(self._cuts) % len(pids)]})")
            await asyncio.sleep(every_s if pids else PARKED_S)

    @property
    def cuts(self) -> int:
        """Return how often a LISTEN was cut."""
        return len(self._cuts)

    def __str__(self) -> str:
        """Return the figures as text."""
        tail = {f"p{part:g}": share(self.heard_s, part) * 1000 for part in (50, 99)}
        tail["longest"] = self.all_s[-1] * 1000
        words = ", ".join(f"{name} {found:.1f} ms" for name, found in tail.items())
        return f"{len(self.all_s)} waits, {self.cuts} cuts: {words}"


def share(ordered: list[float], percent: float) -> float:
    """Return a percentile."""
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


# --- deliveries ------------------------------------------------------------------------------------------

TAKERS = 12
WAIT_MS = 1_000
DRAINED_AFTER = 2
"""Consecutive waits without a job after which a taker considers the queue empty."""


class Deliveries:
    """Clients that wait concurrently while servers are killed or stopped, and the jobs they got.

    Every job has its own name, so retention deletes no run, and no job is handed out again on purpose: if two
    clients have the same job, or a client has a run that does not exist, a delivered take was undone.
    """

    def __init__(self, shared: Shared, seed: int = 1) -> None:
        """Wait at ``shared``."""
        self._shared = shared
        self._dice = random.Random(seed)
        self._given: list[tuple[int, int, str]] = []
        self._made = 0

    async def run(self, count: int, *, changes: int = 0, fault: str = "") -> Report:
        """Create and take a number of jobs; meanwhile, servers are replaced ``changes`` times."""
        takers = [asyncio.create_task(self._take(f"w{number}")) for number in range(TAKERS)]
        makers = asyncio.gather(*(self._make(count // 2) for _ in range(2)))
        for number in range(changes):
            place = self._dice.randrange(len(self._shared))
            if number % 2:
                await self._shared.kill(place)
            else:
                await self._shared.terminate(place)
            await self._shared.replace(place, fault=fault)
        await makers
        self._made = count
        await asyncio.gather(*takers)
        return self._judged()

    async def _make(self, count: int) -> None:
        """Create jobs; one whose reply is lost may exist nevertheless."""
        wire = None
        for number in range(count):
            try:
                wire = wire or await self._shared.connect()
                answer = await wire.ask("CreateJob", name=f"job/{id(wire)}/{number}")
                wire = None if answer.closing else wire
            except (Cut, OSError):
                wire = None
                await asyncio.sleep(RETRY_S)

    async def _take(self, worker: str) -> None:
        wire, empty = None, 0
        while not (self._made and empty >= DRAINED_AFTER):
            try:
                wire = wire or await self._shared.connect()
                given = {"name": "[^t]*", "worker": worker, "connection": "wait", "timeout": WAIT_MS}
                answer = await wire.ask("GetJob", **given)
                empty = empty + 1 if answer.code == 404 else 0
                if answer.code == 200:
                    self._given.append((answer.reply["jobID"], answer.reply["runID"], worker))
                wire = None if answer.closing else wire
            except (Cut, OSError):
                wire = None
                await asyncio.sleep(RETRY_S)

    def _judged(self) -> Report:
        report = Report()
        report.counts["given"] = len(self._given)
        there = {run_id for (run_id,) in self._shared.rows("SELECT runID FROM runs")}
        for job_id, often in Counter(job_id for job_id, _, _ in self._given).items():
            if often > 1:
                report.fault("given twice", str([each for each in self._given if each[0] == job_id]))
        for job_id, run_id, worker in self._given:
            if run_id not in there:
                report.fault("undone", f"run {run_id} of job {job_id}, which {worker} was told of")
        return report


# --- events ----------------------------------------------------------------------------------------------

FOLLOWED_MAX = 1_000
"""Events in one answer."""


async def followed(shared: Shared, count: int, followers: int = 3) -> Report:
    """Follow events at some servers while all write events; none may be missed or out of order."""
    report = Report()
    ((first,),) = shared.rows("SELECT coalesce(max(seq), 0) FROM events")
    left = iter(range(count))
    over = asyncio.Event()
    seen: list[list[int]] = [[] for _ in range(followers)]
    last = 0

    async def writer(place: int, number: int) -> None:
        wire = await Wire.connect(shared.port(place))
        name = f"event/{place}.{number}"
        job_id = (await done(wire, "CreateJob", name=name, repeat="SCHEDULED, +1 DAY"))["jobID"]
        for _ in left:
            await done(wire, "TriggerJob", jobID=job_id)
        await done(wire, "DeleteJob", jobID=job_id)

    async def write() -> None:
        nonlocal last
        await together(*(writer(place, n) for place in range(len(shared)) for n in range(CLIENTS_EACH)))
        ((last,),) = shared.rows("SELECT max(seq) FROM events")
        over.set()

    async def follower(place: int, mine: list[int]) -> None:
        wire = await Wire.connect(shared.port(place))
        after = first
        while not (over.is_set() and after >= last):
            asked_for = {"after": after, "limit": FOLLOWED_MAX, "connection": "wait", "timeout": 200}
            events = (await done(wire, "Events", **asked_for))["events"]
            mine += [event["seq"] for event in events]
            after = mine[-1] if mine else after

    began = time.monotonic()
    await together(write(), *(follower(place, mine) for place, mine in enumerate(seen)))
    report.counts["seconds"] = round(time.monotonic() - began)
    stored = [seq for (seq,) in shared.rows(f"SELECT seq FROM events WHERE seq > {first} ORDER BY seq")]
    report.counts["events"] = len(stored)
    for place, mine in enumerate(seen):
        for seq in sorted({*stored} - {*mine}):
            report.fault("gap", f"the follower at server {place} never saw {seq}")
        if mine != sorted(mine):
            report.fault("disorder", f"the follower at server {place}")
        if doubled := [seq for seq, often in Counter(mine).items() if often > 1]:
            report.fault("twice", f"the follower at server {place} saw {doubled[:5]}")
    return report
