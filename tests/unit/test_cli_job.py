"""`bedrockjobs job ...`: the command for each argument list, its output, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.errors import (
    BadArguments,
    Forbidden,
    NotFound,
    ServerFault,
    TimedOut,
    Unavailable,
    WrongState,
)
from bedrockjobs.cli import job
from bedrockjobs.cli.verbs import SECTIONS
from bedrockjobs.client import ConnectionLost, Response, ServerUnreachable
from bedrockjobs.commands.options import JobOptions

JOB = '{"created":"2026-11-21 03:29:56","data":{"value":1.0},"jobID":7,"name":"foo","state":"QUEUED"}'


@pytest.mark.parametrize(
    ("arguments", "command", "given"),
    [
        (["create", "foo"], "CreateJob", {"name": "foo"}),
        (
            [
                "create",
                "foo",
                "--data",
                '{"a": 1.50}',
                "--first-run",
                "2026-11-21T04:00:00+01:00",
                "--repeat",
                "FINISHED, +1 HOUR",
                "--priority",
                "1000",
                "--unique",
                "--no-overwrite",
                "--mock",
            ],
            "CreateJob",
            {
                "name": "foo",
                "data": {"a": 1.5},
                "firstRun": "2026-11-21 03:00:00",
                "repeat": "FINISHED, +1 HOUR",
                "jobPriority": 1000,
                "unique": True,
                "overwrite": False,
                "mockRequest": True,
            },
        ),
        (["create", "foo", "--delay", "5m"], "CreateJob", {"name": "foo", "firstRun": "+300s"}),
        (["create", "foo", "--delay", "1.5"], "CreateJob", {"name": "foo", "firstRun": "+1.5s"}),
        (
            ["create", "foo", "--retry-after", "5m", "--parent", "3"],
            "CreateJob",
            {"name": "foo", "retryAfter": "+300 SECONDS", "parentJobID": 3},
        ),
        (
            [
                "create",
                "foo",
                "--argv",
                "tar -czf 'a b.tgz' /srv",
                "--run-timeout",
                "1h30m",
                "--retries",
                "3",
                "--backoff",
                "5",
                "--on-lost",
                "fail",
                "--lock",
                "true",
                "--tags",
                "a,b",
                "--idempotency-key",
                "k",
            ],
            "CreateJob",
            {
                "name": "foo",
                "argv": ["tar", "-czf", "a b.tgz", "/srv"],
                "runTimeout": 5400,
                "retries": 3,
                "backoff": 5,
                "onLost": "fail",
                "lock": True,
                "tags": ["a", "b"],
                "idempotencyKey": "k",
            },
        ),
        (
            ["create", "foo", "--url", "https://example.org/"],
            "CreateJob",
            {"name": "foo", "url": {"url": "https://example.org/"}},
        ),
        (["show", "7"], "QueryJob", {"jobID": 7}),
        (
            ["update", "7", "--cmd", "", "--max-late", "5m", "--progress", '{"percent":40}'],
            "UpdateJob",
            {"jobID": 7, "cmd": "", "maxLate": 300, "progress": {"percent": 40}},
        ),
        (
            [
                "update",
                "7",
                "--data",
                "{}",
                "--repeat",
                "DAILY",
                "--priority",
                "0",
                "--next-run",
                "2026-11-21",
                "--run",
                "9",
            ],
            "UpdateJob",
            {
                "jobID": 7,
                "data": {},
                "repeat": "DAILY",
                "jobPriority": 0,
                "nextRun": "2026-11-21 00:00:00",
                "runID": 9,
            },
        ),
        (["update", "7", "--clear-repeat"], "UpdateJob", {"jobID": 7, "shouldClearRepeat": True}),
        (
            ["finish", "7", "--data", '{"done":true}', "--run", "9", "--exit-code", "0"],
            "FinishJob",
            {"jobID": 7, "data": {"done": True}, "runID": 9, "exitCode": 0},
        ),
        (["retry", "7", "--delay", "5m"], "RetryJob", {"jobID": 7, "delay": 300}),
        (
            [
                "retry",
                "7",
                "--next-run",
                "2026-11-21 05:00",
                "--rename",
                "bar",
                "--priority",
                "250",
                "--ignore-repeat",
                "--revive",
                "--data",
                "{}",
                "--run",
                "9",
            ],
            "RetryJob",
            {
                "jobID": 7,
                "nextRun": "2026-11-21 05:00:00",
                "name": "bar",
                "jobPriority": 250,
                "ignoreRepeat": True,
                "revive": True,
                "data": {},
                "runID": 9,
            },
        ),
        (["retry", "7", "--returned"], "RetryJob", {"jobID": 7, "returned": True}),
        (["retry", "7", "--unfit", "old code"], "RetryJob", {"jobID": 7, "unfit": "old code"}),
        (
            ["fail", "7", "--delay", "5m", "--retries", "2"],
            "FailJob",
            {"jobID": 7, "delay": 300, "retries": 2},
        ),
        (
            ["fail", "7", "--error", "no luck", "--final", "--exit-code", "1", "--data", "{}", "--run", "9"],
            "FailJob",
            {"jobID": 7, "error": "no luck", "final": True, "exitCode": 1, "data": {}, "runID": 9},
        ),
        (["cancel", "7"], "CancelJob", {"jobID": 7, "any": True}),
        (["delete", "7"], "DeleteJob", {"jobID": 7}),
    ],
)
def test_arguments_become_a_command(
    arguments: list[str], command: str, given: dict[str, Any], fake: FakeServer
) -> None:
    fake.will("CreateJob", {"jobID": 7})
    result = run("job", *arguments)
    assert result.exit_code == 0, result.stderr
    assert fake.wired == [(command, given)]
    assert fake.closed == 1


@pytest.mark.parametrize(
    ("arguments", "said", "record"),
    [
        (["create", "foo"], "Created job 7.", {"jobID": 7}),
        (["create", "foo", "--unique"], "Created or updated job 7.", {"jobID": 7}),
        (["update", "7", "--repeat", "DAILY"], "Updated job 7.", {"jobID": 7, "outcome": "updated"}),
        (["finish", "7"], "Finished job 7.", {"jobID": 7, "outcome": "finished"}),
        (["retry", "7"], "Queued job 7.", {"jobID": 7, "outcome": "queued"}),
        (["retry", "7", "--returned"], "Returned job 7.", {"jobID": 7, "outcome": "returned"}),
        (["fail", "7"], "Failed job 7.", {"jobID": 7, "outcome": "failed"}),
        (["cancel", "7"], "Cancelled job 7.", {"jobID": 7, "outcome": "cancelled"}),
        (["delete", "7"], "Deleted job 7.", {"jobID": 7, "outcome": "deleted"}),
    ],
)
def test_what_was_done_is_said_in_each_form(
    arguments: list[str], said: str, record: dict[str, Any], fake: FakeServer
) -> None:
    fake.will("CreateJob", *[{"jobID": 7}] * 4)
    assert run("job", *arguments).stdout == f"{said}\n"
    assert json.loads(run("job", *arguments, "-o", "json").stdout) == record
    assert json.loads(run("-o", "jsonl", "job", *arguments).stdout) == record
    assert run("job", *arguments, "-o", "name").stdout == "7\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadArguments("Malformed repeat"), 2),
        (Forbidden(), 5),
        (NotFound(), 3),
        (WrongState(), 4),
        (ServerFault(), 1),
        (Unavailable(), 69),
        (TimedOut(), 124),
        (ServerUnreachable("cannot connect to 127.0.0.1:8888: refused"), 69),
        (ConnectionLost("QueryJob", "127.0.0.1:8888", "closed"), 69),
        (ConnectionResetError(104, "Connection reset by peer"), 69),
    ],
)
def test_exit_statuses(error: Exception, status: int, fake: FakeServer) -> None:
    fake.will("QueryJob", error)
    result = run("job", "show", "7")
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) in result.stderr
    assert fake.closed == 1


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (NotFound("No job with this jobID", "jobID: there is no job 7"), "there is no job 7"),
        (NotFound("No such token", "name: there is no token x; see ListTokens"), "there is no token x; `bed"),
        (
            NotFound("parentJobID does not exist", "parentJobID: there is no job 7"),
            "404 parentJobID does not",
        ),
        (NotFound("No such limit", "name: the pattern x has none"), "404 No such limit: name: the pattern x"),
        (WrongState("Not allowed", "there is no way"), "405 Not allowed: there is no way"),
    ],
)
def test_what_is_missing_is_named_once(refusal: Exception, told: str, fake: FakeServer) -> None:
    fake.will("QueryJob", refusal)
    assert run("job", "show", "7").stderr.startswith(f"Error: {told}")


KEPT = {"jobID": 7, "runID": 19, "name": "a", "state": "FINISHED", "finished": "2026-11-23 11:57:30.910"}


LAST = {"runID": 19, "jobID": 7, "name": "a", "status": "success", "ended": "2026-11-23 11:57:30.910"}
AGAIN = "at 2026-11-23 11:57:30 UTC; `bedrockjobs run again 19` repeats it"


@pytest.mark.parametrize(
    ("act", "verb"),
    [("show", "QueryJob"), *((act, f"{act.title()}Job") for act in ("explain", "retry", "cancel", "delete"))],
)
@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ({"runs": [LAST]}, f"job 7 has ended: its last run, 19, ended with success {AGAIN}"),
        (
            {"runs": [{**LAST, "status": "frozen"}]},
            f"job 7 is gone: its last run, 19, ended with lost {AGAIN}",
        ),
        ({"runs": [{**LAST, "status": "running", "ended": ""}]}, "there is no job 7"),
        ({"runs": []}, "there is no job 7"),
        (Forbidden(), "there is no job 7"),
        (Unavailable(), "there is no job 7"),
        ("no JSON", "there is no job 7"),
    ],
)
def test_a_job_that_has_ended_is_not_told_to_be_missing(
    act: str, verb: str, runs: Any, told: str, fake: FakeServer
) -> None:
    fake.will(verb, NotFound("No job with this jobID", "jobID: there is no job 7"))
    fake.will("ListRuns", runs)
    result = run("job", act, "7")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1] in (f"Error: {told}", f"Error: Job 7: {told}")
    assert sent(fake, "ListRuns") == [{"jobID": 7, "limit": 1}]


def test_the_end_of_a_job_is_a_time_like_others(fake: FakeServer) -> None:
    fake.will("QueryJob", KEPT, KEPT)
    shown = run("job", "show", "7").stdout
    assert "ended (UTC)  2026-11-23 11:57:30 (2m ago)" in shown
    assert "finished" not in shown
    assert json.loads(run("job", "show", "7", "-o", "json").stdout) == KEPT


@pytest.mark.parametrize(
    ("job", "explained", "first", "last"),
    [
        (
            {"state": "FAILED", "error": "Traceback (most recent call last):\n  File x\nValueError: y"},
            None,
            "ValueError: y",
            ["error     Traceback (most recent call last):", "            File x", "          ValueError: y"],
        ),
        ({"state": "FAILED", "error": "no paper"}, None, "no paper", ["priority  500"]),
        (
            {"state": "QUEUED"},
            {"waitsFor": [{"reason": "paused", "detail": "by ann"}, {"reason": "no worker", "detail": ""}]},
            "It is paused: by ann",
            ["priority  500"],
        ),
        ({"state": "QUEUED"}, {"waitsFor": []}, "", ["priority  500"]),
        ({"state": "PAUSED"}, NotFound(), "", ["priority  500"]),
        ({"state": "RUNNING"}, None, "", ["priority  500"]),
    ],
    ids=["traceback", "sentence", "waits", "next", "gone", "runs"],
)
def test_a_job_is_shown_with_its_state_name_and_reason_first(
    job: dict[str, Any], explained: Any, first: str, last: list[str], fake: FakeServer
) -> None:
    fake.will("QueryJob", {"data": {}, "jobID": 7, "name": "mail", "priority": 500, **job})
    if explained is not None:
        fake.will("ExplainJob", explained)
    lines = run("job", "show", "7").stdout.splitlines()
    reason = [f"reason    {first}"] if first else []
    state = {"PAUSED": "waiting for other jobs"}.get(job["state"], job["state"])
    head = [f"state     {state}", "name      mail", *reason, "jobID     7"]
    assert lines[: len(head)] == head
    assert lines[-len(last) :] == last
    assert len(sent(fake, "ExplainJob")) == (explained is not None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "+7"], "ID|NAME: expected digits"),
        (["create", ""], "NAME is required"),
        (["create", "foo", "--data", "{"], "data: expected a JSON object"),
        (["create", "foo", "--data", "[1]"], "data: expected a JSON object: not a JSON object"),
        (["create", "foo", "--data", "@missing"], "cannot read missing: No such file"),
        (
            ["create", "foo", "--delay", "5m", "--first-run", "5m"],
            "--delay: expected nothing together with --first-run",
        ),
        (["create", "foo", "--delay", "soon"], "Invalid value for '--delay': expected a duration"),
        (["create", "foo", "--first-run", "someday"], "--first-run: expected a date like"),
        (["create", "foo", "--priority", "7"], "'7' is not one of '0', '250', '500', '750', '850', '1000'"),
        (["create", "foo", "--no-overwrite"], "--no-overwrite needs --unique"),
        (["create", "foo", "--retry-after", "1.5s"], "expected whole seconds"),
        (["update", "7"], "nothing to change"),
        (["create", "foo", "--run-timeout", "soon"], "--run-timeout: expected a duration of whole seconds"),
        (["create", "foo", "--argv", "a 'b"], "--argv': expected words quoted as for a shell"),
        (["create", "foo", "--catchup", "maybe"], "'maybe' is not one of 'once', 'skip', 'all'"),
        (["explain", "+"], "ID|NAME: expected digits"),
        (["retry", "7", "--delay", "1.5s"], "expected whole seconds"),
        (["retry", "7", "--delay", "-5"], "expected a duration like 90s"),
        (["get", "foo", "--count", "0"], "1<=x<=1000"),
        (["get", "--wait", "foo"], "expected a duration like 90s"),
        (["list", "--state", "LOST"], "'LOST' is not one of"),
        (["delete"], "give an ID or a name, or choose jobs"),
        (["delete", "7", "--name", "*"], "not both"),
        (["retry", "7", "--dry-run"], "--dry-run needs --name"),
        (["retry", "--state", "FAILED", "--run", "3"], "--run needs an ID"),
        (["retry", "--name", "*", "--delay", "x"], "expected a duration"),
        (["update", "--name", "*"], "nothing to change"),
        (["cancel", "--since", "someday"], "expected yesterday, today, a time ago like 2h"),
        (["delete", "7", "+8"], "jobID: expected digits"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_sent(
    arguments: list[str], complaint: str, fake: FakeServer
) -> None:
    result = run("job", *arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert fake.asked == []


def test_data_comes_from_a_file_or_stdin(tmp_path: Path, fake: FakeServer) -> None:
    fake.will("CreateJob", {"jobID": 1}, {"jobID": 2})
    (tmp_path / "data.json").write_text('{"a":2.50}\n', encoding="utf-8")
    run("job", "create", "foo", "--data", f"@{tmp_path}/data.json")
    run("job", "create", "foo", "--data", "-", stdin='{"b": "é"}\n')
    assert [command.data for command in fake.asked] == ['{"a":2.50}', '{"b": "é"}']  # type: ignore[attr-defined]


def test_stdin_that_is_not_utf8_is_told(fake: FakeServer) -> None:
    result = run("job", "create", "foo", "--data", "-", stdin=b"\xff")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "stdin is not UTF-8" in result.stderr


# --- cancel and delete ----------------------------------------------------------------------------------

NO_CHILD = NotFound("Cannot cancel a job without a parent")


def test_cancel_says_that_there_was_nothing_to_cancel(fake: FakeServer) -> None:
    fake.will("CancelJob", {"cancelled": False}, {"cancelled": True})
    result = run("job", "cancel", "7")
    words = "Nothing to cancel: job 7 has ended, or repeats and no run of it is due.\n"
    assert (result.exit_code, result.stdout) == (0, words)
    assert run("job", "cancel", "7").stdout == "Cancelled job 7.\n"
    assert fake.wired == [("CancelJob", {"jobID": 7, "any": True})] * 2


def test_a_failed_job_is_queued_again_unless_a_worker_asks(fake: FakeServer) -> None:
    words = "Can only retry/finish RUNNING and RUNQUEUED jobs"
    failed = WrongState(words, "jobID: the job is FAILED")
    fake.will("RetryJob", failed, {}, WrongState(words, "the job is QUEUED"), failed, failed)
    assert run("job", "retry", "7", "--delay", "5m").exit_code == 0
    again = {"jobID": 7, "delay": 300}
    asked = [("RetryJob", again), ("RetryJob", {**again, "revive": True}), ("QueryJob", {"jobID": 7})]
    assert fake.wired == asked
    assert "the job is QUEUED" in run("job", "retry", "7").stderr
    for of_a_run in (["--returned"], ["--run", "9"]):
        result = run("job", "retry", "7", *of_a_run)
        assert (result.exit_code, "the job is FAILED" in result.stderr) == (4, True)
    assert len(fake.wired) == 6, "a report on a run that is over revives nothing"


def test_what_the_server_advises_is_said_in_commands_of_this_program(fake: FakeServer) -> None:
    fake.will(
        "DrainWorker", NotFound("No such worker", "worker: no live worker has the name w; see ListWorkers")
    )
    assert "`bedrockjobs worker list` shows them" in run("worker", "drain", "w").stderr
    failed = {"reason": "state", "detail": "it has failed; RetryJob with revive queues it again"}
    fake.will("ExplainJob", {"jobID": 7, "name": "a", "state": "FAILED", "waitsFor": [failed]})
    shown = run("job", "explain", "7").stdout
    assert "it has failed; `bedrockjobs job retry` queues it again" in shown


def test_cancel_deletes_where_it_is_told_to(fake: FakeServer) -> None:
    fake.will("CancelJob", NO_CHILD)
    result = run("job", "cancel", "7", "--delete")
    assert (result.exit_code, result.stdout) == (0, "Deleted job 7.\n")
    assert fake.wired == [("CancelJob", {"jobID": 7}), ("DeleteJob", {"jobID": 7})]


@pytest.mark.parametrize("error", [NotFound(), NotFound("Invalid jobID - Cannot cancel a job with children")])
def test_cancel_never_deletes_for_another_reason(error: NotFound, fake: FakeServer) -> None:
    fake.will("CancelJob", error)
    result = run("job", "cancel", "7", "--delete")
    assert (result.exit_code, result.stderr) == (3, f"Error: {error}\n")
    assert [name for name, _ in fake.wired] == ["CancelJob"]


def test_delete_goes_on_after_a_refusal(fake: FakeServer) -> None:
    empty = Response(200, "OK")
    fake.will("DeleteJob", empty, WrongState("Can't delete a RUNNING job"), NotFound(), empty)
    result = run("job", "delete", "1", "2", "3", "4", "-o", "name")
    assert (result.exit_code, result.stdout) == (4, "1\n4\n")
    assert result.stderr.splitlines() == [
        "Error: Job 2: 405 Can't delete a RUNNING job",
        "Error: Job 3: 404 No job with this jobID",
    ]


def test_delete_tells_what_it_did_before_the_server_went_away(fake: FakeServer) -> None:
    fake.will("DeleteJob", Response(200, "OK"), ConnectionLost("DeleteJob", "x:1", "closed"))
    result = run("job", "delete", "1", "2", "3", "-o", "name")
    assert (result.exit_code, result.stdout) == (69, "1\n")
    assert len(fake.asked) == 2


# --- options and explain --------------------------------------------------------------------------------


def test_every_option_of_a_job_is_a_flag() -> None:
    for command in (["job", "create"], ["job", "update"], ["schedule", "add"], ["schedule", "update"]):
        shown = run(*command, "--help").stdout
        for field in JobOptions.model_fields:
            assert f"  --{field.replace('_', '-')} " in shown
    in_sections = [field for fields in SECTIONS.values() for field in fields]
    listed = sorted([*in_sections, "note"])
    assert listed == sorted(JobOptions.model_fields), "add it to SECTIONS in cli/verbs.py"
    assert all(f"\n{section}:\n" in shown for section in SECTIONS)


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        ([], ["Nothing prevents it from running."]),
        (
            [{"reason": "lock", "detail": "job 3 has it"}],
            ["Why it waits:", "  1. Another job with its lock is running: job 3 has it"],
        ),
        (
            [{"reason": "nextRun", "detail": ""}, {"reason": "new", "detail": "x\x1b[2J"}],
            [
                "Why it waits, the most decisive reason first:",
                "  1. It is not due yet.",
                "  2. new: x\\u001b[2J",
            ],
        ),
        (
            [
                {
                    "reason": "paused",
                    "detail": "* has been paused since 2026-11-21 19:09:58.332,"
                    " until 2026-11-22 00:00:00: move",
                },
                {"reason": "nextRun", "detail": "it is due at 2026-11-23 01:02:03"},
            ],
            [
                "Why it waits, the most decisive reason first:",
                "  1. It is paused: * has been paused since 2026-11-21 19:09:58 UTC"
                ", until 2026-11-22 00:00:00 UTC: move",
                "  2. It is not due yet: it is due at 2026-11-23 01:02:03 UTC",
            ],
        ),
    ],
)
def test_explain_says_why_in_plain_words(
    reasons: list[dict[str, str]], lines: list[str], fake: FakeServer
) -> None:
    reply = {"jobID": 7, "state": "QUEUED", "name": "foo", "waitsFor": reasons}
    fake.will("ExplainJob", reply, reply)
    assert run("job", "explain", "7").stdout.splitlines() == ["Job 7 (foo) is QUEUED.", *lines]
    assert json.loads(run("job", "explain", "7", "-o", "json").stdout) == reply


def test_explain_says_why_a_job_failed_and_not_that_it_waits(fake: FakeServer) -> None:
    failed = {"reason": "state", "detail": "it has failed; RetryJob with revive queues it again"}
    fake.will("ExplainJob", {"jobID": 7, "name": "a", "state": "FAILED", "waitsFor": [failed]})
    error = "Traceback (most recent call last):\n  File x\nValueError: y"
    fake.will("QueryJob", {"jobID": 7, "state": "FAILED", "error": error})
    running = {"reason": "state", "detail": "it has been running since 2026-11-23 11:00:00"}
    fake.will("ExplainJob", {"jobID": 7, "name": "a", "state": "RUNNING", "waitsFor": [running]})
    assert run("job", "explain", "7").stdout.splitlines() == [
        "Job 7 (a) is FAILED.",
        "Why it failed: ValueError: y",
        "It is not queued: it has failed; `bedrockjobs job retry` queues it again",
    ]
    assert run("job", "explain", "7").stdout.splitlines() == [
        "Job 7 (a) is RUNNING.",
        "It is not queued: it has been running since 2026-11-23 11:00:00 UTC",
    ]
    assert len(sent(fake, "QueryJob")) == 1


def test_each_reason_of_the_server_has_its_words() -> None:
    assert list(job.REASONS) == [
        "state",
        "children",
        "paused",
        "held",
        "nextRun",
        "no tick",
        "mocked",
        "limit",
        "lock",
        "concurrency",
        "name",
        "own command",
        "no worker",
        "ahead",
    ]
