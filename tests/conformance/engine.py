"""The interface that conformance tests need from an engine, and its implementations.

An engine is a whole queue behind one call: commands in, outcomes out, on a clock that the test moves. The
scenarios use nothing else of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError, NotFound
from bedrockjobs.base.settings import Compatibility, Settings
from bedrockjobs.commands import Command, ListJobs
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.handlers.take import nothing
from bedrockjobs.engine.render import render_with_state
from bedrockjobs.engine.unit import perform
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.postgresql.statements import VIEWS
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.statements import VIEWS as SQLITE_VIEWS
from tests.effort import PROFILE
from tests.model import Model, Outcome
from tests.postgresql.cluster import CLUSTER

START = datetime(2026, 1, 5, 10, 0, 0, 250_000, tzinfo=UTC)
"""When every scenario begins: a Monday, with milliseconds so that a rounded moment shows."""


class Engine(Protocol):
    """A queue that starts empty."""

    def call(self, command: Command[Any]) -> Outcome:
        """Execute a command now; a refusal is an outcome too."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ...


class ModelEngine:
    """The reference model on a clock of its own."""

    def __init__(self, compatibility: Compatibility) -> None:
        """Begin empty, at ``START``."""
        self.model = Model(compatibility)
        self.clock = ManualClock(START)

    def call(self, command: Command[Any]) -> Outcome:
        """Execute a command now."""
        return self.model.call(command, self.clock.now())

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)


@contextmanager
def model_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open the reference model."""
    yield ModelEngine(compatibility)


class Queue:
    """The handlers on an engine of the server, with one transaction per command."""

    def __init__(self, store: Any, compatibility: Compatibility, clock: ManualClock | None = None) -> None:
        """Begin empty, at ``START``."""
        self.store = store
        self.compatibility = compatibility
        self.clock = clock or ManualClock(START)

    def begin(self, *commands: Command[Any]) -> Any:
        """Open a unit for some commands."""
        return self.store.begin(map(plan_of, commands))

    def call(self, command: Command[Any]) -> Outcome:
        """Execute a command now."""
        return self.call_together([command])[0]

    def call_together(self, commands: Sequence[Command[Any]]) -> list[Outcome]:
        """Execute commands now, in one transaction; lists are read before the transaction."""
        listed = [self._listed(one) if isinstance(one, ListJobs) else None for one in commands]
        written = [one for one in commands if not isinstance(one, ListJobs)]
        if not written:
            return [one for one in listed if one is not None]
        context = Context(self.begin(*written), self.compatibility, NoWorkers(), moment=self.clock.now())
        outcomes = [found or self._done(context, one) for found, one in zip(listed, commands, strict=True)]
        self.store.commit()
        return outcomes

    def _done(self, context: Context, command: Command[Any]) -> Outcome:
        changed = context.unit.changed
        outcome = perform(context, command)
        if isinstance(outcome, CommandError) and not isinstance(outcome, NotFound):
            kind = type(command)
            assert kind.all_or_nothing or context.unit.changed == changed, (
                f"{kind.__name__} wrote something before it refused: {outcome}"
            )
        if isinstance(outcome, Answer) and outcome.waits_for is not None:
            outcome = nothing(outcome.waits_for)
        if isinstance(outcome, CommandError):
            return Outcome(outcome.code, outcome.reason, None)
        return Outcome(200, "OK", json.loads(outcome.body) if outcome.body else None)

    def _listed(self, command: ListJobs) -> Outcome:
        jobs = self.jobs(
            {
                "after": command.after,
                "state": command.state,
                "pattern": command.name,
                "visible": None,
                "limit": command.limit,
            }
        )
        return Outcome(200, "OK", {"jobs": [json.loads(render_with_state(job)) for job in jobs]})

    def jobs(self, given: dict[str, Any]) -> list[Job]:
        """Return a page of jobs, given the parameters of the view."""
        raise NotImplementedError

    def workflows(self) -> list[dict[str, Any]]:
        """Return all workflows with their jobs, as ``Model.workflows`` does."""
        found = {
            row[0]: dict(zip(("workflowID", *_WORKFLOW), row, strict=True)) for row in self.rows(WORKFLOWS)
        }
        for row in found.values():
            row["jobs"] = []
        for workflow, *row in self.rows(WORKFLOW_JOBS):
            found[workflow]["jobs"].append(dict(zip(_WORKFLOW_JOB, row, strict=True)))
        return list(found.values())

    def rows(self, sql: str) -> list[Any]:
        """Return rows of the database, read between two units."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)


_WORKFLOW = "name", "state", "open", "failed", "cancelled"
_WORKFLOW_JOB = "jobID", "ref", "name", "state", "waits", "reason", "result"
WORKFLOWS = f"SELECT workflowID, {', '.join(_WORKFLOW)} FROM workflows ORDER BY workflowID"
WORKFLOW_JOBS = f"SELECT workflowID, {', '.join(_WORKFLOW_JOB)} FROM workflowJobs ORDER BY jobID"


class SQLiteQueue(Queue):
    """The handlers on a SQLite store."""

    def rows(self, sql: str) -> list[Any]:
        """Return rows of the database."""
        return list(self.store._db.execute(sql))

    def jobs(self, given: dict[str, Any]) -> list[Job]:
        """Return a page of jobs."""
        return [job_from(row) for row in self.store._db.execute(SQLITE_VIEWS["jobs"], given)]


@contextmanager
def sqlite_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open a store in memory."""
    store = SQLiteEngine(":memory:", Settings())
    yield SQLiteQueue(store, compatibility)
    store.close()


class PostgreSQLQueue(Queue):
    """The handlers on a PostgreSQL store."""

    def rows(self, sql: str) -> list[Any]:
        """Return rows of the database."""
        found: list[Any] = self.store.session.run_statements([(sql, ())])[0]
        return found

    def jobs(self, given: dict[str, Any]) -> list[Job]:
        """Return a page of jobs."""
        view = VIEWS["jobs"]
        rows = self.store.session.run_statements([(view.sql, view.parameters(given))])[0]
        return [job_from(row) for row in rows]


@contextmanager
def postgresql_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open a store in an empty database of the cluster that the tests share."""
    clock = ManualClock(START)
    store = CLUSTER.engine(clock)
    yield PostgreSQLQueue(store, compatibility, clock)
    store.close()


ENGINES: dict[str, Callable[[Compatibility], AbstractContextManager[Engine]]] = {
    "model": model_engine,
    "sqlite": sqlite_engine,
    "postgresql": postgresql_engine,
}
"""Every engine that the suite runs on, by the name that a test's id shows."""

TRIED = sorted(name for name in ENGINES if name != "postgresql" or PROFILE != "fast")
"""Those that tests run on: between two changes without PostgreSQL, which takes longest and may be missing."""
