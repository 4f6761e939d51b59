"""`bedrockjobs backup` and `migrate`: what becomes of files, and what is refused."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_fake import run

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.database import size_text
from bedrockjobs.job.rows import Job
from bedrockjobs.store import backup as copying
from bedrockjobs.store import bedrock_import, schema
from bedrockjobs.store.bedrock_import import COLUMNS
from bedrockjobs.store.lock import DatabaseLock
from bedrockjobs.store.sqlite import SQLiteEngine

STAMP = "2026-11-21 03:29:56"

BEDROCK = """
CREATE TABLE jobs (created TIMESTAMP NOT NULL, jobID INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL,
    name TEXT NOT NULL, nextRun TIMESTAMP NOT NULL, lastRun TIMESTAMP, repeat TEXT NOT NULL,
    data TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 500, parentJobID INTEGER NOT NULL DEFAULT 0,
    retryAfter TEXT NOT NULL DEFAULT "")
"""


VERSION_1 = (Path(__file__).parents[1] / "runs" / "schema_1.sql").read_text()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteEngine]:
    """A database with 300 jobs, open for writing as a server has it."""
    monkeypatch.setenv("BEDROCKJOBS_DATABASE", str(tmp_path / "jobs.db"))
    store = SQLiteEngine(tmp_path / "jobs.db", Settings())
    add_jobs(store, 300)
    yield store
    store.close()


def add_jobs(store: SQLiteEngine, count: int) -> None:
    """Add jobs in one commit."""
    store.begin()
    for _ in range(count):
        store.unit.insert(
            Job(STAMP, store.unit.new_job_id(), "QUEUED", "foo", STAMP, data=f'{{"a":"{"x" * 500}"}}')
        )
    store.commit()


def rows_of(path: Path, sql: str) -> list[Any]:
    """Run a SELECT on a file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


# --- backup ---------------------------------------------------------------------------------------------


def test_a_backup_of_an_open_database_is_whole_and_private(store: SQLiteEngine, tmp_path: Path) -> None:
    result = run("backup", str(tmp_path / "copy.db"), "-o", "json")
    assert result.exit_code == 0, result.stderr
    copy = tmp_path / "copy.db"
    assert json.loads(result.stdout) == {"file": str(copy), "bytes": copy.stat().st_size, "jobs": 300}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows_of(copy, "PRAGMA journal_mode") == [("delete",)], "one file, no log beside it"
    for sql in (
        "SELECT * FROM jobs ORDER BY jobID",
        "SELECT * FROM meta ORDER BY key",
        "PRAGMA user_version",
    ):
        assert rows_of(copy, sql) == rows_of(tmp_path / "jobs.db", sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy.db",
        "jobs.db",
        "jobs.db-ballast",
        "jobs.db-shm",
        "jobs.db-wal",
    ]


def test_a_server_can_go_on_from_a_backup(store: SQLiteEngine, tmp_path: Path) -> None:
    run("backup", str(tmp_path / "copy.db"))
    restored = SQLiteEngine(tmp_path / "copy.db", Settings())
    restored.begin()
    assert restored.unit.new_job_id() == 301
    restored.rollback()
    restored.close()


def test_a_backup_is_one_snapshot_while_jobs_are_written(
    store: SQLiteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PAGES_PER_STEP", 1)
    steps = 0

    def write_between_the_steps(_: int, total: int) -> None:
        nonlocal steps
        steps += 1
        assert steps <= total, "the copy begins anew at each commit"
        add_jobs(store, 1)

    copy = copying.copy_database(
        tmp_path / "jobs.db", tmp_path / "copy.db", overwrite=False, progress=write_between_the_steps
    )
    assert steps > 20
    assert copy.jobs == 300
    assert rows_of(tmp_path / "copy.db", "SELECT count(*), max(jobID) FROM jobs") == [(300, 300)]
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(300 + steps,)]


def test_a_backup_beside_a_busy_writer_ends(store: SQLiteEngine, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            add_jobs(store, 5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = run("backup", str(tmp_path / "copy.db"))
    finally:
        done.set()
        writer.join()
    assert result.exit_code == 0, result.stderr
    assert rows_of(tmp_path / "copy.db", "PRAGMA integrity_check") == [("ok",)]
    (count,) = rows_of(tmp_path / "copy.db", "SELECT count(*) FROM jobs")[0]
    assert count % 5 == 0, "a commit is in the copy or it is not"


def test_a_closed_database_is_backed_up_too(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    before = (tmp_path / "jobs.db").read_bytes()
    result = run("backup", str(tmp_path / "copy.db"))
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, f"Wrote {tmp_path}/copy.db")
    assert "300 jobs" in result.stdout
    assert (tmp_path / "jobs.db").read_bytes() == before


def test_a_file_in_the_way_is_replaced_by_force_only(store: SQLiteEngine, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious", encoding="utf-8")
    refused = run("backup", str(copy))
    assert (refused.exit_code, refused.stderr) == (4, f"Error: {copy} exists; --force replaces it\n")
    assert copy.read_text(encoding="utf-8") == "precious"
    assert run("backup", str(copy), "--force").exit_code == 0
    assert rows_of(copy, "SELECT count(*) FROM jobs") == [(300,)]


def test_the_database_itself_is_never_the_target(store: SQLiteEngine, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    for target in ("jobs.db", "link.db"):
        result = run("backup", str(tmp_path / target), "--force")
        assert (result.exit_code, "is the database itself" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(300,)]


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_log_beside_the_target_would_be_played_into_the_copy(
    suffix: str, store: SQLiteEngine, tmp_path: Path
) -> None:
    (tmp_path / f"copy.db{suffix}").write_bytes(b"")
    result = run("backup", str(tmp_path / "copy.db"), "--force")
    assert (result.exit_code, f"copy.db{suffix} exists" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "there is no database"), (b"", "is not a database of bedrockjobs"), (b"x" * 4096, "SQLite: ")],
)
def test_what_cannot_be_backed_up_leaves_nothing_behind(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "other.db").write_bytes(content)
    result = run("backup", str(tmp_path / "copy.db"), "--database", str(tmp_path / "other.db"))
    assert result.exit_code in (1, 4)
    assert complaint in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["other.db"])


def test_a_damaged_database_makes_no_backup(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    damaged = bytearray((tmp_path / "jobs.db").read_bytes())
    damaged[-4096 * 3 :] = b"\x5a" * (4096 * 3)
    (tmp_path / "jobs.db").write_bytes(damaged)
    result = run("backup", str(tmp_path / "copy.db"))
    assert result.exit_code in (1, 4)
    assert not [path.name for path in tmp_path.iterdir() if not path.name.startswith("jobs.db")]


def test_an_interrupted_backup_leaves_nothing_behind(store: SQLiteEngine, tmp_path: Path) -> None:
    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copying.copy_database(tmp_path / "jobs.db", tmp_path / "copy.db", overwrite=False, progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {
        "jobs.db",
        "jobs.db-ballast",
        "jobs.db-shm",
        "jobs.db-wal",
    }


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 * 1024**4, "5120.0 GiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


# --- migrate --------------------------------------------------------------------------------------------


def test_a_current_database_is_said_to_be_current(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    result = run("migrate")
    assert (result.exit_code, result.stdout) == (
        0, f"{tmp_path}/jobs.db is at schema version {schema.VERSION} already.\n",
    )  # fmt: skip


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
        "database": f"{tmp_path}/jobs.db", "before": 1, "after": schema.VERSION,
    }  # fmt: skip
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
    assert "knows up to" in run("migrate", "--database", str(path)).stderr
    bedrock(path, [])
    result = run("migrate", "--database", str(path))
    assert (result.exit_code, "--from-bedrock" in result.stderr) == (4, True)


# --- migrate --from-bedrock -----------------------------------------------------------------------------


def bedrock(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Make a database as the original has it; a row's left-out values are those of a plain queued job."""
    path.unlink(missing_ok=True)
    plain = {
        "created": STAMP, "state": "QUEUED", "name": "foo", "nextRun": STAMP, "lastRun": None, "repeat": "",
        "data": "{}", "priority": 500, "parentJobID": 0, "retryAfter": "",
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(BEDROCK)
        marks = ", ".join(f":{column}" for column in COLUMNS)
        connection.executemany(
            f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({marks})",
            [{**plain, "jobID": at, **row} for at, row in enumerate(rows, 1)],
        )
        connection.commit()
    return path


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
        "database": f"{tmp_path}/jobs.db", "imported": 1, "skipped": len(rows),
    }  # fmt: skip
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
    with pytest.raises(copying.CopyError, match="job 2 was changed meanwhile"):
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
