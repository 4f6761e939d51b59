"""`bedrockjobs apply`: the displayed changes, the confirmation, and the commands sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import click
import pytest
from cli_fake import FakeServer, fake_server, run, sent

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.base.errors import WrongState
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli import apply as apply_module
from bedrockjobs.cli.apply import attributes_changed
from bedrockjobs.definitions import definition_of

DIFFERENCE = {"added": ["a"], "changed": ["b"], "removed": ["old"], "unchanged": ["c", "d"]}
JOBS = {"jobs": [{"jobID": 7, "name": "b", "repeat": "CRON @hourly", "priority": 500, "retries": 2}]}
ADDED = "    repeat: CRON 5m\n    cmd: make\n    paused\n"
CHANGED = "    repeat: CRON @hourly -> CRON @daily\n    retries: 2 -> left out\n"
NOTHING = {"added": [], "changed": [], "removed": [], "unchanged": ["a"]}
SENT = [{"name": "a", "repeat": "CRON 5m", "cmd": "make"}, {"name": "b", "repeat": "CRON @daily"}]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Return a server that records its requests."""
    return fake_server(monkeypatch)


def test_apply_shows_the_difference_and_then_makes_it(server: FakeServer, folder: Path) -> None:
    """Preview and change both send the whole list; paused schedules are paused first."""
    server.will("SyncSchedules", DIFFERENCE, DIFFERENCE)
    result = run("apply", "jobs.toml", "--yes")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Schedules of jobs.toml: 1 added, 1 changed, 1 removed, 2 unchanged.\n"
    first, second = sent(server, "SyncSchedules")
    assert first == {"source": "jobs.toml", "schedules": SENT, "by": "ada", "dryRun": True}
    assert second == {"source": "jobs.toml", "schedules": SENT, "by": "ada"}
    assert sent(server, "PauseJobs") == [{"name": "a", "reason": "added paused", "by": "ada"}]
    assert [name for name, _ in server.wired] == ["SyncSchedules", "PauseJobs", "SyncSchedules"]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("table", f"+ a\n{ADDED}~ b\n{CHANGED}- old\n2 schedules unchanged.\n"),
        ("name", "a\nb\nold\n"),
        ("jsonl", json.dumps(DIFFERENCE, separators=(",", ":")) + "\n"),
    ],
)
def test_a_dry_run_changes_nothing(server: FakeServer, folder: Path, form: str, shown: str) -> None:
    """It only shows the changes."""
    server.will("SyncSchedules", json.dumps(DIFFERENCE, separators=(",", ":")))
    server.will("ListJobs", JOBS)
    result = run("apply", "jobs.toml", "--dry-run", "-o", form)
    assert (result.exit_code, result.stdout) == (0, shown)
    assert [given["dryRun"] for given in sent(server, "SyncSchedules")] == [True]


def test_without_a_terminal_nobody_is_asked(server: FakeServer, folder: Path) -> None:
    """Nothing is done without --yes."""
    server.will("SyncSchedules", DIFFERENCE)
    server.will("ListJobs", {"jobs": []})
    result = run("apply", "jobs.toml")
    assert result.exit_code == 2
    assert "give --yes" in result.stderr
    assert result.stdout == f"+ a\n{ADDED}~ b\n- old\n2 schedules unchanged.\n"
    assert [name for name, _ in server.wired] == ["SyncSchedules", "ListJobs"]


@pytest.mark.parametrize(("answer", "asked", "exit_code"), [(True, 4, 0), (False, 2, 1)])
def test_a_person_is_asked(
    server: FakeServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: bool,
    asked: int,
    exit_code: int,
) -> None:
    """If the answer is no, nothing is done."""

    def confirm(text: str, **_: Any) -> None:
        assert "jobs.toml" in text
        if not answer:
            raise click.Abort

    monkeypatch.setattr("bedrockjobs.cli.session.interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    server.will("SyncSchedules", DIFFERENCE, DIFFERENCE)
    server.will("ListJobs", JOBS)
    assert run("apply", "jobs.toml").exit_code == exit_code
    assert len(server.asked) == asked


def test_nothing_to_change_is_no_question(server: FakeServer, folder: Path) -> None:
    """And the second command is not sent."""
    server.will("SyncSchedules", NOTHING)
    result = run("apply", "jobs.toml")
    assert (result.exit_code, result.stdout) == (0, "Nothing to change: 1 schedule unchanged.\n")
    assert len(server.asked) == 1


def test_whose_schedules_they_are(server: FakeServer, folder: Path) -> None:
    """The source is the option, else the file's `source`, else its name; stdin has none."""
    Path("named.yaml").write_text("source: team\nschedules: []\n")
    server.will("SyncSchedules", NOTHING, NOTHING, NOTHING, NOTHING)
    assert run("apply", "named.yaml").exit_code == 0
    assert run("apply", "named.yaml", "--source", "other").exit_code == 0
    assert run("apply", str(folder / "jobs.toml")).exit_code == 0
    assert run("apply", "-", "--format", "json", "--source", "x", stdin="[]").exit_code == 0
    sources = [given["source"] for given in sent(server, "SyncSchedules")]
    assert sources == ["team", "other", "jobs.toml", "x"]
    assert "--source" in run("apply", "-", "--format", "json", stdin="[]").stderr


def test_a_file_with_too_many_schedules(server: FakeServer, folder: Path) -> None:
    """It is refused, with the limit, before a request is sent."""
    entries = [{"name": f"s{at}", "schedule": "5m"} for at in range(SCHEDULES_PER_SYNC_MAX + 1)]
    Path("many.json").write_text(json.dumps(entries))
    result = run("apply", "many.json")
    assert (result.exit_code, server.asked) == (2, [])
    assert f"at most {SCHEDULES_PER_SYNC_MAX}" in result.stderr


def test_what_changes_unseen_is_the_data(server: FakeServer, folder: Path) -> None:
    """The server stores the data of a definition in addition to the job's data."""
    server.will("SyncSchedules", {**DIFFERENCE, "added": [], "removed": []})
    server.will("ListJobs", {"jobs": [{"name": "b", "repeat": "CRON @daily", "priority": 500}]})
    assert f"~ b\n    {apply_module.DATA_CHANGES}\n" in run("apply", "jobs.toml", "--dry-run").stdout


@pytest.mark.parametrize(
    ("keys", "job", "lines"),
    [
        ({"retries": 2}, {"retries": "2"}, []),
        ({"run_timeout": "10m"}, {"runTimeout": "90"}, ["runTimeout: 1m30s -> 10m"]),
        ({"priority": 750}, {}, ["priority: 500 -> 750"]),
        ({"data": {"a": 1}}, {}, ['data: {} -> {"a":1}']),
        ({}, {"data": '{"a":1}', "lastRun": '"2026"'}, []),
        ({"argv": ["a"]}, {"cmd": '"b\\u001b"'}, ['argv: left out -> ["a"]', "cmd: b\\u001b -> left out"]),
        ({"cmd": "x" * 61}, {}, [f"cmd: left out -> {'x' * 61}"]),
        ({"cmd": "x" * 90}, {"cmd": '"y"'}, ["cmd: y", f"     -> {'x' * 90}"]),
        ({"url": "https://a.example"}, {"url": '{"url":"https://a.example"}'}, []),
    ],
)
def test_what_would_change_is_told_by_attribute(
    keys: dict[str, Any], job: dict[str, str], lines: list[str]
) -> None:
    """Data that the definition does not contain belongs to the job."""
    definition = definition_of({"name": "a", "schedule": "@daily", **keys}, "here")
    there = {"repeat": '"CRON @daily"', "priority": "500", "data": "{}", **job}
    assert attributes_changed(definition, {key: RawJSON(text) for key, text in there.items()}) == lines


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("bad.toml", '[[schedules]]\nname = "a"\nschedule = "5m"\nretrys = 1', "unknown key 'retrys'"),
        ("bad.txt", "", "--format"),
        ("missing.toml", None, "cannot read missing.toml"),
        ("latin.json", b"\xff", "is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(
    server: FakeServer, folder: Path, file: str, text: str | bytes | None, why: str
) -> None:
    """No request is sent."""
    if text is not None:
        Path(file).write_bytes(text.encode() if isinstance(text, str) else text)
    result = run("apply", file)
    assert result.exit_code == 2
    assert why in result.stderr
    assert server.asked == []


def test_a_refusal_of_the_server(server: FakeServer, folder: Path) -> None:
    """It ends the command with the server's message, and nothing is paused before."""
    server.will("SyncSchedules", WrongState("Not this source's", "a exists without this source"))
    result = run("apply", "jobs.toml", "--yes")
    assert result.exit_code == 4
    assert "a exists without this source" in result.stderr
    assert len(server.asked) == 1


@pytest.mark.parametrize(("flag", "head"), [("--no-prune", ""), ("--yes", "prune = false\n")])
def test_apply_without_pruning(server: FakeServer, folder: Path, flag: str, head: str) -> None:
    """By its option, or by `prune` of the file."""
    Path("few.toml").write_text(f"{head}schedules = []\n")
    server.will("SyncSchedules", NOTHING)
    assert run("apply", "few.toml", flag).exit_code == 0
    assert sent(server, "SyncSchedules") == [
        {"source": "few.toml", "schedules": [], "prune": False, "dryRun": True, "by": ANY}
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.toml", "schedules = []\nx = " + "[" * 50_000, "a.toml: line 2: nested deeper than 64 levels"),
        ("a.yaml", "schedules:\n- " + "[" * 50_000, "a.yaml: line 2: nested deeper than 64 levels"),
        ("a.json", '{"schedules":\n' + "[" * 50_000, "a.json: line 2: nested deeper than 64 levels"),
        ("a.toml", "[[schedules]]\nname = 'a'\n", "a.toml: line 1: schedule a: expected either schedule"),
        ("a.json", " " * 15_000_000, "a.json: expected at most 2097152 characters"),
    ],
    ids=lambda value: value[:30],
)
def test_a_file_with_an_error_removes_nothing(
    server: FakeServer, folder: Path, name: str, text: str, why: str
) -> None:
    """No request is sent."""
    Path(name).write_text(text)
    result = run("apply", name, "--yes")
    assert result.exit_code == 2
    assert why in result.stderr
    assert server.asked == []


def test_what_a_server_warns_of_is_told_with_its_line(server: FakeServer, folder: Path) -> None:
    warning = {"place": 1, "name": "b", "detail": "repeat: its last one has passed"}
    server.will("SyncSchedules", {**NOTHING, "warnings": [warning]})
    result = run("apply", "jobs.toml")
    assert result.exit_code == 0
    assert result.stdout == "Nothing to change: 1 schedule unchanged.\n"
    assert result.stderr.startswith("Warning: jobs.toml: line ")
    assert result.stderr.endswith(": schedule b: repeat: its last one has passed\n")


def test_what_another_source_has_is_taken_over_on_request(server: FakeServer, folder: Path) -> None:
    detail = "name: it belongs to the source 'old.toml' (job 1); takeOver moves it to this source"
    problem = {"place": 0, "name": "a", "reason": "Name is taken", "detail": detail}
    changed = {**NOTHING, "changed": ["b"], "unchanged": []}
    server.will("SyncSchedules", {**NOTHING, "problems": [problem]}, changed, changed)
    result = run("apply", "jobs.toml", "--yes")
    assert result.exit_code == 4
    assert "(job 1); --take-over moves it to this source" in result.stderr
    server.will("ListJobs", {"jobs": [{**JOBS["jobs"][0], "source": "old.toml"}]})
    result = run("apply", "jobs.toml", "--take-over", "--dry-run")
    assert "    source: old.toml -> jobs.toml\n" in result.stdout, result.stderr
    assert [given.get("takeOver") for given in sent(server, "SyncSchedules")] == [None, True]
