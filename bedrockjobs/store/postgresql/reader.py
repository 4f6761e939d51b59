"""Reads of committed rows on PostgreSQL for lists, pages and metrics, and Query, which runs SQL of users.

Each kind of read has its own connection, so reads and units never wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import psycopg
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader

from bedrockjobs.base.config import JSON_DEPTH_MAX
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.store import statements
from bedrockjobs.store.base import Page, Reader
from bedrockjobs.store.postgresql.locks import SALT, AdvisoryKeys
from bedrockjobs.store.postgresql.read_connection import (
    Connection,
    ReadConnection,
    Reads,
    Standby,
    refusal_of,
    words_of,
)
from bedrockjobs.store.postgresql.session import Row
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.statements import VIEWS, View
from bedrockjobs.store.reader import SEEKS_WAITING_MAX
from bedrockjobs.store.sandbox import rendered

# The database role for Query: it may read our tables, and nothing else.


ROLE = "bedrockjobs_query"
"""Name of the role; roles are shared by all databases of a cluster."""


_IS_THERE = "SELECT true FROM pg_catalog.pg_roles WHERE rolname = $1"
_LACKS = """
    SELECT NOT has_schema_privilege($1::name, $2::text, 'USAGE') OR EXISTS (
        SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = $2 AND relkind = 'r' AND NOT has_table_privilege($1::name, pg_class.oid, 'SELECT'))
"""


async def prepare(connection: Connection, schema: str) -> None:
    """Create the role if it is missing, and grant it read access; raises psycopg.Error if not permitted.

    Existing roles and grants are left alone, so that an administrator may create them in advance and the
    server needs no rights for that. Servers that start together wait for each other.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION READ WRITE")
        salt = await (await connection.execute("SELECT value FROM meta WHERE key = $1", (SALT,))).fetchone()
        key = AdvisoryKeys(schema, salt[0] if salt else "").key_of("schema")
        await connection.execute(SQL["lock_alone"], (key,))
        if not await _one(connection, _IS_THERE, ROLE):
            await connection.execute(f"CREATE ROLE {ROLE} NOLOGIN")
        if not await _may_be_set(connection):
            await connection.execute(f"GRANT {ROLE} TO CURRENT_USER")
        if await _one(connection, _LACKS, ROLE, schema):
            await connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {ROLE}')
            await connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {ROLE}')
    async with connection.transaction():
        await connection.execute(f"SET LOCAL ROLE {ROLE}")
        await connection.execute("SELECT jobID FROM jobs LIMIT 0")


async def _one(connection: Connection, sql: str, *parameters: str) -> bool:
    """Return whether the first value of the first row is true."""
    row = await (await connection.execute(sql, parameters)).fetchone()
    return row is not None and bool(row[0])


async def _may_be_set(connection: Connection) -> bool:
    """Return whether the connected user may act as the role; having created it is not enough."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {ROLE}")
            await connection.execute("RESET ROLE")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


# Query: SQL of users, run with that role in a read-only transaction with a timeout.
#
# One connection runs one Query after another. PostgreSQL counts and measures the rows before it sends any.


log = logging.getLogger(__name__)

WORK_MEM = "16MB"
"""Memory for one step of a Query; a step that needs more uses PostgreSQL's disk."""

DIGITS_MAX = 400
"""Maximum number of characters of a number in PostgreSQL's text form that is converted to a number; any
64-bit integer or float is shorter."""

_BEHIND = " ) AS some_rows"
"""The text placed after the user's SQL; error messages are cut where it begins."""

_BEGINNING = re.compile(r"(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)
"""The text before the first word, and that word; it may be empty, so the pattern never backtracks."""

_SELECTS = {"select", "with", "values", "table"}
_OTHERS = (
    " abort alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare"
    " delete discard do drop end execute explain fetch grant import insert listen load lock merge move notify"
    " prepare reassign refresh reindex release reset revoke rollback savepoint security set show start"
    " truncate unlisten update vacuum "
)
"""First words of statements that are refused; any other word is a syntax error."""

_REFUSED = re.compile(
    r"\b(pg_(?:try_)?advisory\w*|pg_sleep\w*|pg_notify|pg_terminate_backend|pg_cancel_backend|pg_read\w*|pg_ls\w*"
    r"|pg_stat_file|pg_export_snapshot|pg_log\w*|set_config|dblink\w*|lo_\w+|loread|lowrite|nextval|setval"
    r"|\w+_to_xml\w*|\w+_to_xmlschema|ts_stat|ts_rewrite|crosstab\w*|connectby|xpath_table"
    r"|txid_current|pg_current_xact_id|U&)",
    re.IGNORECASE,
)
"""Functions that wait, lock, affect other sessions or run SQL, and spellings that could hide them."""

_SPELLED = {
    name.lower(): name
    for text in (statements.COLUMNS, statements.RUN, statements.EVENT, "waitMs")
    for name in re.findall(r"\w+", text)
}
"""Columns in Bedrock's spelling; PostgreSQL folds them to lower case."""

_OF_THE_TEXT = ("42", "22", "21", "2200", "P0", "08P01")
"""SQLSTATE prefixes of errors in the user's SQL; the last one means that it contains `$1`."""


class _Number(Loader):
    """Loads a number of any size, as an int if it is whole."""

    def load(self, data: bytes | bytearray | memoryview) -> int | float | str:
        """Return the number, or its text if it has more than ``DIGITS_MAX`` characters."""
        text = bytes(data).decode()
        if len(text) > DIGITS_MAX:
            return text
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _Truth(Loader):
    """Loads booleans as 0 and 1, as in SQLite."""

    def load(self, data: bytes | bytearray | memoryview) -> int:
        """Return 1 or 0."""
        return int(bytes(data) == b"t")


_KEPT = frozenset({"int2", "int4", "int8", "oid", "float4", "float8", "bytea"})
"""Types that are loaded as numbers or bytes; all others are loaded as PostgreSQL's text."""


class FreeQuery:
    """Runs the SQL of Query, one Query after another."""

    def __init__(
        self,
        url: str,
        schema: str,
        settings: Settings,
        reads: Callable[[ReadConnection], Reads] | None = None,
    ) -> None:
        """Read the tables of ``schema`` in the database at ``url``; call ``open`` before use.

        ``reads`` may wrap the connection, to use a standby as well.
        """
        self._schema = schema
        self._rows_max = settings.query_rows_max
        self._bytes_max = settings.query_bytes_max
        options = {"work_mem": WORK_MEM}
        self._primary = ReadConnection(url, schema, settings.query_s, settings.query_waiting_max, options)
        self._line: Reads = self._primary if reads is None else reads(self._primary)
        self._prepared = False

    @property
    def pending(self) -> int:
        """Return the number of running and waiting Queries."""
        return self._line.pending

    async def open(self) -> None:
        """Create the role if it is missing; if that is not permitted, each Query is refused."""
        try:
            await self._primary.do(self._prepare)
        except CommandError as error:
            log.warning("Query is refused: %s", error.detail)

    def refuse(self) -> None:
        """Refuse new Queries during a shutdown; running Queries may finish."""
        self._line.refuse()

    async def cancel_all(self) -> None:
        """Cancel running Queries."""
        await self._line.close()

    async def run_query(self, sql: str, form: str) -> str:
        """Run one SELECT that ends with ``;``; return its rows as text. Raises CommandError.

        If the caller is cancelled, the Query still counts until it has ended.
        """
        if match := _REFUSED.search(sql):
            raise BadQuery("Query aborted", f"query: expected a SELECT without {match[0]}")
        if "\0" in sql or not _encodes(sql):
            raise BadArguments("Bad query", "query: expected text without NUL characters and lone surrogates")
        _check_beginning(sql)
        text = sql.rstrip().rstrip(";")

        async def done(connection: Connection) -> tuple[list[str], list[Row]]:
            await self._prepare(connection)
            return await self._rows(connection, text)

        try:
            names, rows = await self._line.do(done)
        except psycopg.Error as error:
            raise _refusal(error) from error
        body = await asyncio.to_thread(rendered, names, rows, form, JSON_DEPTH_MAX)
        if len(body.encode(errors="replace")) > self._bytes_max:
            raise self._too_large()
        return body

    async def _prepare(self, connection: Connection) -> None:
        if self._prepared:
            return
        try:
            await prepare(connection, self._schema)
        except psycopg.Error as error:
            if connection.closed:
                raise
            raise Unavailable(
                "No role for Query",
                f"the role {ROLE} cannot be created or used: {words_of(error)}; ask an administrator to run:"
                f" CREATE ROLE {ROLE}; GRANT {ROLE} TO the server's role",
            ) from error
        self._prepared = True

    async def _rows(self, connection: Connection, sql: str) -> tuple[list[str], list[Row]]:
        """Return the column names and the rows, after PostgreSQL has counted and measured them."""
        _as_text(connection)
        await connection.execute(f"BEGIN READ ONLY; SET LOCAL ROLE {ROLE}")
        cursor = connection.cursor()
        try:
            async with connection.pipeline():  # the simple protocol would accept several statements
                await cursor.execute(self._weighed(sql), prepare=False, binary=False)
        except psycopg.Error:
            await _clean(connection)
            raise
        names = [column.name for column in cursor.description or ()][2:]
        rows = await cursor.fetchall()
        await _clean(connection)
        count, size = rows[0][:2]
        if not names:
            raise BadQuery("Query aborted", "query: expected a SELECT with columns")
        if count > self._rows_max:
            raise BadQuery("Too many rows", f"query: expected at most {self._rows_max} rows; use LIMIT")
        if size > self._weight_max:
            raise self._too_large()
        return [_SPELLED.get(name, name) for name in names], [row[2:] for row in rows] if count else []

    @property
    def _weight_max(self) -> int:
        """Return the limit for PostgreSQL's measure of the rows, in which escaped characters count twice."""
        return 2 * self._bytes_max

    def _weighed(self, sql: str) -> str:
        """Return a statement that runs the SQL once, and returns one row of NULLs if its rows are too many.

        Each row begins with the number and the total size of all rows. The CTE names are random, so that SQL
        that closes our parentheses and opens its own cannot fake the count.
        """
        asked, weighed = (f"_{secrets.token_hex(12)}" for _ in range(2))
        return (
            f"WITH {asked} AS MATERIALIZED (SELECT * FROM ({sql}\n{_BEHIND[1:]} LIMIT {self._rows_max + 1}),"  # noqa: S608  the role may only read
            f" {weighed} AS MATERIALIZED (SELECT count(*) AS rows,"
            f" coalesce(sum(octet_length({asked}::text)), 0)::bigint AS bytes FROM {asked})"
            f" SELECT {weighed}.rows, {weighed}.bytes, {asked}.* FROM {weighed} LEFT JOIN {asked}"
            f" ON {weighed}.rows <= {self._rows_max} AND {weighed}.bytes <= {self._weight_max}"
        )

    def _too_large(self) -> BadQuery:
        return BadQuery("Answer too large", f"query: expected at most {self._bytes_max} bytes; use LIMIT")


async def _clean(connection: Connection) -> None:
    """Roll back, and reset all session state that a Query may have left."""
    if not connection.closed:
        await connection.rollback()
        await connection.execute("DISCARD ALL", prepare=False)


def _encodes(sql: str) -> bool:
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_beginning(sql: str) -> None:
    """Reject SQL whose first word does not begin a SELECT; raises CommandError."""
    beginning = _BEGINNING.match(sql)
    word = beginning[1] if beginning is not None else ""
    if word.lower() in _SELECTS:
        return
    if word and f" {word.lower()} " not in _OTHERS:
        raise BadArguments("Bad query", f'syntax error at or near "{word[:50]}"')
    raise BadQuery("Query aborted", "query: expected a SELECT")


def _as_text(connection: Connection) -> None:
    """Load values as SQLite does: numbers, text, bytes or NULL."""
    adapters = connection.adapters
    if adapters.get_loader(adapters.types["bool"].oid, psycopg.pq.Format.TEXT) is _Truth:
        return
    for info in adapters.types:
        if info.name not in _KEPT:
            adapters.register_loader(info.oid, TextLoader)
        if info.array_oid:
            adapters.register_loader(info.array_oid, TextLoader)
    adapters.register_loader("numeric", _Number)
    adapters.register_loader("bool", _Truth)


def _refusal(error: psycopg.Error) -> CommandError:
    """Return the error for a client whose SQL failed."""
    state = error.sqlstate or ""
    if isinstance(error, (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
        return BadQuery("Query aborted", f"query: expected a SELECT of our tables: {words_of(error)}")
    if state.startswith(_OF_THE_TEXT):
        return BadArguments("Bad query", words_of(error).partition(_BEHIND)[0])
    return refusal_of(error)


_BY_INDEX = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
"""Views always use the indexes, whatever the statistics say."""

_CHUNK = 8 if psycopg.capabilities.has_stream_chunked() else 1
"""Number of large rows fetched together; 1 if libpq is too old. A read may exceed its size limit by that many
rows, of 4 MiB each."""


class PostgreSQLReader(Reader):
    """Reads committed rows for one server: index seeks on one connection, scans on another."""

    _seeks: Reads
    _scans: Reads
    queries: FreeQuery

    def __init__(
        self,
        url: str,
        settings: Settings,
        schema: str,
        session: str = "",
        confirmed: Callable[[], str] = lambda: "",
    ) -> None:
        """Read the tables of ``schema`` in the database at ``url``; connect at first use.

        Behind a pooler, ``database_direct`` is used, since the timeout is a connection parameter.
        ``database_read`` is a standby for scans; for ``session`` and ``confirmed`` see ``Standby``.
        """
        url = settings.database_direct or url
        seeks = ReadConnection(url, schema, settings.query_s, SEEKS_WAITING_MAX, _BY_INDEX)
        scans = ReadConnection(url, schema, settings.query_s, settings.query_waiting_max, _BY_INDEX)
        there = settings.database_read
        self._standby = Standby(there, seeks, session, confirmed) if there else None
        self._seeks = self._with_standby(seeks, first=False)  # followers of output must not miss lines
        self._scans = self._with_standby(scans)
        self.queries = FreeQuery(url, schema, settings, self._with_standby)

    def _with_standby(self, line: ReadConnection, *, first: bool = True) -> Reads:
        return line if self._standby is None else self._standby.with_primary(line, first=first)

    async def open(self) -> None:
        """Make sure that the role for Query exists, and start checking the standby."""
        await self.queries.open()
        if self._standby is not None:
            self._standby.start()

    async def close(self) -> None:
        """Cancel running reads and close the connections."""
        if self._standby is not None:
            await self._standby.close()
        await super().close()

    async def _page(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        bytes_max: int,
        *,
        scans: bool,
        again: bool,
    ) -> Page:
        line = self._scans if scans else self._seeks
        return await _read(line, VIEWS[name], parameters, limit, bytes_max, again=again)


async def _read(
    line: Reads, view: View, named: Mapping[str, Any], rows_max: int, bytes_max: int, *, again: bool = False
) -> Page:
    """Return at most ``rows_max`` rows, up to the row that exceeds ``bytes_max``; raises CommandError."""
    parameters = view.parameters(named)

    async def fetched(connection: Connection) -> Page:
        rows: list[Row] = []
        size, more = 0, False
        async with aclosing(_rows(connection, view, parameters)) as fetching:
            async for row in fetching:
                if size > bytes_max:
                    return Page(rows, more=True)
                if len(rows) == rows_max:
                    more = True  # reading this last row is cheaper than cancelling
                    continue
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        return Page(rows, more)

    try:
        return await line.do(fetched, again=again)
    except psycopg.Error as error:
        raise refusal_of(error) from error


async def _rows(connection: Connection, view: View, parameters: list[Any]) -> AsyncGenerator[Row]:
    """Yield the rows of a view; large rows are streamed, so that only ``_CHUNK`` of them are in memory."""
    async with connection.cursor() as cursor:
        if view.large:
            stream = cast("AsyncGenerator[Row]", cursor.stream(view.sql, parameters, size=_CHUNK))
            async with aclosing(stream) as rows:
                async for row in rows:
                    yield row
        else:
            await cursor.execute(view.sql, parameters)
            for row in await cursor.fetchall():
                yield row
