"""`bedrockjobs doctor`: findings about the database file, and which file it checks."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_fake import FakeServer
from doctored import findings, of, offer, owned, status, well

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import doctor as module
from bedrockjobs.store import offline, schema
from bedrockjobs.store.files import DatabaseLock, owner_of
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.damage import spoil


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the command."""
    offer(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Return a database that this process owns, like a server."""
    with owned(tmp_path / "jobs.db") as path:
        yield path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, path: Path) -> FakeServer:
    """Return a healthy server without workers and without due jobs."""
    return well(monkeypatch, path)


# --- what is wrong with it -------------------------------------------------------------------------------


def changed(path: Path, *statements: str) -> None:
    """Change the database by hand."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DROP INDEX jobsByName", "index jobsByName is missing"),
        ("CREATE TABLE mine (x)", "table mine is unexpected"),
        ("ALTER TABLE drains ADD COLUMN x TEXT", "table drains is different"),
    ],
)
def test_a_schema_that_was_changed_by_hand_fails(
    server: FakeServer, path: Path, statement: str, words: str
) -> None:
    changed(path, statement)
    (found,) = of(findings(expect=1), "schema")
    assert (found["level"], found["finding"]) == ("fail", words)


OLD_WORDING = Path(__file__).parents[1] / "runs" / "schema_6.sql"
"""The schema of version 6 with the comments that it had at first; this version has more behind it."""


def old_wording() -> str:
    """Return the schema of this version with the comments of version 6; two have other columns since."""
    script = OLD_WORDING.read_text()
    for changed in ("TABLE stats", "INDEX runsFailedAlike"):
        statement = re.compile(rf"^CREATE {changed} .*?;$", re.MULTILINE | re.DOTALL)
        (now,) = statement.findall(schema.schema_text())
        script = statement.sub(now, script, count=1)
    added = re.findall(
        r"^CREATE (?:UNIQUE )?(?:INDEX|TABLE) (?:keysByJob|inbox|workflow|paced)\w* .*?;$",
        schema.schema_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert len(added) == 3 + 8 + 2
    return "\n".join((script, *added, ""))


def rebuilt(path: Path, script: str) -> None:
    """Replace the database by an empty one of this version with the given schema."""
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(script)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")


def test_comments_in_the_stored_schema_may_differ(server: FakeServer, path: Path) -> None:
    script = old_wording()
    assert script != schema.schema_text(), "their comments differ"
    rebuilt(path, script)
    (found,) = of(findings(), "schema")
    assert found["level"] == "ok"


@pytest.mark.parametrize(
    ("before", "after", "table"),
    [
        ("DEFAULT '[]', -- its last", "DEFAULT '--', -- its last", "runs"),
        ("state = 'PAUSED'\n", "state = 'P AUSED'\n", "jobs"),
        ("late    INTEGER NOT NULL DEFAULT 0, ", "late    INTEGER NOT NULL /* DEFAULT 0 */, ", "ticks"),
    ],
)
def test_a_definition_between_comments_may_not_differ(
    server: FakeServer, path: Path, before: str, after: str, table: str
) -> None:
    script = old_wording()
    assert before in script
    rebuilt(path, script.replace(before, after, 1))
    (found,) = of(findings(expect=1), "schema")
    assert found["finding"].startswith(f"table {table} is different")


def test_many_differences_are_counted(server: FakeServer, path: Path) -> None:
    changed(path, *(f"CREATE TABLE mine{number} (x)" for number in range(module.DIFFERENCES_SHOWN_MAX + 3)))
    assert of(findings(expect=1), "schema")[0]["finding"].endswith("; and 3 more")


@pytest.mark.parametrize(("version", "level"), [(schema.VERSION - 1, "warn"), (schema.VERSION + 1, "fail")])
def test_another_version_is_told(server: FakeServer, path: Path, version: int, level: str) -> None:
    changed(path, f"PRAGMA user_version = {version}")
    (found,) = of(findings(expect=int(level == "fail")), "schema")
    assert found["level"] == level
    assert f"version {version}" in found["finding"]


def test_a_file_that_is_no_database_fails(server: FakeServer, path: Path) -> None:
    path.write_bytes(b"nothing of ours" * 100)
    (found,) = of(findings(expect=1), "schema")
    assert "not a database" in found["finding"]


def test_a_folder_in_the_place_of_the_file_fails_once(server: FakeServer, path: Path) -> None:
    path.unlink()
    path.mkdir()
    told = [found for found in findings(expect=1) if found["level"] == "fail"]
    assert [(found["check"], found["finding"]) for found in told] == [("database", f"{path} is not a file")]


@pytest.mark.parametrize(
    ("free", "level"), [(10 * 1024**4, "ok"), (500 * 1024**2, "warn"), (1024**2, "fail")]
)
def test_room_on_the_disk(server: FakeServer, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    (found,) = of(findings(expect=int(level == "fail")), "disk")
    assert found["level"] == level


def test_a_disk_without_room_for_a_backup(
    server: FakeServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPACE_LOW_BYTES", 1)
    monkeypatch.setattr(module, "SPACE_FAIL_BYTES", 0)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=path.stat().st_size - 1))
    (found,) = of(findings(), "disk")
    assert (found["level"], "backup" in found["advice"]) == ("warn", True)


@pytest.mark.parametrize("damaged", [False, True])
def test_scrub_reads_all_of_the_file(server: FakeServer, path: Path, damaged: bool) -> None:
    with closing(sqlite3.connect(path)) as found:
        rows = [("2026-11-21 03:00:00", n, "x" * 4_000) for n in range(500)]
        found.executemany("INSERT INTO events (at, kind, detail, seq) SELECT ?1, 'paused', ?3, ?2", rows)
        found.commit()
    if damaged:
        spoil(path)
    (finding,) = of(findings("--scrub", expect=int(damaged)), "damage")
    assert finding["level"] == ("fail" if damaged else "ok")
    assert damaged == ("restore a backup" in finding["advice"])


def test_without_scrub_the_file_is_not_read_whole(server: FakeServer, path: Path) -> None:
    assert not of(findings(), "damage")


def test_a_network_file_system_fails(
    server: FakeServer, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/srv {path.parent.resolve()} nfs4 rw 0 0\nbroken\n")
    monkeypatch.setattr(offline, "MOUNTS", mounts)
    found = of(findings(expect=1), "disk")
    assert found[-1]["finding"] == "the file system is nfs4"
    assert offline.file_system_of(Path("/")) == "ext4"
    monkeypatch.setattr(offline, "MOUNTS", tmp_path / "none")
    assert offline.file_system_of(path) == ""


@pytest.mark.parametrize(
    ("size", "level"), [(1, "ok"), (module.WAL_WARN_BYTES, "warn"), (module.WAL_FAIL_BYTES, "fail")]
)
def test_the_size_of_the_log(server: FakeServer, tmp_path: Path, size: int, level: str) -> None:
    file = tmp_path / "other.db"
    with file.with_name("other.db-wal").open("wb") as wal:
        wal.truncate(size)  # a hole: it takes no room
    (found,) = module.check_wal(file)
    assert found.level == level


def test_a_database_that_nobody_owns(path: Path, tmp_path: Path, server: FakeServer) -> None:
    lonely = tmp_path / "lonely.db"
    SQLiteEngine(lonely, Settings(wal_bytes=0, ballast_bytes=0)).close()
    (found,) = of(findings("--database", str(lonely), expect=1), "owner")
    assert "but a server answers" in found["finding"]
    assert [finding.level for finding in module.check_owner(lonely, None)] == ["warn"]


def test_a_database_of_another_server_than_the_one_that_answers(server: FakeServer, path: Path) -> None:
    server._answers["Status"] = []
    server.will("Status", status(path, pid=os.getpid() * 10))
    (found,) = of(findings(expect=1), "owner")
    assert f"is owned by the server with pid {os.getpid()} " in found["finding"]


def test_a_database_with_two_names(server: FakeServer, path: Path) -> None:
    os.link(path, path.with_name("other.db"))
    found = of(findings(expect=1), "owner")
    assert "has 2 hard links" in found[0]["finding"]


def test_a_lock_file_that_may_not_be_read(
    server: FakeServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("bedrockjobs.cli.doctor.owner_of", refused)
    (found,) = of(findings(), "owner")
    assert (found["level"], found["finding"]) == ("warn", "the lock file: Permission denied")


def test_a_look_at_the_lock_leaves_it_free(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert owner_of(path) is None, "there is no lock file"
    lock = DatabaseLock(path)
    lock.acquire()
    assert owner_of(path) == "another server"
    lock.release()
    assert owner_of(path) is None
    lock.acquire()
    lock.release()


# --- which one it is -------------------------------------------------------------------------------------


def test_a_file_on_another_machine_is_left_alone(server: FakeServer) -> None:
    server._answers["Status"] = []
    server.will("Status", status("/nowhere/jobs.db"))
    found = findings()
    assert [finding["check"] for finding in found] == [
        "server",
        "clock",
        "database",
        "paused",
        "workers",
        "jobs",
    ]
    assert of(found, "database")[0]["level"] == "warn"


def test_the_file_is_the_one_that_was_named(
    server: FakeServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = module.ServerStatus(status("/nowhere/jobs.db"), SystemClock().now(), 0)
    assert module.database_of(str(path), answered).database_path() == path
    monkeypatch.setenv("BEDROCKJOBS_DATABASE", str(path))
    assert module.database_of(None, answered).database_path() == path


def test_a_relative_path_is_the_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answered = module.ServerStatus(status("jobs.db"), SystemClock().now(), 0)
    monkeypatch.chdir(tmp_path)
    assert module.database_of(None, answered).database_path() == tmp_path / "jobs.db"
    gone = module.ServerStatus(status("jobs.db", pid=2**30), SystemClock().now(), 0)
    assert module.database_of(None, gone).database_path() == Path("jobs.db")
