"""Query on PostgreSQL: the SQL of users, done by a role that may read our tables and nothing else.

A connection of its own does one Query after another, each in a read-only transaction with a time limit. The
rows are counted and weighed by PostgreSQL before any of them comes here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable

import psycopg
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader

from bedrockjobs.base.config import JSON_DEPTH_MAX
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.store import statements
from bedrockjobs.store.postgresql import query_role
from bedrockjobs.store.postgresql.line import Connection, Line, refusal_of, words_of
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.postgresql.query_role import ROLE
from bedrockjobs.store.postgresql.standby import Reads
from bedrockjobs.store.query_process import rendered

log = logging.getLogger(__name__)

WORK_MEM = "16MB"
"""Memory of one step of a Query, beyond which PostgreSQL goes to its disk."""

DIGITS_MAX = 400
"""Length of a number that is read as one: over that of the largest of 64 bits, with a point or without."""

_BEHIND = " ) AS some_rows"
"""What stands behind a text: it is not its writer's business."""

WORD_SHOWN_MAX = 50
"""Characters of a word that is no statement's first that are told again: a refusal stays short."""

_BEGINNING = re.compile(r"(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)
"""What stands before the first word, and that word; possessive, for else very many comments take for ever."""

_SELECTS = {"select", "with", "values", "table"}
_OTHERS = (
    " abort alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare"
    " delete discard do drop end execute explain fetch grant import insert listen load lock merge move notify"
    " prepare reassign refresh reindex release reset revoke rollback savepoint security set show start"
    " truncate unlisten update vacuum "
)
"""First words of statements that are refused; any other word is a mistake in the text."""

_REFUSED = re.compile(
    r"\b(pg_(?:try_)?advisory\w*|pg_sleep\w*|pg_notify|pg_terminate_backend|pg_cancel_backend|pg_read\w*|pg_ls\w*"
    r"|pg_stat_file|pg_export_snapshot|pg_log\w*|set_config|dblink\w*|lo_\w+|loread|lowrite|nextval|setval"
    r"|\w+_to_xml\w*|\w+_to_xmlschema|ts_stat|ts_rewrite|crosstab\w*|connectby|xpath_table"
    r"|txid_current|pg_current_xact_id|U&)",
    re.IGNORECASE,
)
"""Functions that wait, hold locks, act on others or run other SQL; and spellings that would hide them."""

_SPELLED = {
    name.lower(): name
    for text in (statements.COLUMNS, statements.RUN, statements.EVENT, "waitMs")
    for name in re.findall(r"\w+", text)
}
"""Columns as Bedrock spells them: PostgreSQL knows them in small letters."""

_OF_THE_TEXT = ("42", "22", "21", "2200", "P0", "08P01")
"""Beginnings of the states of errors that say what is wrong with a text; the last one, that it has `$1`."""


class _Number(Loader):
    """A number of any size: whole where it has no point."""

    def load(self, data: bytes | bytearray | memoryview) -> int | float | str:
        """Return the number, or its text where it is longer than any that is meant to be one."""
        text = bytes(data).decode()
        if len(text) > DIGITS_MAX:
            return text
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _Truth(Loader):
    """True and false, as the numbers that SQLite has for them."""

    def load(self, data: bytes | bytearray | memoryview) -> int:
        """Return 1 or 0."""
        return int(bytes(data) == b"t")


_KEPT = frozenset({"int2", "int4", "int8", "oid", "float4", "float8", "bytea"})
"""Types whose values come as numbers or bytes; all others come as the text that PostgreSQL writes."""


class FreeQuery:
    """One Query after another."""

    def __init__(
        self, url: str, schema: str, settings: Settings, reads: Callable[[Line], Reads] | None = None
    ) -> None:
        """Read the tables of ``schema`` in the database at ``url``; ``open`` before use.

        ``reads`` makes of the line to the database where Queries are done, elsewhere too.
        """
        self._schema = schema
        self._rows_max = settings.query_rows_max
        self._bytes_max = settings.query_bytes_max
        options = {"work_mem": WORK_MEM}
        self._primary = Line(url, schema, settings.query_s, settings.query_waiting_max, options)
        self._line: Reads = self._primary if reads is None else reads(self._primary)
        self._prepared = False

    @property
    def pending(self) -> int:
        """Return how many Queries run or wait."""
        return self._line.pending

    async def open(self) -> None:
        """Make the role, unless it is there; where that is not allowed, each Query is refused."""
        try:
            await self._primary.do(self._prepare)
        except CommandError as error:
            log.warning("Query is refused: %s", error.detail)

    def refuse(self) -> None:
        """Begin nothing more: the server stops. What runs may end."""
        self._line.refuse()

    async def close(self) -> None:
        """End what runs."""
        await self._line.close()

    async def run(self, sql: str, form: str) -> str:
        """Run one SELECT that ends in ``;``; return its rows as text. Raises CommandError.

        A Query whose caller is cancelled keeps its place until it has ended.
        """
        if found := _REFUSED.search(sql):
            raise BadQuery("Query aborted", f"query: expected a SELECT without {found[0]}")
        if "\0" in sql or not _encodes(sql):
            raise BadArguments(
                "Bad query", "query: expected text without the character 0 and halves of others"
            )
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
            await query_role.prepare(connection, self._schema)
        except psycopg.Error as error:
            if connection.closed:
                raise
            raise Unavailable(
                "No role for Query",
                f"the role {ROLE} cannot be made or used: {words_of(error)}; let somebody who may do so say:"
                f" CREATE ROLE {ROLE}; GRANT {ROLE} TO the server's role",
            ) from error
        self._prepared = True

    async def _rows(self, connection: Connection, sql: str) -> tuple[list[str], list[Row]]:
        """Return the names of the columns, and the rows after PostgreSQL has counted and weighed them."""
        _as_text(connection)
        await connection.execute(f"BEGIN READ ONLY; SET LOCAL ROLE {ROLE}")
        cursor = connection.cursor()
        try:
            async with connection.pipeline():  # its protocol takes one statement, the simple one takes more
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
        """What rows may weigh: PostgreSQL writes some characters of a row twice."""
        return 2 * self._bytes_max

    def _weighed(self, sql: str) -> str:
        """Return one statement that does a text once, and has a row of NULLs where its rows are too many.

        Each row comes behind the number and the weight of all. The names are ones that no text can guess: it
        may close our parentheses and open others, but it cannot count its rows itself.
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
    """End the transaction, and forget all that a Query may have left in the session."""
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
    """Refuse a text that is no SELECT, as far as its beginning tells; raises CommandError."""
    beginning = _BEGINNING.match(sql)
    word = beginning[1] if beginning is not None else ""
    if word.lower() in _SELECTS:
        return
    if word and f" {word.lower()} " not in _OTHERS:
        raise BadArguments("Bad query", f'syntax error at or near "{word[:WORD_SHOWN_MAX]}"')
    raise BadQuery("Query aborted", "query: expected a SELECT")


def _as_text(connection: Connection) -> None:
    """Let values come as SQLite has them: numbers, text, bytes, or nothing."""
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
    """Return what a client is told when its SQL failed."""
    state = error.sqlstate or ""
    if isinstance(error, (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
        return BadQuery("Query aborted", f"query: expected a SELECT of our tables: {words_of(error)}")
    if state.startswith(_OF_THE_TEXT):
        return BadArguments("Bad query", words_of(error).partition(_BEHIND)[0])
    return refusal_of(error)
