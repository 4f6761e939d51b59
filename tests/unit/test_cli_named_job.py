"""Jobs by name and times relative to now: which jobID and which timestamp are sent."""

from __future__ import annotations

from typing import Any

import pytest
from cli_fake import FakeServer, fake_server, run, sent

from bedrockjobs.cli.lookup import NAMESAKES_SHOWN

NOW = {"now": "2026-11-23 10:00:00"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Return a fake server."""
    return fake_server(monkeypatch)


def jobs(*job_ids: int) -> dict[str, Any]:
    """Return a page of jobs."""
    return {"jobs": [{"jobID": job_id} for job_id in job_ids]}


@pytest.mark.parametrize(
    ("arguments", "verb", "reply"),
    [
        (["job", "show"], "QueryJob", {"jobID": 7}),
        (["job", "explain"], "ExplainJob", {"jobID": 7, "name": "b/n", "state": "QUEUED", "waitsFor": []}),
        (["job", "update", "--priority", "0"], "UpdateJob", {}),
        (["job", "finish"], "FinishJob", {}),
        (["job", "retry"], "RetryJob", {}),
        (["job", "fail"], "FailJob", {}),
        (["job", "cancel"], "CancelJob", {}),
        (["job", "delete"], "DeleteJob", {}),
        (["run", "list", "--job"], "ListRuns", {"runs": []}),
    ],
)
def test_a_name_stands_for_its_job(
    server: FakeServer, arguments: list[str], verb: str, reply: dict[str, Any]
) -> None:
    server.will("ListJobs", jobs(7))
    server.will(verb, reply)

    result = run(*arguments, "backup/[x]")

    assert result.exit_code == 0, result.stderr
    assert sent(server, "ListJobs") == [{"name": "backup/[[]x]", "limit": NAMESAKES_SHOWN + 1}]
    assert sent(server, verb)[0]["jobID"] == 7


def test_a_parent_and_a_failure_are_named_too(server: FakeServer) -> None:
    server.will("ListJobs", jobs(7), jobs(8))
    server.will("CreateJob", {"jobID": 9})
    server.will("MarkSeen", {"jobs": 1, "runs": 0})
    assert run("job", "create", "child", "--parent", "nightly").exit_code == 0
    assert sent(server, "CreateJob")[0]["parentJobID"] == 7
    assert run("failure", "seen", "--job", "import/day").exit_code == 0
    assert sent(server, "MarkSeen")[0]["jobIDs"] in ([8], "8")


def test_a_number_is_a_job_id_and_nothing_is_looked_for(server: FakeServer) -> None:
    server.will("QueryJob", {"jobID": 12})

    run("job", "show", "12")

    assert [verb for verb, _ in server.wired] == ["QueryJob"]


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ((), 3, "there is no job 'nightly'; `bedrockjobs job list` shows them"),
        ((3, 4), 4, "several jobs are named 'nightly': give one of the jobIDs 3, 4"),
        ((1, 2, 3, 4, 5, 6), 4, "give one of the jobIDs 1, 2, 3, 4, 5, ..."),
    ],
)
def test_a_name_that_does_not_tell_one_job_ends_the_command(
    server: FakeServer, found: tuple[int, ...], status: int, said: str
) -> None:
    server.will("ListJobs", jobs(*found))

    result = run("job", "retry", "nightly")

    assert (result.exit_code, sent(server, "RetryJob")) == (status, [])
    assert said in result.stderr


@pytest.mark.parametrize(("queued", "explained"), [((4,), 4), ((), 3)])
def test_of_several_jobs_the_first_queued_one_is_explained(
    server: FakeServer, queued: tuple[int, ...], explained: int
) -> None:
    server.will("ListJobs", jobs(3, 4), jobs(*queued))
    server.will("ExplainJob", {"jobID": explained, "name": "nightly", "state": "QUEUED", "waitsFor": []})
    assert run("job", "explain", "nightly").exit_code == 0
    assert sent(server, "ListJobs")[1] == {"name": "nightly", "state": "QUEUED", "limit": 1}
    assert sent(server, "ExplainJob") == [{"jobID": explained}]


def test_names_that_are_not_there_do_not_keep_others_from_their_end(server: FakeServer) -> None:
    server.will("ListJobs", jobs(), jobs(8))

    result = run("job", "delete", "gone", "old")

    assert (result.exit_code, sent(server, "DeleteJob")) == (3, [{"jobID": 8}])
    assert "Job gone: there is no job 'gone'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "verb", "key"),
    [
        (["job", "create", "foo", "--first-run", "5m"], "CreateJob", "firstRun"),
        (["job", "update", "7", "--next-run", "5m"], "UpdateJob", "nextRun"),
        (["job", "retry", "7", "--next-run", "5m"], "RetryJob", "nextRun"),
    ],
)
def test_a_time_from_now_goes_by_the_clock_of_the_server(
    server: FakeServer, arguments: list[str], verb: str, key: str
) -> None:
    server.will("Status", NOW)
    server.will(verb, {"jobID": 7})

    result = run(*arguments)

    assert result.exit_code == 0, result.stderr
    assert sent(server, verb)[0][key] == "2026-11-23 10:05:00"


def test_a_schedule_is_not_named_by_a_pattern(server: FakeServer) -> None:
    result = run("schedule", "add", "backup/*", "0 3 * * *")

    assert (result.exit_code, server.wired) == (2, [])
    assert "'backup/*' contains a *" in result.stderr
