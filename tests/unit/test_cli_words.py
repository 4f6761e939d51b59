"""A typo gets a suggestion, and no help is truncated."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.vocabulary import ANY_FAILURE, STATUSES
from bedrockjobs.cli import main, top
from bedrockjobs.cli.parameters import STATES_ALSO, STATUSES_ALSO
from bedrockjobs.commands.server import State


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["jbo"], "'job'"),
        (["job", "lst"], "'list'"),
        (["job", "list", "--stat", "FAILED"], "'--state'"),
        (["job", "list", "--state", "FALED"], "'failed'"),
        (["run", "list", "--status", "killd"], "'killed'"),
        (["run", "list", "--status", "failled"], "'failed'"),
        (["job", "create", "a", "--overlap", "skp"], "'skip'"),
        (["job", "list", "-o", "jsn"], "'json'"),
        (["call", "creatjob"], "'CreateJob'"),
        (["call", "CreateJob", "nmae=x"], "'name'"),
    ],
)
def test_a_slip_is_told_with_the_word(arguments: list[str], meant: str, fake: FakeServer) -> None:
    result = run(*arguments)
    assert (result.exit_code, fake.asked) == (2, [])
    assert "did you mean" in result.stderr.lower()
    assert meant in result.stderr


def test_a_word_like_no_other_gets_no_guess(fake: FakeServer) -> None:
    assert "mean" not in run("run", "list", "--status", "xyzzy").stderr
    assert "mean" not in run("call", "xyzzy").stderr


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("failed", "failed"),
        ("failure", "failed"),
        ("fail", "fail"),
        ("lost", "frozen"),
        ("frozen", "frozen"),
        ("timed out", "timeout"),
    ],
)
def test_other_words_for_a_status_are_taken(word: str, status: str, fake: FakeServer) -> None:
    fake.will("ListRuns", {"runs": []})
    assert run("run", "list", "--status", word).exit_code == 0
    assert sent(fake, "ListRuns")[0]["status"] == status


def test_other_words_stand_for_what_there_is() -> None:
    assert set(STATUSES_ALSO.values()) <= {ANY_FAILURE, *STATUSES}
    assert set(STATES_ALSO.values()) <= set(get_args(State))
    assert not set(STATUSES_ALSO) & {ANY_FAILURE, *STATUSES}


def test_a_table_says_lost_and_json_what_the_server_says(fake: FakeServer) -> None:
    lost = {"runID": 3, "status": "frozen", "started": "", "ended": "", "error": ""}
    fake.will("ListRuns", *[{"runs": [lost]}] * 2)
    assert run("run", "list").stdout.splitlines()[1].split()[:2] == ["3", "lost"]
    assert '"frozen"' in run("run", "list", "-o", "json").stdout


def test_what_is_offered_is_what_a_table_says(fake: FakeServer) -> None:
    for shown in (run("run", "list", "--help").stdout, run("run", "list", "--status", "xyzzy").stderr):
        assert "lost" in shown
        assert "frozen" not in shown


def test_help_is_as_wide_as_the_terminal_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, most in ((200, 120), (100, 100)):
        monkeypatch.setenv("COLUMNS", str(columns))
        context = click.Context(main, **main.context_settings)
        width = max(map(len, context.get_help().splitlines()))
        assert most - 20 < width <= most


def test_rules_say_what_was_done(fake: FakeServer) -> None:
    added = run("notify", "add", "n", "--on", "failed", "--to", "mailto:a@b.example")
    assert added.stdout == "Rule n is active; `bedrockjobs notify test n` shows a message.\n"
    assert run("notify", "mute", "n", "--until", "2h").stdout == (
        "Rule n sends nothing until 2026-11-23 14:00 UTC.\n"
    )
    assert sent(fake, "MuteRule")[0]["until"] == "2026-11-23 14:00:00"
    assert run("notify", "mute", "n").stdout == "Rule n sends again.\n"
    assert run("notify", "remove", "n").stdout == "Removed rule n.\n"


ENDED = "`bedrockjobs run list` shows those that have ended"


def test_an_empty_list_names_the_first_command(fake: FakeServer) -> None:
    """But not after a search."""
    fake.will("ListJobs", {"jobs": []}, {"jobs": []})
    assert run("job", "list").stderr == f"No jobs: `bedrockjobs job create NAME` makes one; {ENDED}.\n"
    assert run("job", "list", "--name", "a").stderr == f"No jobs; {ENDED}.\n"


def groups(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the paths of all command groups except that of the protocol."""
    if not isinstance(command, click.Group) or path == ("call",):
        return []
    found = [path]
    for name, inner in command.commands.items():
        found += groups(inner, (*path, name))
    return found


@pytest.mark.parametrize("path", groups(main), ids=lambda path: " ".join(path) or "bedrockjobs")
def test_no_summary_is_cut(path: tuple[str, ...]) -> None:
    """For no command, however narrow the terminal is."""
    shown = run(*path, "--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert shown
    assert not [line for line in shown.splitlines() if line.endswith("...")]
    assert len(shown) < 10_000


def test_a_kind_of_event_that_did_not_happen_is_told_with_those_that_did(fake: FakeServer) -> None:
    fake.will("Events", {"events": []}, {"events": [{"kind": "failed"}, {"kind": "paused"}]})
    fake.will("Overview", {"newestEvent": 5})
    told = run("events", "--kind", "fail").stderr
    assert told == "No events of the kind 'fail'. Did you mean 'failed'? There are: failed, paused.\n"


@pytest.mark.parametrize(("typed", "ends"), [(b"q", True), (b"\x1b", True), (b"x", False), (b"", False)])
def test_q_ends_a_view(typed: bytes, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Enter, and the terminal is restored afterwards."""
    import termios

    ours, theirs = pty.openpty()
    with Path(os.ttyname(theirs)).open() as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(theirs)
        with top.quit_key() as ended:
            os.write(ours, typed)
            assert ended(0.0 if not typed else 5.0) is ends
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_without_a_terminal_a_view_only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def sleep(seconds: Any) -> None:
        waited.append(seconds)

    monkeypatch.setattr(top.time, "sleep", sleep)
    with top.quit_key() as ended:
        assert ended(3.0) is False
    assert waited == [3.0]


def test_a_command_imports_its_own_module_only() -> None:
    """Importing all of them would take a second."""
    asked = "from bedrockjobs.cli import main; main(['job', 'list', '--help'], standalone_mode=False)"
    shown = "import sys; print([name for name in sys.modules if name.startswith('bedrockjobs.')])"
    done = subprocess.run([sys.executable, "-c", f"{asked}; {shown}"], capture_output=True, check=True)
    assert b"'bedrockjobs.cli.job'" in done.stdout
    for other in (b"bedrockjobs.cli.doctor", b"bedrockjobs.definitions", b"bedrockjobs.store"):
        assert b"'%b" % other not in done.stdout
