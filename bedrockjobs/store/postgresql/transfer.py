"""Bulk transfer on PostgreSQL: moves to and from SQLite, backups, and the hold after a restore.

A move copies everything in one transaction and compares it before the commit. The source is marked as moved
before servers can use the target, so no failure lets two servers continue with the same jobs.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.eligibility import HOLD_PATTERN
from bedrockjobs.store.base import StoreAway, StoreConflict, StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.engine import SCHEMA
from bedrockjobs.store.postgresql.locks import SALT
from bedrockjobs.store.postgresql.session import DatabaseSession, SessionRequirements, fault_of
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.schema import (
    ENGINES_OWN,
    TRIGGERED,
    Row,
    TableDefinition,
    hold_row,
    tables,
    without_triggers,
)
from bedrockjobs.store.transfer import (
    COUNTED_ID_MAX,
    MOVED_TO,
    BadName,
    Copy,
    Moved,
    MoveOptions,
    NextIDs,
    Progress,
    SQLiteRows,
    TransferError,
    atomic_file,
    check_copy,
    copy_rows,
    mark_moved,
    moved_refusal,
    new_queue,
    open_source,
    unmark_moved,
)

INDEXES = (
    "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
    " JOIN pg_class ON pg_class.oid = indrelid"
    " WHERE relnamespace = current_schema()::regnamespace AND NOT indisprimary AND NOT indisunique"
)
"""A query for the indexes that enforce no constraint, with the statements that create them."""

PARENTAL = (
    "UPDATE jobs SET parental = true WHERE jobID IN (SELECT parentJobID FROM jobs WHERE parentJobID <> 0)"
)
"""A statement that marks the jobs that have children."""

PARAMETERS = {
    "search_path": "{}",
    "idle_in_transaction_session_timeout": "0",  # writing a large job elsewhere may take long
    "statement_timeout": "0",
    "enable_seqscan": "off",
    "enable_sort": "off",  # rows are read in index order
    "maintenance_work_mem": "128MB",  # all indexes are created at the end
}
"""PostgreSQL parameters of a bulk transaction; each transaction sets them, since a pooler keeps none."""


NO_URL = (
    "the URL is not one of PostgreSQL: expected postgresql://user:password@host:port/database, with %2F for a"
    " slash in the password, %40 for @, and so on for other marks"
)


def place_of(url: str) -> str:
    """Return the URL of a database without its password; raises BadName for an invalid URL.

    libpq's error is not shown, as it may contain a part of the password.
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise BadName(NO_URL) from None
    user, hosts, ports, name = (str(parameters.get(key, "")) for key in ("user", "host", "port", "dbname"))
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    if "@" in path or not re.fullmatch("[0-9,]*", ports):  # it was split inside the password
        raise BadName(NO_URL)
    at = [f"[{host}]" if ":" in host else host.replace("/", "%2F") for host in hosts.split(",")]
    each_port = ports.split(",") if "," in ports else [ports] * len(at)
    where = (f"{host}:{port}" if port else host for host, port in zip(at, each_port, strict=False))
    return f"postgresql://{user}{'@' if user else ''}{','.join(where)}/{name}"


class BulkSession(DatabaseSession):
    """A connection that reads or writes all rows of one queue in one transaction."""

    def __init__(self, url: str, schema: str) -> None:
        """Connect to ``url``, using the tables in ``schema``; raises StoreError."""
        super().__init__(url, schema, SessionRequirements(answer_s=0))  # without timeout
        self._indexes: list[str] = []
        """Statements that create the dropped indexes."""

    @contextmanager
    def transaction(self, level: str) -> Iterator[None]:
        """Begin a transaction of an isolation level; at the end, roll it back unless it was committed."""
        try:
            self.script(f"BEGIN ISOLATION LEVEL {level}")
            for name, value in PARAMETERS.items():
                self.script(f"SET LOCAL {name} = '{value.format(self._schema)}'")
            yield
        finally:
            if self.is_open and self.in_transaction:
                with suppress(StoreError):  # a lost connection has rolled back
                    self.script("ROLLBACK")

    def value(self, sql: str, *parameters: object) -> Any:
        """Return the only value of a query; raises StoreError."""
        return self.run_statements([(sql, parameters)])[0][0][0]

    # --- Source and Target of store.transfer ---------------------------------------------------------------

    def rows_of(self, table: TableDefinition) -> Iterator[Row]:
        """Yield the rows of a table in key order; raises StoreError."""
        with (
            self._faults(),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY ({table.select()}) TO STDOUT (FORMAT BINARY)") as copy,
        ):
            copy.set_types(_types(table))
            yield from copy.rows()

    def write(self, table: TableDefinition, rows: Iterable[Row]) -> None:
        """Insert rows into an empty table; raises StoreError."""
        target = f"{table.name} ({', '.join(table.columns)})"
        with (
            self._faults(),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {target} FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(_types(table))
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not self.is_open:
                raise StoreAway(str(error).strip()) from error
            raise fault_of(error) or error from error

    def put_indexes_off(self) -> None:
        """Drop indexes that enforce no constraint until ``finish``, to write rows twice as fast."""
        indexes = self.run_statements([(INDEXES, ())])[0]
        for name, definition in indexes:
            self.script(f"DROP INDEX {name}")
            self._indexes.append(definition)

    def count(self, table: TableDefinition) -> int:
        """Return the number of rows of a table."""
        return int(self.value(f"SELECT count(*) FROM {table.name}"))  # noqa: S608 - a name of ours

    def meta(self) -> list[tuple[str, str]]:
        """Return the rows of ``meta`` that both engines have, in key order."""
        (rows,) = self.run_statements([("SELECT key, value FROM meta ORDER BY key", ())])
        return [(key, value) for key, value in rows if key not in ENGINES_OWN and key != MOVED_TO]

    def numbers(self) -> NextIDs:
        """Return the next jobID and runID, which are above all existing jobIDs and runIDs."""
        behind_jobs = self.value(
            "SELECT coalesce(max(jobID), 0) + 1 FROM jobs WHERE jobID < $1::bigint", COUNTED_ID_MAX
        )
        behind_runs = self.value("SELECT coalesce(max(runID), 0) + 1 FROM runs")
        job, run = (
            int(self.value(f"SELECT last_value + is_called::int FROM {name}"))  # noqa: S608 - a name of ours
            for name in ("jobIDs", "runIDs")
        )
        return NextIDs(max(job, int(behind_jobs)), max(run, int(behind_runs)))

    def finish(self, meta: list[tuple[str, str]], numbers: NextIDs) -> None:
        """Write ``meta``, the next IDs and the columns derived from others; create the dropped indexes."""
        event, change = (
            int(self.value(f"SELECT coalesce(max(seq), 0) + 1 FROM {table}"))  # noqa: S608 - names of ours
            for table in ("events", "audit")
        )
        patterns = self.run_statements([("SELECT pattern FROM pauses", ())])[0]
        self.run_statements(
            [
                ("DELETE FROM meta WHERE key <> ALL ($1::text[])", (["schemaVersion", SALT],)),
                *((SQL["set_meta"], row) for row in meta),
                # unlike setval(), these roll back with the transaction
                (f"ALTER SEQUENCE jobIDs RESTART WITH {numbers.job:d}", ()),
                (f"ALTER SEQUENCE runIDs RESTART WITH {numbers.run:d}", ()),
                (f"ALTER TABLE events ALTER COLUMN seq RESTART WITH {event:d}", ()),
                (f"ALTER TABLE audit ALTER COLUMN seq RESTART WITH {change:d}", ()),
                *((SQL["pause_regex"], (pattern, anchored_regex([pattern]))) for (pattern,) in patterns),
                (PARENTAL, ()),
                *((definition, ()) for definition in self._indexes),
                (SQL["raise_epoch"], ()),
                *((f"ANALYZE {table.name}", ()) for table in tables()),
            ]
        )


def _types(table: TableDefinition) -> list[str]:
    kinds = dict.fromkeys(table.texts, "text") | dict.fromkeys(table.blobs, "bytea")
    return [kinds.get(at, "int8") for at in range(len(table.columns))]


# Moves between a SQLite file and PostgreSQL, and backups of a queue while its servers run.


LIVING = (
    "SELECT name FROM servers WHERE pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'"
    " - $1::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name"
)
"""A query for the names of live servers."""


class Undecided(TransferError):
    """The outcome of a commit is unknown; the source stays marked as moved."""


class TransferDatabase(NamedTuple):
    """A queue on PostgreSQL: the URL of its database, and its schema."""

    url: str
    schema: str = SCHEMA

    @property
    def place(self) -> str:
        """Return the URL without the password; raises BadName for an invalid URL."""
        return place_of(self.url) + ("" if self.schema == SCHEMA else f", schema {self.schema}")

    def open(self) -> BulkSession:
        """Connect; raises BadName for an invalid URL, StoreError, SchemaError for an unsuitable database."""
        place_of(self.url)
        try:
            schema.check_name(self.schema)
        except ValueError as error:
            raise BadName(str(error)) from None
        session = BulkSession(self.url, self.schema)
        try:
            schema.check_database(session)
        except BaseException:
            session.close()
            raise
        return session


def to_postgresql(
    source: Path, target: TransferDatabase, options: MoveOptions, progress: Progress | None = None
) -> Moved:
    """Move a file, whose ``DatabaseLock`` the caller holds, into a database without jobs.

    Raises TransferError, SchemaError, StoreError, sqlite3.Error or OSError. File and database are then
    unchanged, except after Undecided.
    """
    with closing(open_source(source)) as connection, closing(target.open()) as session:
        connection.execute("BEGIN IMMEDIATE")  # blocks changes by hand
        with session.transaction("READ COMMITTED"):
            schema.ensure(session, target.schema)
            schema.check_tables(session)
            own_queue(session, target)
            _refuse_nonempty(session, target)
            session.put_indexes_off()
            moved = copy_rows(SQLiteRows(connection), session, options, progress)
            with _marked(connection, target.place):
                _commit(session, source, target, moved)
    return moved


@contextmanager
def _marked(connection: sqlite3.Connection, place: str) -> Iterator[None]:
    """Mark the file as moved before the target is committed; remove the mark if the commit fails."""
    mark_moved(connection, place)
    connection.execute("COMMIT")
    try:
        yield
    except Undecided:
        raise
    except BaseException:
        unmark_moved(connection)
        raise


def _commit(session: BulkSession, source: Path, target: TransferDatabase, moved: Moved) -> None:
    """Commit the copy; raises StoreError if it failed, Undecided if the outcome cannot be determined."""
    try:
        session.commit([("COMMIT", ())])
    except StoreAway as error:
        try:
            arrived = _arrived(session, target, moved)
        except StoreError as second:
            raise Undecided(
                f"The connection broke at the commit ({error}), and the database cannot be asked whether it"
                f" was done ({second}). Check if the jobs are at {target.place}: if so, serve them there;"
                f" if not, `bedrockjobs move --undo --from {source}` lets the old server start again"
            ) from error
        if not arrived:
            raise


def _arrived(session: BulkSession, target: TransferDatabase, moved: Moved) -> bool:
    """Return whether the copied queue was committed; waits for a commit that is still in progress."""
    session.connect_again()
    with session.transaction("READ COMMITTED"):
        session.run_statements(
            [(SQL["lock_alone"], (schema.keys_of(session, target.schema).key_of("schema"),))]
        )
        if not schema.exists(session):
            return False
        return moved.rows == 0 or any(session.value(_ANY.format(table.name)) for table in tables())


_ANY = "SELECT EXISTS (SELECT 1 FROM {})"


def to_sqlite(
    source: TransferDatabase, target: Path, options: MoveOptions, progress: Progress | None = None
) -> Moved:
    """Move a queue whose servers are all stopped into a new file; raises as ``to_postgresql`` does."""
    if target.exists():
        raise TransferError(f"{target} exists; a queue is moved into a new file")
    with closing(source.open()) as session:
        committing = False
        try:
            with atomic_file(target, overwrite=False) as draft, session.transaction("READ COMMITTED"):
                refuse_none(session, source)
                own_queue(session, source)
                _refuse_moved(schema.check_tables(session), source)
                moved = _write_file(session, draft, options, progress)
                check_copy(draft)
                mark = (SQL["set_meta"], (MOVED_TO, str(target.resolve())))
                session.run_statements([mark, (SQL["raise_epoch"], ())])
                committing = True
                session.commit([("COMMIT", ())])
        except BaseException as error:
            if committing:
                _unmark(session, source, error)
            raise
    return moved


def _unmark(session: BulkSession, source: TransferDatabase, error: BaseException) -> None:
    """Remove the mark of a moved queue, which may not have been committed; raises Undecided."""
    try:
        if not session.is_open:
            session.connect_again()
        with session.transaction("READ COMMITTED"):
            session.script(_UNMARK)
            session.commit([("COMMIT", ())])
    except StoreError as second:
        raise Undecided(
            f"{error}; then {second}. No file was made. The queue at {source.place} may be marked as moved:"
            " `bedrockjobs move --undo` reverts that"
        ) from error


_UNMARK = f"DELETE FROM meta WHERE key = '{MOVED_TO}'"  # noqa: S608 - a constant


def copy_to_file(
    source: TransferDatabase, target: Path, *, overwrite: bool, progress: Progress | None
) -> Copy:
    """Back up a snapshot of a queue to ``target`` while servers run; raises as ``to_sqlite`` does.

    Damaged jobs are copied with their damage.
    """
    with closing(source.open()) as session:
        level = "REPEATABLE READ, READ ONLY"
        with atomic_file(target, overwrite=overwrite) as draft, session.transaction(level):
            refuse_none(session, source)
            schema.check_tables(session)
            _write_file(session, draft, MoveOptions(keep_damaged=True), progress)
            return check_copy(draft)


def _write_file(session: BulkSession, draft: Path, options: MoveOptions, progress: Progress | None) -> Moved:
    try:
        with new_queue(draft) as connection:
            return copy_rows(session, SQLiteRows(connection), options, progress)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise TransferError(
                f"the disk of {draft.parent} or that of temporary files is full; nothing was done"
            ) from None
        raise


# --- checks ----------------------------------------------------------------------------------------------


def own_queue(session: BulkSession, database: TransferDatabase) -> None:
    """Block writers until the transaction ends; raises TransferError if a server uses the queue."""
    names = [*(table.name for table in tables()), "meta", "control", "servers"]
    try:
        session.run_statements([(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE", ())])
    except StoreConflict:
        raise TransferError(f"the queue at {database.place} is in use. Stop all its servers first") from None
    if not session.value(SQL["try_lock"], schema.keys_of(session, database.schema).key_of("control")):
        raise TransferError(f"a server uses the queue at {database.place}. Stop all its servers first")
    living = [name for (name,) in session.run_statements([(LIVING, (SERVER_GONE_S,))])[0]]
    if living:
        raise TransferError(
            f"servers use the queue at {database.place}: {', '.join(living)}. Stop them first"
        )


def _refuse_nonempty(session: BulkSession, target: TransferDatabase) -> None:
    nonempty = [table.name for table in tables() if session.value(_ANY.format(table.name))]
    if nonempty:
        raise TransferError(
            f"{target.place} holds a queue already: {', '.join(nonempty)} have rows. Name another schema by"
            f" --schema, or, if it is not needed: DROP SCHEMA {target.schema} CASCADE"
        )


def refuse_none(session: BulkSession, source: TransferDatabase) -> None:
    """Raise TransferError if there is no queue."""
    if not schema.exists(session):
        raise TransferError(f"there is no queue at {source.place}, in the schema {source.schema}")


def _refuse_moved(place: str, source: TransferDatabase) -> None:
    if place:
        raise TransferError(
            f"the queue at {source.place} was moved to {place}. `bedrockjobs move --undo` reverts that"
        )


# --- the mark ----------------------------------------------------------------------------------------------


def undo_move(source: TransferDatabase) -> str:
    """Allow servers on a moved queue again; return where it was moved to, or an empty string.

    Raises as ``to_sqlite`` does.
    """
    with closing(source.open()) as session, session.transaction("READ COMMITTED"):
        refuse_none(session, source)
        own_queue(session, source)
        place = schema.check_tables(session)
        session.run_statements([(SQL["raise_epoch"], ())])
        session.script(_UNMARK)
        session.commit([("COMMIT", ())])
    return place


# The hold of a restored queue, applied before any server can use it.


_PAUSE = (
    'INSERT INTO pauses (pattern, "by", reason, since, "until", regex) VALUES ($1, $2, $3, $4, $5, $6)'
    ' ON CONFLICT (pattern) DO UPDATE SET "by" = $2, reason = $3, since = $4'
)
_EVENT = "INSERT INTO events (at, kind, name, \"by\", detail) VALUES ($1, 'held', '*', $2, $3)"
_CALM = "UPDATE jobs SET nextRun = $1, expires = $2, lane = $3, memory = $4 WHERE jobID = $5::bigint"


def hold_queue(database: TransferDatabase, by: str, reason: str, now: str) -> None:
    """Put all jobs of a queue without live servers on hold, in one transaction.

    Raises TransferError if there is no queue or servers use it, SchemaError for another version, StoreError.
    """
    with closing(database.open()) as session, session.transaction("READ COMMITTED"):
        refuse_none(session, database)
        own_queue(session, database)
        schema.check_tables(session)
        (rows,) = session.run_statements([(TRIGGERED, ())])
        row = hold_row(by, reason, now)
        session.run_statements(
            [
                (_PAUSE, (*row, anchored_regex([HOLD_PATTERN]))),
                (_EVENT, (now, by, reason)),
                *(
                    (_CALM, (job.next_run, job.expires, job.lane, job.memory_json, job.job_id))
                    for job in without_triggers(rows)
                ),
                (SQL["raise_epoch"], ()),
            ]
        )
        session.commit([("COMMIT", ())])


def install_functions(database: TransferDatabase) -> bool:
    """Create the SQL functions, and the tables if there are none; return whether the functions are new.

    Servers may use the queue meanwhile. Raises StoreError, SchemaError for tables that this program cannot
    migrate, TransferError if the queue was moved.
    """
    with closing(database.open()) as session, session.transaction("READ COMMITTED"):
        schema.ensure(session, database.schema)
        if place := schema.check_tables(session):
            raise TransferError(moved_refusal(place))
        new = schema.install_create_job(session, database.schema)
        session.commit([("COMMIT", ())])
        return new
