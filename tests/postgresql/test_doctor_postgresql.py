"""`bedrockjobs doctor` on a PostgreSQL database: its findings and its advice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import doctor_postgresql as doctor
from bedrockjobs.cli.doctor import Finding, ServerStatus, database_of, postgresql_findings
from bedrockjobs.store.postgresql import inspection
from bedrockjobs.store.postgresql.inspection import Oldest, StandbyInfo, Tables
from bedrockjobs.store.postgresql.schema import SIGNATURE, VERSION
from bedrockjobs.store.postgresql.session import DatabaseSession
from bedrockjobs.store.postgresql.transfer import TransferDatabase, install_functions
from tests.postgresql.cluster import CLUSTER, SCHEMA, free_port

WELL = {"fsync": "on", "full_page_writes": "on", "synchronous_standby_names": "", "autovacuum": "on"}
OURS = Tables(str(VERSION), [], [], [], [], [])
ADD_RUN = (
    "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker)"
    " VALUES ({}, {}, '', 1, '', '', '', '')"
)


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Yield settings that name an empty database, to which other roles may not connect."""
    CLUSTER.empty(SCHEMA)
    CLUSTER.do("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
    yield Settings(database=CLUSTER.url, database_schema=SCHEMA)
    CLUSTER.do("GRANT CONNECT ON DATABASE postgres TO PUBLIC")


def do(*statements: str) -> None:
    """Change the database by hand."""
    with CLUSTER.connection(SCHEMA) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def changed(change: str, back: str) -> Iterator[None]:
    """Change the database by hand, and change it back."""
    do(change)
    try:
        yield
    finally:
        do(back)


def wrong(found: Iterator[Finding]) -> list[tuple[str, str, str]]:
    """Return the findings other than ok: level, check and text."""
    return [(one.level, one.check, one.message) for one in found if one.level != "ok"]


def test_a_database_that_is_well_gets_ok_from_every_check(settings: Settings) -> None:
    found = list(doctor.findings(settings, None))
    assert [(one.level, one.check) for one in found] == [
        ("ok", "database"),
        ("ok", "schema"),
        ("ok", "standbys"),
        ("ok", "vacuum"),
        ("ok", "connect"),
        ("ok", "listen"),
    ]
    assert "UTF8" in found[0].message
    assert found[1].message == f"version {VERSION} in {SCHEMA}, as expected"


def test_roles_that_may_connect_for_nothing_are_named(settings: Settings) -> None:
    with (
        changed("CREATE ROLE stranger LOGIN", "DROP ROLE stranger"),
        changed(
            "GRANT CONNECT ON DATABASE postgres TO stranger", "REVOKE ALL ON DATABASE postgres FROM stranger"
        ),
    ):
        assert wrong(doctor.findings(settings, None)) == [
            ("warn", "connect", "stranger may connect without a right to the tables")
        ]
        with changed(
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO stranger", f"REVOKE ALL ON SCHEMA {SCHEMA} FROM stranger"
        ):
            assert not wrong(doctor.findings(settings, None))
        install_functions(TransferDatabase(CLUSTER.url, SCHEMA))
        try:
            assert wrong(doctor.findings(settings, None))
            CLUSTER.do(f"GRANT EXECUTE ON FUNCTION {SCHEMA}.{SIGNATURE} TO stranger")
            assert not wrong(doctor.findings(settings, None))
        finally:
            CLUSTER.do(f"DROP FUNCTION {SCHEMA}.{SIGNATURE}; REVOKE USAGE ON SCHEMA {SCHEMA} FROM PUBLIC")


def known_to_citus(table: str, method: str, model: str, colocation: int) -> str:
    """Return SQL that makes a table look as if Citus managed it: distributed, reference or local."""
    return (
        f"CREATE TABLE pg_dist_partition AS SELECT '{table}'::regclass AS logicalrelid,"
        f" '{method}' AS partmethod, '{model}' AS repmodel, {colocation} AS colocationid"
    )


FORGET = "DROP TABLE pg_dist_partition"

BY_HAND = {
    "jobsholding is missing; old is unexpected": (
        "ALTER INDEX jobsHolding RENAME TO old",
        "ALTER INDEX old RENAME TO jobsHolding",
    ),
    "mine is unexpected": ("CREATE TABLE mine (x int PRIMARY KEY)", "DROP TABLE mine"),
    f"version 99; this program supports {VERSION}": (
        "UPDATE meta SET value = '99' WHERE key = 'schemaVersion'",
        f"UPDATE meta SET value = '{VERSION}' WHERE key = 'schemaVersion'",
    ),
    "the index jobsmocked is invalid": (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobsmocked'::regclass",
        "UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'jobsmocked'::regclass",
    ),
    "pg_dist_partition is unexpected; jobs is distributed": (known_to_citus("jobs", "h", "c", 1), FORGET),
    "pg_dist_partition is unexpected; runs is distributed": (known_to_citus("runs", "n", "t", 2), FORGET),
    "pg_dist_partition is unexpected": (known_to_citus("jobs", "n", "s", 0), FORGET),
    "jobIDs is at 7, but 7 is taken": (
        f"SELECT setval('jobIDs', 7, false), setval('runIDs', 9); {ADD_RUN.format(1, 7)}",
        "DELETE FROM runs",
    ),
    "runIDs is at 1, but 4 is taken": (ADD_RUN.format(4, 0), "DELETE FROM runs"),
    "events_seq_seq is at 1, but 3 is taken": (
        "SELECT setval('events_seq_seq', 1, false); INSERT INTO events (seq, at, kind) VALUES (3, '', '')",
        "DELETE FROM events",
    ),
}
"""The finding, a manual change that causes it, and the change that undoes it."""


@pytest.mark.parametrize("words", BY_HAND)
def test_what_was_changed_by_hand_is_found(settings: Settings, words: str) -> None:
    with changed(*BY_HAND[words]):
        assert wrong(doctor.findings(settings, None)) == [("fail", "schema", words)]


def test_many_differences_are_not_all_named() -> None:
    many = OURS._replace(missing=[f"x{number}" for number in range(doctor.NAMED_MAX + 3)])
    ((_, _, words),) = wrong(doctor.check_tables(many, SCHEMA))
    assert words.endswith(f"x{doctor.NAMED_MAX - 1} is missing; and 3 more")


def test_a_schema_without_tables_is_said_to_be_empty(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"database_schema": "nowhere"})
    (found,) = wrong(doctor.findings(elsewhere, None))
    assert found == ("fail", "schema", "there are no tables of bedrockjobs in the schema nowhere")


def test_a_table_that_autovacuum_leaves_alone_is_named(settings: Settings) -> None:
    with changed(
        "ALTER TABLE ticks SET (autovacuum_enabled = off)", "ALTER TABLE ticks RESET (autovacuum_enabled)"
    ):
        assert wrong(doctor.findings(settings, None)) == [
            ("warn", "vacuum", "autovacuum is disabled for: ticks")
        ]


def test_who_keeps_rows_from_being_removed_is_found(settings: Settings) -> None:
    session = DatabaseSession(settings.database, SCHEMA)
    with psycopg.connect(settings.database) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        found = inspection.oldest_of(session)
        assert found is not None
        assert found.who == f"process {other.info.backend_pid} of tester, idle in transaction"
        assert 0 <= found.seconds < doctor.OLDEST_WARN_S
    assert inspection.oldest_of(session) is None
    session.close()


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(doctor.OLDEST_WARN_S - 1, None), (doctor.OLDEST_WARN_S, "warn"), (doctor.OLDEST_FAIL_S, "fail")],
)
def test_an_old_transaction_is_told(seconds: float, level: str | None) -> None:
    found = wrong(doctor.check_vacuum(WELL, OURS, Oldest("process 7", seconds)))
    assert [(one, check) for one, check, _ in found] == ([(level, "vacuum")] if level else [])


SYNC, ASYNC, UNSEEN = (
    StandbyInfo("s", "streaming", "sync"),
    StandbyInfo("s", "streaming", "async"),
    StandbyInfo("", "", ""),
)


@pytest.mark.parametrize(
    ("change", "standbys", "durability", "expected"),
    [
        ({}, [], "full", []),
        ({}, [ASYNC, SYNC], "replicated", []),
        ({"fsync": "off"}, [], "full", [("fail", "disk")]),
        ({"full_page_writes": "off"}, [], "full", [("fail", "disk")]),
        ({"synchronous_standby_names": "s"}, [ASYNC], "full", [("fail", "standbys")]),
        ({"synchronous_standby_names": "s"}, [ASYNC], "relaxed", []),
        ({}, [ASYNC], "replicated", [("fail", "standbys")]),
        ({}, [UNSEEN], "full", [("warn", "standbys")]),
    ],
)
def test_standbys_are_compared_with_what_is_promised(
    change: dict[str, str], standbys: list[StandbyInfo], durability: str, expected: list[tuple[str, str]]
) -> None:
    found = wrong(doctor.check_durability({**WELL, **change}, standbys, durability))
    assert [(level, check) for level, check, _ in found] == expected


def test_autovacuum_that_is_off_is_a_failure() -> None:
    (found,) = wrong(doctor.check_vacuum({**WELL, "autovacuum": "off"}, OURS, None))
    assert found[:2] == ("fail", "vacuum")


def test_a_database_of_another_encoding_or_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session = DatabaseSession(CLUSTER.url, SCHEMA)
    monkeypatch.setattr(DatabaseSession, "server_encoding", "LATIN1")
    assert wrong(doctor.check_version(session))[0][:2] == ("fail", "database")
    monkeypatch.setattr(DatabaseSession, "server_version", 130_011)
    ((level, _, words),) = wrong(doctor.check_version(session))
    assert (level, words) == ("fail", "PostgreSQL 13.11; 14 or newer is needed")
    session.close()


def test_a_standby_is_no_database_to_serve(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "is_standby", lambda session: True)
    (found,) = wrong(doctor.findings(settings, None))
    assert found[:2] == ("fail", "database")


# --- which database --------------------------------------------------------------------------------------


def test_one_that_cannot_be_reached_is_a_finding() -> None:
    away = Settings(database=f"postgresql://me:secret@127.0.0.1:{free_port()}/jobs")
    (found,) = wrong(doctor.findings(away, None))
    assert found[:2] == ("fail", "database")
    assert "refused" in found[2]
    assert "secret" not in found[2]


def test_it_is_looked_at_where_the_server_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEDROCKJOBS_DATABASE", raising=False)
    monkeypatch.setenv("BEDROCKJOBS_DATABASE_SCHEMA", SCHEMA)
    server = ServerStatus({"database": CLUSTER.url, "durability": "full", "pid": 1}, SystemClock().now(), 0)
    told = database_of(None, server)
    assert not wrong(postgresql_findings(told, server, scrub=False))
    assert wrong(postgresql_findings(told, server, scrub=True)) == [
        ("warn", "damage", "--scrub is for files")
    ]


def test_a_password_that_the_server_hides_is_asked_for() -> None:
    for url in ("postgresql://me:***@host/jobs", "postgresql://host/jobs?user=me&password=***"):
        (found,) = postgresql_findings(Settings(database=url), None, scrub=False)
        assert (found.level, found.check) == ("warn", "database")
        assert "BEDROCKJOBS_DATABASE" in found.advice


def test_without_the_driver_it_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bedrockjobs.cli.doctor_postgresql", "bedrockjobs.store.postgresql.session"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("bedrockjobs.cli.doctor_postgresql", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    (found,) = postgresql_findings(settings, None, scrub=False)
    assert found.advice == "pip install 'bedrockjobs[postgresql]'"


def test_a_url_that_leads_nowhere_is_told() -> None:
    nowhere = f"postgresql://tester:secret@127.0.0.1:{free_port()}/postgres"
    ((level, check, words),) = wrong(doctor.check_listening(Settings(database_direct=nowhere)))
    assert (level, check) == ("fail", "listen")
    assert words.startswith("cannot connect to the URL of database_direct: ")
    assert "secret" not in words
