"""Both engines answer every named statement with the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOB_ID_MAX
from bedrockjobs.base.errors import fingerprint_of
from bedrockjobs.base.settings import Settings
from bedrockjobs.store import statements
from bedrockjobs.store.postgresql.reader import PostgreSQLReader
from bedrockjobs.store.postgresql.statements import VIEWS
from bedrockjobs.store.reader import Page, SQLiteReader
from bedrockjobs.views.render import name_range, raised
from tests.effort import examples
from tests.postgresql import one_history
from tests.postgresql.cluster import CLUSTER, SCHEMA

Axis = list[dict[str, Any]]


def each(name: str, *values: Any) -> Axis:
    """Return an axis of one parameter."""
    return [{name: value} for value in values]


BEFORE = each("before", JOB_ID_MAX, 60, 0)
AFTER = each("after", 0, 40, JOB_ID_MAX)
NOW = each("now", "2026-01-05 10:20:00.000", "2026-01-05 12:30:00.000", "2027")
PATTERN = each("pattern", None, "mail*", "a[[]1]", "*[bd]", "?lean", "mail")
NAME = each("pattern", *one_history.NAMES, "nobody")
STRETCH: Axis = [name_range(""), name_range("mail"), {"low": "é", "high": "é"}]
STATE = each("state", None, "QUEUED", "RUNNING", "FAILED", "PAUSED")
VISIBLE = each("visible", None, '["mail*", "cron/*"]', '["?lean", "*[bd]"]', "[]")
MOMENT: Axis = [
    {"moment": moment, "since": since, "until": until}
    for moment in ("created", "next", "last")
    for since, until in ((None, None), ("2026-01-05 10:30:00", "2026-01-05 11:00:00"))
]
TEXT = each("text", None, 'é\\"', "done")
MOST = each("most", 3, 10_000)
JOBS = each("jobID", *range(1, 200, 3))
FILTERS: Axis = [
    {"statuses": statuses, "worker": worker, **raised(kind)}
    for statuses in (None, "fail timeout frozen", "running")
    for worker in (None, "w1")
    for kind in (None, "ValueError")
]
RUN_FOUND: Axis = [
    {
        "statuses": statuses,
        "worker": worker,
        "text": text,
        "since": since,
        "until": until,
        "kept": kept,
        **raised(kind),
    }
    for statuses in (None, "fail frozen timeout", "running")
    for kind in (None, "ValueError")
    for kept in (None, "kept")
    for worker, text in ((None, None), ("w*", None), (None, "e"))
    for since, until in ((None, None), ("2026-01-05 10:30:00", "2026-01-05 11:00:00"))
]
LANES = [
    "",
    "argv",
    "every",
    "for w1",
    "lock db",
    "lock disk x",
    "mock",
    "now",
    "now lock disk x",
    "argv lock db",
]
FINGERPRINTS = [fingerprint_of("no"), fingerprint_of("")]
KINDS = each("kind", None, "triggered", "paused")
SEARCH = [BEFORE, STATE, MOMENT, TEXT, each("stretch", 1_000, 30)]
RUNS = [BEFORE, PATTERN, FILTERS, VISIBLE]

GIVEN: dict[str, list[Axis]] = {
    "output_of_run": [each("runID", *range(1, 120)), each("after", 0, 2)],
    "run": [each("runID", *range(120))],
    "jobs": [AFTER, each("state", None, "FAILED"), each("pattern", None, "mail*", "é"), VISIBLE],
    "runs": RUNS,
    "runs_in_progress": RUNS,
    "runs_of_job": [JOBS, *RUNS],
    "runs_of_name": [NAME, BEFORE, FILTERS, VISIBLE],
    "runs_of_names": [*RUNS, STRETCH],
    "schedules": [
        AFTER,
        NOW,
        STRETCH,
        each("pattern", None, "cron/*", "hosts/*"),
        each("source", None, "here"),
        VISIBLE,
    ],
    "ticks": [each("jobID", *range(1, 200)), each("before", name_range("")["high"], "2026-01-05 11:00:00")],
    "newest_event": [],
    "events": [AFTER, KINDS, PATTERN, VISIBLE],
    "tokens": [each("after", "", "a")],
    "logins": [],
    "run_key": [],
    "audit": [
        BEFORE,
        each("who", None, "ada"),
        each("command", None, "PauseJobs"),
        PATTERN,
        each("since", None, "2026-01-05 10:04:00"),
    ],
    "rules": [each("after", "", "a")],
    "retention": [],
    "mutes": [],
    "workflow": [each("workflowID"), VISIBLE],
    "workflows": [BEFORE, PATTERN, VISIBLE],
    "workflows_in_state": [each("state", "RUNNING", "FAILED"), BEFORE, PATTERN, VISIBLE],
    "workflow_of_job": [each("jobID")],
    "workflows_counted": [each("state", "RUNNING", "FAILED"), PATTERN, each("most", 1, 1_000), VISIBLE],
    "jobs_of_workflow": [each("workflowID"), each("after", 0), each("results", 0, 1), VISIBLE],
    "edges_of_workflow": [each("workflowID"), each("low", 0), each("high", JOB_ID_MAX)],
    "waits_in_workflow": [each("jobID")],
    **{f"use_of_{kind}": [PATTERN, STRETCH, MOST] for kind in ("runs", "output", "events", "ticks")},
    "use_of_audit": [MOST],
    "use_of_keys": [MOST],
    "end_of_output": [each("runID", *range(1, 120))],
    "name_of_job": [JOBS],
    "unique_key_of": [JOBS],
    "adjacent_runs": [each("runID", *range(1, 120))],
    "name_of_run": [each("runID", *range(1, 120))],
    "stats": [
        each("names", "[]", '["mail"]', '["é", "mail", "nobody"]'),
        each("step", 60, 3_600),
        each("since", "", "2026-01-05 10:04:00", "2027"),
    ],
    "find_any": [*SEARCH, PATTERN],
    "find_aside": [*SEARCH, PATTERN],
    "find_named": [*SEARCH, NAME],
    "find_few": [*SEARCH, PATTERN, STRETCH],
    **{f"find_{one}": [*SEARCH, PATTERN] for one in ("queued", "children", "cancelled")},
    "find_running": [*SEARCH, PATTERN, MOST, each("oldest", 50, 10_000)],
    "find_runs_kept": [BEFORE, PATTERN, RUN_FOUND, each("stretch", 1_000, 10)],
    "count_states": [each("most", 10_000), each("oldest", 50, 10_000)],
    "count_states_of_names": [STRETCH, PATTERN, each("most", 10_000)],
    "count_kept_of_names": [STRETCH, PATTERN, each("most", 10_000)],
    **{f"count_{one}": [MOST] for one in ("queued", "children", "cancelled", "kept")},
    "newest_runs_of_jobs": [each("jobs", jsontext.dump(list(range(1, 200))), "[]")],
    "families": [each("jobs", jsontext.dump(list(range(1, 200))), "[]"), each("most", 10_000), VISIBLE],
    "find_runs": [BEFORE, PATTERN, RUN_FOUND, each("stretch", 1_000, 10)],
    "find_few_runs": [BEFORE, PATTERN, RUN_FOUND, STRETCH, each("stretch", 1_000, 10)],
    "find_runs_of_name": [BEFORE, NAME, RUN_FOUND, each("stretch", 1_000, 2)],
    "find_events": [BEFORE, PATTERN, KINDS, each("stretch", 1_000, 10)],
    "schedules_ahead": [NOW, STRETCH, each("pattern", None, "cron/*"), VISIBLE],
    "schedules_that_failed": [each("most", 10_000), STRETCH, VISIBLE],
    "count_names": [STRETCH, MOST],
    "count_runs": [STRETCH, MOST],
    "names": [STRETCH],
    **{
        statement: [JOBS, each("after", 0, 80), each("stretch", 1_000, 2), VISIBLE]
        for statement in ("children", "family", "failed_children")
    },
    "tries_of_schedule": [JOBS],
    **{
        f"failed_{one}s_alike": [each("low", "", "f1"), each("high", "~"), BEFORE, PATTERN, VISIBLE]
        for one in ("job", "run")
    },
    **{
        f"all_failed_{one}s_alike": [each("fingerprint", *FINGERPRINTS), BEFORE, PATTERN, VISIBLE]
        for one in ("job", "run")
    },
    **{
        f"newest_failed_{one}s": [
            each("groups", jsontext.dump(FINGERPRINTS)),
            each("members", 50, 1),
            BEFORE,
            PATTERN,
            VISIBLE,
        ]
        for one in ("job", "run")
    },
    "seen_of": [each("kind", "job", "run"), each("numbers", jsontext.dump(list(range(1, 200))), "[]")],
    "failed_by_hour": [
        each("groups", jsontext.dump(FINGERPRINTS)),
        each("hours", '["2026", "2026-01-05 10:30:00", "2026-01-05 11:00:00"]', '["2027"]'),
        PATTERN,
        VISIBLE,
    ],
    "events_of_job": [each("jobID", *range(200))],
    "health_of_schedule": [],
    "queue_lanes": [],
    "queue_groups": [
        each("lanes", jsontext.dump(LANES), '["mock"]', "[]"),
        each("alike", 1, 2, 100),
        each("walked", 7, 25, 10_000),
    ],
    "queue_groups_of_names": [
        each("lanes", jsontext.dump(LANES)),
        each("names", jsontext.dump(list(one_history.NAMES)), '["é", "mail/a", "nobody"]'),
    ],
    "count_groups": [
        each("groups", jsontext.dump([[lane, name] for lane in LANES for name in one_history.NAMES])),
        NOW,
        MOST,
    ],
    "count_all_groups": [NOW, each("lane", ""), each("name", "")],
    "count_rests": [
        each(
            "rests",
            jsontext.dump([[lane, name, f"{name[:3]}~"] for lane in LANES for name in one_history.NAMES]),
        ),
        NOW,
        each("most", 10_000),
    ],
    "lanes_at_once": [each("lanes", jsontext.dump(LANES), '["lock db", "mock"]', "[]"), NOW, MOST],
    "pauses_held": [NOW],
    "limits_set": [],
    "keys_that_wait": [each("pattern", "a*", "*"), each("above", 0, 5, 10)],
    "drained_workers": [],
    "lanes_held": [],
    "schedules_on_all_hosts": [],
    "running_by_name": [NOW, each("most", 10_000), each("oldest", 50, 10_000)],
    "failed_by_name": [each("most", 10_000)],
    "failed_by_name_of_visible": [STRETCH, VISIBLE, each("looked", 10_000)],
    "newest_jobs": [],
    "newest_runs": [],
    "set_aside_of_visible": [MOST, STRETCH, VISIBLE, each("looked", 10_000)],
    "set_aside": [MOST],
    "names_of_jobs": [STRETCH, PATTERN, each("after", "", "mail/a"), each("walked", 3, 10_000)],
    "job": [each("jobID", *range(200))],
    "pending_children": [JOBS, each("most", 1, 100)],
    "jobs_ahead": [
        each("lane", *LANES),
        each("name", *one_history.NAMES[:4]),
        NOW,
        each("priority", 0, 500),
        each("nextRun", "2026-01-05 10:30:00", "2027"),
        each("jobID", 90),
        MOST,
    ],
}
"""Parameters of every statement but ``limit``: all combinations of each axis."""

UNORDERED = {
    "count_all_groups",
    "queue_lanes",
    "running_by_name",
    "failed_by_name",
    "failed_by_name_of_visible",
    "lanes_held",
    "names_of_jobs",
}
"""Statements whose rows have no order that anybody relies on."""

OF_WORKFLOWS = {
    "workflow": "workflowID",
    "jobs_of_workflow": "workflowID",
    "edges_of_workflow": "workflowID",
    "workflow_of_job": "jobID",
    "waits_in_workflow": "jobID",
}
"""Statements about single workflows or their jobs, of which the history has few."""

COMBINATIONS_MAX = examples(14, night=200)
"""The number of combinations tested, out of very many."""


def combined(axes: Iterable[Axis]) -> list[dict[str, Any]]:
    """Return some combinations of axes, beginning with the first value of each, which filters nothing.

    Random combinations of search parameters find almost nothing.
    """
    found = [{key: value for one in some for key, value in one.items()} for some in product(*axes)]
    return [found[0], *Random(3).sample(found, min(len(found), COMBINATIONS_MAX))]


KEY = """INSERT INTO meta (key, value) VALUES ('runKey', 'a') ON CONFLICT (key) DO UPDATE SET value = 'a'"""
"""Gives both the same key for tokens of runs, which each database makes for itself."""

KEPT = """INSERT INTO meta (key, value) VALUES ('retention', '[]'), ('limits', '[]'), ('mutes', '[]')
    ON CONFLICT (key) DO NOTHING"""
"""Makes both engines report retention, limits and mutes."""

PACED = """INSERT INTO paced (key, pattern, until)
    VALUES ('', 'a*', 9), ('k', 'a*', 7), ('l', 'a*', 10), ('k', '*', 6)"""
"""Makes both engines report keys that wait."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Return the history's SQLite database, after copying it to PostgreSQL."""
    db = one_history.played(tmp_path_factory.mktemp("history") / "jobs.db")
    one_history.move(db)
    db.execute(KEY)
    db.execute(KEPT)
    db.execute(PACED)
    CLUSTER.do(f"SET search_path = {SCHEMA}; {KEY}; {KEPT}; {PACED}")
    yield db
    db.close()


@pytest.fixture
async def readers(database: sqlite3.Connection) -> AsyncIterator[tuple[SQLiteReader, PostgreSQLReader]]:
    """Return the readers of both."""
    settings = Settings(query_s=20)
    ((_, _, path),) = database.execute("PRAGMA database_list").fetchall()
    one, other = SQLiteReader(Path(path), settings), PostgreSQLReader(CLUSTER.url, settings, SCHEMA)
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


def test_no_statement_is_left_out() -> None:
    assert set(VIEWS) == {*statements.VIEWS, *statements.METRICS, *statements.QUEUES}
    assert set(GIVEN) == set(VIEWS), "add each statement to GIVEN, with values for its parameters"


def test_the_history_has_of_everything(database: sqlite3.Connection) -> None:
    for table in one_history.TABLES:
        assert database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 1, table
    lanes = {lane for (lane,) in database.execute("SELECT DISTINCT lane FROM jobs")}
    assert lanes >= {*LANES} - {"now lock disk x", "argv lock db"}
    with psycopg.connect(CLUSTER.url) as there:
        for table in one_history.TABLES:
            ((count,),) = there.execute(f"SELECT count(*) FROM {SCHEMA}.{table}").fetchall()
            assert (count,) == database.execute(f"SELECT count(*) FROM {table}").fetchone()


Readers = tuple[SQLiteReader, PostgreSQLReader]


async def pages_of(name: str, readers: Readers) -> AsyncIterator[tuple[dict[str, Any], Page, Page]]:
    """Yield both engines' rows for a statement with each of its parameters, as far as they must be equal."""
    axes = GIVEN[name]
    if name == "health_of_schedule":
        page = await readers[0].view("names", name_range("cron/"), 1_000)
        axes = [each("name", *(row[0] for row in page.rows))]
    if name in OF_WORKFLOWS:
        page = await readers[0].view(
            "workflows", {"before": JOB_ID_MAX, "pattern": None, "visible": None}, 1_000
        )
        workflows = [row[0] for row in page.rows]
        jobs = [workflow + place for workflow in workflows for place in range(1, 5)]
        axes = [each(OF_WORKFLOWS[name], *(jobs if OF_WORKFLOWS[name] == "jobID" else workflows)), *axes[1:]]
    for limit in (1_000, 2):
        if name in UNORDERED and limit == 2:
            continue
        for given in combined(axes):
            pages = [await reader.view(name, given, limit, scans=limit > 2) for reader in readers]
            if name in UNORDERED:
                pages = [page._replace(rows=sorted(page.rows)) for page in pages]
            if name == "lanes_held":  # the reader examines locks only
                pages = [
                    page._replace(rows=[row for row in page.rows if "lock " in row[0]]) for page in pages
                ]
            if name == "count_rests":
                pages = [
                    page._replace(rows=[(key, jsontext.parse(counts)) for key, counts in page.rows])
                    for page in pages
                ]
            yield given, pages[0], pages[1]


AT_ONCE = 10
"""Statements of one test: for each, readers would take longer to connect than to read."""


@pytest.mark.parametrize("first", range(0, len(GIVEN), AT_ONCE))
async def test_rows_are_equal(first: int, readers: Readers) -> None:
    for name in islice(GIVEN, first, first + AT_ONCE):
        some = False
        async for given, one, other in pages_of(name, readers):
            assert one == other, (name, given)
            some = some or bool(one.rows)
        assert some, f"{name}: nothing was compared"


CHANGES = {
    "find_any": ("jobs", "jobID", "name"),
    "find_queued": ("jobs", "jobID", "nextRun"),
    "runs": ("runs", "runID", "worker"),
    "find_runs": ("runs", "runID", "error"),
    "find_events": ("events", "seq", "name"),
    "names": ("jobs", "jobID", "name"),
    "events": ("events", "seq", "detail"),
    "pauses_held": ("pauses", "pattern", "by"),
    "drained_workers": ("drains", "worker", "worker"),
    "audit": ("audit", "seq", "address"),
    "tokens": ("tokens", "name", "created"),
    "newest_failed_jobs": ("seen", "number", "by"),
}
"""Statements, each with a table, its key, and the column that is changed in the row with the highest key."""


@pytest.mark.parametrize("name", CHANGES)
async def test_one_row_that_differs_is_found(
    name: str, readers: Readers, database: sqlite3.Connection
) -> None:
    """The control of the test above."""
    table, key, column = CHANGES[name]
    highest = f"FROM {table} WHERE {key} = (SELECT max({key}) FROM {table})"
    ((number, value),) = database.execute(f"SELECT {key}, {column} {highest}").fetchall()
    change = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
    database.execute(change, (f"{value}~", number))
    changed = f"{value}~" if column == key else number
    try:
        assert [given async for given, one, other in pages_of(name, readers) if one != other]
    finally:
        database.execute(change, (value, changed))


@pytest.mark.parametrize("form", ["rows", "json", "text"])
async def test_answers_of_query_are_equal(form: str, readers: tuple[SQLiteReader, PostgreSQLReader]) -> None:
    for sql in (
        f"SELECT {statements.COLUMNS} FROM jobs ORDER BY jobID",
        f"SELECT {statements.RUN} FROM runs ORDER BY runID",
        f"SELECT {statements.EVENT} FROM events ORDER BY seq",
        "SELECT * FROM stats ORDER BY name, step, at",
        "SELECT * FROM ticks ORDER BY jobID, tick",
        "SELECT state, count(*) AS n, sum(priority) AS total, max(nextRun) AS latest FROM jobs GROUP BY state"
        " ORDER BY state",
        "SELECT name = 'mail' AS yes, NULL AS missing, 1.5 AS part FROM jobs ORDER BY jobID LIMIT 2",
        "SELECT jobID FROM jobs WHERE jobID < 0",
    ):
        one, other = [await reader.query(f"{sql};", form) for reader in readers]
        assert one == other, sql
