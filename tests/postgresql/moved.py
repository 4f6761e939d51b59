"""What tests of moves look at: all that a queue holds, on either engine, and databases that are made bad."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bedrockjobs.store.moved import MARK
from bedrockjobs.store.postgresql.moving import Database
from bedrockjobs.store.tables import Table, tables
from bedrockjobs.store.whole_copy import ROWS_PER_REPORT
from tests.postgresql.cluster import CLUSTER

SCHEMA = "moved"

Content = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""

ODD_TEXTS = (
    "", " ", "\\N", "\\", "\t\n\r\v", "'\"`", "\x01\x1f\x7f", "\ufeff", "\uffff\ufffe", "é e\u0301",
    "\u202eabc", "\U0001f469\u200d\U0001f680", "\U0010ffff", "0", "null", "{}", "%s $1 ?",
)  # fmt: skip
LONG = "\u00e9" * 100_000

ODD_NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FIRST_KEY = 2**62
ODD_ROWS = len(ODD_TEXTS) * 2
"""Rows of each table: each text meets several numbers."""


def database() -> Database:
    """Return where tests move queues to."""
    return Database(CLUSTER.url, SCHEMA)


def execute(*statements: str) -> None:
    """Do something to the database beside all programs of ours, in the schema of these tests."""
    with psycopg.connect(CLUSTER.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}")
        for statement in statements:
            connection.execute(statement)


def drop() -> None:
    """Remove the queue on PostgreSQL."""
    execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def content_of(path: Path) -> Content:
    """Return all that a file holds but the mark, each value with its type."""
    with closing(sqlite3.connect(path)) as connection:
        found = {table.name: connection.execute(typed(table)).fetchall() for table in tables()}
        meta = "SELECT key, value, typeof(value) FROM meta WHERE key <> ? ORDER BY key"
        return found | {"meta": connection.execute(meta, (MARK,)).fetchall()}


def typed(table: Table) -> str:
    """Return a query of SQLite for all rows with the bytes and the types of all values."""
    columns = ", ".join(f'CAST("{name}" AS BLOB), typeof("{name}")' for name in table.columns)
    return f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.key)}"


def content_there() -> Content | None:
    """Return what the queue on PostgreSQL holds, and which numbers come next; None where there is none."""
    with psycopg.connect(CLUSTER.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}")
        if connection.execute("SELECT to_regclass('meta')").fetchone() == (None,):
            return None
        rows = {table.name: connection.execute(table.select()).fetchall() for table in tables()}
        rows["meta"] = connection.execute("SELECT key, value FROM meta ORDER BY key").fetchall()
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


def odd_row(table: Table, number: int) -> list[Any]:
    """Return a row with odd values, where the schema does not say what they must be."""
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
        elif column in ("data", "line") and number % 7 == 0:
            row.append(text + LONG)
        else:
            row.append(text if at in table.texts else ODD_NUMBERS[(number + at) % len(ODD_NUMBERS)])
    return row


@contextmanager
def both_as_before(path: Path) -> Iterator[None]:
    """Demand that a file, what lies beside it and the queue on PostgreSQL stay as they are."""

    def seen() -> tuple[Content, Content | None, set[str], list[Any]]:
        with closing(sqlite3.connect(path)) as connection:
            marks = connection.execute("SELECT * FROM meta WHERE key = ?", (MARK,)).fetchall()
        beside = {each.name for each in path.parent.iterdir() if not each.name.endswith("-lock")}
        return content_of(path), content_there(), beside, marks

    before = seen()
    yield
    assert seen() == before


def at_once(monkeypatch: Any) -> None:
    """Let progress be told of each row."""
    assert ROWS_PER_REPORT > 1
    monkeypatch.setattr("bedrockjobs.store.whole_copy.ROWS_PER_REPORT", 1)
