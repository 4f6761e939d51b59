"""Units of several servers: which waits for which, which skips locked rows, and that none deadlock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import permutations
from typing import Any, get_args

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.store.base import AccessPlan, StoreConflict
from bedrockjobs.store.postgresql.locks import AdvisoryKeys, LockKind
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import Server, until_blocked
from tests.protocol.talk import DEADLINE_S

Servers = Callable[[int], list[Server]]
Beside = Callable[[Callable[[], Any]], "Future[Any]"]


def test_two_takes_get_two_jobs(servers: Servers) -> None:
    one, other = servers(2)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    one.opened(c.GetJob(name="a"))
    assert other.do(c.GetJob, name="a")["jobID"] == 2
    one.commit()
    assert one.do(c.GetJob, name="a") == "404 No job found"


def test_who_wants_a_row_waits_for_its_unit_and_sees_what_it_did(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.do(c.CreateJob, name="a")
    one.opened(c.UpdateJob(job_id=1, data='{"by":1}'))
    update = beside(lambda: other.do(c.UpdateJob, jobID=1, data={"by": 2}))
    until_blocked(watcher)
    assert watcher.value("SELECT data FROM jobs") == "{}"
    one.commit()
    assert update.result(DEADLINE_S) is None
    assert watcher.value("SELECT data FROM jobs") == '{"by":2}'


def test_a_finish_that_comes_too_late_is_told(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.do(c.CreateJob, name="a")
    one.do(c.GetJob, name="a")
    one.opened(c.FinishJob(job_id=1))
    second = beside(lambda: other.do(c.FinishJob, jobID=1))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == "404 No job with this jobID"


def test_two_servers_keep_to_a_limit_of_runs_at_once(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.do(c.SetLimit, name="a", running=1)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    one.opened(c.GetJob(name="a", worker="w"))
    second = beside(lambda: other.do(c.GetJob, name="a", worker="v"))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == "404 No job found"
    one.do(c.FinishJob, jobID=1)
    assert other.do(c.GetJob, name="a", worker="v")["jobID"] == 2


def test_two_servers_keep_to_a_rate_of_starts(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.do(c.SetLimit, name="a", starts="1/1m")
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    one.opened(c.GetJob(name="a"))
    second = beside(lambda: other.do(c.GetJob, name="a"))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == "404 No job found"


def test_two_servers_keep_to_the_slots_of_a_key(servers: Servers) -> None:
    one, other = servers(2)
    for number in range(4):
        server = (one, other)[number % 2]
        server.do(c.CreateJob, name="a", concurrencyKey="k", concurrencyLimit=2)
    assert [one.do(c.GetJob, name="a")["jobID"], other.do(c.GetJob, name="a")["jobID"]] == [1, 2]
    assert [server.do(c.GetJob, name="a") for server in (one, other)] == ["404 No job found"] * 2
    other.do(c.FinishJob, jobID=1)
    assert one.do(c.GetJob, name="a")["jobID"] == 3
    assert other.do(c.GetJob, name="a") == "404 No job found"


def test_a_unique_job_is_created_once(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.opened(c.CreateJob(name="a", unique=True))
    second = beside(lambda: other.do(c.CreateJob, name="a", unique=True))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == {"jobID": 1}
    assert watcher.value("SELECT count(*) FROM jobs") == 1


def test_a_unique_job_whose_first_goes_meanwhile_is_the_second(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    one.opened(c.DeleteJob(job_id=1))
    second = beside(lambda: other.do(c.CreateJob, name="a", unique=True))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == {"jobID": 2}


def test_an_idempotency_key_counts_on_all_servers(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    one.opened(c.CreateJob(name="a", idempotency_key="k"))
    second = beside(lambda: other.do(c.CreateJob, name="a", idempotencyKey="k"))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) == {"jobID": 1}


def test_the_last_of_two_children_wakes_the_parent(servers: Servers, beside: Beside) -> None:
    """Each of two units sees the other's child as RUNNING: without a lock the parent would wait forever."""
    one, other, watcher = servers(3)
    one.do(c.CreateJob, name="parent")
    one.do(c.GetJob, name="parent")
    for _ in range(2):
        one.do(c.CreateJob, name="child", parentJobID=1)
    one.do(c.FinishJob, jobID=1)
    one.do(c.GetJobs, name="child", numResults=2)
    one.opened(c.FinishJob(job_id=2))
    second = beside(lambda: other.do(c.FinishJob, jobID=3))
    until_blocked(watcher)
    one.commit()
    assert second.result(DEADLINE_S) is None
    assert watcher.value("SELECT state FROM jobs WHERE jobID = 1") == "QUEUED"


@pytest.mark.parametrize("took", [0, 1])
def test_a_child_that_is_created_meanwhile_keeps_its_parent(
    took: int, servers: Servers, beside: Beside
) -> None:
    """A parent is kept if a unit is creating its child, whichever server took the parent."""
    *both, watcher = servers(3)
    one, other = both
    one.do(c.CreateJob, name="parent")
    both[took].do(c.GetJob, name="parent")
    one.opened(c.CreateJob(name="child", parent_job_id=1))
    finish = beside(lambda: other.do(c.FinishJob, jobID=1))
    until_blocked(watcher)
    one.commit()
    finish.result(DEADLINE_S)
    assert watcher.value("SELECT string_agg(state, ' ' ORDER BY jobID) FROM jobs") == "PAUSED QUEUED"


def test_a_lock_of_jobs_holds_between_servers(servers: Servers) -> None:
    one, other = servers(2)
    for _ in range(2):
        one.do(c.CreateJob, name="a", lock="L")
    one.opened(c.GetJob(name="a"))
    assert other.do(c.GetJob, name="a") == "404 No job found"
    one.commit()
    assert other.do(c.GetJob, name="a") == "404 No job found"
    one.do(c.FinishJob, jobID=1)
    assert other.do(c.GetJob, name="a")["jobID"] == 2


def test_a_pause_waits_for_open_units_and_then_holds_everywhere(servers: Servers, beside: Beside) -> None:
    one, other, watcher = servers(3)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    assert other.do(c.GetJob, name="b") == "404 No job found"
    one.opened(c.GetJob(name="a"))
    pause = beside(lambda: other.do(c.PauseJobs, name="a"))
    until_blocked(watcher)
    one.commit()
    assert pause.result(DEADLINE_S) is None
    assert one.do(c.GetJob, name="*") == "404 No job found"
    other.do(c.ResumeJobs, name="a")
    assert one.do(c.GetJob, name="*")["jobID"] == 2


def test_an_undone_unit_does_not_hide_that_pauses_were_changed(servers: Servers) -> None:
    one, other = servers(2)
    other.do(c.GetJob, name="a")
    one.do(c.PauseJobs, name="a")
    assert other.open().unit.caches_dropped  # type: ignore[attr-defined]
    other.store.rollback()
    assert other.open().unit.caches_dropped  # type: ignore[attr-defined]
    other.commit()
    assert not other.open().unit.caches_dropped  # type: ignore[attr-defined]


def test_what_no_plan_foresaw_is_not_waited_for_among_others(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    one.opened(c.UpdateJob(job_id=1, data='{"by":1}'))
    context: Context = other.open(c.CreateJob(name="b"), c.CreateJob(name="c"))
    with pytest.raises(StoreConflict):
        context.unit.job(1)
    other.store.rollback()
    one.commit()
    assert other.do(c.QueryJob, jobID=1)["data"] == {"by": 1}


def test_events_count_up_in_the_order_of_commits(servers: Servers) -> None:
    """A unit that wrote its event first commits last: its event has the higher number."""
    one, other = servers(2)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    one.opened(c.TriggerJob(job_id=1))
    one.store.unit.job(2)  # which sends the deferred writes
    context = other.open(c.CreateJob(name="b"))
    context.note("first", name="b")
    other.commit()
    one.commit()
    assert one.value("SELECT string_agg(kind, ' ' ORDER BY seq) FROM events") == "first triggered"


PLANS = [
    AccessPlan(jobs=(3, 1), names=("x", "y"), keys=("k",)),
    AccessPlan(jobs=(2, 4), names=("y", "x"), keys=("k",)),
    AccessPlan(jobs=(4, 1, 2), keys=("k",)),
]
"""Parents 1 and 2, and their children 3 and 4, named in all orders."""


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_units_never_wait_in_a_circle(order: tuple[int, ...], servers: Servers, beside: Beside) -> None:
    several = servers(3)
    for name, parent in (("p", 0), ("q", 0), ("c", 1), ("c", 2)):
        several[0].do(c.CreateJob, name=name, parentJobID=parent)
        several[0].do(c.GetJob, name=name)

    def unit(server: Server, plan: AccessPlan) -> None:
        for _ in range(20):
            server.store.begin([plan])
            for job_id in plan.jobs:
                job = server.store.unit.job(job_id)
                server.store.unit.save(job._replace(attempt=job.attempt + 1))
            server.store.commit()

    running = [beside(lambda s=several[n], p=PLANS[n]: unit(s, p)) for n in order]
    for one in running:
        one.result(DEADLINE_S)
    assert several[0].value("SELECT sum(attempt) FROM jobs") == 2 + 20 * sum(len(plan.jobs) for plan in PLANS)


def test_another_order_would_be_a_circle(servers: Servers, beside: Beside) -> None:
    """The control: without plans, two units that lock each other's rows deadlock."""
    one, other, watcher = servers(3)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    first, second = one.open(), other.open()
    first.unit.job(1)
    second.unit.job(2)
    waits = beside(lambda: first.unit.job(2))
    until_blocked(watcher)
    outcomes = [_conflict(lambda: second.unit.job(1)), _conflict(lambda: waits.result(DEADLINE_S))]
    assert any(outcomes)


def _conflict(act: Callable[[], Any]) -> bool:
    try:
        act()
    except StoreConflict:
        return True
    return False


def test_locks_whose_numbers_follow_from_the_schema_stop_nobody(servers: Servers) -> None:
    """Any role that may connect can take them."""
    (one,) = servers(1)
    known = AdvisoryKeys(SCHEMA)
    with psycopg.connect(CLUSTER.url) as stranger:
        for kind in get_args(LockKind):
            for text in ("", "a", "k", "L"):
                stranger.execute("SELECT pg_advisory_xact_lock(%s)", (known.key_of(kind, text),))
        for spec in ({"name": "a", "unique": True}, {"name": "b", "lock": "L"}):
            job = one.do(c.CreateJob, idempotencyKey="k" + spec["name"], **spec)
            assert one.do(c.GetJob, name=spec["name"])["jobID"] == job["jobID"]
        assert one.do(c.PauseJobs, name="x") is None
        CLUSTER.another().close()  # another server starts


def test_another_schema_has_other_locks_and_so_has_another_database() -> None:
    numbers = {
        keys.key_of("control") for keys in (AdvisoryKeys("a", "1"), AdvisoryKeys("a", "2"), AdvisoryKeys("a"))
    }
    assert len(numbers) == 3


def test_the_first_unit_that_sees_a_workflow_locks_it_too(servers: Servers) -> None:
    """A server does not look for workflows before it has seen a job of one."""
    maker, other, watcher = servers(3)
    jobs = [{"ref": "a", "name": "a"}, {"ref": "b", "name": "b", "after": ["a"]}]
    made = maker.do(c.CreateWorkflow, name="w", jobs=jobs)
    maker.do(c.GetJob, name="a")
    locked = "SELECT count(*) FROM (SELECT 1 FROM workflows FOR UPDATE SKIP LOCKED) AS free"
    for job_id, expected in ((maker.do(c.CreateJob, name="plain")["jobID"], 1), (made["jobIDs"]["a"], 0)):
        other.open(c.UpdateJob(job_id=job_id, data="{}"))
        assert watcher.value(locked) == expected
        other.store.rollback()
