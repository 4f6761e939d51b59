"""Checks of a PostgreSQL database for `bedrockjobs doctor`: its settings, standbys, tables and sequences.

Each function makes one read-only check, most of them over a session.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bedrockjobs.base.config import PG_CONNECT_S_MAX
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql.schema import distributed
from bedrockjobs.store.postgresql.session import DatabaseSession, fault_of

SETTINGS = ("fsync", "full_page_writes", "synchronous_standby_names", "autovacuum")
"""PostgreSQL settings that affect durability or speed."""


NOTIFICATION_S = 2.0
"""Maximum seconds until a notification arrives, which normally takes milliseconds."""


class StandbyInfo(NamedTuple):
    """A connected standby; its states are empty if this role may not see them."""

    name: str
    state: str
    sync_state: str


class Oldest(NamedTuple):
    """The transaction whose snapshot keeps dead rows from being removed, and its age in seconds."""

    who: str
    seconds: float


class Tables(NamedTuple):
    """The state of our tables and indexes; names are in lower case."""

    version: str | None
    """The schema version; None if there is none."""
    missing: list[str]
    foreign: list[str]
    """Relations in the schema that are not ours."""
    invalid: list[str]
    """Indexes that PostgreSQL does not use, since their creation failed."""
    distributed: list[str]
    """Tables that Citus distributes over several machines."""
    untended: list[str]
    """Tables with autovacuum disabled."""


class Behind(NamedTuple):
    """A sequence whose next number is already in use."""

    sequence: str
    next: int
    highest: int

    @property
    def repair(self) -> str:
        """Return the statement that repairs the sequence."""
        return f"SELECT setval('{self.sequence}', {self.highest})"


def settings_of(session: DatabaseSession) -> dict[str, str]:
    """Return the settings in ``SETTINGS``."""
    sql = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1::text[])"
    return dict(session.run_statements([(sql, (list(SETTINGS),))])[0])


def is_standby(session: DatabaseSession) -> bool:
    """Return whether the database is a standby."""
    return bool(session.run_statements([("SELECT pg_is_in_recovery()", ())])[0][0][0])


def standbys_of(session: DatabaseSession) -> list[StandbyInfo]:
    """Return the connected standbys."""
    sql = (
        "SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, '')"
        " FROM pg_catalog.pg_stat_replication ORDER BY 1"
    )
    return [StandbyInfo._make(row) for row in session.run_statements([(sql, ())])[0]]


_OLDEST = """
    SELECT who, seconds FROM (
        SELECT 'process ' || pid || coalesce(' of ' || usename, '') || ', ' || coalesce(state, '?') AS who,
            extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
        FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL
            AND backend_type <> 'autovacuum worker' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
            AND (datname IS NULL OR datname = current_database())
        UNION ALL
        SELECT 'the prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::float8
        FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()
    ) AS all_of_them ORDER BY seconds DESC LIMIT 1
"""


def oldest_of(session: DatabaseSession) -> Oldest | None:
    """Return the oldest transaction with a snapshot or a write, or None.

    Transactions of other users are visible to members of ``pg_read_all_stats`` only.
    """
    rows = session.run_statements([(_OLDEST, ())])[0]
    return Oldest._make(rows[0]) if rows else None


_RELATIONS = """
    SELECT relname, relkind::text, coalesce(indisvalid, true),
        coalesce(reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false)
    FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    LEFT JOIN pg_catalog.pg_index ON indexrelid = pg_class.oid
    WHERE nspname = $1 AND relkind IN ('r', 'p', 'i')
        AND pg_class.oid NOT IN (SELECT conindid FROM pg_catalog.pg_constraint)
    ORDER BY relname
"""


def tables_of(session: DatabaseSession, schema: str) -> Tables:
    """Compare the tables and indexes of a schema with ``schema.postgresql.sql``."""
    relations = session.run_statements([(_RELATIONS, (schema,))])[0]
    names = {name for name, *_ in relations}
    wanted = _wanted()
    version = None
    if {"control", "meta"} <= names:
        needed = "SELECT value::bigint AS version FROM meta WHERE key = 'schemaVersion'"
        newest = f"SELECT max(version) FROM (SELECT version FROM control UNION ALL {needed}) AS versions"  # noqa: S608
        ((latest,),) = session.run_statements([(newest, ())])[0]
        version = None if latest is None else str(latest)
    return Tables(
        version,
        missing=sorted(wanted - names),
        foreign=sorted(names - wanted),
        invalid=[name for name, _, valid, _ in relations if not valid],
        distributed=[name for name in distributed(session) if name.rpartition(".")[2] in wanted],
        untended=[name for name, _, _, untended in relations if untended],
    )


def _wanted() -> set[str]:
    """Return the names of our tables and indexes."""
    text = Path(__file__).with_name("schema.postgresql.sql").read_text()
    return {
        name.lower() for name in re.findall(r"^CREATE (?:TABLE|(?:UNIQUE )?INDEX) (\w+)", text, re.MULTILINE)
    }


def notifications_arrive(url: str) -> bool:
    """Return whether NOTIFY reaches LISTEN over this URL; a transaction pooler does not forward it.

    Raises StoreError if the database cannot be reached.
    """
    channel = f"doctor_{secrets.token_hex(8)}"
    parameters: dict[str, Any] = {
        "autocommit": True,
        "connect_timeout": PG_CONNECT_S_MAX,
        "prepare_threshold": None,
        "target_session_attrs": "read-write",
    }
    try:
        with psycopg.connect(url, **parameters) as listening, psycopg.connect(url, **parameters) as telling:
            listening.execute(f"LISTEN {channel}")
            telling.execute("SELECT pg_notify(%s, '')", (channel,))
            return any(True for _ in listening.notifies(timeout=NOTIFICATION_S, stop_after=1))
    except psycopg.Error as error:
        raise fault_of(error) or StoreAway(str(error)) from error


_STRANGERS = """
    SELECT rolname FROM pg_catalog.pg_roles
    WHERE rolcanlogin AND NOT rolsuper AND has_database_privilege(rolname, current_database(), 'CONNECT')
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_namespace,
            aclexplode(coalesce(nspacl, acldefault('n', nspowner))) AS granted
        WHERE pg_namespace.oid = to_regnamespace(quote_ident($1)) AND granted.privilege_type = 'USAGE'
        AND granted.grantee <> 0 AND pg_has_role(rolname, granted.grantee, 'USAGE')
    ) AND NOT coalesce(has_function_privilege(
        rolname, to_regprocedure(quote_ident($1) || '.create_job(text, jsonb, jsonb)')::oid, 'EXECUTE'
    ), false)
    ORDER BY rolname
"""


def strangers(session: DatabaseSession, schema: str) -> list[str]:
    """Return the roles that may connect to the database but may not use our schema.

    All roles may look up the SQL function in the schema; only a role that may execute it uses the schema.
    """
    return [name for (name,) in session.run_statements([(_STRANGERS, (schema,))])[0]]


_SEQUENCES = """
    SELECT 'jobIDs', last_value + is_called::int,
        greatest((SELECT max(jobID) FROM jobs), (SELECT max(jobID) FROM runs), 0) FROM jobIDs
    UNION ALL SELECT 'runIDs', last_value + is_called::int, greatest((SELECT max(runID) FROM runs), 0)
        FROM runIDs
    UNION ALL SELECT 'events_seq_seq', last_value + is_called::int, greatest((SELECT max(seq) FROM events), 0)
        FROM events_seq_seq
    UNION ALL SELECT 'audit_seq_seq', last_value + is_called::int, greatest((SELECT max(seq) FROM audit), 0)
        FROM audit_seq_seq
"""


def sequences_behind(session: DatabaseSession) -> list[Behind]:
    """Return the sequences that would return a number already in use."""
    behind = [Behind._make(row) for row in session.run_statements([(_SEQUENCES, ())])[0]]
    return [one for one in behind if one.next <= one.highest]
