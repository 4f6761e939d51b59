"""One life of a server: real engine, dispatcher and connections, simulated threads, sockets and disk."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import dispatcher as engine_dispatcher
from bedrockjobs.engine.access import Access
from bedrockjobs.engine.committer import Then
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.protocol.connection import RawConnection
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.service import Service
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.simulation.disk import POWER_GONE, Disk
from tests.simulation.loop import LIFE, Mortal, VirtualClock, VirtualLoop

COMMIT_S = 0.004
"""The longest commit."""

QUICK = 0.5
"""Share of the commits that the loop does itself."""


class Life(Mortal):
    """A server from its start to its stop, kill or power cut."""

    def __init__(self, loop: VirtualLoop, clock: VirtualClock, disk: Disk, settings: Settings) -> None:
        """Prepare a life; ``start`` begins it."""
        self._loop = loop
        self._clock = clock
        self._disk = disk
        self._settings = settings
        self.engine: SQLiteEngine | None = None
        self.over: asyncio.Future[str] = loop.create_future()
        """Set to the reason for the end, unless it was killed: ``power`` or ``failure``."""

    def start(self, dice: random.Random) -> None:
        """Open the database; raises sqlite3.Error or OSError if the disk fails."""
        self._within(self._start, dice)

    def _start(self, dice: random.Random) -> None:
        clock, settings = self._clock, self._settings
        self.engine = SQLiteEngine(self._disk.path, settings, clock)
        # Short logs, so that they are checkpointed and restarted while the server runs.
        self.engine._execute(f"PRAGMA wal_autocheckpoint = {dice.choice((4, 30, 200))}")
        notifier, workers, stats = Notifier(), WorkerRegistry(clock, clock), Stats()
        with patch.object(engine_dispatcher, "CommitExecutor", lambda *_, **__: _Commits(self._loop, dice)):
            self._dispatcher = dispatcher = Dispatcher(
                self.engine,
                clock,
                settings,
                lambda error: self._ends("failure"),
                workers=workers,
                minutes=stats,
                listeners=Listeners([workers, stats, notifier]),
            )
        nobody: Any = None  # no command of a simulation is done by a reader, or moves its clock
        access = Access(clock, settings, reachable=False)
        self._service = Service(dispatcher, nobody, workers, notifier, clock, settings, nobody, access)
        self._connections = Connections(self._service, clock, settings)
        dispatcher.start()

    def accept(self, link: asyncio.Transport) -> None:
        """Take a new connection."""
        protocol = RawConnection(self._connections, _no_http)
        link.set_protocol(_Served(self, protocol))
        self._within(protocol.connection_made, link)

    def _within(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function as part of this life."""
        if not self.alive:
            return
        before = LIFE.set(self)
        try:
            call(*args)
        finally:
            LIFE.reset(before)
        self.look()

    def look(self) -> None:
        """End this life if the power was cut."""
        if self.alive and self._disk.happened & POWER_GONE:
            self._ends("power")

    def _ends(self, why: str) -> None:
        self.alive = False
        if not self.over.done():
            self.over.set_result(why)

    def die(self) -> None:
        """End at once."""
        self._ends("killed")

    async def stop(self) -> None:
        """Shut down as on SIGTERM. Await it in a separate task, which ends with this life."""
        LIFE.set(self)
        await self._service.drain()
        await self._connections.close()
        await self._dispatcher.end()

    def close(self) -> None:
        """Close the files; after the end of a life this changes only files that no longer matter."""
        self.alive = False
        if self.engine is not None:
            with suppress(sqlite3.Error, OSError):
                self.engine.close()


class _Served(asyncio.Protocol):
    """The server's end of a connection, whose callbacks belong to its life."""

    def __init__(self, life: Life, protocol: RawConnection) -> None:
        self._life = life
        self._protocol = protocol

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        call = getattr(self._protocol, name)
        return lambda *args: self._life._within(call, *args)


class _Commits:
    """Commits without a thread: some at once, as in the loop, some in a moment, as by the thread."""

    def __init__(self, loop: VirtualLoop, dice: random.Random) -> None:
        self._loop = loop
        self._dice = dice
        self._left = 0
        self.start = lambda: None
        self.is_alive = lambda: True

    def do(self, commit: Callable[[], None], then: Then) -> None:
        """Commit, and call ``then`` with the result."""
        self._left += 1
        if self._dice.random() < QUICK:
            self._do(commit, then)
        else:
            self._loop.call_later(self._dice.random() * COMMIT_S, self._do, commit, then)

    def _do(self, commit: Callable[[], None], then: Then) -> None:
        self._left -= 1
        failure: Exception | None = None
        try:
            commit()
        except Exception as error:
            failure = error
        life = LIFE.get()
        if life is not None:
            life.look()
        if life is None or life.alive:
            then(0.0, failure)

    async def end(self) -> None:
        """Wait until all is committed."""
        while self._left:
            await asyncio.sleep(COMMIT_S)


def _no_http() -> asyncio.Protocol:
    raise AssertionError("clients of a simulation do not speak HTTP")
