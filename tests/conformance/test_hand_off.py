"""Plain commands have the same replies and leave the same rows as the handlers, also with deferred writes."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock, timestamp_ms
from bedrockjobs.base.config import SET_ROWS
from bedrockjobs.base.errors import ServerFault
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.batch import Batch
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.handlers import plain, take
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.plain import Prepared
from bedrockjobs.engine.maintenance import maintenance_of
from bedrockjobs.engine.submission import CallbackSubmission, Deliver, Outcome
from bedrockjobs.engine.waiters import Waiting
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import START
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER, SCHEMA

FOUND_WITHIN = 60
"""Histories within which a difference must be found."""
HISTORIES = examples(12, night=3_000)
"""By day twice as many as it takes to find any of ``WIDER``."""
HISTORIES_POSTGRESQL = examples(3, night=500)
STEPS = 40

KEYS_LAST = ("2", "3")
"""Unique keys that are the open value of their requests; other requests with a key differ in their data."""

TABLES = ("jobs", "runs", "ticks", "keys", "pauses", "drains", "events")


def submission_of(command: c.Command[Any], deliver: Deliver) -> CallbackSubmission:
    """Return a submission that is prepared as the raw protocol prepares requests."""
    submission = CallbackSubmission(command, deliver)
    field = {c.CreateJob: "data", c.FinishJob: "job_id"}.get(type(command), "")
    if isinstance(command, c.CreateJob) and command.unique_key in KEYS_LAST:
        field = "unique_key"
    submission.prepared = Prepared(command, field)
    submission.value = getattr(command, field) if field else None
    return submission


class Server:
    """An engine and its batches, on a test clock."""

    def __init__(self, *, plain: bool, kind: str = "sqlite") -> None:
        """Start empty; unless ``plain``, handlers execute every command under a savepoint."""
        self.clock, self._plain = ManualClock(START), plain
        settings = Settings()
        self.engine: Any = (
            SQLiteEngine(":memory:", settings, self.clock) if kind == "sqlite" else CLUSTER.engine(self.clock)
        )
        self.waiting = Waiting()
        workers, stats = WorkerRegistry(self.clock, self.clock), Stats()
        self._maintenance = maintenance_of(self.engine, workers, stats, self.clock)
        listeners = Listeners([workers, stats])
        self.batch = Batch(
            self.engine, self.waiting, self.clock, settings, workers, listeners, self._maintenance
        )
        self.answers: list[list[Outcome]] = []

    def send(self, *commands: c.Command[Any]) -> None:
        """Execute some commands in one transaction."""
        submissions = []
        for command in commands:
            self.answers.append([])
            submissions.append(submission_of(command, partial(self._note, self.answers[-1])))
        unit = self.engine.begin(self.batch.plans(submissions))
        work = self.batch.run(unit, submissions, careful=not self._plain)
        self.engine.commit()
        self.batch.accept(work)
        for submission, outcome in work.outcomes:
            submission.deliver(outcome)

    @staticmethod
    def _note(into: list[Outcome], outcome: Outcome) -> bool:
        into.append(outcome)
        return True

    def told(self) -> list[list[str]]:
        """Return what each command was answered."""
        return [
            [one.body if isinstance(one, Answer) else one.reason for one in each] for each in self.answers
        ]

    def rows(self) -> dict[str, list[Any]]:
        """Return all rows."""
        if not self.engine.shared:
            return {name: self.engine._db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}
        return {name: sorted(CLUSTER.do(f"SELECT * FROM {SCHEMA}.{name}")) for name in TABLES}


def _words(outcome: Outcome) -> str:
    return outcome.body if isinstance(outcome, Answer) else outcome.reason


def commands(dice: random.Random) -> list[c.Command[Any]]:
    """Return the commands of one transaction: waiting takes, creates, pauses and the like."""
    name, job_id = dice.choice(["a", "a", "b", "ab"]), dice.randint(1, 12)
    wait: dict[str, Any] = {"connection": "wait", "timeout": 60_000}
    worker: dict[str, Any] = dice.choice([{}, {"worker": dice.choice(["v", "w"]), "heartbeat": True}])
    kinds: list[Callable[[], c.Command[Any]]] = [
        *[lambda: c.CreateJob(name=name, data={"k": job_id})] * 6,
        lambda: c.CreateJob(name=name, data={"mockRequest": True}),
        lambda: c.CreateJob(name=name, data={}, parent_job_id=job_id),
        lambda: c.CreateJob(name=name, data={}, repeat="FINISHED, +5 SECONDS"),
        lambda: c.CreateJob(name=name, job_priority=dice.choice([0, 1000])),
        lambda: c.CreateJob(name=name, first_run=START + timedelta(seconds=dice.randint(0, 90))),
        lambda: c.CreateJob(name=name, lock="L"),
        lambda: c.CreateJob(name=name, unique=True),
        lambda: c.CreateJob(name=name, retry_after="+1 MINUTE"),
        lambda: c.CreateJob(name=name, idempotency_key=str(job_id)),
        *[
            lambda: c.CreateJob(
                name=name,
                data=dice.choice([{}, {"k": job_id}, {"mockRequest": True}]),
                unique_key=str(job_id % 4),
                unique_for=dice.choice([None, "started", 5]),
                on_conflict=dice.choice([None, "replace", "reject"]),
            )
        ]
        * 3,
        lambda: c.CreateJobs(jobs=[{"name": name}, {"name": name, "jobPriority": 1000}]),
        *[lambda: c.GetJob(name=dice.choice([name, f"{name}*", "*", "a,b"]), **wait, **worker)] * 5,
        *[lambda: c.GetJob(name=name, **worker)] * 2,
        lambda: c.GetJob(name=name, job_priority=500, **wait),
        lambda: c.GetJobs(name=name, num_results=3, **wait, **worker),
        *[lambda: c.FinishJob(job_id=job_id, then_get="a*", **wait, **worker)] * 3,
        *[lambda: c.FinishJob(job_id=job_id, then_get=dice.choice(["a", "*"]))] * 2,
        lambda: c.FinishJob(job_id=job_id, data={"done": 1}),
        lambda: c.FailJob(job_id=job_id, error="no"),
        lambda: c.GetJob(name=name, get_mocked_jobs=True),
        lambda: c.RetryJob(job_id=job_id, returned=True),
        lambda: c.UpdateJob(job_id=job_id, data={}, job_priority=1000),
        lambda: c.PauseJobs(name=name),
        lambda: c.ResumeJobs(),
        lambda: c.DrainWorker(worker="w", undo=dice.choice([True, False])),
        lambda: c.CrashBedrockJob(names=[dice.choice(["b", "zz"])]),
        lambda: c.SetLimit(name=f"{name}*", running=1),
        lambda: c.SetLimit(name=f"{name}*", per_second=1),
        lambda: c.RemoveLimit(name=f"{name}*"),
    ]
    return [dice.choice(kinds)() for _ in range(dice.choice([1, 1, 1, 2, 5]))]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history_is_the_same_with_and_without(seed: int) -> None:
    compare(seed)


@pytest.mark.parametrize("seed", range(HISTORIES_POSTGRESQL))
def test_a_history_on_postgresql_is_the_same_with_and_without(seed: int) -> None:
    compare(seed, "postgresql")


def compare(seed: int, kind: str = "sqlite") -> None:
    """Run a random history with and without the fast paths; raise AssertionError if they differ."""
    assert played(seed, kind, plain=True) == played(seed, kind, plain=False)


def played(seed: int, kind: str, *, plain: bool) -> tuple[object, ...]:
    """Play a random history; return the replies, rows and number of waiters after each step.

    On PostgreSQL, where reading all tables takes long, the rows are those after every eighth step.
    """
    server, dice, found = Server(plain=plain, kind=kind), random.Random(seed), []
    try:
        for step in range(STEPS):
            ahead, some = dice.choice([0, 0, 0.02, 1, 40]), commands(dice)
            server.clock.advance(ahead)
            server.send(*some)
            stored = server.rows() if kind == "sqlite" or step % 8 == 7 else {}
            found.append((server.told()[-len(some) :], stored, len(server.waiting)))
        found.append((server.told(), {}, 0))
    finally:
        server.engine.close()
    return tuple(found)


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a server that has had a job, so that its flags are cached."""
    server = Server(plain=True)
    server.send(c.CreateJob(name="b"), c.GetJob(name="b"), c.FinishJob(job_id=1))
    server.answers.clear()
    yield server
    server.engine.close()


WAIT: dict[str, Any] = {"connection": "wait", "timeout": 60_000}


def statements(server: Server, *commands: c.Command[Any]) -> list[str]:
    """Return the first words of the statements with which commands write and look for jobs."""
    found: list[str] = []
    server.engine._db.set_trace_callback(found.append)
    server.send(*commands)
    server.engine._db.set_trace_callback(None)
    return [" ".join(sql.split()[:2]) for sql in found if " jobs " in sql and not sql.startswith("--")]


def test_it_is_written_once_and_not_looked_for(server: Server) -> None:
    server.send(c.GetJob(name="a", **WAIT))
    assert statements(server, c.CreateJob(name="a")) == ["INSERT INTO"]
    assert [len(answers) for answers in server.answers] == [1, 1]
    assert server.engine.unit.job(2).state == "RUNNING"


def test_the_next_jobs_of_a_name_are_read_once(server: Server) -> None:
    server.send(c.GetJob(name="a", **WAIT), c.CreateJob(name="a"))
    found = statements(server, c.FinishJob(job_id=2, then_get="a", **WAIT))
    assert found == ["DELETE FROM"], "the GetJob before has found nothing"
    server.send(c.CreateJob(name="a"), c.CreateJob(name="another"))
    found = statements(server, c.FinishJob(job_id=3, then_get="a", **WAIT))
    assert found == ["DELETE FROM"], "what was queued since is known"
    assert len(server.waiting) == 1


def test_writes_of_one_transaction_are_one_statement_of_each_kind(server: Server) -> None:
    server.send(*[c.CreateJob(name="a")] * 20, *[c.GetJob(name="a")] * 8)
    ends = [c.FinishJob(job_id=number, then_get="a") for number in (2, 3)]
    found = statements(server, *ends, *[c.CreateJob(name="b")] * (SET_ROWS + 1))
    assert found == ["INSERT INTO", "INSERT INTO", "UPDATE jobs", "DELETE FROM"], "the last row has its own"


def test_a_statement_that_reads_jobs_comes_after_the_deferred_writes(server: Server) -> None:
    found = statements(server, c.CreateJob(name="a"), c.CreateJob(name="a", unique=True, data={"k": 1}))
    assert found[0] == "INSERT INTO"
    assert server.told()[-2:] == [['{"jobID":2}'], ['{"jobID":2}']]


def test_lines_are_dropped_when_a_part_is_undone(server: Server) -> None:
    server.send(c.GetJob(name="a"))
    lines = server.engine.unit.ready._next
    assert lines.is_empty("a")
    unit = server.engine.unit
    unit.ready.undo(unit.ready.mark())
    assert not lines.is_empty("a")


WIDER: dict[str, tuple[object, str, object]] = {
    "unique": (plain, "_CREATE", plain._CREATE | {"unique"}),
    "parent": (plain, "_CREATE", plain._CREATE | {"parent_job_id"}),
    "repeat": (plain, "_CREATE", plain._CREATE | {"repeat"}),
    "first run": (plain, "_CREATE", plain._CREATE | {"first_run"}),
    "idempotency key": (plain, "_CREATE", plain._CREATE | {"idempotency_key"}),
    "how long a key is held": (plain, "held_until", lambda *_: "finished"),
    "retry after": (plain, "_CREATE", plain._CREATE | {"retry_after"}),
    "mocked": (plain, "is_mock_data", lambda _: False),
    "special job": (take, "is_plain", lambda _: True),
}
"""The conditions of the fast path, each of which is removed in turn."""

FIRST = {"special job": 45, "unique": 4, "first run": 4, "retry after": 4, "how long a key is held": 3}
"""The first history to play, unless the first of all: few take what is special in the way that differs."""


@pytest.mark.parametrize("condition", WIDER)
def test_a_history_differs_without(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WIDER[condition])
    with pytest.raises((AssertionError, ServerFault, sqlite3.Error)):
        any(map(compare, range(FIRST.get(condition, 0), FOUND_WITHIN)))


def test_a_job_that_is_due_goes_first(server: Server) -> None:
    server.send(c.CreateJob(name="a", first_run=START + timedelta(seconds=30)))
    server.send(c.GetJob(name="a", **WAIT), c.GetJob(name="a", **WAIT))
    server.clock.advance(31)
    server.send(c.CreateJob(name="a"))
    assert [one[0].body[-200:].partition('"jobID":')[2][:1] for one in server.answers[1:3]] == ["2", "3"]


def test_a_limit_of_runs_holds_it_back(server: Server) -> None:
    server.send(c.SetLimit(name="a", running=1))
    server.send(*[c.GetJob(name="a", worker="w", **WAIT)] * 2)
    server.send(c.CreateJob(name="a"))
    server.send(c.CreateJob(name="a"))
    assert [len(answers) for answers in server.answers] == [1, 1, 0, 1, 1]


def test_that_nothing_was_queued_is_known_until_something_is(server: Server) -> None:
    server.send(c.GetJob(name="a"))
    server.send(c.CreateJob(name="a", first_run=START + timedelta(seconds=30)))
    server.send(c.GetJob(name="a", **WAIT))
    server.clock.advance(31)
    server.send(c.QueryJob(job_id=2))
    assert len(server.waiting) == 0


def test_what_is_undone_is_not_known_to_be_empty(server: Server) -> None:
    server.send(c.CreateJob(name="a", first_run=START + timedelta(seconds=30)))
    names = names_from("a", None)
    assert names is not None
    unit = server.engine.begin()
    mark = unit.savepoint()
    unit.delete(2)
    assert unit.first_due(TakeRequest(names), timestamp_ms(START)) is None
    unit.undo(mark)
    assert unit.soonest(TakeRequest(names), timestamp_ms(START)) == timestamp_ms(
        START + timedelta(seconds=30)
    )
    server.engine.rollback()
