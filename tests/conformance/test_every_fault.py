"""Every operation fails at every statement, without a lasting effect in the tables or in memory.

The caches are compared with the tables: they give the same answer, or a more cautious one. A fault of
the operation undoes only the operation; a fault of the database undoes the whole transaction.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import maintenance
from bedrockjobs.engine.handlers import failing, take
from bedrockjobs.engine.handlers.context import HANDLERS, Answer, Context
from bedrockjobs.engine.submission import Submission
from bedrockjobs.engine.unit import unit
from bedrockjobs.engine.waiters import Waiter, Waiting
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store import sqlite as engine_module
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import START
from tests.conformance.test_lifecycle import OneWorker
from tests.effort import examples

HISTORIES = examples(12, night=2_000)
ACTS = 14
BROKEN = 3
"""Acts of each history that are made to fail at each of their statements."""

PATTERNS = [("a", None), ("a*", None), ("*", None), ("a,b", None), (None, ("?", "s*"))]


Remembered = tuple[list[Any], list[Any], frozenset[str]]


class Injected(Exception):
    """A fault of the operation."""


class Faulty(sqlite3.Connection):
    """A connection whose nth statement from now on fails."""

    left: int | None = None
    error: type[Exception] = Injected

    def _count(self, sql: str) -> None:
        if self.left is None or sql.startswith(("ROLLBACK", "RELEASE", "COMMIT", "BEGIN", "SAVEPOINT")):
            return
        if self.left == 0:
            self.left = None
            error = self.error("injected")
            if isinstance(error, sqlite3.Error):
                error.sqlite_errorname = "SQLITE_IOERR_READ"
            raise error
        self.left -= 1

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Execute a statement, or fail."""
        self._count(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Execute a statement several times, or fail."""
        self._count(sql)
        return super().executemany(sql, *parameters)


class Bench:
    """An engine over a faulty connection, and its waiters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin empty."""
        self.clock = ManualClock(START)
        connect = partial(sqlite3.connect, factory=Faulty)
        with monkeypatch.context() as patch:
            patch.setattr(engine_module.sqlite3, "connect", connect)
            self.engine = SQLiteEngine(":memory:", Settings(patterns_cached_max=4), self.clock)
        self.connection: Faulty = self.engine._db  # type: ignore[assignment]
        self.waiting = Waiting()

    def context(self) -> Context:
        """Open a transaction."""
        return Context(self.engine.begin(), "document", OneWorker(), parts=(self.waiting,))

    def tables(self) -> list[Any]:
        """Return all rows of the tables."""
        names = (
            "jobs",
            "runs",
            "output",
            "ticks",
            "keys",
            "workflows",
            "workflowJobs",
            "workflowEdges",
            "pauses",
            "drains",
            "tokens",
            "logins",
            "audit",
            "rules",
            "events",
            "meta",
        )
        return [self.connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]

    def remembered(self) -> Remembered:
        """Return the caches' answers: facts that must equal the tables, times that may be too early, and
        workers with jobs of their own, which may be too many."""
        self.engine.begin()
        found, now = self.engine.unit, "2026-01-05 11:00:00"
        exact: list[Any] = [
            found.records.pauses(),
            found.records.drains(),
            found.records.tokens(),
            found.crash_patterns(),
            [job.job_id for job in found.due_on_all_hosts(now)],
            found.has_children(1),
            [found.job(job_id) for job_id in range(1, 12)],
        ]
        early: list[Any] = [found.next_expiry()]
        own = found.workers_with_own_jobs()
        for name, several in PATTERNS:
            names = names_from(name, several)
            assert names is not None
            for worker in (None, "h1"):
                request = TakeRequest(names, mocked=True, worker=worker, accepts=("cmd",))
                found.ready.patterns.begin()  # one unit does not begin to search for so many
                due = found.first_due(request, now)
                exact.append(None if due is None else due.job_id)
                early.append(found.soonest(request, now) if due is None else None)
        exact.append((found.new_job_id(), found.new_run_id()))
        return exact, early, own

    def check(self, right: Remembered | None = None) -> Remembered:
        """Compare the caches with the tables, or with what the tables said when they were the same."""
        known, known_early, known_own = self.remembered()
        self.engine.rollback()  # the numbers that were drawn; and everything is forgotten
        if right is None:
            right = self.remembered()
            self.engine.rollback()
        fresh, fresh_early, fresh_own = right
        assert known == fresh
        assert known_own >= fresh_own
        for soon, date in zip(known_early, fresh_early, strict=True):
            assert date is None or (soon is not None and soon <= date)
        return right


Act = Callable[[Context], object]


def acts(dice: random.Random) -> Iterator[tuple[str, Act]]:
    """Yield operations of a random history: commands, work that is due by time, waiters served."""
    while True:
        job_id, name = dice.randint(1, 9), dice.choice(["a", "b", "ab", "s"])
        commands: list[tuple[type[c.Command[Any]], dict[str, Any]]] = [
            (c.CreateJob, {"name": name, "data": {"k": job_id}}),
            (c.CreateJob, {"name": name, "lock": "L"}),
            (c.CreateJob, {"name": name, "retryAfter": "+1 MINUTE", "expireAfter": 600}),
            (c.CreateJob, {"name": name, "cmd": "true", "idempotencyKey": str(job_id)}),
            (c.CreateJob, {"name": "child", "parentJobID": job_id}),
            (c.CreateJob, {"name": "s", "repeat": "CRON * * * * *", "hosts": dice.choice(["all", ""])}),
            (c.CreateJobs, {"jobs": [{"name": name}, {"name": "b", "parentJobID": dice.choice([0, 99])}]}),
            (c.GetJob, {"name": "*", "worker": "w", "heartbeat": True}),
            (c.GetJobs, {"name": "a*", "numResults": 3, "worker": "h1", "accepts": ["cmd"]}),
            (c.FinishJob, {"jobID": job_id, "thenGet": "*", "worker": "w"}),
            (c.FailJob, {"jobID": job_id, "error": "x"}),
            (c.RetryJob, {"jobID": job_id, "revive": True}),
            (c.RetryJob, {"jobID": job_id, "returned": True}),
            (c.UpdateJob, {"jobID": job_id, "jobPriority": 1000, "lock": "L"}),
            (c.DeleteJob, {"jobID": job_id}),
            (c.RequeueJobs, {"jobIDs": [job_id, 1, 2]}),
            (c.PauseJobs, {"name": name}),
            (c.ResumeJobs, {}),
            (c.TriggerJob, {"jobID": job_id}),
            (c.CrashBedrockJob, {"names": ["zz"]}),
            (c.SyncSchedules, {"source": "o", "schedules": [{"name": "o/1", "repeat": "CRON @daily"}]}),
        ]
        times: list[tuple[str, Act]] = [
            ("lease over", lambda context, run=job_id: failing.lease_over(context, run)),
            (
                "expiry",
                lambda context: [failing.time_over(context, job) for job in context.unit.expired("9", 5)],
            ),
            (
                "hosts",
                lambda context: [
                    maintenance.fire_on_all_hosts(context, job) for job in context.unit.due_on_all_hosts("9")
                ],
            ),
            ("waiter", _serve),
        ]
        if dice.random() < 0.25:
            yield dice.choice(times)
        else:
            kind, given = dice.choice(commands)
            command = kind.read(given)
            yield kind.__name__, lambda context, command=command: HANDLERS[type(command)](context, command)


def _expire(context: Context) -> None:
    for job in context.unit.expired(context.now_ms, 5):
        failing.time_over(context, job)


def _fire(context: Context) -> None:
    for job in context.unit.due_on_all_hosts(context.now_ms):
        maintenance.fire_on_all_hosts(context, job)


def _serve(context: Context) -> object:
    names = names_from("a*", None)
    assert names is not None
    answer = take.take(context, TakeRequest(names, True, None, "w", 2, "jobs", ("cmd",), True))
    assert answer is None or isinstance(answer, Answer)
    waiting = context.parts[0]
    assert isinstance(waiting, Waiting)
    for waiter in waiting.everyone()[:1]:
        waiting.remove(waiter)
    return answer


def _do(bench: Bench, act: Act) -> bool:
    """Execute an operation as a unit and commit; return whether it succeeded."""
    context = bench.context()
    try:
        unit(context, partial(act, context))
        done = True
    except CommandError:
        done = False
    bench.engine.commit()
    bench.waiting.committed()
    context.unit.became_ready()
    return done


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_failed_has_left_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    bench = Bench(monkeypatch)
    broken = set(dice.sample(range(ACTS), BROKEN))
    for number, (name, act) in zip(range(ACTS), acts(dice), strict=False):
        bench.clock.advance(dice.choice([0, 20, 700]))
        _wait(bench, number)
        if number in broken:
            for error in (Injected, sqlite3.OperationalError):
                _fail_everywhere(bench, act, error, name)
        _do(bench, act)
    bench.check()
    bench.engine.close()


def _wait(bench: Bench, number: int) -> None:
    names = names_from("a*", None)
    assert names is not None
    request = TakeRequest(names, False, None, None, 1, "job")
    bench.waiting.add(Waiter(Submission(), request, number, 1e9))
    bench.waiting.committed()


def _fail_everywhere(bench: Bench, act: Act, error: type[Exception], name: str) -> None:
    """Let an operation fail at its first statement, its second, and so on, up to its last."""
    right = None
    for statement in range(200):
        before, waiting = bench.tables(), [waiter.seq for waiter in bench.waiting.everyone()]
        context = bench.context()
        bench.connection.left, bench.connection.error = statement, error
        try:
            unit(context, partial(act, context))
        except StoreError:
            assert error is sqlite3.OperationalError
            bench.waiting.forget()
            bench.engine.rollback()
        except (Injected, CommandError):
            assert context.events == []
            bench.engine.commit()
        else:
            bench.waiting.forget()  # it came to its end: as if it had never been begun
            bench.engine.rollback()
        ended, bench.connection.left = bench.connection.left is not None, None
        assert bench.tables() == before, f"{name} at statement {statement}"
        assert [waiter.seq for waiter in bench.waiting.everyone()] == waiting
        right = bench.check(right)
        if ended:
            return
    raise AssertionError(f"{name} has too many statements")
