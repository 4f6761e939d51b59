"""`job retry|cancel|delete|update` for many jobs at once, and how a run that is cancelled ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.config import GRACE_S_DEFAULT, JOBS_PER_GET_MAX, WHOLE_MAX
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.cli import job
from bedrockjobs.cli.parameters import Since, since_timestamp
from bedrockjobs.client import ConnectionLost, Response

DONE = Response(200, "OK")


def jobs(*names: str, **more: Any) -> dict[str, Any]:
    """Return a reply to ListJobs: jobs of these names, with jobIDs from 1."""
    return {
        "jobs": [
            {"jobID": at, "name": name, "data": {}, "created": "2026-11-20 00:00:00", "lastRun": "", **more}
            for at, name in enumerate(names, 1)
        ]
    }


@pytest.mark.parametrize(
    ("arguments", "verb", "asked", "each"),
    [
        (["retry", "--name", "mail/*"], "RetryJob", {"name": "mail/*", "state": "FAILED"}, {"revive": True}),
        (["retry", "--state", "running", "--delay", "5m"], "RetryJob", {"state": "RUNNING"}, {"delay": 300}),
        (["delete", "--state", "FAILED"], "DeleteJob", {"state": "FAILED"}, {}),
        (["cancel", "--name", "m*"], "CancelJob", {"name": "m*"}, {"any": True}),
        (
            ["update", "--name", "m*", "--priority", "1000"],
            "UpdateJob",
            {"name": "m*"},
            {"jobPriority": 1000},
        ),
    ],
)
def test_each_job_that_is_chosen_gets_the_command(
    arguments: list[str], verb: str, asked: dict[str, Any], each: dict[str, Any], fake: FakeServer
) -> None:
    fake.will("ListJobs", jobs("mail/a", "mail/b"))
    result = run("job", *arguments, "--yes")
    assert result.exit_code == 0, result.stderr
    assert sent(fake, "ListJobs") == [{**asked, "after": 0, "limit": JOBS_PER_GET_MAX}]
    assert sent(fake, verb) == [{"jobID": 1, **each}, {"jobID": 2, **each}]


def test_what_happened_is_one_line(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs("a", "b", "c"))
    fake.will("DeleteJob", DONE, WrongState("Can't delete a RUNNING job"), NotFound())
    result = run("job", "delete", "--name", "*", "-y")
    assert result.exit_code == 4
    assert result.stdout == (
        "Deleted 1 of 3 jobs; 2 refused: 405 Can't delete a RUNNING job; 404 No job with this jobID.\n"
    )


def test_cancel_counts_each_outcome(fake: FakeServer) -> None:
    """The command does not wait for the runs of many jobs."""
    fake.will("ListJobs", jobs("a", "b", "c"))
    fake.will("CancelJob", {"runID": 3}, DONE, NotFound("Cannot cancel a job without a parent"))
    result = run("job", "cancel", "--name", "*", "-y", "--delete", "-o", "json")
    assert json.loads(result.stdout) == {
        "command": "cancel",
        "jobs": 3,
        "stopping": 1,
        "cancelled": 1,
        "deleted": 1,
        "refused": 0,
    }
    assert sent(fake, "DeleteJob") == [{"jobID": 3}]
    assert sent(fake, "ReadOutput") == []


def test_a_dry_run_tells_how_many_and_their_names(fake: FakeServer) -> None:
    names = [f"n{at}" for at in range(7)]
    fake.will("ListJobs", jobs("a", "a", *names), jobs("a"))
    result = run("job", "delete", "--name", "*", "--dry-run")
    assert result.stdout == "Would delete 9 jobs: 2 a, 1 n0, 1 n1, 1 n2, 1 n3, and 3 more names.\n"
    assert run("job", "delete", "--name", "*", "--dry-run", "-o", "name").stdout == "1\n"
    assert sent(fake, "DeleteJob") == []


def test_nobody_to_ask_changes_nothing(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs("a"))
    result = run("job", "delete", "--name", "a")
    assert (result.exit_code, sent(fake, "DeleteJob")) == (2, [])
    assert "1 job: 1 a\n" in result.stderr
    assert "give --yes" in result.stderr


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked(answer: bool, fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(text: str, **_: Any) -> None:
        assert text == "Delete 2 jobs?"
        if not answer:
            raise click.Abort

    monkeypatch.setattr("bedrockjobs.cli.session.interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    fake.will("ListJobs", jobs("a", "b"))
    assert run("job", "delete", "--name", "*").exit_code == (0 if answer else 1)
    assert len(sent(fake, "DeleteJob")) == (2 if answer else 0)


def test_no_job_is_no_question(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs(), jobs())
    result = run("job", "retry", "--name", "x")
    assert (result.exit_code, result.stderr) == (0, "No matching job to retry.\n")
    assert json.loads(run("job", "retry", "--name", "x", "-o", "json").stdout)["jobs"] == 0


def test_names_are_those_of_jobs_that_were_done(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs("a", "b"), jobs())
    fake.will("DeleteJob", NotFound(), DONE)
    assert run("job", "delete", "--name", "*", "-y", "-o", "name").stdout == "2\n"
    assert run("job", "delete", "--name", "*", "--dry-run", "-o", "name").stdout == ""


def test_what_was_done_before_the_server_went_away_is_told(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs("a", "b", "c"))
    fake.will("DeleteJob", DONE, ConnectionLost("DeleteJob", "x:1", "closed"))
    result = run("job", "delete", "--name", "*", "-y")
    assert (result.exit_code, result.stdout) == (69, "Deleted 1 of 3 jobs; 2 not tried.\n")


def test_jobs_are_chosen_by_time_tag_and_text(fake: FakeServer) -> None:
    """All conditions must be met; the time is that of the last run, or else of the creation."""
    found = jobs("old", "ran", "text", "ERROR", "tag", "made")["jobs"]
    found[1]["lastRun"] = found[5]["created"] = "2026-11-23 11:00:00"
    found[2]["data"], found[3]["error"], found[4]["tags"] = {"to": "Ada@x"}, "for ada", ["x", "y"]
    for arguments, ids in (
        (["--since", "2h"], "2 6"),
        (["--text", "ADA"], "3 4"),
        (["--tag", "x"], "5"),
        (["--tag", "x", "--tag", "z"], ""),
        (["--since", "2h", "--text", "made"], "6"),
    ):
        fake.will("ListJobs", {"jobs": found})
        result = run("job", "delete", *arguments, "--dry-run", "-o", "name")
        assert result.stdout.split() == ids.split(), arguments


def test_more_than_a_page_is_looked_through(fake: FakeServer) -> None:
    fake.will("ListJobs", jobs(*["a"] * JOBS_PER_GET_MAX), jobs("b"))
    assert "1,001 jobs: 1,000 a, 1 b" in run("job", "delete", "--name", "*", "--dry-run").stdout
    assert [given["after"] for given in sent(fake, "ListJobs")] == [0, JOBS_PER_GET_MAX]


# --- since ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "timestamp"),
    [
        ("2h", "2026-11-23 10:00:00"),
        ("90s ago", "2026-11-23 11:58:30"),
        ("today", "2026-11-22 23:00:00"),
        ("Yesterday", "2026-11-21 23:00:00"),
        ("2026-11-22", "2026-11-21 23:00:00"),
        ("2026-11-22 08:30", "2026-11-22 07:30:00"),
        ("2026-11-22T08:30:00Z", "2026-11-22 08:30:00"),
    ],
)
def test_since_is_by_the_clock_of_this_machine(given: str, timestamp: str, berlin: None) -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert since_timestamp(Since().convert(given, None, None), now) == timestamp


def test_since_before_all_years_is_refused() -> None:
    with pytest.raises(click.UsageError):
        since_timestamp(timedelta(days=365_000), datetime(5, 1, 1, tzinfo=UTC))


# --- a run that is cancelled ----------------------------------------------------------------------------


def test_cancel_waits_for_the_run_and_says_how_it_ended(fake: FakeServer) -> None:
    fake.will("CancelJob", {"runID": 3})
    fake.will("QueryJob", {"grace": 5}, NotFound())
    fake.will("ReadOutput", {"lines": [], "ended": True, "status": "terminated"})
    result = run("job", "cancel", "7")
    assert result.exit_code == 0
    assert result.stderr == "Stopping run 3 of job 7: it gets SIGTERM, and SIGKILL after 5s.\n"
    assert result.stdout == "Run 3 ended after 0s: terminated. Job 7 is deleted.\n"
    [asked] = sent(fake, "ReadOutput")
    assert (asked["runID"], asked["after"]) == (3, WHOLE_MAX)
    assert 20_000 < asked["timeout"] <= (5 + job.MARGIN_S) * 1000


def test_cancel_in_json_and_without_waiting(fake: FakeServer) -> None:
    ended = {"lines": [], "ended": True, "status": "killed"}
    fake.will("CancelJob", {"runID": 3}, {"runID": 3})
    fake.will("QueryJob", {}, {"state": "QUEUED"}, {})
    fake.will("ReadOutput", ended)
    result = run("job", "cancel", "7", "-o", "json")
    assert json.loads(result.stdout) == {"jobID": 7, "outcome": "cancelled", "runID": 3, "status": "killed"}
    result = run("job", "cancel", "7", "--no-wait")
    assert f"SIGKILL after {GRACE_S_DEFAULT // 60}m; `bedrockjobs run show 3` shows" in result.stdout
    assert len(sent(fake, "ReadOutput")) == 1


def test_a_run_that_does_not_end_in_time_is_124(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MARGIN_S", 0.0)
    fake.will("CancelJob", {"runID": 3})
    fake.will("QueryJob", {"grace": 0})
    fake.will("ReadOutput", {"lines": [], "ended": False, "status": "running"})
    result = run("job", "cancel", "7")
    assert result.exit_code == 124
    assert result.stdout.startswith("Run 3 has not ended after ")
