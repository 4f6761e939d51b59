"""The dispatcher on PostgreSQL: the loop continues while a unit waits, and failures are reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock, SystemClock
from bedrockjobs.base.config import LOCK_WAIT_S_MAX
from bedrockjobs.base.errors import NotFound, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import batch, submission
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import RETRIES_AT_ONCE, RETRY_S, RETRY_S_MAX, Outcome, Submission
from bedrockjobs.engine.unit import perform
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.postgresql import heads, takes
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import BLOCKED, Server
from tests.postgresql.live import Live, until
from tests.protocol.talk import DEADLINE_S

Servers = Callable[[int], list[Server]]

LOOKS = 20
"""At how many looks a take finds its job: a server without processor time keeps it locked for long."""


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """Run a dispatcher."""
    live = Live(CLUSTER.engine(SystemClock()))
    await live.dispatcher.settle()
    yield live
    await live.stop()


def body(outcome: Outcome) -> str:
    """Return the body of a successful reply."""
    assert isinstance(outcome, Answer), outcome
    return outcome.body


async def test_commands_of_one_turn_share_a_unit(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = counted_units(live, monkeypatch, lambda _: None)
    created = [live.send(c.CreateJob(name="a")) for _ in range(20)]
    assert [body(await one) for one in created] == [f'{{"jobID":{n}}}' for n in range(1, 21)]
    assert len(opened) == 1
    assert '"jobID":1,' in body(await live.ask(c.GetJob(name="*")))
    assert body(await live.ask(c.FinishJob(job_id=1))) == ""
    assert isinstance(await live.ask(c.FinishJob(job_id=1)), NotFound)


async def test_who_waits_gets_a_job_of_the_unit_that_creates_it(live: Live) -> None:
    waiting = live.send(c.GetJob(name="a*", connection="wait"))
    await until(lambda: live.dispatcher.waiting == 1)
    await live.ask(c.CreateJob(name="ab"))
    assert '"jobID":1,' in body(await asyncio.wait_for(waiting, DEADLINE_S))


async def test_the_loop_goes_on_while_a_unit_waits_for_rows(live: Live) -> None:
    """The control: if the connection does not yield, the loop cannot even query the lock waits."""
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


def counted_units(live: Live, monkeypatch: pytest.MonkeyPatch, each: Callable[[int], object]) -> list[int]:
    """Return a list that grows with each unit opened from now on for commands; ``each`` gets its number.

    Time may ask for other units, as at the end of a minute.
    """
    begin, opened = live.engine.begin, list[int]()

    def counted(given: Iterable[AccessPlan] = ()) -> Any:
        plans = list(given)
        if plans:
            opened.append(len(opened) + 1)
            each(opened[-1])
        return begin(plans)

    monkeypatch.setattr(live.engine, "begin", counted)
    return opened


@pytest.mark.parametrize("name", ["a", "b,a", "a*"])
async def test_a_take_that_was_passed_over_looks_again(
    name: str, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server has locked the job, and then rolls back."""
    await live.ask(c.CreateJob(name="a"))
    other = Server(CLUSTER.another(), "document")
    other.opened(c.GetJob(name="a"))
    opened = counted_units(live, monkeypatch, lambda unit: unit == LOOKS and other.store.rollback())
    monkeypatch.setattr(submission, "RETRY_S", 0.0)
    assert '"jobID":1,' in body(await live.ask(c.GetJob(name=name)))
    assert len(opened) == LOOKS
    other.store.close()


async def test_a_take_that_does_not_look_again_is_sent_away(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(takes.Takes, "skipped_locked", lambda *_: False)
    await live.ask(c.CreateJob(name="a"))
    other = Server(CLUSTER.another(), "document")
    other.opened(c.GetJob(name="a"))
    assert isinstance(await live.ask(c.GetJob(name="a")), NotFound)
    other.store.close()


def test_a_take_looks_again_for_longer_than_a_server_may_keep_rows_locked() -> None:
    """It does so with pauses, so that who has the job gets a turn."""
    limit_s = Settings().unit_s_max + LOCK_WAIT_S_MAX
    take, pauses = Submission(), []
    while take.may_retry(limit_s):
        pauses.append(take.pause_s)
    assert pauses[: RETRIES_AT_ONCE + 1] == [0.0] * RETRIES_AT_ONCE + [RETRY_S * 2 ** (RETRIES_AT_ONCE + 1)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETRY_S_MAX
    assert limit_s - RETRY_S_MAX < sum(pauses) <= limit_s == 7


async def test_a_take_of_jobs_that_stay_locked_is_refused_as_busy(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """404 would say that there are no jobs."""
    monkeypatch.setattr(batch, "LOCK_WAIT_S_MAX", 0.1 - Settings().unit_s_max)
    await live.ask(c.CreateJob(name="a"))
    with closing(CLUSTER.another()) as store:
        Server(store, "document").opened(c.GetJob(name="a"))
        outcomes = await asyncio.gather(live.ask(c.GetJob(name="a")), live.ask(c.CreateJob(name="b")))
    assert isinstance(outcomes[0], Unavailable)
    assert outcomes[0].reason == "Database busy"
    assert isinstance(outcomes[1], Answer)


async def test_a_server_that_stops_lets_nobody_pause_for_a_job_that_is_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = Live(CLUSTER.engine(SystemClock()))
    try:
        await live.ask(c.CreateJob(name="a"))
        with closing(CLUSTER.another()) as store:
            Server(store, "document").opened(c.GetJob(name="a"))
            opened = counted_units(live, monkeypatch, lambda _: None)
            asked = live.send(c.GetJob(name="a"))
            await until(lambda: len(opened) > RETRIES_AT_ONCE)
            await live.dispatcher.drain()
            refused = asked.result()
    finally:
        await live.stop()
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Server is stopping"


@pytest.mark.parametrize("name", ["a", "b,a", "a*"])
async def test_a_job_that_came_since_the_unit_began_is_worth_another_look(
    name: str, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other servers may have taken the jobs due at its start, and left jobs with later timestamps."""
    other = Server(CLUSTER.another(), "document")
    begin, begun = live.engine.begin, []

    def beginning(*plans: Any) -> Any:
        unit = begin(*plans)
        if not begun:
            other.do(c.CreateJob, name="a")
        begun.append(unit)
        return unit

    monkeypatch.setattr(live.engine, "begin", beginning)
    assert '"jobID":1,' in body(await live.ask(c.GetJob(name=name)))
    other.store.close()


HINDERED: dict[str, list[c.Command[Any]]] = {
    "later": [c.CreateJob(name="a", first_run="2100-01-01 00:00:00")],
    "lock": [
        *(c.CreateJob(name="a", lock="l") for _ in range(3)),
        c.GetJob(name="a", worker="w", heartbeat=True),
    ],
    "pause": [c.CreateJob(name="a"), c.PauseJobs(name="a*")],
    "running": [
        *(c.CreateJob(name="a") for _ in range(2)),
        c.SetLimit(name="a", running=1),
        c.GetJob(name="a", worker="w", heartbeat=True),
    ],
    "starts": [
        *(c.CreateJob(name="a") for _ in range(2)),
        c.SetLimit(name="a", starts="1/1h"),
        c.GetJob(name="a"),
    ],
    "key": [
        *(c.CreateJob(name="a", concurrency_key="k", concurrency_limit=1) for _ in range(2)),
        c.GetJob(name="a", worker="w", heartbeat=True),
    ],
}
"""Commands after which a job is there that nobody has locked, and that a worker cannot take."""


@pytest.mark.parametrize("why", HINDERED)
async def test_a_take_for_which_there_is_nothing_looks_once(
    why: str, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in HINDERED[why]:
        await live.ask(command)
    opened = counted_units(live, monkeypatch, lambda _: None)
    for number, name in enumerate(("a", "b,a", "a*", "*"), 1):
        assert isinstance(await live.ask(c.GetJob(name=name, worker="w")), NotFound)
        assert len(opened) == number, name


@pytest.mark.parametrize("before_s", [0.001, 0.019])
def test_a_test_clock_just_before_a_job_is_due_lets_nobody_look_again(
    before_s: float, servers: Servers, clock: ManualClock
) -> None:
    (server,) = servers(1)
    due = clock.now().replace(microsecond=0) + timedelta(seconds=5)
    server.do(c.CreateJob, name="a", firstRun=f"{due:%Y-%m-%d %H:%M:%S}")
    clock.move_to(due - timedelta(seconds=before_s))
    get = c.GetJob(name="a")
    assert type(perform(server.open(get), get)) is NotFound


async def test_a_worker_that_is_drained_does_not_look_again(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.ask(c.GetJob(name="a", worker="w"))
    await live.ask(c.DrainWorker(worker="w"))
    await live.ask(c.CreateJob(name="a"))
    other = Server(CLUSTER.another(), "document")
    other.opened(c.GetJob(name="a"))
    opened = counted_units(live, monkeypatch, lambda _: None)
    assert isinstance(await live.ask(c.GetJob(name="a", worker="w")), NotFound)
    assert len(opened) == 1
    other.store.close()


Conflicts = Callable[[int], Awaitable[object]]


@pytest.fixture
async def conflicts() -> AsyncIterator[Conflicts]:
    """Return a function that makes PostgreSQL fail the next takes with serialization errors."""

    async def do(sql: str) -> None:
        """Run SQL, after open units have ended."""
        await asyncio.to_thread(CLUSTER.do, f"SET search_path = {SCHEMA}; {sql}")

    async def fail(times: int) -> None:
        await do(
            "CREATE SEQUENCE conflicts;"
            " CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('conflicts') <= {times} THEN RAISE EXCEPTION USING ERRCODE = '40001'; END IF;"
            " RETURN NEW; END $$; CREATE TRIGGER conflicting BEFORE INSERT OR UPDATE ON jobs FOR EACH ROW"
            " WHEN (NEW.state = 'RUNNING') EXECUTE FUNCTION conflict()"
        )

    try:
        yield fail
    finally:
        await do("DROP FUNCTION IF EXISTS conflict CASCADE; DROP SEQUENCE IF EXISTS conflicts")


def rows_of_jobs() -> list[tuple[Any, ...]]:
    """Return jobID, state and attempt of all jobs."""
    return CLUSTER.do(f"SELECT jobID, state, attempt FROM {SCHEMA}.jobs ORDER BY jobID")


@pytest.mark.parametrize("name", ["a", "b,a", "a*", "*"])
async def test_takes_whose_unit_cannot_be_serialized_are_done_again(
    name: str, live: Live, conflicts: Conflicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(live.ask(c.CreateJob(name="a")) for _ in range(3)))
    await conflicts(1)
    opened = counted_units(live, monkeypatch, lambda _: None)
    taken = await asyncio.gather(*(live.ask(c.GetJob(name=name)) for _ in range(3)))
    assert sorted(json.loads(body(one))["jobID"] for one in taken) == [1, 2, 3]
    assert rows_of_jobs() == [(job_id, "RUNNING", 1) for job_id in (1, 2, 3)]
    assert len(opened) == 4, "all in one unit, which is undone, and then each in its own"


async def test_a_take_that_cannot_be_serialized_alone_is_refused_and_takes_nothing(
    live: Live, conflicts: Conflicts
) -> None:
    await live.ask(c.CreateJob(name="a"))
    await conflicts(1)
    refused = await live.ask(c.GetJob(name="a"))
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Database busy"
    assert rows_of_jobs() == [(1, "QUEUED", 0)]
    assert '"jobID":1,' in body(await live.ask(c.GetJob(name="a")))


async def test_who_waits_goes_on_waiting_if_the_unit_cannot_be_serialized(
    live: Live, conflicts: Conflicts
) -> None:
    waiting = live.send(c.GetJob(name="a", connection="wait"))
    await until(lambda: live.dispatcher.waiting == 1)
    await conflicts(1)
    assert isinstance(await live.ask(c.CreateJob(name="a")), Unavailable)
    assert rows_of_jobs() == []
    assert live.dispatcher.waiting == 1
    (created,) = [json.loads(body(await live.ask(c.CreateJob(name="a"))))["jobID"]]
    assert json.loads(body(await asyncio.wait_for(waiting, DEADLINE_S)))["jobID"] == created
    assert rows_of_jobs() == [(created, "RUNNING", 1)]


@pytest.mark.parametrize("waits", [False, True])
async def test_others_are_served_while_a_new_pattern_is_searched_for(
    live: Live, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)
    for name in ("SEARCHED_AT_ONCE", "ROWS_UNIT_MAX"):
        monkeypatch.setattr(heads, name, 5)
    await live.ask(c.CreateJobs(jobs=[c.JobSpec(name=f"n{number:03}/x") for number in range(200)]))
    await live.ask(c.CreateJob(name="zz/y"))
    found, missing = (
        live.send(c.GetJob(name=name, connection="wait") if waits else c.GetJob(name=name))
        for name in ("*/y", "*/none")
    )
    commits = live.dispatcher.commits
    for _ in range(5):
        assert '"jobID"' in body(await live.ask(c.CreateJob(name="other/x")))
    assert not found.done()
    assert live.dispatcher.commits >= commits + 5
    assert '"zz/y"' in body(await asyncio.wait_for(found, DEADLINE_S))
    if waits:
        await live.ask(c.CreateJob(name="late/none"))
        assert '"late/none"' in body(await asyncio.wait_for(missing, DEADLINE_S))
    else:
        assert isinstance(await asyncio.wait_for(missing, DEADLINE_S), NotFound)
