"""A connection to PostgreSQL: the meaning of its errors, its limits, and a commit without a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.config import (
    LOCK_WAIT_S_MAX,
    OUTCOME_S_MAX,
    PG_ANSWER_S_MAX,
    PG_CONNECT_S_MAX,
    TAKEN_AT_ONCE,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.outage import Health
from bedrockjobs.store.base import (
    StoreAway,
    StoreBroken,
    StoreBusy,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from bedrockjobs.store.postgresql import engine
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.schema import VERSION
from bedrockjobs.store.postgresql.session import DatabaseSession, OutcomeUnknown, PatientConnection, fault_of
from bedrockjobs.store.schema import SchemaError
from tests.postgresql.cluster import CLUSTER, SCHEMA, free_port
from tests.postgresql.conftest import Server

SESSION_KEPT_S = 86_400

Servers = Callable[[int], list[Server]]


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.errors.DiskFull, StoreFull),
        (psycopg.errors.DeadlockDetected, StoreConflict),
        (psycopg.errors.LockNotAvailable, StoreConflict),
        (psycopg.errors.ReadOnlySqlTransaction, StoreAway),
        (psycopg.errors.TooManyConnections, StoreBusy),
        (psycopg.errors.AdminShutdown, StoreAway),
        (psycopg.errors.CannotConnectNow, StoreAway),
        (psycopg.errors.DataCorrupted, StoreDamaged),
        (psycopg.errors.UndefinedTable, StoreError),
        (psycopg.OperationalError, StoreAway),
        (StoreFull, StoreFull),
        (ValueError, type(None)),
    ],
)
def test_each_error_has_a_meaning(error: type[Exception], meaning: type[Exception]) -> None:
    assert type(fault_of(error("x"))) is meaning


def test_no_error_of_the_driver_leaves_the_store(servers: Servers) -> None:
    (one,) = servers(1)
    with pytest.raises(StoreError, match="does not exist"):
        one.store.session.run_statements([("SELECT 1 FROM nothing", ())])
    with pytest.raises(StoreError, match="syntax"):
        one.store.session.script("SELECT FROM WHERE")
    assert one.value("SELECT 1") == 1


def test_a_character_that_cannot_be_stored_is_replaced(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a")
    one.do(c.GetJob, name="a", worker="w", heartbeat=True)
    one.do(c.AppendOutput, runID=1, seq=1, lines=["x\0y"])
    one.do(c.FailJob, jobID=1, error="no\0")
    assert one.value("SELECT error || output FROM runs") == 'no\ufffd["x\ufffdy"]'


def test_a_database_that_is_not_there_is_away() -> None:
    with pytest.raises(StoreAway, match="refused"):
        DatabaseSession(f"postgresql://tester@127.0.0.1:{free_port()}/postgres", SCHEMA)


def test_connecting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def connect(_: str, **more: Any) -> None:
        given.update(more)
        raise psycopg.OperationalError("timeout expired")

    monkeypatch.setattr(PatientConnection, "connect", connect)
    with pytest.raises(StoreAway, match="timeout"):
        DatabaseSession("postgresql://127.0.0.1", SCHEMA)
    assert given["connect_timeout"] == PG_CONNECT_S_MAX


def test_waiting_and_standing_still_have_limits(servers: Servers) -> None:
    (one,) = servers(1)
    assert one.value("SHOW lock_timeout") == f"{LOCK_WAIT_S_MAX}s"
    assert one.value("SHOW statement_timeout") == f"{PG_ANSWER_S_MAX}s"
    assert one.value("SHOW idle_in_transaction_session_timeout") == f"{Settings().unit_s_max:.0f}s"


def test_the_schema_of_another_version_is_refused(servers: Servers) -> None:
    (one,) = servers(1)
    change = "UPDATE meta SET value = $1 WHERE key = 'schemaVersion'"
    one.store.session.run_statements([(change, (str(VERSION + 1),))])
    try:
        with pytest.raises(
            SchemaError, match=f"schema version {VERSION + 1}; this server supports {VERSION}"
        ):
            CLUSTER.another()
    finally:
        one.store.session.run_statements([(change, (str(VERSION),))])


def test_a_database_of_another_encoding_is_refused(servers: Servers) -> None:
    (one,) = servers(1)
    one.store.session.script("DROP DATABASE IF EXISTS latin")
    one.store.session.script(
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    with pytest.raises(SchemaError, match="encoding LATIN1; this server needs UTF8"):
        PostgreSQLEngine(CLUSTER.url.replace("/postgres", "/latin"))


def test_the_name_of_a_schema_is_checked() -> None:
    with pytest.raises(ValueError, match="schema: expected"):
        PostgreSQLEngine(CLUSTER.url, name='a"; DROP TABLE jobs')


# --- round trips -----------------------------------------------------------------------------------------


def test_a_unit_of_planned_commands_takes_two_round_trips(servers: Servers) -> None:
    (one,) = servers(1)
    for _ in range(4):
        one.do(c.CreateJob, name="a")
    one.do(c.GetJobs, name="a", numResults=2)
    before = one.store.session.round_trips
    one.opened(
        c.CreateJob(name="b"),
        c.GetJob(name="a"),
        c.FinishJob(job_id=1),
        c.FinishJob(job_id=2),
        c.GetJob(name="a"),
    )
    one.commit()
    assert one.store.session.round_trips - before == 2
    assert one.value("SELECT count(*) FROM jobs") == 3


def test_so_does_one_of_workers_with_runs_and_output_names_and_keys(servers: Servers) -> None:
    (one,) = servers(1)
    for _ in range(3):
        one.do(c.CreateJob, name="a")
    for run_id in (1, 2):
        one.do(c.GetJob, name="a", worker="w", heartbeat=True)
        one.do(c.AppendOutput, runID=run_id, seq=1, lines=["x"])
    one.do(c.CreateJob, name="first")
    one.do(c.GetJob, name="first")
    one.do(c.FailJob, jobID=4)  # from now on it knows what is muted
    before = one.store.session.round_trips
    one.opened(
        c.FinishJob(job_id=1, run_id=1, then_get="a", worker="w"),
        c.FailJob(job_id=2, run_id=2),
        c.CreateJob(name="b", unique=True, idempotency_key="k"),
        c.CreateJob(name="b", unique=True, idempotency_key="k"),
    )
    one.commit()
    assert one.store.session.round_trips - before == 2
    assert one.value("SELECT string_agg(status || output, ' ' ORDER BY runID) FROM runs") == (
        'success["x"] fail["x"] running[]'
    )


def test_takes_that_no_plan_foresaw_share_round_trips(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJobs, jobs=[{"name": "a"}] * (TAKEN_AT_ONCE + 1))
    one.do(c.GetJob, name="a")  # from now on it knows pauses and the crash list
    before = one.store.session.round_trips
    context = one.open(*[c.CreateJob(name="b")])
    for _ in range(TAKEN_AT_ONCE):
        assert one.take(context, "a") is not None
    one.commit()
    assert one.store.session.round_trips - before == 3


def test_a_take_looks_on_where_a_job_of_its_own_unit_would_come_later(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJobs, jobs=[{"name": "a"}] * (TAKEN_AT_ONCE + 2))
    context = one.opened(c.CreateJob(name="a", job_priority=0))
    taken = [one.take(context, "a") for _ in range(TAKEN_AT_ONCE + 4)]
    found = [answer.taken[0].before.job_id for answer in taken if answer is not None]
    assert found == list(range(1, TAKEN_AT_ONCE + 4))
    one.commit()


# --- a commit that nobody answers ------------------------------------------------------------------------


@contextmanager
def answer_lost(one: Server, *, done: bool) -> Iterator[None]:
    """Break the connection at the next commit, after or before it."""
    session = one.store.session
    commit = session.commit

    def cut(statements: Any) -> Any:
        session.commit = commit
        if done:
            commit(statements)
        session.close()
        raise StoreAway("the connection is lost")

    session.commit = cut
    yield
    session.commit = commit


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_is_asked_for(done: bool, servers: Servers) -> None:
    one, watcher = servers(2)
    one.do(c.CreateJob, name="a")
    one.opened(c.CreateJob(name="b"))
    with answer_lost(one, done=done):
        if done:
            one.commit()
        else:
            with pytest.raises(StoreAway):
                one.commit()
            one.store.rollback()
    assert watcher.value("SELECT count(*) FROM jobs WHERE name = 'b'") == done
    assert one.do(c.CreateJob, name="c") == {"jobID": 3 if done else 2}


def test_a_unit_that_arrives_after_it_was_asked_for_is_refused(servers: Servers) -> None:
    """Sent bytes may wait in a buffer while the server reconnects and repeats the unit."""
    one, watcher = servers(2)
    one.opened(c.CreateJob(name="b"))
    session = one.store.session
    late: list[Any] = []
    commit = session.commit

    def hold(statements: Any) -> Any:
        late.extend(statements)
        session.commit = commit
        late_connection.append(session._connection)
        session._connection = closed
        raise StoreAway("the connection is lost")

    late_connection: list[Any] = []
    closed = psycopg.connect(CLUSTER.url)
    closed.close()
    session.commit = hold
    with pytest.raises(StoreAway):
        one.commit()
    one.store.rollback()
    assert one.do(c.CreateJob, name="b") == {"jobID": 1}
    (note,) = [statement for statement in late if "sessions" in statement[0]]
    with late_connection[0] as old, pytest.raises(psycopg.errors.CheckViolation):
        psycopg.RawCursor(old).execute(*note)
    assert watcher.value("SELECT count(*) FROM jobs") == 1


def test_a_commit_behind_a_failure_is_none(servers: Servers) -> None:
    (one,) = servers(1)
    one.opened(c.CreateJob(name="b"))
    with pytest.raises(StoreError, match="does not exist"):
        one.store.session.run_statements([("SELECT 1 FROM nothing", ())])
    with pytest.raises(StoreError):
        one.commit()
    one.store.rollback()
    one.open()
    with pytest.raises(StoreError, match="does not exist"):
        one.store.session.run_statements([("SELECT 1 FROM nothing", ())])
    with pytest.raises(StoreError, match="had failed before"):
        one.commit()
    one.store.rollback()
    assert one.do(c.CreateJob, name="c") == {"jobID": 1}


def test_where_nobody_can_be_asked_nobody_knows(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = servers(1)
    one.opened(c.CreateJob(name="b"))
    monkeypatch.setattr(engine, "OUTCOME_S_MAX", OUTCOME_S_MAX / 6000)

    health, problems = Health(one.store, one.clock), []

    def away(*_: Any, **__: Any) -> None:
        problems.append(health.problem)
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(PatientConnection, "connect", away)
    with answer_lost(one, done=True), pytest.raises(OutcomeUnknown) as told:
        one.commit()
    assert isinstance(told.value, StoreBroken)
    assert problems
    assert all(problem.startswith("database away") for problem in problems), "it is not ready meanwhile"
    assert health.problem == ""


def test_the_session_of_a_server_that_was_killed_is_forgotten_one_day(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    add = "INSERT INTO sessions (session, unit, at) VALUES ($1, 1, $2)"
    now = one.clock.now()
    for name, age_s in (("old", SESSION_KEPT_S + 1), ("young", SESSION_KEPT_S - 1)):
        one.store.session.run_statements([(add, (name, timestamp_ms(now - timedelta(seconds=age_s))))])
    other.store.close()
    kept = "SELECT count(*) FROM sessions WHERE session = $1"
    assert one.value(kept, "old") == 0
    assert one.value(kept, "young") == 1
    one.store.session.run_statements([("DELETE FROM sessions WHERE session = 'young'", ())])


def test_a_connection_that_broke_between_units_is_made_anew(servers: Servers) -> None:
    one, watcher = servers(2)
    one.do(c.CreateJob, name="a")
    watcher.value(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    with pytest.raises(StoreAway):
        one.open()
    one.store.rollback()
    assert one.do(c.GetJob, name="a")["jobID"] == 1
