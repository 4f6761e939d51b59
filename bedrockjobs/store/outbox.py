"""The table ``bedrockjobs_outbox`` in an application's own database, through DB-API, SQLAlchemy or Django."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import unquote, urlsplit

from bedrockjobs.base.errors import InvalidArgument

Dialect = Literal["sqlite", "mysql", "postgresql", "mssql"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

ROWS_MAX = 100
"""Maximum number of rows that a relay reads at a time."""

ERROR_CHARS_MAX = 1_000
"""Maximum length of an error that is stored with a row."""

_TYPES: dict[Dialect, tuple[str, str]] = {
    "sqlite": ("INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT"),
    "mysql": ("BIGINT AUTO_INCREMENT PRIMARY KEY", "LONGTEXT"),
    "postgresql": ("bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "text"),
    "mssql": ("BIGINT IDENTITY PRIMARY KEY", "NVARCHAR(MAX)"),
}
"""By dialect, the SQL types of an automatically numbered key and of a long text."""


def table_sql(dialect: Dialect) -> str:
    """Return the statements that create the table."""
    number, text = _TYPES[dialect]
    return f"""CREATE TABLE bedrockjobs_outbox (
    id {number},
    idempotency_key VARCHAR(255) NOT NULL,
    order_key VARCHAR(255) NOT NULL,
    job {text} NOT NULL,
    attempts INTEGER NOT NULL,
    again VARCHAR(23) NOT NULL,
    state VARCHAR(10) NOT NULL,
    error VARCHAR({ERROR_CHARS_MAX}) NOT NULL
);
CREATE INDEX bedrockjobs_outbox_next ON bedrockjobs_outbox (state, id);
CREATE INDEX bedrockjobs_outbox_order ON bedrockjobs_outbox (order_key, state, id);
"""


_COLUMNS = "id, idempotency_key, order_key, job, attempts, again, error"
_ADD = (
    "INSERT INTO bedrockjobs_outbox (idempotency_key, order_key, job, attempts, again, state, error)"
    " VALUES ({0}, {1}, {2}, 0, '', 'waiting', '')"
)
_NEXT = (
    f"SELECT {_COLUMNS} FROM bedrockjobs_outbox WHERE state = 'waiting' AND again <= {{0}}"  # noqa: S608
    " AND (order_key = '' OR NOT EXISTS (SELECT 1 FROM bedrockjobs_outbox earlier"
    " WHERE earlier.order_key = bedrockjobs_outbox.order_key AND earlier.state = 'waiting'"
    " AND earlier.id < bedrockjobs_outbox.id AND earlier.again > {1})) ORDER BY id"
)
_ASIDE = f"SELECT {_COLUMNS} FROM bedrockjobs_outbox WHERE state = 'aside' ORDER BY id"  # noqa: S608
_DELETE = "DELETE FROM bedrockjobs_outbox WHERE id = {0}"
_CHANGE = "UPDATE bedrockjobs_outbox SET attempts = {0}, again = {1}, state = {2}, error = {3} WHERE id = {4}"


class OutboxRow(NamedTuple):
    """A job of the outbox, which a relay is to create on the server."""

    id: int
    idempotency_key: str
    order_key: str
    job: str
    attempts: int
    again: str
    error: str


MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
"""The placeholder of each ``paramstyle`` that is supported."""

SUPPORTED = (
    "a connection of SQLAlchemy, Django or a DB-API module with the paramstyle qmark, format or pyformat"
)


def _package(connection: object) -> str:
    for kind in type(connection).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("sqlalchemy", "django") or hasattr(sys.modules.get(package), "paramstyle"):
            return package
    return type(connection).__module__.partition(".")[0]


def add(connection: Any, idempotency_key: str, order_key: str, job: str) -> None:
    """Add a row in the connection's transaction; raises InvalidArgument for an unsupported connection."""
    values = (idempotency_key, order_key, job)
    package = _package(connection)
    if package == "sqlalchemy":
        text = sys.modules["sqlalchemy"].text(_ADD.format(":a", ":b", ":c"))
        connection.execute(text, dict(zip("abc", values, strict=True)))
        return
    mark = "%s" if package == "django" else _mark(connection)
    _executed(connection, _ADD.format(*[mark] * 3), values).close()


def _mark(connection: object) -> str:
    style = getattr(sys.modules.get(_package(connection)), "paramstyle", "")
    if style not in MARKS or not hasattr(connection, "cursor"):
        shown = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise InvalidArgument(f"connection: expected {SUPPORTED}; got {shown}")
    return MARKS[style]


def _executed(connection: Any, sql: str, values: tuple[Any, ...] = ()) -> Any:
    cursor = connection.cursor()
    try:
        cursor.execute(sql, values)
    except BaseException:
        cursor.close()
        raise
    return cursor


def connect(url: str) -> Any:
    """Connect to the database of an outbox; ``url`` is the path of a SQLite file, or a URL.

    A URL names the DB-API module, which must be installed: ``mysql+pymysql://user:password@host/name``.
    Without a module, ``postgresql://`` uses psycopg. Raises InvalidArgument, and the module's errors.
    """
    scheme, _, rest = url.partition("://")
    if not rest or scheme == "sqlite":
        return import_module("sqlite3").connect(
            (rest or url).removeprefix("/") if scheme == "sqlite" else url
        )
    dialect, _, module = scheme.partition("+")
    module = module or {"postgresql": "psycopg", "postgres": "psycopg"}.get(dialect, "")
    if not module:
        raise InvalidArgument(
            f"from: expected a SQLite file, postgresql://..., or the DB-API module too: {dialect}+MODULE://..."
        )
    try:
        found = import_module(module)
    except ImportError:
        raise InvalidArgument(f"from: the module {module} is not installed") from None
    if dialect in ("postgresql", "postgres"):
        return found.connect(f"postgresql://{rest}")
    parts = urlsplit(url)
    given = {
        ("server" if module == "pymssql" else "host"): parts.hostname,
        "port": parts.port,
        "user": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
        "database": parts.path.strip("/"),
    }
    return found.connect(**{name: value for name, value in given.items() if value})


class OutboxTable:
    """The outbox table, as a relay uses it; each method runs in a transaction of its own."""

    def __init__(self, connection: Any) -> None:
        """Use a DB-API connection without autocommit; raises InvalidArgument for an unsupported one."""
        self._connection = connection
        self._mark = _mark(connection)
        mssql = _package(connection) in ("pymssql", "pyodbc")
        self._some = f" OFFSET 0 ROWS FETCH NEXT {ROWS_MAX} ROWS ONLY" if mssql else f" LIMIT {ROWS_MAX}"

    def _do(self, sql: str, *values: Any, reads: bool = False) -> list[OutboxRow]:
        cursor = _executed(self._connection, sql.format(*[self._mark] * len(values)), values)
        try:
            rows = [OutboxRow._make(row) for row in cursor.fetchall()] if reads else []
        finally:
            cursor.close()
        self._connection.commit()
        return rows

    def next_rows(self, now: str) -> list[OutboxRow]:
        """Return the next rows to send, in order, at most a hundred.

        A row is left out while an earlier row with the same ``order_key`` waits for another attempt.
        """
        return self._do(_NEXT + self._some, now, now, reads=True)

    def aside(self) -> list[OutboxRow]:
        """Return the rows that were set aside, since they can never be sent."""
        return self._do(_ASIDE, reads=True)

    def delete(self, row: OutboxRow) -> None:
        """Delete a row that was sent."""
        self._do(_DELETE, row.id)

    def postpone(self, row: OutboxRow, again: str, error: str) -> None:
        """Store a failed attempt to send a row, and when to send the row again."""
        self._do(_CHANGE, row.attempts + 1, again, "waiting", error[:ERROR_CHARS_MAX], row.id)

    def put_aside(self, row: OutboxRow, error: str) -> None:
        """Set a row aside, since it can never be sent, and store the error."""
        self._do(_CHANGE, row.attempts + 1, "", "aside", error[:ERROR_CHARS_MAX], row.id)
