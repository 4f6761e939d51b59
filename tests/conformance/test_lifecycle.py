"""The life cycle in the database: every transition is observed, and no other change of state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.config import LOST_RUNS_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import maintenance
from bedrockjobs.engine.handlers import failing, take
from bedrockjobs.engine.handlers.context import Answer, Context, Taken
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import RequestedNames
from bedrockjobs.job.lifecycle import ARROWS, GONE, NotAnArrow, allows, arrows, move, target
from bedrockjobs.job.rows import Job
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance import state_changes
from tests.conformance.engine import SQLiteQueue
from tests.conformance.state_changes import StateChanges

SEEDS = 40


class Worker:
    """A worker that asks for everything."""

    name, quiet, accepts, names, by, served, joined = "h1", False, (), ["*"], "", False, ""


class OneWorker:
    """A presence of one worker."""

    workers: Any = {"h1": Worker()}

    @property
    def requested_names(self) -> RequestedNames:
        """Return the requested names."""
        asked = RequestedNames()
        for name, worker in self.workers.items():
            asked.put(name, worker.names)
        return asked


class Queue(SQLiteQueue):
    """A queue whose takes can be returned, and whose maintenance runs at once."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__(SQLiteEngine(":memory:", Settings()), "document")
        self.changes = StateChanges(self.store)

    def do(self, kind: type[c.Command[Any]], **given: Any) -> Any:
        """Execute a command; return its body, None if it is refused."""
        return self.call(kind.read(given)).body

    def act(self, act: Any, *given: Any) -> None:
        """Execute a maintenance task in its own transaction."""
        context = Context(self.store.begin(), "document", OneWorker(), moment=self.clock.now())
        act(context, *given)
        self.store.commit()

    def job(self, job_id: int) -> Job:
        """Return a job."""
        found = self.store.unit.job(job_id)
        assert found is not None
        return found

    def take_and_return(self, name: str) -> None:
        """Take a job with a reply that cannot be delivered."""
        context = Context(self.store.begin(), "document", NoWorkers(), moment=self.clock.now())
        answer = take.get_job(context, c.GetJob(name=name, get_mocked_jobs=True))
        assert isinstance(answer, Answer)
        taken: list[Taken] = list(answer.taken)
        take.put_back(context, taken)
        self.store.commit()

    def family(self) -> None:
        """Create the RUNNING parent 1 and its PAUSED child 2."""
        self.do(c.CreateJob, name="parent")
        self.do(c.GetJob, name="parent")
        self.do(c.CreateJob, name="child", parentJobID=1)


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Return an empty queue."""
    queue = Queue()
    yield queue
    queue.store.close()


def plain(queue: Queue) -> None:
    """Take, return, retry, fail, revive, delete."""
    for _ in range(3):
        queue.do(c.CreateJob, name="a")
    queue.take_and_return("a")
    queue.do(c.GetJob, name="a")
    queue.do(c.RetryJob, jobID=1)
    queue.do(c.GetJob, name="a")
    queue.do(c.FailJob, jobID=1)
    queue.do(c.RetryJob, jobID=1, revive=True)
    queue.do(c.GetJob, name="a")
    queue.do(c.FinishJob, jobID=1)
    queue.do(c.DeleteJob, jobID=2)
    queue.do(c.GetJob, name="a")
    queue.do(c.FailJob, jobID=3)
    queue.do(c.DeleteJob, jobID=3)


def lost_deliveries(queue: Queue) -> None:
    """Every way in which a job with retryAfter can end."""
    for number in range(1, 8):
        queue.do(c.CreateJob, name="r", retryAfter="+1 MINUTE")
        queue.do(c.GetJob, name="r")
        assert queue.job(number).state == "RUNQUEUED"
        if number == 1:
            queue.do(c.FinishJob, jobID=1)
        elif number == 2:
            queue.do(c.RetryJob, jobID=2)
            queue.do(c.DeleteJob, jobID=2)
        elif number == 3:
            queue.do(c.FailJob, jobID=3)
        elif number == 4:
            queue.do(c.DeleteJob, jobID=4)
        elif number == 5:
            queue.advance(61)
            queue.take_and_return("r")
            queue.do(c.RequeueJobs, jobIDs=[5])
            queue.do(c.DeleteJob, jobID=5)
        elif number == 6:
            queue.do(c.UpdateJob, jobID=6, data={"retryAfterCount": LOST_RUNS_MAX})
            queue.advance(61)
            queue.do(c.GetJob, name="r")
            assert queue.job(6).state == "FAILED"


def crash_list(queue: Queue) -> None:
    """Jobs that fail instead of being handed out."""
    queue.do(c.CreateJob, name="bad")
    queue.do(c.CrashBedrockJob, names=["bad"])
    queue.do(c.GetJob, name="bad")
    assert queue.job(1).state == "FAILED"


def families(queue: Queue) -> None:
    """Every way in which parents and children can end."""
    queue.family()
    queue.do(c.CreateJob, name="child", parentJobID=1)
    queue.do(c.CreateJob, name="late", parentJobID=1, retryAfter="+1 MINUTE")
    queue.do(c.FinishJob, jobID=1)
    queue.do(c.GetJob, name="child")
    queue.do(c.FinishJob, jobID=2)
    queue.do(c.CancelJob, jobID=3)
    queue.do(c.GetJob, name="late")
    queue.do(c.CancelJob, jobID=4)
    assert queue.job(1).state == "QUEUED", "the children have ended"
    queue.do(c.GetJob, name="parent")
    queue.do(c.FinishJob, jobID=1)


def a_child_that_finishes_late(queue: Queue) -> None:
    """A child whose delivery may be lost ends well; its parent has another, which fails."""
    queue.family()
    queue.do(c.CreateJob, name="late", parentJobID=1, retryAfter="+1 MINUTE")
    queue.do(c.FinishJob, jobID=1)
    queue.do(c.GetJob, name="late")
    queue.do(c.FinishJob, jobID=3)
    queue.do(c.GetJob, name="child")
    queue.do(c.FailJob, jobID=2)
    queue.do(c.CancelJob, jobID=2)
    assert queue.job(2).state == "CANCELLED"
    queue.do(c.DeleteJob, jobID=2)
    queue.do(c.DeleteJob, jobID=3)


def parents_that_end(queue: Queue) -> None:
    """A parent fails before its children ran, and one with a retryAfter pauses."""
    queue.family()
    queue.do(c.FailJob, jobID=1)
    assert queue.job(2).state == "CANCELLED"
    queue.do(c.CreateJob, name="p", retryAfter="+1 MINUTE")
    queue.do(c.GetJob, name="p")
    queue.do(c.CreateJob, name="k", parentJobID=3)
    queue.do(c.FinishJob, jobID=3)
    queue.do(c.GetJob, name="nothing")
    queue.do(c.RequeueJobs, jobIDs=[3])
    queue.do(c.DeleteJob, jobID=3)


def time(queue: Queue) -> None:
    """Leases, deadlines, and jobs that no worker takes in time."""
    queue.do(c.CreateJob, name="lease")
    queue.do(c.GetJob, name="lease", worker="w", heartbeat=True)
    queue.act(failing.lease_over, 1)
    assert queue.job(1).state == "QUEUED"
    queue.do(c.UpdateJob, jobID=1, onLost="fail")
    queue.do(c.GetJob, name="lease", worker="w", heartbeat=True)
    queue.act(failing.lease_over, 2)
    assert queue.job(1).state == "FAILED"
    queue.do(c.CreateJob, name="slow", retryAfter="+1 HOUR", runTimeout=1)
    queue.do(c.GetJob, name="slow")
    queue.act(failing.time_over, queue.job(2))
    assert queue.job(2).state == "QUEUED"
    queue.do(c.CreateJob, name="old", expireAfter=1)
    queue.act(failing.time_over, queue.job(3))


def schedules(queue: Queue) -> None:
    """A schedule of a source, one on all hosts, and one that can no longer be evaluated."""
    queue.do(c.SyncSchedules, source="s", schedules=[{"name": "x", "repeat": "CRON @daily"}])
    queue.do(c.TriggerJob, name="x")
    queue.do(c.GetJob, name="x", worker="w", heartbeat=True)
    queue.do(c.FinishJob, jobID=1)
    queue.do(c.TriggerJob, name="x")
    queue.do(c.GetJob, name="x", worker="w", heartbeat=True)
    queue.do(c.SyncSchedules, source="s", schedules=[])
    queue.do(c.FailJob, jobID=1)
    queue.do(c.SyncSchedules, source="s", schedules=[{"name": "y", "repeat": "CRON @daily"}])
    queue.do(c.SyncSchedules, source="s", schedules=[])
    queue.do(c.CreateJob, name="e", repeat="CRON @daily", hosts="all")
    queue.do(c.TriggerJob, name="e")
    queue.act(lambda context: maintenance.fire_on_all_hosts(context, context.unit.job(3)))
    queue.do(c.CrashBedrockJob, names=["e"])
    queue.do(c.GetJob, name="e", worker="h1")


def broken_schedules(queue: Queue) -> None:
    """A schedule whose zone is gone fails while it waits, while it runs, and is repaired."""
    queue.do(c.CreateJob, name="z", repeat="CRON 0 0 1 1 *")

    def zone_gone() -> None:
        queue.act(
            lambda context: context.unit.save(queue.job(1)._replace(repeat="CRON TZ=Mars/Base * * * * *"))
        )

    zone_gone()
    queue.advance(400 * 86_400)
    queue.do(c.GetJob, name="z")
    assert queue.job(1).state == "FAILED"
    queue.do(c.UpdateJob, jobID=1, repeat="CRON * * * * *")
    queue.advance(61)
    queue.do(c.GetJob, name="z")
    zone_gone()
    queue.do(c.FinishJob, jobID=1)
    assert queue.job(1).state == "FAILED"
    queue.do(c.CreateJob, name="late", retryAfter="+1 MINUTE")
    queue.do(c.GetJob, name="late")
    queue.act(lambda context: failing.stop_schedule(context, queue.job(2), failing.CannotEvaluate("x")))
    queue.do(c.CreateJob, name="waits")
    queue.do(c.GetJob, name="waits")
    queue.do(c.CreateJob, name="child", parentJobID=3)
    queue.do(c.FinishJob, jobID=3)
    queue.act(lambda context: failing.set_aside(context, queue.job(3)))


def cancelled_runs(queue: Queue) -> None:
    """A run that is cancelled leaves its job queued, cancelled or gone."""
    for state in lifecycle.WORKING:
        for facts in ((), ("has parent",), ("runs again",)):
            queue.act(partial(_stopped, state=state, facts=facts))


def _stopped(context: Context, state: str, facts: tuple[Any, ...]) -> None:
    job = Job(context.now, context.unit.new_job_id(), state, "x", context.now)
    context.unit.insert(job)
    context.save(move(job, "stop", *facts))


def sources_that_remove(queue: Queue) -> None:
    """Schedules that their source no longer defines are deleted in any state."""
    for state in ("PAUSED", "FINISHED", "FAILED", "CANCELLED"):
        queue.act(lambda context, state=state: _removed(context, state))


def _removed(context: Context, state: str) -> None:
    job = Job(context.now, context.unit.new_job_id(), state, "x", context.now)
    context.unit.insert(job)
    context.save(move(job, "remove"))


def mocked(queue: Queue) -> None:
    """A mocked job can be finished and retried, and any job requeued, in every state."""
    queue.do(c.CreateJob, name="parent", mockRequest=True)
    for state in lifecycle.STATES:
        for way in ("alone", "parent", "child", "again"):
            queue.act(partial(_mocked_in, state=state, way=way, queue=queue))


def _mocked_in(context: Context, state: str, way: str, queue: Queue) -> None:
    job = Job(context.now, context.unit.new_job_id(), state, "m", context.now, lane="mock")
    context.unit.insert(job)
    facts: dict[str, tuple[Any, ...]] = {
        "alone": (),
        "parent": ("children pending",),
        "child": ("has parent",),
        "again": ("runs again",),
    }
    if allows("retry mocked", state):
        context.save(move(job, "retry mocked"))
        context.save(job)
    done = move(job, "finish mocked", *facts[way])
    context.save(done)
    if done.state != GONE:
        context.save(move(done, "requeue"))


STORIES = [
    plain,
    lost_deliveries,
    crash_list,
    families,
    a_child_that_finishes_late,
    parents_that_end,
    time,
    schedules,
    broken_schedules,
    sources_that_remove,
    mocked,
    cancelled_runs,
]
"""Each makes some transitions; together they make all of them."""

DIRECT = {sources_that_remove, mocked, cancelled_runs}
"""Stories that insert rows in any state; their insertions are not counted."""


def test_every_arrow_is_seen_and_no_other() -> None:
    seen: set[state_changes.Change] = set()
    for story in STORIES:
        queue = Queue()
        story(queue)
        found = queue.changes.seen()
        if story in DIRECT:
            found = {change for change in found if change[0] != GONE}
        assert found - state_changes.ARROWS == set(), story.__name__
        seen |= found
        queue.store.close()
    assert state_changes.ARROWS - seen == set()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories_know_no_other(seed: int, queue: Queue) -> None:
    dice = random.Random(seed)
    for _ in range(120):
        queue.advance(dice.choice([0, 1, 70]))
        _anything(queue, dice, dice.randint(1, 8))
    assert queue.changes.strange() == set()


def _anything(queue: Queue, dice: random.Random, job_id: int) -> None:
    new = {
        "name": dice.choice("abc"),
        "parentJobID": dice.choice([0, job_id]),
        "retryAfter": dice.choice(["", "+1 MINUTE"]),
        "retries": dice.choice([0, 2]),
    }
    dice.choice(
        [
            lambda: queue.do(c.CreateJob, **new),
            lambda: queue.do(c.CreateJob, name="s", repeat="CRON * * * * *", unique=True),
            lambda: queue.do(c.GetJob, name="*", worker="w", heartbeat=True),
            lambda: queue.do(c.GetJob, name="*"),
            lambda: queue.do(c.FinishJob, jobID=job_id),
            lambda: queue.do(c.FailJob, jobID=job_id),
            lambda: queue.do(c.RetryJob, jobID=job_id, revive=True),
            lambda: queue.do(c.CancelJob, jobID=job_id),
            lambda: queue.do(c.DeleteJob, jobID=job_id),
            lambda: queue.do(c.RequeueJobs, jobIDs=[job_id]),
            lambda: queue.do(c.TriggerJob, jobID=job_id),
            lambda: queue.act(failing.lease_over, dice.randint(1, 9)),
        ]
    )()


def test_what_the_table_does_not_have_is_refused() -> None:
    job = Job("", 1, "FINISHED", "a", "")
    with pytest.raises(NotAnArrow, match="take of a job that is FINISHED"):
        move(job, "take")
    assert not allows("retry", "PAUSED")
    assert {event for event, _, _ in arrows()} == set(ARROWS)


def test_every_state_can_be_reached_and_left() -> None:
    for state in lifecycle.STATES:
        assert any(after == state for _, _, after in arrows())
        assert any(before == state for _, before, _ in arrows())


def test_the_quick_ways_are_arrows() -> None:
    for event, before, after in (lifecycle.QUICK_CREATE, lifecycle.QUICK_TAKE, lifecycle.QUICK_FINISH):
        assert target(event, before) == after


def test_a_quick_way_ends_in_the_row_of_the_long_way() -> None:
    rows = []
    for long in (False, True):
        queue = Queue()
        if long:  # a memory that says nothing: no quick way is open to it
            queue.act(
                lambda context: context.unit.insert(
                    Job(
                        context.now,
                        context.unit.new_job_id(),
                        target("create", GONE),
                        "a",
                        context.now_ms,
                        memory_json='{"pending":false}',
                    )
                )
            )
        else:
            queue.do(c.CreateJob, name="a")
        created = queue.job(1)
        queue.do(c.GetJob, name="a")
        taken = queue.job(1)
        queue.do(c.FinishJob, jobID=1)
        assert queue.store.unit.job(1) is None
        rows.append([job._replace(memory_json="{}") for job in (created, taken)])
        queue.store.close()
    assert rows[0] == rows[1]
