"""Checks of ``bedrockjobs doctor`` for a PostgreSQL database.

Each check is a function that yields findings; ``store.postgresql.inspection`` reads the data.
"""

from __future__ import annotations

from collections.abc import Iterator

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.doctor import Finding, Level
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.postgresql import inspection
from bedrockjobs.store.postgresql.schema import SERVER_VERSION_MIN, VERSION
from bedrockjobs.store.postgresql.session import DatabaseSession, SessionRequirements

OLDEST_WARN_S, OLDEST_FAIL_S = 60.0, 3_600.0
"""Age in seconds of the oldest transaction from which the check warns, and from which it fails: until the
transaction ends, dead rows remain and slow down each take."""

NAMED_MAX = 10
"""Maximum number of tables and indexes that one finding lists."""


def findings(settings: Settings, durability: str | None) -> Iterator[Finding]:
    """Yield the findings about the database of ``settings``.

    ``durability`` is the setting of the server; if the server is not known, it is None and ``settings``
    counts.
    """
    where = settings.shown_database
    try:
        session = DatabaseSession(
            settings.database, settings.database_schema, SessionRequirements.from_settings(settings)
        )
    except StoreError as error:
        message = f"{where}: {' '.join(str(error).split())}"
        yield Finding("fail", "database", message, "start PostgreSQL, or name the database by --database")
        return
    try:
        yield from checked(session, settings, durability or settings.durability)
        yield from check_listening(settings)
    except StoreError as error:
        message = f"{where}: {' '.join(str(error).split())}"
        yield Finding("fail", "database", message, "run doctor with the server's role")
    finally:
        session.close()


def checked(session: DatabaseSession, settings: Settings, durability: str) -> Iterator[Finding]:
    """Yield the findings of all checks; raises StoreError."""
    if inspection.is_standby(session):
        message = f"{settings.shown_database} is a standby, which is read-only"
        yield Finding("fail", "database", message, "name the primary by --database")
    yield from check_version(session)
    tables = inspection.tables_of(session, settings.database_schema)
    yield from check_tables(tables, settings.database_schema)
    if not tables.missing:
        yield from check_sequences(session)
    settings_found = inspection.settings_of(session)
    yield from check_durability(settings_found, inspection.standbys_of(session), durability)
    yield from check_vacuum(settings_found, tables, inspection.oldest_of(session))
    if tables.version is not None:
        yield from check_connect(inspection.strangers(session, settings.database_schema))


def check_version(session: DatabaseSession) -> Iterator[Finding]:
    """Check the version of PostgreSQL, and the encoding of the database."""
    version = f"PostgreSQL {session.server_version // 10_000}.{session.server_version % 10_000}"
    if session.server_version < SERVER_VERSION_MIN:
        yield Finding("fail", "database", f"{version}; 14 or newer is needed", "upgrade PostgreSQL")
    elif session.server_encoding != "UTF8":
        message = f"{version}, but the encoding is {session.server_encoding}; UTF8 is needed"
        advice = "make a database with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        yield Finding("fail", "database", message, advice)
    else:
        yield Finding("ok", "database", f"{version}, {session.server_encoding}")


def check_tables(tables: inspection.Tables, schema: str) -> Iterator[Finding]:
    """Check that the tables and indexes are complete and as expected."""
    if tables.version is None:
        message = f"there are no tables of bedrockjobs in the schema {schema}"
        yield Finding("fail", "schema", message, "start a server, or name it by BEDROCKJOBS_DATABASE_SCHEMA")
        return
    if int(tables.version) > VERSION:
        message = f"version {tables.version}; this program supports {VERSION}"
        yield Finding("fail", "schema", message, "use the bedrockjobs that created it, or a newer one")
        return
    wrong = [
        *(f"{name} is missing" for name in tables.missing),
        *(f"{name} is unexpected" for name in tables.foreign),
        *(f"the index {name} is invalid" for name in tables.invalid),
        *(f"{name} is distributed" for name in tables.distributed),
    ]
    if wrong:
        message = "; ".join(wrong[:NAMED_MAX]) + (
            f"; and {more} more" if (more := len(wrong) - NAMED_MAX) > 0 else ""
        )
        advice = "revert manual changes: REINDEX INDEX for an invalid index, local tables on Citus"
        yield Finding("fail", "schema", message, advice)
    else:
        yield Finding("ok", "schema", f"version {tables.version} in {schema}, as expected")


def check_sequences(session: DatabaseSession) -> Iterator[Finding]:
    """Check that the sequences of IDs are ahead of the IDs in use."""
    for one in inspection.sequences_behind(session):
        message = f"{one.sequence} is at {one.next}, but {one.highest} is taken"
        yield Finding("fail", "schema", message, f"stop all servers, {one.repair}, and start them")


def check_connect(strangers: list[str]) -> Iterator[Finding]:
    """Check that roles without a right to the tables may not connect."""
    if not strangers:
        yield Finding("ok", "connect", "only roles that may use the tables may connect")
        return
    more = f" and {len(strangers) - NAMED_MAX} more" if len(strangers) > NAMED_MAX else ""
    message = f"{', '.join(strangers[:NAMED_MAX])}{more} may connect without a right to the tables"
    advice = "they can hold locks and use up connections: REVOKE CONNECT ON DATABASE ... FROM PUBLIC"
    yield Finding("warn", "connect", message, advice)


def check_listening(settings: Settings) -> Iterator[Finding]:
    """Check that notifications (LISTEN) work over the URL that is configured for them."""
    direct = bool(settings.database_direct)
    name = "database_direct" if direct else "database"
    try:
        arrives = inspection.notifications_arrive(settings.database_direct or settings.database)
    except StoreError as error:
        message = f"cannot connect to the URL of {name}: {' '.join(str(error).split())}"
        yield Finding(
            "fail", "listen", message, "name PostgreSQL itself, without a pooler, by --database-direct"
        )
        return
    if arrives:
        yield Finding("ok", "listen", f"notifications between servers arrive over {name}")
    else:
        message = f"LISTEN over {name} receives nothing, so each server polls twice a second"
        yield Finding(
            "warn", "listen", message, "name PostgreSQL itself, without a pooler, by --database-direct"
        )


def check_durability(
    settings: dict[str, str], standbys: list[inspection.StandbyInfo], durability: str
) -> Iterator[Finding]:
    """Check that PostgreSQL keeps acknowledged commits, as the durability setting promises.

    The setting ``synchronous_commit`` is not checked: servers set it for their own connections.
    """
    for name in ("fsync", "full_page_writes"):
        if settings[name] == "off":
            message = f"{name} is off: a crash of the machine may destroy the database"
            yield Finding("fail", "disk", message, f"ALTER SYSTEM SET {name} = on, and restart PostgreSQL")
    synchronous = [one for one in standbys if one.sync_state in ("sync", "quorum")]
    message = f"{len(standbys)} connected, {len(synchronous)} synchronous"
    advice = "start a standby that synchronous_standby_names names"
    if settings["synchronous_standby_names"] and not synchronous and durability != "relaxed":
        message += f", and each commit waits for {settings['synchronous_standby_names']}"
        yield Finding("fail", "standbys", message, advice)
    elif durability == "replicated" and not synchronous:
        yield Finding("fail", "standbys", f"{message}, and the durability is replicated", advice)
    elif standbys and not any(one.sync_state for one in standbys):
        message = f"{len(standbys)} connected; only members of pg_read_all_stats may see their state"
        yield Finding("warn", "standbys", message, "GRANT pg_read_all_stats to the role that doctor uses")
    else:
        yield Finding("ok", "standbys", message if standbys else "there are none")


def check_vacuum(
    settings: dict[str, str], tables: inspection.Tables, oldest: inspection.Oldest | None
) -> Iterator[Finding]:
    """Check that dead rows are vacuumed, since they slow down each take."""
    if settings["autovacuum"] == "off":
        message = "autovacuum is off: the tables only grow"
        yield Finding("fail", "vacuum", message, "ALTER SYSTEM SET autovacuum = on, and reload")
    if tables.untended:
        message = f"autovacuum is disabled for: {', '.join(tables.untended[:NAMED_MAX])}"
        yield Finding("warn", "vacuum", message, "ALTER TABLE ... RESET (autovacuum_enabled)")
    if oldest is not None and oldest.seconds >= OLDEST_WARN_S:
        level: Level = "fail" if oldest.seconds >= OLDEST_FAIL_S else "warn"
        message = f"{oldest.who}, has prevented the removal of dead rows for {oldest.seconds:,.0f} s"
        yield Finding(
            level, "vacuum", message, "end it with pg_terminate_backend(), or finish the prepared transaction"
        )
    elif settings["autovacuum"] != "off" and not tables.untended:
        yield Finding("ok", "vacuum", "autovacuum is on, and no transaction is old")
