"""The database of a server: owned and opened at its start, let go of at its end.

The one room that knows which engines there are. The server sees a ``Database``, its engine and its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, Protocol

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.base import Engine, Reader

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_DISK, EXIT_CONFIG = 0, 1, 2, 69, 74, 78
"""How a server ends; those from 69 as in ``sysexits.h``."""


class StartError(RuntimeError):
    """The server cannot start; the message is a sentence for whoever started it."""

    def __init__(self, message: str, status: int) -> None:
        """Hold the sentence and the exit status that goes with it."""
        super().__init__(message)
        self.status = status


class Queries(Protocol):
    """What does the SQL of Query, as far as a stop has to know of it."""

    def refuse(self) -> None:
        """Begin no more queries."""
        ...

    async def close(self) -> None:
        """End those that run."""
        ...


class ServedReader(Reader, Protocol):
    """A reader whose queries can be ended before it is."""

    @property
    def queries(self) -> Queries:
        """Return what does the SQL of Query."""
        ...


class Opened(NamedTuple):
    """A database that is open."""

    engine: Engine
    reader: ServedReader


class Database(Protocol):
    """The database of one server."""

    @property
    def clock(self) -> Clock:
        """Return what the server goes by."""
        ...

    @property
    def workers(self) -> WorkerRegistry:
        """Return who works on its jobs."""
        ...

    async def open(self, on_failure: Callable[[Exception], object]) -> Opened:
        """Own it and open it; raises StartError. ``on_failure`` is told where it can be served no more."""
        ...

    async def join(
        self, dispatcher: Dispatcher, notifier: Notifier, listeners: Listeners, version: str
    ) -> None:
        """Be one of the servers of it, where there may be others; raises StartError."""
        ...

    async def move_clock(self, moment: datetime) -> None:
        """Move the test clock, that of all servers; raises Unavailable where that cannot be done now."""
        ...

    def serves_at(self, where: str) -> None:
        """Tell others, and who is refused the database, where the server listens."""
        ...

    def why_failed(self, error: Exception) -> str:
        """Return a sentence on a failure after which the server must end."""
        ...

    async def leave(self) -> None:
        """Tell others what is left to tell, where there may be some: the server stops."""
        ...

    def release(self) -> None:
        """Let go of it, after all is closed."""
        ...


def database_of(settings: Settings, clock: Clock | None, lease_clock: Clock | None) -> Database:
    """Return the database that settings name; raises StartError. Tests bring clocks of their own."""
    if settings.on_postgresql:
        try:
            from bedrockjobs.databases.postgresql import PostgreSQLDatabase
        except ImportError as error:
            if error.name != "psycopg":
                raise
            raise StartError(
                "database: PostgreSQL needs more than is installed: pip install 'bedrockjobs[postgresql]'",
                EXIT_CONFIG,
            ) from None
        return PostgreSQLDatabase(settings, clock, lease_clock)
    from bedrockjobs.databases.file import FileDatabase

    return FileDatabase(settings, clock, lease_clock)
