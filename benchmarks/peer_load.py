"""The load on one server among peers: every phase of one row, in a process of its own.

``peers.py`` starts it and reads the one line of JSON it prints. All servers get the same jobs from the same
scripts; what differs is a ``Wire`` (or, for pgqueuer, its own library). It must not import anything of our
server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from array import array
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import NamedTuple, Protocol, cast

import uvloop
from machine import cpu_s, family
from peer_wire import WIRES, Answer, Wire

Step = bytes | float | None
"""What a script does next: send a request (an empty one: only await an answer), pause, or wait for room."""
Script = Generator[Step, Answer, None]

AHEAD_MAX = 200
"""Jobs that producers may be ahead of consumers, so that no backlog grows while a rate is measured."""
PACE_S = 0.01
"""Time between two jobs where the time to a waiting consumer is measured: 100 a second."""
FEW = 4
"""Connections that fill the queue, and that empty it."""
PAIRS = (1, 4, 16)
"""Producers and as many consumers at once."""
PHASE_S_MAX = 60.0
"""Time a phase may take to begin or to end."""
SETTLE_S = 0.05
"""Time for the last answers before connections are closed."""
SENT = re.compile(rb'"sent":([0-9.]+)')


class Figures(NamedTuple):
    """What one phase shows."""

    rate: float
    """Jobs a second."""
    cpu_us: float
    """Processor time of the server, with its children, for each job."""
    load_cpu: float
    """How much of one core the load used: near 1 it is the load that is measured."""


class Stats:
    """What all parties of a run have done, and what they are to do."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.created = self.stored = self.taken = self.done = self.failed = self.producing = 0
        self.ahead_max, self.pace_s, self.stopping = AHEAD_MAX, 0.0, False
        self.refusal = ""
        self.took = array("d")
        """Seconds from the creator to the consumer, of each job of a paced phase."""
        self.parked: list[Callable[[], None]] = []

    def turns(self) -> Iterator[float | None]:
        """Tell a producer what to do next: store a job (0), pause some seconds, or wait for room (None)."""
        due = time.perf_counter()
        while not self.stopping:
            if self.created - self.taken >= self.ahead_max:
                yield None
                continue
            if self.pace_s:
                due += self.pace_s
                yield max(due - time.perf_counter(), 1e-6)
            self.created += 1
            yield 0.0

    def payload(self) -> bytes:
        """Return the data of the job that is created now, which no other job has."""
        return b'{"id":%d,"sent":%.7f}' % (self.created, time.perf_counter())

    def take(self, body: bytes) -> None:
        """Note that a consumer has a job."""
        self.taken += 1
        if self.pace_s:
            sent = SENT.search(body)
            assert sent is not None, body
            self.took.append(time.perf_counter() - float(sent[1]))
        if self.parked:
            self.parked.pop()()

    def refuse(self, words: bytes) -> None:
        """Note that a request was refused."""
        self.failed += 1
        self.refusal = self.refusal or words.decode(errors="replace")


def producer(wire: Wire, stats: Stats) -> Script:
    """Create jobs."""
    for pause in stats.turns():
        if pause is None or pause:
            yield pause
        elif (yield wire.create(stats.payload())).ok:
            stats.stored += 1
        else:
            stats.created -= 1
    stats.producing -= 1


def consumer(wire: Wire, stats: Stats, number: int, *, together: bool) -> Script:
    """Wait for jobs and finish each; ``together`` asks for the next one with the finish."""
    take = wire.take(number)
    answer = yield take
    while (job := answer.job) is not None:
        taken = answer.taken
        for _ in range(taken):
            stats.take(answer.body)
        if together:
            answer = yield wire.finish_and_take(number, job)
            stats.done += taken * answer.ok
            if wire.answers == 2:
                answer = yield b""
        else:
            answer = yield wire.finish(number, job)
            stats.done += answer.ok
            answer = yield take


class Client(asyncio.Protocol):
    """One connection that follows a script."""

    def __init__(self, script: Script, wire: Wire, stats: Stats) -> None:
        """Follow ``script``."""
        self._script = script
        self._parse = wire.parse
        self._stats = stats
        self._buffer = b""
        self._closed = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; ``resume`` begins."""
        self._transport = cast(asyncio.Transport, transport)

    def resume(self, answer: Answer | None = None) -> None:
        """Do the next step of the script."""
        try:
            step = self._script.send(answer)  # type: ignore[arg-type]  # None begins it, or ends a pause
        except StopIteration:
            return
        if isinstance(step, bytes):
            if step:
                self._transport.write(step)
        elif step is None:
            self._stats.parked.append(self.resume)
        else:
            asyncio.get_running_loop().call_later(step, self.resume)

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        if self._buffer:
            data = self._buffer + data
        at = 0
        while at < len(data) and (found := self._parse(data, at)) is not None:
            at, answer = found
            if not answer.ok:
                self._stats.refuse(answer.body)
            self.resume(answer)
        self._buffer = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a connection that the server ended."""
        if not self._closed:
            self._stats.refuse(b"the server closed a connection")

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        self._transport.abort()


def _same(client: Client) -> Client:
    return client


class Parties(Protocol):
    """Producers and consumers of one phase."""

    async def start(self, producers: int, consumers: int) -> None:
        """Begin; consumers first."""

    async def stop(self) -> None:
        """End the consumers; the producers have ended."""


class Connections:
    """Parties that speak a ``Wire``."""

    def __init__(self, port: int, stats: Stats, wire: Wire, *, together: bool) -> None:
        """Speak to the server on ``port``."""
        self._port = port
        self._stats = stats
        self._wire = wire
        self._together = together
        self._clients: list[Client] = []

    async def start(self, producers: int, consumers: int) -> None:
        """Begin; consumers first."""
        wire, stats = self._wire, self._stats
        scripts = [consumer(wire, stats, number, together=self._together) for number in range(consumers)]
        scripts += [producer(wire, stats) for _ in range(producers)]
        for script in scripts:
            client = Client(script, wire, stats)
            await asyncio.get_running_loop().create_connection(
                partial(_same, client), "127.0.0.1", self._port
            )
            self._clients.append(client)
        for client in self._clients:
            client.resume()

    async def stop(self) -> None:
        """Close all connections."""
        await asyncio.sleep(SETTLE_S)
        for client in self._clients:
            client.close()
        await asyncio.sleep(0)


class Load:
    """The phases of one row, one after another."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load the server that ``options`` names."""
        self._options = options
        self.stats = Stats()

    def _parties(self) -> Parties:
        options = self._options
        if options.peer == "pgqueuer":
            import peer_pgqueuer  # its libraries need not be installed for the other peers

            return peer_pgqueuer.Parties(options.port, self.stats)
        return Connections(options.port, self.stats, WIRES[options.peer], together=options.together)

    async def _until(self, what: str, reached: Callable[[], bool]) -> None:
        end = time.perf_counter() + PHASE_S_MAX
        while not reached():
            if time.perf_counter() > end or self.stats.failed:
                raise SystemExit(f"{self._options.peer}: {what}: {vars(self.stats)}")
            await asyncio.sleep(0.002)

    async def _window(self, count: Callable[[], int], over: Callable[[], bool]) -> Figures:
        """Measure from now until it is over."""
        pids = family(self._options.pid)
        server, load, begun, jobs = cpu_s(pids), time.process_time(), time.perf_counter(), count()
        until = begun + self._options.seconds
        await self._until("the phase did not end", lambda: over() or time.perf_counter() >= until)
        jobs, seconds, load = count() - jobs, time.perf_counter() - begun, time.process_time() - load
        return Figures(jobs / seconds, (cpu_s(pids) - server) / max(jobs, 1) * 1e6, load / seconds)

    async def phase(self, producers: int, consumers: int) -> Figures:
        """Let them work for a while, or until there is nothing left; leave an empty queue if any consume."""
        stats, parties = self.stats, self._parties()
        stats.stopping, stats.producing = False, producers
        stats.ahead_max = AHEAD_MAX if consumers else 1 << 62
        count: Callable[[], int] = (lambda: stats.done) if consumers else (lambda: stats.stored)
        first = count() + (0 if producers else (stats.created - stats.taken) // 10)
        await parties.start(producers, consumers)
        await self._until("the phase did not begin", lambda: count() > first)
        if producers:
            await asyncio.sleep(self._options.warm)
        del stats.took[:]
        if producers:
            figures = await self._window(count, lambda: False)
        else:
            figures = await self._window(count, lambda: stats.taken == stats.created)
        stats.stopping = True
        for resume in list(stats.parked):
            resume()
        stats.parked.clear()
        await self._until("the producers did not end", lambda: stats.producing == 0)
        if consumers:
            await self._until("jobs were left", lambda: stats.taken == stats.created)
        await parties.stop()
        return figures

    async def run(self) -> dict[str, object]:
        """Do all phases; return what each showed."""
        phases = {"enqueue": await self.phase(FEW, 0), "drain": await self.phase(0, FEW)}
        for count in PAIRS:
            phases[f"{count}x{count}"] = await self.phase(count, count)
        self.stats.pace_s = PACE_S
        await self.phase(1, 1)
        took = sorted(self.stats.took)
        return {
            "phases": phases,
            "p50_ms": took[len(took) // 2] * 1000,
            "failed": self.stats.failed,
            "refusal": self.stats.refusal,
            "jobs": self.stats.done,
        }


def main() -> None:
    """Read the options, load the server, print the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("peer", choices=(*WIRES, "pgqueuer"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the server, whose processor time is read")
    parser.add_argument("--together", action="store_true", help="finish and take in one write")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warm", type=float, default=0.2)
    uvloop.install()
    print(json.dumps(asyncio.run(Load(parser.parse_args()).run())))


if __name__ == "__main__":
    main()
