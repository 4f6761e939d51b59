"""`bedrockjobs top`: the content of a frame, its polling, and its behaviour without a server."""

from __future__ import annotations

import io
import json
from typing import Any

import click
import pytest
from cli_fake import FakeServer, run, sent
from rich.console import Console

from bedrockjobs.base.clock import ManualClock, SystemClock
from bedrockjobs.base.errors import Forbidden, TimedOut
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli import top
from bedrockjobs.cli.output import Record
from bedrockjobs.cli.session import Failure, Session
from bedrockjobs.cli.top import Snapshot, frame, progress_text
from bedrockjobs.client import Response, ServerUnreachable
from bedrockjobs.commands import Command

STATUS = {"version": "1.0", "started": "2026-11-21 08:00:00", "now": "2026-11-21 09:30:00"}
OVERVIEW = {
    "ready": 1200,
    "later": 300,
    "running": 2,
    "paused": 0,
    "blocked": 4,
    "mocked": 0,
    "untaken": 1,
    "failed": 3,
    "children": 0,
    "more": ["ready"],
    "problems": [{"kind": "failed", "name": "", "count": 3, "since": "", "detail": "3 jobs have failed"}],
    "next": [
        {"jobID": 1, "name": "backup", "nextRun": "2026-11-21 09:31:30", "paused": ""},
        {"jobID": 2, "name": "report", "nextRun": "2026-11-21 10:00:00", "paused": "rep*"},
    ],
}
RUNS = [
    {
        "runID": 3,
        "name": "import",
        "started": "2026-11-21 09:29:01.0",
        "worker": "w1",
        "host": "h1",
        "stop": "",
        "progress": {"percent": 40, "message": "copying"},
    }
]
FAILURES = [
    {"runID": 2, "name": "report", "status": "fail", "ended": "2026-11-21 09:20:00.5", "error": "no mail\nx"}
]
NO_JOBS = {"ready": 0, "paused": 0, "failed": 0, "running": 0, "age": 0, "oldestReady": "", "pausedBy": ""}
QUEUES = [
    {**NO_JOBS, "name": "idle"},
    {**NO_JOBS, "name": "few", "ready": 3, "age": 61, "oldestReady": "2026-11-21 09:28:59"},
    {**NO_JOBS, "name": "many", "ready": 1200, "failed": 2, "pausedBy": "m*"},
]
WORKERS = [{"name": "w1", "status": "active", "host": "h1", "slots": 4, "names": ["a*"], "runIDs": [3]}]


def prepared(fake: FakeServer, times: int = 1) -> None:
    """Prepare the fake's replies for a number of frames."""
    for _ in range(times):
        fake.will("Status", STATUS)
        fake.will("ListRuns", {"runs": RUNS}, {"runs": FAILURES})
        fake.will("ListQueues", {"queues": QUEUES})
        fake.will("ListWorkers", {"workers": WORKERS})
        fake.will("Overview", OVERVIEW)


def test_once_prints_one_frame(fake: FakeServer) -> None:
    prepared(fake)
    result = run("top", "--once")
    assert result.exit_code == 0, result.stderr
    words = [line.split() for line in result.stdout.splitlines()]
    assert words[0][:6] == ["bedrockjobs", "1.0", "127.0.0.1:8888", "up", "1h30m", "2026-11-21"]
    assert words[1] == [
        "ready",
        "1,200+",
        "later",
        "300",
        "running",
        "2",
        "paused",
        "0",
        "blocked",
        "4",
        "untaken",
        "1",
        "failed",
        "3",
    ]
    assert words[2] == ["3", "jobs", "have", "failed"]
    assert ["3", "import", "59s", "████░░░░░░", "40", "%", "copying", "w1@h1"] in words
    assert ["backup", "in", "1m30s", "2026-11-21", "09:31:30", "UTC"] in words
    assert ["report", "in", "30m", "2026-11-21", "10:00", "UTC", "rep*"] in words
    assert ["w1", "active", "1", "4", "h1", "a*"] in words
    assert ["2", "report", "fail", "9m", "ago", "no", "mail"] in words
    many, few = ["many", "1,200", "0", "2", "m*"], ["few", "3", "0", "0", "1m1s"]
    assert words.index(many) < words.index(few)
    assert "idle" not in [line[0] for line in words if line]
    assert [given["status"] for given in sent(fake, "ListRuns")] == ["running", "failed"]
    assert fake.tries == [1]


def test_a_frame_as_data(fake: FakeServer) -> None:
    prepared(fake)
    data = json.loads(run("top", "-o", "json").stdout)
    assert (data["ready"], data["later"], data["running"], data["failed"]) == (1200, 300, 2, 3)
    assert (data["schedules"], data["problems"]) == (OVERVIEW["next"], OVERVIEW["problems"])
    assert (data["runs"], data["workers"]) == (RUNS, WORKERS)
    assert (data["failures"], data["names"]) == (FAILURES, QUEUES)


def test_nobody_there_is_69_and_a_short_interval_is_refused(fake: FakeServer) -> None:
    fake.will("Status", ServerUnreachable("cannot connect"))
    assert run("top", "--once").exit_code == 69
    refused = run("top", "--interval", "0.1")
    assert (refused.exit_code, "at least 0.2 s" in refused.stderr) == (2, True)


def test_jobs_that_cannot_be_counted_in_time(fake: FakeServer) -> None:
    prepared(fake)
    fake.will("Status", STATUS)
    failing = FakeServerAnswers(fake)
    failing.only("Overview", TimedOut("Timeout"))
    assert "The jobs could not be counted in time." in run("top", "--once").stdout


def test_who_sees_some_names_only_sees_no_workers(fake: FakeServer) -> None:
    prepared(fake)
    FakeServerAnswers(fake).only("ListWorkers", Forbidden("Forbidden", "ListWorkers is not for you"))
    data = json.loads(run("top", "-o", "json").stdout)
    assert (data["workers"], data["ready"]) == ([], 1200)
    prepared(fake)
    FakeServerAnswers(fake).only("ListWorkers", TimedOut("Timeout"))
    assert run("top", "--once").exit_code != 0


class FakeServerAnswers:
    """Changes the prepared replies of a fake."""

    def __init__(self, fake: FakeServer) -> None:
        """Change the replies of this fake."""
        self._fake = fake

    def only(self, verb: str, answer: Exception) -> None:
        """Reply to a verb with this body only."""
        self._fake._answers.pop(verb, None)
        self._fake.will(verb, answer)


def test_a_huge_table_is_counted_less_often_than_it_is_drawn(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(SystemClock().now())
    monkeypatch.setattr(top, "SystemClock", lambda: clock)

    def slow(body: dict[str, Any]) -> Any:
        def answer(_: Command[Any]) -> Response:
            clock.advance(0.25)
            return Response(200, "OK", {}, json.dumps(body).encode())

        return answer

    prepared(fake, 3)
    fake._answers["Overview"] = []
    fake.will("Overview", slow(OVERVIEW), slow(OVERVIEW))
    with click.Context(click.Command("top")):
        observer = top.Observer(Session())
        for pause, counts in ((0, 1), (2.2, 1), (0.2, 2)):
            clock.advance(pause)
            observer.snapshot()
            assert [name for name, _ in fake.wired].count("Overview") == counts


def shown(snapshot: Snapshot, height: int | None = None) -> str:
    """Return a frame as text."""
    screen = io.StringIO()
    Console(file=screen, width=100).print(frame(snapshot, 100, height))
    return screen.getvalue()


def test_a_server_that_goes_away_keeps_the_last_frame(fake: FakeServer) -> None:
    prepared(fake)
    with click.Context(click.Command("top")):
        observer = top.Observer(Session())
        observer.snapshot()
        snapshot = observer.away(Failure("cannot connect to \x1b[2J", 69))
    assert "cannot connect to \\u001b[2J" in shown(snapshot)
    assert "1,200" in shown(snapshot)


def test_ctrl_c_ends_it_with_0(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", interrupted)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    prepared(fake)
    result = run("top")
    assert result.exit_code == 0
    assert "backup" in result.stdout


def test_a_small_screen_says_that_there_is_more() -> None:
    schedules = [{"name": f"s{at}", "nextRun": "2026-11-22"} for at in range(9)]
    overview = {"next": RawJSON(json.dumps(schedules))}
    snapshot = Snapshot(now="2026-11-21 09:30:00", overview=overview)
    assert "and 7 more" in shown(snapshot, 24)
    assert "s8" in shown(snapshot)
    assert len(shown(snapshot, 24).splitlines()) <= 24


@pytest.mark.parametrize(
    ("run_record", "text"),
    [
        ({}, ""),
        ({"progress": RawJSON("null"), "stop": RawJSON('"TERM"')}, "stopping (TERM)"),
        ({"progress": RawJSON('{"percent":150}')}, "██████████ 150 %"),
        ({"progress": RawJSON('{"percent":"x","message":"hm"}')}, "hm"),
        ({"progress": RawJSON("[1]")}, ""),
    ],
)
def test_progress(run_record: Record, text: str) -> None:
    assert progress_text(run_record) == text
