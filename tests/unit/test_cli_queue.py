"""`bedrockjobs queue`: backlogs by name, and pauses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent

QUEUE: dict[str, Any] = {
    "name": "mail/a",
    "ready": 1200,
    "later": 0,
    "running": 2,
    "paused": 0,
    "blocked": 0,
    "mocked": 0,
    "failed": 1,
    "untaken": 0,
    "oldestReady": "2026-11-21 09:59:58",
    "age": 3725,
    "pausedBy": "",
    "workers": 2,
    "more": False,
}
PAUSE = {"pattern": "mail/*", "by": "ann", "reason": "no mail", "since": "2026-11-21 09:00:00", "until": ""}


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_list_says_how_names_are_doing_and_who_paused_them(fake: FakeServer) -> None:
    paused = {**QUEUE, "name": "mail/b", "paused": 9, "pausedBy": "mail/*", "more": True, "oldestReady": ""}
    fake.will("ListQueues", {"queues": [QUEUE, paused]})
    fake.will("ListPauses", {"pauses": [PAUSE]})
    lines = run("queue", "list", "mail/*", "--limit", "5").stdout.splitlines()
    assert cells(lines[0])[:4] == ["name", "ready", "running", "failed"]
    assert cells(lines[1]) == ["mail/a", "1,200", "2", "1", "0", "0", "0", "1h2m", "2"]
    assert cells(lines[2]) == ["mail/b", "1,200+", "2+", "1+", "0", "9+", "0", "2", "ann: no mail (mail/*)"]
    assert sent(fake, "ListQueues") == [{"name": "mail/*", "limit": 5, "sort": "jobs"}]


def test_nothing_paused_asks_nothing_more_and_json_is_the_servers(fake: FakeServer) -> None:
    fake.will("ListQueues", {"queues": [QUEUE]}, {"queues": [QUEUE]}, {"queues": []})
    run("queue", "list")
    assert json.loads(run("queue", "list", "-o", "json").stdout) == [QUEUE]
    assert run("queue", "list").stderr.startswith("No jobs: `bedrockjobs job create NAME`")
    assert [name for name, _ in fake.wired] == ["ListQueues"] * 3


def test_explain_has_the_counts_and_why_the_first_job_waits(fake: FakeServer) -> None:
    explained = {
        "jobID": 7,
        "name": "mail/a",
        "state": "QUEUED",
        "waitsFor": [{"reason": "no worker", "detail": "no worker is alive"}],
    }
    fake.will("ListQueues", *[{"queues": [QUEUE]}] * 3, {"queues": []})
    fake.will("ListJobs", {"jobs": [{"jobID": 7}]}, {"jobs": [{"jobID": 7}]}, {"jobs": []})
    fake.will("ExplainJob", explained, explained)
    shown = run("queue", "explain", "mail/a").stdout.splitlines()
    assert [cells(line) for line in shown[:3]] == [["name", "mail/a"], ["ready", "1,200"], ["running", "2"]]
    assert shown[-3] == "Job 7 (mail/a) is QUEUED."
    assert "no worker is alive" in shown[-1]
    found = json.loads(run("queue", "explain", "mail/a", "-o", "json").stdout)
    assert (found["ready"], found["waitsFor"]) == (1200, explained["waitsFor"])
    assert run("queue", "explain", "mail/a").stdout.splitlines()[-1] == "No job of this name is queued."
    gone = run("queue", "explain", "mail/a")
    assert (gone.exit_code, "there is no queue 'mail/a'" in gone.stderr) == (3, True)


@pytest.mark.parametrize("group", ["queue", "schedule"])
def test_pause_and_resume_are_the_same_in_both_groups(group: str, fake: FakeServer) -> None:
    fake.will("ListJobs", {"jobs": [{}]})
    fake.will("ResumeJobs", {"resumed": ["a*"]})
    paused = run(group, "pause", "a*", "--reason", "disks", "--by", "ann")
    assert paused.stdout == f"Paused a*; `bedrockjobs {group} resume 'a*'` ends it.\n"
    assert run(group, "resume", "a*", "--by", "ann").stdout == "Resumed a*.\n"
    assert fake.wired[0] == ("PauseJobs", {"name": "a*", "reason": "disks", "by": "ann"})
    assert fake.wired[-1] == ("ResumeJobs", {"name": "a*", "by": "ann"})


def step(at: str, **counts: Any) -> dict[str, Any]:
    """Return a step of a history, in which by default nothing happened."""
    nothing = dict.fromkeys(("created", "taken", "finished", "failed", "retried", "lost"), 0)
    unknown = dict.fromkeys(("waitP50", "waitP95", "tookP50", "tookP95", "depth"))
    return {"at": at, **nothing, **unknown, **counts}


def test_a_history_shows_the_steps_in_which_something_happened(fake: FakeServer) -> None:
    busy = step(
        "2026-11-21 09:59:00",
        created=1200,
        taken=3,
        waitP50=0.02,
        waitP95=90,
        tookP50=1.5,
        tookP95=2,
        depth=7,
    )
    steps = [step("2026-11-21 09:58:00"), busy, step("2026-11-21 10:00:00", lost=1)]
    total = {key: value for key, value in busy.items() if key not in ("at", "depth")}
    answer = {"name": "mail/a", "step": 60, "total": {**total, "lost": 1}, "steps": steps}
    fake.will("QueueHistory", answer, answer, {**answer, "steps": [steps[0]]})
    lines = run("queue", "history", "mail/a", "--range", "15m").stdout.splitlines()
    assert sent(fake, "QueueHistory") == [{"name": "mail/a", "range": "15m"}]
    assert cells(lines[0])[1:8] == ["new", "taken", "finished", "failed", "retried", "lost", "wait"]
    assert cells(lines[1])[1:7] == ["0", "0", "0", "0", "0", "1"]
    assert cells(lines[2])[1:] == ["1,200", "3", "0", "0", "0", "0", "0.02s · 1m30s", "1.5s · 2s", "7"]
    assert ["lost", "1"] in [cells(line) for line in lines[3:]], "the sums follow"
    assert json.loads(run("queue", "history", "mail/a", "-o", "json").stdout) == steps[::-1]
    nothing = run("queue", "history", "mail/a")
    assert (nothing.stdout, nothing.stderr) == ("", "Nothing happened to jobs of mail/a in that time.\n")
