"""The database of a server: opened when the server starts, released when it ends.

This package chooses the engine. The server uses a ``Database``, and the engine and the reader that it opens.
Token commands for users who have lost all tokens are executed directly on the database.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from bedrockjobs import systemd
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import DATABASE_RETRY_S, DATABASE_RETRY_S_MAX
from bedrockjobs.base.errors import CommandError, Unavailable
from bedrockjobs.base.principal import Permission, Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.row_access import perform_for
from bedrockjobs.engine.workers import NoWorkers, WorkerRegistry
from bedrockjobs.store.base import Engine, Reader, StoreError, Unit
from bedrockjobs.store.offline import unit_of

log = logging.getLogger(__name__)

_T = TypeVar("_T")

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_DISK, EXIT_CONFIG = 0, 1, 2, 69, 74, 78
"""Exit statuses of a server; 69 and above follow ``sysexits.h``."""


class StartError(RuntimeError):
    """The server cannot start; the message is a sentence for the user."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


OnWait = Callable[[str, StoreError | Unavailable], Awaitable[object]]


async def no_wait(sentence: str, error: StoreError | Unavailable) -> None:
    """Do nothing: the default of ``on_wait``, which is called while a start waits."""


class Passing(NamedTuple):
    """An error that may pass by itself."""

    sentence: str
    refusal: StoreError | Unavailable
    """The error with which commands are refused meanwhile."""


class WaitingStart(ABC):
    """The start of a server, which waits for its database as a running server does."""

    def __init__(self) -> None:
        self.on_wait: OnWait = no_wait
        """Called with a sentence and the error whenever the start finds that it has to wait."""
        self.waits = False
        """Whether the start is waiting for the database; the wait is logged once."""

    @abstractmethod
    def passing(self, error: Exception) -> Passing | None:
        """Return the error if it may pass by itself, or None; raises StartError if it is known to last."""

    async def when_there(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat ``attempt`` until the database can be used, without a limit; return its result.

        Raises StartError, or the error of ``attempt``, if the error does not pass by itself.
        """
        pause_s = DATABASE_RETRY_S
        while True:
            try:
                done = await attempt()
            except Exception as error:
                if isinstance(error, Unavailable):  # of the reader, which has its own connection
                    passing: Passing | None = Passing(f"database: {error.detail}", error)
                else:
                    passing = self.passing(error)
                if passing is None:
                    raise
                if not self.waits:
                    log.warning("waiting for the database: %s", passing.sentence)
                    systemd.notify("READY=1", "STATUS=waiting for the database")
                self.waits = True
                await self.on_wait(*passing)
            else:
                if self.waits:
                    log.info("the database can be used")
                self.waits = False
                return done
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, DATABASE_RETRY_S_MAX)


class Opened(NamedTuple):
    """An open database."""

    engine: Engine
    reader: Reader


class Database(Protocol):
    """The database of one server."""

    @property
    def clock(self) -> Clock:
        """Return the server's clock."""

    on_wait: OnWait
    """Called with a sentence and the error whenever the start finds that it has to wait."""

    @property
    def workers(self) -> WorkerRegistry:
        """Return the worker registry."""

    async def open_database(self, on_failure: Callable[[Exception], object]) -> Opened:
        """Open the database; raises StartError. ``on_failure`` is called if it becomes unusable."""

    async def when_there(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat ``attempt`` until the database can be used, if waiting may help; return its result.

        Raises StartError, or the error of ``attempt``.
        """

    async def join(
        self, dispatcher: Dispatcher, notifier: Notifier, listeners: Listeners, version: str
    ) -> None:
        """Join the other servers of the database, if any; raises StartError."""

    async def move_clock(self, moment: datetime) -> None:
        """Advance the test clock of all servers; raises Unavailable if that is not possible now."""

    def serves_at(self, where: str) -> None:
        """Publish the address of the server."""

    def why_failed(self, error: Exception) -> str:
        """Describe a failure after which the server must stop."""

    async def leave_cluster(self) -> None:
        """Leave the cluster of servers that share the database, because this server stops."""

    def release(self) -> None:
        """Release the database after everything is closed."""


def database_of(settings: Settings, clock: Clock | None, lease_clock: Clock | None) -> Database:
    """Return the database of the settings; raises StartError. Tests pass their own clocks."""
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


# Token commands executed directly on the database, for users who have lost all tokens.


_CALLER = Principal(Permission("", "admin"), "database")
"""Their principal, with the client address that the audit log shows."""


def do_on_file(path: Path, command: Command[Any]) -> Answer:
    """Execute a token command on a SQLite file; raises CommandError and the errors of ``unit_of``."""
    with unit_of(path, SystemClock().now()) as unit:
        return _done(Context(cast(Unit, unit), "document", NoWorkers()), command)


def do_on_postgresql(url: str, schema: str, command: Command[Any]) -> Answer:
    """Execute a token command on PostgreSQL; raises CommandError, StoreError, SchemaError."""
    from bedrockjobs.store.postgresql.engine import PostgreSQLEngine  # it needs the driver

    engine = PostgreSQLEngine(url, SystemClock(), name=schema)
    try:
        answer = _done(Context(engine.begin([plan_of(command)]), "document", NoWorkers()), command)
        engine.commit()
        engine.confirm()
    finally:
        engine.close()
    return answer


def _done(context: Context, command: Command[Any]) -> Answer:
    outcome = perform_for(_CALLER, context, command)
    if isinstance(outcome, CommandError):
        raise outcome
    return outcome
