"""Puts a backup in the place of a database file: checked, of this schema, held, and whole or not at all.

It is made ready beside the database. Then the old one is put aside with its log, and one rename puts the new
one there. Whatever fails before that leaves all as it was; after a crash between the two, no server starts on
what is left, since the lock file says who was at work. It knows no command line.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.store import schema
from bedrockjobs.store.backup import (
    COMPANIONS,
    CopyError,
    Progress,
    checked,
    copy_snapshot,
    empty_beside,
    open_read_only,
    sync,
)
from bedrockjobs.store.bedrock_import import COUNTED_ID_MAX
from bedrockjobs.store.holding import hold
from bedrockjobs.store.lock import DatabaseLock, lock_path
from bedrockjobs.store.moved import mark_of, refusal
from bedrockjobs.store.statements import RECORDS
from bedrockjobs.store.tables import tables

_NUMBERS = {
    "nextJobID": f"SELECT max(jobID) FROM jobs WHERE jobID < {COUNTED_ID_MAX}",  # noqa: S608 - a number
    "nextRunID": "SELECT max(runID) FROM runs",
}
"""The counters of a file, and what must be below them."""


class Restored(NamedTuple):
    """What is in the database now, and where the old one is."""

    states: dict[str, int]
    """Jobs by state."""
    schedules: int
    """Jobs with a repeat."""
    seen: str
    """When the server of the backup last wrote that it was alive; empty where it never did."""
    told: tuple[str, ...]
    """What bringing it to this schema did, in sentences."""
    aside: Path | None
    """Where the database is that was there; None where there was none."""


class Hold(NamedTuple):
    """How what is restored is held."""

    by: str
    reason: str


def restore(
    backup: Path, target: Path, *, held: Hold | None, force: bool, now: str, progress: Progress | None = None
) -> Restored:
    """Put ``backup`` in the place of ``target``, held unless that is None; ``now`` is a stamp.

    Raises CopyError for a backup that is damaged or none of ours, and where a database is there and
    ``force`` is not said; Owned where somebody uses it; SchemaError for a newer one; OSError, sqlite3.Error.
    """
    target = target.resolve()
    if not backup.is_file():
        raise CopyError(f"there is no backup {backup}")
    if not target.parent.is_dir():
        raise CopyError(f"there is no folder {target.parent}")
    if target.exists() and target.samefile(backup):
        raise CopyError(f"{backup} is the database itself")
    with _owned(target) as there:
        if there and not force:
            raise CopyError(f"{target} exists; --force puts it aside and restores the backup in its place")
        with empty_beside(target) as copy, empty_beside(target) as draft:
            restored = _ready(backup, copy, draft, target if there else None, held, now, progress)
            aside = _put_aside(target, now) if there else None
            for suffix in COMPANIONS:  # of a database that is gone itself
                Path(f"{target}{suffix}").unlink(missing_ok=True)
            draft.replace(target)
            sync(target.parent)
    return restored._replace(aside=aside)


@contextmanager
def _owned(target: Path) -> Iterator[bool]:
    """Context a place that no server uses; the value tells whether a database is there."""
    there = target.exists() and target.stat().st_size > 0
    known = lock_path(target).exists()
    lock = DatabaseLock(target, replaces=True)
    lock.acquire()
    try:
        lock.describe(f"bedrockjobs restore with pid {os.getpid()}")
        yield there
    finally:
        if not there and target.exists() and not target.stat().st_size:
            target.unlink()  # the lock made it
            if not known:
                lock_path(target).unlink(missing_ok=True)
        lock.release()
        _give_to_owner(lock_path(target), target.parent)


def _ready(
    backup: Path, copy: Path, draft: Path, old: Path | None, held: Hold | None, now: str,
    progress: Progress | None,
) -> Restored:  # fmt: skip
    """Fill a draft with all that the database is to have, on disk; ``copy`` is room for the backup's file."""
    try:
        copy_snapshot(backup, copy, progress)
        checked(copy)
    except CopyError as error:
        words = str(error) if str(error).startswith(str(backup)) else f"{backup}: {error}"
        raise CopyError(f"{words}; nothing was changed") from None
    except sqlite3.DatabaseError as error:
        raise CopyError(f"{backup} cannot be restored: {error}; nothing was changed") from None
    try:
        told = _rows_alone(copy, draft)
    except schema.SchemaError as error:
        raise CopyError(f"{backup}: {error} Nothing was changed.") from None
    except sqlite3.Error as error:
        raise CopyError(f"{backup} cannot be restored: {error}; nothing was changed") from None
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        if place := mark_of(connection):
            raise CopyError(f"{backup}: {refusal(place)}")
        connection.execute("DELETE FROM logins")  # who had logged out since would be logged in again
        if old is not None:
            _go_on_counting(connection, old)
            _keep_tokens(connection, old)
        if held is not None:
            hold(connection, held.by, held.reason, now)
        states = dict(connection.execute("SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state"))
        (schedules,) = connection.execute("SELECT count(*) FROM jobs WHERE repeat <> ''").fetchone()
        seen = connection.execute("SELECT value FROM meta WHERE key = 'seen'").fetchone()
    checked(draft)
    _give_to_owner(draft, old or draft.parent)
    sync(draft)
    return Restored(states, schedules, str(seen[0]) if seen else "", told, None)


def _rows_alone(copy: Path, draft: Path) -> tuple[str, ...]:
    """Copy the rows of a foreign file into a new database; return what bringing them to this schema did.

    The file may have triggers, views and indexes that somebody put into it. They are dropped before anything
    is written, and the new database has the objects of this schema and no others. Raises SchemaError.
    """
    with closing(sqlite3.connect(copy, isolation_level=None)) as foreign:
        foreign.execute("PRAGMA trusted_schema = OFF")
        objects = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
        for kind, name in foreign.execute(objects).fetchall():
            quoted = name.replace('"', '""')
            foreign.execute(f'DROP {kind} IF EXISTS "{quoted}"')
        told = schema.apply(foreign).told
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # it is synced as a whole
        connection.execute("PRAGMA trusted_schema = OFF")
        schema.apply(connection)
        connection.execute("ATTACH ? AS backup", (f"{copy}",))
        connection.execute("BEGIN")
        connection.execute("DELETE FROM meta")
        for table, columns in [("meta", ("key", "value")), *((one.name, one.columns) for one in tables())]:
            listed = ", ".join(f'"{column}"' for column in columns)
            connection.execute(
                f"INSERT INTO main.{table} ({listed}) SELECT {listed} FROM backup.{table}"  # noqa: S608 - ours
            )
        connection.execute("COMMIT")
        connection.execute("DETACH backup")
    return told


def _go_on_counting(connection: sqlite3.Connection, old: Path) -> None:
    """Let no number be given again that the database which is replaced has given; it may be past reading."""
    with suppress(sqlite3.Error), closing(open_read_only(old)) as before:
        for key, highest in _NUMBERS.items():
            row = before.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            last = before.execute(highest).fetchone()[0] or 0
            number = max(int(row[0]) if row else 1, last + 1)
            connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = ?", (number, key))


def _keep_tokens(connection: sqlite3.Connection, old: Path) -> None:
    """Let tokens be those of the database that is replaced: what was revoked since the backup stays so.

    Those of the backup stay where that database has none, or is past reading.
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
    """Give the database that is there another name, with its log; it stays under its own until replaced."""
    mark = "".join(character for character in now[:19] if character.isdigit())
    aside = target.with_name(f"{target.name}.before-restore-{mark}")
    number = 1
    while aside.exists():
        number += 1
        aside = target.with_name(f"{target.name}.before-restore-{mark}-{number}")
    for suffix in COMPANIONS:
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
    """Let root leave no file that the server's user cannot open."""
    if os.geteuid() == 0 and file.exists():
        found = like.stat()
        os.chown(file, found.st_uid, found.st_gid)
