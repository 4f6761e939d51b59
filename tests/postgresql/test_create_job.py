"""``create_job`` in SQL: jobs that applications create in transactions of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.clock import ManualClock, moment_of, timestamp_ms
from bedrockjobs.base.config import (
    DATA_BYTES_MAX,
    INBOX_AGAIN_S_MAX,
    INBOX_AGAIN_S_MIN,
    INBOX_BYTES_MAX,
    INBOX_ROWS_MAX,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import CreateJob, JobSpec
from bedrockjobs.engine.handlers.create import TakeIn
from bedrockjobs.job.rows import InboxRow
from bedrockjobs.server import Server
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.peers import PEER_SQL
from bedrockjobs.store.postgresql.transfer import TransferDatabase, install_functions
from tests.conformance.engine import START
from tests.conftest import Live, begin
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import ROLE, application
from tests.postgresql.conftest import Server as ServerOf
from tests.protocol.talk import DEADLINE_S
from tests.runs.test_options import ALL

Start = Callable[..., Awaitable[Live]]


@pytest.fixture
async def start(sql_function: None) -> AsyncIterator[Start]:
    """Return a function that starts a server with a name."""
    async with AsyncExitStack() as stack:

        async def start(name: str = "a", **more: Any) -> Live:
            place = {"database": CLUSTER.url, "database_schema": SCHEMA, "database_direct": CLUSTER.url}
            server = Server(Settings(port=0, server_name=name, **place, **more))
            await begin(server)
            stack.push_async_callback(server.stop)
            return Live(server, stack)

        yield start


def created(connection: psycopg.Connection[Any], name: str, data: str = "{}", options: str = "{}") -> int:
    """Create a job in the open transaction; return its jobID."""
    sql = f"SELECT {SCHEMA}.create_job(%s, %s::jsonb, options => %s::jsonb)"
    row = connection.execute(sql, (name, data, options)).fetchone()
    assert row is not None
    return int(row[0])


def in_inbox() -> int:
    """Return how many jobs have not been taken in."""
    return int(CLUSTER.do(f"SELECT count(*) FROM {SCHEMA}.inbox")[0][0])


async def until_taken_in() -> None:
    """Wait until the inbox is empty."""
    deadline = monotonic() + DEADLINE_S
    while await asyncio.to_thread(in_inbox):
        assert monotonic() < deadline, "the inbox is not emptied"


async def test_a_commit_wakes_a_waiting_worker_of_any_server(start: Start) -> None:
    a, b = await start("a"), await start("b")
    for server in (a, b):
        waiting = asyncio.ensure_future(
            server.http("GetJob", {"name": "mail/*", "connection": "wait", "timeout": 20_000})
        )
        await server.waiting(1)
        with application() as mine:
            job_id = created(mine, "mail/send", '{"to": 1}')
            assert (await server.http("QueryJob", {"jobID": job_id})).code == 404
            mine.commit()
        taken = (await asyncio.wait_for(waiting, DEADLINE_S)).json
        assert (taken["jobID"], taken["name"], taken["data"]) == (job_id, "mail/send", {"to": 1})


async def test_a_rollback_leaves_nothing(start: Start) -> None:
    server = await start()
    with application() as mine:
        job_id = created(mine, "mail/send")
        mine.rollback()
        kept = created(mine, "mail/kept")
        mine.commit()
    await until_taken_in()
    assert (await server.http("QueryJob", {"jobID": job_id})).code == 404
    assert (await server.http("QueryJob", {"jobID": kept})).json["state"] == "QUEUED"


async def test_a_job_is_shown_from_the_commit_on(start: Start) -> None:
    server = await start()
    options = '{"jobPriority": 850, "retries": 3, "firstRun": "2030-01-01", "keep": "1d"}'
    with application() as mine:
        for _ in range(20):
            job_id = created(mine, "mail/send", '{"to": 1}', options)
            mine.commit()
            shown = (await server.http("QueryJob", {"jobID": job_id})).json
            assert (shown["state"], shown["name"], shown["data"]) == ("QUEUED", "mail/send", {"to": 1})
            assert (shown["priority"], shown["retries"], shown["keep"]) == (850, 3, 86_400)
            assert shown["nextRun"] == "2030-01-01 00:00:00"
    await until_taken_in()


async def test_what_was_committed_without_a_server_is_done_by_the_next_one(start: Start) -> None:
    with application() as mine:
        job_ids = [
            created(mine, f"n{number}", options='{"firstRun": "-1h"}') for number in range(2 * INBOX_ROWS_MAX)
        ]
        mine.commit()
    server = await start()
    await until_taken_in()
    taken = [(await server.http("GetJob", {"name": "*"})).json["jobID"] for _ in range(3)]
    assert taken == job_ids[:3]


async def test_each_option_becomes_that_of_the_job(start: Start) -> None:
    server = await start()
    with application() as mine:
        found = {}
        for name, (value, expected) in ALL.items():
            command = CreateJob.read({"name": "n", name: value})
            more = {"repeat": "CRON 0 9 * * *"} if name in ("hosts", "expect") else {}
            more |= {"concurrencyKey": "k"} if name == "concurrencyLimit" else {}
            given = psycopg.types.json.Jsonb({name: value, **more})
            row = mine.execute(f"SELECT {SCHEMA}.create_job('n', options => %s)", (given,)).fetchone()
            assert row is not None
            assert command.name == "n"
            found[row[0]] = name, expected
        mine.commit()
    await until_taken_in()
    for job_id, (name, expected) in found.items():
        shown = (await server.http("QueryJob", {"jobID": job_id})).json
        assert (shown["state"], shown[name]) == ("QUEUED", expected), shown


BAD = [
    ("", "{}", "{}", "name: expected 1 to 255 characters"),
    ("n" * 256, "{}", "{}", "name: expected 1 to 255 characters"),
    ("a\nb", "{}", "{}", "name: expected no control characters"),
    ("n", "[]", "{}", "data: expected a JSON object"),
    (
        "n",
        f'{{"a": "{"x" * DATA_BYTES_MAX}"}}',
        "{}",
        "data: expected a JSON object of at most 4194304 bytes",
    ),
    ("n", "{}", "7", "options: expected a JSON object"),
    ("n", "{}", '{"retry": 1}', "options: unknown attribute retry, expected one of argv, "),
    ("n", "{}", '{"firstRun": "2026-13-01"}', "firstRun: expected a date like 2026-11-21 03:29:56 (UTC)"),
    ("n", "{}", '{"firstRun": "tomorrow"}', "firstRun: expected a date like"),
    ("n", "{}", '{"firstRun": ""}', "firstRun: expected a date like"),
    ("n", "{}", '{"firstRun": "300"}', "firstRun: expected a date like"),
    ("n", "{}", '{"retries": "many"}', "retries: expected a whole number, not many"),
    ("n", "{}", '{"keep": "5 weeks"}', "keep: expected a duration like 90s"),
    ("n", "{}", '{"jobPriority": 3}', "jobPriority: expected one of 0, 250, 500, 750, 850, 1000, not 3"),
    ("n", "{}", '{"onConflict": "fight"}', "onConflict: expected one of ignore, replace, reject, not fight"),
    ("n", "{}", '{"unique": "perhaps"}', "unique: expected true or false, not perhaps"),
    ("n", "{}", '{"uniqueKey": ""}', "uniqueKey: expected 1 to 255 characters"),
]


@pytest.mark.usefixtures("sql_function")
def test_bad_arguments_are_refused_with_the_attribute() -> None:
    with application() as mine:
        for name, data, options, words in BAD:
            with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
                created(mine, name, data, options)
            assert str(caught.value).startswith(words)
            mine.rollback()


DATES = ("2026-11-21", "2026-11-21 03:29:56", "2026-11-21T03:29:56Z", "2026-11-21T03:29:56.5+02:00")
OFFSETS = ("+5 MINUTES", "5m", "-24h", "1h30m", "+300", "+90.5s", "+ 2 days")


async def test_dates_are_those_of_create_job(start: Start) -> None:
    server = await start()
    with application() as mine:
        found = {sent: created(mine, "n", options=f'{{"firstRun": "{sent}"}}') for sent in DATES + OFFSETS}
        mine.commit()
    await until_taken_in()
    for sent, job_id in found.items():
        shown = (await server.http("QueryJob", {"jobID": job_id})).json
        asked = (await server.http("CreateJob", {"name": "n", "firstRun": sent})).json["jobID"]
        expected = (await server.http("QueryJob", {"jobID": asked})).json
        assert (shown["state"], len(shown["nextRun"]) >= 19) == ("QUEUED", True)
        if sent in DATES:
            assert shown["nextRun"] == expected["nextRun"]
        else:  # it counts from the call
            assert shown["nextRun"] <= expected["nextRun"]


def test_a_role_with_only_this_right_can_do_nothing_else(sql_function: None) -> None:
    with application() as mine:
        assert created(mine, "n") > 0
        mine.commit()
        for sql in (
            "SELECT * FROM {0}.inbox",
            "SELECT * FROM {0}.jobs",
            "INSERT INTO {0}.inbox (jobID, at, name) VALUES (1, '', 'n')",
            "UPDATE {0}.jobs SET name = 'n'",
            "DELETE FROM {0}.inbox",
            "SELECT nextval('{0}.jobIDs')",
            "SELECT value FROM {0}.meta",
            "CREATE TABLE {0}.mine (a int)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mine.execute(sql.format(SCHEMA))
            mine.rollback()


def test_a_role_without_the_right_is_refused(sql_function: None) -> None:
    CLUSTER.do(f"REVOKE EXECUTE ON FUNCTION {SCHEMA}.{schema.SIGNATURE} FROM {ROLE}")
    with application() as mine, pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
        created(mine, "n")
    assert str(caught.value).startswith("permission denied for function create_job")


def test_the_function_uses_no_object_of_its_caller(sql_function: None) -> None:
    with application() as mine:
        columns = "jobID bigint, at text, name text, data text, options text, by text"
        mine.execute(f"CREATE TEMPORARY TABLE inbox ({columns})")
        mine.execute("CREATE TEMPORARY TABLE jobs (jobID bigint)")
        mine.execute("SET search_path = pg_temp; SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'")
        created(mine, "n")
        assert mine.execute("SELECT count(*) FROM pg_temp.inbox").fetchone() == (0,)
        mine.commit()
    assert in_inbox() == 1


def test_a_read_only_transaction_is_refused(sql_function: None) -> None:
    with application() as mine:
        mine.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            created(mine, "n")


def test_installing_again_keeps_the_rights(sql_function: None) -> None:
    assert install_functions(TransferDatabase(CLUSTER.url, SCHEMA)) is False
    with application() as mine:
        assert created(mine, "n") > 0


def test_a_moved_queue_takes_no_job(sql_function: None) -> None:
    CLUSTER.do(f"INSERT INTO {SCHEMA}.meta (key, value) VALUES ('movedTo', 'jobs.db')")
    try:
        with application() as mine, pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
            created(mine, "n")
    finally:
        CLUSTER.do(f"DELETE FROM {SCHEMA}.meta WHERE key = 'movedTo'")
    assert "the queue was moved to jobs.db" in str(caught.value)


async def test_what_only_a_server_can_refuse_becomes_failed(start: Start) -> None:
    server = await start()
    refused = {
        '{"repeat": "CRON 61 * * * *"}': "repeat",
        '{"parentJobID": 999}': "parentJobID: there is no job 999",
        '{"lock": "a", "concurrencyKey": "b"}': "concurrencyKey",
        '{"tags": [1]}': "tags",
        '{"onConflict": "ignore"}': "uniqueKey is required",
    }
    with application() as mine:
        found = {created(mine, "n", '{"a": 1}', options): words for options, words in refused.items()}
        good = created(mine, "behind")
        mine.commit()
    await until_taken_in()
    for job_id, words in found.items():
        shown = (await server.http("QueryJob", {"jobID": job_id})).json
        assert (shown["state"], shown["data"]) == ("FAILED", {"a": 1})
        assert words in shown["error"]
    assert (await server.http("GetJob", {"name": "*"})).json["jobID"] == good


async def test_a_held_key_leaves_a_record(start: Start) -> None:
    server = await start()
    with application() as mine:
        first = created(mine, "n", '{"a": 1}', '{"uniqueKey": "k"}')
        second = created(mine, "n", '{"a": 2}', '{"uniqueKey": "k"}')
        third = created(mine, "n", '{"a": 3}', '{"uniqueKey": "k", "onConflict": "replace"}')
        rejected = created(mine, "n", '{"a": 4}', '{"uniqueKey": "k", "onConflict": "reject"}')
        mine.commit()
    await until_taken_in()
    shown = [(await server.http("QueryJob", {"jobID": one})).json for one in (first, second, third, rejected)]
    assert [one["state"] for one in shown] == ["QUEUED", "CANCELLED", "CANCELLED", "FAILED"]
    assert shown[0]["data"] == {"a": 3}
    assert f"uniqueKey: job {first} was there already" in shown[1]["error"]
    assert f"uniqueKey: job {first} holds it" in shown[3]["error"]
    assert (await server.http("GetJob", {"name": "n"})).json["jobID"] == first
    assert (await server.http("GetJob", {"name": "n"})).code == 404


async def test_a_limit_lets_jobs_wait_and_no_others(start: Start) -> None:
    server = await start()
    assert (await server.http("SetLimit", {"name": "full/*", "queued": 1})).code == 200
    with application() as mine:
        job_ids = [created(mine, "full/n") for _ in range(3)]
        other = created(mine, "other")
        mine.commit()
    deadline = monotonic() + DEADLINE_S
    while await asyncio.to_thread(in_inbox) > 2:
        assert monotonic() < deadline
    assert (await server.http("QueryJob", {"jobID": other})).json["state"] == "QUEUED"
    assert (await server.http("QueryJob", {"jobID": job_ids[2]})).json["state"] == "QUEUED"
    refused = await server.http("DeleteJob", {"jobID": job_ids[2]})
    assert (refused.code, refused.json["reason"]) == (503, "Job is being taken in")
    assert (await server.http("RemoveLimit", {"name": "full/*"})).code == 200
    await until_taken_in()
    assert [(await server.http("GetJob", {"name": "full/*"})).json["jobID"] for _ in job_ids] == job_ids


def put_by_hand(job_id: int, name: str) -> None:
    """Write a row of the inbox without a notification."""
    columns = "jobID, at, name, data"
    CLUSTER.do(
        f"INSERT INTO {SCHEMA}.inbox ({columns}) VALUES ({job_id}, '2026-11-21 03:00:00', '{name}', '{{}}')"
    )


async def test_a_lost_notification_costs_a_second(start: Start) -> None:
    server = await start()
    await asyncio.to_thread(put_by_hand, 1_000, "n")
    await until_taken_in()
    assert (await server.http("QueryJob", {"jobID": 1_000})).json["state"] == "QUEUED"


async def test_a_row_that_fails_holds_up_no_other(start: Start) -> None:
    server = await start()
    there = (await server.http("CreateJob", {"name": "there"})).json["jobID"]

    def put() -> None:
        put_by_hand(there, "twice")  # PostgreSQL refuses a second job with this jobID
        put_by_hand(1_001, "behind")

    await asyncio.to_thread(put)
    deadline = monotonic() + DEADLINE_S
    while (
        left := await asyncio.to_thread(lambda: CLUSTER.do(f"SELECT name, again <> '' FROM {SCHEMA}.inbox"))
    ) != [("twice", True)]:
        assert monotonic() < deadline, left
    assert (await server.http("QueryJob", {"jobID": 1_001})).json["state"] == "QUEUED"
    assert (await server.http("QueryJob", {"jobID": there})).json["name"] == "there"


def test_little_is_taken_in_at_once(sql_function: None) -> None:
    size = INBOX_BYTES_MAX // 2
    with application() as mine:
        job_ids = [created(mine, "n", f'{{"a": "{"x" * (size - 100)}"}}') for _ in range(4)]
        job_ids += [created(mine, "n") for _ in range(INBOX_ROWS_MAX)]
        mine.commit()
    with closing(CLUSTER.another()) as store:
        for most, expected in ((INBOX_BYTES_MAX, 3), (10 * INBOX_BYTES_MAX, INBOX_ROWS_MAX), (1, 1)):
            (rows,) = store.session.run_statements([(PEER_SQL["inbox"], ("2030", INBOX_ROWS_MAX, most))])
            assert [row[0] for row in rows] == job_ids[:expected]


@pytest.mark.parametrize(
    ("waited_s", "pause_s"), [(0, INBOX_AGAIN_S_MIN), (20, 20), (7_200, INBOX_AGAIN_S_MAX)]
)
def test_a_row_waits_again_as_long_as_it_has_waited(
    sql_function: None, waited_s: float, pause_s: float
) -> None:
    clock = ManualClock(START)
    put_by_hand(9, "n")
    row = InboxRow(9, timestamp_ms(START - timedelta(seconds=waited_s)), "n", "{}", "{}", "")
    CLUSTER.do(f"UPDATE {SCHEMA}.inbox SET at = '{row.at}'")
    with closing(CLUSTER.another(clock)) as store:
        command = TakeIn(rows=[row], postpone=True, postponed=[])
        assert ServerOf(store, "document", clock).call(command).code == 200
    assert command.postponed == [9]
    again = CLUSTER.do(f"SELECT again FROM {SCHEMA}.inbox")[0][0]
    assert moment_of(again) == START + timedelta(seconds=pause_s)


async def test_several_servers_create_each_job_once(start: Start) -> None:
    servers = [await start(name) for name in "abc"]
    with application() as mine:
        job_ids = []
        for number in range(60):
            job_ids.append(created(mine, f"n{number % 7}", options=f'{{"uniqueKey": "k{number}"}}'))
            mine.commit()
    await until_taken_in()
    taken = [(await servers[at % 3].http("GetJob", {"name": "*"})).json["jobID"] for at in range(60)]
    assert sorted(taken) == sorted(job_ids)
    assert (await servers[0].http("GetJob", {"name": "*"})).code == 404


async def test_a_token_with_a_scope_sees_only_its_names_in_the_inbox(start: Start) -> None:
    server = await start()
    assert (await server.http("SetLimit", {"name": "full/*", "queued": 1})).code == 200
    with application() as mine:
        job_ids = [created(mine, "full/n") for _ in range(2)]
        mine.commit()
    root = (await server.http("CreateToken", {"name": "root", "roles": ["admin"]})).json["token"]
    narrow = {"name": "narrow", "roles": ["operate"], "names": ["other/*"]}
    token = (await server.http("CreateToken", narrow, Authorization=f"Bearer {root}")).json["token"]
    for verb in ("QueryJob", "DeleteJob"):
        for job_id in job_ids:
            refused = await server.http(verb, {"jobID": job_id}, Authorization=f"Bearer {token}")
            assert refused.code == 404


def test_each_option_of_create_job_is_known_to_sql() -> None:
    assert schema.CHECKED.keys() <= set(schema.OPTIONS)
    assert {*schema.OPTIONS} == {*JobSpec.wire_names.values()} - {"name", "data"}
