"""A connection that only reads: one read after another, each within its time, opened again where it broke.

PostgreSQL ends what takes too long. What it does not tell in time is given up here, with the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.config import PG_CONNECT_S_MAX
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, TooMany, Unavailable
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.store.postgresql.peers import PEER_SQL
from bedrockjobs.store.postgresql.session import Row, adapt, heard_within

ANSWER_S = 2.0
"""Time that PostgreSQL has, beyond that of the read itself, to tell how it ended: it may be lost."""

AWAY_S = 0.5
"""Time after a failed try to connect in which no other is made, so that nobody who waits is kept for long."""

CANCEL_S = 1.0
"""Time to tell PostgreSQL that nobody wants what it does: it ends that by itself soon enough."""

WORDS_MAX = 500
"""Length of what PostgreSQL says of an error: it may quote a name as long as the whole text."""

Connection = psycopg.AsyncConnection[Row]
_T = TypeVar("_T")

STOPPING = Unavailable("Server is stopping", "try again in a moment")

_OPTIONS = {"default_transaction_read_only": "on", "jit": "off", "max_parallel_workers_per_gather": "0"}
"""What reads never need: to write, and more than one processor."""


class ReadConnection:
    """One connection that only reads; one read after another."""

    def __init__(
        self,
        url: str,
        schema: str,
        seconds: float,
        waiting_max: int,
        options: Mapping[str, str] | None = None,
        *,
        attributes: str = "primary",
    ) -> None:
        """Read tables of ``schema`` in the database at ``url``; it is connected to when it is needed.

        A statement may take ``seconds``, and so many reads may run or wait. ``options`` are settings of
        PostgreSQL. ``attributes`` says which server of the URL is meant, where that says nothing else.
        """
        given = {**_OPTIONS, "statement_timeout": f"{max(int(seconds * 1000), 1)}ms", **(options or {})}
        self._url, self._schema = url, schema
        self._given = options
        self._options = " ".join(f"-c {name}={value}" for name, value in given.items())
        self._options += f' -c search_path="{schema}"'
        self._attributes = attributes
        self._seconds = seconds
        self._waiting_max = waiting_max
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._away: tuple[float, CommandError] = (0.0, STOPPING)
        self._refusal: CommandError | None = None
        self.pending = 0
        """Reads that run or wait."""

    def elsewhere(self, url: str) -> ReadConnection:
        """Return a line like this one to any server that ``url`` names, which may be a standby."""
        return ReadConnection(
            url, self._schema, self._seconds, self._waiting_max, self._given, attributes="any"
        )

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Begin nothing more; what runs may end."""
        self._refusal = refusal

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        self.refuse()
        connection = self._connection
        if connection is not None and not connection.closed:
            if self._turn.locked():
                with suppress(psycopg.Error):
                    await connection.cancel_safe(timeout=CANCEL_S)
            await connection.close()

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Let ``act`` read when it is its turn; return what it returns, and raise what it raises.

        It is done once more where the connection turns out to be broken. Raises TooMany where too many wait,
        but not ``again``; TimedOut where it took too long, and Unavailable where there is no connection. A
        read whose caller is cancelled keeps its turn until it has ended, so that its limits go on to count.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.pending >= self._waiting_max and not again:
            raise TooMany("Too many queries", f"expected at most {self._waiting_max} at once")
        self.pending += 1
        read = asyncio.ensure_future(self._in_turn(act))
        read.add_done_callback(_heard)
        return await asyncio.shield(read)

    async def _in_turn(self, act: Callable[[Connection], Awaitable[_T]]) -> _T:
        try:
            async with self._turn:
                if self._refusal is not None:
                    raise self._refusal
                try:
                    return await self._done(act)
                except psycopg.OperationalError:
                    if self._connection is None or not self._connection.closed:
                        raise
                if self._refusal is not None:
                    raise self._refusal
                return await self._done(act)  # it had been idle, and was cut
        except psycopg.Error as error:
            if self._connection is None or self._connection.closed:
                raise away(error) from error
            raise
        finally:
            self.pending -= 1

    async def _done(self, act: Callable[[Connection], Awaitable[_T]]) -> _T:
        connection = await self._connected()
        limit_s = self._seconds + ANSWER_S
        try:
            async with asyncio.timeout(limit_s + CANCEL_S):  # whatever else it waits for
                with heard_within(connection, limit_s):
                    return await act(connection)
        except TimeoutError:
            await connection.close()
            raise TimedOut("Timeout", "query: it took too long, and its connection was given up") from None
        finally:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                await connection.close()

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        now = asyncio.get_running_loop().time()
        until, refusal = self._away
        if now < until:
            raise refusal
        try:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, **self._named()
            )
        except psycopg.Error as error:
            refusal = away(error)
            self._away = (asyncio.get_running_loop().time() + AWAY_S, refusal)
            raise refusal from error
        if self._refusal is not None:  # closed meanwhile, when there was nothing to close
            await self._connection.close()
            raise self._refusal
        adapt(self._connection)
        return self._connection

    def _named(self) -> dict[str, Any]:
        """Return what is said beside the URL: to the primary, as what was just written must be seen.

        A URL that demands ``read-write`` means that one too, and would refuse a connection that only reads.
        """
        given = conninfo_to_dict(self._url)
        defaults = {"tcp_user_timeout": PG_CONNECT_S_MAX * 1000, "application_name": "bedrockjobs"}
        named: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
        if given.get("target_session_attrs", "read-write") == "read-write":
            named["target_session_attrs"] = self._attributes
        options = f"{given.get('options') or ''} {self._options}".strip()
        return {**named, "client_encoding": "UTF8", "connect_timeout": PG_CONNECT_S_MAX, "options": options}


def _heard(read: asyncio.Future[Any]) -> None:
    """Take note of how a read ended: whoever asked for it may be gone, and then nobody else does."""
    if not read.cancelled():
        read.exception()


def words_of(error: psycopg.Error) -> str:
    """Return what PostgreSQL says of an error, in one line, without the text that it is about."""
    text = " ".join((error.diag.message_primary or str(error)).split())
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}…"


def away(error: psycopg.Error) -> Unavailable:
    """Return what a client is told while the database cannot be reached."""
    return Unavailable("Database away", f"the database cannot be read: {words_of(error)}")


_NOT_THE_TEXT = ("08", "53", "57", "58", "XX001", "XX002")
"""Beginnings of states of errors that are not the text's fault: the connection, room, operators, disks."""


def refusal_of(error: psycopg.Error) -> CommandError:
    """Return what a client is told when a read failed."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TimedOut("Timeout", "query: it took too long")
    state = error.sqlstate or ""
    if not state or state.startswith(_NOT_THE_TEXT):
        return away(error)
    return BadQuery("Query aborted", words_of(error))


# Reads on a standby, while it is there and keeps up with what this server told the primary.
#
# A standby shows what was, not what is. Whether it keeps up is seen by this server's own sign of life: what
# the primary has confirmed must be found there soon. That also tells a copy of another database.


log = logging.getLogger(__name__)

LAG_S_MAX = 5.0
"""How far a standby may be behind to be read: a person who reads on takes it for now; others are slower."""

LOOK_S = 1.0
"""Time between two looks at how far it is behind: as often as a server gives a sign of life."""


class Reads(Protocol):
    """Where reads are done."""

    @property
    def pending(self) -> int:
        """Return how many reads run or wait."""
        ...

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Let ``act`` read, as ``Line.do`` does."""
        ...

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Begin nothing more; what runs may end."""
        ...

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        ...


class Standby:
    """A standby, and whether it may be read now."""

    def __init__(self, url: str, line: ReadConnection, session: str, confirmed: Callable[[], str]) -> None:
        """Read at ``url``, in connections like ``line``, while the server with ``session`` is seen there.

        ``confirmed`` is the timestamp of its last heartbeat that the primary has; empty before the first.
        """
        self._url = url
        self._line = line.elsewhere(url)
        self._session = session
        self._confirmed = confirmed
        self._looking: asyncio.Task[None] | None = None
        self._told: bool | None = None
        self.usable = False
        """Whether it is there and keeps up."""

    def beside(self, primary: ReadConnection, *, first: bool) -> EitherLine:
        """Return a line to the primary that is one to the standby too; ``first`` where both can read."""
        return EitherLine(primary, primary.elsewhere(self._url), self, standby_first=first)

    def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.ensure_future(self._live())

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._line.close()

    async def _live(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        confirmed = self._confirmed()
        if not confirmed:  # the server is not yet among the others
            return
        try:
            shown = await self._line.do(self._shown)
        except (CommandError, psycopg.Error) as error:
            self._tell(usable=False, why=error.detail if isinstance(error, CommandError) else str(error))
            return
        if not shown:
            self._tell(
                usable=False, why="it does not know this server: it is far behind, or of another database"
            )
        elif after_seconds(shown, LAG_S_MAX) < confirmed:
            self._tell(usable=False, why=f"it is behind: it shows {shown}, and the primary has {confirmed}")
        else:
            self._tell(usable=True, why="")

    async def _shown(self, connection: Connection) -> str:
        cursor = await connection.execute(PEER_SQL["own_pulse"], (self._session,))
        found = await cursor.fetchone()
        return str(found[0]) if found else ""

    def _tell(self, *, usable: bool, why: str) -> None:
        self.usable = usable
        if usable == self._told:
            return
        self._told = usable
        if usable:
            log.info("reads are done on the standby")
        else:
            log.warning("reads are done on the primary, the standby is not used: %s", why)


class EitherLine:
    """A line to the primary and one to the standby: where one cannot read, the other does."""

    def __init__(
        self, primary: ReadConnection, standby: ReadConnection, watch: Standby, *, standby_first: bool
    ) -> None:
        """Read on the standby as long as ``watch`` says that it may be; first there, or only if need be."""
        self._primary = primary
        self._standby = standby
        self._watch = watch
        self._standby_first = standby_first

    @property
    def pending(self) -> int:
        """Return how many reads run or wait."""
        return self._primary.pending + self._standby.pending

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Let ``act`` read, as ``Line.do`` does, and once more on the other where one is away.

        So it is where a standby ends a read that is in the way of what the primary has done since.
        """
        if not self._watch.usable:
            return await self._primary.do(act, again=again)
        first, second = self._primary, self._standby
        if self._standby_first:
            first, second = second, first
        try:
            return await first.do(act, again=again)
        except (Unavailable, psycopg.errors.SerializationFailure):
            return await second.do(act, again=again)

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Begin nothing more; what runs may end."""
        self._primary.refuse(refusal)
        self._standby.refuse(refusal)

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        await self._primary.close()
        await self._standby.close()
