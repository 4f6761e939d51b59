"""Move a queue between a SQLite file and PostgreSQL, and back up a queue on PostgreSQL while servers run.

Everything is copied in one transaction and compared before its commit. The source is marked as moved before
servers can use the target, so no failure lets two servers continue with the same jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.store.faults import StoreAway, StoreConflict, StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.bulk import BulkSession, place_of
from bedrockjobs.store.postgresql.engine import SCHEMA
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.tables import tables
from bedrockjobs.store.transfer import (
    MOVED_TO,
    BadName,
    Copy,
    Moved,
    MoveOptions,
    Progress,
    SQLiteRows,
    TransferError,
    atomic_file,
    check_copy,
    copy_rows,
    mark_moved,
    new_queue,
    open_source,
    unmark_moved,
)

LIVING = (
    "SELECT name FROM servers WHERE pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'"
    " - $1::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name"
)
"""Names of live servers."""


class Undecided(TransferError):
    """The outcome of a commit is unknown; the source stays marked."""


class Database(NamedTuple):
    """A queue on PostgreSQL."""

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
    source: Path, target: Database, options: MoveOptions, progress: Progress | None = None
) -> Moved:
    """Move a file, which the caller owns, into a database without a queue or with an empty one.

    Raises TransferError, SchemaError, StoreError, sqlite3.Error or OSError; except for Undecided, both are
    then unchanged.
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


def _commit(session: BulkSession, source: Path, target: Database, moved: Moved) -> None:
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


def _arrived(session: BulkSession, target: Database, moved: Moved) -> bool:
    """Return whether the copied queue was committed; waits for a commit that is still in progress."""
    session.connect_again()
    with session.transaction("READ COMMITTED"):
        session.run([(SQL["lock_alone"], (schema.keys_of(session, target.schema).of("schema"),))])
        if not schema.exists(session):
            return False
        return moved.rows == 0 or any(session.value(_ANY.format(table.name)) for table in tables())


_ANY = "SELECT EXISTS (SELECT 1 FROM {})"


def to_sqlite(
    source: Database, target: Path, options: MoveOptions, progress: Progress | None = None
) -> Moved:
    """Move a queue whose servers are all stopped into a new file; raises the same as ``to_postgresql``."""
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
                session.run([mark, (SQL["raise_epoch"], ())])
                committing = True
                session.commit([("COMMIT", ())])
        except BaseException as error:
            if committing:
                _unmark(session, source, error)
            raise
    return moved


def _unmark(session: BulkSession, source: Database, error: BaseException) -> None:
    """Remove the mark, which may or may not have been committed; raises Undecided."""
    try:
        if not session.alive:
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


def copy_to_file(source: Database, target: Path, *, overwrite: bool, progress: Progress | None) -> Copy:
    """Back up a snapshot of a queue to ``target`` while servers run; raises the same as ``to_sqlite``.

    Damaged jobs are copied unchanged.
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


def own_queue(session: BulkSession, database: Database) -> None:
    """Block writers until the transaction ends; raises TransferError if a server uses the queue."""
    names = [*(table.name for table in tables()), "meta", "control", "servers"]
    try:
        session.run([(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE", ())])
    except StoreConflict:
        raise TransferError(f"the queue at {database.place} is in use. Stop all its servers first") from None
    if not session.value(SQL["try_lock"], schema.keys_of(session, database.schema).of("control")):
        raise TransferError(f"a server uses the queue at {database.place}. Stop all its servers first")
    living = [name for (name,) in session.run([(LIVING, (SERVER_GONE_S,))])[0]]
    if living:
        raise TransferError(
            f"servers use the queue at {database.place}: {', '.join(living)}. Stop them first"
        )


def _refuse_nonempty(session: BulkSession, target: Database) -> None:
    found = [table.name for table in tables() if session.value(_ANY.format(table.name))]
    if found:
        raise TransferError(
            f"{target.place} holds a queue already: {', '.join(found)} have rows. Name another schema by"
            f" --schema, or, if nobody needs it: DROP SCHEMA {target.schema} CASCADE"
        )


def refuse_none(session: BulkSession, source: Database) -> None:
    """Raise TransferError if there is no queue."""
    if not schema.exists(session):
        raise TransferError(f"there is no queue at {source.place}, in the schema {source.schema}")


def _refuse_moved(place: str, source: Database) -> None:
    if place:
        raise TransferError(
            f"the queue at {source.place} was moved to {place}. `bedrockjobs move --undo` reverts that"
        )


# --- the mark ----------------------------------------------------------------------------------------------


def undo_move(source: Database) -> str:
    """Allow servers on a moved queue again; return where it was moved to, or an empty string.

    Raises the same as a move.
    """
    with closing(source.open()) as session, session.transaction("READ COMMITTED"):
        refuse_none(session, source)
        own_queue(session, source)
        place = schema.check_tables(session)
        session.run([(SQL["raise_epoch"], ())])
        session.script(_UNMARK)
        session.commit([("COMMIT", ())])
    return place
