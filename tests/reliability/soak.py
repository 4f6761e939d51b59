"""One server under a mixed, bounded load for minutes or hours: its memory and descriptors must not grow.

The load consists of raw and HTTP requests, waits, successes, failures, output, pages, schedules of every
second, and clients that disconnect. All that is created is also ended, so that only a leak can make the
server larger.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.reliability.servers import Server
from tests.reliability.wire import Wire

SLOPE_MB_PER_H_MAX = 1.0
"""Growth of memory, after the warm-up, that is taken for none."""

NOISE_MB = 6.0
"""What memory goes up and down by itself: a slope that has not led further than this is not believed yet."""

DESCRIPTORS_NOISE = 12
"""Connections and files that are open at one moment and not at another."""

WARM_UP_SHARE = 0.5
WARM_UP_S_MAX = 600.0
"""Part of the time, and time at the most, in which caches may fill: it takes five minutes and more."""

KINDS_S_MAX = 60.0
"""Time, more than that of the soak, until there was each kind of requests."""

SAMPLES_MAX = 600
"""Looks at the server; the time between two of them follows, and is a fifth of a second at least."""

PAUSE_S = 0.02
"""Pause of each client between two requests: the load should be even for hours, not maximal."""

NAMES = 20
SCHEDULES = 3

FILL_JOBS = 100
FILL_TIMES = 160
FILL_CHARS = 5_000
"""Jobs at a time, how often, and their size: 80 MB, more than the 64 MiB that the writer's cache holds."""

FILL_FROM_S = 60.0
"""Soaks that last longer begin with a full cache; in less time the database does not grow by ``NOISE_MB``."""

PAGES = ("ui/", "ui/jobs", "ui/schedules", "ui/workers", "ui/events", "metrics", "openapi.json", "Overview")


class Sample(NamedTuple):
    """One measurement of the server."""

    at: float
    mb: float
    descriptors: int


class Soaked(NamedTuple):
    """The measurements after the warm-up."""

    samples: list[Sample]
    done: Counter[str]
    status: int

    @property
    def slope(self) -> float:
        """Return the growth of memory in MB/h: the median of the slopes between the two halves' samples."""
        half = len(self.samples) // 2
        pairs = zip(self.samples[:half], self.samples[half:], strict=False)
        return statistics.median((late.mb - early.mb) / (late.at - early.at) * 3600 for early, late in pairs)

    @property
    def grown(self) -> float:
        """Return by how many MB memory grew between the first and the last quarter."""
        quarter = max(1, len(self.samples) // 4)
        first, last = self.samples[:quarter], self.samples[-quarter:]
        return statistics.median(each.mb for each in last) - statistics.median(each.mb for each in first)

    @property
    def more_descriptors(self) -> int:
        """Return by how many the descriptors grew between the first and the last quarter."""
        quarter = max(1, len(self.samples) // 4)
        first, last = self.samples[:quarter], self.samples[-quarter:]
        return min(each.descriptors for each in last) - max(each.descriptors for each in first)

    @property
    def faults(self) -> list[str]:
        """Return the faults found."""
        found = []
        if self.slope > SLOPE_MB_PER_H_MAX and self.grown > NOISE_MB:
            found.append(f"memory grows by {self.slope:.1f} MB/h, by {self.grown:.1f} MB so far")
        if self.more_descriptors > DESCRIPTORS_NOISE:
            found.append(f"{self.more_descriptors} more descriptors")
        if self.status:
            found.append(f"the server ended with status {self.status}")
        return found

    def __str__(self) -> str:
        """Return a one-line summary."""
        sizes = [each.mb for each in self.samples]
        descriptors = [each.descriptors for each in self.samples]
        span = self.samples[-1].at - self.samples[0].at
        kinds = dict(sorted(self.done.items()))
        return (
            f"{span:.0f} s after the warm-up, {self.done.total()} requests: {kinds}; "
            f"RSS {min(sizes):.1f} to {max(sizes):.1f} MB, slope {self.slope:.2f} MB/h, "
            f"grown by {self.grown:.2f} MB, descriptors {min(descriptors)} to {max(descriptors)}"
        )


def look_at(pid: int) -> Sample:
    """Measure a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Sample(time.monotonic(), pages * 4096 / 1e6, len(list(Path(f"/proc/{pid}/fd").iterdir())))


class Soak:
    """The load on one server."""

    def __init__(self, port: int, seed: int = 1) -> None:
        """Load the server at ``port``."""
        self._port = port
        self._dice = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._over = False

    async def run(self, seconds: float, pid: int, kinds: Set[str] = frozenset()) -> list[Sample]:
        """Run the load for some time; return the measurements after the warm-up.

        On a slow machine it goes on until there was each of some kinds of requests.
        """
        wire = await Wire.connect(self._port)
        if seconds > FILL_FROM_S:
            await self._fill(wire)
        for number in range(SCHEDULES):
            await wire.ask("CreateJob", name=f"tick/{number}", repeat="CRON * * * * * *")
        doers: list[Callable[[], Awaitable[None]]] = [
            *(self._produce, self._produce, self._work, self._work, self._run, self._run),
            *(self._http, self._look, self._leave),
        ]
        tasks = [asyncio.create_task(self._again(do)) for do in doers]
        began = time.monotonic()
        warm = began + min(WARM_UP_S_MAX, seconds * WARM_UP_SHARE)
        step = max(0.2, (seconds - (warm - began)) / SAMPLES_MAX)
        samples = []
        try:
            until = began + seconds
            while (now := time.monotonic()) < until or (
                not kinds <= self.done.keys() and now < until + KINDS_S_MAX
            ):
                for task in tasks:
                    if task.done():
                        task.result()
                if now >= warm:
                    samples.append(look_at(pid))
                await asyncio.sleep(step)
        finally:
            self._over = True
            await asyncio.gather(*tasks)
        return samples

    async def _fill(self, wire: Wire) -> None:
        """Fill the writer's database cache before the load begins.

        The database grows by the retained events, runs and output of a day. As long as the cache
        holds all of it, memory grows as much, which would hide a leak of that size.
        """
        jobs = [{"name": "fill", "data": {"x": "x" * FILL_CHARS}}] * FILL_JOBS
        for _ in range(FILL_TIMES):
            assert (await wire.ask("CreateJobs", jobs=jobs)).code == 200
        for _ in range(FILL_TIMES):
            taken = await wire.ask("GetJobs", name="fill", numResults=FILL_JOBS)
            ended = [{"jobID": job["jobID"]} for job in taken.reply["jobs"]]
            assert (await wire.ask("FinishJobs", jobs=ended)).code == 200

    async def _again(self, do: Callable[[], Awaitable[None]]) -> None:
        while not self._over:
            await do()
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, wire: Wire, verb: str, **asked: Any) -> Any:
        answer = await wire.ask(verb, **asked)
        self.done[verb] += 1
        assert answer.code in (200, 404, 405), (verb, answer)
        return answer.reply if answer.code == 200 else None

    async def _produce(self) -> None:
        wire = await Wire.connect(self._port)
        for _ in range(50):
            name = f"job/{self._dice.randrange(NAMES)}"
            await self._ask(wire, "CreateJob", name=name, data={"n": self._dice.randrange(10**6)})
            await asyncio.sleep(PAUSE_S)
        self._forget(wire)

    async def _work(self) -> None:
        wire = await Wire.connect(self._port)
        for _ in range(100):
            job = await self._ask(wire, "GetJob", name="job/*", connection="wait", timeout=500)
            if self._over or job is None:
                break
            how = self._dice.random()
            if how < 0.1:
                await self._ask(wire, "FailJob", jobID=job["jobID"], error="for once")
                await self._ask(wire, "DeleteJob", jobID=job["jobID"])
            elif how < 0.2:
                await self._ask(wire, "RetryJob", jobID=job["jobID"])
            else:
                await self._ask(wire, "FinishJob", jobID=job["jobID"])
        self._forget(wire)

    async def _run(self) -> None:
        """Work like ``bedrock-worker``: runs with heartbeats and output."""
        wire = await Wire.connect(self._port)
        who = f"worker-{self._dice.randrange(5)}"
        wish = {"worker": who, "heartbeat": True, "connection": "wait", "timeout": 1_500}
        job = await self._ask(wire, "GetJob", name=self._dice.choice(("tick/*", "job/*")), **wish)
        if job is not None:
            run = job["runID"]
            await self._ask(wire, "Heartbeat", worker=who, runIDs=[run], names=["tick/*", "job/*"])
            await self._ask(wire, "AppendOutput", runID=run, seq=1, lines=["a line", "x" * 200])
            await self._ask(wire, "FinishJob", jobID=job["jobID"], runID=run)
        self._forget(wire)

    async def _http(self) -> None:
        address = f"http://127.0.0.1:{self._port}"
        async with aiohttp.ClientSession(address) as session:
            for _ in range(20):
                body = {"name": f"job/{self._dice.randrange(NAMES)}", "data": {"http": True}}
                async with session.post("/CreateJob", json=body) as answer:
                    await answer.read()
                async with session.post("/ListJobs", json={"limit": 50}) as answer:
                    await answer.read()
                self.done["HTTP"] += 2
                await asyncio.sleep(PAUSE_S)

    async def _look(self) -> None:
        page = self._dice.choice(PAGES)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._port}/{page}") as got,
        ):
            await got.read()
            assert got.status == 200, page
        self.done["pages"] += 1

    async def _leave(self) -> None:
        """Disconnect in the middle of a request, and during a wait."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        begun = (
            b"CreateJob\r\nname: x",
            b"GetJob\r\nname: none\r\nConnection: wait\r\n\r\n",
            b"POST /CreateJob HT",
        )
        writer.write(self._dice.choice(begun))
        await asyncio.sleep(PAUSE_S)
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
        self.done["left"] += 1

    @staticmethod
    def _forget(wire: Wire) -> None:
        wire.close()
        Wire.ever.remove(wire)


async def soak(
    folder: Path, seconds: float, kind: type[Server] = Server, kinds: Set[str] = frozenset()
) -> Soaked:
    """Start a server, load it for some time, and return the measurements."""
    async with kind(folder / "jobs.db") as server:
        load = Soak(await server.listening())
        samples = await load.run(seconds, server.pid, kinds)
        server.send(signal.SIGTERM)
        status, _ = await server.ended()
    return Soaked(samples, load.done, status)


def nightly(seconds: float) -> int:
    """Soak a server, print the measurements and return the exit status: 1 if anything grew."""
    folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-soak-"))
    try:
        found = asyncio.run(soak(folder, seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(found, flush=True)
    for fault in found.faults:
        print(f"fault: {fault}")
    return 1 if found.faults else 0
