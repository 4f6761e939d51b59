"""Servers with --test-clock on one database share one date, which AdvanceClock moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from bedrockjobs.base.clock import StandingClock, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_CONFIG, StartError
from bedrockjobs.server import Server
from bedrockjobs.service import SETTLE_S, SETTLES_MAX
from bedrockjobs.store.base import StoreConflict
from bedrockjobs.store.postgresql import engine as engines
from bedrockjobs.store.postgresql.peers import MOVES_MAX
from tests.conformance.engine import START
from tests.conftest import Live, begin
from tests.postgresql.cluster import CLUSTER, SCHEMA, url_of
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S

Start = Callable[..., Any]


def do(sql: str) -> list[Any]:
    """Execute a statement outside of all servers; return its rows."""
    with CLUSTER.connection(SCHEMA) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Return a function that starts a server with a name, by default with a test clock."""
    CLUSTER.empty(SCHEMA)
    async with AsyncExitStack() as stack:

        async def start(name: str, *, test_clock: bool = True, url: str = "") -> Live:
            settings = Settings(
                port=0,
                server_name=name,
                database=url or CLUSTER.url,
                database_schema=SCHEMA,
                test_clock=test_clock,
            )
            server = Server(settings)
            await begin(server)
            stack.push_async_callback(server.stop)
            return Live(server, stack)

        yield start


@pytest.fixture
async def pair(start: Start) -> tuple[Live, Live]:
    """Return two servers with a test clock that know each other."""
    a, b = await start("a"), await start("b")
    for one in (a, b):
        await one.until(lambda one=one: len(one.server.service.presence.servers_alive()) == 2)  # type: ignore[misc]
    return a, b


async def advance(live: Live, **how: Any) -> str:
    """Move the clock through one server; return the new date."""
    answer = await live.http("AdvanceClock", how)
    assert answer.code == 200, answer
    return str(answer.json["now"])


async def test_all_servers_begin_with_the_date_of_the_first(pair: tuple[Live, Live]) -> None:
    a, b = pair
    assert (await a.http("Status")).json["now"] == (await b.http("Status")).json["now"]


async def test_a_job_that_becomes_due_reaches_who_waits_at_another_server(pair: tuple[Live, Live]) -> None:
    a, b = pair
    due = (await advance(a, to="2035-01-01 00:00:00")).replace("00:00:00", "01:00:00")
    await a.http("CreateJob", {"name": "x", "firstRun": due})
    waiting = asyncio.ensure_future(b.http("GetJob", {"name": "x", "connection": "wait", "timeout": 20_000}))
    await b.waiting(1)
    await advance(a, seconds=3_600)
    assert (await asyncio.wait_for(waiting, DEADLINE_S)).json["name"] == "x"
    assert (await b.http("Status")).json["now"] == due


async def test_a_moved_date_counts_at_once_where_no_hint_arrives(pair: tuple[Live, Live]) -> None:
    a, b = pair
    neighbourhood = b.server._database._cluster  # type: ignore[attr-defined]
    neighbourhood._peers.on_notification = lambda text: None
    await advance(a, to="2035-01-01 00:00:30")
    await a.http("CreateJob", {"name": "tick", "repeat": "CRON * * * * *"})
    await advance(a)
    taken = await b.http("GetJob", {"name": "tick", "worker": "w"})
    assert taken.code == 200, taken
    ticks = (await b.http("ListTicks", {"jobID": 1})).json["ticks"]
    assert [(tick["tick"], tick["outcome"]) for tick in ticks] == [("2035-01-01 00:01:00", "fired")]


async def test_what_time_asks_for_is_done_by_the_answer_whoever_does_it(pair: tuple[Live, Live]) -> None:
    a, b = pair
    for number in range(3):
        await a.http("CreateJob", {"name": f"x{number}", "expireAfter": 60})
        await advance(b, seconds=61)
        assert (await a.http("QueryJob", {"jobID": number + 1})).code == 404
    assert len(do("SELECT FROM events WHERE kind = 'expired'")) == 3


async def test_a_run_that_takes_too_long_by_the_date_ends(pair: tuple[Live, Live]) -> None:
    a, b = pair
    await a.http("CreateJob", {"name": "x", "runTimeout": 60, "grace": 10})
    await a.http("GetJob", {"name": "x", "worker": "w"})
    await advance(b, seconds=100)
    assert do("SELECT status FROM runs") == [("timeout",)]


async def test_leases_and_servers_live_in_real_time(pair: tuple[Live, Live]) -> None:
    a, b = pair
    await a.http("CreateJob", {"name": "x"})
    await a.http("GetJob", {"name": "x", "worker": "w", "heartbeat": True})
    await advance(b, seconds=100_000)
    await b.server._database._cluster._await_exchange()  # type: ignore[attr-defined]
    assert do("SELECT status FROM runs") == [("running",)]
    assert [row.name for row in b.server.service.presence.servers_alive()] == ["a", "b"]
    assert do("SELECT kind FROM events WHERE kind IN ('server left', 'clock set')") == []
    assert do("SELECT value FROM meta WHERE key = 'away'") == []
    assert (
        do("UPDATE runs SET beat = to_char(beat::timestamp - interval '1 h', 'YYYY-MM-DD HH24:MI:SS.MS')")
        == []
    )
    await a.until(lambda: do("SELECT status FROM runs") == [("frozen",)])


async def test_who_moves_the_clock_at_once_moves_it_forward(pair: tuple[Live, Live]) -> None:
    a, b = pair
    await asyncio.gather(advance(a, to="2035-01-02"), advance(b, to="2035-01-03"))
    assert await advance(a, to="2035-01-01") == "2035-01-03 00:00:00"


async def test_a_clock_is_not_moved_while_the_database_is_away(start: Start) -> None:
    proxy = Proxy(CLUSTER.port)
    a = await start("a", url=url_of(proxy.port))
    before = await advance(a)
    proxy.shut()
    assert (await a.http("AdvanceClock", {"seconds": 60})).code == 503
    await a.until(lambda: bool(a.server.service.problem))  # units find it out by themselves
    proxy.open()
    await a.until(lambda: not a.server.service.problem)
    assert await advance(a, seconds=60) == timestamp(moment_of(before) + timedelta(seconds=60))
    await a.server.stop()
    proxy.close()


async def test_servers_of_one_database_have_one_kind_of_date(start: Start) -> None:
    real = await start("a", test_clock=False)
    with pytest.raises(StartError, match=r"database \(a\) have no test clock: stop them") as told:
        await start("b")
    assert told.value.status == EXIT_CONFIG
    await real.server.stop()
    standing = await start("b")
    shown = await advance(standing, to="2035-01-01")
    with pytest.raises(StartError, match=rf"database \(b\) have a test clock, which shows {shown}: start"):
        await start("a", test_clock=False)
    await standing.server.stop()
    await start("a", test_clock=False)
    assert do("SELECT clock FROM control") == [("",)]


async def test_a_server_that_finds_another_kind_of_date_is_away_until_it_is_gone(start: Start) -> None:
    real = await start("a", test_clock=False)
    do("UPDATE control SET clock = '2035-01-01 00:00:00.000'")
    await real.until(lambda: "have a test clock" in real.server.service.problem)
    do("UPDATE control SET clock = ''")
    await real.until(lambda: not real.server.service.problem)
    assert (await real.http("CreateJob", {"name": "x"})).code == 200


def test_a_unit_begins_anew_where_the_clock_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    CLUSTER.empty(SCHEMA)
    clock = StandingClock(START)
    engine = CLUSTER.another(clock)
    later = "2035-01-01 00:00:00.000"
    do(f"UPDATE control SET clock = '{later}'")
    assert timestamp_ms(engine.begin().moment) == later
    engine.rollback()
    assert clock.now() == moment_of(later)
    do(f"UPDATE control SET clock = '{later.replace('2035', '2036')}'")
    monkeypatch.setattr(engines, "MOVES_MAX", 1)
    with pytest.raises(StoreConflict, match="moved too often"):
        engine.begin()
    engine.close()


def test_limits_fit_together() -> None:
    assert MOVES_MAX > 2, "who moves it does a unit after each move"
    assert SETTLE_S * SETTLES_MAX < DEADLINE_S
