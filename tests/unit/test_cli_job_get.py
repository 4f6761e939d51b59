"""`bedrockjobs job get` and `job list`: requests, ends of waits, and output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake import FakeServer, run

from bedrockjobs.base.errors import NotFound
from bedrockjobs.cli import job
from bedrockjobs.client import Response
from bedrockjobs.commands import Command

JOB = '{"created":"2026-11-21 03:29:56","data":{"value":1.0},"jobID":7,"name":"foo","state":"QUEUED"}'


# --- get ------------------------------------------------------------------------------------------------


def test_get_takes_one_job(fake: FakeServer) -> None:
    fake.will("GetJob", JOB)
    result = run("job", "get", "foo*", "--worker", "me", "--priority", "500", "--mock", "-o", "json")
    assert fake.wired == [
        ("GetJob", {"name": "foo*", "worker": "me", "jobPriority": 500, "getMockedJobs": True})
    ]
    assert json.loads(result.stdout)["jobID"] == 7
    assert '"data": {"value":1.0}' in result.stdout, "numbers keep their spelling"


def test_get_takes_several(fake: FakeServer) -> None:
    fake.will("GetJobs", f'{{"jobs":[{JOB},{JOB}]}}')
    result = run("job", "get", "foo", "--count", "5", "-o", "name")
    assert fake.wired == [("GetJobs", {"name": "foo", "numResults": 5})]
    assert result.stdout == "7\n7\n"


def test_get_without_a_wait_finds_nothing(fake: FakeServer) -> None:
    fake.will("GetJob", NotFound("No job found"))
    result = run("job", "get", "foo")
    assert (result.exit_code, result.stderr) == (3, "Error: 404 No job found\n")


class WaitingServer:
    """A fake server that answers a wait with 404, at once or after the timeout, on its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, patient: bool) -> None:
        """Install the clock."""
        self.now = 1000.0
        self.patient = patient
        monkeypatch.setattr(job, "SystemClock", lambda: self)

    def monotonic(self) -> float:
        """Return this clock's seconds."""
        return self.now

    def __call__(self, command: Command[Any]) -> Response:
        """Wait until the timeout, and reply 404."""
        if self.patient:
            self.now += (command.timeout or 0) / 1000
        raise NotFound("No job found")


@pytest.mark.parametrize(
    ("arguments", "waits_ms", "words"),
    [
        (["--wait", "90s"], [90_000], "1m30s"),
        (["--wait=2"], [2_000], "2s"),
        (["--wait"], [60_000], "1m"),
        (["--wait", "25m"], [600_000, 600_000, 300_000], "25m"),
        (["--wait", "10m"], [600_000, 0], "10m"),
        (["--wait", "0"], [0], "0s"),
    ],
)
def test_a_wait_that_runs_out_is_124(
    arguments: list[str], waits_ms: list[int], words: str, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.will("GetJob", *[WaitingServer(monkeypatch, patient=True)] * 3)
    result = run("job", "get", "foo", *arguments)
    assert (result.exit_code, result.stderr) == (124, f"Error: 404 No job found (waited {words})\n")
    assert [command.timeout for command in fake.asked] == waits_ms
    assert all(command.waiting for command in fake.asked)


def test_a_server_that_does_not_wait_is_not_asked_again(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.will("GetJob", WaitingServer(monkeypatch, patient=False))
    result = run("job", "get", "foo", "--wait", "1h")
    assert (result.exit_code, len(fake.asked)) == (3, 1)


def test_a_job_that_comes_while_waiting(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.will("GetJob", WaitingServer(monkeypatch, patient=True), JOB)
    result = run("job", "get", "foo", "--wait", "20m", "-o", "name")
    assert (result.exit_code, result.stdout) == (0, "7\n")


def test_an_interrupt_is_130(fake: FakeServer) -> None:
    def interrupted(_: Command[Any]) -> Response:
        raise KeyboardInterrupt

    fake.will("GetJob", interrupted)
    result = run("job", "get", "foo", "--wait")
    assert (result.exit_code, result.stdout) == (130, "")
    assert fake.closed == 1


# --- list -----------------------------------------------------------------------------------------------


def page(first: int, count: int) -> str:
    """Return a page of jobs with these ids."""
    return json.dumps(
        {"jobs": [{"jobID": first + at, "name": "foo", "state": "QUEUED"} for at in range(count)]}
    )


def test_list_passes_its_filters(fake: FakeServer) -> None:
    fake.will("ListJobs", page(6, 2))
    result = run("job", "list", "--name", "f*", "--state", "queued", "--limit", "5", "--after", "5")
    assert fake.wired == [("ListJobs", {"name": "f*", "state": "QUEUED", "after": 5, "limit": 5})]
    head, *rows = result.stdout.splitlines()
    assert head.split() == [
        "jobID",
        "state",
        "name",
        "priority",
        "nextRun",
        "(UTC)",
        "lastRun",
        "(UTC)",
        "repeat",
    ]
    assert [row.split() for row in rows] == [["6", "QUEUED", "foo"], ["7", "QUEUED", "foo"]]
    assert result.stderr == ""


def test_list_asks_page_by_page(fake: FakeServer) -> None:
    fake.will("ListJobs", page(1, 1000), page(1001, 500))
    result = run("job", "list", "--limit", "1500", "-o", "name")
    assert [given for _, given in fake.wired] == [{"limit": 1000}, {"limit": 500, "after": 1000}]
    assert result.stdout.split() == [str(job_id) for job_id in range(1, 1501)]
    assert result.stderr == "There may be more: --after 1500\n"


@pytest.mark.parametrize(("form", "shown"), [("table", ""), ("json", "[]\n"), ("jsonl", ""), ("name", "")])
def test_an_empty_list(form: str, shown: str, fake: FakeServer) -> None:
    fake.will("ListJobs", page(1, 0))
    result = run("job", "list", "-o", form)
    assert (result.exit_code, result.stdout) == (0, shown)
