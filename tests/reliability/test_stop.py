"""A server shuts down in time, whatever it is doing, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from bedrockjobs.base.config import QUERY_PROCESSES, READS_DRAINED_S, STOP_MORE_S
from bedrockjobs.base.settings import Settings
from tests.pace import in_time
from tests.protocol.hostile_sql import LONG
from tests.reliability.servers import STARTED_S, TOP, Server
from tests.reliability.wire import Wire

pytestmark = pytest.mark.reliability

STOP_S = 10.0
"""A server has ended by then, whatever holds it up."""

STUCK = f"SELECT instr(hex(zeroblob({LONG})), hex(zeroblob(4000000)) || '1');"
GONE_S = 5.0
"""Time limit for the end of a Query, even if its server is gone: a second, on a busy machine."""

BUSY_S = 30.0
"""Time in which queries that were sent are under way."""


def children(pid: int) -> list[int]:
    """Return the pids of a server's processes."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    """Return the kernel's state of a process: R for running; X if it no longer exists."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def lives(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    return state(pid) not in "ZX"


async def compute(pids: list[int], count: int) -> None:
    """Wait until a number of processes are computing."""
    async with asyncio.timeout(BUSY_S):
        while [state(pid) for pid in pids].count("R") < count:
            await asyncio.sleep(0.01)


async def test_sigterm_ends_a_server_whose_queries_are_stuck(tmp_path: Path) -> None:
    async with Server(tmp_path / "jobs.db", "--query-s", "60") as server:
        port = await server.listening()
        wires = [await Wire.connect(port) for _ in range(8)]
        assert (await wires[0].ask("Query", query="SELECT 1;")).code == 200
        for wire in wires:
            wire.send("Query", {"query": STUCK})
        processes = children(server.pid)
        assert len(processes) == QUERY_PROCESSES
        await compute(processes, QUERY_PROCESSES)
        began = time.monotonic()
        server.send(signal.SIGTERM)
        status, log = await server.ended()
        took_s = time.monotonic() - began
        assert took_s >= READS_DRAINED_S, "they are given a little time"
        assert in_time(took_s, STOP_S)
        assert status == 0, log
        assert not any(map(lives, processes))


async def test_a_killed_server_leaves_no_query_behind(tmp_path: Path) -> None:
    async with Server(tmp_path / "jobs.db") as server:
        wire = await Wire.connect(await server.listening())
        assert (await wire.ask("Query", query="SELECT 1;")).code == 200
        processes = children(server.pid)
        assert len(processes) == QUERY_PROCESSES
        wire.send("Query", {"query": STUCK})
        await compute(processes, 1)
        os.kill(server.pid, signal.SIGKILL)
        await server.ended()
    began = time.monotonic()
    async with asyncio.timeout(STARTED_S):
        while any(map(lives, processes)):
            await asyncio.sleep(0.01)
    assert in_time(time.monotonic() - began, GONE_S)


HANGS = """
import asyncio, sys
from bedrockjobs import server
from bedrockjobs.base.settings import Settings

async def stop(self):
    await asyncio.Event().wait()

server.Server.stop = stop
sys.exit(server.run_server(Settings(port=0, drain_s=0.1, database=sys.argv[1])))
"""


def test_the_default_is_within_the_bound() -> None:
    assert Settings().drain_s + STOP_MORE_S < STOP_S


async def test_a_stop_that_hangs_is_cut_short_and_says_where(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HANGS,
        str(tmp_path / "jobs.db"),
        cwd=TOP,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"listens on" in await process.stdout.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), STARTED_S)
    took_s = time.monotonic() - began
    assert took_s >= STOP_MORE_S
    assert in_time(took_s, STOP_S)
    assert process.returncode == 1
    assert b"Timeout" in log
