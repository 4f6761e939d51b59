"""`bedrockjobs apply`: all errors of its files at once, several files, rules and schedules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_fake import FakeServer, fake_server, run, sent

NOTHING = {"added": [], "changed": [], "removed": [], "unchanged": []}

FIVE_TOML = """\
source = "shop"

[[schedules]]
name = "mail/digest"
schedule = "0 25 * * *"
retrys = 2

[[schedules]]
name = "backup"
schedule = "@daily"
run_timeout = "soon"  # [[schedules]]
data = { a = [
  1,
] }

[[notify]]
name = "nightly"
on = ["failed"]
to = "nowhere"

[[schedules]]
name = "backup"
schedule = "@hourly"
"""

FIVE_LINES = [
    (5, "schedule mail/digest: schedule: "),
    (6, "schedule mail/digest: unknown key 'retrys', expected retries"),
    (11, "schedule backup: runTimeout: expected a duration"),
    (19, "rule nightly: to: expected "),
    (21, "schedule backup: two have this name, the first one at line 8"),
]

FIVE_YAML = """\
schedules:
- name: mail/digest
  schedule: 0 25 * * *
  retrys: 2
- {name: a, schedule: 5m, hosts: all, lock: x, priority: 7}
notify:
- name: nightly
  on: [failed]
  to: nowhere
- 5
"""

FIVE_JSON = """\
{"schedules": {
  "mail/digest": {
    "schedule": "0 25 * * *",
    "retrys": 2},
  "a": {"schedule": "5m", "priority": 7}},
 "notify": [
  {"name": "nightly",
   "on": ["failed"],
   "to": "nowhere"},
  5]}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Return a server that records its requests."""
    return fake_server(monkeypatch)


def test_five_errors_are_told_at_once_with_their_lines(server: FakeServer, folder: Path) -> None:
    """Errors of schedules and rules, in the order of the file; no request is sent."""
    Path("shop.toml").write_text(FIVE_TOML)
    result = run("apply", "shop.toml", "--yes")
    assert (result.exit_code, server.asked) == (2, [])
    head, *told = result.stderr.partition("Error: ")[2].splitlines()
    assert head == "5 problems; nothing was changed:"
    for line, (number, words) in zip(told, FIVE_LINES, strict=True):
        assert line.startswith(f"  shop.toml: line {number}: {words}"), line


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [("a.yaml", FIVE_YAML, [3, 4, 5, 9, 10]), ("a.json", FIVE_JSON, [3, 4, 5, 9, 10])],
)
def test_lines_are_told_in_each_format(
    server: FakeServer, folder: Path, file: str, text: str, lines: list[int]
) -> None:
    Path(file).write_text(text)
    told = run("apply", file, "--yes").stderr.partition("changed:\n")[2].splitlines()
    assert [int(line.split("line ")[1].partition(":")[0]) for line in told] == lines


def test_errors_of_all_files_are_told(server: FakeServer, folder: Path) -> None:
    Path("a.toml").write_text("[[schedules]]\nname = 'a'\n")
    Path("b.toml").write_text("x = [")
    told = run("apply", "a.toml", "b.toml", "gone.toml").stderr.partition("changed:\n")[2].splitlines()
    assert [line.split()[0] for line in told] == ["a.toml:", "b.toml:", "cannot"]


def test_files_of_one_source_are_taken_together(server: FakeServer, folder: Path) -> None:
    """The second file must not remove the schedules of the first; a name in both is an error."""
    Path("a.toml").write_text("source = 's'\n[[schedules]]\nname = 'a'\nschedule = '5m'\n")
    Path("b.toml").write_text("source = 's'\nprune = false\n[[schedules]]\nname = 'b'\nschedule = '5m'\n")
    server.will("SyncSchedules", NOTHING)
    assert run("apply", "a.toml", "b.toml").exit_code == 0
    [given] = sent(server, "SyncSchedules")
    assert ([each["name"] for each in given["schedules"]], given["prune"]) == (["a", "b"], False)
    refused = run("apply", "a.toml", "a.toml")
    assert "a.toml: schedule a: an earlier file of the source s defines it too" in refused.stderr


RULES = "source = 's'\n[[notify]]\nname = 'n'\non = ['failed']\nto = 'mailto:a@b.example'\ngroup = '10m'\n"
THERE = {
    "rules": [
        {
            "name": "n",
            "on": ["failed"],
            "names": [],
            "to": "mailto:c@d.example",
            "secret": "",
            "groupFor": 300,
            "quiet": "",
            "over": 1000,
            "older": 300,
        }
    ]
}


def test_the_whole_of_a_change_is_shown_before_one_question(server: FakeServer, folder: Path) -> None:
    """It shows each schedule and rule with its changes."""
    Path("f.toml").write_text(RULES + "[[schedules]]\nname = 'a'\nschedule = '5m'\nretries = 2\n")
    server.will("SyncSchedules", {**NOTHING, "added": ["a"]})
    server.will("SyncRules", {**NOTHING, "changed": ["n"], "removed": ["old"]})
    server.will("ListRules", THERE)
    result = run("apply", "f.toml")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "+ a",
        "    repeat: CRON 5m",
        "    retries: 2",
        "~ rule n",
        "    to: mailto:c@d.example -> mailto:a@b.example",
        "    groupFor: 300 -> 600",
        "- rule old",
        "0 schedules and 0 rules unchanged.",
    ]
    assert len(result.stdout.splitlines()[4]) < 80
    assert all(given["dryRun"] for name in ("SyncSchedules", "SyncRules") for given in sent(server, name))


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("arguments", [["--dry-run"], ["--yes"]])
def test_json_is_one_document(server: FakeServer, folder: Path, form: str, arguments: list[str]) -> None:
    Path("f.toml").write_text(RULES)
    rules: dict[str, Any] = {**NOTHING, "added": ["n"]}
    server.will("SyncSchedules", NOTHING, NOTHING)
    server.will("SyncRules", rules, rules)
    result = run("apply", "f.toml", *arguments, "-o", form)
    assert json.loads(result.stdout) == {**NOTHING, "rules": rules}
    assert [given.get("dryRun", False) for given in sent(server, "SyncRules")] == (
        [True] if arguments == ["--dry-run"] else [True, False]
    )


def test_several_sources_are_one_list(server: FakeServer, folder: Path) -> None:
    Path("a.toml").write_text("schedules = []\n")
    Path("f.toml").write_text(RULES)
    server.will("SyncSchedules", NOTHING, NOTHING)
    server.will("SyncRules", NOTHING)
    found = json.loads(run("apply", "a.toml", "f.toml", "--dry-run", "-o", "json").stdout)
    assert [(each["source"], "rules" in each) for each in found] == [("a.toml", False), ("s", True)]


TAKEN = "a job exists that is not of this source"
ONLY_THE_SERVER_KNOWS = """\
source = "s"

[[schedules]]
name = "a"
schedule = "5m"

[[schedules]]
schedule = "0 0 1 1 * 2020"
name = "b"
run_timeout = "5m"

[[notify]]
name = "n"
on = ["failed"]
to = "mailto:a@b.example"
"""


def test_what_only_a_server_finds_is_told_at_once_with_its_lines(server: FakeServer, folder: Path) -> None:
    """Errors in all files, schedules and rules; there is no confirmation and no change."""
    Path("one.toml").write_text(ONLY_THE_SERVER_KNOWS)
    Path("two.yaml").write_text("source: t\nschedules:\n- name: c\n  schedule: 5m\n")

    def problem(place: int, name: str, detail: str) -> dict[str, Any]:
        return {"place": place, "name": name, "reason": "Why", "detail": detail}

    of_schedules = [
        problem(0, "a", f"name: {TAKEN}"),
        problem(1, "b", "repeat: it never fires"),
        problem(1, "b", "runTimeout: expected less"),
        problem(1, "b", "expected no unique"),
    ]
    server.will("SyncSchedules", {**NOTHING, "problems": of_schedules})
    server.will("SyncRules", {**NOTHING, "problems": [problem(0, "n", f"name: {TAKEN}")]})
    server.will("SyncSchedules", {**NOTHING, "problems": [problem(0, "c", f"name: {TAKEN}")]})
    result = run("apply", "one.toml", "two.yaml", "--yes")
    assert result.exit_code == 4
    head, *told = result.stderr.removeprefix("Error: ").splitlines()
    assert head == "6 problems; nothing was changed:"
    assert told == [
        f"  one.toml: line 4: schedule a: name: {TAKEN}",
        "  one.toml: line 8: schedule b: repeat: it never fires",
        "  one.toml: line 10: schedule b: runTimeout: expected less",
        "  one.toml: line 7: schedule b: expected no unique",
        f"  one.toml: line 13: rule n: name: {TAKEN}",
        f"  two.yaml: line 3: schedule c: name: {TAKEN}",
    ]
    assert all(given["dryRun"] for verb in ("SyncSchedules", "SyncRules") for given in sent(server, verb))


ENTRY = {
    "schedule": {"schedules": [{"name": "x", "schedule": "5m"}]},
    "rule": {"schedules": [], "notify": [{"name": "x", "on": ["failed"], "to": "mailto:a@b.example"}]},
}
"""A file with one entry of each kind."""


def written(file: str, given: dict[str, Any]) -> str:
    """Write a file in the format of its suffix; return its name."""
    text = json.dumps(given, indent=1)  # which is YAML, too
    if file.endswith(".toml"):
        (kind,) = (kind for kind, entries in given.items() if entries)
        rows = [f"{key} = {json.dumps(value)}" for key, value in given[kind][0].items()]
        text = "\n".join([f"[[{kind}]]", *rows])
    Path(file).write_text(text)
    return file


@pytest.mark.parametrize("kind", ENTRY)
@pytest.mark.parametrize("first", ["a.toml", "a.yaml", "a.json"])
@pytest.mark.parametrize("second", ["b.toml", "b.yaml", "b.json"])
def test_a_name_of_two_sources_is_an_error(
    server: FakeServer, folder: Path, kind: str, first: str, second: str
) -> None:
    """The server could report it only after the first one exists."""
    files = [written(file, ENTRY[kind]) for file in (first, second)]
    result = run("apply", *files, "--yes")
    assert (result.exit_code, server.asked) == (2, [])
    told = rf"{second}: line \d: {kind} x: name: the source {first} defines it too"
    assert re.search(told, result.stderr), result.stderr
    result = run("apply", *files, "--source", "s", "--yes")
    assert (result.exit_code, server.asked) == (2, [])
    assert f"{second}: {kind} x: an earlier file of the source s defines it too" in result.stderr


def test_a_schedule_and_a_rule_may_have_one_name_in_two_sources(server: FakeServer, folder: Path) -> None:
    server.will("SyncSchedules", NOTHING, NOTHING)
    server.will("SyncRules", NOTHING)
    files = [written("a.toml", ENTRY["schedule"]), written("b.toml", ENTRY["rule"])]
    assert run("apply", *files, "--yes").exit_code == 0
