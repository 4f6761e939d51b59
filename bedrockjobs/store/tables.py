"""The tables of a queue on both engines, with columns, keys and row checksums.

PostgreSQL may have further columns. ``meta`` is not included, since each engine keeps its own numbers there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import msgpack

from bedrockjobs.store import schema

Row = tuple[Any, ...]

ENGINES_OWN = frozenset({"nextJobID", "nextRunID", "schemaVersion", "lockSalt"})
"""Keys of ``meta`` that only one engine has."""


class Table(NamedTuple):
    """One table."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[int, ...]
    """Indexes of the text columns."""
    blobs: tuple[int, ...]
    """Indexes of the binary columns; the others are integers."""
    key: tuple[str, ...]
    """The primary key; text is ordered by its bytes."""

    def select(self) -> str:
        """Return a query for all rows in key order, for both engines."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {', '.join(self.key)}"  # noqa: S608

    def key_of(self, row: Row) -> str:
        """Return a readable key of a row: ``jobs, jobID 7``."""
        parts = (f"{column} {row[self.columns.index(column)]!r}" for column in self.key)
        return f"{self.name}, {', '.join(parts)}"


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables of ``schema.sql``, in its order."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.apply(connection)
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'meta' ORDER BY rowid"
        ).fetchall()
        return tuple(_table(connection, name) for (name,) in names)


def _table(connection: sqlite3.Connection, name: str) -> Table:
    found = connection.execute(f"PRAGMA table_info({name})").fetchall()
    keyed = sorted((place, column) for _, column, _, _, _, place in found if place)
    return Table(
        name,
        tuple(column for _, column, *_ in found),
        tuple(at for at, (_, _, kind, *_) in enumerate(found) if kind == "TEXT"),
        tuple(at for at, (_, _, kind, *_) in enumerate(found) if kind == "BLOB"),
        tuple(column for _, column in keyed),
    )


class Sum:
    """Count and checksum of the rows of one table, in order."""

    def __init__(self) -> None:
        """Begin without rows."""
        self.rows = 0
        self._hash = blake2b(digest_size=16)
        self._encode = msgpack.Encoder().encode  # unambiguous for types and lengths

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows += 1
        self._hash.update(self._encode(row))

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Add rows while passing them on."""
        for row in rows:
            self.add(row)
            yield row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and (self.rows, self.digest) == (other.rows, other.digest)

    @property
    def digest(self) -> str:
        """Return the checksum as text."""
        return self._hash.hexdigest()
