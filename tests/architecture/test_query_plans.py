"""Every take and every seek is answered by the index that was made for it, and never by a scan or a sort."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from bedrockjobs.config import PRIORITIES
from bedrockjobs.store import schema
from bedrockjobs.store.statements import STATEMENTS

BY_NAME, BY_PRIORITY, ANY_STATE, BY_PARENT = "jobsByName", "jobsByPriority", "jobsAnyState", "jobsByParent"
BY_ID = "INTEGER PRIMARY KEY"

INTENDED = {
    "job_by_id": BY_ID,
    "save_job": BY_ID,
    "claim_job": BY_ID,
    "delete_job": BY_ID,
    "delete_plain_job": BY_ID,
    "due_by_name": BY_NAME,
    "due_by_name_of_priority": BY_NAME,
    "due_of_any": BY_PRIORITY,
    "due_of_any_of_priority": BY_PRIORITY,
    "due_in_order": BY_PRIORITY,
    "head_of_group": BY_NAME,
    "next_group_of_name": BY_NAME,
    "next_group": BY_NAME,
    "first_group": BY_NAME,
    "soonest_by_name": BY_NAME,
    "soonest_of_any": BY_PRIORITY,
    "first_of_name": ANY_STATE,
    "children_of": BY_PARENT,
    "has_children": BY_PARENT,
    "has_pending_children": BY_PARENT,
    "list_jobs": BY_ID,
}
"""The index that each statement on the queue is meant to use."""

NO_SEEK = {"insert_job", "highest_job_id", "has_families", "get_meta", "set_meta", "forget_meta"}
"""Statements that look for no row, or are done once at start or in the tiny table ``meta``."""


@pytest.fixture(params=["empty", "analyzed"])
def database(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """Return a database as a new server has it, and one with jobs of which SQLite knows the statistics."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.apply(connection)
    if request.param == "analyzed":
        rows = [
            (
                n,
                ("QUEUED", "RUNNING", "FAILED")[n % 3],
                f"n{n % 7}",
                PRIORITIES[n % 6],
                n % 5,
                ("", "mock")[n % 2],
            )
            for n in range(1, 2_000)
        ]
        connection.executemany(
            "INSERT INTO jobs (created, nextRun, jobID, state, name, priority, parentJobID, lane)"
            " VALUES ('2026-01-01 00:00:00', '2026-01-01 00:00:00', ?, ?, ?, ?, ?, ?)",
            rows,
        )
        connection.execute("ANALYZE")
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Return the steps of SQLite's plan for a statement."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    count = max(numbered) if numbered else sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count)]


def test_every_statement_is_judged() -> None:
    assert set(STATEMENTS) == set(INTENDED) | NO_SEEK


@pytest.mark.parametrize("name", INTENDED)
def test_a_statement_uses_its_index(database: sqlite3.Connection, name: str) -> None:
    steps = plan(database, STATEMENTS[name])
    seeks = [step for step in steps if step.startswith(("SEARCH", "SCAN"))]
    on_jobs = [step for step in seeks if re.match(r"SEARCH jobs\b", step)]
    assert on_jobs, steps
    for step in on_jobs:
        assert INTENDED[name] in step, steps
    for step in steps:
        assert "TEMP B-TREE" not in step, f"it sorts: {steps}"
        assert not re.match(r"SCAN (jobs|TABLE)", step), f"it scans: {steps}"
        if step.startswith("SCAN"):
            assert re.match(r"SCAN (\(|CONSTANT ROW|\d|subquery)", step, re.IGNORECASE), steps


def test_a_take_by_name_narrows_by_everything_it_knows(database: sqlite3.Connection) -> None:
    for step in plan(database, STATEMENTS["due_by_name"]):
        if step.startswith("SEARCH jobs"):
            assert "(lane=? AND name=? AND priority=? AND nextRun<?)" in step
    for step in plan(database, STATEMENTS["due_of_any"]):
        if step.startswith("SEARCH jobs"):
            assert "(lane=? AND priority=? AND nextRun<?)" in step


def test_a_plan_that_scans_is_noticed(database: sqlite3.Connection) -> None:
    assert any(step.startswith("SCAN jobs") for step in plan(database, "SELECT * FROM jobs WHERE data = ?"))
    assert any("TEMP B-TREE" in step for step in plan(database, "SELECT * FROM jobs ORDER BY data"))
