"""Every operation on PostgreSQL fails at each of its statements, without a lasting effect.

A fault of the operation undoes only the operation, not the rest of the unit; a fault of the database
undoes the whole unit. Either way the tables are as before, and no allocated ID is used twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.unit import unit
from bedrockjobs.engine.waiters import Waiting
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.base import AccessPlan, StoreError, Unit
from bedrockjobs.store.postgresql.transaction import Transaction, UnitRows
from tests.conformance.engine import START
from tests.conformance.test_every_fault import PATTERNS, Injected, acts
from tests.conformance.test_lifecycle import OneWorker
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER, TABLES
from tests.postgresql.conftest import Server

HISTORIES = examples(2, night=400)
ACTS = 14
BROKEN = 3
"""Acts of each history that are made to fail at everything they do."""
STEPS_MAX = 400

AHEAD = AccessPlan(jobs=tuple(range(1, 12)), runs=tuple(range(1, 12)), names=("a", "b", "ab", "s"))

SEAMS: list[tuple[type, str]] = [
    (Transaction, "run_statements"),
    (Transaction, "execute"),
    (Transaction, "write"),
    (UnitRows, "write"),
    (UnitRows, "remove"),
]
"""Functions through which an operation reads or writes the database."""


class Faults:
    """Makes the nth step from now on fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count no steps yet."""
        self.left: int | None = None
        self.error: type[Exception] = Injected
        for kind, name in SEAMS:
            monkeypatch.setattr(kind, name, self._counted(getattr(kind, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            if self.left == 0:
                self.left = None
                raise self.error("injected")
            if self.left is not None:
                self.left -= 1
            return method(*given, **named)

        return counted


class Bench:
    """An engine, and a second one to compare with."""

    def __init__(self) -> None:
        """Begin empty."""
        self.clock = ManualClock(START)
        self.engine = CLUSTER.engine(self.clock)
        self.watcher = CLUSTER.another(self.clock)

    def context(self, *, ahead: bool = False) -> Context:
        """Open a unit with a change; with ``ahead`` it prefetches what the operation may need."""
        plans = [AHEAD] if ahead else []
        context = Context(self.engine.begin(plans), "document", OneWorker(), parts=(Waiting(),))
        context.unit.records.put_drain("before", "", "")
        return context

    def tables(self) -> list[Any]:
        """Return all rows of the tables."""
        named = [(f"SELECT * FROM {table} ORDER BY 1, 2", ()) for table in TABLES if table != "events"]
        events = "SELECT at, kind, name, jobID, runID, detail FROM events ORDER BY seq"
        return self.watcher.session.run_statements(
            [*named, (events, ()), ("SELECT * FROM meta ORDER BY key", ())]
        )

    def remembered(self, opened: Unit) -> list[Any]:
        """Return a unit's view of the rows, and its next jobs."""
        rows: list[Any] = [opened.job(job_id) for job_id in AHEAD.jobs]
        rows += [opened.has_children(job_id) for job_id in AHEAD.jobs]
        for name, several in PATTERNS:
            names = names_from(name, several)
            assert names is not None
            due = opened.first_due(TakeRequest(names, mocked=True, worker="h1", accepts=("cmd",)), "2027")
            rows.append(due)
        return [*rows, opened.records.pauses(), opened.crash_patterns(), opened.new_job_id()]

    def check(self, opened: Unit) -> None:
        """Compare a unit's view with that of a new unit."""
        known = self.remembered(opened)
        self.engine.rollback()
        fresh = self.remembered(self.engine.begin())
        self.engine.rollback()
        assert known == fresh

    def close(self) -> None:
        """Close both."""
        self.engine.close()
        self.watcher.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Return an engine on an empty database."""
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_failed_has_left_nothing(seed: int, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    faults = Faults(monkeypatch)
    broken = set(dice.sample(range(ACTS), BROKEN))
    _do(bench, lambda context: None)
    for number, (name, act) in zip(range(ACTS), acts(dice), strict=False):
        bench.clock.advance(dice.choice([0, 20, 700]))
        if number in broken:
            for error, ahead in product((Injected, StoreError), (False, True)):
                _fail_everywhere(bench, faults, act, error, ahead=ahead, name=name)
        _do(bench, act)
    jobs, runs = bench.watcher.session.run_statements(
        [("SELECT coalesce(max(jobID), 0) FROM jobs", ()), ("SELECT coalesce(max(runID), 0) FROM runs", ())]
    )
    opened = bench.engine.begin()
    assert opened.new_job_id() > jobs[0][0]
    assert opened.new_run_id() > runs[0][0]
    bench.engine.rollback()


def _do(bench: Bench, act: Callable[[Context], object]) -> None:
    context = bench.context()
    with suppress(CommandError):
        unit(context, partial(act, context))
    bench.engine.commit()


def _fail_everywhere(
    bench: Bench,
    faults: Faults,
    act: Callable[[Context], object],
    error: type[Exception],
    *,
    ahead: bool,
    name: str,
) -> None:
    """Let an operation fail at its first step, its second, and so on, up to its last."""
    before = bench.tables()
    for step in range(STEPS_MAX):
        context = bench.context(ahead=ahead)
        faults.left, faults.error = step, error
        ending: Callable[[], None] = bench.engine.rollback
        try:
            unit(context, partial(act, context))
        except StoreError:
            pass
        except (Injected, CommandError):
            assert context.events == []
            ending = bench.engine.commit
        ended, faults.left = faults.left is not None, None
        if ending == bench.engine.commit and step % 2:
            bench.check(context.unit)
        else:
            ending()  # where the act came to its end: as if it had never been begun
        assert bench.tables() == before, f"{name} at step {step}"
        if ended:
            return
    raise AssertionError(f"{name} has too many steps")


def test_the_first_of_a_name_goes_with_the_part_that_made_it(servers: Callable[[int], list[Server]]) -> None:
    """The jobID of the undone job is then given to another job."""
    (one,) = servers(1)
    context = one.opened(
        c.CreateJobs.read({"jobs": [{"name": "a", "unique": True}, {"name": "b", "parentJobID": 9}]}),
        c.CreateJob(name="c"),
        c.CreateJob(name="a", unique=True, data='{"x":1}'),
    )
    first = context.unit.first_of_name("a", mocked=False)
    assert first is not None
    assert first.job_id == 2
    one.commit()
    assert one.value("SELECT string_agg(name || data, ' ' ORDER BY jobID) FROM jobs") == 'c{} a{"x":1}'
