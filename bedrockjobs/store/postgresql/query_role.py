"""The role that does the SQL of Query: it may read our tables, and nothing else."""

from __future__ import annotations

import psycopg

from bedrockjobs.store.postgresql.advisory import SALT, AdvisoryKeys
from bedrockjobs.store.postgresql.line import Connection

ROLE = "bedrockjobs_query"
"""Its name; one for all schemas of a cluster."""

_LOCK = "SELECT pg_advisory_xact_lock($1::bigint)"
_IS_THERE = "SELECT true FROM pg_catalog.pg_roles WHERE rolname = $1"
_LACKS = """
    SELECT NOT has_schema_privilege($1::name, $2::text, 'USAGE') OR EXISTS (
        SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = $2 AND relkind = 'r' AND NOT has_table_privilege($1::name, pg_class.oid, 'SELECT'))
"""


async def prepare(connection: Connection, schema: str) -> None:
    """Make the role where there is none, and let it read; raises psycopg.Error where that is not allowed.

    What somebody has done before is left alone, so that a server needs no right to do it. Servers that start
    together wait for each other.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION READ WRITE")
        salt = await (await connection.execute("SELECT value FROM meta WHERE key = $1", (SALT,))).fetchone()
        await connection.execute(_LOCK, (AdvisoryKeys(schema, salt[0] if salt else "").of("schema"),))
        if not await _one(connection, _IS_THERE, ROLE):
            await connection.execute(f"CREATE ROLE {ROLE} NOLOGIN")
        if not await _may_be_set(connection):
            await connection.execute(f"GRANT {ROLE} TO CURRENT_USER")
        if await _one(connection, _LACKS, ROLE, schema):
            await connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {ROLE}')
            await connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {ROLE}')
    async with connection.transaction():
        await connection.execute(f"SET LOCAL ROLE {ROLE}")
        await connection.execute("SELECT jobID FROM jobs LIMIT 0")


async def _one(connection: Connection, sql: str, *parameters: str) -> bool:
    """Return whether the first value of the first row is true."""
    row = await (await connection.execute(sql, parameters)).fetchone()
    return row is not None and bool(row[0])


async def _may_be_set(connection: Connection) -> bool:
    """Tell whether whoever is connected may act as the role: to have made it is not enough for that."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {ROLE}")
            await connection.execute("RESET ROLE")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
