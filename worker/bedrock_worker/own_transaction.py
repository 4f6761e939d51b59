"""Creates jobs with an application's own database connection, in the transaction that is open there.

The connection is recognized by its class; no library is imported that the application does not use.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

if TYPE_CHECKING:
    from bedrockjobs.commands import JobSpec

Kind = Literal["cursor", "async cursor", "asyncpg", "sqlalchemy", "async sqlalchemy"]

_CLASSES: dict[tuple[str, str], Kind] = {
    ("psycopg", "Connection"): "cursor",
    ("psycopg", "AsyncConnection"): "async cursor",
    ("psycopg2", "connection"): "cursor",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "async sqlalchemy",
    ("sqlalchemy", "AsyncSession"): "async sqlalchemy",
    ("sqlalchemy", "async_scoped_session"): "async sqlalchemy",
    ("django", "BaseDatabaseWrapper"): "cursor",
    ("django", "ConnectionProxy"): "cursor",
}
"""How to use a connection, by the package and the name of its class or of a base class."""

SUPPORTED = (
    "a connection of psycopg, psycopg2, asyncpg, SQLAlchemy or Django to PostgreSQL; for other databases, see"
    " Outbox"
)


class Statement(NamedTuple):
    """A call of the SQL function that creates a job, and its parameters."""

    function: str
    parameters: tuple[str, str, str]

    def text(self, *marks: str) -> str:
        """Return the SQL with the placeholders ``marks``, whose parameters are sent as text."""
        name, data, options = (f"CAST({mark} AS text)" for mark in marks)
        return f"SELECT {self.function}({name}, CAST({data} AS jsonb), CAST({options} AS jsonb)) AS job_id"


def kind_of(connection: object, *, asynchronous: bool) -> Kind:
    """Return how to use a connection; raises InvalidArgument for an unknown one."""
    from bedrockjobs.base.errors import InvalidArgument

    kind = next((_CLASSES[name] for name in _names(type(connection)) if name in _CLASSES), None)
    shown = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if kind is None:
        raise InvalidArgument(f"connection: expected {SUPPORTED}; got {shown}")
    dialect = _dialect(connection, kind)
    if dialect not in ("", "postgresql"):
        raise InvalidArgument(f"connection: expected {SUPPORTED}; got one to {dialect}")
    if asynchronous != (kind in ("async cursor", "asyncpg", "async sqlalchemy")):
        right, wrong = ("an asynchronous", "enqueue") if asynchronous else ("a blocking", "aenqueue")
        raise InvalidArgument(f"connection: expected {right} one; {wrong} is for {shown}")
    return kind


def _names(kind: type) -> Iterator[tuple[str, str]]:
    return ((one.__module__.partition(".")[0], one.__name__) for one in kind.__mro__)


def _dialect(connection: Any, kind: Kind) -> str:
    """Return the kind of database of a connection; empty if its library supports PostgreSQL only."""
    if kind in ("sqlalchemy", "async sqlalchemy"):
        dialect = getattr(connection, "dialect", None)
        return str((dialect or connection.get_bind().dialect).name)
    return str(getattr(connection, "vendor", ""))


def statement_of(spec: JobSpec) -> Statement:
    """Return the statement that creates a job."""
    from bedrockjobs.base import jsontext
    from bedrockjobs.base.errors import InvalidArgument
    from bedrockjobs.base.settings import SCHEMA_NAME

    schema = os.environ.get("BEDROCKJOBS_DATABASE_SCHEMA", "bedrockjobs")
    if not re.fullmatch(SCHEMA_NAME, schema):
        raise InvalidArgument(f"BEDROCKJOBS_DATABASE_SCHEMA: expected the name of a schema, got {schema!r}")
    members = jsontext.members(spec.wire())
    members.pop("name")
    data = members.pop("data", "{}")
    return Statement(f"{schema}.create_job", (spec.name, data, jsontext.join(members)))


def create(connection: Any, spec: JobSpec) -> int:
    """Create a job in the connection's transaction; return its jobID.

    Raises InvalidArgument for a connection that cannot be used, InvalidCommand if the database refuses the
    job, and the library's errors.
    """
    kind, statement = kind_of(connection, asynchronous=False), statement_of(spec)
    try:
        if kind == "sqlalchemy":
            return int(connection.execute(*_bound(statement)).scalar_one())
        with connection.cursor() as cursor:
            cursor.execute(statement.text("%s", "%s", "%s"), statement.parameters)
            return _number(cursor.fetchone())
    except Exception as error:
        _explain(error, statement)


async def create_async(connection: Any, spec: JobSpec) -> int:
    """Create a job like ``create``, without blocking."""
    kind, statement = kind_of(connection, asynchronous=True), statement_of(spec)
    try:
        if kind == "asyncpg":
            return int(await connection.fetchval(statement.text("$1", "$2", "$3"), *statement.parameters))
        if kind == "async sqlalchemy":
            return int((await connection.execute(*_bound(statement))).scalar_one())
        async with connection.cursor() as cursor:
            await cursor.execute(statement.text("%s", "%s", "%s"), statement.parameters)
            return _number(await cursor.fetchone())
    except Exception as error:
        _explain(error, statement)


def _bound(statement: Statement) -> tuple[Any, dict[str, str]]:
    """Return SQLAlchemy's form of a statement, and its parameters."""
    names = ("name", "data", "options")
    text = sys.modules["sqlalchemy"].text(statement.text(*(f":{name}" for name in names)))
    return text, dict(zip(names, statement.parameters, strict=True))


def _number(row: Any) -> int:
    """Return the jobID in a row: an application may get rows as tuples, mappings, objects or numbers."""
    if isinstance(row, int):
        return row
    if isinstance(row, Mapping):
        return int(row["job_id"])
    return int(row.job_id if hasattr(row, "job_id") else row[0])


def _explain(error: Exception, statement: Statement) -> NoReturn:
    """Raise InvalidCommand if the database refused the job or the function call, else ``error``."""
    from bedrockjobs.base.errors import InvalidCommand

    state, words = _state(error)
    function = statement.function
    if state in ("42883", "3F000"):
        message = f"connection: the database has no function {function}; expected what"
        raise InvalidCommand(
            "No SQL function", f"{message} `bedrockjobs migrate --sql-functions` creates"
        ) from error
    if state == "42501" and ("create_job" in words or "schema" in words):
        message = f"connection: the role may not execute {function}; expected one with"
        raise InvalidCommand("Forbidden", f"{message} GRANT EXECUTE ON FUNCTION {function}") from error
    if state == "22023":
        raise InvalidCommand("Malformed job", words) from error
    raise error


def _state(error: BaseException) -> tuple[str, str]:
    """Return the SQLSTATE and the message that PostgreSQL gave an error; two empty texts if it gave none."""
    seen: BaseException | None = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if state:
            primary = getattr(getattr(seen, "diag", None), "message_primary", None)
            return str(state), str(primary or getattr(seen, "message", "") or seen)
        seen = getattr(seen, "orig", None) or seen.__cause__
    return "", ""
