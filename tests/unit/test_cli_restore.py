"""`bedrockjobs restore`: a checked backup replaces a database, on hold, or nothing changes."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_fake import FakeServer, run, sent
from jobs_file import add_jobs, rows_of

from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.settings import Settings
from bedrockjobs.store import schema
from bedrockjobs.store.files import DatabaseLock, Lost
from bedrockjobs.store.schema import tables
from bedrockjobs.store.sqlite import SQLiteEngine

VERSION_3 = (Path(__file__).parents[1] / "runs" / "schema_3.sql").read_text()
PAUSES = "SELECT pattern, by, reason FROM pauses"


@pytest.fixture
def backup(store: SQLiteEngine, tmp_path: Path) -> Path:
    """Return a backup of 300 jobs; the database has 310 since, and no server."""
    path = tmp_path / "backup.db"
    assert run("backup", str(path)).exit_code == 0
    add_jobs(store, 10)
    store.close()
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_takes_the_place_of_a_database_which_is_kept_aside(backup: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.db"
    result = run("restore", str(backup), "--force", "--by", "ann", "-o", "json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    aside = Path(told["aside"])
    assert told == {
        "database": str(jobs),
        "backup": str(backup),
        "jobs": 300,
        "states": {"QUEUED": 300},
        "schedules": 0,
        "seen": told["seen"],
        "held": True,
        "aside": str(aside),
    }
    assert rows_of(jobs, "SELECT count(*) FROM jobs") == [(300,)]
    assert rows_of(jobs, PAUSES) == [("***", "ann", "restored from backup.db")]
    assert jobs.stat().st_mode & 0o777 == 0o600
    assert rows_of(aside, "SELECT count(*) FROM jobs") == [(310,)]
    assert rows_of(backup, PAUSES) == [], "the backup stays as it was"
    assert not any(name.endswith(".tmp") for name in names(tmp_path))


def test_numbers_that_were_given_since_the_backup_are_not_given_again(backup: Path, tmp_path: Path) -> None:
    assert run("restore", str(backup), "--force").exit_code == 0
    server = SQLiteEngine(tmp_path / "jobs.db", Settings())
    server.begin()
    assert server.unit.new_job_id() >= 311
    server.rollback()
    server.close()


def token(name: str, secret: str, *, revoked: str = "") -> str:
    """Return the statement that makes a token."""
    values = f"'{name}', '{secret}', 'admin', '2026-01-01 00:00:00', '{revoked}'"
    return f"INSERT INTO tokens (name, digest, role, created, revoked) VALUES ({values})"


@pytest.mark.parametrize(("old", "kept"), [("there", True), ("without tokens", False), ("damaged", False)])
def test_what_was_revoked_since_the_backup_stays_so(
    backup: Path, tmp_path: Path, old: str, kept: bool
) -> None:
    jobs = tmp_path / "jobs.db"
    execute(backup, token("a", "first"))
    execute(backup, "INSERT INTO logins VALUES ('session', 'a', '2026-01-01', '2999-01-01')")
    if old != "without tokens":
        execute(jobs, token("a", "first", revoked="2026-02-02 00:00:00"))
        execute(jobs, token("b", "second"))
    if old == "damaged":
        jobs.write_bytes(b"no database at all" * 500)
    assert run("restore", str(backup), "--force").exit_code == 0
    there = rows_of(jobs, "SELECT name, digest, revoked FROM tokens")
    since = [("a", "first", "2026-02-02 00:00:00"), ("b", "second", "")]
    assert there == (since if kept else [("a", "first", "")])
    assert rows_of(jobs, "SELECT count(*) FROM logins") == [(0,)], "everybody logs in again"


def test_the_log_of_the_old_database_goes_with_it(backup: Path, tmp_path: Path) -> None:
    """A remaining log would be replayed into the restored database."""
    jobs = tmp_path / "jobs.db"
    writer = SQLiteEngine(jobs, Settings())
    add_jobs(writer, 20)
    log = Path(f"{jobs}-wal").read_bytes()
    writer.close()
    Path(f"{jobs}-wal").write_bytes(log)
    result = run("restore", str(backup), "--force", "-o", "json")
    aside = json.loads(result.stdout)["aside"]
    assert Path(f"{aside}-wal").read_bytes() == log
    assert not Path(f"{jobs}-wal").exists()
    assert rows_of(jobs, "SELECT count(*) FROM jobs") == [(300,)]


def test_where_nothing_is_it_needs_no_force(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").unlink()
    result = run("restore", str(backup), "--no-hold")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(
        f"Restored {tmp_path}/jobs.db from {backup}: 300 QUEUED, 0 of them repeating"
    )
    assert rows_of(tmp_path / "jobs.db", PAUSES) == []


def test_a_database_that_is_there_is_left_alone_without_force(backup: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    result = run("restore", str(backup))
    assert (result.exit_code, "jobs.db exists; --force renames it" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(310,)]
    assert [name for name in names(tmp_path) if name != "jobs.db-lock"] == before


def test_a_database_that_a_server_uses_is_left_alone(backup: Path, tmp_path: Path) -> None:
    lock = DatabaseLock(tmp_path / "jobs.db")
    lock.acquire()
    lock.describe("the server with pid 42")
    result = run("restore", str(backup), "--force")
    lock.release()
    assert (result.exit_code, "is owned by the server with pid 42" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(310,)]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20_000:-8_000] = b"\xff" * 12_000
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage, "nothing was changed"),
        (lambda path: path.write_text("no database at all" * 500), "file is not a database"),
        (lambda path: path.unlink(), "there is no backup"),
        (lambda path: path.write_bytes(b""), "is not a database of bedrockjobs"),
        (lambda path: execute(path, f"PRAGMA user_version = {schema.VERSION + 1}"), "supports up to"),
        (
            lambda path: execute(path, "INSERT INTO meta VALUES ('movedTo', 'postgresql://h/d')"),
            "was moved to postgresql://h/d",
        ),
    ],
    ids=["damaged", "text", "missing", "empty", "newer", "moved"],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_bad_backup_changes_nothing(backup: Path, tmp_path: Path, spoil, words: str, there: bool) -> None:  # type: ignore[no-untyped-def]
    jobs = tmp_path / "jobs.db"
    if not there:
        jobs.unlink()
    spoil(backup)
    result = run("restore", str(backup), "--force")
    assert (result.exit_code, words in result.stderr) == (4, True), result.stderr
    assert result.stderr.count(str(backup)) == 1
    assert jobs.exists() == there
    assert not there or rows_of(jobs, "SELECT count(*) FROM jobs") == [(310,)]
    assert not any(".tmp" in name or "before-restore" in name for name in names(tmp_path))
    DatabaseLock(jobs).acquire()  # a server may start


@pytest.mark.parametrize("step", ["copy_snapshot", "check_copy"])
def test_a_full_disk_leaves_nothing_behind(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    jobs = tmp_path / "jobs.db"
    jobs.unlink()
    before = [name for name in names(tmp_path) if name != "jobs.db-lock"]
    (tmp_path / "jobs.db-lock").unlink(missing_ok=True)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"bedrockjobs.store.transfer.{step}", full)
    result = run("restore", str(backup))
    assert (result.exit_code, "No space left on device" in result.stderr) == (1, True), result.stderr
    assert names(tmp_path) == before, "not even a lock file"
    server = DatabaseLock(jobs)
    server.acquire()
    server.release()
    jobs.unlink()
    assert run("restore", str(backup)).exit_code == 1
    assert names(tmp_path) == sorted([*before, "jobs.db-lock"]), "one that was there stays"


def execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


def test_a_backup_of_an_older_version_is_brought_up(tmp_path: Path) -> None:
    backup = tmp_path / "old.db"
    with closing(sqlite3.connect(backup)) as connection:
        connection.executescript(VERSION_3)
        connection.execute("PRAGMA user_version = 3")
        connection.commit()
    result = run("restore", str(backup), "--database", str(tmp_path / "jobs.db"), "--by", "ann")
    assert (result.exit_code, "from schema version 3" in result.stdout) == (0, True), result.stderr
    assert rows_of(tmp_path / "jobs.db", PAUSES) == [("***", "ann", "restored from old.db")]
    assert rows_of(backup, "PRAGMA user_version") == [(3,)]


PLANTED = (
    "CREATE TRIGGER mine AFTER INSERT ON pauses BEGIN INSERT INTO tokens (name, digest, role, created)"
    " VALUES ('evil', 'x', 'admin', ''); END",
    "CREATE TRIGGER gone AFTER DELETE ON logins BEGIN INSERT INTO tokens (name, digest, role, created)"
    " VALUES ('evil', 'x', 'admin', ''); END",
    "CREATE TRIGGER told INSTEAD OF INSERT ON shown BEGIN SELECT 1; END",
    "CREATE VIEW shown AS SELECT * FROM jobs",
    "CREATE TABLE more (a)",
    "CREATE INDEX moreIndex ON jobs (data)",
    "DROP INDEX jobsByName",
    "DROP TRIGGER jobsDataByHand",
    "ALTER TABLE jobs ADD COLUMN colour TEXT DEFAULT 'red'",
)
"""Ways in which a backup may have been manipulated."""


def test_a_restored_file_has_the_objects_of_this_schema_and_no_others(backup: Path, tmp_path: Path) -> None:
    """Foreign triggers, views, tables, indexes and columns are removed, and missing ones are created."""
    rows = [rows_of(backup, f"SELECT * FROM {table.name}") for table in tables()]
    execute(backup, "INSERT INTO logins (digest, token, created, expires) VALUES ('d', 't', '', '')")
    for sql in (PLANTED[3], *PLANTED[:3], *PLANTED[4:]):
        execute(backup, sql)
    target = tmp_path / "restored.db"
    assert run("restore", str(backup), "--database", str(target), "--by", "ann").exit_code == 0
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        schema.apply(connection)
    objects = "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
    assert rows_of(target, objects) == rows_of(new, objects)
    assert rows_of(target, "SELECT name FROM tokens") == []
    found = [rows_of(target, f"SELECT * FROM {table.name}") for table in tables()]
    held = [at for at, table in enumerate(tables()) if table.name in ("pauses", "events")]
    for at, (before, after) in enumerate(zip(rows, found, strict=True)):
        assert after == before or at in held, tables()[at].name
    assert len(rows_of(target, "SELECT jobID FROM jobs")) == 300


def test_a_table_that_is_none_is_refused(backup: Path, tmp_path: Path) -> None:
    execute(backup, "ALTER TABLE keys RENAME TO others")
    execute(backup, "CREATE VIEW keys AS SELECT * FROM others")
    result = run("restore", str(backup), "--database", str(tmp_path / "restored.db"))
    assert result.exit_code != 0
    assert "no such table" in result.stderr
    assert not (tmp_path / "restored.db").exists()


def test_a_crash_in_the_middle_leaves_nothing_that_a_server_starts_on(backup: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.db"
    writer = SQLiteEngine(jobs, Settings())
    add_jobs(writer, 20)
    log = Path(f"{jobs}-wal").read_bytes()
    writer.close()
    Path(f"{jobs}-wal").write_bytes(log)

    child = os.fork()
    if not child:  # killed before the old database has its other name
        Path.hardlink_to = lambda *_: os._exit(9)  # type: ignore[method-assign]
        run("restore", str(backup), "--force")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not Path(f"{jobs}-wal").exists()
    with pytest.raises(Lost, match="It was last used by bedrockjobs restore with pid"):
        DatabaseLock(jobs).acquire()
    assert run("restore", str(backup), "--force").exit_code == 0, "it can be done again"
    DatabaseLock(jobs).acquire()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a BACKUP, or --hold, or --release"),
        (["a.db", "--hold"], "give a BACKUP, or --hold, or --release; one of them at a time"),
        (["--release", "--force"], "need a BACKUP"),
        (["a.db", "--database", "postgresql://h/d"], "pg_restore"),
    ],
)
def test_what_is_meant_must_be_clear(arguments: list[str], words: str) -> None:
    result = run("restore", *arguments)
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def test_a_file_that_was_restored_by_other_means_can_be_held(backup: Path, tmp_path: Path) -> None:
    for _ in range(2):
        result = run("restore", "--hold", "--by", "ann")
        assert result.stdout.startswith(f"{tmp_path}/jobs.db is held: start a server")
    assert rows_of(tmp_path / "jobs.db", PAUSES) == [("***", "ann", "restored by other means")]


def test_release_reaches_the_server(fake: FakeServer) -> None:
    fake.will("ReleaseHold", {"since": "2026-11-21 03:29:56", "reason": "restored from a.db"})
    result = run("restore", "--release", "--by", "ann")
    assert (
        result.stdout
        == "Released the queue, which was held since 2026-11-21 03:29:56 UTC (restored from a.db).\n"
    )
    assert sent(fake, "ReleaseHold") == [{"by": "ann"}]
    fake.will("ReleaseHold", NotFound("Not held"))
    assert run("restore", "--release").exit_code == 3
