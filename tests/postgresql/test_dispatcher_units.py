"""The dispatcher over PostgreSQL: the loop goes on while a unit waits, and what cannot be done is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import NotFound, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import BLOCKED, DEADLINE_S, Server

Servers = Callable[[int], list[Server]]


class Live:
    """A dispatcher on a server's engine."""

    def __init__(self) -> None:
        """Start it on an empty database."""
        self.engine = CLUSTER.engine(SystemClock())
        self.failed: list[Exception] = []
        clock = SystemClock()
        workers, stats = WorkerRegistry(clock, clock), Stats()
        self.dispatcher = Dispatcher(
            self.engine, clock, Settings(busy_s=0.1), self.failed.append, workers=workers, minutes=stats,
            listeners=Listeners([workers, stats]),
        )  # fmt: skip
        self.dispatcher.start()

    def send(self, command: c.Command[Any]) -> asyncio.Future[Outcome]:
        """Submit a command; the future gets its outcome."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            done.set_result(outcome)
            return True

        self.dispatcher.submit(command, deliver)
        return done

    async def ask(self, command: c.Command[Any]) -> Outcome:
        """Submit a command and wait for its outcome."""
        return await asyncio.wait_for(self.send(command), DEADLINE_S)


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """Run a dispatcher."""
    live = Live()
    await live.dispatcher.settle()
    yield live
    await live.dispatcher.drain()
    live.engine.close()
    assert not live.failed


def body(outcome: Outcome) -> str:
    """Return the body of a good answer."""
    assert isinstance(outcome, Answer), outcome
    return outcome.body


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0)


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
