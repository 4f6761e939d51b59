"""Copy whole queues: backups, restores, copies before a migration, and moves to another engine.

Each copy is written to a temporary file or within one transaction, then checked, and then put in place. If
anything fails before the copy is in place, source and target stay unchanged.
"""

from __future__ import annotations

import glob
import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from zlib import crc32

from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS, rest
from bedrockjobs.store import schema
from bedrockjobs.store.files import SIDE_FILES, DatabaseLock, lock_path
from bedrockjobs.store.schema import ENGINES_OWN, Row, Sum, TableDefinition, hold, tables
from bedrockjobs.store.statements import RECORDS

log = logging.getLogger(__name__)

PAGES_PER_STEP = 32
"""Number of pages copied between two syncs, 128 KiB: commits on the same disk wait for unsynced pages."""

ROWS_PER_REPORT = 1_000
"""Number of rows copied between two progress reports: a few milliseconds of work."""

MIGRATION_COPIES_KEPT = 2
"""Number of copies kept next to a database: of the previous schema version and of the one before it."""

COMPLAINTS_MAX = 20
"""Maximum number of invalid rows that are reported one by one; further invalid rows are only counted."""

COUNTED_ID_MAX = 2**48
"""Upper bound of the jobIDs that count up. Bedrock draws larger jobIDs at random, and the next jobID is not
derived from these."""

ZERO = "\0"
"""The only character that PostgreSQL cannot store in a text."""

REPLACED = "\ufffd"
"""Replacement for ``ZERO``, as a server on PostgreSQL replaces it."""

MOVED_TO = "movedTo"
"""Key in ``meta`` of a queue that was moved; no server starts on it. Its value is the new database."""

Progress = Callable[[int, int], None]
"""Called with the work done so far and the total work, both in pages or both in rows."""


class TransferError(RuntimeError):
    """The queue was not copied, restored or moved; the message is a sentence for the user."""


class BadName(TransferError):
    """A database name is invalid; the message says what was expected."""


class BadRows(TransferError):
    """Some rows cannot be moved unchanged."""

    def __init__(self, complaints: list[str], count: int) -> None:
        super().__init__(
            f"{count} rows cannot be moved as they are, and nothing was moved. --keep-damaged moves damaged"
            f" jobs too, --replace-zeros replaces NUL characters outside of jobs with {REPLACED}."
        )
        self.complaints = complaints
        self.count = count


# --- whole files -----------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """A finished copy: its size in bytes and its number of jobs."""

    size: int
    jobs: int


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a database read-only; raises TransferError if it does not exist."""
    if not path.is_file():
        raise TransferError(f"there is no database {path}")
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a database for writing; create it with mode 0600 if it does not exist."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return sqlite3.connect(path, isolation_level=None)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Create an empty file (mode 0600) next to ``target``; remove it at the end unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
    finally:
        for suffix in ("", *SIDE_FILES):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


@contextmanager
def atomic_file(target: Path, *, overwrite: bool, source: Path | None = None) -> Iterator[Path]:
    """Create a draft (mode 0600) that replaces ``target`` if the block succeeds.

    Raises TransferError if ``target`` cannot be replaced or is ``source``, OSError if it cannot be written.
    """
    _check_target(target, overwrite, source)
    with temporary_file(target) as draft:
        yield draft
        sync(draft)
        _check_target(target, overwrite, source)
        draft.replace(target)
        sync(target.parent)


def _check_target(target: Path, overwrite: bool, source: Path | None) -> None:
    if not target.parent.is_dir():
        raise TransferError(f"there is no folder {target.parent}")
    if target.exists():
        if not target.is_file():
            raise TransferError(f"{target} is not a file")
        if source is not None and source.exists() and target.samefile(source):
            raise TransferError(f"{target} is the database itself")
        if not overwrite:
            raise TransferError(f"{target} exists; --force replaces it")
    for suffix in SIDE_FILES:
        # SQLite would replay the log of another database into this copy.
        if Path(f"{target}{suffix}").exists():
            raise TransferError(f"{target}{suffix} exists: {target} is a database in use, or was not closed")


def copy_database(source: Path, target: Path, *, overwrite: bool, progress: Progress | None = None) -> Copy:
    """Copy a database, which may be in use, to ``target`` (mode 0600).

    Raises TransferError if the target cannot be replaced or the copy is damaged, sqlite3.Error and OSError
    if a file cannot be read or written.
    """
    with atomic_file(target, overwrite=overwrite, source=source) as draft:
        copy_snapshot(source, draft, progress)
        return check_copy(draft)


def copy_snapshot(source: Path, draft: Path, progress: Progress | None = None) -> None:
    """Copy one snapshot of a database into an empty file; raises TransferError for a foreign database."""

    def report(_: int, remaining: int, total: int) -> None:
        os.fdatasync(file.fileno())
        if progress is not None:
            progress(total - remaining, total)

    with (
        closing(open_read_only(source)) as live,
        closing(sqlite3.connect(draft)) as copy,
        draft.open() as file,
    ):
        for pragma in ("synchronous = OFF", "journal_mode = OFF"):  # an incomplete draft is removed
            copy.execute(f"PRAGMA {pragma}")
        # One snapshot for all steps: otherwise each commit of the server would restart the copy.
        live.execute("BEGIN")
        if schema.version_of(live) == 0:
            raise TransferError(f"{source} is not a database of bedrockjobs")
        live.backup(copy, pages=PAGES_PER_STEP, progress=report)
        live.execute("ROLLBACK")


def check_copy(draft: Path) -> Copy:
    """Check the integrity of a copy and its indexes; raises TransferError if it is damaged."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.set_progress_handler(rest, STEPS_BETWEEN_RESTS)
        faults = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(5)")]
        if faults != ["ok"]:
            raise TransferError(f"the copy is damaged: {'; '.join(faults)}")
        jobs = int(copy.execute("SELECT count(*) FROM jobs").fetchone()[0])
    return Copy(draft.stat().st_size, jobs)


# --- the copy before a migration -------------------------------------------------------------------------


def copy_before_migration(path: Path, now: datetime, progress: Progress | None = None) -> Path | None:
    """Copy a database whose schema is about to change, so that an older server can use the copy.

    Return the path of the copy, or None if the schema is current. The caller holds the ``DatabaseLock``.
    Raises TransferError if the copy fails, sqlite3.Error if the file cannot be read.
    """
    version = older_version(path)
    if version is None:
        return None
    copy = path.with_name(f"{path.name}.schema-{version}-{now:%Y%m%dT%H%M%SZ}")
    try:
        copy_database(path, copy, overwrite=True, progress=progress)
    except (TransferError, OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TransferError(
            f"{path} could not be copied before its migration: {why}; the schema was not changed; make room,"
            " or take a copy yourself and use --no-migration-backup"
        ) from error
    for old in migration_copies(path)[:-MIGRATION_COPIES_KEPT]:
        try:
            old.unlink()
        except OSError as error:
            log.warning("the old copy %s could not be removed: %s", old, error)
    return copy


def older_version(path: Path) -> int | None:
    """Return the schema version of a database that needs a migration, or None if it needs none.

    Raises sqlite3.Error if the file cannot be read.
    """
    if not path.is_file() or not path.stat().st_size:
        return None
    with closing(open_read_only(path)) as connection:
        version = schema.version_of(connection)
    return version if 0 < version < schema.VERSION else None


def migration_copies(path: Path) -> list[Path]:
    """Return the copies made before migrations of a database, oldest first."""
    found = path.parent.glob(f"{glob.escape(path.name)}.schema-[0-9]*-[0-9]*T[0-9]*Z")
    return sorted(found, key=lambda copy: copy.name.rpartition("-")[2])


# --- rows ------------------------------------------------------------------------------------------------


class NextIDs(NamedTuple):
    """The next jobID and the next runID."""

    job: int
    run: int


class Source(Protocol):
    """All rows of one queue, read in one transaction."""

    def rows_of(self, table: TableDefinition) -> Iterator[Row]:
        """Yield the rows of a table in key order."""

    def count(self, table: TableDefinition) -> int:
        """Return the number of rows of a table."""

    def meta(self) -> list[tuple[str, str]]:
        """Return the rows of ``meta`` that both engines have, in key order."""

    def numbers(self) -> NextIDs:
        """Return the next jobID and runID, which are above all existing jobIDs and runIDs."""


class Target(Source, Protocol):
    """An empty queue, written in one transaction."""

    def write(self, table: TableDefinition, rows: Iterable[Row]) -> None:
        """Insert rows into an empty table."""

    def finish(self, meta: list[tuple[str, str]], numbers: NextIDs) -> None:
        """Write ``meta``, the next jobID and runID, and everything derived from the rows."""


class MoveOptions(NamedTuple):
    """Which invalid rows are moved nevertheless."""

    keep_damaged: bool = False
    """Whether to move jobs whose data does not match its checksum; such a job fails when it is taken."""
    replace_zeros: bool = False
    """Whether to replace NUL characters outside of jobs, where they are most likely output."""


class Moved(NamedTuple):
    """Number of rows that were moved."""

    jobs: int
    runs: int
    rows: int


def copy_rows(
    source: Source, target: Target, options: MoveOptions, progress: Progress | None = None
) -> Moved:
    """Copy all rows from one engine to another, read them again and compare.

    Raises BadRows for invalid rows, TransferError if the rows that were read again differ.
    """
    done = 0
    total = 2 * sum(source.count(table) for table in tables()) if progress is not None else 0

    def measured(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal done
        for row in rows:
            yield row
            done += 1
            if progress is not None and (done % ROWS_PER_REPORT == 0 or done == total):
                progress(done, total)

    validator = _RowValidator(options)
    sums: dict[str, Sum] = {}
    for table in tables():
        sent = sums[table.name] = Sum()
        target.write(table, sent.passing(validator.valid(table, measured(source.rows_of(table)))))
    validator.finish()
    meta, numbers = source.meta(), source.numbers()
    target.finish(meta, numbers)
    for table in tables():
        sent, found = sums[table.name], Sum()
        for row in measured(target.rows_of(table)):
            found.add(row)
        if found != sent:
            raise TransferError(
                f"{table.name}: the rows that arrived differ from those that were sent ({found.rows} rows of"
                f" {sent.rows}, sum {found.digest} for {sent.digest}); nothing was moved"
            )
    if (target.meta(), target.numbers()) != (meta, numbers):
        raise TransferError("meta: the rows that arrived differ from those that were sent; nothing was moved")
    return Moved(sums["jobs"].rows, sums["runs"].rows, sum(each.rows for each in sums.values()))


class _RowValidator:
    """Passes on valid rows and collects complaints about invalid rows."""

    def __init__(self, options: MoveOptions) -> None:
        self._options = options
        self._complaints: list[str] = []
        self._count = 0

    def valid(self, table: TableDefinition, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the valid rows, with NUL characters replaced if that is wanted."""
        is_jobs = table.name == "jobs"
        texts = table.texts
        damaged = _damage_check(table) if is_jobs and not self._options.keep_damaged else None
        for row in rows:
            if damaged is not None and damaged(row):
                self._complain(table, row, "the data does not match its checksum")
            elif ZERO not in "".join([row[at] for at in texts]):
                yield row
            elif is_jobs or not self._options.replace_zeros:
                column = next(table.columns[at] for at in texts if ZERO in row[at])
                self._complain(table, row, f"{column} contains a NUL character")
            else:
                yield tuple(
                    value.replace(ZERO, REPLACED) if isinstance(value, str) else value for value in row
                )

    def _complain(self, table: TableDefinition, row: Row, complaint: str) -> None:
        self._count += 1
        if len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.append(f"{table.key_of(row)}: {complaint}")

    def finish(self) -> None:
        """Raise BadRows if any row was invalid."""
        if self._count:
            raise BadRows(self._complaints, self._count)


def _damage_check(table: TableDefinition) -> Callable[[Row], bool]:
    """Return a predicate: whether the data of a row of ``jobs`` does not match its checksum."""
    data, checksum = table.columns.index("data"), table.columns.index("checksum")
    return lambda row: row[checksum] is not None and crc32(row[data].encode()) != row[checksum]


# --- the rows of a SQLite file ---------------------------------------------------------------------------

_HIGHEST = {
    "nextJobID": f"SELECT coalesce(max(jobID), 0) FROM jobs WHERE jobID < {COUNTED_ID_MAX}",  # noqa: S608
    "nextRunID": "SELECT coalesce(max(runID), 0) FROM runs",
}
"""By counter in ``meta``, a query for the highest ID in use."""


class SQLiteRows:
    """A SQLite file as Source and Target."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use a connection in autocommit mode."""
        self._db = connection

    def rows_of(self, table: TableDefinition) -> Iterator[Row]:
        """Yield all rows in key order; raises TransferError for a text that is not UTF-8."""
        last: Row | None = None
        try:
            for last in self._db.execute(table.select()):
                yield last
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            where = f"the row after {table.key_of(last)}" if last else f"the first row of {table.name}"
            raise TransferError(
                f"{where}: a text is not UTF-8, and nothing was moved. Correct it by hand"
            ) from None

    def count(self, table: TableDefinition) -> int:
        """Return the number of rows of a table."""
        return int(self._db.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])  # noqa: S608

    def meta(self) -> list[tuple[str, str]]:
        """Return the rows of ``meta`` that both engines have; raises TransferError if one is not text."""
        rows = self._db.execute("SELECT key, value FROM meta ORDER BY key").fetchall()
        found = [(key, value) for key, value in rows if key not in ENGINES_OWN and key != MOVED_TO]
        for key, value in found:
            if not isinstance(value, str):
                raise TransferError(f"meta, key {key!r}: expected text, and nothing was moved")
        return found

    def next_number(self, key: str) -> int:
        """Return the next ID of a counter in ``meta``: the stored one, but above the IDs of all rows."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return max(int(row[0]) if row else 1, int(self._db.execute(_HIGHEST[key]).fetchone()[0]) + 1)

    def numbers(self) -> NextIDs:
        """Return the next jobID and runID."""
        return NextIDs(self.next_number("nextJobID"), self.next_number("nextRunID"))

    def write(self, table: TableDefinition, rows: Iterable[Row]) -> None:
        """Insert rows into an empty table."""
        marks = ", ".join("?" * len(table.columns))
        columns = ", ".join(table.columns)
        self._db.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", rows)  # noqa: S608

    def finish(self, meta: list[tuple[str, str]], numbers: NextIDs) -> None:
        """Replace all rows of ``meta``."""
        self._db.execute("DELETE FROM meta")
        self._db.executemany(
            "INSERT INTO meta (key, value) VALUES (?, ?)",
            [*meta, ("nextJobID", numbers.job), ("nextRunID", numbers.run)],
        )


@contextmanager
def new_queue(draft: Path, attached: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Create an empty queue in a file and open a transaction that fills it; indexes are built at the end.

    ``attached`` is a database to copy from, visible as ``backup``. No journal is kept, so the file cannot be
    used after a failure.
    """
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        # Page cache for writing a whole file: the same as the server's.
        connection.execute("PRAGMA cache_size = -65536")
        schema.apply(connection)
        if attached is not None:
            connection.execute("ATTACH ? AS backup", (f"{attached}",))
        connection.execute("BEGIN IMMEDIATE")
        indexes = connection.execute(
            "SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX main.{name}")
        yield connection
        for _, statement in indexes:  # this halves the time, and the indexes are denser
            connection.execute(statement)
        connection.execute("COMMIT")


# --- moves -----------------------------------------------------------------------------------------------


def moved_refusal(place: str) -> str:
    """Return why a queue that was moved to ``place`` is not served, and what to do."""
    return (
        f"The queue was moved to {place}; serve it there. If the move did not finish or is to be reverted,"
        " `bedrockjobs move --undo` allows servers on this one again."
    )


def moved_to(connection: sqlite3.Connection) -> str:
    """Return where the queue in a SQLite file was moved to, or an empty string."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (MOVED_TO,)).fetchone()
    return str(found[0]) if found else ""


def _refuse_moved(connection: sqlite3.Connection) -> None:
    if place := moved_to(connection):
        raise TransferError(moved_refusal(place))


def mark_moved(connection: sqlite3.Connection, place: str) -> None:
    """Mark the queue in a SQLite file as moved to ``place``, in the open transaction."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (MOVED_TO, place))


def unmark_moved(connection: sqlite3.Connection) -> None:
    """Remove the mark of a moved queue."""
    connection.execute("DELETE FROM meta WHERE key = ?", (MOVED_TO,))


def open_source(path: Path) -> sqlite3.Connection:
    """Open a file that is to be moved; raises TransferError if it cannot be."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _check_movable(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_movable(path: Path, connection: sqlite3.Connection) -> None:
    version = schema.version_of(connection)
    if version == 0:
        raise TransferError(f"{path} is not a database of bedrockjobs")
    if version < schema.VERSION:
        raise TransferError(
            f"{path} has schema version {version}; `bedrockjobs migrate --database {path}` brings it to"
            f" {schema.VERSION}, and then it can be moved"
        )
    if version > schema.VERSION:
        raise TransferError(
            f"{path} has schema version {version}; this program supports {schema.VERSION}. Use a newer one"
        )
    if place := moved_to(connection):
        raise TransferError(
            f"{path} was moved to {place}. `bedrockjobs move --undo --from {path}` reverts that"
        )


def undo_move(path: Path) -> str:
    """Allow servers on a moved file again; return where it was moved to, or an empty string.

    The caller holds the ``DatabaseLock``. Raises TransferError if the file is not a database of bedrockjobs,
    sqlite3.Error.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if schema.version_of(connection) == 0:
            raise TransferError(f"{path} is not a database of bedrockjobs")
        place = moved_to(connection)
        unmark_moved(connection)
    return place


# --- restore ---------------------------------------------------------------------------------------------


class Hold(NamedTuple):
    """Who puts the restored queue on hold, and why."""

    by: str
    reason: str


class Restored(NamedTuple):
    """The content of the restored database, and where the previous one is."""

    states: dict[str, int]
    """Number of jobs by state."""
    schedules: int
    """Number of jobs with a repeat."""
    seen: str
    """Last heartbeat of the server of the backup; empty if there was none."""
    told: tuple[str, ...]
    """Sentences about the migration of the backup."""
    aside: Path | None
    """The previous database, or None if there was none."""


def restore(
    backup: Path, target: Path, *, held: Hold | None, force: bool, now: str, progress: Progress | None = None
) -> Restored:
    """Replace the database ``target`` with ``backup``, and put it on hold unless ``held`` is None.

    The new database is prepared next to the old one. Then the old database and its log are renamed, and one
    rename puts the new database in place. After a crash between these renames no server starts, because the
    lock file names the restore as last owner. ``now`` is a timestamp.

    Raises TransferError if the backup is damaged or not a database of bedrockjobs, or if ``target`` exists
    and ``force`` is False; Owned if ``target`` is in use; OSError, sqlite3.Error.
    """
    target = target.resolve()
    if not backup.is_file():
        raise TransferError(f"there is no backup {backup}")
    if not target.parent.is_dir():
        raise TransferError(f"there is no folder {target.parent}")
    if target.exists() and target.samefile(backup):
        raise TransferError(f"{backup} is the database itself")
    with _owned(target) as exists:
        if exists and not force:
            raise TransferError(f"{target} exists; --force renames it and restores the backup in its place")
        with temporary_file(target) as copy, temporary_file(target) as draft:
            told = _copy_backup(backup, copy, draft, progress)
            restored = _prepare(draft, target if exists else None, held, now)
            aside = _put_aside(target, now) if exists else None
            for suffix in SIDE_FILES:  # left by another database, they would corrupt this one
                Path(f"{target}{suffix}").unlink(missing_ok=True)
            draft.replace(target)
            sync(target.parent)
    return restored._replace(told=told, aside=aside)


@contextmanager
def _owned(target: Path) -> Iterator[bool]:
    """Lock a path, so that no server may use it; yield whether a database exists there."""
    exists = target.exists() and target.stat().st_size > 0
    had_lock_file = lock_path(target).exists()
    lock = DatabaseLock(target, replaces=True)
    lock.acquire()
    try:
        lock.describe(f"bedrockjobs restore with pid {os.getpid()}")
        yield exists
    finally:
        if not exists and target.exists() and not target.stat().st_size:
            target.unlink()  # created by the lock
            if not had_lock_file:
                lock_path(target).unlink(missing_ok=True)
        lock.release()
        _give_to_owner(lock_path(target), target.parent)


def _copy_backup(backup: Path, copy: Path, draft: Path, progress: Progress | None) -> tuple[str, ...]:
    """Copy the rows of a backup into ``draft``, a new database; return sentences about its migration.

    The backup may contain foreign triggers, views and indexes. They are dropped before anything is written,
    and the new database has only the objects of this schema. ``copy`` is a temporary file for the backup.
    """
    try:
        copy_snapshot(backup, copy, progress)
        check_copy(copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as foreign:
            foreign.execute("PRAGMA trusted_schema = OFF")
            objects = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
            for kind, name in foreign.execute(objects).fetchall():
                quoted = name.replace('"', '""')
                foreign.execute(f'DROP {kind} IF EXISTS "{quoted}"')
            told = schema.apply(foreign).told
            _refuse_moved(foreign)
        # Copied by SQLite: a restore also keeps texts that Python could not decode.
        with new_queue(draft, attached=copy) as connection:
            connection.execute("DELETE FROM main.meta")
            for table, columns in [
                ("meta", ("key", "value")),
                *((one.name, one.columns) for one in tables()),
            ]:
                listed = ", ".join(f'"{column}"' for column in columns)
                connection.execute(
                    f"INSERT INTO main.{table} ({listed}) SELECT {listed} FROM backup.{table}"  # noqa: S608
                )
    except (TransferError, schema.SchemaError) as error:
        reason = str(error).rstrip(".")
        named = reason if reason.startswith(str(backup)) else f"{backup}: {reason}"
        raise TransferError(f"{named}; nothing was changed") from None
    except sqlite3.Error as error:
        raise TransferError(f"{backup} cannot be restored: {error}; nothing was changed") from None
    return told


def _prepare(draft: Path, old: Path | None, held: Hold | None, now: str) -> Restored:
    """Take over IDs and tokens of ``old``, put the draft on hold if ``held``, check it and flush it."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("DELETE FROM logins")  # sessions that were logged out since must stay so
        if old is not None:
            _continue_numbers(connection, old)
            _keep_tokens(connection, old)
        if held is not None:
            hold(connection, held.by, held.reason, now)
        states = dict(connection.execute("SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state"))
        (schedules,) = connection.execute("SELECT count(*) FROM jobs WHERE repeat <> ''").fetchone()
        seen = connection.execute("SELECT value FROM meta WHERE key = 'seen'").fetchone()
    check_copy(draft)
    _give_to_owner(draft, old or draft.parent)
    sync(draft)
    return Restored(states, schedules, str(seen[0]) if seen else "", (), None)


def _continue_numbers(connection: sqlite3.Connection, old: Path) -> None:
    """Raise the counters above those of the replaced database, if it can be read."""
    with suppress(sqlite3.Error), closing(open_read_only(old)) as before:
        for key in _HIGHEST:
            number = SQLiteRows(before).next_number(key)
            connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = ?", (number, key))


def _keep_tokens(connection: sqlite3.Connection, old: Path) -> None:
    """Take over the tokens of the replaced database, so that tokens revoked since the backup stay revoked.

    If the replaced database has no tokens or cannot be read, the tokens of the backup are kept.
    """
    tokens = []
    with suppress(sqlite3.Error), closing(open_read_only(old)) as before:
        tokens = before.execute(RECORDS["all_tokens"]).fetchall()
    if tokens:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM tokens")
        connection.executemany(RECORDS["put_token"], tokens)
        connection.execute("COMMIT")


def _put_aside(target: Path, now: str) -> Path:
    """Rename the old database and its log; the database also keeps its old name until it is replaced."""
    digits = "".join(character for character in now[:19] if character.isdigit())
    aside = target.with_name(f"{target.name}.before-restore-{digits}")
    number = 1
    while aside.exists():
        number += 1
        aside = target.with_name(f"{target.name}.before-restore-{digits}-{number}")
    for suffix in SIDE_FILES:
        file = Path(f"{target}{suffix}")
        if file.exists():
            file.replace(f"{aside}{suffix}")
    try:
        aside.hardlink_to(target)
    except OSError:  # a file system without links
        target.replace(aside)
    sync(target.parent)
    return aside


def _give_to_owner(file: Path, like: Path) -> None:
    """As root, give a file the owner of ``like``, so that the server's user can open it."""
    if os.geteuid() == 0 and file.exists():
        found = like.stat()
        os.chown(file, found.st_uid, found.st_gid)
