"""After a failover, every acknowledged command was executed exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from itertools import count
from time import monotonic
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.server import Server as BedrockJobs
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql import session
from bedrockjobs.store.postgresql.connect_checks import StandbyAway, UnfitDatabase
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.session import SessionRequirements
from tests.conftest import Live as Site
from tests.effort import examples
from tests.pace import in_time
from tests.postgresql.cluster import SCHEMA
from tests.postgresql.conftest import Server
from tests.postgresql.live import Live
from tests.postgresql.pair import STREAMING, Pair, pair, until, waits_for_standby
from tests.protocol.talk import DEADLINE_S, Talk

FAILOVERS = examples(1, night=20)
"""Failovers of one run; the nightly command does more."""

CLIENTS = 8
FIRST_ANSWER_S = 2.0
"""Time from the promotion to the first answer."""

OPEN_RUN = (
    f"INSERT INTO {SCHEMA}.runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, lease)"
    " VALUES (-{}, 0, 'x', 1, '', '', '2026-01-01 00:00:00', 'w', 60)"
)
LEASES_ANEW = f"SELECT count(*) FROM {SCHEMA}.runs WHERE beat > '2026-01-01'"

Beside = Callable[[Callable[[], Any]], "Future[Any]"]


class Load:
    """Clients that create jobs one after another, each with its own name."""

    def __init__(self, live: Live) -> None:
        """Send to ``live``."""
        self._live = live
        self._numbers = count(1)
        self.acknowledged: dict[str, int] = {}
        self.times: list[float] = []
        self._tasks = [asyncio.create_task(self._client()) for _ in range(CLIENTS)]
        self._ends = False

    async def _client(self) -> None:
        while not self._ends:
            name = f"j{next(self._numbers)}"
            outcome = await self._live.ask(c.CreateJob(name=name))
            if isinstance(outcome, Answer):
                self.acknowledged[name] = int(outcome.body[9:-1])
                self.times.append(monotonic())

    async def more(self, answers: int) -> None:
        """Wait for some more replies."""
        wanted = len(self.acknowledged) + answers
        async with asyncio.timeout(DEADLINE_S):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0)

    async def end(self) -> None:
        """Stop all clients after their current request."""
        self._ends = True
        await asyncio.gather(*self._tasks)


def stored(both: Pair) -> Counter[str]:
    """Return the number of jobs of each name."""
    return Counter(name for (name,) in both.standby.do(f"SELECT name FROM {SCHEMA}.jobs"))


async def started(both: Pair) -> Live:
    """Return a dispatcher on the writable server."""
    return Live(await asyncio.to_thread(PostgreSQLEngine, both.url, SystemClock(), name=SCHEMA))


async def failovers(count: int) -> None:
    """Fail over repeatedly under load: nothing acknowledged is lost or doubled, and work resumes at once."""
    with pair() as both:
        for number in range(count):
            if number:
                both.replace()
            live = await started(both)
            both.primary.do(OPEN_RUN.format(number + 1))
            load = Load(live)
            await load.more(200)
            await asyncio.to_thread(both.fail_over)
            promoted = monotonic()
            await load.more(50)
            await load.end()
            first = min(at for at in load.times if at > promoted)
            await live.stop()
            found = stored(both)
            assert [name for name in load.acknowledged if name not in found] == []
            assert [name for name, jobs in found.items() if jobs > 1] == []
            assert in_time(first - promoted, FIRST_ANSWER_S)
            assert max(load.acknowledged.values()) > 1_000_000 * (number + 1)
            assert both.standby.do(LEASES_ANEW) == [(number + 1,)]
            both.standby.do(f"DELETE FROM {SCHEMA}.jobs")


async def test_nothing_acknowledged_is_lost_or_doubled_by_a_failover() -> None:
    await failovers(FAILOVERS)


async def test_an_asynchronous_standby_loses_but_no_number_is_given_out_twice() -> None:
    """The control of the test above."""
    with pair(synchronous=False) as both:
        live = await started(both)
        load = Load(live)
        await load.more(50)
        both.stream.swallow("down")
        await load.more(50)
        await asyncio.to_thread(both.fail_over)
        await load.more(50)
        await load.end()
        await live.stop()
        found = stored(both)
        assert [name for name in load.acknowledged if name not in found]
        assert len(set(load.acknowledged.values())) == len(load.acknowledged)
        await asyncio.to_thread(an_old_primary_that_comes_back_is_not_written, both)


def an_old_primary_that_comes_back_is_not_written(both: Pair) -> None:
    """A server that has seen the promoted standby finds only the old primary."""
    server = Server(PostgreSQLEngine(both.url, name=SCHEMA), "document")
    server.do(c.CreateJob, name="b")
    both.standby.kill()
    both.primary.start()
    server.store.session.close()
    with pytest.raises(UnfitDatabase, match="an old primary answers: its timeline is 1, but another had 2"):
        server.open()
    assert both.primary.do(f"SELECT count(*) FROM {SCHEMA}.jobs WHERE name = 'b'") == [(0,)]


def cancelled(both: Pair, server: Server, beside: Beside) -> tuple[Future[Any], int]:
    """Create a job, and cancel its commit while that waits for a standby that is cut off.

    Return the commit, and the backend that waited.
    """
    both.stream.swallow("down")
    server.opened(c.CreateJob(name="a"))
    commit = beside(server.commit)
    until(lambda: waits_for_standby(both.primary) == 1)
    ((pid, _),) = both.primary.do(
        "SELECT pid, pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    )
    return commit, pid


def test_a_commit_that_no_longer_waits_for_its_standby_is_not_acknowledged(beside: Beside) -> None:
    with pair() as both:
        server = Server(PostgreSQLEngine(both.url, name=SCHEMA), "document")
        commit, waited = cancelled(both, server, beside)
        until(lambda: waits_for_standby(both.primary, but=waited) == 1)  # the query waits as well
        assert both.primary.do(f"SELECT name FROM {SCHEMA}.jobs") == [("a",)]
        assert not commit.done()
        both.fail_over()
        with pytest.raises(StoreAway, match="not confirmed"):
            commit.result(DEADLINE_S)
        server.store.rollback()
        assert server.do(c.CreateJob, name="a")["jobID"] == 1  # as it was never done
        assert stored(both) == {"a": 1}
        server.store.close()


def test_a_server_that_believes_a_cancelled_commit_loses_it(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(session, "UNCONFIRMED", ())
    with pair() as both:
        server = Server(PostgreSQLEngine(both.url, name=SCHEMA), "document")
        commit, _ = cancelled(both, server, beside)
        commit.result(DEADLINE_S)  # it is acknowledged
        both.fail_over()
        assert stored(both) == {}
        server.store.close()


def test_durability_replicated_asks_for_a_standby_in_each_unit() -> None:
    with pair() as both:
        server = Server(
            PostgreSQLEngine(both.url, name=SCHEMA, terms=SessionRequirements("replicated")), "document"
        )
        assert server.do(c.CreateJob, name="a") == {"jobID": 1}
        both.standby.kill()
        until(lambda: both.primary.do(STREAMING.format("sync")) == [(0,)])
        with pytest.raises(StandbyAway):
            server.open()
        with pytest.raises(StandbyAway):
            server.store.reach()
        late = PostgreSQLEngine(both.url, name=SCHEMA, terms=SessionRequirements("replicated"))
        with pytest.raises(StandbyAway):
            late.begin()
        late.close()
        both.primary.do("ALTER SYSTEM SET synchronous_standby_names = ''")
        both.primary.do("SELECT pg_reload_conf()")
        until(lambda: both.primary.do("SHOW synchronous_standby_names") == [("",)])
        both.standby.start()
        until(lambda: both.primary.do(STREAMING.format("async")) == [(1,)])
        with pytest.raises(StandbyAway):  # an asynchronous one promises nothing
            server.open()
        both.synchronize()
        server.store.reach()
        assert server.do(c.CreateJob, name="b") == {"jobID": 2}
        server.store.close()


async def test_a_server_that_starts_without_a_standby_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        both = await asyncio.to_thread(Pair)
        stack.push_async_callback(asyncio.to_thread, both.close)
        await asyncio.to_thread(
            both.fail_over
        )  # the new primary has no standby, and no place was noted in it
        database = f"postgresql://tester@127.0.0.1:{both.standby.port}/postgres"
        both.standby.do("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        both.standby.do("SELECT pg_reload_conf()")
        given = Settings(
            port=0, database=database, database_schema=SCHEMA, durability="replicated", command_s=0.2
        )
        server = BedrockJobs(given)
        async with asyncio.timeout(DEADLINE_S):
            await server.start()
        stack.push_async_callback(server.stop)
        live = Site(server, stack)
        refused = await live.ask("CreateJob", name="a")
        assert refused.status == "503 Standby away"
        assert "no synchronous standby is connected" in await ready(live)
        assert any("no synchronous standby" in words for words in caplog.messages)
        await asyncio.to_thread(both.replace)
        async with asyncio.timeout(DEADLINE_S):
            while await ready(live) != "ok\n":
                await asyncio.sleep(0.05)
        assert (await live.ask("CreateJob", name="a")).code == 200


async def ready(live: Site) -> str:
    """Return a server's reply to `/readyz`."""
    async with await Talk.open(live.port) as talk:
        talk.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return (await talk.reply()).body
