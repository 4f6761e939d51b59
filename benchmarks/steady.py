"""What grows with the queue, and whether creates stay quick while other things go on.

Start, memory and the median of a create beside 1,000 and 1,000,000 queued jobs; then creates at half of the
rate that the server reaches, sent when they are due whether it has answered or not, while it copies its log,
cleans up, is backed up, and somebody looks at pages. A time is from when a create was due until its answer.
Beside them stands what the disk alone does when as many pages are written and synced at the same pace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

import aiohttp
import machine
import uvloop
from load import DATA, name_of, raw
from pages import fill
from results import table, verdict, write_machine, write_section
from served import Served

from bedrockjobs.base.clock import timestamp
from bedrockjobs.base.settings import Settings

SIZES = (1_000, 1_000_000)
CONNECTIONS = 4
"""Connections of the creates; each may have several under way."""
START_BAR_S, RSS_BAR_MIB, SPREAD_BAR = 2.0, 300.0, 3.0
"""Bars: the start and the memory with a million jobs, and the p99 of creates in their p50."""
OLD = 500_000
"""Idempotency keys that become too old before each cleaning."""
LOOKS = ("ui/", "ui/jobs", "ui/jobs?name=mail/9*", "ui/failures")
"""Pages that somebody looks at without a pause."""
LOG_BYTES = 16 << 20
"""Length of the file that the disk alone is tried with, written over and over, as the server's log is."""
PAGE_BYTES, PAGES_OF_COMMIT, PAGES_OF_CREATE = 4096, 2, 2
"""What a commit writes to the log: some pages of its own, and some for each create."""
HOUR = b"3700"
"""Seconds that bring the hourly cleaning."""


class Creates(asyncio.Protocol):
    """One connection on which creates are sent when they are due."""

    def __init__(self, number: int, connection: socket.socket, took: list[float]) -> None:
        """Note in ``took`` how many milliseconds each create took from when it was due."""
        self._request = raw("CreateJob", name=name_of(number), data=DATA)
        self._connection = connection.dup()
        self._took = took
        self._due: deque[float] = deque()
        self._buffer = b""

    def send(self, due: float) -> None:
        """Send a create that was due at a moment; in any thread."""
        self._due.append(due)
        self._connection.send(self._request)

    def close(self) -> None:
        """Send no more."""
        self._connection.close()

    def data_received(self, data: bytes) -> None:
        """Take answers; a refusal ends the benchmark."""
        *heads, self._buffer = (self._buffer + data).split(b"}")
        now = time.perf_counter()
        for head in heads:
            if not head.startswith(b"200"):
                raise RuntimeError(f"refused: {head!r}")
            self._took.append((now - self._due.popleft()) * 1000)

    @property
    def under_way(self) -> int:
        """Return how many creates are not yet answered."""
        return len(self._due)


async def paced(port: int, rate: float, seconds: float) -> list[float]:
    """Send creates at a rate for some seconds; return the milliseconds of each."""
    took: list[float] = []
    loop = asyncio.get_running_loop()
    creates = []
    for number in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = Creates(number, connection, took)
        await loop.create_connection(partial(_same, one), sock=connection)
        creates.append(one)
    await asyncio.to_thread(send_all, creates, rate, seconds)
    while any(one.under_way for one in creates):
        await asyncio.sleep(0.01)
    for one in creates:
        one.close()
    return took


def _same(creates: Creates) -> Creates:
    return creates


def send_all(creates: list[Creates], rate: float, seconds: float) -> None:
    """Send creates when they are due, for some seconds.

    A thread does it, which can sleep for less than a millisecond. An event loop cannot: it would spin until
    the next one is due, and take a whole processor from the server.
    """
    begun, sent = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        while sent < passed * rate:
            creates[sent % len(creates)].send(begun + sent / rate)
            sent += 1
        time.sleep(max(0.0, begun + sent / rate - time.perf_counter()))


def top_rate(port: int) -> float:
    """Return the creates a second that as many connections reach, each waiting for its answers."""
    command = [sys.executable, str(Path(__file__).with_name("load.py")), "enqueue", "--port", str(port)]
    command += ["--connections", str(CONNECTIONS), "--seconds", "1"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["done_per_s"])


# --- what goes on meanwhile ----------------------------------------------------------------------------


async def nothing(_server: Served) -> None:
    """Do nothing: only the log is copied now and then."""


async def looks(server: Served) -> None:
    """Look at one page after the other, in a process of its own, which keeps no create from being sent."""
    await in_process(__file__, "--look-at", f"http://127.0.0.1:{server.port}/")


async def look_at(server: str) -> None:
    """Look at pages of the server at an address until this process is ended."""
    async with aiohttp.ClientSession() as session:
        while True:
            for path in LOOKS:
                async with session.get(server + path) as answer:
                    await answer.read()
                    assert answer.status == 200, f"{path}: {answer.status} {await answer.text()}"


async def backup(server: Served) -> None:
    """Back up again and again."""
    while True:
        command = ("backup", "--database", str(server.database), "--force", str(server.database) + ".copy")
        await in_process("-m", "bedrockjobs", *command)


async def in_process(*words: str) -> None:
    """Run Python until it ends well; end it where this is cancelled."""
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=subprocess.DEVNULL)
    try:
        assert await process.wait() == 0, f"{words} failed"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def cleaning(server: Served) -> None:
    """Let an hour pass."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(raw("AdvanceClock", seconds=HOUR))


def make_old(path: Path, cleanings: int) -> None:
    """Add what each cleaning is to forget."""
    kept = timedelta(seconds=Settings.model_fields["keep_keys_s"].default)
    begun = datetime.now(UTC) - kept + timedelta(seconds=int(HOUR) / 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN")
        for cleaning in range(cleanings):
            made = begun + timedelta(seconds=int(HOUR) * cleaning)
            rows = ((f"key {cleaning} {number}", number, timestamp(made)) for number in range(OLD))
            database.executemany("INSERT INTO keys (key, jobID, created) VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")


def disk_alone(directory: Path, rate: float, seconds: float) -> list[float]:
    """Write and sync what creates at this rate would; return the sorted milliseconds of each."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as log:
        handle, page = log.fileno(), b"x" * PAGE_BYTES
        os.pwrite(handle, bytes(LOG_BYTES), 0)
        os.fsync(handle)
        place, begun = 0, time.perf_counter()
        while len(took) < rate * seconds:
            due = int((time.perf_counter() - begun) * rate) - len(took)
            if due < 1:
                time.sleep(0.0002)
                continue
            for _ in range(PAGES_OF_COMMIT + PAGES_OF_CREATE * due):
                os.pwrite(handle, page, place)
                place = (place + PAGE_BYTES) % LOG_BYTES
            os.fdatasync(handle)
            now = time.perf_counter() - begun
            took += [(now - number / rate) * 1000 for number in range(len(took), len(took) + due)]
    return sorted(took)


PHASES: tuple[tuple[str, Callable[[Served], Awaitable[None]]], ...] = (
    ("checkpoints alone", nothing),
    ("looks at pages", looks),
    ("backups", backup),
    ("cleaning", cleaning),
)


async def phase(
    server: Served, act: Callable[[Served], Awaitable[None]], rate: float, seconds: float
) -> list[float]:
    """Return the sorted times of creates while something goes on."""
    beside = asyncio.ensure_future(act(server))
    try:
        found = await paced(server.port, rate, seconds)
    finally:
        if not beside.cancel():
            beside.result()
        with suppress(asyncio.CancelledError):
            await beside
    return sorted(found)


def spread_of(took: list[float]) -> float:
    """Return the p99 of sorted times in their p50."""
    return took[len(took) * 99 // 100] / took[len(took) // 2]


def row(label: str, rate: float, rounds: list[list[float]]) -> tuple[str, ...]:
    """Print and return a row of the table for the sorted times of some rounds."""
    p50 = median(took[len(took) // 2] for took in rounds)
    p99 = median(took[len(took) * 99 // 100] for took in rounds)
    spreads = sorted(map(spread_of, rounds))
    longest = max(took[-1] for took in rounds)
    spread = f"**{median(spreads):.1f}** ({spreads[0]:.1f} to {spreads[-1]:.1f})"
    cells = (label, f"{rate:,.0f}", f"{p50:.2f}", f"{p99:.2f}", spread, f"{longest:.0f}")
    print("  ", *cells, flush=True)
    return cells


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=4.0, help="time of one phase")
    parser.add_argument("--rounds", type=int, default=5, help="times that each phase is measured, in turn")
    parser.add_argument("--quick", action="store_true", help="a look: 10,000 jobs, short; nothing is written")
    parser.add_argument("--look-at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look_at:
        asyncio.run(look_at(options.look_at))
    directory, before = machine.real_directory(options.directory), machine.moment()
    uvloop.install()
    sizes = (1_000, 10_000) if options.quick else SIZES
    seconds, rounds = (1.0, 1) if options.quick else (options.seconds, options.rounds)
    growth, steady = [], list[tuple[str, ...]]()
    spread = start_s = rss_mib = 0.0
    for size in sizes:

        def prepare(path: Path, size: int = size) -> None:
            fill(path, size)
            if size == sizes[-1]:
                make_old(path, rounds)

        with Served(directory, "--test-clock", prepare=prepare) as server:
            start_s, rss_mib = server.started_s, server.rss_bytes() / (1 << 20)
            rate = top_rate(server.port)
            growth.append((f"{size:,}", f"{start_s:.2f}", f"{rss_mib:.0f}", f"{rate:,.0f}"))
            print("  ", *growth[-1], flush=True)
            if size != sizes[-1]:
                continue
            found: dict[str, list[list[float]]] = {}
            for _ in range(rounds):
                found.setdefault("the disk alone", []).append(disk_alone(directory, rate / 2, seconds))
                for label, act in PHASES:
                    found.setdefault(label, []).append(asyncio.run(phase(server, act, rate / 2, seconds)))
            steady = [row(label, rate / 2, times) for label, times in found.items()]
            spread = max(median(map(spread_of, found[label])) for label, _ in PHASES)
    text = f"{before}; medians of {rounds} rounds of {seconds:g} s, in turn.\n\n### Growth\n\n"
    text += table(("queued jobs", "start s", "RSS after it, MiB", "creates/s, 4 connections"), growth)
    text += f"\n\n### Creates at half of that rate, {sizes[-1]:,} jobs\n\n"
    text += table(("meanwhile", "creates/s", "p50 ms", "p99 ms", "p99 / p50", "longest ms"), steady)
    verdicts = (
        verdict("start", start_s, START_BAR_S, unit=" s", at_most=True),
        verdict("RSS", rss_mib, RSS_BAR_MIB, unit=" MiB", at_most=True),
        verdict("greatest p99 / p50", spread, SPREAD_BAR, at_most=True),
    )
    text += "\n\n" + "\n".join(verdicts)
    print(f"\n{text}\n")
    if not options.quick:
        write_machine(machine.describe(directory))
        write_section("Steady", text)


if __name__ == "__main__":
    main()
