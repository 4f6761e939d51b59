"""`bedrockjobs doctor`: what each check finds, what it advises, and the exit status."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fake import FakeServer, fake_server, run

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import Settings
from bedrockjobs.base.wire import stamp
from bedrockjobs.cli import doctor as module
from bedrockjobs.cli import main
from bedrockjobs.cli.doctor import doctor
from bedrockjobs.store import inspection, schema
from bedrockjobs.store.lock import DatabaseLock
from bedrockjobs.store.sqlite import SQLiteEngine

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
    fake.will("ListWorkers", {"workers": []})
    fake.will("Query", pauses(), rows())
    return fake


def status(path: Path | str, **more: Any) -> dict[str, Any]:
    """Return what Status answers."""
    now = stamp(SystemClock().now())
    return {
        "version": "0.1.0", "state": "serving", "durability": "full", "compatibility": "document",
        "database": str(path), "pid": os.getpid(), "started": now, "now": now, "connections": 1, "waiting": 0,
        "commits": 0, "commands": 0, **more,
    }  # fmt: skip


def rows(*found: tuple[str, str, str]) -> dict[str, Any]:
    """Return what Query answers: lane, name, since."""
    return {"headers": ["lane", "name", "due"], "rows": [list(row) for row in found]}


def pauses(*found: tuple[str, str, str, str, str]) -> dict[str, Any]:
    """Return what Query answers: pattern, by, reason, since, until."""
    return {"headers": ["pattern", "by", "reason", "since", "until"], "rows": [list(row) for row in found]}


def worker(
    *names: str, name: str = "w", status: str = "active", accepts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a worker as ListWorkers shows it, as far as it matters here."""
    return {"name": name, "names": list(names), "status": status, "accepts": list(accepts)}


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
        "server", "clock", "schema", "disk", "wal", "owner", "paused", "workers",
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
    assert len(lines) == 8


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
    assert [finding["check"] for finding in found] == ["server", "clock", "database", "paused", "workers"]
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


# --- pauses ----------------------------------------------------------------------------------------------


def test_what_is_paused_is_told_with_who_paused_it(server: FakeServer) -> None:
    server._answers["Query"] = []
    held = [
        ("*", "ann", "moving the disks", "2026-11-21 08:00:00.250", ""),
        ("it's", "", "", "2026-11-21 09:00:00", "2026-11-21 10:00:00"),
    ]
    server.will("Query", pauses(*held), rows())
    everything, other = of(findings(), "paused")
    assert everything == {
        "check": "paused", "level": "warn",
        "finding": "everything is paused by ann since 2026-11-21 08:00:00 UTC: moving the disks",
        "advice": "`bedrockjobs schedule resume --all` ends it",
    }  # fmt: skip
    assert other["finding"] == "it's is paused since 2026-11-21 09:00:00 UTC until 2026-11-21 10:00:00 UTC"
    assert other["advice"] == """`bedrockjobs schedule resume 'it'"'"'s'` ends it"""


def test_very_many_pauses_are_counted(server: FakeServer) -> None:
    server._answers["Query"] = []
    held = [(f"n{number}", "", "", "2026-11-21 08:00:00", "") for number in range(module.NAMES_SHOWN_MAX + 3)]
    server.will("Query", pauses(*held), rows())
    found = of(findings(), "paused")
    assert (len(found), found[-1]["finding"]) == (module.NAMES_SHOWN_MAX + 1, "3 more patterns")


# --- the workers -----------------------------------------------------------------------------------------


Ask = Callable[..., Found]


@pytest.fixture
def due(server: FakeServer, path: Path) -> Ask:
    """Return a function that gives the server workers and due names, and returns what is found of workers."""

    def found(workers: list[dict[str, Any]], *names: tuple[str, str, str], expect: int = 0) -> Found:
        server._answers.clear()
        server.will("Status", status(path))
        server.will("ListWorkers", {"workers": workers})
        server.will("Query", pauses(), rows(*names))
        return of(findings(expect=expect), "workers")

    return found


def test_a_name_that_a_worker_asks_for_is_well(due: Ask) -> None:
    (found,) = due([worker("mail/*", "exact")], ("", "mail/send", ago(900)), ("", "exact", ago(900)))
    assert found["finding"] == "1 of 1 take jobs; every due name that is not paused is asked for"


def test_a_name_that_no_worker_asks_for_fails_after_a_while(due: Ask) -> None:
    (found,) = due([worker("mail/*")], ("", "post", ago(900)), expect=1)
    assert found["level"] == "fail"
    assert found["finding"].startswith("post is due for 15m")
    assert found["finding"].endswith("none of 1 live workers asks for it")
    assert "--name 'post'" in found["advice"]


def test_it_is_a_warning_while_a_worker_may_be_about_to_start_or_clients_give_no_names(due: Ask) -> None:
    assert due([worker("mail/*")], ("", "post", ago(60)))[0]["level"] == "warn"
    assert due([], ("", "post", ago(9_000)))[0]["level"] == "warn"


@pytest.mark.parametrize("status", ["quiet", "draining", "drained"])
def test_a_worker_that_takes_no_jobs_does_not_count(due: Ask, status: str) -> None:
    assert due([worker("*", status=status)], ("", "post", ago(900)), expect=1)[0]["level"] == "fail"


def test_a_job_for_one_worker_needs_that_worker(due: Ask) -> None:
    workers = [worker("*", name="a"), worker("*", name="b")]
    assert due(workers, ("for b", "post", ago(900)))[0]["level"] == "ok"
    (found,) = due(workers, ("for c", "post", ago(900)), expect=1)
    assert "worker c does not ask for it" in found["finding"]


@pytest.mark.parametrize(
    ("lane", "option"), [("cmd", "--allow-shell"), ("argv", "--allow-cmd"), ("now url", "--allow-cmd")]
)
def test_a_job_with_its_own_command_needs_a_worker_that_accepts_it(due: Ask, lane: str, option: str) -> None:
    own = lane.split()[-1]
    (found,) = due([worker("*")], (lane, "a", ago(30)))
    assert f"none of 1 live workers asks for it with {option}, which its {own} needs" in found["finding"]
    assert f"--name 'a' {option} 'a'" in found["advice"]
    assert due([worker("*", accepts=[own])], (lane, "a", ago(30)))[0]["level"] == "ok"


def test_very_many_names_are_counted(due: Ask) -> None:
    names = [("", f"n{number:03}", ago(900 - number)) for number in range(module.NAMES_SHOWN_MAX + 5)]
    found = due([], *names)
    assert len(found) == module.NAMES_SHOWN_MAX + 1
    assert found[0]["finding"].startswith("n000 ")
    assert found[-1]["finding"] == "5 more names that no live worker asks for"


def test_the_statement_finds_due_names_that_are_not_paused() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.apply(db)
        jobs = [
            ("a", "2026-01-01 00:00:00", "", "QUEUED"), ("a", "2026-01-02 00:00:00", "", "QUEUED"),
            ("later", "2026-02-01 00:00:00", "", "QUEUED"), ("held", "2026-01-01 00:00:00", "", "QUEUED"),
            ("mocked", "2026-01-01 00:00:00", "mock", "QUEUED"),
            ("b", "2026-01-03 00:00:00", "for w", "QUEUED"),
            ("busy", "2026-01-03 00:00:00", "", "RUNNING"), ("free", "2026-01-03 00:00:00", "", "RUNQUEUED"),
        ]  # fmt: skip
        db.executemany(
            "INSERT INTO jobs (created, name, nextRun, lane, state)"
            " VALUES ('2026-01-01 00:00:00', ?, ?, ?, ?)",
            jobs,
        )
        db.execute("INSERT INTO pauses (pattern, since) VALUES ('hel*', '2026-01-01 00:00:00')")
        db.execute("INSERT INTO pauses VALUES ('free', '', '', '2026-01-01 00:00:00', '2026-01-02 00:00:00')")
        sql = module._statement().replace("{now}", "2026-01-15 00:00:00")
        assert db.execute(sql).fetchall() == [
            ("", "a", "2026-01-01 00:00:00"), ("", "free", "2026-01-03 00:00:00"),
            ("for w", "b", "2026-01-03 00:00:00"),
        ]  # fmt: skip


def test_the_statement_finds_each_name_by_one_seek() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.apply(db)
        steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {module._statement()}")]
    assert "SEARCH later USING INDEX jobsByName ((lane,name)>(?,?))" in steps
    assert [step for step in steps if step.startswith("SCAN jobs")] == ["SCAN jobs USING INDEX jobsByName"]


def test_a_server_that_cannot_answer_is_a_warning(server: FakeServer) -> None:
    server._answers["Query"] = []
    server.will("Query", TimeoutError("timed out"), TimeoutError("timed out"))
    assert [finding["check"] for finding in not_ok(findings())] == ["paused", "workers"]
