"""`--since` of lists, and timestamps in tables in local time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.config import JOBS_PER_GET_MAX
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.client import Response


def runs(*started: str) -> dict[str, Any]:
    """Return a reply to ListRuns, newest first."""
    listed = [
        {"runID": 100 - at, "started": each, "ended": "", "error": ""} for at, each in enumerate(started)
    ]
    return {"runs": listed}


def test_runs_since_then_end_with_the_first_older_one(fake: FakeServer) -> None:
    """Later pages are not requested, and there is no hint that there may be more."""
    fake.will("ListRuns", runs("2026-11-23 11:00:00", "2026-11-23 10:30:00", "2026-11-23 09:00:00"))
    result = run("run", "list", "--since", "2h", "--limit", "3", "-o", "name")
    assert (result.stdout.split(), result.stderr) == (["100", "99"], "")
    assert len(sent(fake, "ListRuns")) == 1


def test_runs_until_then_and_with_a_text(fake: FakeServer) -> None:
    listed = runs("2026-11-23 11:00:00", "2026-11-23 10:30:00", "2026-11-23 09:00:00")
    listed["runs"][1]["error"] = "Disk full"
    fake.will("ListRuns", listed, listed, listed)
    assert run("run", "list", "--until", "80m", "-o", "name").stdout.split() == ["99", "98"]
    assert run("run", "list", "--text", "disk FULL", "-o", "name").stdout.split() == ["99"]
    result = run("run", "list", "--since", "2h", "--until", "100m", "--text", "disk")
    assert (result.stdout, result.stderr) == ("", "No runs.\n")


def test_jobs_since_then_are_looked_for_page_by_page(fake: FakeServer) -> None:
    """The printed cursor continues after the shown jobs."""
    old = {"name": "a", "created": "2026-11-01 00:00:00", "lastRun": ""}
    page = [{**old, "jobID": at} for at in range(1, JOBS_PER_GET_MAX + 1)]
    page[4]["lastRun"] = page[6]["lastRun"] = "2026-11-23 11:00:00"
    fake.will("ListJobs", {"jobs": page}, {"jobs": [{**page[4], "jobID": 2000}]}, {"jobs": page})
    assert run("job", "list", "--since", "today", "-o", "name").stdout.split() == ["5", "7", "2000"]
    one = run("job", "list", "--since", "today", "--limit", "1", "-o", "name")
    assert (one.stdout, one.stderr) == ("5\n", "There may be more: --after 5\n")


def test_the_audit_since_a_time_ago(fake: FakeServer) -> None:
    """2h means two hours ago, not from now."""
    fake.will("ListAudit", {"entries": []})
    run("audit", "--since", "2h")
    assert sent(fake, "ListAudit")[0]["since"] == "2026-11-23 10:00:00"


def test_events_since_then_begin_there(fake: FakeServer) -> None:
    """A binary search finds the last event before the time, since the server addresses events by number."""
    timestamps = [f"2026-11-23 {8 + at // 6:02}:{at % 6}0:00" for at in range(40)]
    events = [
        {"seq": at, "at": timestamp, "kind": "paused", "name": "x"}
        for at, timestamp in enumerate(timestamps, 1)
    ]

    def answer(command: Any) -> Response:
        given = json.loads(command.wire())
        found = [each for each in events if each["seq"] > given["after"]][: given["limit"]]
        return Response(200, "OK", {}, json.dumps({"events": found}).encode())

    fake.will("Overview", {"newestEvent": 40})
    fake.will("Events", *[answer] * 20)
    shown = run("events", "--since", "2026-11-23T10:00Z", "-o", "name").stdout.split()
    assert shown == [str(at) for at in range(13, 41)]
    assert len(sent(fake, "Events")) < 10


@pytest.mark.parametrize("arguments", [["run", "list"], ["job", "list"], ["events"], ["audit"]])
def test_what_is_no_time_is_refused_with_what_is_expected(arguments: list[str], fake: FakeServer) -> None:
    result = run(*arguments, "--since", "soon")
    assert result.exit_code == 2
    assert "expected yesterday, today, a time ago like 2h, or a day like 2026-11-22" in result.stderr
    assert fake.asked == []


def test_tables_are_local_and_json_is_utc(fake: FakeServer, berlin: None) -> None:
    fake.will("ListRuns", *[runs("2026-11-23 11:00:00.250")] * 2)
    assert json.loads(run("run", "list", "-o", "json").stdout)[0]["started"] == "2026-11-23 11:00:00.250"
    head, row = run("run", "list").stdout.splitlines()
    assert "started (CET)" in head
    assert "  12:00:00 (59m ago)" in row


def test_rows_of_a_query_are_as_they_are_stored(fake: FakeServer, berlin: None) -> None:
    fake.will("Query", '{"headers":["created"],"rows":[["2026-11-23 11:00:00"]]}')
    assert run("query", "select created from jobs").stdout.split("\n")[:2] == [
        "created (UTC)",
        "2026-11-23 11:00:00",
    ]


def test_a_server_that_does_not_tell_the_time_is_no_error(fake: FakeServer) -> None:
    """A token may lack the permission; then this machine's clock is used."""
    fake.will("Status", Forbidden())
    fake.will("ListRuns", runs(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())))
    assert "(now)" in run("run", "list").stdout.replace("1s ago", "now").replace("2s ago", "now")
