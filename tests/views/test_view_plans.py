"""The index that each read of the views uses, and the columns it returns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands import EventReply, RunReply, ScheduleReply, TickReply
from bedrockjobs.store.statements import _read
from bedrockjobs.views.render import keys_of
from tests.engines import empty_file
from tests.views.table import AT, Table

VIEWS = _read("views.sql")
FINDING = _read("finding.sql")

PARAMETERS: dict[str, Any] = {
    "runID": 1,
    "jobID": 1,
    "workflowID": 1,
    "results": 1,
    "after": 0,
    "before": 9,
    "limit": 5,
    "low": "a",
    "high": "b",
    "pattern": None,
    "statuses": None,
    "worker": None,
    "raised": None,
    "raisedAlone": None,
    "kind": None,
    "source": None,
    "now": AT,
    "since": AT,
    "most": 9,
    "who": None,
    "command": None,
    "visible": None,
    "state": None,
    "names": '["a"]',
    "step": 60,
}

SEEKS = {
    "workflow": {"workflows USING INTEGER PRIMARY KEY (rowid=?)"},
    "workflows": {
        "workflows USING INTEGER PRIMARY KEY (rowid<?)",
        "workflowJobs USING INDEX workflowJobsByRef (workflowID=?)",
    },
    "workflows_in_state": {
        "workflows USING INDEX workflowsByState (state=? AND workflowID<?)",
        "workflowJobs USING INDEX workflowJobsByRef (workflowID=?)",
    },
    "workflow_of_job": {
        "workflowJobs USING INTEGER PRIMARY KEY (rowid=?)",
        "workflows USING INTEGER PRIMARY KEY (rowid=?)",
    },
    "workflows_counted": {"workflows USING INDEX workflowsByState (state=?)"},
    "jobs_of_workflow": {
        "workflowJobs USING INTEGER PRIMARY KEY (rowid=?)",
        "workflowJobs USING INDEX workflowJobsInOrder (workflowID=? AND jobID>?)",
        "jobs USING INTEGER PRIMARY KEY (rowid=?)",
    },
    "edges_of_workflow": {
        "workflowEdges USING INDEX workflowEdgesByJob (jobID>? AND jobID<?)",
        "earlier USING INTEGER PRIMARY KEY (rowid=?)",
    },
    "waits_in_workflow": {
        "workflowEdges USING INDEX workflowEdgesByJob (jobID=?)",
        "earlier USING INTEGER PRIMARY KEY (rowid=?)",
        "workflows USING INTEGER PRIMARY KEY (rowid=?)",
    },
    "output_of_run": {
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
        "output USING INDEX sqlite_autoindex_output_1 (runID=? AND firstSeq>?) LEFT-JOIN",
        "before USING INDEX sqlite_autoindex_output_1 (runID=? AND firstSeq<?)",
    },
    "end_of_output": {"output USING INDEX sqlite_autoindex_output_1 (runID=?)"},
    "run": {"runs USING INTEGER PRIMARY KEY (rowid=?)"},
    "jobs": {"jobs USING INTEGER PRIMARY KEY (rowid>?)", "keys USING INDEX keysByJob (jobID=?)"},
    "runs": {"runs USING INTEGER PRIMARY KEY (rowid<?)"},
    "runs_in_progress": {"runs USING INDEX runsOpen (runID<?)"},
    "runs_of_job": {"runs USING INDEX runsByJob (jobID=? AND runID<?)"},
    "runs_of_name": {"runs USING INDEX runsByName (name=? AND runID<?)"},
    "runs_of_names": {
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
        "runs USING INDEX runsByName (name>? AND name<?)",
    },
    "schedules": {
        "jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "jobs USING INDEX jobsRepeating (name>? AND name<?)",
        "runs USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "runs USING INDEX runsByJob (jobID=?)",
    },
    "stats": {"stats USING PRIMARY KEY (name=? AND step=? AND at>?)"},
    "ticks": {
        "jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "ticks USING PRIMARY KEY (jobID=? AND tick<?) LEFT-JOIN",
    },
    "newest_event": {"events"},
    "events": {"events USING INTEGER PRIMARY KEY (rowid>?)"},
    "retention": {"meta USING PRIMARY KEY (key=?)"},
    "mutes": {"meta USING PRIMARY KEY (key=?)"},
    "use_of_runs": {"runs USING INDEX runsByName (name>? AND name<?)"},
    "use_of_output": {
        "runs USING INDEX runsByName (name>? AND name<?)",
        "output USING INDEX sqlite_autoindex_output_1 (runID=?)",
    },
    "use_of_events": set(),
    "use_of_ticks": {
        "jobs USING INDEX jobsRepeating (name>? AND name<?)",
        "ticks USING PRIMARY KEY (jobID=?)",
    },
    "use_of_audit": set(),
    "use_of_keys": set(),
    "tokens": {"tokens USING PRIMARY KEY (name>?)"},
    "logins": set(),
    "run_key": {"meta USING PRIMARY KEY (key=?)"},
    "rules": {"rules USING PRIMARY KEY (name>?)"},
    "audit": {"audit USING INTEGER PRIMARY KEY (rowid<?)"},
    "name_of_job": {"jobs USING INTEGER PRIMARY KEY (rowid=?)"},
    "unique_key_of": {"keys USING INDEX keysByJob (jobID=?)"},
    "adjacent_runs": {
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
        "before USING INDEX runsByName (name=? AND runID<?)",
        "after USING INDEX runsByName (name=? AND runID>?)",
    },
    "name_of_run": {"runs USING INTEGER PRIMARY KEY (rowid=?)"},
}
"""How each view finds its rows; ``max(seq)`` alone is a seek to the end."""

ON_EMPTY = {"newest_event": [(0,)], "workflows_counted": [(0,)]}
"""Rows that a view returns from an empty database."""

SORTS = {"runs_of_names", "stats"}
"""Of many names the newest runs: sorted within the index, one page of numbers at the most is kept. Of some
names a bounded number of counters."""

SCANS = {
    "schedules": {"pauses"},
    "workflows_counted": {"found"},
    "logins": {"logins"},
    "use_of_events": {"events", "found"},
    "use_of_audit": {"audit", "found"},
    "use_of_keys": {"keys", "found"},
    "use_of_runs": {"found"},
    "use_of_output": {"found"},
    "use_of_ticks": {"found"},
    "stats": {"names"},
}
"""What is looked through: people pause few patterns, few log in, and of much only a part is counted."""

PATTERNS = {"json_each", "visible"}
"""The patterns of a scope, which are unpacked once."""


@pytest.fixture(scope="module", params=["empty", "analyzed"])
def database(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[sqlite3.Connection]:
    """Return a new database, and one with rows and statistics; the tests only ask for plans."""
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    path.write_bytes(empty_file())
    db = sqlite3.connect(path, isolation_level=None)
    if request.param == "analyzed":
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO runs (runID, jobID, name, status, attempt, cause, scheduledFor, started, worker)"
            " VALUES (?, ?, ?, ?, 1, '', '', '', ?)",
            [
                (n, n % 50, f"n{n % 50}", ("success", "running")[n % 9 == 0], f"w{n % 3}")
                for n in range(2_000)
            ],
        )
        db.executemany(
            "INSERT INTO output VALUES (?, ?, ?, '', '', 0, 1, x'')", [(n % 9, n, n) for n in range(2_000)]
        )
        db.executemany(
            "INSERT INTO jobs (jobID, created, state, name, nextRun, repeat)"
            " VALUES (?, '', 'QUEUED', ?, '', ?)",
            [(n, f"n{n}", ("", "CRON 5m", "HOURLY")[n % 3]) for n in range(1, 2_000)],
        )
        db.executemany(
            "INSERT INTO ticks VALUES (?, ?, '', 1, '', '', 0, 0)", [(n % 9, n) for n in range(2_000)]
        )
        db.executemany(
            "INSERT INTO events (seq, at, kind) VALUES (?, '', ?)", [(n, n % 3) for n in range(2_000)]
        )
        db.execute("INSERT INTO pauses (pattern, since) VALUES ('a*', '')")
        db.execute("COMMIT")
        db.execute("ANALYZE")
    yield db
    db.close()


@pytest.mark.parametrize("name", VIEWS)
async def test_the_reader_may_run_every_view(table: Table, name: str) -> None:
    page = await table.reader.view(name, PARAMETERS, 5)
    assert page.more is False
    nothing = [(0, 0, "")] if name.startswith("use_of_") else []
    expected = ON_EMPTY.get(name, nothing)
    assert page.rows == expected, "on an empty database; a view that counts is listed in ON_EMPTY"


async def test_a_view_never_writes(table: Table) -> None:
    for connection in (table.reader._seeks, table.reader._scans):
        with pytest.raises(CommandError):
            await connection.fetch("DELETE FROM runs", (), 1, 1)


def test_every_view_is_judged() -> None:
    assert set(SEEKS) == set(VIEWS), "add each statement of views.sql to SEEKS, with the indexes it uses"


@pytest.mark.parametrize("name", SEEKS)
def test_a_view_uses_its_index(database: sqlite3.Connection, name: str) -> None:
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {VIEWS[name]}", PARAMETERS)]
    found = {step.replace("COVERING ", "")[7:] for step in steps if step.startswith("SEARCH ")}
    assert found == SEEKS[name], steps
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN")} - PATTERNS
    assert scanned == SCANS.get(name, set()), steps
    assert any("TEMP B-TREE" in step for step in steps) == (name in SORTS), steps


def test_failed_runs_are_counted_by_hour_without_their_rows(database: sqlite3.Connection) -> None:
    given = {"groups": "[]", "hours": "[]", "pattern": None, "visible": None, "limit": 5}
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {FINDING['failed_by_hour']}", given)]
    assert {step for step in steps if " runs" in step} == {
        "SEARCH runs",  # the highest runID
        "SEARCH runs USING INTEGER PRIMARY KEY (rowid>?)",
        "SEARCH runs USING COVERING INDEX runsFailedAlike (fingerprint=? AND runID>? AND runID<?)",
    }, steps


@pytest.mark.parametrize(
    ("name", "reply", "also"),
    [
        ("run", RunReply, ()),
        ("schedules", ScheduleReply, ()),
        ("ticks", TickReply, ()),
        ("events", EventReply, ()),
    ],
)
def test_columns_are_those_of_the_reply(path: Path, name: str, reply: Any, also: tuple[str, ...]) -> None:
    db = sqlite3.connect(path)
    columns = tuple(column[0] for column in db.execute(VIEWS[name], PARAMETERS).description)
    db.close()
    made = ("status", "failed") if name == "ticks" else ()  # of the runs, which are read in addition
    assert columns + made == also + keys_of(reply)


@pytest.mark.parametrize("name", ["runs", "runs_in_progress", "runs_of_job", "runs_of_name", "runs_of_names"])
def test_lists_of_runs_have_all_but_the_data(path: Path, name: str) -> None:
    db = sqlite3.connect(path)
    columns = tuple(column[0] for column in db.execute(VIEWS[name], PARAMETERS).description)
    db.close()
    assert (*columns, "data") == keys_of(RunReply)
