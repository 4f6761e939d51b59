"""The end of a dispatcher: it waits until nothing is left to do, and for a shared database only so long.

It knows neither handlers nor SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.wire import stamp
from bedrockjobs.engine.absence import Step
from bedrockjobs.store.base import Engine
from bedrockjobs.store.faults import StoreError

log = logging.getLogger(__name__)

UNIT_DRAINED_S = 2.5
"""Seconds that a stopping server gives its last unit on PostgreSQL: it may wait two for a lock. A database
that does not answer by then may never do; who waits for that unit is cut off, as its outcome is not known."""


class Ending:
    """Who waits for a dispatcher to have nothing to do."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Prepare to end; a file answers, another machine may never do."""
        self._engine = engine
        self._clock = clock
        self._limit_s = UNIT_DRAINED_S if engine.shared else None
        self._idle = asyncio.Event()

    async def until_idle(self, busy: Callable[[], object]) -> None:
        """Wait until nothing is to be done, however long that takes."""
        while busy():
            self._idle.clear()
            await self._idle.wait()

    def idle(self) -> None:
        """Tell who waits that there may be nothing to do."""
        self._idle.set()

    async def last_units(self, busy: Callable[[], object]) -> bool:
        """Wait until nothing is to be done; return False where the database does not answer in time."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self.until_idle(busy)
        except TimeoutError:
            log.warning("the database does not answer: what became of the last commands is not known")
            return False
        return True

    async def sign_off(self, do: Callable[[Callable[[], Step]], object]) -> None:
        """Write when it was here last; without it, ticks since the last write count as passed unserved.

        ``do`` does work that may give its turn away, and then the step that it returns.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def work() -> Step:
            with suppress(StoreError):
                self._engine.begin().sign_off(stamp(self._clock.now()))
                self._engine.commit()
            return partial(_resolve, done)

        do(work)
        await asyncio.wait({done}, timeout=self._limit_s)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
