"""A primary that is lost, and its standby promoted: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from time import monotonic
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import TIMELINE_STEP
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.effort import examples
from tests.postgresql.cluster import SCHEMA
from tests.postgresql.conftest import DEADLINE_S
from tests.postgresql.live import Live
from tests.postgresql.pair import Pair, pair

FAILOVERS = examples(2, night=500)
CLIENTS = 8
FIRST_ANSWER_S = 2.0
"""Time from the promotion to the first answer."""

Beside = Callable[[Callable[[], Any]], "Future[Any]"]


class Load:
    """Clients that create jobs of names of their own, one after another."""

    def __init__(self, live: Live) -> None:
        """Send to ``live``."""
        self._live = live
        self._numbers = count(1)
        self.acknowledged: dict[str, int] = {}
        self.times: list[float] = []
        self._tasks = [asyncio.create_task(self._client()) for _ in range(CLIENTS)]
        self._ends = False

    async def _client(self) -> None:
        while not self._ends:
            name = f"j{next(self._numbers)}"
            outcome = await self._live.ask(c.CreateJob(name=name))
            if isinstance(outcome, Answer):
                self.acknowledged[name] = int(outcome.body[9:-1])
                self.times.append(monotonic())

    async def more(self, answers: int) -> None:
        """Wait for some more answers."""
        wanted = len(self.acknowledged) + answers
        async with asyncio.timeout(DEADLINE_S):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0)

    async def end(self) -> None:
        """Let all clients end after what they have begun."""
        self._ends = True
        await asyncio.gather(*self._tasks)


def stored(both: Pair) -> Counter[str]:
    """Return how many jobs there are of each name."""
    return Counter(name for (name,) in both.standby.do(f"SELECT name FROM {SCHEMA}.jobs"))


async def test_nothing_acknowledged_is_lost_or_doubled_by_a_failover() -> None:
    with pair() as both:
        for _ in range(FAILOVERS):
            engine = await asyncio.to_thread(PostgreSQLEngine, both.url, SystemClock(), name=SCHEMA)
            live = Live(engine)
            load = Load(live)
            await load.more(200)
            await asyncio.to_thread(both.fail_over)
            promoted = monotonic()
            await load.more(50)
            await load.end()
            first = min(at for at in load.times if at > promoted)
            await live.stop()
            found = stored(both)
            assert [name for name in load.acknowledged if name not in found] == []
            assert [name for name, number in found.items() if number > 1] == []
            assert first - promoted < FIRST_ANSWER_S
            assert max(load.acknowledged.values()) > TIMELINE_STEP
            both.standby.do(f"DELETE FROM {SCHEMA}.jobs")
            both.primary = both.standby
            if _ + 1 < FAILOVERS:
                both.new_standby()
