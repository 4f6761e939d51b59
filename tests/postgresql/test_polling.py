"""A server that gets no notifications: it finds new jobs soon, with few queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import chain

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.waiters import Waiter, Waiting
from bedrockjobs.job.take_request import TakeRequest, names_from
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import Server
from tests.postgresql.live import Live, until
from tests.postgresql.test_foreseen import listened
from tests.protocol.talk import DEADLINE_S

PATTERNS_AT_ONCE = 16

Servers = Callable[[int], list[Server]]

LOOK = "due_of_names"
OLD, NEW = "2020-01-01 00:00:00", "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')"


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """Run a dispatcher that gets no notifications."""
    live = Live(CLUSTER.engine(SystemClock()))
    await live.dispatcher.settle()
    yield live
    live.dispatcher.leave_all()
    await live.stop()


async def waiting_for(live: Live, names: list[str]) -> list[asyncio.Future[object]]:
    """Add a waiter for each of some names."""
    waits = [live.send(c.GetJob(name=name, connection="wait")) for name in names]
    await until(lambda: live.dispatcher.waiting == len(names))
    return waits


def left(name: str, next_run: str) -> None:
    """Queue a job without a notification."""
    CLUSTER.do(
        f"INSERT INTO {SCHEMA}.jobs (created, jobID, state, name, nextRun)"
        f" SELECT '{OLD}', nextval('{SCHEMA}.jobIDs'), 'QUEUED', '{name}', {next_run}"
    )


async def test_of_very_many_names_each_has_its_turn_within_a_few_looks_of_one_round_trip(live: Live) -> None:
    names = [f"n{number:04d}" for number in range(750)]
    waits = await waiting_for(live, names)
    trips = listened(live.engine)

    def looks() -> int:
        return sum(trip.count(LOOK) for trip in trips)

    await until(lambda: looks() >= 2)
    assert not any("take_by_name" in trip for trip in trips)  # where nothing is due, nothing is taken
    assert len(trips) <= 8 * (looks() + 1)  # the unit looks after time as well; of names it asks once
    before = looks()
    left(names[-1], f"'{OLD}'")
    found = await asyncio.wait_for(waits[-1], DEADLINE_S)
    assert isinstance(found, Answer)
    assert looks() <= before + 3


async def test_what_became_due_lately_is_found_at_the_next_look_whoever_waits_for_it(live: Live) -> None:
    waits = await waiting_for(live, [f"n{number:03d}*" for number in range(4 * PATTERNS_AT_ONCE)])
    trips = listened(live.engine)
    for number in (5, 40, 63):
        before = sum(trip.count(LOOK) for trip in trips)
        left(f"n{number:03d}/x", NEW)
        assert isinstance(await asyncio.wait_for(waits[number], DEADLINE_S), Answer)
        assert sum(trip.count(LOOK) for trip in trips) <= before + 2


async def test_what_is_long_due_is_found_for_patterns_in_turn(live: Live) -> None:
    waits = await waiting_for(live, [f"n{number}*" for number in range(10, 10 + 2 * PATTERNS_AT_ONCE)])
    left("n41/x", f"'{OLD}'")
    assert isinstance(await asyncio.wait_for(waits[-1], DEADLINE_S), Answer)


def test_only_what_may_be_taken_is_due(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="due")
    one.do(c.CreateJob, name="future", firstRun="2100-01-01 00:00:00")
    one.do(c.CreateJob, name="taken")
    one.do(c.GetJob, name="taken")
    one.do(c.CreateJob, name="paused")
    one.do(c.PauseJobs, name="pau*")
    for lock, names in {"L": ("holds", "held"), "M": ("free",)}.items():
        for name in names:
            one.do(c.CreateJob, name=name, lock=lock)
    one.do(c.GetJob, name="holds")
    names = ["due", "future", "taken", "paused", "holds", "held", "free", "absent"]
    context = one.open(c.GetJob(name="absent"))
    unit, now = one.store.unit, context.now_ms
    assert unit.due_names(names, now, now) == ["due", "free"]
    assert unit.due_names(names[1:-2], now, now) == []
    assert set(unit.due_names([], now, "2000")) == {"due", "paused", "held", "free"}  # a take is stricter
    one.commit()


def test_all_names_have_their_turn_and_no_more_than_asked_for() -> None:
    waiting = Waiting()
    for number in range(10):
        names = names_from(f"n{number}", None)
        assert names is not None
        waiting.add(Waiter(None, TakeRequest(names), number, 1.0))
    found = [waiting.names_in_turn(4) for _ in range(6)]
    assert [len(each) for each in found] == [4, 4, 2] * 2
    assert sorted(chain.from_iterable(found[:3])) == [f"n{number}" for number in range(10)]
    assert [len(waiting.names_in_turn(20)) for _ in range(2)] == [10, 10]
