"""The dispatcher over PostgreSQL: the loop goes on while a unit waits, and what cannot be done is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import NotFound, Unavailable
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import BLOCKED, DEADLINE_S, Server
from tests.postgresql.live import Live, until

Servers = Callable[[int], list[Server]]


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """Run a dispatcher."""
    live = Live(CLUSTER.engine(SystemClock()))
    await live.dispatcher.settle()
    yield live
    await live.stop()


def body(outcome: Outcome) -> str:
    """Return the body of a good answer."""
    assert isinstance(outcome, Answer), outcome
    return outcome.body


async def test_commands_of_one_turn_share_a_unit(live: Live) -> None:
    before = live.dispatcher.commits
    created = [live.send(c.CreateJob(name="a")) for _ in range(20)]
    assert [body(await one) for one in created] == [f'{{"jobID":{n}}}' for n in range(1, 21)]
    assert live.dispatcher.commits == before + 1
    assert '"jobID":1,' in body(await live.ask(c.GetJob(name="*")))
    assert body(await live.ask(c.FinishJob(job_id=1))) == ""
    assert isinstance(await live.ask(c.FinishJob(job_id=1)), NotFound)


async def test_who_waits_gets_a_job_of_the_unit_that_creates_it(live: Live) -> None:
    waiting = live.send(c.GetJob(name="a*", connection="wait"))
    await until(lambda: live.dispatcher.waiting == 1)
    await live.ask(c.CreateJob(name="ab"))
    assert '"jobID":1,' in body(await asyncio.wait_for(waiting, DEADLINE_S))


async def test_the_loop_goes_on_while_a_unit_waits_for_rows(live: Live) -> None:
    """The control: where the connection does not give its turn away, the loop cannot even ask who waits."""
    await live.ask(c.CreateJob(name="a"))
    other, watcher = (Server(CLUSTER.another(), "document") for _ in range(2))
    other.opened(c.UpdateJob(job_id=1, data='{"by":1}'))
    update = live.send(c.UpdateJob(job_id=1, data='{"by":2}'))
    await until(lambda: watcher.value(BLOCKED) == 1)
    assert not update.done()
    other.commit()
    await asyncio.wait_for(update, DEADLINE_S)
    assert watcher.value("SELECT data FROM jobs") == '{"by":2}'
    for server in (other, watcher):
        server.store.close()


async def test_a_database_that_goes_away_is_told_and_found_again(live: Live) -> None:
    watcher = Server(CLUSTER.another(), "document")
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert watcher.value(cut) >= 1
    outcomes = [await live.ask(c.CreateJob(name="a")) for _ in range(3)]
    assert not [one for one in outcomes if not isinstance(one, Answer | Unavailable)]
    assert isinstance(outcomes[-1], Answer)
    done = sum(isinstance(one, Answer) for one in outcomes)
    assert watcher.value("SELECT count(*) FROM jobs") == done
    watcher.store.close()
