"""``enqueue(connection=...)``: jobs in the open transaction of each supported library."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from bedrock_worker import job
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from bedrockjobs import InvalidCommand
from bedrockjobs.base.errors import InvalidArgument
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import CreateJob
from bedrockjobs.outbox import Outbox, OutboxRelay
from bedrockjobs.store.outbox import OutboxTable, connect, table_sql
from bedrockjobs.store.postgresql.schema import SIGNATURE
from bedrockjobs.testing import capture
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import ROLE, application

pytestmark = pytest.mark.usefixtures("sql_function")


@pytest.fixture(autouse=True)
def schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the functions of the tests use the schema of the tests."""
    monkeypatch.setenv("BEDROCKJOBS_DATABASE_SCHEMA", SCHEMA)


@job("image/resize", retries=3)
def resize(width: int, note: str = "") -> int:
    return width


def stored() -> list[tuple[Any, ...]]:
    """Return what is in the inbox."""
    return CLUSTER.do(
        f"SELECT jobID, name, data::jsonb, options::jsonb, by FROM {SCHEMA}.inbox ORDER BY jobID"
    )


def url(driver: str = "") -> str:
    """Return SQLAlchemy's URL of the database."""
    parts = conninfo_to_dict(CLUSTER.url)
    return f"postgresql+{driver}://{ROLE}@{parts['host']}:{parts['port']}/{parts.get('dbname') or 'postgres'}"


@contextmanager
def engine(driver: str = "psycopg") -> Iterator[sqlalchemy.Engine]:
    """Provide an engine of SQLAlchemy."""
    made = sqlalchemy.create_engine(url(driver))
    try:
        yield made
    finally:
        made.dispose()


@contextmanager
def of_psycopg(**given: Any) -> Iterator[tuple[Any, Callable[[], object], Callable[[], object]]]:
    """Provide a connection of psycopg, its commit and its rollback."""
    with closing(psycopg.connect(CLUSTER.url, user=ROLE, **given)) as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def of_sqlalchemy(kind: Callable[[sqlalchemy.Engine], Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Provide a connection or session of SQLAlchemy."""
    with engine() as made, closing(kind(made)) as connection:
        yield connection, connection.commit, connection.rollback


class OwnSession(Session):
    """A session of the application's own class."""


@contextmanager
def of_django() -> Iterator[tuple[Any, Any, Any]]:
    """Provide a connection of Django."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    from django.db.utils import ConnectionHandler

    parts = conninfo_to_dict(CLUSTER.url)
    handler = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.get("dbname") or "postgres",
                "USER": ROLE,
                "HOST": parts["host"],
                "PORT": parts["port"],
            }
        }
    )
    connection = handler["default"]
    connection.set_autocommit(False)
    try:
        yield connection, connection.commit, connection.rollback
    finally:
        connection.close()


BLOCKING: dict[str, Callable[[], AbstractContextManager[tuple[Any, Any, Any]]]] = {
    "psycopg": of_psycopg,
    "psycopg, dict_row": lambda: of_psycopg(row_factory=dict_row),
    "psycopg, namedtuple_row": lambda: of_psycopg(row_factory=namedtuple_row),
    "psycopg, scalar_row": lambda: of_psycopg(row_factory=scalar_row),
    "SQLAlchemy, Connection": lambda: of_sqlalchemy(sqlalchemy.Engine.connect),
    "SQLAlchemy, Session": lambda: of_sqlalchemy(Session),
    "SQLAlchemy, own class": lambda: of_sqlalchemy(OwnSession),
    "SQLAlchemy, scoped_session": lambda: of_sqlalchemy(lambda made: scoped_session(sessionmaker(made))),
    "Django": of_django,
}


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_job_is_part_of_the_transaction(kind: str) -> None:
    with BLOCKING[kind]() as (connection, commit, rollback):
        resize.enqueue(1, connection=connection)
        rollback()
        handle = resize.using(connection=connection, delay="1h").enqueue(800, note='it\'s "x" %s :a $1')
        assert stored() == []
        commit()
    ((job_id, name, data, options, by),) = stored()
    assert (handle.job_id, handle.created) == (job_id, True)
    assert (name, data, by) == ("image/resize", {"width": 800, "note": 'it\'s "x" %s :a $1'}, ROLE)
    assert options == {"retries": 3, "keep": 3600, "firstRun": options["firstRun"]}


@asynccontextmanager
async def of_async_psycopg() -> AsyncIterator[tuple[Any, Any, Any]]:
    """Provide an asynchronous connection of psycopg."""
    connection = await psycopg.AsyncConnection.connect(CLUSTER.url, user=ROLE)
    try:
        yield connection, connection.commit, connection.rollback
    finally:
        await connection.close()


@asynccontextmanager
async def of_asyncpg(*, pooled: bool) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Provide a connection of asyncpg with an open transaction."""
    dsn = url("x").replace("+x", "")
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1) if pooled else None
    connection: Any = await (pool.acquire() if pool else asyncpg.connect(dsn))
    try:
        await connection.execute("BEGIN")

        async def again(word: str) -> None:
            await connection.execute(word)
            await connection.execute("BEGIN")

        yield connection, lambda: again("COMMIT"), lambda: again("ROLLBACK")
    finally:
        await connection.execute("ROLLBACK")
        if pool:
            await pool.release(connection)
            await pool.close()
        else:
            await connection.close()


@asynccontextmanager
async def of_async_sqlalchemy(driver: str, kind: Callable[[Any], Any]) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Provide an asynchronous connection or session of SQLAlchemy."""
    made = create_async_engine(url(driver))
    try:
        async with kind(made) as connection:
            yield connection, connection.commit, connection.rollback
    finally:
        await made.dispose()


ASYNCHRONOUS: dict[str, Callable[[], AbstractAsyncContextManager[tuple[Any, Any, Any]]]] = {
    "psycopg": of_async_psycopg,
    "asyncpg": lambda: of_asyncpg(pooled=False),
    "asyncpg, pool": lambda: of_asyncpg(pooled=True),
    "SQLAlchemy, psycopg": lambda: of_async_sqlalchemy("psycopg", AsyncSession),
    "SQLAlchemy, asyncpg": lambda: of_async_sqlalchemy("asyncpg", AsyncSession),
    "SQLAlchemy, connection": lambda: of_async_sqlalchemy("asyncpg", lambda made: made.connect()),
}


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
async def test_a_job_is_part_of_an_asynchronous_transaction(kind: str) -> None:
    async with ASYNCHRONOUS[kind]() as (connection, commit, rollback):
        await resize.aenqueue(1, connection=connection)
        await rollback()
        handles = await resize.using(connection=connection).aenqueue_many([{"width": 1}, {"width": 2}])
        await commit()
        async with AsyncClient("127.0.0.1:1") as nobody:  # nothing is sent
            await resize.using(client=nobody, connection=connection).aenqueue(3)
        await commit()
    assert [row[2]["width"] for row in stored()] == [1, 2, 3]
    assert [handle.job_id for handle in handles] == [row[0] for row in stored()[:2]]


def test_each_option_is_that_of_create_job() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    given = resize.using(
        first_run=moment, tags=["a", "b"], run_timeout="5m", unique="args", job_priority=750, note="x"
    )
    with application() as mine:
        given.enqueue(800, connection=mine)
        resize.using(first_run=timedelta(minutes=5)).enqueue(1, connection=mine)
        mine.commit()
    first, second = (row[3] for row in stored())
    assert first.pop("uniqueKey").endswith('resize:{"note":"","width":800}')
    assert first == {
        "retries": 3,
        "keep": 3600,
        "firstRun": "2030-01-02 03:04:05",
        "tags": ["a", "b"],
        "runTimeout": 300,
        "jobPriority": 750,
        "note": "x",
    }
    assert second["firstRun"].startswith("+300")


def test_a_parameter_of_this_name_stays_one() -> None:
    @job("link/test")
    def link(connection: str) -> None:
        pass

    with application() as mine:
        link.using(connection=mine).enqueue(connection="slow")
        mine.commit()
    assert stored()[0][2] == {"connection": "slow"}


def test_a_captured_job_needs_no_database() -> None:
    with capture() as jobs:
        resize.enqueue(3, connection=object())
    jobs.assert_enqueued(resize, width=3)
    assert stored() == []


@pytest.mark.parametrize("wrong", [object(), "postgresql://x", 7], ids=lambda wrong: type(wrong).__name__)
def test_another_connection_is_refused(wrong: object) -> None:
    with pytest.raises(
        InvalidArgument, match=r"^connection: expected a connection of psycopg, .* see Outbox; got"
    ):
        resize.enqueue(1, connection=wrong)


async def test_a_schedule_takes_no_connection() -> None:
    own = resize.using(connection=sqlite3.Connection)
    words = "connection: expected none for a schedule"
    with pytest.raises(InvalidCommand, match=words):
        own.schedule("0 9 * * *", 800)
    with pytest.raises(InvalidCommand, match=words):
        await own.aschedule("0 9 * * *", 800)


def test_another_database_is_refused() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as file,
        pytest.raises(InvalidArgument, match=r"got sqlite3\.Connection"),
    ):
        resize.enqueue(1, connection=file)
    memory = sqlalchemy.create_engine("sqlite://")
    try:
        with memory.connect() as connection, pytest.raises(InvalidArgument, match="got one to sqlite"):
            resize.enqueue(1, connection=connection)
    finally:
        memory.dispose()


async def test_a_connection_of_the_other_kind_is_refused() -> None:
    with (
        application() as mine,
        pytest.raises(InvalidArgument, match="expected an asynchronous one; enqueue is for"),
    ):
        await resize.aenqueue(1, connection=mine)
    async with of_async_psycopg() as (connection, _, _):
        with pytest.raises(InvalidArgument, match="expected a blocking one; aenqueue is for"):
            resize.enqueue(1, connection=connection)


@pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy, Session", "Django"])
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            f"REVOKE EXECUTE ON FUNCTION {SCHEMA}.{SIGNATURE} FROM {ROLE}",
            "connection: the role may not execute",
        ),
        (f"ALTER FUNCTION {SCHEMA}.{SIGNATURE} RENAME TO other", "connection: the database has no function"),
        ("SELECT", "jobPriority: expected one of 0, 250"),
    ],
    ids=["no right", "no function", "bad option"],
)
def test_what_the_database_refuses_is_a_sentence(kind: str, sql: str, words: str) -> None:
    CLUSTER.do(sql)
    try:
        given = resize.using(job_priority=1000)
        with BLOCKING[kind]() as (connection, _, rollback), pytest.MonkeyPatch.context() as patch:
            if sql == "SELECT":  # the client refuses it first
                patch.setattr(
                    "bedrockjobs.commands.CreateJob.wire", lambda self: '{"name":"n","jobPriority":3}'
                )
            with pytest.raises(InvalidCommand, match=f"^{words}"):
                given.enqueue(1, connection=connection)
            rollback()
    finally:
        if "RENAME" in sql:
            CLUSTER.do(f"ALTER FUNCTION {SCHEMA}.other(text, jsonb, jsonb) RENAME TO create_job")


class Kept:
    """A client that keeps what is created."""

    def __init__(self) -> None:
        self.jobs: list[CreateJob] = []

    def call(self, command: CreateJob) -> None:
        """Keep a job."""
        self.jobs.append(command)


@pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy, Session", "Django"])
def test_an_outbox_on_postgresql_is_carried_over(kind: str) -> None:
    CLUSTER.do(f"{table_sql('postgresql')} GRANT INSERT ON bedrockjobs_outbox TO {ROLE}")
    kept = Kept()
    relay = OutboxRelay(CLUSTER.url, kept)  # type: ignore[arg-type]
    try:
        with BLOCKING[kind]() as (connection, commit, rollback):
            Outbox(connection).enqueue(resize, 1)
            rollback()
            Outbox(connection).enqueue(resize, 2, order_key="k")
            commit()
        with closing(connect(CLUSTER.url)) as own:
            assert relay.carry(OutboxTable(own)) == (1, 0, 0)
            assert relay.carry(OutboxTable(own)) == (0, 0, 0)
    finally:
        CLUSTER.do("DROP TABLE bedrockjobs_outbox")
    assert [one.data for one in kept.jobs] == ['{"width":2}']
