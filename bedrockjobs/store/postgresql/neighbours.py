"""One server's line to the others: a connection that tells, and one that hears.

Neither is the unit's: nobody who waits for a commit waits for these. A line that breaks is opened again with
the next exchange; until then nothing is heard, and servers look by themselves once a second.
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

from bedrockjobs.base.clock import AlignedClock, Clock
from bedrockjobs.base.config import PG_CONNECT_S_MAX, SERVER_GONE_S, WORKERS_MAX
from bedrockjobs.base.wire import stamp_ms
from bedrockjobs.store import statements
from bedrockjobs.store.faults import StoreAway, StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.patience import heard_within
from bedrockjobs.store.postgresql.pipeline import Row, Statement, adapt, columns
from bedrockjobs.store.postgresql.session import fault_of
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.sharing import Heard, NameTaken, OpenRunRow, ServerRow, ServerState, Told, WorkerRow
from bedrockjobs.store.transfer import moved_refusal

log = logging.getLogger(__name__)

SQL = statements.read_statements(Path(__file__).with_name("neighbours.sql"), lambda text: text)

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
        now = stamp_ms(self._clock.now())
        self._since, self._version = now, version
        mine = (name, session, now, "", version, self._gone_before(), schema.VERSION)
        joined, moved = await self._run([(SQL["join"], mine), (SQL["moved_to"], ())])
        if moved:
            raise SchemaError(moved_refusal(moved[0][0]))
        if not joined:
            raise NameTaken(f"server_name: a living server of this database is called {name}")

    def _gone_before(self) -> str:
        return stamp_ms(self._clock.now() - timedelta(seconds=SERVER_GONE_S))

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
            await self._run([(SQL["clock"], ())])  # the first may have to connect
            asked = self._clock.monotonic()
            (((moment,),),) = await self._run([(SQL["clock"], ())])
            self._clock.align(moment, asked, self._clock.monotonic())

    async def exchange(self, told: Told) -> Heard:
        """Tell that this server is alive and what its workers did; return who is there. Raises StoreError.

        Signs of life go first and in a transaction of their own: no other row can hold them up. A worker
        that the database refuses is left out.
        """
        await self._align()
        now = stamp_ms(self._clock.now())
        who = (*self._me, self._since, self.address, self._version)
        alive: list[Statement] = [
            (SQL["pulse"], (*who, now, schema.VERSION, told.served, self.state)),
            (SQL["lost_servers"], (self._gone_before(),)),
        ]
        if told.beats:
            alive.append((SQL["beat"], (told.beats, now)))
        lost = [name for (name,) in (await self._run(alive))[1]]
        self.confirmed = now
        rest: list[Statement] = [
            (SQL["part"], (told.left,)),
            (SQL["lost_workers"], (now,)),
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
        (found,) = await self._run([(SQL["move_clock"], (moment,))])
        if not found:
            raise StoreAway("the database has no test clock any more")
        return str(found[0][0])

    async def hint(self, text: str) -> None:
        """Give a hint to all other servers; raises StoreError where that cannot be done now."""
        await self._run([(SQL["hint"], (self._schema, f"{self._me[1]} {text}"))])


def _meeting(workers: Sequence[WorkerRow]) -> Statement:
    rows = [
        worker._replace(asked=json.dumps(worker.asked), accepts=json.dumps(worker.accepts))  # type: ignore[arg-type]
        for worker in workers
    ]
    return SQL["meet"], columns([tuple(row) for row in rows])


def _finish(connecting: asyncio.Future[Connection]) -> None:
    """Close a connection that nobody wants any more, also where nobody waits for it."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().pgconn.finish()


_LOOKS: list[tuple[str, Sequence[Any]]] = [
    (SQL["servers"], ()),
    (SQL["workers"], (WORKERS_MAX,)),
    (SQL["open_runs"], ()),
]
