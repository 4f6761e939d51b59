"""`bedrockjobs doctor`: what each check finds, what it advises, and the exit status."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fake import FakeServer, fake_server, run

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import stamp
from bedrockjobs.cli import doctor as module
from bedrockjobs.cli import main
from bedrockjobs.cli.doctor import doctor
from bedrockjobs.store import inspection, schema
from bedrockjobs.store.lock import DatabaseLock
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.damage import spoil

Found = list[dict[str, str]]


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program have the command."""
    monkeypatch.setitem(main.commands, "doctor", doctor)
    monkeypatch.delenv("BEDROCKJOBS_DATABASE", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Return a database that this process owns, as a server does."""
    path = tmp_path / "jobs.db"
    SQLiteEngine(path, Settings(wal_bytes=0, ballast_bytes=0)).close()
    lock = DatabaseLock(path)
    lock.acquire()
    lock.describe(f"the server with pid {os.getpid()} on 127.0.0.1:8888")
    yield path
    lock.release()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, path: Path) -> FakeServer:
    """Return a server that is well, has no workers, and no job that is due."""
    fake = fake_server(monkeypatch)
    fake.will("Status", status(path))
    fake.will("Overview", overview())
    return fake


def status(path: Path | str, **more: Any) -> dict[str, Any]:
    """Return what Status answers."""
    now = stamp(SystemClock().now())
    return {
        "version": "0.1.0", "state": "serving", "durability": "full", "compatibility": "document",
        "database": str(path), "pid": os.getpid(), "started": now, "now": now, "connections": 1, "waiting": 0,
        "commits": 0, "commands": 0, **more,
    }  # fmt: skip


def overview(*problems: dict[str, Any], workers: int = 1, **more: Any) -> dict[str, Any]:
    """Return what Overview answers, as far as it matters here."""
    counts = dict.fromkeys(("ready", "later", "running", "paused", "blocked", "mocked", "failed"), 0)
    return {**counts, "workers": workers, "taking": workers, "more": [], "problems": list(problems), **more}


def problem(kind: str, detail: str, name: str = "", since: str = "") -> dict[str, Any]:
    """Return something that is wrong."""
    return {"kind": kind, "name": name, "count": 1, "since": since, "detail": detail}


def ago(seconds: float) -> str:
    """Return the stamp of a moment in the past."""
    return stamp(SystemClock().now() - timedelta(seconds=seconds))


def findings(*arguments: str, expect: int = 0) -> Found:
    """Return what doctor finds, which must end with a status."""
    result = run("doctor", "-o", "json", *arguments)
    assert result.exit_code == expect, result.stdout + result.stderr
    return list(json.loads(result.stdout))


def of(found: Found, check: str) -> Found:
    """Return the findings of one check."""
    return [finding for finding in found if finding["check"] == check]


def not_ok(found: Found) -> Found:
    """Return what is not well."""
    return [finding for finding in found if finding["level"] != "ok"]


# --- all is well -----------------------------------------------------------------------------------------


def test_a_server_that_is_well_gets_ok_from_every_check(server: FakeServer) -> None:
    found = findings()
    assert not not_ok(found)
    assert [finding["check"] for finding in found] == [
        "server", "clock", "schema", "disk", "wal", "owner", "paused", "workers", "jobs",
    ]  # fmt: skip


def test_a_finding_is_a_line(server: FakeServer, path: Path) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ok   server   0.1.0 at 127.0.0.1:8888, serving, durability full"
    assert f"ok   schema   version {schema.VERSION}, as it should be" in lines
    assert (
        f"ok   owner    owned by the server with pid {os.getpid()} on 127.0.0.1:8888, and by nobody else"
        in lines
    )
    assert "ok   paused   nothing is paused" in lines
    assert "ok   workers  1 of 1 take jobs; every ready name is asked for" in lines
    assert lines[-1] == ("ok   jobs     0 ready, 0 later, 0 running, 0 paused, 0 blocked, 0 mocked, 0 failed")
    assert len(lines) == 9


def test_what_is_wrong_comes_with_what_to_do(path: Path, server: FakeServer) -> None:
    server._answers.clear()
    server.will("Status", ConnectionRefusedError(111, "Connection refused"))
    result = run("doctor", "--database", str(path))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "fail server   no server answers at 127.0.0.1:8888: Connection refused"
        " -> start `bedrockjobs serve`, or name it by --server"
    )
    assert not any("workers" in line for line in result.stdout.splitlines())


# --- server and clock ------------------------------------------------------------------------------------


def test_a_server_that_stops_is_a_warning(server: FakeServer, path: Path) -> None:
    server._answers["Status"] = []
    server.will("Status", status(path, state="draining"))
    assert of(findings(), "server")[0]["level"] == "warn"


@pytest.mark.parametrize(("seconds", "level"), [(0, "ok"), (30, "warn"), (600, "fail"), (-30, "warn")])
def test_the_clocks_are_compared(server: FakeServer, path: Path, seconds: int, level: str) -> None:
    server._answers["Status"] = []
    server.will("Status", status(path, now=ago(seconds)))
    (found,) = of(findings(expect=int(level == "fail")), "clock")
    assert found["level"] == level
    if level != "ok":
        assert ("behind" if seconds > 0 else "ahead of") in found["finding"]
        assert "NTP" in found["advice"]


def test_a_clock_that_was_set_back_is_a_warning(server: FakeServer, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('seen', '2999-01-01 00:00:00')")
        db.commit()
    found = of(findings(), "clock")
    assert [finding["level"] for finding in found] == ["ok", "warn"]
    assert "2999-01-01" in found[1]["finding"]


# --- the file --------------------------------------------------------------------------------------------


def changed(path: Path, *statements: str) -> None:
    """Change the database by hand."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DROP INDEX jobsByName", "index jobsByName is missing"),
        ("CREATE TABLE mine (x)", "table mine is not ours"),
        ("ALTER TABLE drains ADD COLUMN x TEXT", "table drains is different"),
    ],
)
def test_a_schema_that_was_changed_by_hand_fails(
    server: FakeServer, path: Path, statement: str, words: str
) -> None:
    changed(path, statement)
    (found,) = of(findings(expect=1), "schema")
    assert (found["level"], found["finding"]) == ("fail", words)


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
    monkeypatch.setattr(module, "ROOM_WARN_BYTES", 1)
    monkeypatch.setattr(module, "ROOM_FAIL_BYTES", 0)
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
    monkeypatch.setattr(inspection, "MOUNTS", mounts)
    found = of(findings(expect=1), "disk")
    assert found[-1]["finding"] == "the file system is nfs4"
    assert inspection.file_system_of(Path("/")) == "ext4"
    monkeypatch.setattr(inspection, "MOUNTS", tmp_path / "none")
    assert inspection.file_system_of(path) == ""


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
    assert "has 2 names" in found[0]["finding"]


def test_a_lock_file_that_may_not_be_read(
    server: FakeServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(inspection, "owner_of", refused)
    (found,) = of(findings(), "owner")
    assert (found["level"], found["finding"]) == ("warn", "the lock file: Permission denied")


def test_a_look_at_the_lock_leaves_it_free(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert inspection.owner_of(path) is None, "there is no lock file"
    lock = DatabaseLock(path)
    lock.acquire()
    assert inspection.owner_of(path) == "another server"
    lock.release()
    assert inspection.owner_of(path) is None
    lock.acquire()
    lock.release()


# --- which file ------------------------------------------------------------------------------------------


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
    answered = module.Server(status("/nowhere/jobs.db"), SystemClock().now(), 0)
    assert module.database_of(str(path), answered) == path
    monkeypatch.setenv("BEDROCKJOBS_DATABASE", str(path))
    assert module.database_of(None, answered) == path


def test_a_relative_path_is_the_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answered = module.Server(status("jobs.db"), SystemClock().now(), 0)
    monkeypatch.chdir(tmp_path)
    assert module.database_of(None, answered) == tmp_path / "jobs.db"
    gone = module.Server(status("jobs.db", pid=2**30), SystemClock().now(), 0)
    assert module.database_of(None, gone) == Path("jobs.db")


# --- the jobs --------------------------------------------------------------------------------------------


Ask = Callable[..., Found]


@pytest.fixture
def told(server: FakeServer, path: Path) -> Ask:
    """Return a function that lets the server tell of problems, and returns what is found of one check."""

    def found(check: str, *problems: dict[str, Any], expect: int = 0, **more: Any) -> Found:
        server._answers.clear()
        server.will("Status", status(path))
        server.will("Overview", overview(*problems, **more))
        return of(findings(expect=expect), check)

    return found


def test_what_is_paused_is_told_in_the_servers_words(told: Ask) -> None:
    held = [
        problem("paused", "everything is paused by ann since 2026-11-21 08:00:00: 3 jobs wait", "*"),
        problem("paused", "it's is paused since 2026-11-21 09:00:00 until 2026-11-21 10:00:00", "it's"),
        problem("paused", "3 more patterns are paused"),
    ]
    everything, other, rest = told("paused", *held)
    assert everything == {
        "check": "paused", "level": "warn",
        "finding": "everything is paused by ann since 2026-11-21 08:00:00 UTC: 3 jobs wait",
        "advice": "`bedrockjobs schedule resume --all` ends it",
    }  # fmt: skip
    assert other["finding"] == "it's is paused since 2026-11-21 09:00:00 UTC until 2026-11-21 10:00:00 UTC"
    assert other["advice"] == """`bedrockjobs schedule resume 'it'"'"'s'` ends it"""
    assert rest["advice"] == "`bedrockjobs call ListPauses` shows them"


@pytest.mark.parametrize("kind", ["no worker", "own command"])
@pytest.mark.parametrize(
    ("waited_s", "workers", "level"), [(900, 1, "fail"), (60, 1, "warn"), (9_000, 0, "warn")]
)
def test_a_name_that_nobody_takes_fails_after_a_while_where_workers_are_there(
    told: Ask, kind: str, waited_s: int, workers: int, level: str
) -> None:
    wrong = problem(kind, "nobody takes post: w is quiet", "post", ago(waited_s))
    (found,) = told("workers", wrong, workers=workers, expect=int(level == "fail"))
    assert (found["level"], found["finding"]) == (level, "nobody takes post: w is quiet")
    assert ("--allow-shell" in found["advice"]) == (kind == "own command")


def test_a_worker_that_is_drained_is_a_warning(told: Ask) -> None:
    (found,) = told("workers", problem("drained", "worker w takes no jobs", "w"))
    assert (found["level"], "worker drain --undo" in found["advice"]) == ("warn", True)


def test_counts_come_first_and_then_what_is_wrong_with_jobs(told: Ask) -> None:
    late = problem("late", "the oldest ready job has waited for 6m40s")
    counts, found = told("jobs", late, ready=10_000, failed=2, more=["ready"])
    assert counts["finding"] == (
        "10,000 or more ready, 0 later, 0 running, 0 paused, 0 blocked, 0 mocked, 2 failed"
    )
    assert (found["level"], found["finding"]) == ("warn", late["detail"])


def test_a_server_that_cannot_look_in_time_is_a_warning(server: FakeServer, path: Path) -> None:
    server._answers["Overview"] = []
    server.will("Overview", TimedOut("Timeout"))
    found = findings()
    assert (of(found, "jobs")[0]["level"], of(found, "workers")) == ("warn", [])
