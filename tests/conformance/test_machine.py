"""Random histories: the server's handlers always reply as the reference model does."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bedrockjobs import commands as c
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Compatibility, Settings
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import ModelEngine, Queue, SQLiteQueue
from tests.conformance.state_changes import StateChanges
from tests.effort import examples
from tests.model import Outcome

EXAMPLES = int(os.environ.get("BEDROCKJOBS_TEST_EXAMPLES", examples(16, night=1_000)))
WORKFLOW_EXAMPLES = examples(5, night=1_000)
"""Histories with workflows: a forgotten count is found in six, a forgotten wait in fifty."""
STEPS = int(os.environ.get("BEDROCKJOBS_TEST_STEPS", "50"))

NAMES = st.sampled_from(["a", "b", "ab", "manual/x", "[c]"])
PATTERNS = st.sampled_from(["*", "a", "a*", "?", "*b*", "a,b", "b, manual/x", "[[]c]", "manual/*", "zz"])
DATA = st.sampled_from(
    [
        "{}",
        '{"k":1}',
        '{"k":null,"m":{"n":2.50}}',
        '{"delete":true}',
        '{"mockRequest":true}',
        '{"mockRequest":false}',
        '{"retryAfterCount":9}',
        '{"retryAfterCount":10,"x":[]}',
    ]
)
REPEATS = st.sampled_from(
    [
        "",
        "",
        "FINISHED, +1 HOUR",
        "SCHEDULED, +1 DAY",
        "scheduled, +1 minute",
        "STARTED, +5 MINUTES",
        "HOURLY",
        "DAILY",
        "bogus",
        "SCHEDULED, +1 HOUR, START OF HOUR",
        "FINISHED, +999 YEARS",
        "CRON */5 * * * *",
        "cron TZ=Europe/Berlin 30 2 * * *",
        "CRON 61 * * * *",
        "CRON @never",
    ]
)
RETRY_AFTER = st.sampled_from(["", "", "", "+1 MINUTE", "+0 SECONDS", "+2 HOURS", "5 minutes"])
STAMPS = st.sampled_from(
    [
        None,
        None,
        None,
        "2026-01-05 10:00:00",
        "2026-01-05 10:01:00",
        "2026-01-06",
        "2020-01-01 00:00:07",
        "1m",
        "+1 HOUR",
        "-1.5s",
    ]
)
PRIORITIES = st.sampled_from([None, None, 0, 500, 1000])
IDS = st.integers(1, 9)
NUMBER = st.integers(0, 9)
RUNS = st.sampled_from([None, None, None, 1, 2, 3])
FLAGS = st.booleans()
MAYBE_DATA = st.one_of(st.none(), DATA)


def given(**parameters: Any) -> dict[str, Any]:
    """Return the parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


class Histories(RuleBasedStateMachine):
    """The same commands on the server's handlers and on the model."""

    mode: ClassVar[Compatibility]

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.model = ModelEngine(self.mode)
        self.queue = self.opened()

    def opened(self) -> Queue:
        """Return an empty queue."""
        queue = SQLiteQueue(SQLiteEngine(":memory:", Settings(patterns_cached_max=4)), self.mode)
        self.changes = StateChanges(queue.store)
        return queue

    def teardown(self) -> None:
        """Check that every change of state in the database is a transition of the life cycle."""
        assert self.changes.strange() == set()
        self.queue.store.close()

    def both(self, kind: type[c.Command[Any]], **parameters: Any) -> Outcome:
        """Execute a command on both and compare."""
        try:
            command = kind.read(given(**parameters))
        except CommandError:
            return Outcome(402, "", None)
        expected, found = self.model.call(command), self.queue.call(command)
        assert found == expected, f"{kind.__name__} {command.wire()}"
        return found

    @rule(
        name=NAMES,
        data=DATA,
        repeat=REPEATS,
        retry=RETRY_AFTER,
        first=STAMPS,
        priority=PRIORITIES,
        parent=st.one_of(st.just(0), st.just(0), IDS),
        mock=st.sampled_from([False, False, False, True]),
        failing=st.sampled_from([None, None, "continue", "fail"]),
    )
    def create(self, name, data, repeat, retry, first, priority, parent, mock, failing):
        """Create a job."""
        self.both(
            c.CreateJob,
            name=name,
            data=data,
            repeat=repeat,
            retryAfter=retry,
            firstRun=first,
            jobPriority=priority,
            parentJobID=parent,
            mockRequest=mock,
            onChildFailure=failing,
        )

    @rule(
        name=NAMES,
        data=DATA,
        repeat=REPEATS,
        priority=PRIORITIES,
        overwrite=FLAGS,
        parent=st.one_of(st.just(0), IDS),
    )
    def create_unique(self, name, data, repeat, priority, overwrite, parent):
        """Create a job with ``unique``."""
        self.both(
            c.CreateJob,
            name=name,
            data=data,
            repeat=repeat,
            jobPriority=priority,
            unique=True,
            overwrite=overwrite,
            parentJobID=parent,
        )

    @rule(
        name=st.sampled_from(["a", "b"]),
        key=st.sampled_from(["k", "l"]),
        until=st.sampled_from([None, "finished", "started", 60]),
        conflict=st.sampled_from([None, "ignore", "replace", "reject"]),
        data=DATA,
        repeat=st.sampled_from(["", "", "FINISHED, +1 HOUR", "CRON */5 * * * *"]),
        retry=st.sampled_from(["", "", "+1 MINUTE"]),
        first=STAMPS,
        parent=st.sampled_from([0, 0, 1, 2, 3]),
        several=FLAGS,
    )
    def create_keyed(self, name, key, until, conflict, data, repeat, retry, first, parent, several):
        """Create a job unless another one holds its key."""
        spec = given(
            name=name,
            uniqueKey=key,
            uniqueFor=until,
            onConflict=conflict,
            data=data,
            repeat=repeat,
            retryAfter=retry,
            firstRun=first,
            parentJobID=parent,
        )
        if several:
            self.both(c.CreateJobs, jobs=[spec, {"name": name}, spec])
        else:
            self.both(c.CreateJob, **spec)

    @rule(names=st.lists(st.tuples(NAMES, REPEATS, st.sampled_from([0, 0, 1, 2])), min_size=1, max_size=3))
    def create_several(self, names):
        """Create all or none."""
        jobs = [{"name": name, "repeat": repeat, "parentJobID": parent} for name, repeat, parent in names]
        self.both(c.CreateJobs, jobs=jobs)

    @rule(
        name=PATTERNS,
        priority=PRIORITIES,
        mocked=st.sampled_from([{}, {}, {"getMockedJobs": True}, {"mockRequest": True}]),
        worker=st.sampled_from([{}, {}, {"worker": "w"}, {"worker": "w", "heartbeat": True}]),
    )
    def get(self, name, priority, mocked, worker):
        """Take a job."""
        self.both(c.GetJob, name=name, jobPriority=priority, **worker, **mocked)

    @rule(name=PATTERNS, count=st.integers(1, 4), several=st.sampled_from([None, ["a*", "b"], ["?", "[[]*"]]))
    def get_several(self, name, count, several):
        """Take jobs."""
        which = {"names": several} if several else {"name": name}
        self.both(c.GetJobs, numResults=count, **which)

    @rule(
        job=IDS,
        data=MAYBE_DATA,
        run=RUNS,
        code=st.sampled_from([None, 0]),
        then=st.sampled_from([None, None, "*", "a*"]),
    )
    def finish(self, job, data, run, code, then):
        """Finish a run."""
        self.both(c.FinishJob, jobID=job, data=data, runID=run, exitCode=code, thenGet=then)

    @rule(
        jobs=st.lists(st.tuples(IDS, MAYBE_DATA), min_size=1, max_size=3),
        then=st.sampled_from([None, "*", "a*"]),
        count=st.integers(1, 3),
    )
    def finish_several(self, jobs, then, count):
        """Finish several runs, each independently, and take the next jobs."""
        specs = [given(jobID=job, data=data) for job, data in jobs]
        self.both(c.FinishJobs, jobs=specs, thenGet=then, numResults=count)

    @rule(
        job=IDS,
        delay=st.sampled_from([None, 0, 30]),
        at=STAMPS,
        name=st.one_of(st.none(), NAMES),
        data=MAYBE_DATA,
        priority=PRIORITIES,
        ignore=FLAGS,
        returned=FLAGS,
        revive=FLAGS,
        snoozed=FLAGS,
        run=RUNS,
    )
    def retry(self, job, delay, at, name, data, priority, ignore, returned, revive, snoozed, run):
        """Queue again."""
        self.both(
            c.RetryJob,
            jobID=job,
            delay=delay,
            nextRun=at,
            name=name,
            data=data,
            jobPriority=priority,
            ignoreRepeat=ignore,
            returned=returned,
            revive=revive,
            snoozed=snoozed,
            runID=run,
        )

    @rule(
        job=IDS,
        data=MAYBE_DATA,
        error=st.sampled_from([None, "no", 'q"\n']),
        code=st.sampled_from([None, 3]),
        run=RUNS,
    )
    def fail(self, job, data, error, code, run):
        """Fail a run."""
        self.both(c.FailJob, jobID=job, data=data, error=error, exitCode=code, runID=run)

    @rule(job=IDS, data=MAYBE_DATA, repeat=REPEATS, priority=PRIORITIES, at=STAMPS, clear=FLAGS)
    def update(self, job, data, repeat, priority, at, clear):
        """Change a job."""
        self.both(
            c.UpdateJob,
            jobID=job,
            data=data,
            repeat=repeat or None,
            jobPriority=priority,
            nextRun=at,
            shouldClearRepeat=clear,
        )

    @rule(job=IDS, any_job=FLAGS)
    def cancel(self, job, any_job):
        """Cancel a child, or any job."""
        self.both(c.CancelJob, jobID=job, any=any_job)

    @rule(job=IDS)
    def delete(self, job):
        """Delete a job."""
        self.both(c.DeleteJob, jobID=job)

    @rule(jobs=st.lists(IDS, min_size=1, max_size=3), name=st.one_of(st.none(), NAMES), fewer=FLAGS)
    def requeue(self, jobs, name, fewer):
        """Requeue jobs."""
        self.both(c.RequeueJobs, jobIDs=jobs, name=name, decrementFailures=fewer)

    @rule(names=st.sampled_from([["a"], ["b*"]]), on=FLAGS)
    def crash(self, names, on):
        """Change the list of names whose jobs fail."""
        self.both(c.CrashBedrockJob if on else c.ClearCrashedBedrockJobs, names=names)

    @rule(seconds=st.sampled_from([0.001, 1, 59.75, 3600, 86_400]))
    def wait(self, seconds):
        """Let time pass."""
        self.model.advance(seconds)
        self.queue.advance(seconds)

    @invariant()
    def same_jobs(self) -> None:
        """Check that both show the same jobs."""
        self.both(c.ListJobs)


REFS = "abcdef"

WORKFLOW_JOBS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "after": st.sets(st.integers(0, 5), max_size=3)},
        optional={
            "onFailure": st.sampled_from(["cancel", "continue", "ignore"]),
            "mockRequest": st.sampled_from([False, False, True]),
            "retryAfter": RETRY_AFTER,
            "onChildFailure": st.sampled_from(["continue", "fail"]),
            "firstRun": STAMPS.filter(bool),
        },
    ),
    min_size=1,
    max_size=5,
)
"""Jobs of a workflow; each is after some of those before it, by their distance."""


def graph(jobs: list[dict[str, Any]], first: int = 0, known: str = "") -> list[dict[str, Any]]:
    """Return jobs with refs from a number on, which are after others before them or ``known`` ones."""
    refs = [*known, *REFS[first : first + len(jobs)]]
    made = []
    for place, job in enumerate(jobs[: len(REFS) - first], len(known)):
        after = [refs[place - distance - 1] for distance in sorted(job["after"]) if distance < place]
        made.append({**job, "ref": refs[place], "after": after})
    return made


class WorkflowHistories(Histories):
    """Histories with workflows."""

    mode = "document"

    def a_workflow(self, number: int) -> int:
        """Return an ID of a workflow, if there is one."""
        workflows = [row["workflowID"] for row in self.workflows_there()]
        return int(workflows[number % len(workflows)]) if workflows else number

    def workflows_there(self) -> list[dict[str, Any]]:
        """Return the workflows."""
        return self.model.model.workflows()

    @rule(jobs=WORKFLOW_JOBS, keep=st.sampled_from([None, 600]))
    def create_workflow(self, jobs, keep):
        """Create a workflow."""
        self.both(c.CreateWorkflow, name="w", jobs=graph(jobs), keep=keep)

    @rule(
        jobs=WORKFLOW_JOBS,
        first=st.integers(1, 5),
        known=st.sampled_from(["a", "ab", "abc", "f"]),
        number=NUMBER,
        existing=st.sampled_from([None, "keep"]),
        own=FLAGS,
    )
    def add_to_workflow(self, jobs, first, known, number, existing, own):
        """Add jobs to a workflow, from outside or from one of its jobs."""
        which = {"jobID": number + 1} if own else {"workflowID": self.a_workflow(number)}
        self.both(c.AddToWorkflow, jobs=graph(jobs, first, known), existing=existing, **which)

    @rule(kind=st.sampled_from([c.CancelWorkflow, c.RetryWorkflow, c.RetryWorkflow]), number=NUMBER)
    def change_workflow(self, kind, number):
        """Cancel or retry a workflow."""
        self.both(kind, workflowID=self.a_workflow(number))

    @rule(
        ends=st.lists(
            st.tuples(
                st.sampled_from([c.FinishJob, c.FinishJob, c.FinishJob, c.FailJob, c.CancelJob, c.DeleteJob]),
                st.sampled_from([None, '{"n":1}', "{}"]),
            ),
            min_size=1,
            max_size=4,
        ),
        stay=st.integers(0, 2),
    )
    def work(self, ends, stay):
        """Take jobs and end most of them."""
        for number, (kind, data) in enumerate(ends):
            taken = self.both(c.GetJob, name="*")
            if taken.code == 200 and taken.body and number >= stay:
                more = (
                    {"any": True} if kind is c.CancelJob else {} if kind is c.DeleteJob else given(data=data)
                )
                self.both(kind, jobID=taken.body["jobID"], **more)

    @rule(job=IDS)
    def query(self, job):
        """Show a job of a workflow, which may have ended."""
        if any(job == each["jobID"] for row in self.workflows_there() for each in row["jobs"]):
            self.both(c.QueryJob, jobID=job)

    @invariant()
    def same_workflows(self) -> None:
        """Check that both have the same workflows."""
        assert self.queue.workflows() == self.workflows_there()


class DocumentHistories(Histories):
    """Histories in document mode."""

    mode = "document"


class CurrentHistories(Histories):
    """Histories in current mode."""

    mode = "current"


LIMITS = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDocument = DocumentHistories.TestCase
TestDocument.settings = LIMITS
TestWorkflows = WorkflowHistories.TestCase
TestWorkflows.settings = settings(LIMITS, max_examples=WORKFLOW_EXAMPLES)
TestCurrent = CurrentHistories.TestCase
TestCurrent.settings = LIMITS
