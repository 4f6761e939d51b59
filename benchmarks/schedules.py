"""What many schedules of the same minute cost: how late their runs begin, and what the server uses.

The workers are this process, the server is another. Time is real: the ticks are those of the next minutes.
Rates stand beside those of one-off jobs that the same connections take and finish on the same server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import machine
import uvloop
from load import raw
from results import table, verdict, write_machine, write_section
from served import Served

CONNECTING = 200
"""Connections that are opened at a time; more would only fill the kernel's queue."""
PER_CREATE = 1_000
"""Jobs of one CreateJobs."""
ANSWER_S = 120.0
"""Time the server may take for all ticks of a minute, or for anything else."""
MINUTE_S = 60
CALM_S = 5.0
"""Time left before a turn of the minute in which the server is not measured as idle."""
IDLE_S_MIN = 10.0
"""The shortest time in which idling is measured."""
WAIT_MS = b"600000"
IDLE_CPU_MAX = 1.0
"""Per cent of a core that the server may use between ticks."""

JOB = re.compile(rb'"jobID":(\d+)')
RUN = re.compile(rb'"runID":(\d+)')
DUE = re.compile(rb'"nextRun":"([^"]+)"')


class Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    def __init__(self, heard: Callable[[Connection, bytes, bytes], None]) -> None:
        """Call ``heard`` with the status line and the body of each answer."""
        self.heard = heard
        self.finishing = b""
        """What is being finished, where that is asked."""
        self.number = 0
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take an answer."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        at = self._buffer.find(b"Content-Length: ", 0, end) + 16
        if end < 0 or len(self._buffer) < end + 4 + int(self._buffer[at : self._buffer.find(b"\r", at)]):
            return
        answer, self._buffer = self._buffer, b""
        self.heard(self, answer[: answer.find(b"\r")], answer[end + 4 :])

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


@dataclass
class Rate:
    """What a number of takes and ends cost."""

    seconds: float
    cpu_s: float
    count: int
    load_cpu: float
    late_s: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Return takes and ends a second."""
        return self.count / self.seconds


class Crew:
    """The connections of all workers."""

    def __init__(self, server: Served) -> None:
        """Work for a server."""
        self._server = server
        self._all: list[Connection] = []
        self._done = asyncio.Event()
        self._left = 0
        self._refused = b""
        self._late_s: list[float] = []
        self._get: Callable[[Connection], bytes] = lambda _: b""

    async def gather(self, count: int) -> None:
        """Open the connections."""
        loop = asyncio.get_running_loop()
        for first in range(0, count, CONNECTING):
            some: list[Awaitable[tuple[asyncio.Transport, Connection]]] = [
                loop.create_connection(lambda: Connection(self._heard), "127.0.0.1", self._server.port)
                for _ in range(min(CONNECTING, count - first))
            ]
            self._all += [connection for _, connection in await asyncio.gather(*some)]
        for number, connection in enumerate(self._all):
            connection.number = number

    def _heard(self, connection: Connection, status: bytes, body: bytes) -> None:
        if connection.finishing:
            connection.finishing = b""
            self._left -= 1
            if self._left == 0:
                self._done.set()
        if not status.startswith(b"200"):
            if not status.startswith(b"404 No job"):
                self._refused = self._refused or status
                self._done.set()
            return
        found = JOB.search(body)
        if found is None:  # the answer to FinishJob
            connection.send(self._get(connection))
            return
        due = DUE.search(body)
        assert due is not None
        self._late_s.append(time.time() - datetime.fromisoformat(f"{due[1].decode()}+00:00").timestamp())
        run = RUN.search(body)
        connection.finishing = found[1]
        more = {"runID": run[1]} if run else {}
        connection.send(raw("FinishJob", jobID=found[1], **more))

    async def _all_done(self) -> None:
        async with asyncio.timeout(ANSWER_S + MINUTE_S):
            await self._done.wait()
        if self._refused:
            raise RuntimeError(f"refused: {self._refused!r}")

    def expect(self, count: int) -> None:
        """Count so many ends from now on."""
        self._left, self._late_s = count, []
        self._done.clear()

    async def drain(self, count: int, *, worker: bool) -> Rate:
        """Take and finish so many jobs that are there already; ``worker`` opens a run for each."""
        get = raw("GetJob", name=b"plain/*")
        if worker:
            self._get = lambda each: raw("GetJob", name=b"plain/*", worker=b"worker-%d" % each.number)
        else:
            self._get = lambda _: get
        self.expect(count)
        cpu, own, begun = self._server.cpu_s(), time.process_time(), time.perf_counter()
        for connection in self._all:
            connection.send(self._get(connection))
        await self._all_done()
        seconds = time.perf_counter() - begun
        return Rate(seconds, self._server.cpu_s() - cpu, count, (time.process_time() - own) / seconds)

    async def wait_all(self, name: bytes) -> None:
        """Let every worker wait for a schedule; return when the server has them all."""
        self._get = lambda each: raw(
            "GetJob", name=name, worker=b"worker-%d" % each.number, Connection=b"wait", timeout=WAIT_MS
        )
        for connection in self._all:
            connection.send(self._get(connection))
        async with asyncio.timeout(ANSWER_S):
            while self._server.status()["waiting"] < len(self._all):
                await asyncio.sleep(0.05)

    async def turn(self, moment: float, count: int) -> Rate:
        """Wait for a turn of the minute; return what its ticks cost."""
        self.expect(count)
        await asyncio.sleep(moment - time.time() - 0.5)
        cpu, own = self._server.cpu_s(), time.process_time()
        await self._all_done()
        seconds = time.time() - moment
        used, load = self._server.cpu_s() - cpu, (time.process_time() - own) / seconds
        return Rate(seconds, used, count, load, sorted(self._late_s))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._all:
            connection.close()


async def create(server: Served, jobs: list[dict[str, object]]) -> None:
    """Create jobs."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for first in range(0, len(jobs), PER_CREATE):
        body = json.dumps({"jobs": jobs[first : first + PER_CREATE]}).encode()
        writer.write(b"CreateJobs\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"200"):
            raise RuntimeError(f"refused: {head!r}")
        found = re.search(rb"Content-Length: (\d+)", head)
        assert found is not None
        await reader.readexactly(int(found[1]))
    writer.close()


async def room(seconds: float) -> float:
    """Wait for a part of a minute that is still so long; return the next turn of the minute."""
    left = MINUTE_S - time.time() % MINUTE_S
    if left < seconds:
        await asyncio.sleep(left + 0.1)
    return (time.time() // MINUTE_S + 1) * MINUTE_S


async def measure(options: argparse.Namespace, directory: Path) -> str:
    """Measure and return the section."""
    count, workers = options.schedules, options.workers
    with Served(directory) as server:
        crew = Crew(server)
        await crew.gather(workers)
        rates = []
        for worker in (False, True):
            await create(server, [{"name": f"plain/{number}"} for number in range(count)])
            rates.append(await crew.drain(count, worker=worker))
            await asyncio.sleep(0.5)  # who found nothing more has its answer
        plain, runs = rates
        moment = await room(IDLE_S_MIN + 2 * CALM_S)
        before = server.rss_bytes()
        await create(
            server, [{"name": f"cron/{number}", "repeat": "CRON * * * * *"} for number in range(count)]
        )
        bytes_each = (server.rss_bytes() - before) / count
        if time.time() > moment:
            raise RuntimeError("creating took longer than a minute")
        await crew.wait_all(b"cron/*")
        turns, idle = [], []
        for _ in range(options.turns):
            await asyncio.sleep(2.0)
            cpu, begun = server.cpu_s(), time.time()
            await asyncio.sleep(max(moment - begun - CALM_S, 0.1))
            idle.append((server.cpu_s() - cpu) / (time.time() - begun) * 100)
            turns.append(await crew.turn(moment, count))
            print(f"  {datetime.fromtimestamp(moment, UTC):%H:%M}: {turns[-1].seconds:.2f} s", flush=True)
            moment += MINUTE_S
        crew.close()
    return section(options, plain, runs, turns, idle, bytes_each)


def section(
    options: argparse.Namespace, plain: Rate, runs: Rate, turns: list[Rate], idle: list[float], each: float
) -> str:
    """Return the words and the tables."""
    rows = [
        line("one-off jobs, no worker named", plain, plain),
        line("one-off jobs, a run each", runs, plain),
        *(line(f"turn {number} of the minute", rate, plain) for number, rate in enumerate(turns, 1)),
    ]
    head = ("what", "seconds for all", "a second", "of the plain rate", "server CPU µs each", "load CPU")
    late = [f"{at(rate, 50):.2f} / {at(rate, 99):.2f} / {rate.late_s[-1]:.2f}" for rate in turns]
    others = [
        (f"lateness at turn {number}, p50 / p99 / last, s", text) for number, text in enumerate(late, 1)
    ]
    others += [
        ("first run of a turn, ms after the minute", " / ".join(f"{r.late_s[0] * 1000:.1f}" for r in turns)),
        ("server CPU between ticks, % of a core", " / ".join(f"{share:.2f}" for share in idle)),
        ("server memory a schedule, bytes", f"{each:,.0f}"),
    ]
    words = (
        f"{options.schedules:,} schedules of every minute, {options.workers:,} waiting workers on raw"
        " connections. A turn is over when the last FinishJob is answered; lateness is from the tick until a"
        " worker has the job, so with one run after another per worker it grows up to the length of the turn."
    )
    check = verdict("server CPU between ticks", max(idle), IDLE_CPU_MAX, unit=" %", at_most=True)
    ratio = statistics.median(rate.per_s for rate in turns) / plain.per_s
    closing = f"Ticks a second are {ratio * 100:.0f} % of the plain rate."
    return "\n\n".join([words, table(head, rows), table(("figure", "here"), others), f"{check}\n\n{closing}"])


def at(rate: Rate, per_cent: int) -> float:
    """Return a percentile of the lateness in seconds."""
    return rate.late_s[len(rate.late_s) * per_cent // 100]


def line(name: str, rate: Rate, plain: Rate) -> tuple[str, ...]:
    """Return a line of the table."""
    return (
        name,
        f"{rate.seconds:.2f}",
        f"{rate.per_s:,.0f}",
        f"**{rate.per_s / plain.per_s:.2f}**",
        f"{rate.cpu_s / rate.count * 1e6:.0f}",
        f"{rate.load_cpu * 100:.0f} %",
    )


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=2, help="turns of the minute that are measured")
    parser.add_argument("--quick", action="store_true", help="a look: 1,000 schedules, one turn")
    options = parser.parse_args()
    if options.quick:
        options.schedules, options.turns = 1_000, 1
    directory = machine.real_directory(options.directory)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = machine.moment()
    write_machine(machine.describe(directory))
    uvloop.install()
    text = f"{before}.\n\n{asyncio.run(measure(options, directory))}"
    print(f"\n{text}")
    write_section("Schedules", text)


if __name__ == "__main__":
    main()
