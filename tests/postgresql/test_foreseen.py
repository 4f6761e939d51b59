"""Prefetch for workers and waiters: two round trips, however many are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.waiters import Waiter, Waiting
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.postgresql.statements import QUERIES
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import Server
from tests.postgresql.live import Live, until
from tests.protocol.talk import DEADLINE_S

Servers = Callable[[int], list[Server]]

NAMES = {sql: name for name, sql in QUERIES.items()}


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """Run a dispatcher."""
    live = Live(CLUSTER.engine(SystemClock()))
    await live.dispatcher.settle()
    yield live
    await live.stop()


def listened(engine: Any) -> list[list[str]]:
    """Return a list that gets the names of the statements of each round trip from now on."""
    trips: list[list[str]] = []
    session, run, commit = engine.session, engine.session.run_statements, engine.session.commit

    def noted(statements: Any) -> Any:
        trips.append([NAMES.get(sql, "?") for sql, _ in statements])
        return run(statements)

    def noted_commit(statements: Any) -> Any:
        trips.append([NAMES.get(sql, "?") for sql, _ in statements])
        return commit(statements)

    session.run_statements, session.commit = noted, noted_commit
    return trips


@pytest.mark.parametrize("name", ["a", "a*"])
@pytest.mark.parametrize("worker", [None, "w"])
async def test_who_waits_is_served_in_the_two_round_trips_of_the_unit(
    name: str, worker: str | None, live: Live
) -> None:
    waiting = [live.send(c.GetJob(name=name, connection="wait", worker=worker)) for _ in range(5)]
    await until(lambda: live.dispatcher.waiting == 5)
    trips = listened(live.engine)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(live.ask(c.CreateJob(name="a")) for _ in range(5)))
        served = await asyncio.gather(*waiting)
    assert all(isinstance(one, Answer) for one in served)
    (unit,) = [trip for trip in trips if "draw_jobs" in trip]
    assert "bound_lanes" in unit
    takes = {"take_in_open_lane", "claim_in_open_lane", "take_by_name", "take_in_order"}
    looks = takes | {"bound_lanes", "insert_jobs"}
    assert [trip for trip in trips if trip is not unit and looks.intersection(trip)] == [
        next(trip for trip in trips if "commit" in trip and "insert_jobs" in trip)
    ]


def test_workers_that_ask_for_the_same_share_a_statement(servers: Servers) -> None:
    (one,) = servers(1)
    for name in "baaaa":
        one.do(c.CreateJob, name=name)
    one.do(c.GetJob, name="b", worker="w")  # pauses, drains and the crash list are known from now on
    trips = listened(one.store)
    found = one.call_together([c.GetJob(name="a", worker=f"w{number}") for number in range(4)])
    assert [each.body["jobID"] for each in found] == [2, 3, 4, 5]
    assert sum(trip.count("take_in_open_lane") for trip in trips) == 1
    assert len(trips) == 2


def bind(one: Server, job_id: int, worker: str) -> None:
    """Bind a job to one worker."""
    one.store.session.run_statements(
        [("UPDATE jobs SET lane = 'for ' || $2::text WHERE jobID = $1", (job_id, worker))]
    )


def test_a_job_of_its_own_goes_to_that_worker_alone_in_its_order(servers: Servers) -> None:
    (one,) = servers(1)
    for _ in range(4):
        one.do(c.CreateJob, name="a")
        one.clock.advance(1)
    bind(one, 1, "v")
    bind(one, 3, "v")
    asking = [c.GetJob(name="a", worker=worker) for worker in ("u", "v", "v", "v", "u")]
    found = one.call_together(asking)
    assert [each.body and each.body["jobID"] for each in found] == [2, 1, 3, 4, None]


def test_so_it_does_where_no_plan_foresaw_the_worker(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a")
    bind(one, 1, "v")
    context = one.open(c.CreateJob(name="b"))
    assert context.unit.workers_with_own_jobs() == {"v"}
    names = names_from("*", None)
    assert names is not None
    now = context.now_ms
    assert context.unit.first_due(TakeRequest(names, worker="u"), now) is None
    job = context.unit.first_due(TakeRequest(names, worker="v"), now)
    assert job is not None
    assert job.job_id == 1
    one.commit()


def wait(waiting: Waiting, seq: int, name: str, worker: str | None = None) -> None:
    """Add a waiter."""
    names = names_from(name, None)
    assert names is not None
    waiting.add(Waiter(None, TakeRequest(names, worker=worker), seq, 0.0))


def test_those_who_have_waited_longest_are_foreseen() -> None:
    waiting = Waiting()
    for seq, (name, worker) in enumerate([("b", None), ("a*", "w"), ("a", None), ("a", None), ("a*", None)]):
        wait(waiting, seq, name, worker)

    def foreseen(*names: str) -> list[tuple[str, int]]:
        plan = waiting.plan(names)
        assert plan == AccessPlan(takes=plan.takes, own_jobs=True, new_runs=plan.new_runs)
        shown = [(min(one.names.exact or one.names.patterns), one.limit) for one in plan.takes]
        assert plan.new_runs == sum(limit for name, limit in shown if name == "a*")
        return shown

    assert foreseen() == foreseen("c") == []
    assert foreseen("ab", "ab", "ab") == [("a*", 2)]
    assert foreseen("a") == [("a*", 1)]
    assert foreseen("a", "b", "a", "a") == [("a*", 2), ("a", 1), ("b", 1)]
