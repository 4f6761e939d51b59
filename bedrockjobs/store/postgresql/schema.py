"""The tables in a PostgreSQL database: made where there are none, refused where another version made them."""

from __future__ import annotations

import re
from pathlib import Path

from bedrockjobs.base.settings import SCHEMA_NAME
from bedrockjobs.store.faults import StoreError
from bedrockjobs.store.moved import MARK, refusal
from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.session import Session
from bedrockjobs.store.schema import SchemaError

VERSION = 4
"""What ``schema.postgresql.sql`` is; kept in ``meta``, and the same as that of SQLite."""

SERVER_VERSION_MIN = 140000
"""PostgreSQL 14: the oldest with generated columns, pipelines and security fixes that we test."""

_TABLES = "SELECT to_regclass('meta') IS NOT NULL"
_CITUS = "SELECT to_regclass('pg_dist_partition') IS NOT NULL"
_DISTRIBUTED = """SELECT logicalrelid::regclass::text FROM pg_dist_partition
    JOIN pg_class ON pg_class.oid = logicalrelid WHERE relnamespace = current_schema()::regnamespace
    AND NOT (partmethod = 'n' AND repmodel = 's' AND colocationid = 0) ORDER BY 1"""
"""Tables that Citus only knows of have one place, as those of PostgreSQL."""

FOREIGN = {"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"}
"""What in the version tells of another database."""

_NO_SCHEMA = "SELECT to_regnamespace($1) IS NULL"
_LOCK = "SELECT pg_advisory_xact_lock($1::bigint)"


def check_name(name: str) -> None:
    """Raise ValueError for what cannot be the name of our schema."""
    if not re.fullmatch(SCHEMA_NAME, name):
        raise ValueError(f"schema: expected up to 63 small letters, digits and underscores, not {name!r}")


def prepare(session: Session, schema: str, keys: AdvisoryKeys) -> None:
    """Make the tables, unless they are there; raises SchemaError where they cannot be served.

    Servers that start together wait for each other.
    """
    check_database(session)
    session.run([("BEGIN", ())])
    try:
        ensure(session, schema, keys)
        place = check_tables(session)
        refuse_distributed(session)
        session.run([("COMMIT", ())])
    except (StoreError, SchemaError):
        if session.alive and session.in_transaction:
            session.script("ROLLBACK")
        raise
    if place:
        raise SchemaError(refusal(place))


def check_database(session: Session) -> None:
    """Raise SchemaError for a database in which tables of ours cannot be."""
    ((version,),) = session.run([("SELECT version()", ())])[0]
    refuse_foreign(version)
    if session.server_version < SERVER_VERSION_MIN:
        raise SchemaError(
            f"The database is PostgreSQL {session.server_version // 10000}; this server needs 14 or newer."
        )
    if session.server_encoding != "UTF8":
        raise SchemaError(
            f"The database has the encoding {session.server_encoding}; this server needs UTF8."
            " Make one with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def refuse_foreign(version: str) -> None:
    """Raise SchemaError for a database that only speaks like PostgreSQL: its locks are not the same."""
    for mark, name in FOREIGN.items():
        if mark in version:
            raise SchemaError(f"The database is {name}; this server needs PostgreSQL itself, 14 or newer.")


def refuse_distributed(session: Session) -> None:
    """Raise SchemaError where Citus has distributed a table of ours: it does not lock rows everywhere."""
    if not session.run([(_CITUS, ())])[0][0][0]:
        return
    (found,) = session.run([(_DISTRIBUTED, ())])
    if found:
        names = ", ".join(name for (name,) in found)
        raise SchemaError(
            f"Citus has distributed {names}; rows are not locked there as they have to be."
            " Use undistribute_table, or a database of its own."
        )


def exists(session: Session) -> bool:
    """Tell whether the tables are there."""
    ((there,),) = session.run([(_TABLES, ())])[0]
    return bool(there)


def ensure(session: Session, schema: str, keys: AdvisoryKeys) -> None:
    """Make the tables in the open transaction, unless they are there; nobody else can do so meanwhile."""
    session.run([(_LOCK, (keys.of("schema"),))])
    if not exists(session):
        if session.run([(_NO_SCHEMA, (f'"{schema}"',))])[0][0][0]:  # else it takes no right to make one
            session.script(f'CREATE SCHEMA "{schema}"')
        session.script(Path(__file__).with_name("schema.postgresql.sql").read_text())


def check_tables(session: Session) -> str:
    """Return where the queue was moved to, empty where it was not; raises SchemaError for another version."""
    noted: dict[str, str] = dict(
        session.run([("SELECT key, value FROM meta WHERE key IN ($1, $2)", ("schemaVersion", MARK))])[0]
    )
    if int(noted["schemaVersion"]) != VERSION:
        raise SchemaError(
            f"The database has schema version {noted['schemaVersion']}; this server knows {VERSION}."
            " Use the server that made it, or a newer one."
        )
    return str(noted.get(MARK, ""))
