"""The SQL of users on PostgreSQL: what it may read, and that it can do nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from time import thread_time
from typing import Any

import pytest

from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, TimedOut, TooMany, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.reader import DIGITS_MAX, ROLE, WORK_MEM, PostgreSQLReader
from tests.pace import slowness
from tests.postgresql.cluster import CLUSTER, SCHEMA

ROWS_MAX, BYTES_MAX = 1_000, 4_096

BEGINNING_S = 0.25
"""Processor time that the loop may take for a text before PostgreSQL has it."""


def as_owner(*statements: str) -> list[Any]:
    """Execute statements as the owner; return the rows of the last."""
    with CLUSTER.connection(SCHEMA) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def reader() -> AsyncIterator[PostgreSQLReader]:
    """Return a reader of a database with one job and small limits."""
    CLUSTER.empty(SCHEMA)
    as_owner(
        "INSERT INTO jobs (created, jobID, state, name, nextRun, data)"
        " VALUES ('', 1, 'QUEUED', 'a', '2026', '{\"k\":1}')"
    )
    settings = Settings(query_s=0.5, query_rows_max=ROWS_MAX, query_bytes_max=BYTES_MAX)
    found = PostgreSQLReader(CLUSTER.url, settings, SCHEMA)
    await found.open()
    yield found
    await found.close()


async def asked(reader: PostgreSQLReader, sql: str) -> Any:
    """Return the parsed rows of a Query."""
    return json.loads(await reader.query(f"{sql};", "rows"))


async def refused(reader: PostgreSQLReader, sql: str) -> CommandError:
    """Return the error of a refused Query, and check that the next Query works."""
    with pytest.raises(CommandError) as caught:
        await reader.query(f"{sql};", "rows")
    assert await asked(reader, "SELECT count(*) FROM jobs") == [[1]]
    return caught.value


# --- answers ---------------------------------------------------------------------------------------------


async def test_columns_have_their_usual_names(reader: PostgreSQLReader) -> None:
    body = await reader.query("SELECT jobID, NEXTRUN, data, count(*) OVER () FROM jobs; ", "json")
    assert body == '{"headers":["jobID","nextRun","data","count"],"rows":[[1,"2026",{"k":1},1]]}'


VALUES = [
    ("SELECT 1, 2::smallint, 1.5, 2::numeric, -7::numeric, 0.5::float8", [1, 2, 1.5, 2, -7, 0.5]),
    ("SELECT true, false, NULL, 'x', ''", [1, 0, None, "x", ""]),
    ("SELECT 'NaN'::float8, 'Infinity'::numeric", [None, None]),
    ("SELECT 9223372036854775807, 18446744073709551616", [2**63 - 1, 2**64]),
    ("SELECT '\\x00ff'::bytea, '2026-01-02'::date", ["00ff", "2026-01-02"]),
    ("SELECT ARRAY[1, 2], '[1,2]'::json", ["{1,2}", "[1,2]"]),
    ("SELECT 1 AS a, 2 AS a", [1, 2]),
    ("SELECT row(1, 'x'), interval '1 day', '10.0.0.1'::inet", ["(1,x)", "1 day", "10.0.0.1"]),
]
"""Queries, each with the row that it answers."""


async def test_values_are_numbers_text_or_nothing(reader: PostgreSQLReader) -> None:
    for sql, row in VALUES:
        assert await asked(reader, sql) == [row], sql


async def test_a_number_that_is_too_long_to_be_one_is_text(reader: PostgreSQLReader) -> None:
    ((found,),) = await asked(reader, f"SELECT repeat('9', {DIGITS_MAX * 3})::numeric")
    assert found == "9" * (DIGITS_MAX * 3)


async def test_all_ways_to_select_are_understood(reader: PostgreSQLReader) -> None:
    for sql in (
        "SELECT 1 -- x",
        "(SELECT 1)",
        "/* x */ select 1",
        "VALUES (1)",
        "with a as (select 1) table a",
        " -- x\nSELECT 1",
    ):
        assert await asked(reader, sql) == [[1]], sql


async def test_rows_come_in_their_order(reader: PostgreSQLReader) -> None:
    rows = await asked(reader, "SELECT n FROM generate_series(1, 500) AS n ORDER BY n % 7, n DESC")
    assert rows == [[n] for n in sorted(range(1, 501), key=lambda n: (n % 7, -n))]


# --- limits ----------------------------------------------------------------------------------------------


async def test_rows_are_limited(reader: PostgreSQLReader) -> None:
    series = f"SELECT n AS x FROM generate_series(1, {ROWS_MAX}) AS n WHERE n < 3 OR {{}}"
    assert len(await asked(reader, series.format("n < 100"))) == 99
    assert (await refused(reader, f"SELECT * FROM generate_series(0, {ROWS_MAX})")).reason == "Too many rows"
    assert (
        await refused(reader, f"SELECT * FROM generate_series(1, {ROWS_MAX * 9})")
    ).reason == "Too many rows"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT repeat('x', {BYTES_MAX})",
        f"SELECT repeat('x', {BYTES_MAX * 500})",
        f"SELECT repeat('x', 100) FROM generate_series(1, {BYTES_MAX // 100})",
        # what PostgreSQL counts is what comes, though it would be something else the next time
        f"SELECT repeat('x', ({BYTES_MAX} * random() * n)::bigint::int) FROM generate_series(1, 9) AS n",
    ],
)
async def test_bytes_are_limited(reader: PostgreSQLReader, sql: str) -> None:
    assert (await refused(reader, sql)).reason == "Answer too large"


async def test_what_is_just_small_enough_comes(reader: PostgreSQLReader) -> None:
    quoted = '""' * 2  # PostgreSQL writes a row with it at twice its length
    sql = f"SELECT repeat('{quoted}', {(BYTES_MAX - 10) // 8})"
    assert await asked(reader, sql) == [[quoted * ((BYTES_MAX - 10) // 8)]]


async def test_texts_cannot_get_around_the_limits(reader: PostgreSQLReader) -> None:
    many = f"SELECT * FROM generate_series(1, {ROWS_MAX * 2})"
    around = f"{many}) AS x), more AS (SELECT * FROM (SELECT 2"
    assert (await refused(reader, around)).reason == "Too many rows"
    for sql in (
        f"{many}) AS x LIMIT 9999999) SELECT 1, 1, * FROM (SELECT 1",
        f"{many}) AS x LIMIT 9999999 -- ",
        f"{many}) AS x /* ",
        f"{many}) AS x LIMIT 9999999\0",
    ):
        assert isinstance(await refused(reader, sql), BadArguments)


async def test_time_is_limited(reader: PostgreSQLReader) -> None:
    for sql in (
        "SELECT count(*) FROM generate_series(1, 100000000000)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "SELECT * FROM generate_series(1, 1000000000)",
    ):
        assert isinstance(await refused(reader, sql), TimedOut)


async def test_very_many_are_refused(reader: PostgreSQLReader) -> None:
    reader.queries._line._reads.most = 0
    with pytest.raises(TooMany):
        await reader.query("SELECT 1;", "rows")


async def test_memory_goes_to_the_disk_early(reader: PostgreSQLReader) -> None:
    assert await asked(reader, "SELECT current_setting('work_mem')") == [[WORK_MEM]]


# --- what it may not do ----------------------------------------------------------------------------------


FORBIDDEN = [
    "DELETE FROM jobs",
    "EXPLAIN ANALYZE SELECT 1",
    "SET ROLE tester",
    "RESET ROLE",
    "COPY jobs TO PROGRAM 'true'",
    "DO $$ BEGIN END $$",
    "LISTEN x",
    "WITH gone AS (DELETE FROM jobs RETURNING 1) SELECT * FROM gone",
    "SELECT * FROM jobs FOR UPDATE",
    "SELECT * FROM pg_authid",
    "SELECT * FROM others.secret",
    "SELECT pg_sleep(1)",
    'SELECT "pg_sleep"(1)',
    'SELECT U&"pg_sl\\0065ep"(1)',
    "SELECT pg_catalog.pg_sleep_for('1 s')",
    "SELECT set_config('role', 'tester', false)",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT pg_notify('bedrockjobs', 'x')",
    "SELECT nextval('jobIDs')",
    "SELECT lo_create(0)",
    "SELECT lo_import('/etc/hostname')",
    "SELECT pg_read_file('/etc/hostname')",
    "SELECT pg_ls_dir('.')",
    "SELECT pg_terminate_backend(1)",
    "SELECT pg_export_snapshot()",
    "SELECT query_to_xml('SELECT 1', true, true, '')",
    "SELECT dblink_exec('x')",
    "SELECT",
    "SELECT FROM jobs",
]
"""What a role that may only read our tables is refused."""


async def test_it_may_only_read_our_tables(reader: PostgreSQLReader) -> None:
    as_owner("CREATE SCHEMA IF NOT EXISTS others", "CREATE TABLE IF NOT EXISTS others.secret (x int)")
    for sql in FORBIDDEN:
        assert isinstance(await refused(reader, sql), BadQuery if sql != "SELECT" else CommandError), sql


WRONG = [
    "SELECT 1; SELECT 2",
    "SELECT 1; COMMIT; DELETE FROM jobs",
    "SELECT 1) AS x; DELETE FROM jobs; SELECT 1 FROM (SELECT 1",
    "SELECT 1) AS x) SELECT 1; COMMIT; DELETE FROM jobs; WITH y AS MATERIALIZED (SELECT * FROM (SELECT 1",
    "SELECT $1",
    "SELECT x",
    "SELECT 1/0",
    "SELECT 'x",
    "SELECT 1 /*",
    "SELECT 'x'::bigint",
    "SELECT '\ud800'",
    "SELECT 1\0",
    "SELECT 1 INTO other",
]
"""Texts that are no query, or more than one."""


async def test_what_is_wrong_with_a_text_is_said(reader: PostgreSQLReader) -> None:
    for sql in WRONG:
        found = await refused(reader, sql)
        assert isinstance(found, BadArguments), sql
        assert "AS MATERIALIZED" not in found.detail, "only its own text is quoted"


async def test_who_asks_is_the_role_and_leaves_nothing_behind(reader: PostgreSQLReader) -> None:
    sql = "SELECT current_user, current_setting('transaction_read_only')"
    for _ in range(2):
        assert await asked(reader, sql) == [[ROLE, "on"]]


# --- the role --------------------------------------------------------------------------------------------

PLAIN = "plain"


@pytest.fixture
def without_role() -> Iterator[str]:
    """Return the URL of a user who owns a schema with our tables, without a role for Query."""
    CLUSTER.empty(SCHEMA)
    there = f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"
    if as_owner(there):
        as_owner(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")
    as_owner(f"CREATE ROLE {PLAIN} LOGIN", f"CREATE SCHEMA {PLAIN} AUTHORIZATION {PLAIN}")
    url = CLUSTER.url.replace("tester@", f"{PLAIN}@")
    PostgreSQLEngine(url, name=PLAIN).close()
    yield url
    as_owner(f"DROP OWNED BY {PLAIN} CASCADE", f"DROP ROLE {PLAIN}")
    if as_owner(there):
        as_owner(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


async def test_where_the_role_cannot_be_made_only_query_is_refused(
    without_role: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = PostgreSQLReader(without_role, Settings(), PLAIN)
    await reader.open()
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith(f"Query is refused: the role {ROLE} cannot be created or used: permission denied")
    with pytest.raises(Unavailable) as caught:
        await reader.query("SELECT 1;", "rows")
    assert caught.value.reason == "No role for Query"
    assert (await reader.view("newest_event", {}, 1)).rows == [(0,)]
    as_owner(f"CREATE ROLE {ROLE}", f"GRANT {ROLE} TO {PLAIN}")
    assert await asked(reader, "SELECT count(*) FROM jobs") == [[0]], "it is found without a restart"
    await reader.close()


async def test_an_owner_who_may_make_roles_makes_it(without_role: str) -> None:
    as_owner(f"ALTER ROLE {PLAIN} CREATEROLE")
    for _ in range(2):
        reader = PostgreSQLReader(without_role, Settings(), PLAIN)
        await reader.open()
        assert await asked(reader, "SELECT current_user, count(*) FROM jobs") == [[ROLE, 0]]
        await reader.close()
    assert as_owner(f"SELECT rolcanlogin, rolsuper FROM pg_roles WHERE rolname = '{ROLE}'") == [
        (False, False)
    ]


async def test_a_table_that_is_added_can_be_read(reader: PostgreSQLReader) -> None:
    as_owner(f"REVOKE SELECT ON stats FROM {ROLE}")
    assert isinstance(await refused(reader, "SELECT * FROM stats"), BadQuery)
    again = PostgreSQLReader(CLUSTER.url, Settings(), SCHEMA)
    await again.open()
    assert await asked(again, "SELECT * FROM stats") == []
    await again.close()


# --- how it begins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["/**/" * 20_000, "--\n" * 20_000, "(" * 50_000, "/*" * 40_000])
async def test_what_stands_before_a_text_takes_no_time(reader: PostgreSQLReader, before: str) -> None:
    began = thread_time()
    with pytest.raises(CommandError):
        await reader.query(f"{before}x;", "rows")
    assert (thread_time() - began) / slowness() < BEGINNING_S, "the loop reads it"


async def test_a_first_word_that_is_none_is_a_mistake_in_the_text(reader: PostgreSQLReader) -> None:
    assert isinstance(await refused(reader, "SELEC 1"), BadArguments)
    assert len(str(await refused(reader, "x" * 1_000))) < 150
    assert isinstance(await refused(reader, "/* a */ UPDATE jobs SET state = ''"), BadQuery)
