"""The copy of a database file that is made before its schema is changed: an older server can go on from it.

It stands beside the database, named after it, the version it has and when it was made. On PostgreSQL there
is none: its tables are brought up in one transaction, and copies are pg_dump's affair.
"""

from __future__ import annotations

import glob
import logging
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from bedrockjobs.store import schema
from bedrockjobs.store.backup import CopyError, Progress, copy_database, open_read_only

log = logging.getLogger(__name__)

MIGRATION_COPIES_KEPT = 2
"""Copies kept beside a database: of the version before, and of the one before that."""

_WHY = "the schema was not changed; make room, or take a copy yourself and use --no-migration-backup"


def copy_before_migration(path: Path, now: datetime, progress: Progress | None = None) -> Path | None:
    """Copy a file whose schema is about to change; return the copy, None where nothing is to change.

    The caller owns the file. Raises CopyError where there can be no sound copy: the file is then as it was.
    Raises sqlite3.Error where the file cannot be read.
    """
    if not path.is_file() or not path.stat().st_size:
        return None
    with closing(open_read_only(path)) as connection:
        version = schema.version_of(connection)
    if not 0 < version < schema.VERSION:
        return None
    copy = path.with_name(f"{path.name}.schema-{version}-{now:%Y%m%dT%H%M%SZ}")
    try:
        copy_database(path, copy, overwrite=True, progress=progress)
    except (CopyError, OSError, sqlite3.Error) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CopyError(f"{path} could not be copied before its migration: {words}; {_WHY}") from error
    _drop_older(path)
    return copy


def migration_copies(path: Path) -> list[Path]:
    """Return the copies that were made before migrations of a file, the oldest first."""
    found = path.parent.glob(f"{glob.escape(path.name)}.schema-[0-9]*-[0-9]*T[0-9]*Z")
    return sorted(found, key=lambda copy: copy.name.rpartition("-")[2])


def _drop_older(path: Path) -> None:
    """Remove the copies beyond those that are kept; one that cannot be is told and left."""
    for copy in migration_copies(path)[:-MIGRATION_COPIES_KEPT]:
        try:
            copy.unlink()
        except OSError as error:
            log.warning("the old copy %s could not be removed: %s", copy, error)
