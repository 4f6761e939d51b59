"""What `bedrockjobs doctor` reads of a PostgreSQL database: how it is set, and whether all is as it should.

Each function does one look, mostly over a session, and changes nothing.
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
"""What of PostgreSQL's settings decides about data and speed."""


HEARD_S = 2.0
"""Time in which a notice comes that comes at all; it takes milliseconds."""


class StandbyInfo(NamedTuple):
    """A standby that is connected; its states are empty where we may not see them."""

    name: str
    state: str
    sync_state: str


class Oldest(NamedTuple):
    """Who has kept rows that are gone from being removed for longest."""

    who: str
    seconds: float


class Tables(NamedTuple):
    """Our tables and indexes, by their names in small letters."""

    version: str | None
    """The version of the schema; None where there is none."""
    missing: list[str]
    foreign: list[str]
    """What is in the schema and not ours."""
    invalid: list[str]
    """Indexes that PostgreSQL does not use, as making them has failed."""
    distributed: list[str]
    """Tables whose rows are spread over machines."""
    untended: list[str]
    """Tables that autovacuum is told to leave alone."""


class Behind(NamedTuple):
    """A sequence whose next number is taken already."""

    sequence: str
    next: int
    highest: int

    @property
    def repair(self) -> str:
        """Return the statement that sets it right."""
        return f"SELECT setval('{self.sequence}', {self.highest})"


def settings_of(session: DatabaseSession) -> dict[str, str]:
    """Return the settings named above."""
    sql = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1::text[])"
    return dict(session.run([(sql, (list(SETTINGS),))])[0])


def is_standby(session: DatabaseSession) -> bool:
    """Tell whether it only follows another database."""
    return bool(session.run([("SELECT pg_is_in_recovery()", ())])[0][0][0])


def standbys_of(session: DatabaseSession) -> list[StandbyInfo]:
    """Return the standbys that are connected."""
    sql = (
        "SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, '')"
        " FROM pg_catalog.pg_stat_replication ORDER BY 1"
    )
    return [StandbyInfo._make(row) for row in session.run([(sql, ())])[0]]


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
    """Return the oldest transaction that has looked at rows or written some; None where there is none.

    Those of other users are seen by a member of ``pg_read_all_stats``.
    """
    rows = session.run([(_OLDEST, ())])[0]
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
    """Compare what is in a schema with what makes a new one."""
    relations = session.run([(_RELATIONS, (schema,))])[0]
    found = {name for name, *_ in relations}
    wanted = _wanted()
    version = None
    if "meta" in found:
        rows = session.run([("SELECT value FROM meta WHERE key = 'schemaVersion'", ())])[0]
        version = rows[0][0] if rows else None
    return Tables(
        version,
        missing=sorted(wanted - found),
        foreign=sorted(found - wanted),
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


def hears(url: str) -> bool:
    """Tell whether what is said by NOTIFY is heard by LISTEN over a URL: a transaction pooler passes none on.

    Raises StoreError where the URL leads nowhere.
    """
    channel = f"doctor_{secrets.token_hex(8)}"
    given: dict[str, Any] = {
        "autocommit": True,
        "connect_timeout": PG_CONNECT_S_MAX,
        "prepare_threshold": None,
        "target_session_attrs": "read-write",
    }
    try:
        with psycopg.connect(url, **given) as listening, psycopg.connect(url, **given) as telling:
            listening.execute(f"LISTEN {channel}")
            telling.execute("SELECT pg_notify(%s, '')", (channel,))
            return any(True for _ in listening.notifies(timeout=HEARD_S, stop_after=1))
    except psycopg.Error as error:
        raise fault_of(error) or StoreAway(str(error)) from error


_STRANGERS = """
    SELECT rolname FROM pg_catalog.pg_roles
    WHERE rolcanlogin AND NOT rolsuper AND has_database_privilege(rolname, current_database(), 'CONNECT')
    AND NOT coalesce(has_schema_privilege(rolname, to_regnamespace(quote_ident($1))::oid, 'USAGE'), false)
    ORDER BY rolname
"""


def strangers(session: DatabaseSession, schema: str) -> list[str]:
    """Return the roles that may connect to the database and have no right to our tables."""
    return [name for (name,) in session.run([(_STRANGERS, (schema,))])[0]]


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
    """Return the sequences that would give a number out again."""
    found = [Behind._make(row) for row in session.run([(_SEQUENCES, ())])[0]]
    return [one for one in found if one.next <= one.highest]
