"""The tables of a PostgreSQL database, created or migrated, and the function ``create_job``.

Servers of several versions may share the tables. ``schemaVersion`` in ``meta`` is the oldest server version
that may use them; ``version`` in ``control`` is the version of the tables themselves.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.config import DATA_BYTES_MAX, KEY_CHARS_MAX, NAME_CHARS_MAX, PRIORITIES, SERVER_GONE_S
from bedrockjobs.base.errors import fingerprint_of
from bedrockjobs.base.settings import SCHEMA_NAME
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.commands import JobSpec
from bedrockjobs.store.base import StoreBroken, StoreError
from bedrockjobs.store.postgresql.locks import SALT, AdvisoryKeys
from bedrockjobs.store.postgresql.session import DatabaseSession
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.schema import SchemaError, error_in
from bedrockjobs.store.transfer import MOVED_TO, moved_refusal

log = logging.getLogger(__name__)

VERSION = 13
"""The version of ``schema.postgresql.sql`` and of this server; the same as on SQLite."""


class TooOld(SchemaError, StoreBroken):
    """The tables were migrated to a version that this server does not support; the server must stop."""


class Step(NamedTuple):
    """One migration step."""

    version: int
    """The version of the tables after the step."""
    needs: int
    """The oldest server version that may use the tables after the step."""
    sql: str
    """Statements whose time does not depend on the number of jobs, such as adding a column with a constant
    default."""


def _read(file: str) -> str:
    return Path(__file__).with_name(file).read_text()


STEPS: tuple[Step, ...] = (
    Step(5, 5, _read("step_5.sql")),
    Step(6, 6, _read("step_6.sql")),
    Step(7, 6, _read("step_7.sql")),
    Step(8, 6, _read("step_8.sql")),
    Step(9, 9, _read("step_9.sql")),
    Step(10, 10, _read("step_10.sql")),
    Step(11, 10, _read("step_11.sql")),
    Step(12, 10, _read("step_12.sql")),
    Step(13, 13, _read("step_13.sql")),
)
"""All steps since version 4, the first version for PostgreSQL. Some steps exclude older servers: version 5
added tokens, which older servers would not check; version 6 changed the advisory lock keys; version 9 added
workflows, whose next jobs older servers would not start; version 10 counts by name, in a table that older
servers could not write; version 13 limits starts by key, in a table that older servers would not read."""

SERVER_VERSION_MIN = 140000
"""PostgreSQL 14: the oldest tested version with generated columns, pipelines and security fixes."""

_TABLES = "SELECT to_regclass('meta') IS NOT NULL"
_CITUS = "SELECT to_regclass('pg_dist_partition') IS NOT NULL"
_SPREAD = """SELECT logicalrelid::regclass::text FROM pg_dist_partition
    JOIN pg_class ON pg_class.oid = logicalrelid WHERE relnamespace = current_schema()::regnamespace
    AND NOT (partmethod = 'n' AND repmodel = 's' AND colocationid = 0) ORDER BY 1"""
"""Finds the tables that Citus distributes; a table of which Citus has only metadata is local."""

FOREIGN = {"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"}
"""Parts of ``version()`` that reveal another database."""

_NO_SCHEMA = "SELECT to_regnamespace($1) IS NULL"

_REFRESH = "SELECT FROM pg_namespace LIMIT 0"
"""Opens a catalog, so that the session drops outdated caches. Waiting for an advisory lock does not do so,
and the session would not find tables that another server has created meanwhile."""

_OLD = (
    "SELECT name FROM servers WHERE knows < $1 AND pulse > to_char(clock_timestamp() AT TIME ZONE 'UTC'"
    " - $2::bigint * interval '1 s', 'YYYY-MM-DD HH24:MI:SS') ORDER BY name"
)
_VERSION = "SELECT version FROM control"
_NOTE = "UPDATE control SET version = $1, epoch = epoch + 1"

_FAILED_JOBS = "SELECT jobID, memory FROM jobs WHERE state = 'FAILED' AND jobID > $1 ORDER BY jobID LIMIT $2"
_FAILED_RUNS = (
    f"SELECT runID, error FROM runs WHERE status IN {FAILED_STATUSES} AND runID > $1"  # noqa: S608
    " ORDER BY runID LIMIT $2"
)
_FINGERPRINT_JOBS, _FINGERPRINT_RUNS = (
    f"UPDATE {table} SET fingerprint = new.fingerprint"  # noqa: S608
    f" FROM unnest($1::bigint[], $2::text[]) AS new (number, fingerprint) WHERE {key} = new.number"
    for table, key in (("jobs", "jobID"), ("runs", "runID"))
)
_DEMAND = "UPDATE meta SET value = $1 WHERE key = 'schemaVersion' AND value::bigint < $1::bigint"


def check_name(name: str) -> None:
    """Raise ValueError for an invalid schema name."""
    if not re.fullmatch(SCHEMA_NAME, name):
        raise ValueError(
            f"schema: expected up to 63 lower-case letters, digits and underscores, not {name!r}"
        )


def prepare(session: DatabaseSession, schema: str) -> AdvisoryKeys:
    """Create or migrate the tables, and return their advisory lock keys.

    Raises SchemaError if they cannot be used. Servers that start together wait for each other.
    """
    check_database(session)
    session.run_statements([("BEGIN", ())])
    try:
        ensure(session, schema)
        place = check_tables(session)
        refuse_distributed(session)
        keys = keys_of(session, schema)
        session.run_statements([("COMMIT", ())])
    except (StoreError, SchemaError):
        if session.is_open and session.in_transaction:
            session.script("ROLLBACK")
        raise
    if place:
        raise SchemaError(moved_refusal(place))
    return keys


def keys_of(session: DatabaseSession, schema: str) -> AdvisoryKeys:
    """Return the advisory lock keys of a schema, whether its tables exist or not."""
    return AdvisoryKeys(schema, salt_of(session) if exists(session) else "")


def salt_of(session: DatabaseSession) -> str:
    """Return the secret of the lock keys; empty before version 6."""
    (rows,) = session.run_statements([("SELECT value FROM meta WHERE key = $1", (SALT,))])
    return str(rows[0][0]) if rows else ""


def check_database(session: DatabaseSession) -> None:
    """Raise SchemaError for a database that cannot hold our tables."""
    ((version,),) = session.run_statements([("SELECT version()", ())])[0]
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
    """Raise SchemaError for another database that speaks PostgreSQL's protocol: its locks differ."""
    for mark, name in FOREIGN.items():
        if mark in version:
            raise SchemaError(f"The database is {name}; this server needs PostgreSQL itself, 14 or newer.")


def refuse_distributed(session: DatabaseSession) -> None:
    """Raise SchemaError if Citus distributes one of our tables: it does not lock rows on all machines."""
    tables = distributed(session)
    if tables:
        raise SchemaError(
            f"Citus has distributed {', '.join(tables)}; rows cannot be locked there as needed."
            " Use undistribute_table, or a database of its own."
        )


def distributed(session: DatabaseSession) -> list[str]:
    """Return the tables of our schema that Citus distributes over several machines."""
    if not session.run_statements([(_CITUS, ())])[0][0][0]:
        return []
    return [name for (name,) in session.run_statements([(_SPREAD, ())])[0]]


def exists(session: DatabaseSession) -> bool:
    """Return whether the tables exist."""
    ((there_is,),) = session.run_statements([(_TABLES, ())])[0]
    return bool(there_is)


def ensure(session: DatabaseSession, schema: str) -> None:
    """Create or migrate the tables in the open transaction, locking out all other servers.

    Raises SchemaError if live servers do not support the new version.
    """
    keys = keys_of(session, schema)
    session.run_statements([(SQL["lock_alone"], (keys.key_of("schema"),)), (_REFRESH, ())])
    if exists(session):
        _bring_up(session, keys)
    else:
        if session.run_statements([(_NO_SCHEMA, (f'"{schema}"',))])[0][0][
            0
        ]:  # creating one needs a privilege
            session.script(f'CREATE SCHEMA "{schema}"')
        session.script("SET LOCAL synchronous_commit = local")  # new tables need not wait for a standby
        session.script(Path(__file__).with_name("schema.postgresql.sql").read_text())


def _bring_up(session: DatabaseSession, keys: AdvisoryKeys) -> None:
    """Run the missing migration steps; they wait until no server has an open unit."""
    version = _versions(session).tables
    steps = [step for step in STEPS if step.version > version]
    if not steps:
        return
    session.run_statements([(SQL["lock_alone"], (keys.key_of("control"),))])
    needs = max(step.needs for step in steps)
    old = [name for (name,) in session.run_statements([(_OLD, (needs, SERVER_GONE_S))])[0]]
    if old:
        raise SchemaError(
            f"The tables have schema version {version}; {VERSION} is not supported by live servers:"
            f" {', '.join(old)}. Stop them first."
        )
    for step in steps:
        session.script(step.sql)
        if step.version == 6:
            _add_fingerprints(session)
    session.run_statements([(_NOTE, (steps[-1].version,)), (_DEMAND, (str(needs),))])
    log.info("the tables were migrated from schema version %d to %d", version, steps[-1].version)


def _add_fingerprints(session: DatabaseSession) -> None:
    """Compute the fingerprints of failed jobs and runs; versions before 6 had none."""
    for failed, note, error_of in (
        (_FAILED_JOBS, _FINGERPRINT_JOBS, error_in),
        (_FAILED_RUNS, _FINGERPRINT_RUNS, str),
    ):
        last = 0
        # Failures that get their fingerprint in one statement: at most 10 MB of errors.
        while rows := session.run_statements([(failed, (last, 1_000))])[0]:
            numbers = [number for number, _ in rows]
            fingerprints = [fingerprint_of(error_of(text)) for _, text in rows]
            session.run_statements([(note, (numbers, fingerprints))])
            last = numbers[-1]


class Versions(NamedTuple):
    """The versions of the tables, and whether the queue was moved."""

    tables: int
    """The version of the tables themselves."""
    needs: int
    """The oldest server version that may use the tables."""
    place: str
    """Where the queue was moved to; empty if it was not."""


def _versions(session: DatabaseSession) -> Versions:
    values, control = session.run_statements(
        [("SELECT key, value FROM meta WHERE key IN ($1, $2)", ("schemaVersion", MOVED_TO)), (_VERSION, ())]
    )
    noted: dict[str, str] = dict(values)
    return Versions(control[0][0], int(noted["schemaVersion"]), str(noted.get(MOVED_TO, "")))


def check_tables(session: DatabaseSession) -> str:
    """Return where the queue was moved to; empty if it was not. Raises SchemaError for another version."""
    versions = _versions(session)
    check_needs(versions.needs)
    if versions.tables < VERSION:
        raise SchemaError(
            f"The database has schema version {versions.tables}; this program supports {VERSION}."
            " Start a server of this version first, which migrates it."
        )
    return versions.place


def check_needs(version: int) -> None:
    """Raise TooOld if the database needs a newer server version."""
    if version > VERSION:
        raise TooOld(
            f"The database needs schema version {version}; this server supports {VERSION}."
            " Use a newer server."
        )


# The SQL function ``create_job``, with which an application creates jobs in a transaction of its own.
#
# It checks what SQL can check, draws the jobID and writes a row of the table ``inbox``, with the rights of
# the tables' owner. A role that may execute it needs no other right.


SIGNATURE = "create_job(text, jsonb, jsonb)"

OPTIONS = tuple(sorted(name for name in JobSpec.wire_names.values() if name not in ("name", "data")))
"""The keys that the parameter ``options`` may have: the attributes of CreateJob except name and data."""

_SHORT = r"(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?"
_UNITS = "(second|minute|hour|day)s?"
_DURATION = (
    rf"^\s*(\+ ?\d{{1,9}} {_UNITS}|{_SHORT}(\d{{1,9}}(\.0*)?s?)?)\s*$",
    "a duration like 90s, 5m, 1h30m or +90 SECONDS, or a number of seconds",
)
_WHOLE = (r"^(\d{1,18}(\.0*)?)?$", "a whole number")
_BOOLEAN = (r"^(true|false|1|0|)$", "true or false")
_PRIORITY = (
    f"^({'|'.join(map(str, sorted(PRIORITIES)))}|)$",
    f"one of {', '.join(map(str, sorted(PRIORITIES)))}",
)
_KEY = (rf"^.{{1,{KEY_CHARS_MAX}}}$", f"1 to {KEY_CHARS_MAX} characters")


def _one_of(*words: str) -> tuple[str, str]:
    return f"^({'|'.join(words)}|)$", f"one of {', '.join(words)}"


CHECKED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            *("runTimeout", "grace", "lease", "backoff", "maxBackoff", "expireAfter", "pingGrace", "maxLate"),
            *("jitter", "keep"),
        ),
        _DURATION,
    ),
    **dict.fromkeys(
        ("retries", "keepSuccess", "keepFail", "outputLines", "concurrencyLimit", "parentJobID"), _WHOLE
    ),
    **dict.fromkeys(("unique", "overwrite", "mockRequest"), _BOOLEAN),
    **dict.fromkeys(("jobPriority", "priority"), _PRIORITY),
    **dict.fromkeys(("uniqueKey", "idempotencyKey"), _KEY),
    "onLost": _one_of("retry", "fail"),
    "onChildFailure": _one_of("continue", "fail"),
    "catchup": _one_of("once", "skip", "all"),
    "overlap": _one_of("skip", "queue"),
    "onConflict": _one_of("ignore", "replace", "reject"),
    "hosts": _one_of("all"),
    "expect": _one_of("ping"),
}
"""By option, a regular expression for its text, and what is expected in words; a server checks all other
options."""

_OFFSET = (
    rf"^\s*(([+-] ?)?(\d{{1,9}} {_UNITS}|(?=.*[a-z]){_SHORT}(\d{{1,9}}(\.\d{{1,6}})?s)?)"
    r"|[+-] ?\d{1,9}(\.\d{1,6})?)\s*$"
)
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?\s*(Z|[+-]\d\d(:?\d\d)?)?)?$"

_DATE_WORDS = (
    "a date like 2026-11-21 03:29:56 (UTC) or ISO 8601 with a zone, or a time from now like +5 MINUTES"
)


def create_job_sql(schema: str) -> str:
    """Return the statement that creates the function in a schema, or replaces an older version."""
    check_name(schema)
    known = ",\n            ".join(
        f"('{name}', '{pattern}', '{expected}')"
        for name, (pattern, expected) in ((name, CHECKED.get(name, ("", ""))) for name in OPTIONS)
    )
    values = {
        "schema": schema,
        "name_max": str(NAME_CHARS_MAX),
        "data_max": str(DATA_BYTES_MAX),
        "known": known,
        "names": ", ".join(OPTIONS),
        "offset": _OFFSET,
        "date": _DATE,
        "date_words": _DATE_WORDS,
    }
    made = Path(__file__).with_name("create_job.sql").read_text()
    for mark, value in values.items():
        made = made.replace(f"<{mark}>", value)
    return made


def install_create_job(session: DatabaseSession, schema: str) -> bool:
    """Create or replace the function in the open transaction; return whether it is new.

    No other role may execute a new function until that is granted. A replaced function keeps its grants.
    """
    ((there_is,),) = session.run_statements([("SELECT to_regprocedure($1) IS NOT NULL", (SIGNATURE,))])[0]
    session.script(create_job_sql(schema))
    if not there_is:
        session.script(f"REVOKE ALL ON FUNCTION {SIGNATURE} FROM PUBLIC")
        session.script(f'GRANT USAGE ON SCHEMA "{schema}" TO PUBLIC')
    return not there_is
