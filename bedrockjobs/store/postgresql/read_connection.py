"""A read-only connection that reconnects by itself, and the choice between primary and standby.

Each read has a timeout in PostgreSQL. If PostgreSQL does not report in time that it has ended the read, the
connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import PG_CONNECT_S_MAX
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, Unavailable
from bedrockjobs.store.base import PendingReads
from bedrockjobs.store.postgresql.peers import PEER_SQL
from bedrockjobs.store.postgresql.session import Row, adapt, answered_within
from bedrockjobs.store.sandbox import in_one_line

ANSWER_S = 2.0
"""Seconds in addition to a read's own timeout in which PostgreSQL has to report the end of the read."""

AWAY_S = 0.5
"""Minimum seconds between two attempts to connect; reads between them fail immediately instead of waiting."""

CANCEL_S = 1.0
"""Maximum seconds for sending a cancel request; PostgreSQL also ends the read by the read's own timeout."""


Connection = psycopg.AsyncConnection[Row]
_T = TypeVar("_T")

STOPPING = Unavailable("Server is stopping", "try again in a moment")

_OPTIONS = {"default_transaction_read_only": "on", "jit": "off", "max_parallel_workers_per_gather": "0"}
"""PostgreSQL settings for reads: read-only, without JIT compilation and parallel workers."""


class ReadConnection:
    """One read-only connection that serves one read after another."""

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
        """Read the tables of ``schema`` in the database at ``url``; connect at first use.

        ``seconds`` is the statement timeout, ``waiting_max`` the limit of running and waiting reads,
        ``options`` are PostgreSQL settings. ``attributes`` is the default for ``target_session_attrs``.
        """
        settings = {**_OPTIONS, "statement_timeout": f"{max(int(seconds * 1000), 1)}ms", **(options or {})}
        self._url, self._schema = url, schema
        self._given = options
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._options += f' -c search_path="{schema}"'
        self._attributes = attributes
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._away: tuple[float, CommandError] = (0.0, STOPPING)
        self._refusal: CommandError | None = None
        self._reads = PendingReads(waiting_max)

    @property
    def pending(self) -> int:
        """Return the number of running and waiting reads."""
        return self._reads.count

    def elsewhere(self, url: str) -> ReadConnection:
        """Return a connection with the same settings to any server in ``url``, which may be a standby."""
        return ReadConnection(
            url, self._schema, self._seconds, self._reads.most, self._given, attributes="any"
        )

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Refuse new reads; running reads may finish."""
        self._refusal = refusal

    async def close(self) -> None:
        """Refuse new reads and cancel running reads."""
        self.refuse()
        connection = self._connection
        if connection is not None and not connection.closed:
            if self._turn.locked():
                with suppress(psycopg.Error):
                    await connection.cancel_safe(timeout=CANCEL_S)
            await connection.close()

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Call ``act`` with the connection once no other read uses it; return the result of ``act``.

        The read is tried again once if the connection turns out to be broken. Raises TooMany if too many
        reads wait, unless ``again``; TimedOut if the read takes too long; Unavailable without a connection;
        and what ``act`` raises.
        """
        if self._refusal is not None:
            raise self._refusal
        return await self._reads.run(lambda: self._in_turn(act), again=again)

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
                return await self._done(act)  # the idle connection had been cut
        except psycopg.Error as error:
            if self._connection is None or self._connection.closed:
                raise away(error) from error
            raise

    async def _done(self, act: Callable[[Connection], Awaitable[_T]]) -> _T:
        connection = await self._connected()
        limit_s = self._seconds + ANSWER_S
        try:
            async with asyncio.timeout(limit_s + CANCEL_S):  # limits any other wait too
                with answered_within(connection, limit_s):
                    return await act(connection)
        except TimeoutError:
            await connection.close()
            raise TimedOut("Timeout", "query: it took too long, and its connection was closed") from None
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
        if self._refusal is not None:  # close() was called before there was a connection
            await self._connection.close()
            raise self._refusal
        adapt(self._connection)
        return self._connection

    def _named(self) -> dict[str, Any]:
        """Return connection parameters in addition to the URL; the default is the primary, for fresh rows.

        ``read-write`` in the URL means the primary too, but would refuse a read-only connection.
        """
        url_parameters = conninfo_to_dict(self._url)
        defaults = {"tcp_user_timeout": PG_CONNECT_S_MAX * 1000, "application_name": "bedrockjobs"}
        named: dict[str, Any] = {
            name: value for name, value in defaults.items() if name not in url_parameters
        }
        if url_parameters.get("target_session_attrs", "read-write") == "read-write":
            named["target_session_attrs"] = self._attributes
        options = f"{url_parameters.get('options') or ''} {self._options}".strip()
        return {**named, "client_encoding": "UTF8", "connect_timeout": PG_CONNECT_S_MAX, "options": options}


def words_of(error: psycopg.Error) -> str:
    """Return the message of a PostgreSQL error in one line, without the query text."""
    return in_one_line(error.diag.message_primary or str(error))


def away(error: psycopg.Error) -> Unavailable:
    """Return the error for a client while the database is unreachable."""
    return Unavailable("Database away", f"the database cannot be read: {words_of(error)}")


_NOT_THE_TEXT = ("08", "53", "57", "58", "XX001", "XX002")
"""SQLSTATE prefixes of errors not caused by the query: connection, resources, operators, disks."""


def refusal_of(error: psycopg.Error) -> CommandError:
    """Return the error for a client whose read failed."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TimedOut("Timeout", "query: it took too long")
    state = error.sqlstate or ""
    if not state or state.startswith(_NOT_THE_TEXT):
        return away(error)
    return BadQuery("Query aborted", words_of(error))


# Reads on a standby while it is connected and keeps up.
#
# A standby may lag behind the primary. Its lag is measured by this server's own heartbeat: what the primary
# has committed must soon appear on the standby. This also detects a standby of a different database.


log = logging.getLogger(__name__)

LAG_S_MAX = 5.0
"""Maximum lag in seconds of a standby that is used for reads: acceptable for a person who reads pages."""

POLL_S = 1.0
"""Seconds between two lag checks, the same as between heartbeats."""


class Reads(Protocol):
    """A connection for reads, or the choice between primary and standby."""

    @property
    def pending(self) -> int:
        """Return the number of running and waiting reads."""

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Run a read, as ``ReadConnection.do``."""

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Refuse new reads; running reads may finish."""

    async def close(self) -> None:
        """Refuse new reads and cancel running reads."""


class Standby:
    """A standby and its lag check."""

    def __init__(self, url: str, line: ReadConnection, session: str, confirmed: Callable[[], str]) -> None:
        """Check the standby at ``url`` with the settings of ``line``, by the heartbeat of ``session``.

        ``confirmed`` returns the last heartbeat committed on the primary; empty before the first one.
        """
        self._url = url
        self._line = line.elsewhere(url)
        self._session = session
        self._confirmed = confirmed
        self._looking: asyncio.Task[None] | None = None
        self._reported: bool | None = None
        self.usable = False
        """Whether the standby is connected and lags by at most ``LAG_S_MAX``."""

    def with_primary(self, primary: ReadConnection, *, first: bool) -> PrimaryOrStandby:
        """Return reads that use ``primary`` or this standby; ``first`` prefers the standby."""
        return PrimaryOrStandby(primary, primary.elsewhere(self._url), self, standby_first=first)

    def start(self) -> None:
        """Start the lag checks."""
        self._looking = asyncio.ensure_future(self._is_usable())

    async def close(self) -> None:
        """Stop the lag checks."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._line.close()

    async def _is_usable(self) -> None:
        while True:
            await self._check()
            await asyncio.sleep(POLL_S)

    async def _check(self) -> None:
        confirmed = self._confirmed()
        if not confirmed:  # this server has not joined yet
            return
        try:
            shown = await self._line.do(self._shown)
        except (CommandError, psycopg.Error) as error:
            self._report(usable=False, why=error.detail if isinstance(error, CommandError) else str(error))
            return
        if not shown:
            self._report(
                usable=False, why="it does not know this server: it is far behind, or of another database"
            )
        elif after_seconds(shown, LAG_S_MAX) < confirmed:
            self._report(usable=False, why=f"it is behind: it shows {shown}, and the primary has {confirmed}")
        else:
            self._report(usable=True, why="")

    async def _shown(self, connection: Connection) -> str:
        cursor = await connection.execute(PEER_SQL["own_pulse"], (self._session,))
        row = await cursor.fetchone()
        return str(row[0]) if row else ""

    def _report(self, *, usable: bool, why: str) -> None:
        self.usable = usable
        if usable == self._reported:
            return
        self._reported = usable
        if usable:
            log.info("reads are done on the standby")
        else:
            log.warning("reads are done on the primary, the standby is not used: %s", why)


class PrimaryOrStandby:
    """Reads on the primary or the standby; a read that fails on one of them is retried on the other."""

    def __init__(
        self, primary: ReadConnection, standby: ReadConnection, watch: Standby, *, standby_first: bool
    ) -> None:
        """Use the standby only while ``watch`` finds it usable, before the primary if ``standby_first``."""
        self._primary = primary
        self._standby = standby
        self._watch = watch
        self._standby_first = standby_first

    @property
    def pending(self) -> int:
        """Return the number of running and waiting reads."""
        return self._primary.pending + self._standby.pending

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Run a read, as ``ReadConnection.do``; if the connection fails, retry on the other server.

        A read is also retried if the standby cancels it because it conflicts with replication.
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
        """Refuse new reads; running reads may finish."""
        self._primary.refuse(refusal)
        self._standby.refuse(refusal)

    async def close(self) -> None:
        """Refuse new reads and cancel running reads."""
        await self._primary.close()
        await self._standby.close()
