"""Moves a queue between a SQLite file and PostgreSQL, and copies one from there while servers go on.

All is done in one transaction and compared before its commit. The mark on the source is set before the target
can be served: whatever fails, and whenever, no two servers go on from the same jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.store.backup import Copy, Progress, checked, draft_of
from bedrockjobs.store.faults import StoreAway, StoreConflict, StoreError
from bedrockjobs.store.inspector import Rules
from bedrockjobs.store.moved import MARK, BadName, MoveError, put_mark, take_mark
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.bulk import BulkSession, place_of
from bedrockjobs.store.postgresql.engine import SCHEMA
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.sqlite_rows import SQLiteRows, new_queue, open_source
from bedrockjobs.store.tables import tables
from bedrockjobs.store.whole_copy import Moved, copy_all

LIVING = (
    "SELECT name FROM servers WHERE pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'"
    " - $1::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name"
)
"""The servers that are alive."""


class Undecided(MoveError):
    """Nobody knows whether a commit was done; the source stays marked."""


class Database(NamedTuple):
    """A queue on PostgreSQL."""

    url: str
    schema: str = SCHEMA

    @property
    def place(self) -> str:
        """Return how it is named to people: without a password. Raises BadName for no URL."""
        return place_of(self.url) + ("" if self.schema == SCHEMA else f", schema {self.schema}")

    def open(self) -> BulkSession:
        """Connect; raises BadName for no URL, StoreError, SchemaError where no queue can be there."""
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


def to_postgresql(source: Path, target: Database, rules: Rules, progress: Progress | None = None) -> Moved:
    """Move a file, which the caller owns, into a database that holds no queue, or an empty one.

    Raises MoveError, and SchemaError, StoreError, sqlite3.Error, OSError: then both are as they were.
    Undecided is the exception to that.
    """
    with closing(open_source(source)) as connection, closing(target.open()) as session:
        connection.execute("BEGIN IMMEDIATE")  # nobody changes it by hand meanwhile
        with session.transaction("READ COMMITTED"):
            schema.ensure(session, target.schema)
            schema.check_tables(session)
            own_queue(session, target)
            _refuse_full(session, target)
            session.put_indexes_off()
            moved = copy_all(SQLiteRows(connection), session, rules, progress)
            with _marked(connection, target.place):
                _commit(session, source, target, moved)
    return moved


@contextmanager
def _marked(connection: sqlite3.Connection, place: str) -> Iterator[None]:
    """Context the commit of the target: the file is marked before, and is not where that fails."""
    put_mark(connection, place)
    connection.execute("COMMIT")
    try:
        yield
    except Undecided:
        raise
    except BaseException:
        take_mark(connection)
        raise


def _commit(session: BulkSession, source: Path, target: Database, moved: Moved) -> None:
    """Commit what was copied; raises StoreError where it was not, Undecided where nobody can be asked."""
    try:
        session.commit([("COMMIT", ())])
    except StoreAway as error:
        try:
            arrived = _arrived(session, target, moved)
        except StoreError as second:
            raise Undecided(
                f"The connection broke at the commit ({error}), and the database cannot be asked whether it"
                f" was done ({second}). Look whether the jobs are at {target.place}: if so, serve them there;"
                f" if not, `bedrockjobs move --undo --from {source}` lets the old server start again"
            ) from error
        if not arrived:
            raise


def _arrived(session: BulkSession, target: Database, moved: Moved) -> bool:
    """Tell whether a queue that was copied is there now; waits for a commit that is still on its way."""
    session.connect_again()
    with session.transaction("READ COMMITTED"):
        session.run([(SQL["lock_alone"], (schema.keys_of(session, target.schema).of("schema"),))])
        if not schema.exists(session):
            return False
        return moved.rows == 0 or any(session.value(_ANY.format(table.name)) for table in tables())


_ANY = "SELECT EXISTS (SELECT 1 FROM {})"


def to_sqlite(source: Database, target: Path, rules: Rules, progress: Progress | None = None) -> Moved:
    """Move a queue, of which all servers are stopped, into a new file; raises what ``to_postgresql`` does."""
    if target.exists():
        raise MoveError(f"{target} exists; a queue is moved into a new file")
    with closing(source.open()) as session:
        committing = False
        try:
            with draft_of(target, overwrite=False) as draft, session.transaction("READ COMMITTED"):
                refuse_none(session, source)
                own_queue(session, source)
                _refuse_moved(schema.check_tables(session), source)
                moved = _written(session, draft, rules, progress)
                checked(draft)
                mark = (SQL["set_meta"], (MARK, str(target.resolve())))
                session.run([mark, (SQL["raise_epoch"], ())])
                committing = True
                session.commit([("COMMIT", ())])
        except BaseException as error:
            if committing:
                _unmark(session, source, error)
            raise
    return moved


def _unmark(session: BulkSession, source: Database, error: BaseException) -> None:
    """Take the mark back of which nobody needs to know whether it was set; raises Undecided."""
    try:
        if not session.alive:
            session.connect_again()
        with session.transaction("READ COMMITTED"):
            session.script(_UNMARK)
            session.commit([("COMMIT", ())])
    except StoreError as second:
        raise Undecided(
            f"{error}; then {second}. No file was made. The queue at {source.place} may be marked as moved:"
            " `bedrockjobs move --undo` takes that back"
        ) from error


_UNMARK = f"DELETE FROM meta WHERE key = '{MARK}'"  # noqa: S608 - a constant


def copy_to_file(source: Database, target: Path, *, overwrite: bool, progress: Progress | None) -> Copy:
    """Copy a queue as it is at one moment to ``target``, while servers go on; raises as above.

    Jobs that are damaged are copied as they are.
    """
    with closing(source.open()) as session:
        level = "REPEATABLE READ, READ ONLY"
        with draft_of(target, overwrite=overwrite) as draft, session.transaction(level):
            refuse_none(session, source)
            schema.check_tables(session)
            _written(session, draft, Rules(keep_damaged=True), progress)
            return checked(draft)


def _written(session: BulkSession, draft: Path, rules: Rules, progress: Progress | None) -> Moved:
    try:
        with new_queue(draft) as connection:
            return copy_all(session, SQLiteRows(connection), rules, progress)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise MoveError(
                f"the disk of {draft.parent} or that of temporary files is full; nothing was done"
            ) from None
        raise


# --- what is refused ---------------------------------------------------------------------------------------


def own_queue(session: BulkSession, database: Database) -> None:
    """Keep everybody from writing until the transaction ends; raises MoveError where a server is there."""
    names = [*(table.name for table in tables()), "meta", "control", "servers"]
    try:
        session.run([(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE", ())])
    except StoreConflict:
        raise MoveError(f"the queue at {database.place} is in use. Stop all its servers first") from None
    if not session.value(SQL["try_lock"], schema.keys_of(session, database.schema).of("control")):
        raise MoveError(f"a server uses the queue at {database.place}. Stop all its servers first")
    living = [name for (name,) in session.run([(LIVING, (SERVER_GONE_S,))])[0]]
    if living:
        raise MoveError(f"servers use the queue at {database.place}: {', '.join(living)}. Stop them first")


def _refuse_full(session: BulkSession, target: Database) -> None:
    found = [table.name for table in tables() if session.value(_ANY.format(table.name))]
    if found:
        raise MoveError(
            f"{target.place} holds a queue already: {', '.join(found)} have rows. Name another schema by"
            f" --schema, or, if nobody needs it: DROP SCHEMA {target.schema} CASCADE"
        )


def refuse_none(session: BulkSession, source: Database) -> None:
    """Raise MoveError where there is no queue."""
    if not schema.exists(session):
        raise MoveError(f"there is no queue at {source.place}, in the schema {source.schema}")


def _refuse_moved(place: str, source: Database) -> None:
    if place:
        raise MoveError(
            f"the queue at {source.place} was moved to {place}. `bedrockjobs move --undo` takes that back"
        )


# --- the mark ----------------------------------------------------------------------------------------------


def undo_move(source: Database) -> str:
    """Let a queue that was moved be served again; return where it had been moved to, empty for nowhere.

    Raises what a move raises.
    """
    with closing(source.open()) as session, session.transaction("READ COMMITTED"):
        refuse_none(session, source)
        own_queue(session, source)
        place = schema.check_tables(session)
        session.run([(SQL["raise_epoch"], ())])
        session.script(_UNMARK)
        session.commit([("COMMIT", ())])
    return place
