"""The test clock of a database, by which all of its servers go, or none does.

Its date stands in ``control``, and each unit reads it with its first lock. A server that starts where no
other lives sets it to its own date or, without ``--test-clock``, takes it away.
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

from bedrockjobs.base.clock import AlignedClock, Clock, StandingClock
from bedrockjobs.base.config import PG_CONNECT_S_MAX, SERVER_GONE_S, WORKERS_MAX
from bedrockjobs.base.wire import moment_of, timestamp_ms
from bedrockjobs.job.rows import EventRow
from bedrockjobs.store import statements
from bedrockjobs.store.base import StoreAway, StoreConflict, StoreError
from bedrockjobs.store.peers import (
    Heard,
    NameTaken,
    OpenRunRow,
    ServerRow,
    ServerState,
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
    columns,
    fault_of,
    heard_within,
)
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.transfer import moved_refusal

MOVES_MAX = 10
"""How often a unit begins anew as the test clock was moved: who moves it does units of its own in between."""


class ClockMoved(StoreConflict):
    """A unit began at another date than that of the test clock."""

    def __init__(self, date: str) -> None:
        """Hold the date of the database; empty: it has no test clock."""
        super().__init__("the test clock was moved")
        self.date = date


class SharedTestClock:
    """What one server knows of the test clock of its database."""

    def __init__(self, clock: Clock) -> None:
        """Go by ``clock``, which is to stand where the database has a test clock."""
        self._clock = clock
        self._standing = clock if isinstance(clock, StandingClock) else None

    @property
    def shown(self) -> str:
        """Return the date that the database is to have; empty: no test clock."""
        return "" if self._standing is None else timestamp_ms(self._standing.now())

    def agree(self, session: DatabaseSession, control: int) -> None:
        """Go by the test clock of the servers that live, or set it as no other lives.

        ``control`` is the key of the lock that all units share. Raises SchemaError where others go by another
        kind of date.
        """
        living = (SQL["clock_and_servers"], (SERVER_GONE_S,))
        ((date, servers),) = session.run([living])[0]
        if not servers and date != self.shown:
            ((date, servers),) = session.run([(BEGIN, ()), (SQL["lock_alone"], (control,)), living])[2]
            date = date if servers else self.shown
            session.commit([(SQL["set_clock"], (date,)), (SQL["commit"], ())])
        if bool(date) != (self._standing is not None):
            raise SchemaError(_words(date, servers))
        self._go_to(date)

    def meet(self, session: DatabaseSession) -> None:
        """Be at the date of a database that was away; raises Unfit where it has another kind of date."""
        ((date,),) = session.run([(SQL["clock"], ())])[0]
        self.follow(date)

    def follow(self, date: str) -> None:
        """Be at the date that the database has; raises Unfit where that is of another kind."""
        if bool(date) != (self._standing is not None):
            raise UnfitDatabase(_words(date))
        self._go_to(date)

    def _go_to(self, date: str) -> None:
        if self._standing is not None:
            self._standing.move_to(moment_of(date))


def _words(date: str, names: Sequence[str] = ()) -> str:
    """Return why a server cannot go together with others, whose test clock shows ``date``; empty: none."""
    named = f" ({', '.join(names)})" if names else ""
    others = f"other servers of this database{named}"
    if date:
        return f"{others} have a test clock, which shows {date[:19]}: start this one with --test-clock too"
    return f"{others} have no test clock: stop them first, or give tests a database of their own"


# What servers share about time: who looks after it, when nobody did, and which leases are over.


_BETWEEN = " to "


class Timekeeping:
    """The part of a unit that looks after time."""

    def __init__(
        self, transaction: Transaction, records: PostgreSQLRecords, keys: AdvisoryKeys, session_id: str
    ) -> None:
        """Speak within ``transaction`` and ``records`` for the server that has ``session_id``."""
        self._records = records
        self._session_id = session_id
        self._transaction = transaction
        self._key = keys.of("watch")

    def watch(self) -> Watch:
        """Try to be the one server that does what time asks for, until the unit ends."""
        ((found,),) = self._transaction.read((SQL["watch"], (self._key,)))
        mine, seen, away = found
        since, _, until = (away or "").partition(_BETWEEN)
        return Watch(mine, seen or "", (since, until))

    def watched(self, now: str) -> None:
        """Note that time is looked after."""
        self._transaction.write(SQL["set_meta"], "seen", now)

    def was_away(self, since: str, until: str) -> None:
        """Note when no server worked, for all servers, and give each run in progress a new lease."""
        self._transaction.write(SQL["set_meta"], "away", f"{since}{_BETWEEN}{until}")
        self._transaction.write(SQL["renew_leases"], until)

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runs whose lease is over."""
        (found,) = self._transaction.read((SQL["leases_over"], (now, limit)))
        return [run_id for (run_id,) in found]

    def sign_off(self, now: str) -> None:
        """Note that the server ends well. Numbers that it has drawn and not used are left out."""
        self.watched(now)
        gone, there = self._transaction.read((SQL["leave"], (self._session_id,)), (SQL["servers_there"], ()))
        self._transaction.wrote = True
        names = " ".join(name for (name,) in there)
        for (name,) in gone:
            detail = f"{len(there)} server(s) now running [{names}]"
            self._records.add_event(now, EventRow("server left", name, detail=detail))


# One server's line to the others: a connection that tells, and one that hears.
#
# Neither is the unit's: nobody who waits for a commit waits for these. A line that breaks is opened again
# with the next exchange; until then nothing is heard, and servers look by themselves once a second.


log = logging.getLogger(__name__)

PEER_SQL = statements.read_statements(Path(__file__).with_name("neighbours.sql"), lambda text: text)

Connection = psycopg.AsyncConnection[Row]

LINE_S_MAX = 5.0
"""Time for one exchange with the database, which takes milliseconds: one that takes longer is given up."""

CLOSE_S_MAX = 0.5
"""Time in which a connection is given up that is just being made: it cannot be closed before it is there."""


REFUSED_MAX = 1_000
"""Workers of which it is remembered that the database refused them, so that the log names each once."""

SEEN_DEAD: dict[str, Any] = {
    "tcp_user_timeout": PG_CONNECT_S_MAX * 1000,
    "keepalives_idle": PG_CONNECT_S_MAX,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
"""How soon a host that is gone without a word is noticed: who only listens sends nothing that is missed."""


class PostgreSQLNeighbours:
    """The line of one server."""

    def __init__(self, url: str, schema: str, name: str, session: str, clock: Clock) -> None:
        """Prepare the line of the server ``name``; ``session`` is what no other server has.

        ``url`` leads to PostgreSQL itself: a pooler passes no hints on.
        """
        self._url = url
        self._schema = schema
        self._clock = clock
        self._me = (name, session)
        self._since = self._version = self.address = ""
        self.state: ServerState = "starting"
        self.confirmed = ""
        """The last sign of life of this server that the database has."""
        self._telling: Connection | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self._refused: set[str] = set()
        self.on_hint: Callable[[str], object] = lambda text: None

    # --- the line ----------------------------------------------------------------------------------------

    async def open(self, version: str) -> None:
        """Join the servers; raises NameTaken where one of this name lives, StoreError where it cannot.

        Raises SchemaError where the queue was moved while this server started.
        """
        name, session = self._me
        await self._align()
        now = timestamp_ms(self._clock.now())
        self._since, self._version = now, version
        mine = (name, session, now, "", version, self._gone_before(), schema.VERSION)
        joined, moved = await self._run([(PEER_SQL["join"], mine), (PEER_SQL["moved_to"], ())])
        if moved:
            raise SchemaError(moved_refusal(moved[0][0]))
        if not joined:
            raise NameTaken(f"server_name: a living server of this database is called {name}")

    def _gone_before(self) -> str:
        return timestamp_ms(self._clock.now() - timedelta(seconds=SERVER_GONE_S))

    async def close(self) -> None:
        """Speak and hear no more."""
        self._closed = True
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait({self._hearing}, timeout=CLOSE_S_MAX)
        if self._telling is not None:
            await self._telling.close()

    async def _connect(self) -> Connection:
        given = conninfo_to_dict(self._url)
        connection = await psycopg.AsyncConnection.connect(
            self._url,
            **{name: value for name, value in SEEN_DEAD.items() if name not in given},
            autocommit=True,
            cursor_factory=psycopg.AsyncRawCursor,
            client_encoding="UTF8",
            connect_timeout=PG_CONNECT_S_MAX,
            target_session_attrs="read-write",  # wherever the primary is by now
            options=f'-c search_path="{self._schema}" -c synchronous_commit=off',
        )
        adapt(connection)
        return connection

    async def _run(self, some: Sequence[Statement]) -> list[list[Row]]:
        """Do statements in one round trip and one transaction, one caller after another."""
        async with self._turn:
            if self._closed:
                raise StoreAway("the server leaves the others")
            try:
                if self._telling is None or self._telling.closed:
                    self._telling = await self._connect()
                    if self._closed:  # meanwhile, and whoever did it had nothing to close
                        await self._telling.close()
                        raise StoreAway("the server leaves the others")
                if self._hearing is None or self._hearing.done():
                    self._hearing = asyncio.ensure_future(self._hear())
                with heard_within(self._telling, LINE_S_MAX):
                    return await self._answers(self._telling, some)
            except (psycopg.Error, TimeoutError) as error:
                fault = fault_of(error) or StoreAway(str(error))
                if isinstance(fault, StoreAway) or not self._usable:
                    if self._telling is not None:
                        await self._telling.close()
                    if self._hearing is not None:  # it may be deaf: who only listens is told nothing of it
                        self._hearing.cancel()
                        self._hearing = None
                raise fault from error

    @property
    def _usable(self) -> bool:
        """Tell whether the connection survived a statement that was refused."""
        return (
            self._telling is not None
            and not self._telling.closed
            and self._telling.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        )

    @staticmethod
    async def _answers(connection: Connection, some: Sequence[Statement]) -> list[list[Row]]:
        async with connection.pipeline():
            cursors = [await connection.execute(sql, parameters) for sql, parameters in some]
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    async def _hear(self) -> None:
        """Pass hints of others on, until the line breaks; the next exchange then begins anew."""
        with suppress(psycopg.Error):
            connecting = asyncio.ensure_future(self._connect())
            try:
                connection = await asyncio.shield(connecting)
            except asyncio.CancelledError:  # one that is half open cannot be closed
                connecting.add_done_callback(_finish)
                await asyncio.wait({connecting})
                raise
            try:
                await connection.execute(f'LISTEN "{self._schema}"')
                self.on_hint("")  # whatever was said before went unheard
                async for notice in connection.notifies():
                    told_by, _, text = notice.payload.partition(" ")
                    if told_by != self._me[1]:
                        self.on_hint(text)
            finally:
                await connection.close()

    # --- what goes over it -------------------------------------------------------------------------------

    async def _align(self) -> None:
        """Set the clock by that of the database, where it is one that can be set."""
        if isinstance(self._clock, AlignedClock):
            await self._run([(PEER_SQL["clock"], ())])  # the first may have to connect
            asked = self._clock.monotonic()
            (((moment,),),) = await self._run([(PEER_SQL["clock"], ())])
            self._clock.align(moment, asked, self._clock.monotonic())

    async def exchange(self, told: WorkerChanges) -> Heard:
        """Tell that this server is alive and what its workers did; return who is there. Raises StoreError.

        Signs of life go first and in a transaction of their own: no other row can hold them up. A worker
        that the database refuses is left out.
        """
        await self._align()
        now = timestamp_ms(self._clock.now())
        who = (*self._me, self._since, self.address, self._version)
        alive: list[Statement] = [
            (PEER_SQL["pulse"], (*who, now, schema.VERSION, told.served, self.state)),
            (PEER_SQL["lost_servers"], (self._gone_before(),)),
        ]
        if told.beats:
            alive.append((PEER_SQL["beat"], (told.beats, now)))
        lost = [name for (name,) in (await self._run(alive))[1]]
        self.confirmed = now
        rest: list[Statement] = [
            (PEER_SQL["part"], (told.left,)),
            (PEER_SQL["lost_workers"], (now,)),
            *_LOOKS,
        ]
        met: list[Row] = []
        try:
            if told.workers:
                met, *found = await self._run([_meeting(told.workers), *rest])
            else:
                found = await self._run(rest)
        except StoreAway:
            raise
        except StoreError:
            for worker in told.workers:
                met += await self._meet_alone(worker)
            found = await self._run(rest)
        parted, silent, servers, workers, runs = found
        return Heard(
            [name for name, new in met if new],
            [name for (name,) in (*parted, *silent)],
            lost,
            [ServerRow._make(row) for row in servers],
            [WorkerRow._make(row) for row in workers],
            [OpenRunRow._make(row) for row in runs],
        )

    async def _meet_alone(self, worker: WorkerRow) -> list[Row]:
        """Tell of one worker; return nothing, and log it once, if the database refuses it."""
        try:
            return (await self._run([_meeting([worker])]))[0]
        except StoreAway:
            raise
        except StoreError as error:
            if worker.name not in self._refused:
                if len(self._refused) >= REFUSED_MAX:
                    self._refused.clear()
                self._refused.add(worker.name)
                log.warning("the other servers are not told of the worker %r: %s", worker.name, error)
            return []

    async def move_clock(self, moment: str) -> str:
        """Move the test clock of the database, never back; return what it shows. Raises StoreError."""
        (found,) = await self._run([(PEER_SQL["move_clock"], (moment,))])
        if not found:
            raise StoreAway("the database has no test clock any more")
        return str(found[0][0])

    async def hint(self, text: str) -> None:
        """Give a hint to all other servers; raises StoreError where that cannot be done now."""
        await self._run([(PEER_SQL["hint"], (self._schema, f"{self._me[1]} {text}"))])


def _meeting(workers: Sequence[WorkerRow]) -> Statement:
    rows = [
        worker._replace(asked=json.dumps(worker.asked), accepts=json.dumps(worker.accepts))  # type: ignore[arg-type]
        for worker in workers
    ]
    return PEER_SQL["meet"], columns([tuple(row) for row in rows])


def _finish(connecting: asyncio.Future[Connection]) -> None:
    """Close a connection that nobody wants any more, also where nobody waits for it."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().pgconn.finish()


_LOOKS: list[tuple[str, Sequence[Any]]] = [
    (PEER_SQL["servers"], ()),
    (PEER_SQL["workers"], (WORKERS_MAX,)),
    (PEER_SQL["open_runs"], ()),
]
