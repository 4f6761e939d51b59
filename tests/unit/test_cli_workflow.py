"""`bedrockjobs workflow`: files of workflows, the table of their jobs, and what is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_fake import NOW, FakeServer, run, sent

from bedrockjobs.job.layers import TimedJob, critical_path, layers


def job(number: int, ref: str, state: str, **more: Any) -> dict[str, Any]:
    """Return a job of a workflow as QueryWorkflow shows it."""
    return {
        "jobID": number,
        "ref": ref,
        "name": f"nightly/{ref}",
        "state": state,
        "waits": 0,
        "onFailure": "cancel",
        "started": "",
        "ended": "",
        "reason": "",
        "after": [],
        **more,
    }


WORKFLOW = {
    "workflowID": 1,
    "name": "nightly",
    "state": "RUNNING",
    "created": "2026-11-23 11:00:00.100",
    "ended": "",
    "kept": "",
    "open": 3,
    "failed": 1,
}
TIMES = {"started": "2026-11-23 11:00:00", "ended": "2026-11-23 11:02:30"}
JOBS = [
    job(2, "report", "PAUSED", waits=2, after=["export", "resize", "mail"]),
    job(3, "export", "FINISHED", **TIMES),
    job(4, "resize", "RUNNING", started="2026-11-23 11:58:00", after=["export"]),
    job(5, "mail", "QUEUED", after=["export"]),
    job(
        6,
        "stats",
        "FAILED",
        **TIMES,
        reason="Traceback (most recent call last):\n  File x\nValueError: no day",
        after=["export"],
    ),
]

SHOWN = """\
Workflow 1 (nightly) is RUNNING: 2 of 5 jobs ended, 1 failed.

step  ref     state     jobID  name            started (UTC)         took   reason
1     export  FINISHED  3      nightly/export  11:00:00 (1h ago)     2m30s
2     resize  RUNNING   4      nightly/resize  11:58:00 (2m ago)     2m
      mail    QUEUED    5      nightly/mail
      stats   FAILED    6      nightly/stats   11:00:00 (1h ago)     2m30s  ValueError: no day
3     report  waiting   2      nightly/report                               waits for resize, mail
"""


def test_the_jobs_are_shown_by_layer_with_what_they_wait_for(fake: FakeServer) -> None:
    fake.will("QueryWorkflow", {**WORKFLOW, "jobs": JOBS})
    assert _blank(run("workflow", "show", "1").stdout) == _blank(SHOWN)


def test_a_workflow_of_several_pages_is_one_record(fake: FakeServer) -> None:
    many = [job(number, f"r{number}", "QUEUED") for number in range(2, 1_003)]
    for _ in range(2):
        fake.will("QueryWorkflow", {**WORKFLOW, "jobs": many[:1_000]}, {**WORKFLOW, "jobs": many[1_000:]})
    assert json.loads(run("workflow", "show", "1", "-o", "json").stdout) == {**WORKFLOW, "jobs": many}
    assert sent(fake, "QueryWorkflow") == [{"workflowID": 1}, {"workflowID": 1, "after": 1001}]
    assert run("workflow", "show", "1").stdout.startswith("Workflow 1 (nightly) is RUNNING: 0 of 1,001 jobs")


def test_a_failed_one_says_how_to_go_on(fake: FakeServer) -> None:
    fake.will("QueryWorkflow", {**WORKFLOW, "state": "FAILED", "ended": NOW, "jobs": JOBS[-1:]})
    second = run("workflow", "show", "1").stdout.splitlines()[1]
    assert second == "`bedrockjobs workflow retry 1` starts again what did not finish."


def test_what_a_job_waits_for_beyond_some_is_counted(fake: FakeServer) -> None:
    refs = [f"r{number}" for number in range(5)]
    jobs = [job(number, ref, "QUEUED") for number, ref in enumerate(refs, 2)]
    jobs.append(job(9, "last", "PAUSED", waits=6, after=refs))
    hidden = [job(9, "last", "PAUSED", waits=6)]
    fake.will("QueryWorkflow", {**WORKFLOW, "jobs": jobs}, {**WORKFLOW, "jobs": hidden})
    assert run("workflow", "show", "1").stdout.splitlines()[-1].endswith("waits for r0, r1, r2 and 2 more")
    assert run("workflow", "show", "1").stdout.splitlines()[-1].endswith("waits for jobs out of sight")


def test_retry_and_cancel_say_what_became_of_it(fake: FakeServer) -> None:
    fake.will("RetryWorkflow", {"retried": 2})
    fake.will("CancelWorkflow", {"state": "RUNNING", "stopping": 3})
    assert run("workflow", "retry", "1").stdout == ("Workflow 1 goes on; jobs that start or wait again: 2.\n")
    assert run("workflow", "cancel", "1").stdout == (
        "Workflow 1 is RUNNING; runs that workers were asked to stop: 3.\n"
    )
    assert [verb for verb, _ in fake.wired] == ["RetryWorkflow", "CancelWorkflow"]


def test_lists_are_filtered_and_tell_the_progress(fake: FakeServer) -> None:
    fake.will("ListWorkflows", {"workflows": [{**WORKFLOW, "jobs": 5}]}, {"workflows": []})
    line = run("workflow", "list", "night*", "--state", "running").stdout.splitlines()[1]
    assert line.split()[:6] == ["1", "RUNNING", "nightly", "2", "of", "5"]
    assert sent(fake, "ListWorkflows") == [{"name": "night*", "state": "RUNNING", "limit": 100}]
    assert run("workflow", "list").stderr.startswith("No workflows: `bedrockjobs workflow create FILE`")


YAML = """\
name: nightly
jobs:
  - ref: export
    name: db/export
    data: {day: 3}
  - {ref: report, name: report/day, after: [export], on_failure: continue}
"""
REQUEST = {
    "name": "nightly",
    "jobs": [
        {"ref": "export", "name": "db/export", "data": {"day": 3}},
        {"ref": "report", "name": "report/day", "after": ["export"], "onFailure": "continue"},
    ],
    "by": "ann",
}


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_is_created(fake: FakeServer, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"nightly.{form}"
    text = YAML if form == "yaml" else json.dumps(REQUEST | {"by": "file"})
    file.write_text(text)
    fake.will("CreateWorkflow", *[{"workflowID": 1, "jobIDs": {"export": 2, "report": 3}}] * 2)
    said = run("workflow", "create", str(file), "--by", "ann")
    assert said.stdout == "Created workflow 1 with 2 jobs.\n"
    renamed = ("workflow", "create", "-", "--format", form, "--name", "other", "--by", "ann")
    assert run(*renamed, stdin=text).exit_code == 0
    assert sent(fake, "CreateWorkflow") == [REQUEST, REQUEST | {"name": "other"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: x\njobs: [{ref: a}]\n", "jobs.0.name is required"),
        ("name: x\njobs: [3]\n", "jobs"),
        ("name: x\n", "stdin: expected a name and a list of jobs"),
        ("[1]\n", "stdin: expected a name and a list of jobs"),
        ("name: [\n", "stdin: line 1"),
        ("name: 2026-11-21\n", "stdin: name: expected a string"),
    ],
)
def test_a_file_that_is_wrong_is_refused_before_anything_is_sent(
    fake: FakeServer, text: str, problem: str
) -> None:
    result = run("workflow", "create", "-", "--format", "yaml", stdin=text)
    assert (result.exit_code, problem in result.stderr, fake.asked) == (2, True, []), result.stderr


def test_the_format_of_stdin_has_to_be_given(fake: FakeServer) -> None:
    assert "--format: '-' expected a name that ends with" in run("workflow", "create", "-").stderr


def test_a_layer_comes_after_all_before_it() -> None:
    after = {"d": ["b", "c", "hidden"], "a": [], "b": ["a"], "c": ["b", "a"]}
    assert layers(after) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_the_critical_path_goes_back_from_what_ended_last() -> None:
    steps = {
        "a": TimedJob((), 0, "FINISHED", "01", "03"),
        "b": TimedJob((), 0, "FINISHED", "01", "05"),
        "c": TimedJob(("a", "b"), 0, "FINISHED", "05", "06"),
        "d": TimedJob(("c", "hidden"), 0, "RUNNING", "06", ""),
        "e": TimedJob(("d",), 1, "PAUSED", "", ""),
        "f": TimedJob(("a",), 0, "CANCELLED", "", "06"),
    }
    assert critical_path(steps, "09") == ["b", "c", "d"]
    assert critical_path({"e": steps["e"]}, "09") == []


def _blank(text: str) -> list[list[str]]:
    """Return the words of each line, as the widths of columns are tested elsewhere."""
    return [line.split() for line in text.splitlines()]
