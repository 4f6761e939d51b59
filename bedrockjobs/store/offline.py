"""Offline administration of a database file, for users who have lost all tokens.

A running server notices the change within a second.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from bedrockjobs.store.files import names_protected
from bedrockjobs.store.records import Records
from bedrockjobs.store.schema import VERSION, SchemaError, version_of
from bedrockjobs.store.transfer import TransferError, open_for_writing


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
