"""Reads on a standby while it is connected and keeps up, otherwise on the primary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import StartError
from bedrockjobs.engine import cluster
from bedrockjobs.server import Server
from bedrockjobs.store.postgresql import read_connection
from bedrockjobs.store.postgresql.read_connection import LAG_S_MAX, POLL_S, ReadConnection, Standby
from tests.conftest import Live, begin
from tests.postgresql.cluster import CLUSTER, SCHEMA, free_port
from tests.postgresql.pair import Pair, pair
from tests.protocol.talk import DEADLINE_S

QUICK_S = 1.0
"""How far behind a standby may be in these tests: time for a request on a busy machine."""


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    """Return a primary and its asynchronous standby."""
    with pair(synchronous=False) as both:
        yield both


@pytest.fixture
async def live(both: Pair, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """Return a server that reads on the standby."""
    monkeypatch.setattr(cluster, "EXCHANGE_EVERY_S", 0.05)
    monkeypatch.setattr(read_connection, "POLL_S", 0.02)
    monkeypatch.setattr(read_connection, "LAG_S_MAX", QUICK_S)
    given = Settings(port=0, database=both.primary.url, database_read=both.standby.url, server_name="a")
    async with AsyncExitStack() as stack:
        server = Server(given)
        await begin(server)
        stack.push_async_callback(server.stop)
        live = Live(server, stack)
        await live.until(lambda: watch_of(live).usable)
        yield live


def watch_of(live: Live) -> Standby:
    """Return the server's state of its standby."""
    found: Any = live.server._reader
    assert isinstance(found._standby, Standby)
    return found._standby


async def names(live: Live) -> list[str]:
    """Return the names of all jobs, from ListJobs."""
    reply = await live.http("ListJobs")
    assert reply.code == 200, reply
    return [job["name"] for job in reply.json["jobs"]]


async def counted(live: Live) -> int:
    """Return the number of jobs, from a Query."""
    reply = await live.http("Query", {"query": "SELECT count(*) FROM jobs;"})
    assert reply.code == 200, reply
    return int(reply.json[0][0])


async def until(live: Live, count: int) -> None:
    """Wait until lists and Queries show a number of jobs."""
    async with asyncio.timeout(DEADLINE_S):
        while (len(await names(live)), await counted(live)) != (count, count):
            await asyncio.sleep(0.01)


async def test_a_standby_is_read_until_it_is_behind_or_away(
    live: Live, both: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await live.http("CreateJob", {"name": "first"})
    await until(live, 1)
    both.stream.swallow("down")
    await live.http("CreateJob", {"name": "second"})
    assert await names(live) == ["first"], "the control: it is the standby that is read"
    assert (await live.http("ExplainJob", {"jobID": 2})).code == 200, "what an index finds is of the primary"
    await until(live, 2)
    assert "the standby is not used: it is behind" in caplog.text
    both.stream.cut()
    await live.until(lambda: watch_of(live).usable)
    await until(live, 2)
    both.standby.kill()
    await until(live, 2)
    await live.until(lambda: not watch_of(live).usable)
    await live.http("CreateJob", {"name": "third"})
    await until(live, 3)
    both.standby.start()
    await live.until(lambda: watch_of(live).usable)


async def test_reads_go_on_while_the_primary_is_away(live: Live, both: Pair) -> None:
    await live.http("CreateJob", {"name": "more"})
    count = len(both.primary.do("SELECT FROM bedrockjobs.jobs"))
    await until(live, count)
    both.primary.kill()
    await until(live, count)
    assert (await live.http("ExplainJob", {"jobID": 1})).code == 200
    both.primary.start()


async def test_a_copy_of_another_database_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    CLUSTER.empty(SCHEMA)
    line = ReadConnection(CLUSTER.url, SCHEMA, 1.0, 10)
    other = Standby(CLUSTER.url, line, "nobody", lambda: "2026-01-01 00:00:00.000")
    await other._check()
    assert not other.usable
    assert "does not know this server" in caplog.text
    await other.close()


@pytest.mark.parametrize(
    "error", [Unavailable("Database away", "x"), psycopg.errors.SerializationFailure("x")]
)
async def test_what_one_cannot_read_the_other_does(error: Exception) -> None:
    line = ReadConnection(CLUSTER.url, SCHEMA, 1.0, 10)
    watch = Standby(CLUSTER.url, line, "", lambda: "")
    watch.usable = True
    either = watch.with_primary(line, first=True)
    tried: list[psycopg.AsyncConnection[Any]] = []

    async def act(connection: psycopg.AsyncConnection[Any]) -> int:
        tried.append(connection)
        if len(tried) == 1:
            raise error
        return either.pending

    assert await either.do(act) == 1
    assert tried[0] is not tried[1]
    await either.close()
    await watch.close()


def test_it_is_looked_at_before_it_is_too_far_behind() -> None:
    assert POLL_S + cluster.EXCHANGE_EVERY_S < LAG_S_MAX


async def test_a_file_has_no_standby() -> None:
    server = Server(Settings(port=0, database="jobs.db", database_read="postgresql://h/d"))
    with pytest.raises(StartError, match="database_read: a standby needs PostgreSQL, a file has none"):
        await server.start()
    with pytest.raises(ValueError, match="database_read"):
        Settings(database_read="standby.db")
    assert Settings(database_read=f"postgresql://h:{free_port()}/d").database_read
