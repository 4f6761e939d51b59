"""All rows of a SQLite file: read for another engine, or written as they come from one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bedrockjobs.store import schema
from bedrockjobs.store.bedrock_import import COUNTED_ID_MAX
from bedrockjobs.store.moved import MARK, MoveError, mark_of, take_mark
from bedrockjobs.store.tables import ENGINES_OWN, Row, Table
from bedrockjobs.store.whole_copy import Numbers

NOT_OURS = "{} is not a database of bedrockjobs"

CACHE_KIB = 65_536
"""Memory for pages of a file that is written at once: as the server has it."""


class SQLiteRows:
    """One file, within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Speak over a connection in autocommit mode."""
        self._db = connection

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, table: Table) -> Iterator[Row]:
        """Yield all rows in the order of their keys; raises MoveError for a text that is not UTF-8."""
        last: Row | None = None
        try:
            for last in self._db.execute(table.select()):
                yield last
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            where = f"the row behind {table.key_of(last)}" if last else f"the first row of {table.name}"
            raise MoveError(f"{where}: a text is not UTF-8, and nothing was moved. Mend it by hand") from None

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return int(self._db.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])  # noqa: S608

    def remembered(self) -> list[tuple[str, str]]:
        """Return what ``meta`` holds and the other engine keeps there too; raises MoveError for no text."""
        rows = self._db.execute("SELECT key, value FROM meta ORDER BY key").fetchall()
        found = [(key, value) for key, value in rows if key not in ENGINES_OWN and key != MARK]
        strange = [key for key, value in found if not isinstance(value, str)]
        if strange:
            raise MoveError(f"meta, key {strange[0]!r}: expected text, and nothing was moved")
        return found

    def numbers(self) -> Numbers:
        """Return the numbers that come next, behind all rows that there are."""
        stored = dict(self._db.execute("SELECT key, value FROM meta WHERE key IN ('nextJobID', 'nextRunID')"))
        ((job,),) = self._db.execute(
            "SELECT coalesce(max(jobID), 0) FROM jobs WHERE jobID < ?", (COUNTED_ID_MAX,)
        )
        ((run,),) = self._db.execute("SELECT coalesce(max(runID), 0) FROM runs")
        return Numbers(
            max(int(stored.get("nextJobID", 1)), job + 1), max(int(stored.get("nextRunID", 1)), run + 1)
        )

    # --- writing -----------------------------------------------------------------------------------------

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows."""
        marks = ", ".join("?" * len(table.columns))
        columns = ", ".join(table.columns)
        self._db.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", rows)  # noqa: S608

    def remember(self, rows: list[tuple[str, str]], numbers: Numbers) -> None:
        """Write ``meta`` anew."""
        self._db.execute("DELETE FROM meta")
        self._db.executemany(
            "INSERT INTO meta (key, value) VALUES (?, ?)",
            [*rows, ("nextJobID", numbers.job), ("nextRunID", numbers.run)],
        )


def open_source(path: Path) -> sqlite3.Connection:
    """Open a file that is to be moved; raises MoveError where it cannot be."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _refuse(_complaint(path, connection))
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse(complaint: str) -> None:
    if complaint:
        raise MoveError(complaint)


def _complaint(path: Path, connection: sqlite3.Connection) -> str:
    """Return why a file cannot be moved, and what to do; empty where it can be."""
    version = schema.version_of(connection)
    if version == 0:
        return NOT_OURS.format(path)
    if version < schema.VERSION:
        return (
            f"{path} has schema version {version}; `bedrockjobs migrate --database {path}` brings it to"
            f" {schema.VERSION}, and then it can be moved"
        )
    if version > schema.VERSION:
        return f"{path} has schema version {version}; this program knows {schema.VERSION}. Use a newer one"
    place = mark_of(connection)
    if place:
        return f"{path} was moved to {place}. `bedrockjobs move --undo --from {path}` takes that back"
    return ""


@contextmanager
def new_queue(draft: Path) -> Iterator[sqlite3.Connection]:
    """Context a file that is written at once: an empty queue first, in one transaction.

    If it fails the file is worth nothing: no journal is kept.
    """
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        schema.apply(connection)
        connection.execute("BEGIN IMMEDIATE")
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        yield connection
        for _, statement in indexes:  # rows are written twice as fast without, and these are denser
            connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        connection.close()


def undo_move(path: Path) -> str:
    """Let a file, which the caller owns, be served again; return where it was moved to, empty for nowhere.

    Raises MoveError for another file, sqlite3.Error.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if schema.version_of(connection) == 0:
            raise MoveError(NOT_OURS.format(path))
        place = mark_of(connection)
        take_mark(connection)
    return place
