"""A newer server on tables that older ones use: an upgrade without downtime, and one that requires it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server as WholeServer
from bedrockjobs.store.base import StoreBroken
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.connect_checks import start_fault
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.schema import Step, TooOld
from bedrockjobs.store.postgresql.transfer import BulkSession
from bedrockjobs.store.schema import SchemaError
from tests.conftest import begin
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import Server
from tests.protocol.talk import DEADLINE_S

NAME = "upgraded"
NOW = schema.VERSION
OLDEST = schema.STEPS[-1].needs
"""The oldest servers that may share new tables."""
ADDED = Step(
    NOW + 1,
    NOW,
    """ALTER TABLE jobs ADD COLUMN colour text COLLATE "C" NOT NULL DEFAULT 'red';
    ALTER TABLE control ADD COLUMN more bigint NOT NULL DEFAULT 0;
    CREATE TABLE colours (colour text PRIMARY KEY)""",
)
"""What a made-up next version brings, which this one need not know."""
TAKEN_AWAY = Step(NOW + 2, NOW + 1, "DROP TABLE colours")

Beside = Callable[[Callable[[], Any]], "Future[Any]"]


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Make new tables of this version."""
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {NAME} CASCADE")
    opened().store.close()
    yield
    CLUSTER.do(f"DROP SCHEMA {NAME} CASCADE")


def opened() -> Server:
    """Start a server without a network."""
    return Server(PostgreSQLEngine(CLUSTER.url, SystemClock(), name=NAME), "document")


@contextmanager
def newer(*steps: Step) -> Iterator[None]:
    """Simulate a version with more migration steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "VERSION", steps[-1].version)
        patch.setattr(schema, "STEPS", steps)
        yield


def versions() -> list[Any]:
    """Return the version of the tables, and the oldest server version that may use them."""
    with psycopg.connect(CLUSTER.url, options=f"-c search_path={NAME}") as connection:
        return connection.execute(
            "SELECT version, value::int FROM control, meta WHERE key = 'schemaVersion'"
        ).fetchall()


def lifecycle(server: Server, name: str = "old") -> None:
    """Create, take and finish two jobs of a name that no other server asks for, one with a run."""
    server.do(c.CreateJob, name=name)
    job = server.do(c.GetJob, name=name)
    assert server.do(c.FinishJob, jobID=job["jobID"]) is None
    server.do(c.CreateJob, name=f"{name}/run", data={"k": 1}, retries=1)
    taken = server.do(c.GetJob, name=f"{name}*", worker="w")
    assert server.do(c.FinishJob, jobID=taken["jobID"], runID=taken["runID"]) is None


def test_an_older_server_goes_on_while_a_newer_one_adds_to_the_tables(beside: Beside) -> None:
    old = opened()
    lifecycle(old)
    begun, ends = threading.Event(), threading.Event()

    def work() -> int:
        done = 0
        while not ends.is_set():
            lifecycle(old)
            done += 1
            begun.set()
        return done

    working = beside(work)
    try:
        assert begun.wait(DEADLINE_S)
        with newer(ADDED):
            new = opened()
            for _ in range(3):
                lifecycle(new, "new")
            new.store.close()
        begun.clear()
        assert begun.wait(DEADLINE_S), "the old one does not go on"
    finally:
        ends.set()
    assert working.result(DEADLINE_S) > 1
    assert versions() == [(NOW + 1, NOW)]
    old.store.close()
    again = opened()  # also one of the old version that starts now
    lifecycle(again)
    again.store.close()


def test_the_tables_wait_for_open_units(beside: Beside) -> None:
    old = opened()
    old.opened(c.CreateJob(name="a"))
    with newer(ADDED):
        starting = beside(opened)
        with psycopg.connect(CLUSTER.url, autocommit=True) as watcher:
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while watcher.execute(waits).fetchone() != (1,):
                assert not starting.done()
        assert versions() == [(NOW, OLDEST)]
        old.commit()
        starting.result(DEADLINE_S).store.close()
    assert versions() == [(NOW + 1, NOW)]
    old.store.close()


async def test_what_living_servers_do_not_understand_is_not_done() -> None:
    async with AsyncExitStack() as stack:
        settings = Settings(port=0, server_name="a", database=CLUSTER.url, database_schema=NAME)
        server = WholeServer(settings)
        await begin(server)
        stack.push_async_callback(server.stop)
        words = f"version {NOW}; {NOW + 2} is not supported by live servers: a. Stop them first"
        with newer(ADDED, TAKEN_AWAY):
            with pytest.raises(SchemaError, match=words) as told:
                opened()
            assert start_fault(told.value).status == 78
        assert versions() == [(NOW, OLDEST)]
    with newer(ADDED, TAKEN_AWAY):
        opened().store.close()
    assert versions() == [(NOW + 2, NOW + 1)]


async def test_a_version_between_may_be_upgraded_without_a_stop() -> None:
    """The removed parts are no longer used by the previous version, which is still running."""
    async with AsyncExitStack() as stack:
        stack.enter_context(newer(ADDED, TAKEN_AWAY))
        with newer(ADDED):
            settings = Settings(port=0, server_name="a", database=CLUSTER.url, database_schema=NAME)
            server = WholeServer(settings)
            await begin(server)
        stack.push_async_callback(server.stop)
        opened().store.close()
        assert versions() == [(NOW + 2, NOW + 1)]


def test_a_server_that_is_too_old_ends_with_a_sentence() -> None:
    asleep = opened()
    lifecycle(asleep)
    with newer(ADDED, TAKEN_AWAY):
        opened().store.close()
    words = f"needs schema version {NOW + 1}; this server supports {NOW}. Use a newer server"
    with pytest.raises(TooOld, match=words) as told:
        opened()
    assert start_fault(told.value).status == 78
    with pytest.raises(StoreBroken, match=words):
        asleep.open()
    asleep.store.close()


def test_who_only_copies_does_not_change_the_tables() -> None:
    session = BulkSession(CLUSTER.url, NAME)
    with (
        newer(ADDED),
        pytest.raises(SchemaError, match=rf"version {NOW}; this program supports {NOW + 1}\. Start a server"),
    ):
        schema.check_tables(session)
    session.close()


def test_a_new_database_has_this_version() -> None:
    assert versions() == [(NOW, OLDEST)]


OLD = [Path(__file__).with_name(f"schema_{version}.sql").read_text() for version in (4, 5)]
"""The tables of version 4, before there were tokens, and of version 5, whose keys had no names."""

COLUMNS = """SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name,
    is_identity FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, 2"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"


OLD_TABLES = (
    f'DROP TABLE {NAME}.stats; CREATE TABLE {NAME}.stats (minute text COLLATE "C" NOT NULL PRIMARY KEY,'
    " created bigint NOT NULL, taken bigint NOT NULL, finished bigint NOT NULL, failed bigint NOT NULL,"
    " retried bigint NOT NULL, lost bigint NOT NULL, waits bigint NOT NULL, waitMs bigint NOT NULL);"
    f" ALTER TABLE {NAME}.workers DROP COLUMN by; DROP TABLE {NAME}.paced;"
)
"""The counters before version 10, the workers before 11, and no token buckets before 13."""


def made_of() -> list[Any]:
    """Return the columns and the indexes of the tables."""
    with psycopg.connect(CLUSTER.url, options=f"-c search_path={NAME}") as connection:
        return [connection.execute(sql).fetchall() for sql in (COLUMNS, INDEXES)]


@pytest.mark.parametrize("old", OLD, ids=["4", "5"])
def test_tables_of_older_versions_become_those_of_a_new_database(old: str) -> None:
    new = made_of()
    CLUSTER.do(f"DROP SCHEMA {NAME} CASCADE")
    CLUSTER.do(f"CREATE SCHEMA {NAME}")
    with psycopg.connect(CLUSTER.url, options=f"-c search_path={NAME}") as connection:
        connection.execute(old)
    server = opened()
    lifecycle(server)
    server.store.close()
    assert made_of() == new
    assert versions() == [(NOW, OLDEST)]


def test_tables_of_version_6_get_the_index_of_the_keys_of_jobs_and_the_inbox() -> None:
    index = f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{NAME}' ORDER BY indexname"
    with psycopg.connect(CLUSTER.url) as connection:
        before = connection.execute(index).fetchall()
    CLUSTER.do(
        f"DROP INDEX {NAME}.keysByJob; DROP TABLE {NAME}.inbox;"
        f"DROP TABLE {NAME}.workflows, {NAME}.workflowJobs, {NAME}.workflowEdges; {OLD_TABLES}"
        f"UPDATE {NAME}.control SET version = 6;"
        f"UPDATE {NAME}.meta SET value = '6' WHERE key = 'schemaVersion'"
    )
    old = opened()
    job_id = old.do(c.CreateJob, name="a", uniqueKey="k")["jobID"]
    assert old.do(c.QueryJob, jobID=job_id)["uniqueKey"] == "k"
    old.store.close()
    with psycopg.connect(CLUSTER.url) as connection:
        assert connection.execute(index).fetchall() == before
    assert versions()[0][0] == NOW


def test_jobs_of_version_8_go_on_with_workflows() -> None:
    new = made_of()
    old = opened()
    ids = {name: old.do(c.CreateJob, name=name)["jobID"] for name in ("plain", "running", "parent")}
    ids["cron"] = old.do(c.CreateJob, name="cron", repeat="CRON @daily")["jobID"]
    running = old.do(c.GetJob, name="running", worker="w")
    old.do(c.GetJob, name="parent")
    ids["child"] = old.do(c.CreateJob, name="child", parentJobID=ids["parent"])["jobID"]
    old.do(c.FinishJob, jobID=ids["parent"])
    old.store.close()
    CLUSTER.do(
        f"DROP TABLE {NAME}.workflows, {NAME}.workflowJobs, {NAME}.workflowEdges; {OLD_TABLES}"
        f"UPDATE {NAME}.control SET version = 8;"
        f"UPDATE {NAME}.meta SET value = '6' WHERE key = 'schemaVersion'"
    )
    server = opened()
    assert versions() == [(NOW, OLDEST)]
    assert made_of() == new
    server.do(c.FinishJob, jobID=ids["running"], runID=running["runID"])
    for name in ("plain", "child", "parent"):
        assert server.do(c.GetJob, name=name)["jobID"] == ids[name]
        server.do(c.FinishJob, jobID=ids[name])
    server.do(c.UpdateJob, jobID=ids["cron"], repeat="CRON * * * * *", nextRun="2020-01-01 00:00:00")
    assert server.do(c.GetJob, name="cron")["jobID"] == ids["cron"]
    jobs = [{"ref": "a", "name": "a"}, {"ref": "b", "name": "b", "after": ["a"]}]
    made = server.do(c.CreateWorkflow, name="w", jobs=jobs)
    for ref in ("a", "b"):
        assert server.do(c.GetJob, name=ref)["jobID"] == made["jobIDs"][ref]
        server.do(c.FinishJob, jobID=made["jobIDs"][ref])
    server.store.close()
    with psycopg.connect(CLUSTER.url) as connection:
        assert connection.execute(f"SELECT state FROM {NAME}.workflows").fetchall() == [("FINISHED",)]
