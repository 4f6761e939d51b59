"""`bedrockjobs worker ...`: listing workers, and draining one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake import FakeServer, run

from bedrockjobs.base.clock import ManualClock, SystemClock
from bedrockjobs.base.errors import NotFound
from bedrockjobs.cli import worker


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that moves when the program waits."""
    clock = ManualClock(SystemClock().now())
    monkeypatch.setattr(worker, "SystemClock", lambda: clock)
    monkeypatch.setattr(worker.time, "sleep", clock.advance)
    return clock


def live(*run_ids: int, status: str = "draining", name: str = "w1") -> dict[str, Any]:
    """Return the answer of ListWorkers with one worker."""
    return {
        "workers": [
            {
                "name": name,
                "host": "h",
                "pid": 9,
                "version": "1",
                "names": ["a*", "b"],
                "slots": 4,
                "joined": "",
                "heartbeat": "2026-11-21 08:00:00",
                "status": status,
                "runIDs": list(run_ids),
            }
        ]
    }


def test_list(fake: FakeServer) -> None:
    fake.will("ListWorkers", live(1, 2, status="active"), live(1, 2), live(), {"workers": []})
    assert run("worker", "list").stdout.splitlines()[1].split() == [
        "w1",
        "active",
        "2",
        "4",
        "h",
        "9",
        "a*",
        "b",
        "2026-11-21",
        "08:00:00",
        "(2d",
        "ago)",
        "1",
    ]
    assert json.loads(run("worker", "list", "-o", "json").stdout) == live(1, 2)["workers"]
    assert run("worker", "list", "-o", "name").stdout == "w1\n"
    assert run("worker", "list").stderr == "No workers: `bedrock-worker --name NAME -- COMMAND` starts one.\n"


@pytest.mark.parametrize(
    ("arguments", "given", "said"),
    [
        (["quiet", "w1"], {}, "Worker w1 takes no more jobs.\n"),
        (["quiet", "w1", "--undo"], {"undo": True}, "Worker w1 takes jobs again.\n"),
        (["drain", "w1", "--undo"], {"undo": True}, "Worker w1 takes jobs again.\n"),
    ],
)
def test_quiet_returns_at_once(
    arguments: list[str], given: dict[str, Any], said: str, fake: FakeServer
) -> None:
    assert run("worker", *arguments, "--by", "ann").stdout == said
    assert fake.wired == [("DrainWorker", {"worker": "w1", "by": "ann", **given})]


def test_drain_without_wait_returns_at_once(fake: FakeServer) -> None:
    assert run("worker", "drain", "w1").stdout.startswith("Worker w1 takes no more jobs; ")
    assert [name for name, _ in fake.wired] == ["DrainWorker"]


def test_drain_waits_and_tells_how_far_it_is(fake: FakeServer, clock: ManualClock) -> None:
    fake.will("ListWorkers", live(1, 2), live(1, 2), live(2), live(status="drained"))
    begun = clock.monotonic()
    result = run("worker", "drain", "w1", "--wait")
    assert (result.exit_code, result.stdout) == (0, "Worker w1 is drained.\n")
    assert result.stderr == "2 runs left\n1 run left\n"
    assert clock.monotonic() - begun == pytest.approx(3 * worker.POLL_S)


def test_a_worker_that_ends_is_drained_too(fake: FakeServer, clock: ManualClock) -> None:
    fake.will("ListWorkers", live(1), live(1, name="other"))
    result = run("worker", "drain", "w1", "--wait", "-o", "json")
    assert json.loads(result.stdout) == {"name": "w1", "outcome": "left"}


def test_a_drain_that_takes_too_long_is_124(fake: FakeServer, clock: ManualClock) -> None:
    fake.will("ListWorkers", *[live(1)] * 4)
    result = run("worker", "drain", "w1", "--wait", "--timeout", "2.5")
    assert (result.exit_code, result.stderr) == (124, "1 run left\nError: 1 run left after 2.5s\n")


def test_a_drain_that_somebody_takes_back_is_4(fake: FakeServer, clock: ManualClock) -> None:
    fake.will("ListWorkers", live(1), live(1, status="active"))
    result = run("worker", "drain", "w1", "--wait")
    assert (result.exit_code, "w1 was made active again" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--undo", "--wait"], "--undo cannot be combined"), (["--timeout", "5s"], "--timeout needs --wait")],
)
def test_wrong_usage(arguments: list[str], said: str, fake: FakeServer) -> None:
    result = run("worker", "drain", "w1", *arguments)
    assert (result.exit_code, said in result.stderr, fake.asked) == (2, True, [])


def test_an_unknown_worker_is_3(fake: FakeServer) -> None:
    fake.will("DrainWorker", NotFound("No such worker"))
    assert run("worker", "drain", "nobody", "--wait").exit_code == 3
