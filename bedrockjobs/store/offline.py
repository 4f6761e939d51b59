"""A database file without its server: inspection for ``bedrockjobs doctor``, and changes without a token."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.store.files import names_protected
from bedrockjobs.store.records import Records
from bedrockjobs.store.sandbox import is_damage
from bedrockjobs.store.schema import VERSION, SchemaError, apply, version_of
from bedrockjobs.store.transfer import TransferError, open_for_writing, open_read_only

# Changes, for users who have lost all tokens. A running server notices them within a second.


class FileUnit:
    """An open transaction on the tables other than ``jobs``."""

    def __init__(self, connection: sqlite3.Connection, moment: datetime) -> None:
        """Use a connection; ``moment`` is the time of all changes."""
        self.moment = moment
        self.records = Records(connection)


@contextmanager
def unit_of(path: Path, moment: datetime) -> Iterator[FileUnit]:
    """Open a transaction on an existing database and commit it at the end.

    Raises TransferError, UnsafeFile, SchemaError or sqlite3.Error.
    """
    if not path.is_file():
        raise TransferError(f"there is no database {path}; `bedrockjobs serve` makes one")
    path = path.resolve()  # once: another user may change a link
    with names_protected(path), closing(open_for_writing(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 5000")  # a transaction of the server takes milliseconds
        found = version_of(connection)
        if found != VERSION:
            raise SchemaError(
                f"The database has schema version {found}, this program supports {VERSION}:"
                " `bedrockjobs migrate` migrates an older one."
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield FileUnit(connection, moment)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


# Read-only inspection.


NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
)
"""Types of network file systems, on which locks and syncs depend on another machine."""


MOUNTS = Path("/proc/self/mounts")

_QUOTED_OR_IGNORED = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\")|(?:--[^\n]*|/\*.*?\*/|\s)+", re.DOTALL)
"""A quoted text, or comments and whitespace."""


class ObservedSchema(NamedTuple):
    """The schema of a database."""

    version: int
    differences: list[str]
    """Missing, added and different objects; empty if the version differs."""
    journal_mode: str
    seen: str
    """The last heartbeat of a server; empty if there was none."""


def schema_of(path: Path) -> ObservedSchema:
    """Compare the schema of a file with ``schema.sql``.

    Raises TransferError if the file is missing, sqlite3.Error if it is not a SQLite database.
    """
    with closing(open_read_only(path)) as found, closing(sqlite3.connect(":memory:")) as meant:
        meant.isolation_level = None
        newest = apply(meant).after
        version = version_of(found)
        journal_mode = str(found.execute("PRAGMA journal_mode").fetchone()[0])
        if version != newest:
            return ObservedSchema(version, [], journal_mode, "")
        seen = found.execute("SELECT value FROM meta WHERE key = 'seen'").fetchone()
        differences = _differences(_things(found), _things(meant))
        return ObservedSchema(version, differences, journal_mode, str(seen[0]) if seen else "")


def _things(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute(
        "SELECT type || ' ' || name, sql FROM sqlite_master"
        " WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    )
    return {name: _definition(sql) for name, sql in rows}


def _definition(sql: str) -> str:
    """Return a statement without comments, with each run of whitespace as one space."""
    return _QUOTED_OR_IGNORED.sub(lambda found: found[1] or " ", sql).strip()


def _differences(found: dict[str, str], meant: dict[str, str]) -> list[str]:
    missing = [f"{name} is missing" for name in meant if name not in found]
    added = [f"{name} is unexpected" for name in found if name not in meant]
    changed = [f"{name} is different" for name in meant if name in found and found[name] != meant[name]]
    return sorted(missing + added + changed)


def ended_uncleanly(path: Path) -> bool:
    """Return whether the last server did not close the database: its write-ahead log is not empty."""
    log = path.with_name(f"{path.name}-wal")
    return path.exists() and log.exists() and log.stat().st_size > 0


def faults_of(path: Path, *, whole: bool) -> list[str]:
    """Return the damage that SQLite finds in a database; empty if it is intact.

    ``whole`` also compares the indexes with their tables, which takes several times as long. Raises
    TransferError if the file does not exist, sqlite3.Error if it cannot be read.
    """
    check = "integrity_check" if whole else "quick_check"
    try:
        # Read-only, so that the log is kept.
        with closing(open_read_only(path)) as found:
            faults = [str(row[0]) for row in found.execute(f"PRAGMA {check}(10)")]  # the first ten
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return [str(error)]
    return [] if faults == ["ok"] else faults


def file_system_of(path: Path) -> str:
    """Return the type of the file system of a file; empty if unknown."""
    target = path.resolve()
    best, kind = -1, ""
    try:
        mounts = MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    for line in mounts:
        columns = line.split(" ")
        if len(columns) < 3:
            continue
        mount = Path(columns[1].encode().decode("unicode_escape"))
        if target.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), columns[2]
    return kind
