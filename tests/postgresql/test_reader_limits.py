"""Reads on PostgreSQL obey their limits on time and size, and continue after a broken connection."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.config import ANSWER_BYTES_MAX, PG_CONNECT_S_MAX
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, TooMany, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import job_from
from bedrockjobs.store.postgresql import read_connection as lines
from bedrockjobs.store.postgresql.read_connection import (
    ANSWER_S,
    AWAY_S,
    CANCEL_S,
    Connection,
    ReadConnection,
)
from bedrockjobs.store.postgresql.reader import PostgreSQLReader
from bedrockjobs.store.postgresql.statements import VIEWS, View
from bedrockjobs.store.reader import SEEKS_WAITING_MAX
from bedrockjobs.store.sandbox import WORDS_MAX
from tests.pace import in_time
from tests.postgresql.cluster import CLUSTER, SCHEMA, free_port
from tests.protocol.talk import DEADLINE_S

JOB = (
    "INSERT INTO jobs (created, jobID, state, name, nextRun, data)"
    " SELECT '', n, 'QUEUED', 'a', '', {data} FROM generate_series(1, {count}) AS n"
)
FOREVER = View("SELECT count(*) FROM generate_series(1, 100000000000)", [], large=False)


def do(*statements: str) -> list[Any]:
    """Execute statements over a connection of its own; return the rows of the last."""
    with CLUSTER.connection(SCHEMA) as connection:
        for sql in statements:
            cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


Open = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Return a function that opens a reader with the given settings on an empty database."""
    CLUSTER.empty(SCHEMA)
    readers = []

    async def start(**given: Any) -> PostgreSQLReader:
        readers.append(PostgreSQLReader(CLUSTER.url, Settings(**given), SCHEMA))
        await readers[-1].open()
        return readers[-1]

    yield start
    for reader in readers:
        await reader.close()


async def read(line: ReadConnection, view: View) -> Any:
    """Read a view without parameters; return its rows."""

    async def act(connection: Connection) -> Any:
        return await (await connection.execute(view.sql)).fetchall()

    return await line.do(act)


async def job_ids(reader: PostgreSQLReader, after: int) -> list[int]:
    """Return a page of jobIDs."""
    given = {"after": after, "state": None, "pattern": None, "visible": None}
    return [job_from(row).job_id for row in (await reader.view("jobs", given, 100, scans=True)).rows]


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the event loop until a condition is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def test_the_limits_of_a_line_fit_together() -> None:
    assert CANCEL_S < ANSWER_S < PG_CONNECT_S_MAX
    assert AWAY_S < 1, "whoever asks again after a second finds out whether the database is back"


# --- size ------------------------------------------------------------------------------------------------


async def test_a_page_of_large_jobs_is_cut_and_goes_on(opened: Open) -> None:
    quarter = ANSWER_BYTES_MAX // 4
    do(JOB.format(data=f"repeat('x', {quarter + 1})", count=7))
    reader = await opened(query_s=20)
    assert await job_ids(reader, 0) == [1, 2, 3, 4]
    assert await job_ids(reader, 4) == [5, 6, 7]


async def test_rows_behind_the_one_that_is_too_much_are_not_fetched(opened: Open) -> None:
    do("INSERT INTO events (at, kind, detail) SELECT '', 'x', repeat('y', 100) FROM generate_series(1, 50)")
    reader = await opened()
    given = {"after": 0, "kind": None, "pattern": None, "visible": None}
    page = await reader.view("events", given, 50, bytes_max=250)
    assert (len(page.rows), page.more) == (3, True)
    page = await reader.view("events", given, 50)
    assert (len(page.rows), page.more) == (50, False)
    page = await reader.view("events", given, 49)
    assert (len(page.rows), page.more) == (49, True)


async def test_what_may_be_large_comes_row_by_row() -> None:
    large = {name for name, view in VIEWS.items() if view.large}
    assert large == {
        "children",
        "failed_children",
        "find_any",
        "find_aside",
        "find_cancelled",
        "find_children",
        "find_few",
        "find_named",
        "find_queued",
        "find_running",
        "job",
        "jobs",
        "jobs_of_workflow",
        "output_of_run",
        "run",
        "runs",
        "runs_in_progress",
        "runs_of_job",
        "runs_of_name",
        "runs_of_names",
        "use_of_output",
        "use_of_runs",
    }


JOBS, NAMES = 12_000, 3_000
LARGEST: dict[str, dict[str, Any]] = {
    "queue_lanes": {},
    "queue_groups": {"lanes": '["", "argv", "lock db"]', "alike": 50, "walked": 1_000},
    "queue_groups_of_names": {"lanes": '["", "argv", "lock db"]', "names": '["a/1", "a/2999", "none"]'},
    "count_groups": {"groups": '[["", "a/2"], ["argv", "a/3"]]', "now": "2027", "most": 10},
    "lanes_at_once": {"lanes": '["", "argv"]', "now": "2027", "most": 10},
    "jobs_ahead": {
        "lane": "argv",
        "name": "a/1",
        "now": "2027",
        "priority": 0,
        "nextRun": "2027",
        "jobID": 9,
        "most": 10,
    },
    "schedules_on_all_hosts": {},
    "lanes_held": {},
    "find_any": {
        "before": JOBS,
        "state": None,
        "moment": "last",
        "since": "2026",
        "until": "2027",
        "text": None,
        "stretch": 50,
        "pattern": "a*",
    },
    "find_events": {"before": JOBS, "pattern": "b*", "kind": None, "stretch": 50},
    "names": {"low": "", "high": "b"},
    "pending_children": {"jobID": 1, "most": 10},
}
"""Statements that look at few rows of a long queue, whatever is asked, and parameters that tempt to more."""

PASSED_MAX = 300
"""Rows of the queue that such a statement may look at in vain."""

READ_MAX = 2_000
"""Rows of the queue that it may read, however few of them it then shows."""


async def test_a_long_queue_is_not_walked_through(opened: Open) -> None:
    do(
        "INSERT INTO jobs (created, jobID, state, name, nextRun, priority, lane)"
        f" SELECT '', n, 'QUEUED', 'a/' || n % {NAMES}, '2026-01-05 10:00:' || n % 60,"
        " (ARRAY[0, 500, 1000])[1 + n % 3], (ARRAY['', 'argv', 'lock db'])[1 + n % 3]"
        f" FROM generate_series(1, {JOBS}) AS n",
        f"INSERT INTO events (at, kind, name) SELECT '', 'x', 'a' FROM generate_series(1, {JOBS})",
        "ANALYZE jobs, events",  # statistics of earlier tests describe other queues
    )
    reader = await opened(query_s=20)
    for name, given in LARGEST.items():
        view = VIEWS[name]
        parameters = view.parameters({**given, "limit": 20})

        async def explained(connection: Connection, view: View = view, given: Any = parameters) -> str:
            cursor = await connection.execute(f"EXPLAIN (ANALYZE, TIMING off) {view.sql}", given)
            return "\n".join(row[0] for row in await cursor.fetchall())

        plan = await reader._scans.do(explained)
        read = passed = 0
        for line in plan.splitlines():
            if found := re.search(r"actual rows=[\d.]+ loops=(\d+)", line):
                loops = int(found[1])
            if found := re.search(r" on (?:jobs|events)\b.* \(actual rows=(\d+)", line):
                read += int(found[1]) * loops
            if found := re.search(r"Rows Removed by (?:Join )?Filter: (\d+)", line):
                passed += int(found[1]) * loops
        assert passed <= PASSED_MAX, f"{name}:\n{plan}"
        assert read <= READ_MAX, f"{name}:\n{plan}"


# --- time ------------------------------------------------------------------------------------------------


async def test_a_read_has_its_time_and_the_loop_goes_on(opened: Open) -> None:
    reader = await opened(query_s=0.3)
    began = monotonic()
    slow = asyncio.ensure_future(read(reader._scans, FOREVER))
    turns = 0
    while not slow.done():
        assert (await reader.view("newest_event", {}, 1)).rows == [(0,)], "nobody waits for a scan"
        turns += 1
    with pytest.raises(psycopg.errors.QueryCanceled):
        await slow
    assert turns > 3
    assert in_time(monotonic() - began, DEADLINE_S)
    assert (await reader.view("set_aside", {"most": 9}, 1, scans=True)).rows == [(0, 0, 0, 0, 0)]


async def test_a_view_that_takes_too_long_is_told_so(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = await opened(query_s=0.1)
    monkeypatch.setitem(VIEWS, "names", FOREVER)
    with pytest.raises(TimedOut, match=r"it took too long$"):
        await reader.view("names", {}, 1)


async def test_what_nobody_answers_is_given_up_with_its_connection(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "ANSWER_S", 0.05)
    reader = await opened(query_s=0.05)
    given_up: list[Connection] = []

    async def silent(connection: Connection) -> None:
        given_up.append(connection)
        await asyncio.Event().wait()

    with pytest.raises(TimedOut, match="its connection was closed"):
        await reader._seeks.do(silent)
    assert given_up[0].closed
    monkeypatch.setattr(lines, "ANSWER_S", ANSWER_S)
    assert (await reader.view("newest_event", {}, 1)).rows == [(0,)]


# --- many ------------------------------------------------------------------------------------------------


async def test_very_many_reads_are_refused_but_not_to_those_let_in(opened: Open) -> None:
    reader = await opened()
    assert reader._seeks._reads.most == SEEKS_WAITING_MAX
    assert reader._scans._reads.most == Settings().query_waiting_max
    reader._seeks._reads.most = 2
    many = [asyncio.ensure_future(reader.view("newest_event", {}, 1)) for _ in range(4)]
    again = asyncio.ensure_future(reader.view("newest_event", {}, 1, again=True))
    found = await asyncio.gather(*many, again, return_exceptions=True)
    assert [isinstance(one, TooMany) for one in found] == [False, False, True, True, False]


async def test_a_read_whose_caller_went_away_keeps_its_place(opened: Open) -> None:
    reader = await opened(query_s=0.3)
    gone = asyncio.ensure_future(read(reader._scans, FOREVER))
    await until(
        lambda: bool(
            do("SELECT 1 FROM pg_stat_activity WHERE query LIKE '%100000000000)' AND state = 'active'")
        )
    )
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert reader._scans.pending == 1
    assert (await reader.view("set_aside", {"most": 9}, 1, scans=True)).rows == [(0, 0, 0, 0, 0)]
    assert reader._scans.pending == 0


# --- connections -----------------------------------------------------------------------------------------


async def test_a_connection_that_was_ended_is_opened_again(opened: Open) -> None:
    reader = await opened()
    for scans in (False, True):
        await reader.view("newest_event", {}, 1, scans=scans)
    assert await reader.query("SELECT 1;", "rows") == "[[1]]"
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    assert len(do(f"{end} AND backend_type = 'client backend'")) >= 3
    for scans in (False, True):
        assert (await reader.view("newest_event", {}, 1, scans=scans)).rows == [(0,)]
    assert await job_ids(reader, 0) == []
    assert await reader.query("SELECT 1;", "rows") == "[[1]]"


async def test_one_that_breaks_each_time_is_not_tried_for_ever(opened: Open) -> None:
    reader = await opened()
    tried = 0

    async def breaks(connection: Connection) -> None:
        nonlocal tried
        tried += 1
        do(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 10000)")
        await connection.execute("SELECT 1")

    with pytest.raises(Unavailable, match="terminating connection"):
        await reader._seeks.do(breaks)
    assert tried == 2
    assert (await reader.view("newest_event", {}, 1)).rows == [(0,)]


async def test_a_database_that_is_away_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = PostgreSQLReader(f"postgresql://tester@127.0.0.1:{free_port()}/postgres", Settings(), SCHEMA)
    given: list[dict[str, Any]] = []
    connect = psycopg.AsyncConnection.connect

    async def counted(url: str, **more: Any) -> Any:
        given.append(more)
        return await connect(url, **more)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)
    many = [reader.view("newest_event", {}, 1) for _ in range(20)]
    found = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(one, Unavailable) and one.reason == "Database away" for one in found)
    assert len(given) == 1
    assert given[0]["connect_timeout"] == PG_CONNECT_S_MAX
    monkeypatch.setattr(reader._seeks, "_away", (0.0, lines.STOPPING))
    with pytest.raises(Unavailable):
        await reader.view("newest_event", {}, 1)
    assert len(given) == 2


@pytest.mark.parametrize("given", ["target_session_attrs=read-write", "options=-c%20TimeZone%3DAsia/Tokyo"])
async def test_what_a_url_says_is_kept_beside_what_reads_need(opened: Open, given: str) -> None:
    await opened()
    reader = PostgreSQLReader(f"{CLUSTER.url}?{given}", Settings(), SCHEMA)
    await reader.open()
    assert (await reader.view("newest_event", {}, 1)).rows == [(0,)]
    found = await read(reader._seeks, View("SELECT current_setting('TimeZone')", [], large=False))
    assert (found == [("Asia/Tokyo",)]) == given.startswith("options")
    await reader.close()


async def test_a_pooler_is_gone_around(opened: Open) -> None:
    await opened()
    pooler = f"postgresql://tester@127.0.0.1:{free_port()}/postgres"
    reader = PostgreSQLReader(pooler, Settings(database_direct=CLUSTER.url), SCHEMA)
    await reader.open()
    assert (await reader.view("newest_event", {}, 1)).rows == [(0,)]
    assert await reader.query("SELECT 1;", "rows") == "[[1]]"
    await reader.close()


async def test_nothing_is_written(opened: Open) -> None:
    reader = await opened()
    for line in (reader._seeks, reader._scans):
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await read(line, View("DELETE FROM runs RETURNING 1", [], large=False))


async def test_reads_that_wait_when_the_server_stops_are_refused(opened: Open) -> None:
    reader = await opened()
    reads = [asyncio.ensure_future(reader.view("newest_event", {}, 1)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.wait_for(reader.close(), DEADLINE_S)
    for ended in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(ended, (Unavailable, tuple)), ended
    with pytest.raises(Unavailable, match="try again in a moment"):
        await reader.view("newest_event", {}, 1)
    with pytest.raises(Unavailable):
        await reader.query("SELECT 1;", "rows")


async def test_one_that_runs_when_the_server_stops_is_ended(opened: Open) -> None:
    reader = await opened(query_s=60)
    slow = asyncio.ensure_future(
        reader.query("SELECT count(*) FROM generate_series(1, 99999999999);", "rows")
    )
    await until(lambda: bool(do("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'WITH %99999999999)%'")))
    waiting = asyncio.ensure_future(reader.query("SELECT 1;", "rows"))
    await asyncio.sleep(0)
    reader.queries.refuse()
    assert not slow.done(), "what runs may end"
    await asyncio.wait_for(reader.close(), DEADLINE_S)
    for ended in await asyncio.gather(slow, waiting, return_exceptions=True):
        assert isinstance(ended, (TimedOut, Unavailable)), ended


async def test_an_error_does_not_quote_a_whole_text(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    reader = await opened()
    with pytest.raises(CommandError) as caught:
        await reader.query(f"SELECT * FROM jobs WHERE '{'x' * 90_000}'::bigint = 1;", "rows")
    assert len(caught.value.detail) <= WORDS_MAX + 1
    with pytest.raises(BadQuery, match="ends in ;"):
        await reader.query("SELECT 1", "rows")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
