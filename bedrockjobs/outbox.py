"""Jobs that an application enqueues in a transaction of its own database, which is not the queue's.

``Outbox`` writes a row in the application's transaction. An ``OutboxRelay`` creates the job in the queue,
with an idempotency key, because it may send a row more than once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

from bedrockjobs.base.clock import SystemClock, after_seconds, timestamp_ms
from bedrockjobs.base.config import OUTBOX_AGAIN_S, OUTBOX_AGAIN_S_MAX
from bedrockjobs.base.errors import (
    BedrockjobsError,
    CommandError,
    Forbidden,
    InvalidArgument,
    Unauthenticated,
)
from bedrockjobs.base.wire import stamped
from bedrockjobs.client import Client, shared_client
from bedrockjobs.commands import CreateJob
from bedrockjobs.store import outbox as tables
from bedrockjobs.store.outbox import DIALECTS, OutboxRow, OutboxTable, connect, table_sql

__all__ = ["DIALECTS", "Outbox", "OutboxRelay", "OutboxTable", "Relayed", "connect", "table_sql"]

log = logging.getLogger(__name__)


class _Enqueues(Protocol):
    """A function declared with ``@job``."""

    def command(self, *args: Any, **kwargs: Any) -> CreateJob:
        """Return the command that enqueues the function with these arguments."""


class Outbox:
    """The outbox in an application's database; enqueuing is part of the transaction that is open there."""

    def __init__(self, connection: Any) -> None:
        """Use a connection of SQLAlchemy, Django or a DB-API module."""
        self._connection = connection

    def enqueue(self, job: CreateJob | _Enqueues, /, *args: Any, order_key: str = "", **kwargs: Any) -> str:
        """Write a job into the outbox; return its idempotency key.

        ``job`` is a CreateJob, or a function declared with ``@job``, which is followed by its arguments. Jobs
        with the same ``order_key`` are created in the order in which they were written. Raises
        InvalidArgument for anything else, and InvalidCommand for arguments that the function does not accept.
        """
        if len(order_key) > 255:  # the width of its column
            raise InvalidArgument("order_key: expected at most 255 characters")
        if isinstance(job, CreateJob):
            if args or kwargs:
                raise InvalidArgument("job: expected no arguments for a CreateJob")
            command = job
        elif hasattr(job, "command"):
            command = job.command(*args, **kwargs)
        else:
            raise InvalidArgument(f"job: expected a function declared with @job or a CreateJob, got {job!r}")
        key = command.idempotency_key or uuid4().hex
        now = timestamp_ms(SystemClock().now())
        if isinstance(command.first_run, str) and command.first_run[:1] in ("+", "-"):
            command = command.with_value("first_run", stamped(command.first_run, now))
        tables.add(self._connection, key, order_key, command.wire())
        return key


_PASSING = (Unauthenticated, Forbidden)
"""Refusals that an operator has to resolve, not the application: the row is kept and sent again."""


class Relayed(NamedTuple):
    """How many rows one call of ``carry`` has sent, postponed, and set aside as invalid."""

    sent: int
    postponed: int
    aside: int


class OutboxRelay:
    """Creates the jobs of an outbox in the queue; as a context manager, in a thread of the application."""

    def __init__(self, source: str | Callable[[], Any], client: Client | None = None) -> None:
        """Send with ``client``, by default the shared one, what is in an outbox.

        ``source`` is the URL of the outbox's database, or a function that returns a connection to it.
        """
        self._connect: Callable[[], Any] = partial(connect, source) if isinstance(source, str) else source
        self._client = client
        self._clock = SystemClock()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread = threading.Thread(target=self.run, name="bedrockjobs-outbox", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread after the row that is being sent."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Let ``run`` return after the row that is being sent."""
        self._ends.set()

    def run(self) -> None:
        """Send rows until ``stop`` is called; if the outbox cannot be read, try again with a growing delay.

        Raises InvalidArgument if the database is not supported.
        """
        pause_s = OUTBOX_AGAIN_S
        while not self._ends.is_set():
            try:
                connection = self._connect()
                try:
                    table = OutboxTable(connection)
                    while not self._ends.is_set():
                        done = self.carry(table)
                        pause_s = OUTBOX_AGAIN_S
                        if not done.sent + done.aside:
                            self._ends.wait(1.0)
                finally:
                    connection.close()
            except InvalidArgument:
                raise
            except Exception as error:
                log.warning("the outbox cannot be read: %s", error)
                self._ends.wait(pause_s)
                pause_s = min(2 * pause_s, OUTBOX_AGAIN_S_MAX)

    def carry(self, table: OutboxTable) -> Relayed:
        """Send the next due rows of a table once, in order; return what became of them."""
        sent = postponed = aside = 0
        waiting: set[str] = set()
        for row in table.next_rows(timestamp_ms(self._clock.now())):
            if self._ends.is_set():
                break
            if row.order_key and row.order_key in waiting:
                continue
            try:
                self._send(row)
            except (CommandError, ValueError) as error:
                if not (isinstance(error, _PASSING) or getattr(error, "retryable", False)):
                    log.error("row %d of the outbox is set aside: %s", row.id, error)  # noqa: TRY400
                    table.put_aside(row, str(error))
                    aside += 1
                    continue
                self._postpone(table, row, error)
            except (BedrockjobsError, OSError) as error:
                self._postpone(table, row, error)
                postponed += 1
                break  # the server does not answer, so sending the other rows would fail too
            else:
                table.delete(row)
                sent += 1
                continue
            waiting.add(row.order_key)
            postponed += 1
        return Relayed(sent, postponed, aside)

    def _send(self, row: OutboxRow) -> None:
        job = CreateJob.read({**CreateJob.parameters_in(row.job), "idempotencyKey": row.idempotency_key})
        (self._client or shared_client()).call(job)

    def _postpone(self, table: OutboxTable, row: OutboxRow, error: Exception) -> None:
        pause_s = min(OUTBOX_AGAIN_S * 2.0 ** min(row.attempts, 30), OUTBOX_AGAIN_S_MAX)
        log.warning("row %d of the outbox is tried again in %g s: %s", row.id, pause_s, error)
        table.postpone(row, after_seconds(timestamp_ms(self._clock.now()), pause_s), str(error))
