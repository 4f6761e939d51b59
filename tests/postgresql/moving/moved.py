"""Helpers for tests of moves: the complete content of a queue on either engine, and faults in a move."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.transfer import TransferDatabase
from bedrockjobs.store.schema import TableDefinition, tables
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.transfer import MOVED_TO, ROWS_PER_REPORT, MoveOptions
from tests.conformance.engine import START, PostgreSQLQueue, SQLiteQueue
from tests.postgresql.cluster import CLUSTER

SCHEMA = "moved"

STRICT = MoveOptions()
"""Nothing is altered on the way."""

Content = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""

ODD_TEXTS = (
    "",
    " ",
    "\\N",
    "\\",
    "\t\n\r\v",
    "'\"`",
    "\x01\x1f\x7f",
    "\ufeff",
    "\uffff\ufffe",
    "é e\u0301",
    "\u202eabc",
    "\U0001f469\u200d\U0001f680",
    "\U0010ffff",
    "0",
    "null",
    "{}",
    "%s $1 ?",
)
LONG = "\u00e9" * 100_000

ODD_NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FIRST_KEY = 2**62
ODD_ROWS = len(ODD_TEXTS) * 2
"""Rows of each table: each text meets several numbers."""


def database() -> TransferDatabase:
    """Return the URL to which tests move queues."""
    return TransferDatabase(CLUSTER.url, SCHEMA)


def execute(*statements: str) -> None:
    """Execute SQL directly in the schema of these tests."""
    with CLUSTER.connection(SCHEMA) as connection:
        for statement in statements:
            connection.execute(statement)


def drop() -> None:
    """Remove the queue on PostgreSQL."""
    execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def content_of(path: Path) -> Content:
    """Return all content of a file except the tombstone, each value with its type."""
    with closing(sqlite3.connect(path)) as connection:
        found = {table.name: connection.execute(typed(table)).fetchall() for table in tables()}
        meta = "SELECT key, value, typeof(value) FROM meta WHERE key <> ? ORDER BY key"
        return found | {"meta": connection.execute(meta, (MOVED_TO,)).fetchall()}


def typed(table: TableDefinition) -> str:
    """Return an SQLite query for all rows, with the bytes and the type of each value."""
    columns = ", ".join(f'CAST("{name}" AS BLOB), typeof("{name}")' for name in table.columns)
    return f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}"


def content_there() -> Content | None:
    """Return the content of the queue on PostgreSQL and its next IDs, or None without a queue."""
    with CLUSTER.connection(SCHEMA) as connection:
        if connection.execute("SELECT to_regclass('meta')").fetchone() == (None,):
            return None
        rows = {table.name: connection.execute(table.select()).fetchall() for table in tables()}
        rows["meta"] = connection.execute(
            "SELECT key, value FROM meta WHERE key <> 'lockSalt' ORDER BY key"
        ).fetchall()
        for name in ("jobIDs", "runIDs"):
            rows[name] = connection.execute(f"SELECT last_value + is_called::int FROM {name}").fetchall()
        return rows


def fill(path: Path) -> None:
    """Add rows with odd values in each column of each table."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in tables():
            marks = ", ".join("?" * len(table.columns))
            rows = [odd_row(table, number) for number in range(ODD_ROWS)]
            connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'nextRunID'", (FIRST_KEY + ODD_ROWS,))
        connection.execute("INSERT INTO meta VALUES ('seen', '2026-01-05 10:00:00')")


def odd_row(table: TableDefinition, number: int) -> list[Any]:
    """Return a row with odd values wherever the schema permits them."""
    row: list[Any] = []
    for at, column in enumerate(table.columns):
        text = ODD_TEXTS[(number + at) % len(ODD_TEXTS)]
        if column in ("priority", "state"):
            row.append({"priority": 500, "state": "QUEUED"}[column])
        elif column == "checksum" or (column == "exitCode" and number % 2):
            row.append(None)
        elif column in table.key and at in table.texts:
            row.append(f"{text}{number}")
        elif column == table.key[-1]:
            row.append(FIRST_KEY + number)
        elif column == "name":
            row.append(text or "n")
        elif at in table.blobs:
            row.append(text.encode() + bytes([0, 255, number % 256]))
        elif column == "data" and number % 7 == 0:
            row.append(text + LONG)
        else:
            row.append(text if at in table.texts else ODD_NUMBERS[(number + at) % len(ODD_NUMBERS)])
    return row


@contextmanager
def both_as_before(path: Path) -> Iterator[None]:
    """Check that a file, its side files and the queue on PostgreSQL remain unchanged."""

    def seen() -> tuple[Content, Content | None, set[str], list[Any]]:
        with closing(sqlite3.connect(path)) as connection:
            marks = connection.execute("SELECT * FROM meta WHERE key = ?", (MOVED_TO,)).fetchall()
        beside = {each.name for each in path.parent.iterdir() if not each.name.endswith("-lock")}
        return content_of(path), content_there(), beside, marks

    before = seen()
    yield
    assert seen() == before


def at_once(monkeypatch: Any) -> None:
    """Report progress after each row."""
    assert ROWS_PER_REPORT > 1
    monkeypatch.setattr("bedrockjobs.store.transfer.ROWS_PER_REPORT", 1)


# --- what a test does ------------------------------------------------------------------------------------


def sqlite_queue(path: Path) -> SQLiteQueue:
    """Return the queue in a file, open."""
    clock = ManualClock(START)
    return SQLiteQueue(SQLiteEngine(path, Settings(), clock), "document", clock)


def postgresql_queue() -> PostgreSQLQueue:
    """Return the queue on PostgreSQL, open."""
    clock = ManualClock(START)
    return PostgreSQLQueue(PostgreSQLEngine(CLUSTER.url, clock, name=SCHEMA), "document", clock)


def do(queue: Any, kind: type[c.Command[Any]], **given: Any) -> Any:
    """Execute a command, which must succeed; return its body."""
    outcome = queue.call(kind.read(given))
    assert outcome.code == 200, outcome
    return outcome.body


def mark_in(path: Path) -> str | None:
    """Return the target in a file's tombstone."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = ?", (MOVED_TO,)).fetchone()
    return found[0] if found else None


def write(path: Path, *statements: str) -> None:
    """Execute SQL directly on a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def bedrockjobs(*arguments: str) -> Result:
    """Run a command."""
    result = CliRunner().invoke(main, arguments, prog_name="bedrockjobs")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def move(*arguments: str) -> Result:
    """Run `bedrockjobs move` with the schema of these tests."""
    return bedrockjobs("move", "--schema", SCHEMA, *arguments)


# --- what makes a move fail ------------------------------------------------------------------------------

Trouble = Callable[[Path, pytest.MonkeyPatch], None]
"""Makes a file, the queue on PostgreSQL or the program bad."""

FULL = "RAISE EXCEPTION 'no room' USING ERRCODE = '53100';"
"""What a trigger does where the disk is full."""


def zero(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE events SET detail = 'a' || char(0) WHERE seq = (SELECT max(seq) FROM events)")


def damage_there(_: Path, __: pytest.MonkeyPatch) -> None:
    execute("UPDATE jobs SET data = '{\"k\":1}', checksum = 1")


def on_insert(table: str, body: str, *, at_commit: bool = False) -> Trouble:
    """Return a fault: a trigger with this body for each row inserted into a table."""
    when = f"BEFORE INSERT ON {table}"
    if at_commit:
        when = f"AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"

    def trouble(_: Path, __: pytest.MonkeyPatch) -> None:
        PostgreSQLEngine(CLUSTER.url, name=SCHEMA).close()
        execute(
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN {body} RETURN new; END $$",
            f"CREATE {'CONSTRAINT' if at_commit else ''} TRIGGER trouble {when}"
            " FOR EACH ROW EXECUTE FUNCTION trouble()",
        )

    return trouble
