"""Several servers as processes of their own on one PostgreSQL; each may be killed, stopped and replaced."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.postgresql.cluster import Node
from tests.reliability.servers import Launcher
from tests.reliability.wire import Wire

SCHEMA = "shared"

NODE_SETTINGS = {
    "max_connections": "120",
    "autovacuum_naptime": "10s",  # long runs leave many dead rows
}

RETRY_S = 0.005
"""Time until a client whose server was not there tries another."""


class Shared:
    """A PostgreSQL cluster and the servers on it; use it with ``async with``."""

    def __init__(self, folder: Path, *, seed: int = 1, settings: Mapping[str, Any] | None = None) -> None:
        """Keep logs in ``folder``; ``seed`` decides which server each client uses."""
        self.node = Node(settings=NODE_SETTINGS)
        self._launcher = Launcher(folder / "servers.log")
        self._settings = {
            "database": self.node.url,
            "database_schema": SCHEMA,
            "database_direct": self.node.url,
            **(settings or {}),
        }
        self._dice = random.Random(seed)
        self._places: list[tuple[int, int]] = []
        """Process and port of each server; those of a dead one stay until another has its place."""

    async def __aenter__(self) -> Self:
        """Start PostgreSQL."""
        await asyncio.to_thread(self.node.start)
        await self._launcher.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all of it."""
        for pid, _ in self._places:
            if self._alive(pid):
                os.kill(pid, signal.SIGCONT)
        await self._launcher.__aexit__()
        await asyncio.to_thread(self.node.stop)

    # --- servers -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of servers."""
        return len(self._places)

    def _alive(self, pid: int) -> bool:
        return not self._launcher.has_ended(pid)

    def pid(self, place: int) -> int:
        """Return the process at a place."""
        return self._places[place][0]

    def port(self, place: int) -> int:
        """Return the port of a place."""
        return self._places[place][1]

    async def start(self, count: int = 1, *, fault: str = "", seed: int = 0, **settings: Any) -> None:
        """Start some more servers, with a fault if one is named, and with settings of their own."""
        for _ in range(count):
            place = await self._launcher.start(self._settings | settings, fault=fault, seed=seed)
            self._places.append(place)

    async def kill(self, place: int) -> None:
        """Kill a server."""
        await self._launcher.kill(self.pid(place))

    async def replace(self, place: int, *, fault: str = "", seed: int = 0) -> None:
        """Replace a server that has ended."""
        self._launcher.forget()
        self._places[place] = await self._launcher.start(self._settings, fault=fault, seed=seed)

    async def stillborn(self, life_s: float) -> None:
        """Start a server and kill it before or soon after it listens."""
        pid = await self._launcher.order(self._settings)
        await asyncio.sleep(life_s)
        await self._launcher.kill(pid)

    def signal(self, place: int, number: signal.Signals) -> None:
        """Send a signal to a server."""
        os.kill(self.pid(place), number)

    async def terminate(self, place: int) -> int:
        """Tell a server to stop, and return its exit status."""
        return await self._launcher.terminate(self.pid(place))

    # --- clients -----------------------------------------------------------------------------------------

    async def connect(self, port: int = 0) -> Wire:
        """Open a connection to any server, like a client that knows all addresses; raises OSError.

        ``port`` is that of the load, which knows of one server.
        """
        return await Wire.connect(self.port(self._dice.randrange(len(self))))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows of the servers' database."""
        options = f"-c search_path={SCHEMA}"
        with psycopg.connect(self.node.url, autocommit=True, options=options) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description is not None else []
