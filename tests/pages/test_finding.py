"""The search behind the list of jobs: its results, its statements, and its limits."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.base.vocabulary import FAILED_STATUSES as BAD
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.store.statements import VIEWS
from bedrockjobs.views import find
from bedrockjobs.views.find import Finder
from tests.effort import crossed

COUNT = 150


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")  # no test of a disk
    schema.apply(db)
    db.executemany(
        "INSERT INTO jobs (created, jobID, state, name, nextRun, lastRun, data)"
        " VALUES (?2, ?1, ?3, ?4, ?2, CASE WHEN ?1 % 2 THEN ?2 ELSE '' END, ?5)",
        (
            (
                number,
                f"2026-11-21 {number // 60:02}:{number % 60:02}:00",
                "FAILED" if number % 7 == 0 else "PAUSED" if number % 31 == 0 else "QUEUED",
                f"{'mail' if number % 3 else 'report'}/{number % 5}",
                f'{{"n":{number}}}',
            )
            for number in range(1, COUNT + 1)
        ),
    )
    return db


@pytest.fixture
async def finder(database: sqlite3.Connection, tmp_path: Path) -> AsyncIterator[Finder]:
    reader = SQLiteReader(tmp_path / "jobs.db", Settings())
    await reader.open()
    yield Finder(reader)
    await reader.close()


CASES: list[dict[str, Any]] = [
    {},
    {"state": "FAILED"},
    {"state": "PAUSED", "pattern": "mail/*"},
    {"state": "QUEUED"},
    {"pattern": "mail/1"},
    {"pattern": "mail/*"},
    {"pattern": "*/1"},
    {"pattern": "nobody"},
    {"text": '"n":1'},
    {"state": "FAILED", "pattern": "report/2", "text": "7"},
    {"pattern": "mail/1", "state": "FINISHED"},
    {"since": "2026-11-21 01:00:00"},
    {"until": "2026-11-21 00:40:00", "moment": "next"},
    {"since": "2026-11-21 00:10:00", "until": "2026-11-21 02:00:00", "moment": "last", "pattern": "mail/*"},
]

COLUMN = {"created": "created", "next": "nextRun", "last": "lastRun"}


@pytest.mark.parametrize(("case", "stretch", "few"), crossed(CASES, [1, 17, 500], [find.FEW, 3]), ids=str)
async def test_pages_find_all_that_a_plain_select_finds(
    database: sqlite3.Connection,
    finder: Finder,
    case: dict[str, Any],
    stretch: int,
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find, "STRETCH_MIN", stretch)
    monkeypatch.setattr(find, "FEW", few)
    wanted = database.execute(
        "SELECT jobID FROM jobs WHERE (:state IS NULL OR state = :state)"
        " AND (:pattern IS NULL OR name GLOB :pattern) AND (:text IS NULL OR instr(data, :text))"
        " AND {column} >= :since AND {column} < :until ORDER BY jobID DESC".format(
            column=COLUMN[case.get("moment", "created")]
        ),
        {"state": None, "pattern": None, "text": None, "since": "", "until": "~", **case},
    ).fetchall()
    found: list[int] = []
    before = None
    for _ in range(COUNT + 1):
        page = await finder.jobs(**case, before=before, limit=9, within_s=0.002)
        assert len(page.jobs) <= 9
        found += [job.job_id for job in page.jobs]
        assert all(job.job_id >= page.reached for job in page.jobs)
        if page.ended:
            break
        assert before is None or page.reached < before
        before = page.reached
    assert found == [job for (job,) in wanted]


async def test_a_search_stops_in_time(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "STRETCH_MIN", 10)
    page = await finder.jobs(text="nothing", within_s=0.0)
    assert page == ([], COUNT - 9, False)


async def test_stretches_grow_up_to_a_limit(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    view = SQLiteReader.view

    async def listen(self: SQLiteReader, name: str, parameters: Any, limit: int, **more: Any) -> Any:
        asked.append(parameters.get("stretch", 0))
        return await view(self, name, parameters, limit, **more)

    monkeypatch.setattr(SQLiteReader, "view", listen)
    monkeypatch.setattr(find, "STRETCH_MIN", 2)
    monkeypatch.setattr(find, "STRETCH_MAX", 32)
    page = await finder.jobs(text="nothing", within_s=60.0)
    assert page.ended
    assert asked[:4] == [2, 8, 32, 32]


RUN_CASES: list[dict[str, Any]] = [{}, {"pattern": "mail"}, {"pattern": "re*"}, {"pattern": "nobody"}]


@pytest.mark.parametrize(("case", "stretch", "few"), crossed(RUN_CASES, [1, 17, 500], [find.FEW, 3]), ids=str)
async def test_pages_find_all_runs_that_failed(
    database: sqlite3.Connection,
    finder: Finder,
    case: dict[str, Any],
    stretch: int,
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find, "FEW", few)
    monkeypatch.setattr(find, "STRETCH_MIN", stretch)
    statuses = ("success", "fail", "running", "frozen", "success", "timeout", "killed")
    database.executemany(
        "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, status)"
        " VALUES (?, 1, ?, 1, '', '', '', 'w', ?)",
        (
            (number, "mail" if number % 3 else "report", statuses[number % len(statuses)])
            for number in range(1, COUNT)
        ),
    )
    wanted = database.execute(
        "SELECT runID FROM runs WHERE status IN ('fail', 'frozen', 'timeout') AND name GLOB ?"
        " ORDER BY runID DESC",
        (case.get("pattern", "*"),),
    ).fetchall()
    found: list[int] = []
    before, ended = None, False
    while not ended:
        page = await finder.runs(**case, statuses=BAD, before=before, limit=9)
        before, ended = page.reached, page.ended
        assert len(page.runs) <= 9
        found += [run.run_id for run in page.runs]
    assert found == [run for (run,) in wanted]


async def test_names_are_found_by_their_beginning(finder: Finder) -> None:
    assert await finder.names("mail", 3) == ["mail/0", "mail/1", "mail/2"]
    assert await finder.names("report/4", 20) == ["report/4"]
    assert await finder.names("x", 20) == []


async def test_events_of_a_job_are_the_newest(database: sqlite3.Connection, finder: Finder) -> None:
    for seq in range(1, 100 + 5):
        database.execute("INSERT INTO events (seq, at, kind, jobID) VALUES (?, '', 'lost', 5)", (seq,))
        database.execute("INSERT INTO events (seq, at, kind, jobID) VALUES (?, '', 'lost', 6)", (-seq,))
    found = await finder.events_of(5)
    assert [row[0] for row in found] == list(range(100 + 4, 4, -1))


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("find_any", "INTEGER PRIMARY KEY (rowid<?)"),
        ("find_aside", "jobsAside (state=? AND rowid<?)"),
        ("find_named", "jobsAnyState (name=? AND rowid<?)"),
        ("find_few", "jobsAnyState (name>? AND name<?)"),
        ("find_runs", "SEARCH runs USING INTEGER PRIMARY KEY (rowid<?)"),
        ("find_few_runs", "runsByName (name>? AND name<?)"),
        ("count_runs", "runsByName (name>? AND name<?)"),
        ("find_runs_of_name", "runsByName (name=? AND runID<?)"),
        ("schedules_ahead", "jobsRepeating (name>? AND name<?)"),
        ("schedules_that_failed", "jobsRepeating"),
        ("schedules_that_failed", "runsByJob (jobID=?)"),
        ("find_events", "SEARCH events USING INTEGER PRIMARY KEY (rowid<?)"),
        ("count_names", "jobsAnyState (name>? AND name<?)"),
        ("names", "jobsAnyState (name>? AND name<?)"),
        ("children", "jobsByParent (parentJobID=? AND rowid>?)"),
        ("family", "jobsByParent (parentJobID=? AND rowid>?)"),
        ("failed_children", "jobsByParent (parentJobID=? AND rowid>?)"),
    ],
)
def test_a_search_uses_its_index(database: sqlite3.Connection, name: str, index: str) -> None:
    given = dict.fromkeys(re.findall(r":([a-zA-Z]+)", VIEWS[name]))
    rows = database.execute(f"EXPLAIN QUERY PLAN {VIEWS[name]}", {**given, "jobID": 1, "after": 0})
    plan = [row[3] for row in rows]
    assert any(index in step for step in plan), plan
    assert not {"SCAN jobs", "SCAN runs", "SCAN events"} & set(plan), plan
