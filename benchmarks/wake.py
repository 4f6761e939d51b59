"""What waiting costs: memory of a waiting GetJob, idle time, and how soon and how cheaply one is woken.

The clients are this process, the server is another. Latencies are from sending CreateJob until a waiting
client has the job, beside those of the same server with one waiter alone.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import machine
import uvloop
from load import ENCODERS, Encode
from results import table, write_machine, write_section
from served import Served

CREATORS = 16
"""Connections that create the jobs which wake everybody."""
CONNECTING = 200
"""Connections that are opened at a time; more would only fill the kernel's queue."""
ANSWER_S = 60.0
"""Time the server may take to wake all of them."""
WAIT_MS = b"600000"


class Waiter(asyncio.Protocol):
    """One connection with at most one request under way."""

    def __init__(self, woken: Callable[[Waiter, float], None]) -> None:
        """Call ``woken`` with the time at which an answer is complete."""
        self._woken = woken
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take an answer; a refusal ends the benchmark."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        at = self._buffer.find(b"Content-Length: ", 0, end) + 16
        if end < 0 or len(self._buffer) < end + 4 + int(self._buffer[at : self._buffer.find(b"\r", at)]):
            return
        answer, self._buffer = self._buffer, b""
        if not answer.startswith((b"200", b"HTTP/1.1 200")):
            raise RuntimeError(f"refused: {answer!r}")
        self._woken(self, time.perf_counter())

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


@dataclass
class Outcome:
    """What one crowd of waiters cost."""

    bytes_each: float
    idle_cpu: float
    """Processor time of the server a second while all wait."""
    one_ms: list[float]
    one_cpu_us: float
    all_s: float
    all_cpu_us: float


class Crowd:
    """The waiters of one server, and those who create jobs for them."""

    def __init__(self, server: Served, encode: Encode, *, own_names: bool) -> None:
        """Wait for one name, or each for its own."""
        self._server = server
        self._encode = encode
        self._own_names = own_names
        self._waiters: list[Waiter] = []
        self._creators: list[Waiter] = []
        self._places: dict[Waiter, int] = {}
        self._woken = self._created = 0
        self._last = 0.0
        self._moved = asyncio.Event()
        self._on_created: Callable[[Waiter], None] = lambda _: None

    def _wake(self, waiter: Waiter, at: float) -> None:
        self._woken += 1
        self._last, self._last_woken = at, waiter
        self._moved.set()

    def _created_one(self, creator: Waiter, at: float) -> None:
        self._created += 1
        self._last_created = at
        self._on_created(creator)
        self._moved.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not done():
                self._moved.clear()
                await self._moved.wait()

    async def gather(self, count: int) -> None:
        """Open the connections."""
        for _ in range(CREATORS):
            self._creators.append(await self._connect(self._created_one))
        for first in range(0, count, CONNECTING):
            some: list[Awaitable[Waiter]] = [
                self._connect(self._wake) for _ in range(min(CONNECTING, count - first))
            ]
            self._waiters += await asyncio.gather(*some)
        self._places = {waiter: place for place, waiter in enumerate(self._waiters)}

    async def _connect(self, done: Callable[[Waiter, float], None]) -> Waiter:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: Waiter(done), "127.0.0.1", self._server.port))[1]

    def _name(self, place: int) -> bytes:
        return b'"wake/%d"' % (place if self._own_names else 0)

    def _wait(self, waiter: Waiter) -> None:
        name = self._name(self._places[waiter])
        waiter.send(self._encode("GetJob", name=name, connection=b'"wait"', timeout=WAIT_MS))

    async def wait_all(self) -> None:
        """Let everybody wait; return when the server has them all."""
        for waiter in self._waiters:
            self._wait(waiter)
        async with asyncio.timeout(ANSWER_S):
            while self._server.status()["waiting"] < len(self._waiters):
                await asyncio.sleep(0.05)

    async def wake_one(self, place: int) -> float:
        """Create a job; return the milliseconds until a waiter has it, which then waits again."""
        woken, created = self._woken, self._created
        begun = time.perf_counter()
        self._creators[0].send(self._encode("CreateJob", name=self._name(place), data=b"{}"))
        await self._until(lambda: self._woken > woken and self._created > created)
        self._wait(self._last_woken)
        return (self._last - begun) * 1000

    async def create_all(self, *, waited_for: bool) -> float:
        """Create a job for each; return the seconds until all are created, and taken if somebody waits."""
        count, woken, created = len(self._waiters), self._woken, self._created
        places = iter(range(count))

        def another(creator: Waiter) -> None:
            place = next(places, None)
            if place is not None:
                creator.send(self._encode("CreateJob", name=self._name(place), data=b"{}"))

        self._on_created = another
        begun = time.perf_counter()
        for creator in self._creators:
            another(creator)
        await self._until(
            lambda: self._created - created == count and (not waited_for or self._woken - woken == count)
        )
        self._on_created = lambda _: None
        return max(self._last_created, self._last) - begun

    def close(self) -> None:
        """Close all connections."""
        for each in self._waiters + self._creators:
            each.close()


async def measure(server: Served, crowd: Crowd, count: int, idle_s: float, wakes: int) -> Outcome:
    """Gather a crowd and wake it, first one by one, then all."""
    rss = server.rss_bytes()
    await crowd.gather(count)
    await crowd.wait_all()
    bytes_each = (server.rss_bytes() - rss) / count
    cpu = server.cpu_s()
    await asyncio.sleep(idle_s)
    idle_cpu = (server.cpu_s() - cpu) / idle_s
    cpu = server.cpu_s()
    one_ms = sorted([await crowd.wake_one(number * 7 % count) for number in range(wakes)])
    one_cpu_us = (server.cpu_s() - cpu) / wakes * 1e6
    cpu = server.cpu_s()
    all_s = await crowd.create_all(waited_for=True)
    all_cpu_us = (server.cpu_s() - cpu) / count * 1e6
    return Outcome(bytes_each, idle_cpu, one_ms, one_cpu_us, all_s, all_cpu_us)


async def run(
    directory: Path, protocol: str, count: int, own_names: bool, idle_s: float, wakes: int
) -> tuple[str, ...]:
    """Measure one crowd on a new server; return the line of the table."""
    with Served(directory) as server:
        alone = Crowd(server, ENCODERS[protocol], own_names=own_names)
        await alone.gather(1)
        await alone.wait_all()
        alone_ms = sorted([await alone.wake_one(0) for _ in range(wakes)])
        alone.close()
        await asyncio.sleep(0.2)
        crowd = Crowd(server, ENCODERS[protocol], own_names=own_names)
        found = await measure(server, crowd, count, idle_s, wakes)
        # The same creates again, while nobody waits: what waking adds.
        unheard_s = await crowd.create_all(waited_for=False)
        crowd.close()
    p50, lone = found.one_ms[len(found.one_ms) // 2], alone_ms[len(alone_ms) // 2]
    line = (
        f"{protocol}, {count:,} waiters, {'a name each' if own_names else 'one name'}",
        f"{found.bytes_each / 1024:.1f}",
        f"{found.idle_cpu * 100:.2f} %",
        f"{p50:.2f} / {found.one_ms[len(found.one_ms) * 99 // 100]:.2f}",
        f"{lone:.2f}",
        f"**{p50 / lone:.2f}**",
        f"{found.one_cpu_us:.0f}",
        f"{count / found.all_s:,.0f}",
        f"{unheard_s / found.all_s:.2f}",
        f"{found.all_cpu_us:.0f}",
    )
    print(f"  {' | '.join(line)}", flush=True)
    return line


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--waiters", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--idle", type=float, default=5.0, help="seconds to watch an idle server")
    parser.add_argument("--wakes", type=int, default=200, help="jobs created one by one")
    parser.add_argument("--quick", action="store_true", help="a look: 1,000 waiters")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    counts, idle_s, wakes = options.waiters, options.idle, options.wakes
    if options.quick:
        counts, idle_s, wakes = [1_000], 1.0, 50
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = machine.moment()
    write_machine(machine.describe(directory))
    uvloop.install()
    lines = [
        asyncio.run(run(directory, protocol, count, own_names, idle_s, wakes))
        for protocol in ENCODERS
        for count in counts
        for own_names in (False, True)
    ]
    head = ("waiting GetJobs", "KiB each", "server CPU while idle", "one woken, p50 / p99 ms")
    woken = ("p50 ms with one waiter", "ratio", "server CPU µs a wake")
    everybody = ("all woken, jobs/s", "of the rate with nobody waiting", "server CPU µs a job")
    text = f"{before}; {wakes} jobs one by one, then one for each waiter on {CREATORS} connections;"
    text += f" idle for {idle_s:g} s.\n\n{table(head + woken + everybody, lines)}\n\n"
    text += "CPU a wake includes the CreateJob, the take, its answer and, one by one, the new waiting GetJob."
    print(f"\n{text}")
    write_section("Wake", text)


if __name__ == "__main__":
    main()
