"""Servers whose PostgreSQL no longer answers can still be stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from bedrockjobs.base.config import STOP_MORE_S
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.cluster import LEAVE_S_MAX
from bedrockjobs.engine.dispatcher import UNIT_DRAINED_S
from tests.postgresql.cluster import Node, url_of
from tests.postgresql.proxy import Direction, Proxy
from tests.reliability.servers import Launcher
from tests.reliability.shared import SCHEMA
from tests.reliability.wire import Cut, Wire

pytestmark = pytest.mark.reliability

STOP_S = 8.0
"""A server that is told to stop has ended by then: the sum of what it waits for, and some time of a busy
machine. One that does not end is ended by force later."""


class Case(NamedTuple):
    """How a database becomes unreachable, and how long before the server is stopped."""

    swallowed: tuple[Direction, ...]
    """Nothing of it is told to anybody; none: connections break, and who connects is refused."""
    away_s: float
    fault: str = ""


CASES = [
    Case(("up", "down"), 0.0),
    Case(("up", "down"), 2.0),
    Case(("down",), 0.0),  # what became of the last commit is not known
    Case((), 0.0),
    Case((), 2.0),
]

CONTROL = Case(("down",), 0.0, fault="endless patience")
"""It waits for the answer."""


async def creating(port: int) -> None:
    """Create jobs one after another until a reply is missing."""
    wire = await Wire.connect(port)
    with suppress(Cut):
        while True:
            await wire.ask("CreateJob", name="a")


async def waiting(port: int) -> None:
    """Wait for a job that is never created."""
    wire = await Wire.connect(port)
    with suppress(Cut):
        await wire.ask("GetJob", name="never", connection="wait")


async def test_servers_that_are_told_to_stop_end_though_their_database_is_away(tmp_path: Path) -> None:
    node, proxies, clients = Node(), [], []
    await asyncio.to_thread(node.start)
    ended: dict[Case, int] = {}
    try:
        async with Launcher(tmp_path / "log") as launcher:

            async def stopped(case: Case, pid: int) -> None:
                await asyncio.sleep(case.away_s)
                os.kill(pid, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        ended[case] = await launcher.ended(pid)

            pids = []
            for case in [*CASES, CONTROL]:
                proxies.append(proxy := Proxy(node.port))
                settings = {"database": url_of(proxy.port), "database_schema": SCHEMA}
                pid, port = await launcher.start(settings, fault=case.fault)
                pids.append(pid)
                clients += [asyncio.create_task(work(port)) for work in (creating, creating, waiting)]
            await asyncio.sleep(0.3)
            for case, proxy in zip([*CASES, CONTROL], proxies, strict=True):
                if case.swallowed:
                    proxy.swallow(*case.swallowed)
                else:
                    await asyncio.to_thread(proxy.shut)
            await asyncio.sleep(0.3)  # a unit is under way at each then, where its answer is swallowed
            await asyncio.gather(*map(stopped, [*CASES, CONTROL], pids))
        await asyncio.gather(*clients)
    finally:
        for proxy in proxies:
            await asyncio.to_thread(proxy.close)
        await asyncio.to_thread(node.stop)
    told = (tmp_path / "log").read_text()
    assert {case: ended.get(case) for case in CASES} == dict.fromkeys(CASES, 0), told
    assert CONTROL not in ended, told
    assert "the outcome of the last commands is unknown" in told
    assert LEAVE_S_MAX + UNIT_DRAINED_S < STOP_S < Settings().drain_s + STOP_MORE_S
