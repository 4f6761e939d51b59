"""A PostgreSQL database shared by any number of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from bedrockjobs.base.background import waited_for
from bedrockjobs.base.clock import AlignedClock, Clock, StandingClock, SystemClock, moment_of, timestamp_ms
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_CONFIG, EXIT_UNAVAILABLE, Opened, Passing, StartError, WaitingStart
from bedrockjobs.engine.cluster import ClusterMember
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.own_commands import Inbox
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.store.base import NameTaken, StoreError
from bedrockjobs.store.postgresql.connect_checks import start_fault
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.peers import PostgreSQLPeers
from bedrockjobs.store.postgresql.reader import PostgreSQLReader
from bedrockjobs.store.postgresql.session import SessionRequirements
from bedrockjobs.store.schema import SchemaError


class PostgreSQLDatabase(WaitingStart):
    """One server's access to a shared database."""

    def __init__(self, settings: Settings, clock: Clock | None, lease_clock: Clock | None) -> None:
        """Prepare to use the database of ``settings``; tests may pass their own clocks."""
        super().__init__()
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

    def passing(self, error: Exception) -> Passing | None:
        """Return an error of the database if it may pass by itself; raises StartError if it will last."""
        if not isinstance(error, SchemaError | StoreError):
            return None
        fault = start_fault(error)
        if isinstance(error, SchemaError) or not fault.passes:
            raise StartError(fault.sentence, fault.status) from None
        return Passing(fault.sentence, error)

    def _confirmed(self) -> str:
        """Return the last stored heartbeat of this server; empty before the first one."""
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
        """Do nothing: engine, reader and cluster member close their connections."""
