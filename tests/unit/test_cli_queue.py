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


@pytest.mark.parametrize("group", ["queue", "schedule"])
def test_pause_and_resume_are_the_same_in_both_groups(group: str, fake: FakeServer) -> None:
    fake.will("ListJobs", {"jobs": [{}]})
    fake.will("ResumeJobs", {"resumed": ["a*"]})
    paused = run(group, "pause", "a*", "--reason", "disks", "--by", "ann")
    assert paused.stdout == f"Paused a*; `bedrockjobs {group} resume 'a*'` ends it.\n"
    assert run(group, "resume", "a*", "--by", "ann").stdout == "Resumed a*.\n"
    assert fake.wired[0] == ("PauseJobs", {"name": "a*", "reason": "disks", "by": "ann"})
    assert fake.wired[-1] == ("ResumeJobs", {"name": "a*", "by": "ann"})
