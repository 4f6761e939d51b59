"""A file on which one thing is done beside its server: the way back in for who has lost all tokens.

The server sees it within a second, as it sees any change by other hands.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from bedrockjobs.store.plain_file import check_owner
from bedrockjobs.store.records import Records
from bedrockjobs.store.schema import VERSION, SchemaError, version_of
from bedrockjobs.store.transfer import TransferError, open_for_writing

BUSY_S = 5.0
"""Seconds that a server's transaction is waited for; it takes milliseconds."""


class FileUnit:
    """An open transaction in which the tables beside jobs can be written."""

    def __init__(self, connection: sqlite3.Connection, moment: datetime) -> None:
        """Work over a connection at a moment."""
        self.moment = moment
        self.records = Records(connection)


@contextmanager
def unit_of(path: Path, moment: datetime) -> Iterator[FileUnit]:
    """Context a transaction on a database that is there; it is on disk behind it.

    Raises TransferError, PlantedFile, SchemaError or sqlite3.Error.
    """
    if not path.is_file():
        raise TransferError(f"there is no database {path}; `bedrockjobs serve` makes one")
    check_owner(path.resolve())
    with closing(open_for_writing(path)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {round(BUSY_S * 1000)}")
        found = version_of(connection)
        if found != VERSION:
            raise SchemaError(
                f"The database has schema version {found}, this program knows {VERSION}:"
                " `bedrockjobs migrate` brings an older one up."
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield FileUnit(connection, moment)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
