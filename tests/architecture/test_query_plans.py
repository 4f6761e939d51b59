"""Every take and every seek uses its intended index, without a scan or a sort."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.store import schema
from bedrockjobs.store.statements import QUEUES, RECORDS, STATEMENTS

BY_NAME, BY_PRIORITY, ANY_STATE, BY_PARENT = "jobsByName", "jobsByPriority", "jobsAnyState", "jobsByParent"
BY_ID = "INTEGER PRIMARY KEY"

INTENDED = {
    "job_by_id": BY_ID,
    "jobs_by_id": BY_ID,
    "save_job": BY_ID,
    "save_job_and_data": BY_ID,
    "claim_job": BY_ID,
    "claim_jobs": BY_ID,
    "delete_job": BY_ID,
    "delete_jobs": BY_ID,
    "delete_plain_job": BY_ID,
    "heads_of_name": BY_NAME,
    "due_by_name": BY_NAME,
    "due_by_name_of_priority": BY_NAME,
    "heads_of_any": BY_PRIORITY,
    "due_of_any": BY_PRIORITY,
    "due_of_any_of_priority": BY_PRIORITY,
    "due_in_order": BY_PRIORITY,
    "head_of_group": BY_NAME,
    "next_group_of_name": BY_NAME,
    "next_group": BY_NAME,
    "queued_from": BY_NAME,
    "queued_behind": BY_NAME,
    "due_after": BY_PRIORITY,
    "soonest_by_name": BY_NAME,
    "soonest_of_any": BY_PRIORITY,
    "first_of_name": ANY_STATE,
    "named": ANY_STATE,
    "bound_of_name": ANY_STATE,
    "queued_lanes": BY_PRIORITY,
    "lane_in_use": BY_PRIORITY,
    "lane_after": BY_PRIORITY,
    "names_after": BY_NAME,
    "queued_in_lane": BY_PRIORITY,
    "expired": "jobsByExpires",
    "next_expiry": "jobsByExpires",
    "children_of": BY_PARENT,
    "has_children": BY_PARENT,
    "has_pending_children": BY_PARENT,
}
"""The index that each statement on the queue is meant to use."""

NO_SEEK = {
    "insert_job",
    "insert_plain_jobs",
    "highest_job_id",
    "has_families",
    "get_meta",
    "set_meta",
    "holding",
    "repeating",
    "repeating_due",
}
"""Statements that look for no row, or read all of a partial index, or the tiny table ``meta``."""

OF_OUTPUT = "sqlite_autoindex_output_1"
"""The index of the primary key of output, which is separate from the table because of its large rows."""

RECORDS_INTENDED = {
    "due_in_inbox": ("inbox", "inboxByAgain"),
    "inbox_row": ("inbox", BY_ID),
    "delete_from_inbox": ("inbox", BY_ID),
    "postpone_in_inbox": ("inbox", BY_ID),
    "run_by_id": ("runs", BY_ID),
    "kept_of_job": ("runs", "runsByJob"),
    "trim_kept": ("runs", "runsKept"),
    "next_kept": ("runs", "runsKept"),
    "runs_below": ("runs", BY_ID),
    "runs_of_name_below": ("runs", "runsByName"),
    "size_of_run": ("runs", BY_ID),
    "texts_of_run": ("runs", BY_ID),
    "next_chunk": ("output", OF_OUTPUT),
    "events_with_detail": ("events", BY_ID),
    "put_detail": ("events", BY_ID),
    "old_runs": ("runs", BY_ID),
    "end_run": ("runs", BY_ID),
    "fingerprint_run": ("runs", BY_ID),
    "fingerprint_job": ("jobs", BY_ID),
    "last_failed_run": ("runs", "runsByJob"),
    "stop_run": ("runs", BY_ID),
    "progress_of_run": ("runs", BY_ID),
    "delete_run": ("runs", BY_ID),
    "run_key": ("meta", "PRIMARY KEY"),
    "limits": ("meta", "PRIMARY KEY"),
    "paced": ("paced", "PRIMARY KEY"),
    "lower_paced": ("paced", "pacedByUntil"),
    "delete_paced": ("paced", "pacedByUntil"),
    "next_paced": ("paced", "pacedByUntil"),
    "trim_paced": ("paced", "pacedByUntil"),
    "retention": ("meta", "PRIMARY KEY"),
    "mutes": ("meta", "PRIMARY KEY"),
    "declared": ("meta", "PRIMARY KEY"),
    "ended_runs": ("runs", BY_ID),
    "ended_runs_and_sizes": ("runs", BY_ID),
    "oldest_events": ("events", BY_ID),
    "newest_events_and_sizes": ("events", BY_ID),
    "trim_ticks_to_size": ("ticks", "PRIMARY KEY"),
    "delete_event": ("events", BY_ID),
    "trim_old_ticks": ("ticks", "PRIMARY KEY"),
    "count_queued": ("jobs", "jobsAnyState"),
    "trim_successes": ("runs", "runsByName"),
    "trim_failures": ("runs", "runsByName"),
    "input_of_run": ("runs", BY_ID),
    "end_of_output": ("output", OF_OUTPUT),
    "last_chunk": ("output", OF_OUTPUT),
    "forget_middle": ("output", OF_OUTPUT),
    "loose_sizes": ("output", OF_OUTPUT),
    "loose_chunks": ("output", OF_OUTPUT),
    "loose_lines": ("output", OF_OUTPUT),
    "forget_chunks": ("output", OF_OUTPUT),
    "next_run_with_output": ("output", OF_OUTPUT),
    "delete_output": ("output", OF_OUTPUT),
    "last_tick": ("ticks", "PRIMARY KEY"),
    "trim_ticks": ("ticks", "PRIMARY KEY"),
    "delete_tick": ("ticks", "PRIMARY KEY"),
    "delete_ticks": ("ticks", "PRIMARY KEY"),
    "job_of_key": ("keys", "PRIMARY KEY"),
    "unique_key_of": ("keys", "keysByJob"),
    "trim_keys": ("keys", "keysByAge"),
    "next_unique_keys": ("keys", "PRIMARY KEY"),
    "trim_unique_keys": ("keys", "PRIMARY KEY"),
    "trim_runs": ("runs", BY_ID),
    "next_tick_history": ("ticks", "PRIMARY KEY"),
    "delete_pause": ("pauses", "PRIMARY KEY"),
    "delete_drain": ("drains", "PRIMARY KEY"),
    "trim_events": ("events", BY_ID),
    "trim_stats": ("stats", "PRIMARY KEY"),
    "names_in_stats": ("stats", "PRIMARY KEY"),
    "use_token": ("tokens", "PRIMARY KEY"),
    "delete_token": ("tokens", "PRIMARY KEY"),
    "delete_login": ("logins", "PRIMARY KEY"),
    "delete_rule": ("rules", "PRIMARY KEY"),
    "delete_seen": ("seen", "PRIMARY KEY"),
    "workflow_by_id": ("workflows", BY_ID),
    "save_workflow": ("workflows", BY_ID),
    "delete_workflow": ("workflows", BY_ID),
    "next_old_workflow": ("workflows", "workflowsKept"),
    "workflow_job": ("workflowJobs", BY_ID),
    "end_workflow_job": ("workflowJobs", BY_ID),
    "rename_workflow_job": ("workflowJobs", BY_ID),
    "wait_in_workflow": ("workflowJobs", BY_ID),
    "result_in_workflow": ("workflowJobs", BY_ID),
    "forget_in_workflow": ("workflowJobs", BY_ID),
    "quoting_in_workflow": ("workflowJobs", "workflowJobsInOrder"),
    "texts_of_workflows": ("workflowJobs", BY_ID),
    "delete_workflow_job": ("workflowJobs", BY_ID),
    "waiting_after": ("workflowEdges", "PRIMARY KEY"),
    "waiting_behind": ("workflowEdges", "PRIMARY KEY"),
    "jobs_of_workflow": ("workflowJobs", "workflowJobsInOrder"),
    "edges_of_workflow": ("workflowEdges", "workflowEdgesByJob"),
    "some_of_workflow": ("workflowJobs", "workflowJobsInOrder"),
    "results_before": ("workflowEdges", "workflowEdgesByJob"),
    "delete_workflow_edges": ("workflowEdges", "workflowEdgesByJob"),
    "trim_seen": ("seen", "PRIMARY KEY"),
    "see_jobs_alike": ("jobs", "jobsFailedAlike"),
    "see_runs_alike": ("runs", "runsFailedAlike"),
}
"""The table and the index of each statement on tables other than jobs."""

RECORDS_NO_SEEK = {
    "insert_workflow",
    "insert_workflow_job",
    "insert_workflow_edge",
    "claim_key",
    "insert_run",
    "insert_ended_run",
    "put_run_key",
    "put_limits",
    "put_mutes",
    "put_paced",
    "put_retention",
    "put_declared",
    "append_chunk",
    "put_tick",
    "put_key",
    "put_pause",
    "put_drain",
    "add_event",
    "add_stats",
    "all_pauses",
    "count_running",
    "events_of_runs",  # all 100,000 events: 10 ms for a command that is given once a year
    "open_runs",
    "all_drains",
    "put_rule",
    "put_seen",
    "all_rules",
    "last_event",
    "put_token",
    "put_login",
    "add_audit",
    "all_tokens",
    "all_logins",
    "delete_logins",
    "trim_logins",
    "trim_audit",
}
"""Statements on other tables that only insert, or read all of a small table."""


QUEUES_INTENDED = {
    "queue_lanes": {"jobs": BY_PRIORITY},
    "queue_groups": {"jobs": BY_NAME},
    "queue_groups_of_names": {"jobs": BY_NAME},
    "count_groups": {"jobs": BY_NAME},
    "count_all_groups": {"jobs": BY_NAME},
    "count_rests": {"jobs": BY_NAME},
    "lanes_at_once": {"jobs": BY_PRIORITY},
    "lanes_held": {"jobs": "jobsHolding|INTEGER PRIMARY KEY"},
    "schedules_on_all_hosts": {"jobs": BY_NAME},
    "running_by_name": {"runs": "runsOpen", "jobs": ""},
    "failed_by_name": {"jobs": "jobsAsideByName"},
    "failed_by_name_of_visible": {"jobs": "jobsAsideByName"},
    "newest_jobs": {"jobs": ""},
    "newest_runs": {"runs": ""},
    "set_aside": {"jobs": "jobsAside|jobsRepeating|INTEGER PRIMARY KEY", "seen": "PRIMARY KEY", "events": ""},
    "set_aside_of_visible": {"jobs": "jobsAsideByName|jobsRepeating"},
    "names_of_jobs": {"jobs": ANY_STATE},
    "job": {"jobs": BY_ID},
    "pending_children": {"jobs": BY_PARENT},
    "jobs_ahead": {"jobs": BY_NAME},
    "pauses_held": {"pauses": ""},
    "limits_set": {"meta": "PRIMARY KEY"},
    "keys_that_wait": {"paced": "pacedByUntil"},
    "drained_workers": {"drains": ""},
}
"""How a look at the queue finds its rows: the table and its index; without one it reads the first rows, as
many as the statement says, or all of a small table."""

QUEUES_SCAN = {
    "queue_lanes": "SCAN jobs USING INDEX jobsByPriority",  # its first entry
    "lanes_held": "SCAN jobs USING INDEX jobsHolding",
    "running_by_name": "SCAN (runs USING INDEX runsOpen|jobs)",
    "newest_jobs": "SCAN jobs",
    "newest_runs": "SCAN runs",
    "set_aside": "SCAN jobs USING INDEX jobsRepeating",
    "pauses_held": "SCAN pauses",
    "drained_workers": "SCAN drains",
}
"""What a look reads from its beginning, each with a limit."""

GROUPED = {"running_by_name", "failed_by_name", "failed_by_name_of_visible"}
"""Statements that add up by name what a limit bounds."""


@pytest.fixture(scope="module", params=["empty", "analyzed"])
def database(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """Return a database of a new server, and one with jobs and statistics."""
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
    sql = sql.replace("{rows}", "?, ?")
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    count = max(numbered) if numbered else sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count)]


def test_every_statement_is_judged() -> None:
    assert set(INTENDED) | NO_SEEK == set(STATEMENTS), "add it to INTENDED with its index, or to NO_SEEK"
    listed = set(RECORDS_INTENDED) | RECORDS_NO_SEEK
    assert listed == set(RECORDS), "add it to RECORDS_INTENDED with its index, or to RECORDS_NO_SEEK"
    assert set(QUEUES_INTENDED) == set(QUEUES), "add it to QUEUES_INTENDED with its indexes"


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
            assert re.match(r"SCAN (\(|CONSTANT ROW|\d|subquery|lanes\b|names\b)", step, re.IGNORECASE), steps


@pytest.mark.parametrize("name", RECORDS_INTENDED)
def test_a_statement_beside_jobs_uses_its_index(database: sqlite3.Connection, name: str) -> None:
    table, index = RECORDS_INTENDED[name]
    steps = plan(database, RECORDS[name])
    seeks = [step for step in steps if re.match(rf"(SEARCH|SCAN) {table}\b", step)]
    assert any(index in step for step in seeks), steps
    assert not any(step.startswith("SCAN") for step in seeks), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("holding", "jobsHolding"),
        ("repeating", "jobsRepeating"),
        ("repeating_due", "jobsRepeating"),
        ("open_runs", "runsOpen"),
        ("count_running", "runsOpen"),
    ],
)
def test_what_reads_all_reads_a_partial_index(database: sqlite3.Connection, name: str, index: str) -> None:
    steps = plan(database, {**STATEMENTS, **RECORDS}[name])
    assert len(steps) == 1
    assert f"INDEX {index}" in steps[0]


def named_plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Return the steps of SQLite's plan for a statement with named parameters."""
    lists = ("lanes", "names", "groups", "rests")
    given = {name: "[]" if name in lists else 1 for name in re.findall(r":([a-zA-Z]+)", sql)}
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]


@pytest.mark.parametrize("name", QUEUES_INTENDED)
def test_a_look_at_the_queue_uses_its_indexes(database: sqlite3.Connection, name: str) -> None:
    steps = named_plan(database, QUEUES[name])
    for table, index in QUEUES_INTENDED[name].items():
        on_table = [step for step in steps if re.match(rf"(SEARCH|SCAN) {table}\b", step)]
        assert on_table, steps
        for step in on_table:
            assert re.search(index, step), steps
            if step.startswith("SCAN"):
                assert re.fullmatch(QUEUES_SCAN.get(name, "no scan"), step), steps
    assert not [step for step in steps if "TEMP B-TREE" in step and "GROUP BY" not in step], steps
    assert bool([step for step in steps if "TEMP B-TREE" in step]) == (name in GROUPED), steps


def test_a_count_of_a_name_narrows_by_time(database: sqlite3.Connection) -> None:
    seeks = [step for step in named_plan(database, QUEUES["count_groups"]) if step.startswith("SEARCH jobs")]
    assert [step[step.index("(") :] for step in seeks] == [
        "(lane=? AND name=? AND priority=? AND nextRun<?)",
        "(lane=? AND name=? AND priority=? AND nextRun>?)",
    ]
    walk = [step for step in named_plan(database, QUEUES["queue_groups"]) if "name>?" in step]
    assert walk == ["SEARCH jobs USING INDEX jobsByName (lane=? AND name>?)"]


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
