"""A PostgreSQL database shared by any number of servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TypeVar

from bedrockjobs import systemd
from bedrockjobs.base.background import waited_for
from bedrockjobs.base.clock import AlignedClock, Clock, StandingClock, SystemClock, moment_of, timestamp_ms
from bedrockjobs.base.config import PG_RETRY_S, PG_RETRY_S_MAX
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_CONFIG, EXIT_UNAVAILABLE, OnWait, Opened, StartError, no_wait
from bedrockjobs.engine.cluster import ClusterMember
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.inbox import Inbox
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.peers import NameTaken
from bedrockjobs.store.postgresql.connect_checks import StartFault, start_fault
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.peers import PostgreSQLPeers
from bedrockjobs.store.postgresql.reader import PostgreSQLReader
from bedrockjobs.store.postgresql.session import SessionRequirements
from bedrockjobs.store.schema import SchemaError

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class PostgreSQLDatabase:
    """One server's access to a shared database."""

    def __init__(self, settings: Settings, clock: Clock | None, lease_clock: Clock | None) -> None:
        """Prepare to use the database of ``settings``; tests may pass their own clocks."""
        self._settings = settings
        self._real = lease_clock or AlignedClock()
        standing = StandingClock(SystemClock().now()) if settings.test_clock else None
        self.clock: Clock = clock or standing or self._real
        self.workers = SharedWorkers(self.clock, self._real)
        self._name = settings.resolved_server_name()
        self._engine: PostgreSQLEngine | None = None
        self._peers: PostgreSQLPeers | None = None
        self._cluster: ClusterMember | None = None
        self._inbox: Inbox | None = None
        self.on_wait: OnWait = no_wait
        self._waits = False
        """Whether the start waits for the database, which is logged once."""

    async def open_database(self, on_failure: Callable[[Exception], object]) -> Opened:
        """Connect and create missing tables; raises StartError."""
        settings = self._settings
        try:
            settings.check_postgresql()
        except ValueError as error:
            raise StartError(str(error), EXIT_CONFIG) from None
        engine = await self.when_there(self._connect)
        engine.unit.records.configure(settings)
        self._engine = engine
        reader = PostgreSQLReader(
            settings.database, settings, settings.database_schema, engine.id, self._confirmed
        )
        return Opened(engine, reader)

    async def _connect(self) -> PostgreSQLEngine:
        settings = self._settings
        terms = SessionRequirements.from_settings(settings)
        url, schema = settings.database, settings.database_schema
        return await waited_for(lambda: PostgreSQLEngine(url, self.clock, name=schema, terms=terms))

    async def when_there(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Attempt something until the database can be used, without a limit, as a running server does.

        Raises StartError for what a person has to change.
        """
        pause_s = PG_RETRY_S
        while True:
            try:
                done = await attempt()
            except (SchemaError, StoreError, Unavailable) as error:
                fault = self._fault(error)
                if isinstance(error, SchemaError) or not fault.passes:
                    raise StartError(fault.sentence, fault.status) from None
                if not self._waits:
                    log.warning("waiting for the database: %s", fault.sentence)
                    systemd.notify("READY=1", "STATUS=waiting for the database")
                self._waits = True
                await self.on_wait(fault.sentence, error)
            else:
                if self._waits:
                    log.info("the database can be used")
                self._waits = False
                return done
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PG_RETRY_S_MAX)

    @staticmethod
    def _fault(error: SchemaError | StoreError | Unavailable) -> StartFault:
        if isinstance(error, Unavailable):  # of the reader, which uses another connection
            return StartFault(f"database: {error.detail}", EXIT_UNAVAILABLE, passes=True)
        return start_fault(error)

    def _confirmed(self) -> str:
        """Return the last stored heartbeat of this server; empty before the first."""
        return "" if self._peers is None else self._peers.confirmed

    async def join(
        self, dispatcher: Dispatcher, notifier: Notifier, listeners: Listeners, version: str
    ) -> None:
        """Join the cluster; raises StartError."""
        await self.when_there(partial(self._join, dispatcher, notifier, version))
        assert self._cluster is not None
        listeners.add(self._cluster)

    async def _join(self, dispatcher: Dispatcher, notifier: Notifier, version: str) -> None:
        assert self._engine is not None
        settings = self._settings
        peers = self._peers = PostgreSQLPeers(
            settings.database_direct or settings.database,
            settings.database_schema,
            self._name,
            self._engine.id,
            self._real,
        )
        engine = self._engine

        def on_due(due: Mapping[str, str] | None) -> None:
            engine.on_queued(due)
            dispatcher.note_ready(due)

        self._inbox = Inbox(peers.inbox, dispatcher.submit)
        self._cluster = ClusterMember(
            peers, self.workers, notifier, on_due, dispatcher.poke, self._inbox.soon
        )
        try:
            await self._cluster.join(self._name, version)
        except NameTaken as error:
            await peers.close()
            raise StartError(str(error), EXIT_UNAVAILABLE) from None
        except (SchemaError, StoreError):
            await peers.close()
            raise

    async def move_clock(self, moment: datetime) -> None:
        """Advance the test clock of all servers; raises Unavailable if the database is unreachable."""
        assert self._cluster is not None
        assert isinstance(self.clock, StandingClock)
        try:
            shown = await self._cluster.move_clock(timestamp_ms(moment))
        except StoreError as error:
            raise Unavailable("Database away", f"the clock was not moved: {error}") from None
        self.clock.move_to(moment_of(shown))

    def serves_at(self, where: str) -> None:
        """Publish the address of this server."""
        assert self._cluster is not None
        self._cluster.serves_at(where)
        if self._inbox is not None:
            self._inbox.start()

    def why_failed(self, error: Exception) -> str:
        """Describe a failure after which the server must stop."""
        return f"the database failed, the server ends: {error}"

    async def leave_cluster(self) -> None:
        """Leave the cluster."""
        if self._inbox is not None:
            await self._inbox.close()
        if self._cluster is not None:
            await self._cluster.leave_cluster()

    def release(self) -> None:
        """Do nothing: the connections are closed by their owners."""
