"""A server in its own process, and the processor time its event loop spends on a request.

What other work on the machine takes does not count, nor how much slower its cores are for that: a bar on it
is no race.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.pace import slowness
from tests.protocol.talk import Reply, Talk, request
from tests.reliability.servers import ForkServer

LOOP_S_MAX = 0.25
"""Processor time that the loop's thread may spend on one request: nobody else is served meanwhile."""
TRIES = 8
"""Measurements of which the shortest counts, where the first ones are over the bar."""
ANSWERED_S = 60.0
"""Time that a request may take on a busy machine."""

Measure = Callable[[bytes], Awaitable[tuple[Reply, float]]]


class Spender:
    """A server that is watched."""

    def __init__(self, pid: int, port: int) -> None:
        """Watch a server that listens."""
        self._pid = pid
        self.port = port

    def loop_s(self) -> float:
        """Return the processor time that the loop's thread has spent since it began."""
        spent = Path(f"/proc/{self._pid}/task/{self._pid}/schedstat").read_text().split()[0]
        return int(spent) / 1e9

    def memory_bytes(self) -> int:
        """Return the memory that the process holds."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * 4096

    async def ask(self, data: bytes) -> tuple[Reply, float]:
        """Send a request; return the answer, and the processor time that the loop's thread spent on it."""
        await self.settled()
        before = self.loop_s()
        async with await Talk.open(self.port) as talk:
            talk.send(data)
            reply = await talk.reply(ANSWERED_S)
        await self.settled()
        return reply, comparable(self.loop_s() - before)

    async def longest(self, data: bytes) -> tuple[Reply, float]:
        """Send a request; return the answer, and how long the loop computed between two turns of others."""
        await self.settled()
        async with await Talk.open(self.port) as talk, await Talk.open(self.port) as others:
            before, longest = self.loop_s(), 0.0
            talk.send(data)
            reply = asyncio.ensure_future(talk.reply(ANSWERED_S))
            ended = False
            while not ended:
                ended = reply.done()
                assert (await others.ask("Ping")).code == 200
                now = self.loop_s()
                before, longest = now, max(longest, now - before)
            return await reply, comparable(longest)

    async def least(self, measure: Measure, data: bytes) -> tuple[Reply, float]:
        """Do ``ask`` or ``longest`` with a request that costs the same each time; again if it took long."""
        reply, least = await measure(data)
        for _ in range(TRIES - 1):
            if least >= LOOP_S_MAX:
                least = min(least, (await measure(data))[1])
        return reply, least

    async def settled(self) -> None:
        """Wait until the server has done all that it was asked before."""
        async with await Talk.open(self.port) as talk:
            talk.send(request("ListLimits"))
            assert (await talk.reply(ANSWERED_S)).code == 200


def comparable(spent_s: float) -> float:
    """Return processor time to compare with the bar: corrected by the pace of the machine if it is over."""
    return spent_s if spent_s < LOOP_S_MAX else spent_s / slowness()


@contextmanager
def watched(database: Path, **settings: Any) -> Iterator[Spender]:
    """Fork a server with the arguments of `bedrockjobs serve`, and end it."""
    options = [
        text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    argv = ["serve", "--port", "0", "--database", str(database), *options]
    with ForkServer.borrowed() as forks:
        forks.order(settings={}, log=f"{database}.log", argv=argv)
        try:
            pid = int(forks.find(r"forked (\d+)")[1])
            yield Spender(pid, int(forks.find(r"listens on 127\.0\.0\.1:(\d+)")[1]))
        finally:
            forks.order(end=True)
            forks.find("none left")
