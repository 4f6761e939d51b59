"""`bedrockjobs migrate`: older databases, databases of Bedrock, and refusals."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_fake import run
from jobs_file import STAMP, rows_of

from bedrockjobs.base.settings import Settings
from bedrockjobs.store import bedrock_import, schema, transfer
from bedrockjobs.store.bedrock_import import COLUMNS
from bedrockjobs.store.files import DatabaseLock
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.transfer import migration_copies

BEDROCK = """
CREATE TABLE jobs (created TIMESTAMP NOT NULL, jobID INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL,
    name TEXT NOT NULL, nextRun TIMESTAMP NOT NULL, lastRun TIMESTAMP, repeat TEXT NOT NULL,
    data TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 500, parentJobID INTEGER NOT NULL DEFAULT 0,
    retryAfter TEXT NOT NULL DEFAULT "")
"""

VERSION_1 = (Path(__file__).parents[1] / "runs" / "schema_1.sql").read_text()


def bedrock(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Create a database of the original; missing values of a row are those of a plain queued job."""
    path.unlink(missing_ok=True)
    plain = {
        "created": STAMP,
        "state": "QUEUED",
        "name": "foo",
        "nextRun": STAMP,
        "lastRun": None,
        "repeat": "",
        "data": "{}",
        "priority": 500,
        "parentJobID": 0,
        "retryAfter": "",
    }
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(BEDROCK)
        marks = ", ".join(f":{column}" for column in COLUMNS)
        connection.executemany(
            f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({marks})",
            [{**plain, "jobID": at, **row} for at, row in enumerate(rows, 1)],
        )
        connection.commit()
    return path


def test_a_current_database_is_said_to_be_current(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    result = run("migrate")
    assert (result.exit_code, result.stdout) == (
        0,
        f"{tmp_path}/jobs.db is at schema version {schema.VERSION} already.\n",
    )


def test_an_older_database_is_brought_up(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    before = rows_of(tmp_path / "jobs.db", "SELECT * FROM jobs")
    (tmp_path / "jobs.db").unlink()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.executescript(VERSION_1)
        connection.executemany(
            f"INSERT INTO jobs VALUES ({', '.join('?' * 16)})", [row[:16] for row in before]
        )
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    result = run("migrate", "-o", "json")
    assert json.loads(result.stdout) == {
        "database": f"{tmp_path}/jobs.db",
        "before": 1,
        "after": schema.VERSION,
        "copy": str(*migration_copies(tmp_path / "jobs.db")),
    }
    assert rows_of(tmp_path / "jobs.db", "SELECT * FROM jobs") == before
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM runs") == [(0,)]


def test_nothing_is_migrated_while_a_server_owns_the_database(store: SQLiteEngine, tmp_path: Path) -> None:
    lock = DatabaseLock(tmp_path / "jobs.db")
    lock.acquire()
    lock.describe("the server with pid 42")
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    old = str(bedrock(tmp_path / "old.db", [{"jobID": 1000}]))
    for arguments in (
        ["migrate"],
        ["migrate", "--from-bedrock", old],
        ["migrate", "--database", f"{tmp_path}/link.db"],
    ):
        result = run(*arguments)
        assert (result.exit_code, "is owned by the server with pid 42" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT max(jobID) FROM jobs") == [(300,)]
    lock.release()
    store.close()
    assert run("migrate").exit_code == 0


def test_a_newer_or_foreign_or_missing_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    result = run("migrate", "--database", str(path))
    assert (result.exit_code, "`bedrockjobs serve` makes one" in result.stderr) == (4, True)
    assert not path.exists()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    assert "supports up to" in run("migrate", "--database", str(path)).stderr
    bedrock(path, [])
    result = run("migrate", "--database", str(path))
    assert (result.exit_code, "--from-bedrock" in result.stderr) == (4, True)


# --- --from-bedrock --------------------------------------------------------------------------------------


def import_from(tmp_path: Path, rows: list[dict[str, Any]], *arguments: str) -> Any:
    """Import a Bedrock database of these rows into a new one."""
    old = bedrock(tmp_path / "old.db", rows)
    return run("migrate", "--from-bedrock", str(old), "--database", str(tmp_path / "jobs.db"), *arguments)


def test_the_jobs_of_bedrock_are_copied_as_they_are(tmp_path: Path) -> None:
    huge = 1029982629765118111
    result = import_from(
        tmp_path,
        [
            {
                "jobID": 5,
                "nextRun": "2026-11-21 03:29:56.332",
                "lastRun": STAMP,
                "data": '{"b":2.50, "a":1e2}',
            },
            {"jobID": huge, "state": "PAUSED", "repeat": "FINISHED, +1 HOUR", "priority": 850},
            {"jobID": 9, "parentJobID": huge, "state": "QUEUED"},
            {"jobID": 10, "state": "RUNQUEUED", "retryAfter": "+5 MINUTES", "data": '{"retryAfterCount":1}'},
            {"jobID": 11, "data": '{"mockRequest":true}'},
            {"jobID": 12, "state": "RUNNING"},
        ],
    )
    assert (result.exit_code, result.stdout) == (0, f"Imported 6 jobs into {tmp_path}/jobs.db.\n")
    assert "1 jobs are RUNNING" in result.stderr
    columns = ", ".join(COLUMNS)
    old = rows_of(tmp_path / "old.db", f"SELECT {columns} FROM jobs ORDER BY jobID")
    new = rows_of(tmp_path / "jobs.db", f"SELECT {columns} FROM jobs ORDER BY jobID")
    assert new == [tuple("" if value is None else value for value in row) for row in old]
    assert rows_of(tmp_path / "jobs.db", "SELECT jobID FROM jobs WHERE lane = 'mock'") == [(11,)]
    assert (tmp_path / "jobs.db").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.db", "jobs.db-lock", "old.db"}

    store = SQLiteEngine(tmp_path / "jobs.db", Settings())
    store.begin()
    assert store.unit.new_job_id() == 13, (
        "an id that was counted is never used again, a drawn one is no start"
    )
    store.rollback()
    store.close()


BAD_ROWS = [
    ({"data": "[1]"}, "data: expected a JSON object: not a JSON object"),
    ({"data": '{"a":1'}, "expected a JSON object"),
    ({"data": ""}, "expected a JSON object"),
    ({"data": b"\xff"}, "expected UTF-8 text"),
    ({"priority": 7}, "one of 0, 250, 500, 750, 850, 1000"),
    ({"state": "LOST"}, "state: expected one of QUEUED"),
    ({"name": ""}, "name"),
    ({"name": "x" * 256}, "at most 255 characters"),
    ({"nextRun": "someday"}, "expected a date like"),
    ({"created": ""}, "expected a date like"),
    ({"repeat": "EVERY DAY"}, "repeat: expected HOURLY"),
    ({"retryAfter": "5 weeks"}, "retryAfter: expected modifiers like"),
    ({"parentJobID": 99}, "job 99 is missing"),
    ({"jobID": -4}, "digits"),
    ({"jobID": 0}, "a number above 0"),
]


@pytest.mark.parametrize(("row", "complaint"), BAD_ROWS)
def test_a_bad_row_is_told_and_nothing_is_imported(
    row: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    result = import_from(tmp_path, [{}, row])
    assert result.exit_code == 4
    assert complaint in result.stderr
    assert f"Job {row.get('jobID', 2)}: " in result.stderr
    assert "1 rows cannot be imported" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "jobs.db").exists()


def test_bad_rows_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    rows = [{}, *({"name": "bad", **row} for row, _ in BAD_ROWS if "jobID" not in row)]
    child = {"parentJobID": 2, "name": "orphan"}
    result = import_from(tmp_path, [*rows, child], "--skip-bad", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "database": f"{tmp_path}/jobs.db",
        "imported": 1,
        "skipped": len(rows),
    }
    assert rows_of(tmp_path / "jobs.db", "SELECT jobID FROM jobs") == [(1,)]


def test_only_so_many_bad_rows_are_listed(tmp_path: Path) -> None:
    result = import_from(tmp_path, [{"priority": 7}] * 60)
    assert len([line for line in result.stderr.splitlines() if line.startswith("Job ")]) == 50
    assert "... and 10 more" in result.stderr


def test_an_id_that_is_taken_stops_the_whole_import(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    result = import_from(tmp_path, [{"jobID": 1000}, {"jobID": 300}])
    assert (result.exit_code, "jobID 300 is taken" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*), max(jobID) FROM jobs") == [(300, 300)]
    assert import_from(tmp_path, [{"jobID": 1000}]).exit_code == 0
    assert rows_of(tmp_path / "jobs.db", "SELECT value FROM meta WHERE key = 'nextJobID'") == [(1001,)]


def test_a_row_that_changes_meanwhile_stops_the_whole_import(tmp_path: Path) -> None:
    old = bedrock(tmp_path / "old.db", [{}, {}])
    findings = bedrock_import.examine(old)
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE jobs SET data = 'x' WHERE jobID = 2")
        connection.commit()
    with pytest.raises(transfer.TransferError, match="job 2 was changed in the meantime"):
        bedrock_import.import_jobs(old, tmp_path / "jobs.db", findings)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(0,)]


def test_what_is_no_bedrock_database_is_refused(store: SQLiteEngine, tmp_path: Path) -> None:
    def complaint(name: str) -> str:
        target = str(tmp_path / "new.db")
        result = run("migrate", "--from-bedrock", str(tmp_path / name), "--database", target)
        assert result.exit_code == 4
        assert not Path(target).exists()
        return result.stderr

    assert "there is no database" in complaint("missing.db")
    assert "is a database of bedrockjobs" in complaint("jobs.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE a (b)")
        assert "it has no table jobs" in complaint("other.db")
        connection.execute("CREATE TABLE jobs (jobID, name)")
        assert "lacks created, state, nextRun" in complaint("other.db")
    content = bytearray(bedrock(tmp_path / "wal2.db", [{}]).read_bytes())
    content[18:20] = b"\x03\x03"
    (tmp_path / "wal2.db").write_bytes(content)
    assert "WAL2 mode" in complaint("wal2.db")


def test_skip_bad_needs_an_import() -> None:
    assert run("migrate", "--skip-bad").exit_code == 2
