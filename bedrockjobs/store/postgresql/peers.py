"""What the servers of one database share: the test clock, maintenance, membership and notifications.

All servers use the test clock of the database, or none does. The time of the test clock is stored in the
table ``control``, and each unit reads it with its first lock. A server that starts while no other is alive
sets the test clock to its own time or, without ``--test-clock``, removes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.clock import AlignedClock, Clock, StandingClock, moment_of, timestamp_ms
from bedrockjobs.base.config import (
    INBOX_BYTES_MAX,
    INBOX_ROWS_MAX,
    PG_CONNECT_S_MAX,
    SERVER_GONE_S,
    WORKERS_MAX,
)
from bedrockjobs.job.rows import EventRow, InboxRow
from bedrockjobs.store import statements
from bedrockjobs.store.base import (
    NameTaken,
    OpenRunRow,
    PeerState,
    ServerRow,
    ServerState,
    StoreAway,
    StoreConflict,
    StoreError,
    Watch,
    WorkerChanges,
    WorkerRow,
)
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.connect_checks import UnfitDatabase
from bedrockjobs.store.postgresql.locks import AdvisoryKeys
from bedrockjobs.store.postgresql.records import PostgreSQLRecords
from bedrockjobs.store.postgresql.session import (
    BEGIN,
    DatabaseSession,
    Row,
    Statement,
    adapt,
    answered_within,
    columns,
    fault_of,
)
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.transfer import moved_refusal

MOVES_MAX = 10
"""Maximum number of times that a unit begins again because another server moved the test clock; that server
runs units between two moves."""


class ClockMoved(StoreConflict):
    """A unit began at another time than the test clock of the database shows."""

    def __init__(self, date: str) -> None:
        """Hold the time stored in the database; empty if it has no test clock."""
        super().__init__("the test clock was moved")
        self.date = date


class SharedTestClock:
    """One server's copy of the test clock of its database."""

    def __init__(self, clock: Clock) -> None:
        """Keep ``clock`` in step with the database; it is a StandingClock if the server uses a test clock."""
        self._clock = clock
        self._test_clock = clock if isinstance(clock, StandingClock) else None

    @property
    def database_time(self) -> str:
        """Return the time that the database should have; empty without a test clock."""
        return "" if self._test_clock is None else timestamp_ms(self._test_clock.now())

    def agree_with_servers(self, session: DatabaseSession, control: int) -> None:
        """Follow the test clock of the live servers, or set it if there are none.

        ``control`` is the key of the lock that all units share. Raises SchemaError if this server uses a test
        clock and live servers do not, or if live servers use one and this server does not.
        """
        living = (SQL["clock_and_servers"], (SERVER_GONE_S,))
        ((date, servers),) = session.run_statements([living])[0]
        if not servers and date != self.database_time:
            ((date, servers),) = session.run_statements(
                [(BEGIN, ()), (SQL["lock_alone"], (control,)), living]
            )[2]
            date = date if servers else self.database_time
            session.commit([(SQL["set_clock"], (date,)), (SQL["commit"], ())])
        if bool(date) != (self._test_clock is not None):
            raise SchemaError(_words(date, servers))
        self._go_to(date)

    def follow(self, date: str) -> None:
        """Move to the time ``date`` of the database, which is empty if the database has no test clock.

        Raises UnfitDatabase if this server uses a test clock and the database has none, or the reverse.
        """
        if bool(date) != (self._test_clock is not None):
            raise UnfitDatabase(_words(date))
        self._go_to(date)

    def _go_to(self, date: str) -> None:
        if self._test_clock is not None:
            self._test_clock.move_to(moment_of(date))


def _words(date: str, names: Sequence[str] = ()) -> str:
    """Return why a server cannot join; ``date`` is the time of the other servers' test clock, if any."""
    in_brackets = f" ({', '.join(names)})" if names else ""
    others = f"other servers of this database{in_brackets}"
    if date:
        return f"{others} have a test clock, which shows {date[:19]}: start this one with --test-clock too"
    return f"{others} have no test clock: stop them first, or give tests a database of their own"


# Maintenance: which server runs it, when all servers were down, and which leases have expired.


_BETWEEN = " to "


class Timekeeping:
    """The operations of a unit for maintenance, outages and leases."""

    def __init__(
        self, transaction: Transaction, records: PostgreSQLRecords, keys: AdvisoryKeys, session_id: str
    ) -> None:
        """Use ``transaction`` and ``records`` for the server with this session ID."""
        self._records = records
        self._session_id = session_id
        self._transaction = transaction
        self._key = keys.key_of("watch")

    def watch(self) -> Watch:
        """Try to become the maintenance leader until this unit ends; return the result and stored times."""
        ((found,),) = self._transaction.run_statements((SQL["watch"], (self._key,)))
        mine, seen, away = found
        since, _, until = (away or "").partition(_BETWEEN)
        return Watch(mine, seen or "", (since, until))

    def watched(self, now: str) -> None:
        """Store that maintenance has run."""
        self._transaction.write(SQL["set_meta"], "seen", now)

    def record_outage(self, since: str, until: str) -> None:
        """Store an outage of all servers and renew the lease of each run in progress."""
        self._transaction.write(SQL["set_meta"], "away", f"{since}{_BETWEEN}{until}")
        self._transaction.write(SQL["renew_leases"], until)

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runIDs of at most ``limit`` runs with an expired lease."""
        (rows,) = self._transaction.run_statements((SQL["leases_over"], (now, limit)))
        return [run_id for (run_id,) in rows]

    def record_shutdown(self, now: str) -> None:
        """Store that the server shut down cleanly; IDs that it drew and did not use stay unused."""
        self.watched(now)
        last_seen, there = self._transaction.run_statements(
            (SQL["leave"], (self._session_id,)), (SQL["servers_there"], ())
        )
        self._transaction.wrote = True
        names = " ".join(name for (name,) in there)
        for (name,) in last_seen:
            detail = f"{len(there)} server(s) now running [{names}]"
            self._records.add_event(now, EventRow("server left", name, detail=detail))


# Membership and notifications: one connection that sends, and one that listens.
#
# They are separate from the writing session, so that cluster traffic never delays a commit. A broken
# connection is replaced at the next exchange; until then notifications are lost, and servers poll once a
# second.


log = logging.getLogger(__name__)

PEER_SQL = statements.read_statements(Path(__file__).with_name("peers.sql"), lambda text: text)

Connection = psycopg.AsyncConnection[Row]

LINE_S_MAX = 5.0
"""Maximum seconds for one round trip to the database, which normally takes milliseconds."""

SEEN_DEAD: dict[str, Any] = {
    "tcp_user_timeout": PG_CONNECT_S_MAX * 1000,
    "keepalives_idle": PG_CONNECT_S_MAX,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
"""TCP settings that detect a dead host, since a connection that only listens sends nothing."""


class PostgreSQLPeers:
    """The membership and notifications of one server."""

    def __init__(self, url: str, schema: str, name: str, session: str, clock: Clock) -> None:
        """Prepare the membership of the server ``name``; ``session`` is its unique ID.

        ``url`` leads to PostgreSQL directly: a pooler forwards no notifications.
        """
        self._url = url
        self._schema = schema
        self._clock = clock
        self._me = (name, session)
        self._since = self._version = self.address = ""
        self.state: ServerState = "starting"
        self.confirmed = ""
        """The last heartbeat of this server that was committed."""
        self._telling: Connection | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self._refused: set[str] = set()
        self.on_notification: Callable[[str], object] = lambda text: None

    # --- connections -------------------------------------------------------------------------------------

    async def connect(self, version: str) -> None:
        """Join the cluster.

        Raises NameTaken if a live server has this name, SchemaError if the queue was moved while this server
        started, StoreError if the database refuses or cannot be reached.
        """
        name, session = self._me
        await self._align()
        now = timestamp_ms(self._clock.now())
        self._since, self._version = now, version
        mine = (name, session, now, "", version, self._lost_since(), schema.VERSION)
        joined, moved = await self._run_statements([(PEER_SQL["join"], mine), (PEER_SQL["moved_to"], ())])
        if moved:
            raise SchemaError(moved_refusal(moved[0][0]))
        if not joined:
            raise NameTaken(f"server_name: a live server of this database has the name {name}")

    def _lost_since(self) -> str:
        return timestamp_ms(self._clock.now() - timedelta(seconds=SERVER_GONE_S))

    async def close(self) -> None:
        """Stop sending and listening."""
        self._closed = True
        if self._hearing is not None:
            self._hearing.cancel()
            # Time for a connection attempt to complete, which cannot be closed before.
            await asyncio.wait({self._hearing}, timeout=2.0)
        if self._telling is not None:
            await self._telling.close()

    async def _connect(self) -> Connection:
        parameters = conninfo_to_dict(self._url)
        connection = await psycopg.AsyncConnection.connect(
            self._url,
            **{name: value for name, value in SEEN_DEAD.items() if name not in parameters},
            autocommit=True,
            cursor_factory=psycopg.AsyncRawCursor,
            client_encoding="UTF8",
            connect_timeout=PG_CONNECT_S_MAX,
            target_session_attrs="read-write",  # wherever the primary is by now
            options=f'-c search_path="{self._schema}" -c synchronous_commit=off',
        )
        adapt(connection)
        return connection

    async def _run_statements(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements in one round trip and one transaction; callers take turns."""
        async with self._turn:
            if self._closed:
                raise StoreAway("the server leaves the others")
            try:
                if self._telling is None or self._telling.closed:
                    self._telling = await self._connect()
                    if self._closed:  # by close(), which had no connection yet
                        await self._telling.close()
                        raise StoreAway("the server leaves the others")
                if self._hearing is None or self._hearing.done():
                    self._hearing = asyncio.ensure_future(self._forward_notifications())
                with answered_within(self._telling, LINE_S_MAX):
                    return await self._answers(self._telling, statements)
            except (psycopg.Error, TimeoutError) as error:
                fault = fault_of(error) or StoreAway(str(error))
                if isinstance(fault, StoreAway) or not self._usable:
                    if self._telling is not None:
                        await self._telling.close()
                    if self._hearing is not None:  # an idle listener does not notice a lost connection
                        self._hearing.cancel()
                        self._hearing = None
                raise fault from error

    @property
    def _usable(self) -> bool:
        """Return whether the connection survived a refused statement."""
        return (
            self._telling is not None
            and not self._telling.closed
            and self._telling.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        )

    @staticmethod
    async def _answers(connection: Connection, statements: Sequence[Statement]) -> list[list[Row]]:
        async with connection.pipeline():
            cursors = [await connection.execute(sql, parameters) for sql, parameters in statements]
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    async def _forward_notifications(self) -> None:
        """Forward notifications of other servers until the connection breaks; an exchange reconnects."""
        with suppress(psycopg.Error):
            connecting = asyncio.ensure_future(self._connect())
            try:
                connection = await asyncio.shield(connecting)
            except asyncio.CancelledError:  # a half-open connection cannot be closed
                connecting.add_done_callback(_finish)
                await asyncio.wait({connecting})
                raise
            try:
                await connection.execute(f'LISTEN "{self._schema}"')
                self.on_notification("")  # earlier notifications were missed
                async for notice in connection.notifies():
                    told_by, _, text = notice.payload.partition(" ")
                    if told_by != self._me[1]:
                        self.on_notification(text)
            finally:
                await connection.close()

    # --- messages ----------------------------------------------------------------------------------------

    async def _align(self) -> None:
        """Align the clock with that of the database, if it is an AlignedClock."""
        if isinstance(self._clock, AlignedClock):
            await self._run_statements([(PEER_SQL["clock"], ())])  # connects first if necessary, untimed
            asked = self._clock.monotonic()
            (((moment,),),) = await self._run_statements([(PEER_SQL["clock"], ())])
            self._clock.align(moment, asked, self._clock.monotonic())

    async def exchange(self, changes: WorkerChanges) -> PeerState:
        """Send this server's heartbeat and worker changes; return the cluster's state. Raises StoreError.

        Heartbeats are sent first, in a separate transaction, so that no other row can delay them. A worker
        whose row the database refuses is left out.
        """
        await self._align()
        now = timestamp_ms(self._clock.now())
        identity = (*self._me, self._since, self.address, self._version)
        alive: list[Statement] = [
            (PEER_SQL["pulse"], (*identity, now, schema.VERSION, changes.served, self.state)),
            (PEER_SQL["lost_servers"], (self._lost_since(),)),
        ]
        if changes.beats:
            alive.append((PEER_SQL["beat"], (changes.beats, now)))
        lost = [name for (name,) in (await self._run_statements(alive))[1]]
        self.confirmed = now
        part = PEER_SQL["part"], columns(changes.left) if changes.left else ([], [])
        rest: list[Statement] = [(PEER_SQL["lost_workers"], (now,)), *_POLLS, (PEER_SQL["inbox_due"], (now,))]
        meeting = [_meeting(changes.workers)] if changes.workers else []
        try:  # a name that one token left may already be another one's
            parted, *met, silent, servers, workers, runs, inbox = await self._run_statements(
                [part, *meeting, *rest]
            )
        except StoreAway:
            raise
        except StoreError:
            (parted,) = await self._run_statements([part])
            met = [await self._meet_alone(worker) for worker in changes.workers]
            silent, servers, workers, runs, inbox = await self._run_statements(rest)
        return PeerState(
            [name for rows in met for name, new in rows if new],
            [name for (name,) in (*parted, *silent)],
            lost,
            [ServerRow._make(row) for row in servers],
            [WorkerRow._make(row) for row in workers],
            [OpenRunRow._make(row) for row in runs],
            inbox=bool(inbox),
        )

    async def _meet_alone(self, worker: WorkerRow) -> list[Row]:
        """Store one worker; if the database refuses it, log that once and return no rows."""
        try:
            return (await self._run_statements([_meeting([worker])]))[0]
        except StoreAway:
            raise
        except StoreError as error:
            if worker.name not in self._refused:
                # Maximum number of workers remembered as refused by the database, so that each is logged once
                if len(self._refused) >= 1_000:
                    self._refused.clear()
                self._refused.add(worker.name)
                log.warning("the other servers are not notified of the worker %r: %s", worker.name, error)
            return []

    async def inbox(self) -> list[InboxRow]:
        """Return the next jobs of the inbox; raises StoreError."""
        now = timestamp_ms(self._clock.now())
        (rows,) = await self._run_statements([(PEER_SQL["inbox"], (now, INBOX_ROWS_MAX, INBOX_BYTES_MAX))])
        return [InboxRow._make(row) for row in rows]

    async def move_clock(self, moment: str) -> str:
        """Advance the test clock of the database; return its time. Raises StoreError."""
        (rows,) = await self._run_statements([(PEER_SQL["move_clock"], (moment,))])
        if not rows:
            raise StoreAway("the database no longer has a test clock")
        return str(rows[0][0])

    async def publish(self, text: str) -> None:
        """Notify all other servers; raises StoreError."""
        await self._run_statements([(PEER_SQL["hint"], (self._schema, f"{self._me[1]} {text}"))])


def _meeting(workers: Sequence[WorkerRow]) -> Statement:
    rows = [
        worker._replace(asked=json.dumps(worker.asked), accepts=json.dumps(worker.accepts))  # type: ignore[arg-type]
        for worker in workers
    ]
    return PEER_SQL["meet"], columns([tuple(row) for row in rows])


def _finish(connecting: asyncio.Future[Connection]) -> None:
    """Close a connection that is no longer wanted once it is established."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().pgconn.finish()


_POLLS: list[tuple[str, Sequence[Any]]] = [
    (PEER_SQL["servers"], ()),
    (PEER_SQL["workers"], (WORKERS_MAX,)),
    (PEER_SQL["open_runs"], ()),
]
