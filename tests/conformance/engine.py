"""What a conformance test needs of an engine, and the engines there are.

An engine is the whole queue behind one call: commands in, outcomes out, on a clock that the test moves. The
scenarios know nothing else of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError, NotFound
from bedrockjobs.base.settings import Compatibility, Settings
from bedrockjobs.commands import Command, ListJobs
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.take import nothing
from bedrockjobs.engine.presence import Nobody
from bedrockjobs.engine.render import render_with_state
from bedrockjobs.engine.unit import perform
from bedrockjobs.job.rows import job_from
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.statements import STATEMENTS
from tests.model import Model, Outcome

START = datetime(2026, 1, 5, 10, 0, 0, 250_000, tzinfo=UTC)
"""When every scenario begins: a Monday, with milliseconds so that a rounded moment shows."""


class Engine(Protocol):
    """A queue that starts empty."""

    def call(self, command: Command[Any]) -> Outcome:
        """Do a command now; a refusal is an outcome too."""
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
        """Do a command now."""
        return self.model.call(command, self.clock.now())

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)


@contextmanager
def model_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open the reference model."""
    yield ModelEngine(compatibility)


class SQLiteQueue:
    """The handlers on a SQLite store, one transaction a command."""

    def __init__(self, store: SQLiteEngine, compatibility: Compatibility) -> None:
        """Begin empty, at ``START``."""
        self.store = store
        self.compatibility = compatibility
        self.clock = ManualClock(START)

    def begin(self) -> Any:
        """Open a unit."""
        return self.store.begin()

    def call(self, command: Command[Any]) -> Outcome:
        """Do a command now."""
        if isinstance(command, ListJobs):
            page = (command.after, command.state, command.name, command.limit)
            rows = [job_from(row) for row in self.store._db.execute(STATEMENTS["list_jobs"], page)]
            return Outcome(200, "OK", {"jobs": [json.loads(render_with_state(row)) for row in rows]})
        context = Context(self.begin(), self.compatibility, Nobody(), moment=self.clock.now())
        written = self.store._db.total_changes
        outcome = perform(context, command)
        if isinstance(outcome, CommandError) and not isinstance(outcome, NotFound):
            kind = type(command)
            assert kind.all_or_nothing or self.store._db.total_changes == written, (
                f"{kind.__name__} wrote something before it refused: {outcome}"
            )
        if isinstance(outcome, Answer) and outcome.waits_for is not None:
            outcome = nothing(outcome.waits_for)
        self.store.commit()
        if isinstance(outcome, CommandError):
            return Outcome(outcome.code, outcome.reason, None)
        return Outcome(200, "OK", json.loads(outcome.body) if outcome.body else None)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)


@contextmanager
def sqlite_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open a store in memory."""
    store = SQLiteEngine(":memory:", Settings())
    yield SQLiteQueue(store, compatibility)
    store.close()


ENGINES: dict[str, Callable[[Compatibility], AbstractContextManager[Engine]]] = {
    "model": model_engine,
    "sqlite": sqlite_engine,
}
"""Every engine that the suite runs on, by the name that a test's id shows."""
