"""Completion of names: quick, and silent if there is nothing to suggest."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from cli_fake import FakeServer
from click.shell_completion import ShellComplete

from bedrockjobs.base.errors import Unavailable
from bedrockjobs.cli import lookup, main
from bedrockjobs.client import Response, ServerUnreachable
from bedrockjobs.commands import Command


def completed(*words: str) -> list[str]:
    """Return the completions of the last word."""
    *before, incomplete = words
    shell = ShellComplete(main, {}, "bedrockjobs", "_BEDROCKJOBS_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    ("words", "verb", "key", "given"),
    [
        (["job", "get", "b"], "ListJobs", "jobs", {"limit": 200, "name": "b*"}),
        (["schedule", "show", "b"], "ListSchedules", "schedules", {"limit": 200, "name": "b*"}),
        (["worker", "drain", "b"], "ListWorkers", "workers", {"limit": 200, "name": "b*"}),
    ],
)
def test_names_are_completed(
    words: list[str], verb: str, key: str, given: dict[str, Any], fake: FakeServer
) -> None:
    fake.will(verb, {key: [{"name": "backup"}, {"name": "b2"}, {"name": "backup"}, {"name": "other"}]})
    assert completed(*words) == ["backup", "b2"]
    assert fake.wired == [(verb, given)]
    assert (fake.tries, fake.closed) == ([1], 1)


def test_runs_are_completed_by_number(fake: FakeServer) -> None:
    fake.will("ListRuns", {"runs": [{"runID": 31, "name": "a"}, {"runID": 4, "name": "b"}]})
    assert completed("run", "logs", "3") == ["31"]


def test_the_server_that_was_named_is_asked(fake: FakeServer) -> None:
    assert completed("-s", "a:1", "schedule", "show", "") == []
    assert fake.addresses == ["a:1"]


@pytest.mark.parametrize(
    "answer",
    [ServerUnreachable("refused"), Unavailable(), ValueError("bad address"), "no JSON", '{"schedules":[7]}'],
)
def test_whatever_goes_wrong_completes_nothing(
    answer: Any, fake: FakeServer, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.will("ListSchedules", answer)
    assert completed("schedule", "show", "b") == []
    assert capfd.readouterr() == ("", "")


def test_a_slow_server_is_not_waited_for(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "TIMEOUT_S", 0.01)
    end = threading.Event()

    def slow(_: Command[Any]) -> Response:
        end.wait(30)
        return Response(200, "OK", {}, b"{}")

    fake.will("ListSchedules", slow)
    assert completed("schedule", "show", "b") == []
    end.set()
