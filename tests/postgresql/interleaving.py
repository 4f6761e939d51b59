"""Execute units of several servers step by step, in every possible interleaving.

A step that waits for a lock is left waiting while the others continue; its unit's later steps
follow when it is done.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import permutations
from operator import itemgetter
from time import monotonic
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.unit import perform
from bedrockjobs.store.postgresql.session import SessionRequirements
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import START, Queue, SQLiteQueue
from tests.model import Outcome
from tests.postgresql.cluster import CLUSTER, SCHEMA, emptied
from tests.postgresql.conftest import Server
from tests.protocol.talk import DEADLINE_S

Commands = Sequence[c.Command[Any]]
Step = Callable[[], object]

WAITS_FOR = "SELECT cardinality(pg_blocking_pids($1::int))"


@dataclass(frozen=True)
class Story:
    """The initial jobs, and units that run concurrently."""

    name: str
    before: Commands
    """The commands before the units, one by one; those that create jobs create 1, 2, ..."""
    units: Sequence[Commands]
    """The commands of each unit; they name jobs by the numbers above."""
    passes_over: bool = False
    """Whether a take may pass over what another unit has locked: then it is done again, behind all others."""
    alike: bool = False
    """Whether jobs of one name are not told apart, as a take may pass over the first and get the second."""


@dataclass
class Result:
    """The result of a story. It names jobs by labels, since jobIDs depend on the order of allocation."""

    outcomes: list[list[Any]]
    jobs: Any
    workflows: Any
    passed_over: bool = field(default=False, compare=False)


WORKFLOW_COMMANDS = c.AddToWorkflow, c.CancelWorkflow, c.RetryWorkflow
_LABELLED = "jobID", "parentJobID", "jobIDs", "workflowID"


class Labels:
    """Labels of jobs: their names, with a number if several jobs share a name."""

    def __init__(self, story: Story) -> None:
        """Start without labels."""
        self._alike = story.alike
        self._labels: dict[int, str] = {}
        self.numbers: list[int] = []
        """The jobs of before, in their order."""
        self.workflows: list[int] = []
        """The workflows of before, in their order."""

    def note(self, job_id: int, name: str) -> None:
        """Add a job created before the units."""
        self.numbers.append(job_id)
        self._labels[job_id] = name if self._alike else f"{name} {len(self.numbers)}"

    def note_workflow(self, made: dict[str, Any], command: c.CreateWorkflow) -> None:
        """Add a workflow created before the units, and its jobs."""
        self.workflows.append(made["workflowID"])
        self._labels[made["workflowID"]] = f"workflow {len(self.workflows)}"
        for job in command.jobs:
            self.note(made["jobIDs"][job.ref], job.name)

    def note_new(self, jobs: list[Any]) -> None:
        """Add the jobs that units created, one of each name."""
        for job in jobs:
            self._labels.setdefault(job["jobID"], job["name"])

    def of(self, value: Any, key: str = "") -> Any:
        """Return a value with labels in place of jobIDs."""
        if isinstance(value, dict):
            return {name: self.of(each, key if key == "jobIDs" else name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.of(each, key) for each in value]
        if key in ("error", "reason") and value:
            return re.sub(r"(?<=\b[Jj]ob )(\d+)", lambda found: self._labels[int(found[1])], value)
        return self._labels.get(value, value) if key in _LABELLED else value

    def given(self, command: c.Command[Any]) -> c.Command[Any]:
        """Return a command with real jobIDs in place of the story's."""
        changes: dict[str, Any] = {}
        for name in ("job_id", "parent_job_id"):
            number = getattr(command, name, 0)
            if number:
                changes[name] = self.numbers[number - 1]
        if isinstance(command, WORKFLOW_COMMANDS) and command.workflow_id:
            changes["workflow_id"] = self.workflows[command.workflow_id - 1]
        if isinstance(command, c.RequeueJobs):
            changes["job_ids"] = [self.numbers[number - 1] for number in command.job_ids]
        return command.model_copy(update=changes) if changes else command


def begin(queue: Queue, story: Story) -> Labels:
    """Execute the commands that come before the units."""
    labels = Labels(story)
    for command in story.before:
        outcome = queue.call(labels.given(command))
        assert outcome.code == 200, (command, outcome)
        if isinstance(command, c.CreateJob):
            labels.note(outcome.body["jobID"], command.name)
        if isinstance(command, c.CreateWorkflow):
            labels.note_workflow(outcome.body, command)
    return labels


def result_of(queue: Queue, outcomes: list[list[Outcome]], labels: Labels, *, passed_over: bool) -> Result:
    """Return the result of the units: their replies, and all jobs ordered by label."""
    jobs = queue.call(c.ListJobs.read({})).body["jobs"]
    labels.note_new(jobs)
    answers = [[labels.of([each.code, each.reason, each.body]) for each in unit] for unit in outcomes]
    workflows = queue.workflows()
    for workflow in workflows:
        workflow["jobs"].sort(key=itemgetter("ref"))
    labels.note_new([job for workflow in workflows for job in workflow["jobs"]])
    return Result(answers, sorted(labels.of(jobs), key=json.dumps), labels.of(workflows), passed_over)


def one_by_one(story: Story) -> list[Result]:
    """Return the results of a story in every serial order of its units."""
    found = []
    for order in permutations(range(len(story.units))):
        queue = SQLiteQueue(SQLiteEngine(":memory:", Settings()), "document")
        labels = begin(queue, story)
        done = {n: queue.call_together([labels.given(each) for each in story.units[n]]) for n in order}
        found.append(result_of(queue, [done[n] for n in sorted(done)], labels, passed_over=False))
        queue.store.close()
    return found


class Unit:
    """One unit of a story, executed step by step by its own server."""

    def __init__(self, server: Server, commands: Commands, labels: Labels, *, planned: bool) -> None:
        """Prepare it; without plans it locks rows in the order of its commands."""
        self.server, self.planned = server, planned
        self.commands = [labels.given(command) for command in commands]
        self.outcomes: list[Outcome] = []
        self.again: list[int] = []
        """Which of its takes passed over what another unit had locked."""
        self.later: deque[Step] = deque()
        """Steps whose turn came while it waited."""
        self.running: Future[object] | None = None
        self.pid = server.store.session._connection.info.backend_pid

    def steps(self) -> list[Step]:
        """Return its steps: begin, each command, commit."""
        return [self.begin, *(lambda one=one: self.do(one) for one in self.commands), self.server.commit]  # type: ignore[misc]

    def begin(self) -> None:
        """Lock and read."""
        self.context: Context = self.server.open(*(self.commands if self.planned else []))

    def do(self, command: c.Command[Any]) -> None:
        """Execute a command."""
        outcome = perform(self.context, command)
        if type(outcome) is take.LockedElsewhere:
            self.again.append(len(self.outcomes))
        self.outcomes.append(as_told(outcome))

    def look_again(self) -> None:
        """Retry takes that skipped rows locked by another unit, as the dispatcher does."""
        for number in self.again:
            self.outcomes[number] = self.server.call(self.commands[number])


def as_told(outcome: Any) -> Outcome:
    """Return the comparable part of a handler's result."""
    if hasattr(outcome, "code"):
        return Outcome(outcome.code, outcome.reason, None)
    return Outcome(200, "OK", json.loads(outcome.body) if outcome.body else None)


class Stage:
    """Servers on one database that execute stories."""

    def __init__(self, count: int) -> None:
        """Start as many servers, and one that observes."""
        self._clock = ManualClock(START)
        CLUSTER.engine(self._clock).close()
        terms = SessionRequirements(durability="relaxed")  # locks are the same, and commits are quick
        stores = [CLUSTER.another(self._clock, terms) for _ in range(count + 1)]
        self._watcher, *self._servers = [Server(store, "document", self._clock) for store in stores]
        self._threads = ThreadPoolExecutor(count)

    def close(self) -> None:
        """Stop them."""
        self._threads.shutdown()
        for server in (self._watcher, *self._servers):
            server.store.close()

    def act(
        self, story: Story, order: Sequence[int], *, planned: bool = True, looks_again: bool = True
    ) -> Result:
        """Execute a story; ``order`` says whose step is next. Raises StoreError if a unit fails."""
        self._watcher.store.session.script(emptied(SCHEMA).partition("; SELECT setval")[0])
        labels = begin(self._watcher, story)
        acting = zip(self._servers, story.units, strict=False)
        units = [Unit(server, commands, labels, planned=planned) for server, commands in acting]
        try:
            steps = [deque(unit.steps()) for unit in units]
            for number in order:
                units[number].later.append(steps[number].popleft())
                self._settle(units)
            deadline = monotonic() + DEADLINE_S
            while any(unit.running for unit in units):  # in a circle, which PostgreSQL breaks
                assert monotonic() < deadline
                self._settle(units)
            for unit in units if looks_again else ():
                unit.look_again()
        finally:
            for unit in units:
                if unit.running is not None:
                    wait([unit.running], DEADLINE_S)
                unit.server.store.rollback()
        passed_over = any(unit.again for unit in units)
        return result_of(self._watcher, [unit.outcomes for unit in units], labels, passed_over=passed_over)

    def _settle(self, units: list[Unit]) -> None:
        """Let each unit continue until it waits for a lock or has no steps left."""
        deadline = monotonic() + DEADLINE_S
        busy = True
        while busy:
            assert monotonic() < deadline
            busy = False
            for unit in units:
                if unit.running is None and unit.later:
                    unit.running = self._threads.submit(unit.later.popleft())
                if unit.running is not None and not self._waits(unit):
                    unit.running.result(DEADLINE_S)
                    unit.running = None
                    busy = True

    def _waits(self, unit: Unit) -> bool:
        """Return whether the step of a unit waits for another unit, once it does or is done."""
        assert unit.running is not None
        deadline = monotonic() + DEADLINE_S
        while not wait([unit.running], 0.001).done:
            assert monotonic() < deadline
            if self._watcher.value(WAITS_FOR, unit.pid):
                return True
        return False


def orders(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield each interleaving of units with the given numbers of steps."""
    if not any(counts):
        yield ()
    for number, count in enumerate(counts):
        if count:
            rest = [left - (each == number) for each, left in enumerate(counts)]
            for following in orders(rest):
                yield (number, *following)
