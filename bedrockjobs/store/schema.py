"""Creates the schema of a new database file, migrates an older one and refuses a newer one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import msgpack

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import fingerprint_of
from bedrockjobs.base.jsontext import without_zeros
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.job.eligibility import HOLD_PATTERN, without_trigger
from bedrockjobs.job.rows import MEMORY_KEYS, DamagedJob, Job, PauseRow, checksum_of, decode_memory, job_from
from bedrockjobs.store.chunks import Chunk, PrintedLine, chunk_of
from bedrockjobs.store.statements import COLUMNS

VERSION = 13
"""The version of ``schema.sql``, stored in ``PRAGMA user_version``."""

REBUILT = {
    1: ("jobs", "meta"),
    2: ("jobs", "runs", "keys"),
    3: ("jobs", "runs", "keys"),
    4: ("jobs", "runs", "keys"),
    5: ("jobs", "runs", "keys"),
    6: (),
    7: (),
    8: (),
    9: (),
    10: (),
    11: (),
    12: (),
}
"""By old version, the tables that a migration rebuilds. Views, triggers and indexes are always recreated."""

_CREATES = re.compile(r"\s*CREATE (?:UNIQUE )?(TABLE|INDEX|TRIGGER|VIEW) (\w+)")


class SchemaError(RuntimeError):
    """The file is not a database that this server can use; the message is a sentence for the user."""


class Applied(NamedTuple):
    """The schema versions before and after ``apply``."""

    before: int
    after: int
    told: tuple[str, ...] = ()
    """Sentences for the user about the migration; empty if there was no migration."""


def schema_text() -> str:
    """Return ``schema.sql``: next to this module in a wheel, at the top of a checkout."""
    packaged = Path(__file__).with_name("schema.sql")
    return (packaged if packaged.exists() else Path(__file__).parents[2] / "schema.sql").read_text()


def apply(connection: sqlite3.Connection) -> Applied:
    """Create or migrate the schema in one transaction.

    The connection must be in autocommit mode. Raises SchemaError for a newer database and for a file with
    foreign tables.
    """
    found = version_of(connection)
    if found > VERSION:
        raise SchemaError(
            f"The database has schema version {found}; this server supports up to {VERSION}."
            " Use a newer server, or restore a backup from before the upgrade."
        )
    if found == VERSION:
        return Applied(found, VERSION)
    messages: tuple[str, ...] = ()
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if found == 0:
            _refuse_other_tables(connection)
            for statement in _statements():
                connection.execute(statement)
        else:
            messages = _migrate(connection, found)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself if the disk is full
            connection.execute("ROLLBACK")
        raise
    return Applied(found, VERSION, messages)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema version of a database, 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, found: int) -> tuple[str, ...]:
    """Rebuild tables and copy their rows, so that a migrated database equals a new one."""
    tables = REBUILT[found]
    lines = 1 < found < 5  # version 1 had no output; since version 5 it is in chunks
    made_by_us = (_CREATES.match(statement) for statement in _statements())
    ours = {made[2] for made in made_by_us if made and made[1] in ("VIEW", "TRIGGER")}
    for kind, name in connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL"
    ).fetchall():
        if kind == "index" or name in ours:  # keep views of others
            connection.execute(f"DROP {kind} {name}")
    connection.execute(
        "PRAGMA legacy_alter_table = ON"
    )  # otherwise views of others would refer to the old tables
    minutes = any(row[1] == "minute" for row in connection.execute("PRAGMA table_info(stats)"))  # before 10
    for table in (*tables, *(("output",) if lines else ()), *(("stats",) if minutes else ())):
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for statement in _statements():
        made = _CREATES.match(statement)
        if made is not None and (made[1] != "TABLE" or made[2] not in there):
            connection.execute(statement)
    copied = 0
    for table in tables:
        columns = ", ".join(f'"{row[1]}"' for row in connection.execute(f"PRAGMA table_info(old_{table})"))
        count = connection.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM old_{table}"  # noqa: S608 - names of ours
        ).rowcount
        copied += count if table == "jobs" else 0
        connection.execute(f"DROP TABLE old_{table}")
    if minutes:
        connection.execute(_COPY_STATS)
        connection.execute("DROP TABLE old_stats")
    what = f": {copied} jobs were copied" if "jobs" in tables else ""
    messages = [f"The database was migrated from schema version {found} to {VERSION}{what}."]
    if lines:
        connection.executemany(_ADD_CHUNK, _chunks(connection))
        connection.execute("DROP TABLE old_output")
    if found < 3:
        moved = _move_notes(connection)
        messages.append(
            f"The server's notes about {moved} of them moved from the column options to the column memory."
        )
    if found < 4:
        _add_checksums(connection)
        messages.append("The data of each got a checksum.")
    _add_fingerprints(connection)
    connection.execute(_COPY_PACED)
    connection.execute("DELETE FROM meta WHERE key LIKE 'paced %'")
    return tuple(messages)


_COPY_PACED = (
    "INSERT INTO paced SELECT '', substr(key, 7), CAST(value * 1000000 AS INTEGER) FROM meta"
    " WHERE key LIKE 'paced %'"
)
"""Moves the token buckets of versions before 13, which were in ``meta``, in seconds."""


_COPY_STATS = (
    "INSERT INTO stats SELECT '', 3600, substr(minute, 1, 13) || ':00:00', sum(created), sum(taken),"
    " sum(finished), sum(failed), sum(retried), sum(lost), ZEROS NULL"
    " FROM old_stats GROUP BY substr(minute, 1, 13)"
).replace("ZEROS", "0, " * 30)
"""Sums up the counters of versions before 10, which were by minute and for all names together, by hour."""

_ADD_CHUNK = (
    "INSERT INTO output (runID, firstSeq, lastSeq, at, codec, start, size, bytes)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def _chunks(connection: sqlite3.Connection) -> Iterator[Chunk]:
    """Yield the output lines of older versions in chunks."""
    rows = connection.execute("SELECT runID, seq, at, stream, line FROM old_output ORDER BY runID, seq")
    for run_id, lines in groupby(rows, itemgetter(0)):
        start = 0
        # Lines per chunk when migrating output of older versions.
        while some := list(islice(lines, 200)):
            printed = [PrintedLine(at, stream, without_zeros(text)) for _, _, at, stream, text in some]
            chunk = chunk_of(run_id, some[0][1], start, printed)
            start = chunk.end
            yield chunk


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Compute the checksums of all jobs; versions before 4 had none."""
    connection.create_function("checksum_of", 1, checksum_of, deterministic=True)
    connection.execute("UPDATE jobs SET checksum = checksum_of(data)")


def _add_fingerprints(connection: sqlite3.Connection) -> None:
    """Compute the fingerprints of failed jobs and runs; versions before 6 had none."""
    connection.create_function("fingerprint_of", 1, fingerprint_of, deterministic=True)
    connection.create_function("error_in", 1, error_in, deterministic=True)
    connection.execute(
        "UPDATE jobs SET fingerprint = fingerprint_of(error_in(memory)) WHERE state = 'FAILED'"
    )
    connection.execute(
        f"UPDATE runs SET fingerprint = fingerprint_of(error) WHERE status IN {FAILED_STATUSES}"  # noqa: S608
    )


def error_in(memory: str) -> str:
    """Return the error in the column ``memory`` of a job; empty if the column is invalid."""
    try:
        return decode_memory(memory).error or ""
    except (ValueError, TypeError):
        return ""


def _move_notes(connection: sqlite3.Connection) -> int:
    """Move the server's data from ``options`` of older versions to ``memory``; return the number of jobs."""
    rows = connection.execute("SELECT jobID, options FROM jobs WHERE options <> '{}'").fetchall()
    moved = 0
    for job_id, text in rows:
        options: dict[str, str] = {}
        noted: dict[str, str] = {}
        for key, value in jsontext.members(text).items():
            (noted if key in MEMORY_KEYS else options)[key] = value
        if "trigger" in noted:  # it was an object with the job's own nextRun, or null
            own = jsontext.members(noted["trigger"]).get("nextRun", "null")
            noted["trigger"] = own if own.startswith('"') else '""'
        if noted:
            moved += 1
            connection.execute(
                "UPDATE jobs SET options = ?, memory = ? WHERE jobID = ?",
                (jsontext.join(options), jsontext.join(noted), job_id),
            )
    return moved


@cache
def _statements() -> tuple[str, ...]:
    """Return the statements of ``schema.sql``; ``executescript`` would commit first."""
    found: list[str] = []
    statement = ""
    for line in schema_text().splitlines(keepends=True):
        if not statement and (line.startswith("--") or not line.strip()):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return tuple(found)


def _refuse_other_tables(connection: sqlite3.Connection) -> None:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if "jobs" in names:
        raise SchemaError(
            "The database already has a table jobs of another make, perhaps Bedrock's."
            " `bedrockjobs migrate --from-bedrock OLD.db` copies it into a new database."
        )
    if names:
        raise SchemaError(
            f"The database belongs to something else; it has the tables {', '.join(names[:5])}."
        )


# The tables of a queue on both engines, with columns, keys and row checksums.
#
# PostgreSQL may have further columns. ``meta`` is not included, since each engine has counters of its own
# there.


Row = tuple[Any, ...]

ENGINES_OWN = frozenset({"nextJobID", "nextRunID", "schemaVersion", "lockSalt"})
"""Keys of ``meta`` that belong to one engine and are not copied to the other."""


class TableDefinition(NamedTuple):
    """One table, as both engines have it."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[int, ...]
    """Indexes of the text columns."""
    blobs: tuple[int, ...]
    """Indexes of the binary columns; columns that are neither text nor binary are integers."""
    key: tuple[str, ...]
    """The columns of the primary key; text is ordered by its bytes."""

    def select(self) -> str:
        """Return a query for all rows in key order, for both engines."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {', '.join(self.key)}"  # noqa: S608

    def key_of(self, row: Row) -> str:
        """Return a readable key of a row: ``jobs, jobID 7``."""
        parts = (f"{column} {row[self.columns.index(column)]!r}" for column in self.key)
        return f"{self.name}, {', '.join(parts)}"


@cache
def tables() -> tuple[TableDefinition, ...]:
    """Return the tables of ``schema.sql``, in its order."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        apply(connection)
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'meta' ORDER BY rowid"
        ).fetchall()
        return tuple(_table(connection, name) for (name,) in names)


def _table(connection: sqlite3.Connection, name: str) -> TableDefinition:
    found = connection.execute(f"PRAGMA table_info({name})").fetchall()
    keyed = sorted((place, column) for _, column, _, _, _, place in found if place)
    return TableDefinition(
        name,
        tuple(column for _, column, *_ in found),
        tuple(at for at, (_, _, kind, *_) in enumerate(found) if kind == "TEXT"),
        tuple(at for at, (_, _, kind, *_) in enumerate(found) if kind == "BLOB"),
        tuple(column for _, column in keyed),
    )


class Sum:
    """The number and a checksum of the rows of one table, in order."""

    def __init__(self) -> None:
        self.rows = 0
        self._hash = blake2b(digest_size=16)
        self._encode = msgpack.Encoder().encode  # unambiguous for types and lengths

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows += 1
        self._hash.update(self._encode(row))

    def passing(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield ``rows`` unchanged, and add each row."""
        for row in rows:
            self.add(row)
            yield row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and (self.rows, self.digest) == (other.rows, other.digest)

    @property
    def digest(self) -> str:
        """Return the checksum as text."""
        return self._hash.hexdigest()


# Puts a queue in a file on hold, so that the next server starts no jobs after ``bedrockjobs restore --hold``.


TRIGGERED = (
    f"SELECT {COLUMNS} FROM jobs WHERE state = 'QUEUED' AND lane LIKE 'now%'"  # noqa: S608 - names of ours
    " OR state IN ('RUNNING', 'RUNQUEUED') AND memory LIKE '%\"pending\"%'"
)
"""A query for the triggered jobs, which may be taken despite a pause."""


def hold_row(by: str, reason: str, now: str) -> PauseRow:
    """Return the pause that keeps all jobs from being taken."""
    return PauseRow(HOLD_PATTERN, by, reason, now, "")


def without_triggers(rows: list[tuple[object, ...]]) -> list[Job]:
    """Return the jobs of rows of ``TRIGGERED`` with their trigger removed; damaged jobs are left out."""
    jobs = [job for row in rows if type(job := job_from(row)) is not DamagedJob]
    return [without_trigger(job) if job.state == "QUEUED" else job.noting(pending=False) for job in jobs]


def hold(connection: sqlite3.Connection, by: str, reason: str, now: str) -> None:
    """Put all jobs of a file on hold, in one transaction; the connection must be in autocommit mode."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT OR REPLACE INTO pauses (pattern, by, reason, since, until) VALUES (?, ?, ?, ?, ?)",
        hold_row(by, reason, now),
    )
    connection.execute(
        "INSERT INTO events (at, kind, name, by, detail) VALUES (?, 'held', '*', ?, ?)", (now, by, reason)
    )
    for job in without_triggers(connection.execute(TRIGGERED).fetchall()):
        connection.execute(
            "UPDATE jobs SET nextRun = ?, expires = ?, lane = ?, memory = ? WHERE jobID = ?",
            (job.next_run, job.expires, job.lane, job.memory_json, job.job_id),
        )
    connection.execute("COMMIT")


def held_file(path: Path) -> sqlite3.Connection:
    """Open a file in autocommit mode, for ``hold``."""
    return sqlite3.connect(path, isolation_level=None)
