"""How long others wait while names are searched: after a pause, a resume, and new patterns, among many names.

One process is the server, this one the clients: some pause, resume or ask for patterns that nobody asked for
before, while others create a job, query one, send a heartbeat or ping every few milliseconds. What counts is
how long these wait. With ``--waiters`` it measures instead what a create costs more while so many GetJobs
wait, each for a pattern of its own: at a server with them and at one with as many idle connections, in turn.
With ``--arrivals`` it measures how long a new connection with a token waits for the reply to its Ping while
another process opens so many connections a second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import machine
import psycopg
from peer_servers import PostgresServer
from results import table, verdict
from served import Served
from take import Backlog, build

BAR_MS = 50.0
"""The longest wait of anybody else."""
AT_ONCE_MS = 10.0
"""That of a command that does not need the writer."""
EVERY_S = 0.004
"""Pause of a client between two requests."""
SEARCHERS = 8
"""Clients that ask for new patterns at once."""
PRIORITY = 10
"""Real-time priority of server and clients with ``--real-time``: nothing else then delays them, but Linux
takes 50 ms of each second from what uses all of it."""


class Client:
    """One raw connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use an open connection."""
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Client:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, verb: str, **parameters: object) -> int:
        """Send a request; return the code of its reply."""
        lines = [verb, *(f"{name}: {value}" for name, value in parameters.items()), "", ""]
        self._writer.write("\r\n".join(lines).encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("Content-Length:"))
        await self._reader.readexactly(length)
        return int(head[:3])

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


Probe = Callable[[Client, int], Awaitable[int]]

PROBES: dict[str, Probe] = {
    "CreateJob": lambda client, number: client.ask("CreateJob", name=f"new/{number % 50}"),
    "QueryJob": lambda client, number: client.ask("QueryJob", jobID=1 + number * 7_919 % 1_000),
    "Heartbeat": lambda client, number: client.ask("Heartbeat", worker=f"probe-{number % 2}", runIDs="[]"),
    "Ping": lambda client, number: client.ask("Ping"),
}
"""What others do meanwhile."""


class Scene:
    """One kind of work that searches names, and what it does to others."""

    def __init__(self, port: int, names: int) -> None:
        """Talk to the server at ``port``, whose queue has so many names."""
        self._port, self._names = port, names
        self._numbers = itertools.count(1)
        self._over = False

    async def waits(self, work: Work | None, clients: int, seconds: float) -> dict[str, list[float]]:
        """Return the milliseconds that each request of a probe took while clients did some work."""
        self._over = False
        took: dict[str, list[float]] = {kind: [] for kind in PROBES}
        working = [] if work is None else [asyncio.ensure_future(self._worked(work)) for _ in range(clients)]
        probing = [asyncio.ensure_future(self._probe(kind, took[kind])) for kind in PROBES]
        await asyncio.sleep(seconds)
        self._over = True
        await asyncio.gather(*probing)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        return took

    async def _probe(self, kind: str, took: list[float]) -> None:
        client = await Client.open(self._port)
        for number in itertools.count():
            if self._over:
                break
            begun = time.perf_counter()
            await PROBES[kind](client, number)
            took.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(EVERY_S)
        await client.close()

    async def _worked(self, work: Work) -> None:
        client = await Client.open(self._port)
        try:
            await work(self, client)
        finally:
            await client.close()

    async def pauses(self, client: Client) -> None:
        """Pause and resume all names, and take jobs of a pattern after each."""
        while True:
            for verb in ("PauseJobs", "ResumeJobs"):
                await client.ask(verb, name="queue/*")
                for _ in range(3):
                    await client.ask("GetJob", name="q*")
                    await client.ask("GetJob", name="queue/*")
                    await asyncio.sleep(0.02)

    async def prefixes(self, client: Client) -> None:
        """Ask for prefixes that were never asked for."""
        for number in self._numbers:
            await client.ask("GetJob", name=f"queue/*{number % 10}{'?' * (number % 7)}*x{number}")

    async def lists(self, client: Client) -> None:
        """Ask for ever new lists of three patterns."""
        for number in self._numbers:
            await client.ask("GetJob", name=f"queue/{number % 100:02d}*,q*a{number},*b{number}")


Work = Callable[[Scene, Client], Awaitable[None]]

SCENES: dict[str, Work | None] = {
    "nothing else": None,
    "pauses and resumes": Scene.pauses,
    "new patterns": Scene.prefixes,
    "new lists of three": Scene.lists,
}


WAITER_US = 10.0
"""What a create may cost more beside thousands of waiting patterns than beside as many idle connections."""
IDLE_S = 0.5
"""Time in which a server that does nothing takes a twentieth of it at most."""
CREATES = 200
"""Creates of one measurement: few, so that both of a pair meet the same machine."""
WAITED_FOR = {"names": "jobs/some/host-{}", "patterns": "jobs/*/host-{}"}
"""What the waiters ask for, each with a number of its own."""


async def create_us(server: Served, client: Client) -> float:
    """Return the server's processor time for a create that no waiter gets, in microseconds."""
    before = server.cpu_s()
    for number in range(CREATES):
        await client.ask("CreateJob", name=f"jobs/{number % 50}/other")
    return (server.cpu_s() - before) / CREATES * 1e6


async def create_pairs(
    server: Served, other: Served, waiters: int, form: str, rounds: int
) -> list[tuple[float, float]]:
    """Return what a create costs beside waiters, and at another server beside as many connections, in turn.

    One of these waits too.
    """
    streams = []
    for port, waiting in ((server.port, waiters), (other.port, 1)):
        for number in range(waiters):
            streams.append(await asyncio.open_connection("127.0.0.1", port))
            ask = f"GetJob\r\nname: {form.format(number)}\r\nConnection: wait\r\ntimeout: 600000\r\n\r\n"
            if number < waiting:
                streams[-1][1].write(ask.encode())
        await until_waiting(server if port == server.port else other, waiting)
    await until_idle(server)  # until it has searched for jobs of all patterns
    clients = await Client.open(server.port), await Client.open(other.port)
    pairs = []
    for number in range(rounds):
        took = [0.0, 0.0]
        for at in (0, 1) if number % 2 else (1, 0):
            took[at] = await create_us((server, other)[at], clients[at])
        pairs.append((took[0], took[1]))
    for client in clients:
        await client.close()
    for _, writer in streams:
        writer.close()
    return pairs


async def until_idle(server: Served) -> None:
    """Return when the server does next to nothing."""
    before = -1.0
    while (now := server.cpu_s()) - before > IDLE_S / 20:
        before = now
        await asyncio.sleep(IDLE_S)


async def until_waiting(server: Served, count: int) -> None:
    """Return when so many GetJobs wait."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    waiting = -1
    while waiting != count:
        writer.write(b"Status\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("Content-Length:"))
        waiting = json.loads(await reader.readexactly(length))["waiting"]
        await asyncio.sleep(0.1)
    writer.close()


def measure_waiters(directory: Path, waiters: int, rounds: int) -> None:
    """Print what a create costs beside many waiters for names, for patterns, and beside idle connections."""
    rows, more = [], 0.0
    for kind, form in WAITED_FOR.items():
        with (
            Served(directory, "--durability", "relaxed") as server,
            Served(directory, "--durability", "relaxed") as other,
        ):
            pairs = asyncio.run(create_pairs(server, other, waiters, form, rounds))
        more = statistics.median(one - two for one, two in pairs)
        ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
        rows.append((f"{waiters:,} {kind}", f"{ours:.1f}", f"{theirs:.1f}", f"{more:+.1f}"))
    head = ("waited for", "server CPU us a create", "beside idle connections", "difference of a pair")
    print(table(head, rows))
    print(verdict("a create costs more beside many patterns", more, WAITER_US, unit=" us", at_most=True))


ARRIVALS: dict[str, tuple[int, str]] = {
    "nothing else": (0, ""),
    "no token, one address": (1, ""),
    "no token, 10 addresses": (10, ""),
    "a work token, one address": (1, "work"),
    "a work token, 10 addresses": (10, "work"),
}
"""Who opens connections without pause: from how many addresses, and the role of the token."""
NO_WAIT = struct.pack("ii", 1, 0)
"""SO_LINGER that resets a connection when it is closed, so that its port is free at once."""
UNDER_WAY_MAX = 2_000
"""Connections that the other process has open at once."""


async def exchange(port: int, source: str, data: bytes) -> bytes:
    """Return what is answered on a new connection from an address; empty if it is reset."""
    loop = asyncio.get_running_loop()
    with socket.socket() as one:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_WAIT)
        one.bind((source, 0))
        try:
            await loop.sock_connect(one, ("127.0.0.1", port))
            await loop.sock_sendall(one, data)
            return await loop.sock_recv(one, 10_000)
        except OSError:
            return b""


async def arrive(port: int, rate: float, addresses: int, token: str) -> None:
    """Open so many connections a second until the process is ended; tell each second how many were opened."""
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    data = f"GetJob\r\nname: none\r\n{authorization}\r\n".encode()
    under_way: set[asyncio.Future[bytes]] = set()
    begun, told = time.perf_counter(), 0.0
    for number in itertools.count():
        late = begun + number / rate - time.perf_counter()
        if late > 0:
            await asyncio.sleep(late)
        while len(under_way) >= UNDER_WAY_MAX:
            await asyncio.sleep(0.001)
        one = asyncio.ensure_future(exchange(port, f"127.0.1.{1 + number % addresses}", data))
        under_way.add(one)
        one.add_done_callback(under_way.discard)
        passed = time.perf_counter() - begun
        if passed - told >= 1:
            told = passed
            print(f"{number / passed:.0f}", flush=True)


async def new_connections(port: int, token: str, seconds: float) -> list[float]:
    """Return the milliseconds from connecting to the reply, one connection after the other."""
    data, took = f"Ping\r\nAuthorization: Bearer {token}\r\n\r\n".encode(), []
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        reply = await exchange(port, f"127.0.2.{1 + len(took) % 20}", data)
        assert reply.startswith(b"200"), reply
        took.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(EVERY_S)
    return took


async def token_for(port: int, role: str, by: str = "") -> str:
    """Make a token and return it."""
    authorization = f"Authorization: Bearer {by}\r\n" if by else ""
    text = f"CreateToken\r\nname: {role}\r\nroles: {role}\r\n{authorization}\r\n"
    reply = await exchange(port, "127.0.0.1", text.encode())
    token: str = json.loads(reply.partition(b"\r\n\r\n")[2])["token"]
    return token


def measure_arrivals(directory: Path, rate: float, seconds: float) -> None:
    """Print how long new connections wait while others come without pause."""
    rows = []
    with Served(directory, "--durability", "relaxed") as server:
        root = asyncio.run(token_for(server.port, "admin"))
        tokens = {"": "", "work": asyncio.run(token_for(server.port, "work", root))}
        for label, (addresses, role) in ARRIVALS.items():
            arriving = None
            if addresses:
                given = [str(server.port), str(rate), str(addresses), tokens[role]]
                command = [sys.executable, __file__, "--arrive", *given]
                arriving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                time.sleep(3)  # bursts are over by then
            before, begun = server.cpu_s(), time.perf_counter()
            took = asyncio.run(new_connections(server.port, root, seconds))
            busy = (server.cpu_s() - before) / (time.perf_counter() - begun)
            opened = "0"
            if arriving is not None:
                arriving.terminate()
                opened = arriving.communicate()[0].split()[-1]
            rows.append((label, opened, f"{busy:.0%}", str(len(took)), spelled(took)))
            print(f"  {' | '.join(rows[-1])}", flush=True)
    head = ("meanwhile", "connections a second", "server's CPU", "measured", "p50 / p99 / longest ms")
    print(table(head, rows))


def spelled(took: list[float]) -> str:
    """Return p50, p99 and the longest of some milliseconds."""
    took = sorted(took)
    return " / ".join(f"{took[int(len(took) * part)]:.1f}" for part in (0.5, 0.99)) + f" / {took[-1]:.1f}"


def in_real_time(pid: int) -> bool:
    """Give a process a real-time priority; return False if that is not permitted."""
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def fill(url: str, names: int) -> None:
    """Put as many jobs into a PostgreSQL whose tables a server has made."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO bedrockjobs.jobs (created, jobID, state, name, nextRun, data)"
            " SELECT '2020-01-01 00:00:00', n, 'QUEUED', 'queue/' || to_char(n, 'FM0000009'), '2020-01-01 '"
            " || to_char(interval '1 ms' * (n * 7919317 %% 86400000), 'HH24:MI:SS.MS'), '{\"value\":1}'"
            " FROM generate_series(1, %s::bigint) AS n",
            (names,),
        )
        connection.execute("SELECT setval('bedrockjobs.jobIDs', %s)", (names,))
        connection.execute("VACUUM ANALYZE bedrockjobs.jobs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--names", type=int, default=1_000_000, help="jobs, each with a name of its own")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each scene")
    parser.add_argument("--postgresql", action="store_true", help="on PostgreSQL")
    parser.add_argument("--scenes", nargs="+", default=list(SCENES), choices=list(SCENES))
    parser.add_argument("--checkout", type=Path, help="the code of the server, if not this one")
    parser.add_argument("--real-time", action="store_true", help="on a machine that does other things too")
    parser.add_argument("--waiters", type=int, default=0, help="GetJobs that wait, such as 5000")
    parser.add_argument("--rounds", type=int, default=100, help="pairs with many waiters and with one")
    parser.add_argument("--arrivals", type=float, default=0, help="new connections a second, such as 2850")
    parser.add_argument("--arrive", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arrive:
        port, rate, addresses, token = options.arrive
        asyncio.run(arrive(int(port), float(rate), int(addresses), token))
        return
    directory = machine.real_directory(options.directory)
    if options.waiters:
        measure_waiters(directory, options.waiters, options.rounds)
        return
    if options.arrivals:
        measure_arrivals(directory, options.arrivals, options.seconds)
        return
    rows, longest, at_once = [], 0.0, 0.0
    with ExitStack() as stack:
        url = ""
        if options.postgresql:
            url = stack.enter_context(PostgresServer(directory)).url
            with Served(directory, url=url):
                pass
            fill(url, options.names)

        def prepare(path: Path) -> None:
            if not url:
                build(path, Backlog("", options.names), options.names, "2020-01-01")

        server = stack.enter_context(Served(directory, checkout=options.checkout, url=url, prepare=prepare))
        real_time = options.real_time and in_real_time(server.pid) and in_real_time(0)
        scene = Scene(server.port, options.names)
        for label in options.scenes:
            clients = SEARCHERS if label.startswith("new") else 1
            before, begun = server.cpu_s(), time.perf_counter()
            took = asyncio.run(scene.waits(SCENES[label], clients, options.seconds))
            busy = (server.cpu_s() - before) / (time.perf_counter() - begun)
            rows.append((label, f"{busy:.0%}", *(spelled(each) for each in took.values())))
            print(f"  {' | '.join(rows[-1])}", flush=True)
            longest = max(longest, *took["CreateJob"])
            at_once = max(at_once, *(max(took[kind]) for kind in PROBES if kind != "CreateJob"))
    print("real-time priority" if real_time else "no real-time priority")
    head = ("meanwhile", "server's CPU", *PROBES)
    print(table(head, rows))
    print(verdict("the longest CreateJob", longest, BAR_MS, unit=" ms", at_most=True))
    print(verdict("the longest of the others", at_once, AT_ONCE_MS, unit=" ms", at_most=True))


if __name__ == "__main__":
    main()
