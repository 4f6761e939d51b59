"""A dispatcher on an engine, as a server has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.protocol.talk import DEADLINE_S
from tests.submitting import submit


class Live:
    """A running dispatcher."""

    def __init__(self, engine: PostgreSQLEngine, **settings: Any) -> None:
        """Start it on an engine."""
        self.engine = engine
        self.failed: list[Exception] = []
        clock = SystemClock()
        workers, stats = WorkerRegistry(clock, clock), Stats()
        self.dispatcher = Dispatcher(
            engine,
            clock,
            Settings(busy_s=0.1, **settings),
            self.failed.append,
            workers=workers,
            minutes=stats,
            listeners=Listeners([workers, stats]),
        )
        self.dispatcher.start()

    def send(self, command: c.Command[Any]) -> asyncio.Future[Outcome]:
        """Submit a command; the future gets its outcome."""
        return submit(self.dispatcher, command)

    async def ask(self, command: c.Command[Any]) -> Outcome:
        """Submit a command and wait for its outcome."""
        return await asyncio.wait_for(self.send(command), DEADLINE_S)

    async def stop(self) -> None:
        """Stop it, and check that it did not fail."""
        await self.dispatcher.drain()
        await self.dispatcher.end()
        self.engine.close()
        assert not self.failed


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the event loop until a condition is true."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0)
