"""`bedrockjobs doctor`: findings about the server, its clock, workers and jobs, and the exit status."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent
from doctored import Found, ago, findings, not_ok, of, offer, overview, owned, status, well

from bedrockjobs.base.errors import TimedOut, Unavailable
from bedrockjobs.store import schema


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


# --- all is well -----------------------------------------------------------------------------------------


def test_a_server_that_is_well_gets_ok_from_every_check(server: FakeServer) -> None:
    found = findings()
    assert not not_ok(found)
    assert [finding["check"] for finding in found] == [
        "server",
        "clock",
        "schema",
        "disk",
        "wal",
        "owner",
        "paused",
        "workers",
        "jobs",
    ]


def test_who_is_not_told_where_the_database_is_is_asked_for_it(server: FakeServer) -> None:
    server._answers.pop("Status", None)
    server.will("Status", status(""))
    found = findings()
    assert [finding["check"] for finding in not_ok(found)] == ["database"]
    assert of(found, "jobs"), "what is to be seen is looked at"


@pytest.mark.parametrize("is_here", [True, False])
def test_a_full_disk_of_a_server_elsewhere_is_told_in_its_words(server: FakeServer, is_here: bool) -> None:
    if not is_here:
        server._answers.pop("Status", None)
        server.will("Status", status(""))
    words = "930 MB are free on the disk of the database: when it is full no jobs are created"
    problem = {"kind": "disk low", "name": "", "count": 0, "since": "", "detail": words}
    server._answers.pop("Overview", None)
    server.will("Overview", overview(problem))
    (found,) = of(findings(), "disk")
    assert (found["level"], found["finding"] == words) == ("ok" if is_here else "warn", not is_here)


def test_a_finding_is_a_line(server: FakeServer, path: Path) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ok   server   0.1.0 at 127.0.0.1:8888, serving, durability full"
    assert f"ok   schema   version {schema.VERSION}, as expected" in lines
    assert f"ok   owner    owned by the server with pid {os.getpid()} on 127.0.0.1:8888 only" in lines
    assert "ok   paused   nothing is paused" in lines
    assert "ok   workers  1 of 1 take jobs; each ready job has a worker for its name" in lines
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


def test_a_server_that_waits_for_its_database_is_told_from_none(path: Path, server: FakeServer) -> None:
    server._answers.clear()
    server.will("Status", Unavailable("Database away", "nothing was done; try again"))
    result = run("doctor", "--database", str(path))
    assert result.exit_code == 1
    line = result.stdout.splitlines()[0]
    assert line.startswith("fail server   the server at 127.0.0.1:8888 refuses commands: 503 Database away")
    assert line.endswith("-> `/readyz` and its log say what it waits for")


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


# --- the jobs --------------------------------------------------------------------------------------------


def problem(kind: str, detail: str, name: str = "", since: str = "") -> dict[str, Any]:
    """Return a problem."""
    return {"kind": kind, "name": name, "count": 1, "since": since, "detail": detail}


Ask = Callable[..., Found]


@pytest.fixture
def told(server: FakeServer, path: Path) -> Ask:
    """Return a function that makes the server report problems and returns the findings of one check."""

    def found(check: str, *problems: dict[str, Any], expect: int = 0, **more: Any) -> Found:
        server._answers.clear()
        server.will("Status", status(path))
        server.will("Overview", overview(*problems, **more))
        server.will("ListSchedules", {"schedules": []})
        server.will("ListWorkflows", *[{"workflows": []}] * 2)
        return of(findings(expect=expect), check)

    return found


def test_what_is_paused_is_told_in_the_servers_words(told: Ask) -> None:
    held = [
        problem("paused", "everything has been paused by ann since 2026-11-21 08:00:00: 3 jobs wait", "*"),
        problem(
            "paused", "it's has been paused since 2026-11-21 09:00:00, until 2026-11-21 10:00:00", "it's"
        ),
        problem("paused", "3 more patterns are paused"),
    ]
    everything, other, rest = told("paused", *held)
    assert everything == {
        "check": "paused",
        "level": "warn",
        "finding": "everything has been paused by ann since 2026-11-21 08:00:00 UTC: 3 jobs wait",
        "advice": "`bedrockjobs schedule resume '*'` ends it",
    }
    assert (
        other["finding"]
        == "it's has been paused since 2026-11-21 09:00:00 UTC, until 2026-11-21 10:00:00 UTC"
    )
    assert other["advice"] == """`bedrockjobs schedule resume 'it'"'"'s'` ends it"""
    assert rest["advice"] == "`bedrockjobs call ListPauses` shows them"


@pytest.mark.parametrize("kind", ["no worker", "own command"])
@pytest.mark.parametrize(
    ("waited_s", "workers", "level"), [(900, 1, "fail"), (60, 1, "warn"), (9_000, 0, "warn")]
)
def test_a_name_that_nobody_takes_fails_after_a_while_where_workers_are_there(
    told: Ask, kind: str, waited_s: int, workers: int, level: str
) -> None:
    wrong = problem(kind, "no worker takes post: w is quiet", "post", ago(waited_s))
    (found,) = told("workers", wrong, workers=workers, expect=int(level == "fail"))
    assert (found["level"], found["finding"]) == (level, "no worker takes post: w is quiet")
    assert ("--allow-shell" in found["advice"]) == (kind == "own command")


def test_a_worker_that_is_drained_is_a_warning(told: Ask) -> None:
    (found,) = told("workers", problem("drained", "worker w takes no jobs", "w"))
    assert (found["level"], "worker drain --undo" in found["advice"]) == ("warn", True)


def test_counts_come_first_and_then_what_is_wrong_with_jobs(told: Ask) -> None:
    late = problem("late", "the oldest ready job has waited for 6 min 40 s")
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


ZONED = [{"name": "a", "state": "QUEUED", "repeat": "CRON TZ=Europe/Berlin 0 9 * * *"}]
BERLIN = [
    "2026-12-31 23:00:00",
    "2027-03-31 22:00:00",
    "2027-06-30 22:00:00",
    "2027-09-30 22:00:00",
    "2027-12-31 23:00:00",
]


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        ({"valid": True, "next": BERLIN}, "ok", "the rules of 1 time zones are the same"),
        (
            {"valid": True, "next": [BERLIN[0], "2027-03-31 23:00:00"]},
            "warn",
            "the server's rules of Europe/Berlin",
        ),
        ({"valid": False, "next": []}, "fail", "the server has no time zone Europe/Berlin, which a uses"),
    ],
)
def test_the_rules_of_zones_are_compared(
    server: FakeServer, path: Path, answer: dict[str, Any], level: str, words: str
) -> None:
    server._answers.clear()
    server.will("Status", status(path))
    server.will("Overview", overview())
    server.will("ListSchedules", {"schedules": ZONED})
    server.will("ValidateSchedule", answer)
    server.will("ListWorkflows", *[{"workflows": []}] * 2)
    (found,) = of(findings(expect=1 if level == "fail" else 0), "zones")
    assert (found["level"], found["finding"].startswith(words)) == (level, True)


# --- workflows -------------------------------------------------------------------------------------------


def test_workflows_that_failed_or_cannot_go_on_are_reported(server: FakeServer) -> None:
    def in_state(number: int, state: str) -> dict[str, Any]:
        return {"workflowID": number, "name": f"w{number}", "state": state}

    def jobs(*states: tuple[str, int]) -> dict[str, Any]:
        found = [
            {"jobID": at, "state": state, "waits": waits, "ended": ""}
            for at, (state, waits) in enumerate(states)
        ]
        return {"jobs": [*found, {"jobID": 99, "state": "FINISHED", "waits": 0, "ended": ago(9)}]}

    server._answers["ListWorkflows"].clear()
    running = [in_state(number, "RUNNING") for number in (8, 6, 5, 4)]
    server.will("ListWorkflows", {"workflows": [in_state(9, "FAILED"), in_state(7, "FAILED")]})
    server.will("ListWorkflows", {"workflows": running})
    server.will("QueryWorkflow", jobs(("PAUSED", 1), ("QUEUED", 0)), jobs(("PAUSED", 2), ("", 0)))
    server.will("QueryWorkflow", jobs(("PAUSED", 0), ("PAUSED", 1)), jobs())
    failed, stuck = not_ok(findings())
    assert (failed["finding"], failed["level"]) == ("2 workflows failed, the newest is 9", "warn")
    assert "`workflow retry 9`" in failed["advice"]
    assert stuck["finding"] == "workflow 6 (w6) is RUNNING, but none of its jobs can go on"
    assert stuck["advice"].endswith("`bedrockjobs workflow cancel 6`")
    assert sent(server, "ListWorkflows")[1] == {"state": "RUNNING", "limit": 20}


def test_an_older_server_without_workflows_is_no_error(server: FakeServer) -> None:
    server._answers["ListWorkflows"].clear()
    server.will("ListWorkflows", TimedOut("too slow"))
    (finding,) = not_ok(findings())
    assert finding["finding"].startswith("workflows: could not be checked")
