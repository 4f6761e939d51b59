"""A cluster member with a fake peer connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.engine.cluster import ClusterMember, Due
from bedrockjobs.engine.events import Notifier
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.store.base import PeerState, ServerRow, WorkerChanges


class Line:
    """A fake peer connection with known members, which records notifications."""

    def __init__(self, *servers: str) -> None:
        """Start with some members."""
        self.there = list(servers)
        self.hints: asyncio.Queue[str] = asyncio.Queue()
        self.on_notification: Callable[[str], object] = lambda text: None
        self.address = ""

    async def connect(self, version: str) -> None:
        """Join."""

    async def exchange(self, told: WorkerChanges) -> PeerState:
        """Return the members."""
        servers = [ServerRow(name, "", "", "", "") for name in self.there]
        return PeerState([], [], [], servers, [], [])

    async def publish(self, text: str) -> None:
        """Record a notification."""
        self.hints.put_nowait(text)

    async def close(self) -> None:
        """Close the connection."""


async def test_a_server_that_is_new_is_told_that_anything_may_be_due() -> None:
    """It got no notifications until now, so its caches may be stale."""
    line, clock, heard = Line("a"), SystemClock(), list[Due]()
    neighbours: Any = line
    workers = SharedWorkers(clock, clock)
    one = ClusterMember(neighbours, workers, Notifier(), heard.append, lambda: None)
    async with asyncio.timeout(20):
        await one.join("a", "1")
        line.there.append("b")
        one.serves_at("somewhere")
        assert json.loads(await line.hints.get())["due"] is None
        await one.leave_cluster()
    assert line.hints.empty()
