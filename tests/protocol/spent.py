"""A server in its own process, and the processor time its event loop spends on a request.

The server measures the turns of its loop itself: a test that asked it from outside would also count what the
loop does while the test waits for a core. What other work on the machine takes does not count, nor how much
slower its cores are for that: a bar on it is no race.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bedrockjobs.server
from tests.pace import slowness
from tests.protocol.talk import Reply, Talk, request
from tests.reliability.servers import ForkServer

LOOP_S_MAX = 0.25
"""Processor time that the loop's thread may spend on one request: nobody else is served meanwhile."""
TRIES = 8
"""Measurements of which the shortest counts, where the first ones are over the bar."""
ANSWERED_S = 60.0
"""Time that a request may take on a busy machine."""

BEAT_S = 0.001
"""How often a loop that has nothing else to do is looked at."""

Measure = Callable[[bytes], Awaitable[tuple[Reply, float]]]


class Turns:
    """The longest processor time of a turn of a loop, in memory that two processes share.

    A small request at the worst moment waits for two: the rest of one, and the one that answers it.
    """

    def __init__(self, path: Path) -> None:
        """Use a file, which is made if there is none."""
        with path.open("a+b") as file:
            file.truncate(16)
            self._longest_s = memoryview(mmap.mmap(file.fileno(), 16)).cast("d")
        self._spent_s = self._last_s = 0.0

    def restart(self) -> None:
        """Forget the turns so far."""
        self._longest_s[0] = self._longest_s[1] = 0.0

    def longest_s(self) -> float:
        """Return the longest turn since ``restart``."""
        return self._longest_s[0]

    def longest_wait_s(self) -> float:
        """Return the longest two turns in a row since ``restart``."""
        return self._longest_s[1]

    def beat(self) -> None:
        """Measure the turns of the running loop from now on."""
        spent_s = time.thread_time()
        turn_s = spent_s - self._spent_s if self._spent_s else 0.0
        self._longest_s[0] = max(self._longest_s[0], turn_s)
        self._longest_s[1] = max(self._longest_s[1], self._last_s + turn_s)
        self._spent_s, self._last_s = spent_s, turn_s
        asyncio.get_running_loop().call_later(BEAT_S, self.beat)


def watch_turns(path: Path) -> None:
    """Measure the turns of the servers that this process will start."""
    start = bedrockjobs.server.Server.start

    async def watched_start(server: bedrockjobs.server.Server) -> None:
        await start(server)
        Turns(path).beat()

    bedrockjobs.server.Server.start = watched_start  # type: ignore[method-assign]


class Spender:
    """A server that is watched."""

    def __init__(self, pid: int, port: int, turns: Turns | None = None) -> None:
        """Watch a server that listens; without ``turns`` only what it spends on a whole request."""
        self._pid = pid
        self._turns = turns
        self.port = port

    @property
    def turns(self) -> Turns:
        """Return the turns of its loop."""
        assert self._turns is not None
        return self._turns

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
        """Send a request; return the answer, and how long the loop computed in one piece."""
        await self.settled()
        async with await Talk.open(self.port) as talk:
            self.turns.restart()
            talk.send(data)
            reply = await talk.reply(ANSWERED_S)
        await self.settled()
        return reply, comparable(self.turns.longest_s())

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
def watched(file: Path, /, **settings: Any) -> Iterator[Spender]:
    """Fork a server with the arguments of `bedrockjobs serve`, on a file or another ``database``; end it."""
    options = [
        text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    argv = ["serve", "--port", "0", "--database", str(file), *options]
    turns = file.with_suffix(".turns")
    with ForkServer.borrowed() as forks:
        forks.order(settings={}, log=f"{file}.log", argv=argv, turns=str(turns))
        try:
            pid = int(forks.find(r"forked (\d+)")[1])
            yield Spender(pid, int(forks.find(r"listens on 127\.0\.0\.1:(\d+)")[1]), Turns(turns))
        finally:
            forks.order(end=True)
            forks.find("none left")
