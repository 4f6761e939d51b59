"""The version of a database file: applied to a new one, raised on an older one, refused on a newer one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

VERSION = 2
"""What ``schema.sql`` is; kept in ``PRAGMA user_version``."""

MIGRATED = ("jobs", "meta")
"""The tables of version 1; what is younger begins empty."""


class SchemaError(RuntimeError):
    """The file is not a database that this server can use; the message is a sentence for its owner."""


def schema_text() -> str:
    """Return ``schema.sql``: beside this module in a wheel, at the top of a checkout."""
    packaged = Path(__file__).with_name("schema.sql")
    return (packaged if packaged.exists() else Path(__file__).parents[2] / "schema.sql").read_text()


def apply(connection: sqlite3.Connection) -> tuple[int, int]:
    """Bring a database to ``VERSION`` in one transaction; return the version it had and the one it has.

    The connection must be in autocommit mode. Raises SchemaError for a newer database and for a file that
    holds other tables.
    """
    found = version_of(connection)
    if found > VERSION:
        raise SchemaError(
            f"The database has schema version {found}; this server knows up to {VERSION}."
            " Use a newer server, or restore a backup from before the upgrade."
        )
    if found == VERSION:
        return found, VERSION
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if found == 0:
            _refuse_other_tables(connection)
            _execute_all(connection, schema_text())
        else:
            _rebuild(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return found, VERSION


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema version of a database, 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _rebuild(connection: sqlite3.Connection) -> None:
    """Make the tables anew and copy the old rows, so that a migrated database equals a new one."""
    indexes = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    for (name,) in connection.execute(indexes).fetchall():
        connection.execute(f"DROP INDEX {name}")
    for table in MIGRATED:
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _execute_all(connection, schema_text())
    connection.execute("DELETE FROM meta")
    for table in MIGRATED:
        connection.execute(f"INSERT INTO {table} SELECT * FROM old_{table}")  # noqa: S608 - names of ours
        connection.execute(f"DROP TABLE old_{table}")


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """Run a script statement by statement; ``executescript`` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


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
