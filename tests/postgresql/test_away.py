"""An unreachable database: which commands wait, which are refused, and that the loop continues."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import DATABASE_RETRY_S, DATABASE_RETRY_S_MAX
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.store.base import StoreConflict
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.pace import in_time
from tests.postgresql.cluster import CLUSTER, SCHEMA, url_of
from tests.postgresql.conftest import Server
from tests.postgresql.live import Live, until
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S

COMMAND_S = 1.0
"""Timeout of commands: far longer than the pauses of a busy machine."""


@pytest.fixture
def proxy() -> Any:
    """Return a proxy to the cluster."""
    CLUSTER.empty(SCHEMA)
    proxy = Proxy(CLUSTER.port)
    yield proxy
    proxy.close()


@pytest.fixture
async def live(proxy: Proxy) -> AsyncIterator[Live]:
    """Run a dispatcher behind the proxy, with a short timeout for commands."""
    engine = await asyncio.to_thread(PostgreSQLEngine, url_of(proxy.port), SystemClock(), name=SCHEMA)
    live = Live(engine, command_s=COMMAND_S)
    await live.dispatcher.settle()
    yield live
    await live.stop()


async def test_commands_wait_for_a_database_that_comes_back_at_once(proxy: Proxy, live: Live) -> None:
    taking = live.send(c.GetJob(name="a", connection="wait"))
    await until(lambda: live.dispatcher.waiting == 1 and not live.dispatcher.pending)
    proxy.shut()
    creating = live.send(c.CreateJob(name="a"))
    await until(lambda: live.dispatcher.health.problem.startswith("database away"))
    proxy.open()
    assert isinstance(await asyncio.wait_for(creating, DEADLINE_S), Answer)
    taken = await asyncio.wait_for(taking, DEADLINE_S)
    assert isinstance(taken, Answer)
    assert '"jobID":1,' in taken.body
    assert live.dispatcher.health.problem == ""
    assert CLUSTER.do(f"SELECT count(*) FROM {SCHEMA}.jobs") == [(1,)]


async def test_who_has_waited_long_enough_is_told_and_who_waits_for_a_job_stays(
    proxy: Proxy, live: Live
) -> None:
    taking = live.send(c.GetJob(name="a", connection="wait"))
    await until(lambda: live.dispatcher.waiting == 1 and not live.dispatcher.pending)
    proxy.shut()
    for _ in range(2):  # also once it has been away for longer
        sent = monotonic()
        refused = await live.ask(c.CreateJob(name="a"))
        assert isinstance(refused, Unavailable)
        assert refused.status_line == "503 Database away"
        assert refused.detail.endswith("try again")
        took = monotonic() - sent
        assert took > COMMAND_S / 2
        assert in_time(took, COMMAND_S + DATABASE_RETRY_S_MAX + 1)
    assert live.dispatcher.health.problem
    assert live.dispatcher.waiting == 1
    assert live.dispatcher.pending == 0
    proxy.open()
    await until(lambda: not live.dispatcher.health.problem)
    assert isinstance(await live.ask(c.CreateJob(name="a")), Answer)
    assert isinstance(await asyncio.wait_for(taking, DEADLINE_S), Answer)


async def test_the_loop_goes_on_while_a_connection_is_made_that_nobody_answers(
    proxy: Proxy, live: Live
) -> None:
    proxy.shut()
    proxy.swallow("up", "down")
    proxy.open()
    outcome = live.send(c.CreateJob(name="a"))
    longest, before = 0.0, monotonic()
    while not outcome.done():
        await asyncio.sleep(0)
        longest, before = max(longest, monotonic() - before), monotonic()
    assert isinstance(outcome.result(), Unavailable)
    assert in_time(longest, COMMAND_S - 2 * DATABASE_RETRY_S)
    proxy.cut()
    await until(lambda: not live.dispatcher.health.problem)
    assert isinstance(await live.ask(c.CreateJob(name="a")), Answer)


async def test_a_server_that_stops_waits_for_no_database(proxy: Proxy) -> None:
    engine = await asyncio.to_thread(PostgreSQLEngine, url_of(proxy.port), SystemClock(), name=SCHEMA)
    live = Live(engine, command_s=10 * DEADLINE_S)
    await live.dispatcher.settle()
    proxy.shut()
    outcome = live.send(c.CreateJob(name="a"))
    await until(lambda: bool(live.dispatcher.health.problem))
    await asyncio.wait_for(live.stop(), DEADLINE_S)
    assert isinstance(outcome.result(), Unavailable)


STOPPED = """
import sys
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.session import SessionRequirements
terms = SessionRequirements(unit_s=float(sys.argv[3]))
PostgreSQLEngine(sys.argv[1], name=sys.argv[2], terms=terms).begin([AccessPlan(jobs=(1,))])
print("open", flush=True)
sys.stdin.read()
"""
UNIT_S_MAX = 2.0
BUSY_S = 5.0
"""What a busy machine may take longer."""


def test_a_server_that_stands_still_in_a_unit_keeps_its_rows_for_a_limited_time() -> None:
    one = Server(CLUSTER.engine(), "document")
    one.do(c.CreateJob, name="a")
    command = [sys.executable, "-c", STOPPED, CLUSTER.url, SCHEMA, str(UNIT_S_MAX)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        other.send_signal(signal.SIGSTOP)
        begun = monotonic()
        waited = False
        while True:
            try:
                one.do(c.UpdateJob, jobID=1, data={"by": 2})
                break
            except StoreConflict:
                waited = True
        took_s = monotonic() - begun
        other.kill()
    assert waited or took_s > UNIT_S_MAX / 2
    assert in_time(took_s, UNIT_S_MAX + BUSY_S)
    one.store.close()
