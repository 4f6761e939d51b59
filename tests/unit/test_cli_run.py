"""`bedrockjobs run ...` and `events`: lists, followed output, and stopping."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.clock import ManualClock, SystemClock
from bedrockjobs.base.config import RUNS_DELETED_AT_ONCE_MAX
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.cli import lookup
from bedrockjobs.cli import run as run_commands
from bedrockjobs.client import Response, ServerUnreachable
from bedrockjobs.commands import Command

RUN = {
    "runID": 3,
    "jobID": 7,
    "name": "backup",
    "attempt": 1,
    "cause": "schedule",
    "status": "fail",
    "scheduledFor": "2026-11-21 08:00:00",
    "started": "2026-11-21 08:00:01",
    "ended": "2026-11-21 08:01:31",
    "worker": "w1",
    "host": "",
    "exitCode": 2,
    "error": "no luck",
    "progress": None,
    "output": ["a\tb", "\u001b[2J"],
}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record each pause of a follower instead of sleeping."""
    found: list[float] = []
    monkeypatch.setattr(lookup.time, "sleep", found.append)
    return found


def output(first: int, *lines: str, status: str = "running", ended: bool = False) -> dict[str, Any]:
    """Return a reply to ReadOutput."""
    listed = [
        {"seq": first + at, "at": "2026-11-21 08:00:01.5", "stream": "err" if at else "out", "line": line}
        for at, line in enumerate(lines)
    ]
    return {"lines": listed, "status": status, "ended": ended}


# --- list and show --------------------------------------------------------------------------------------


def test_list_passes_its_filters(fake: FakeServer) -> None:
    fake.will("ListRuns", {"runs": [RUN]}, {"runs": [RUN]})
    result = run(
        "run",
        "list",
        "--name",
        "b*",
        "--job",
        "7",
        "--status",
        "fail",
        "--worker",
        "w1",
        "--before",
        "9",
        "--limit",
        "1",
    )
    assert fake.wired == [
        ("ListRuns", {"name": "b*", "jobID": 7, "status": "fail", "worker": "w1", "before": 9, "limit": 1})
    ]
    assert result.stdout.splitlines()[1].split() == [
        "3",
        "fail",
        "backup",
        "7",
        "1",
        "schedule",
        "2026-11-21",
        "08:00:01",
        "(2d",
        "ago)",
        "1m30s",
        "w1",
        "2",
        "no",
        "luck",
    ]
    assert result.stderr == "There may be more: --before 3\n"
    assert run("run", "list", "-o", "name").stdout == "3\n"


def test_show_leaves_out_what_says_nothing(fake: FakeServer) -> None:
    fake.will("QueryRun", RUN, RUN)
    lines = run("run", "show", "3").stdout.splitlines()
    assert "took                1m30s" in lines
    assert not {"host", "progress", "output"} & {line.split()[0] for line in lines if line}
    assert lines[-3:] == ["Last lines of output", "a\tb", "\\u001b[2J"]
    assert json.loads(run("run", "show", "3", "-o", "json").stdout) == RUN


def test_a_table_has_the_line_of_an_error_that_says_what_was_wrong(fake: FakeServer) -> None:
    """`show` prints all lines, except the last output if that is shown below."""
    failed = {**RUN, "error": "SIGTERM\na\tb\n\x1b[2J\n"}
    traceback = {**RUN, "error": 'Traceback (most recent call last):\n  File "x"\nValueError: y'}
    fake.will("ListRuns", {"runs": [failed]})
    fake.will("QueryRun", failed, {**failed, "output": []}, traceback)
    assert run("run", "list").stdout.splitlines()[1].endswith("  \\u001b[2J")
    assert "error               SIGTERM\ntook " in run("run", "show", "3").stdout
    shown = run("run", "show", "3").stdout
    assert f"error               SIGTERM\n{'':20}a\\u0009b\n{'':20}\\u001b[2J\n" in shown
    assert f'\n{"":20}  File "x"\n{"":20}ValueError: y\n' in run("run", "show", "3").stdout


def test_an_unknown_run_is_3(fake: FakeServer) -> None:
    fake.will("QueryRun", NotFound("No run with this runID"))
    assert run("run", "show", "3").exit_code == 3


# --- logs -----------------------------------------------------------------------------------------------


def test_logs_prints_what_there_is(fake: FakeServer) -> None:
    fake.will("ReadOutput", output(5, "one", "\x1b[31mtwo"), output(0))
    result = run("run", "logs", "3", "--since-seq", "4")
    assert (result.exit_code, result.stdout) == (0, "one\n\x1b[31mtwo\n"), "no terminal: as it was printed"
    assert fake.wired == [("ReadOutput", {"runID": 3, "after": 4}), ("ReadOutput", {"runID": 3, "after": 6})]


@pytest.mark.parametrize(
    ("status", "arguments", "exit_code"),
    [
        ("success", [], 0),
        ("fail", [], 0),
        ("success", ["--exit-status"], 0),
        ("fail", ["--exit-status"], 1),
        ("killed", ["--exit-status"], 1),
    ],
)
def test_logs_follows_to_the_end(
    status: str, arguments: list[str], exit_code: int, fake: FakeServer, pauses: list[float]
) -> None:
    fake.will("ReadOutput", output(1, "one"), output(2, "two"), output(3, "last", status=status, ended=True))
    result = run("run", "logs", "3", "-f", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "one\ntwo\nlast\n")
    assert [command.after for command in fake.asked] == [0, 1, 2]  # type: ignore[attr-defined]
    assert all(command.waiting and command.timeout == lookup.WAIT_MS for command in fake.asked)
    assert pauses == []


def test_a_server_that_does_not_wait_is_asked_slowly_and_not_for_ever(
    fake: FakeServer, pauses: list[float]
) -> None:
    fake.will("ReadOutput", *[output(0)] * lookup.EARLY_EMPTY_MAX)
    result = run("run", "logs", "3", "-f")
    assert (result.exit_code, result.stderr) == (69, "Error: the server does not wait\n")
    assert pauses == [lookup.PAUSE_S] * (lookup.EARLY_EMPTY_MAX - 1)


def test_logs_in_each_form(fake: FakeServer, pauses: list[float]) -> None:
    fake.will("ReadOutput", *[output(1, "a", "b", status="success", ended=True)] * 3)
    assert [line["line"] for line in json.loads(run("run", "logs", "3", "-o", "json").stdout)] == ["a", "b"]
    followed = run("run", "logs", "3", "-f", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["stream"] for line in followed] == ["out", "err"]
    assert run("run", "logs", "3", "-t").stdout.splitlines()[0] == "2026-11-21 08:00:01.5  a"
    refused = run("run", "logs", "3", "-f", "-o", "json")
    assert (refused.exit_code, "use -o jsonl" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("error", "status"), [(NotFound("No run with this runID"), 3), (ServerUnreachable("cannot connect"), 69)]
)
def test_logs_of_what_is_not_there(error: Exception, status: int, fake: FakeServer) -> None:
    fake.will("ReadOutput", error)
    assert run("run", "logs", "3", "-f").exit_code == status


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--exit-status"], 1)])
def test_a_run_that_is_handed_back_while_it_is_followed(
    arguments: list[str], status: int, fake: FakeServer
) -> None:
    fake.will("ReadOutput", output(1, "one"), output(1, status="returned", ended=True))
    result = run("run", "logs", "3", "-f", *arguments)
    assert (result.exit_code, result.stdout) == (status, "one\n")
    said = "Run 3 was returned: its job is queued as if it had not been taken.\n"
    assert result.stderr == said


def test_a_run_that_is_handed_back_before_its_first_line(fake: FakeServer, pauses: list[float]) -> None:
    fake.will("ReadOutput", output(0), output(0, status="returned", ended=True))
    result = run("run", "logs", "3", "-f")
    assert (result.exit_code, "Run 3 was returned" in result.stderr) == (0, True)


def test_an_interrupt_while_following_is_130(fake: FakeServer) -> None:
    fake.will("ReadOutput", interrupted)
    assert run("run", "logs", "3", "-f").exit_code == 130


def interrupted(_: Command[Any]) -> Response:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


# --- terminate and kill ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "command"), [("terminate", "TerminateRun"), ("kill", "KillRun")])
@pytest.mark.parametrize(
    ("arguments", "given"),
    [(["3"], {"runID": 3}), (["--job", "7"], {"jobID": 7}), (["--name", "a"], {"name": "a"})],
)
def test_a_run_is_stopped(
    verb: str, command: str, arguments: list[str], given: dict[str, Any], fake: FakeServer
) -> None:
    result = run("run", verb, *arguments, "--reason", "why", "--by", "ann")
    assert result.exit_code == 0, result.stderr
    assert fake.wired == [(command, {**given, "reason": "why", "by": "ann"})]
    assert result.stdout.startswith("SIG")


@pytest.mark.parametrize("arguments", [[], ["3", "--job", "7"], ["--job", "7", "--name", "a"]])
def test_one_way_to_name_a_run_is_enough(arguments: list[str], fake: FakeServer) -> None:
    result = run("run", "kill", *arguments)
    assert (result.exit_code, "give a RUNID, --job ID|NAME or --name NAME" in result.stderr) == (2, True)
    assert fake.asked == []


def test_the_run_of_a_job_is_stopped_by_the_jobs_name(fake: FakeServer) -> None:
    """The name is looked up; if several jobs have it, the command is refused, and nothing is stopped."""
    fake.will("ListJobs", {"jobs": [{"jobID": 7, "name": "backup"}]})
    assert run("run", "kill", "--job", "backup", "--by", "ann").exit_code == 0
    assert fake.wired[-1] == ("KillRun", {"jobID": 7, "by": "ann"})
    fake.will("ListJobs", {"jobs": [{"jobID": 7, "name": "backup"}, {"jobID": 8, "name": "backup"}]})
    refused = run("run", "terminate", "--job", "backup")
    assert (refused.exit_code, fake.wired[-1][0]) == (4, "ListJobs")
    assert "7, 8" in refused.stderr


def test_a_run_that_is_over_is_4(fake: FakeServer) -> None:
    fake.will("KillRun", WrongState("Run is over"))
    assert run("run", "kill", "3").exit_code == 4


# --- events ---------------------------------------------------------------------------------------------


def event(seq: int, **more: Any) -> dict[str, Any]:
    """Return an event."""
    return {
        "seq": seq,
        "at": f"2026-11-21 08:00:0{seq}",
        "kind": "paused",
        "name": "foo",
        "jobID": 0,
        "runID": 0,
        "by": "ann",
        "detail": "disks",
        **more,
    }


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--limit", "2"], {"after": 7}),
        (["--after", "5"], {"after": 5}),
        (["--kind", "lost", "--name", "f*"], {"kind": "lost", "name": "f*", "after": 0}),
    ],
)
def test_events_shows_the_last(arguments: list[str], asked: dict[str, Any], fake: FakeServer) -> None:
    fake.will("Overview", {"newestEvent": 9})
    fake.will("Events", {"events": [event(8), event(9, jobID=7, detail="x\u001b")]})
    lines = run("events", *arguments).stdout.splitlines()
    assert [given for name, given in fake.wired if name == "Events"] == [{**asked, "limit": 1000}]
    assert [line.split() for line in lines[1:]] == [
        ["8", "2026-11-21", "08:00:08", "(2d", "ago)", "paused", "foo", "ann", "disks"],
        ["9", "2026-11-21", "08:00:09", "(2d", "ago)", "paused", "foo", "7", "ann", "x\\u001b"],
    ]


def test_events_follows_until_interrupted(fake: FakeServer, pauses: list[float]) -> None:
    fake.will("Overview", {"newestEvent": 1})
    answers: list[dict[str, Any] | Callable[[Command[Any]], Response]] = [
        {"events": [event(1)]},
        {"events": []},
        {"events": [event(2, jobID=7, runID=3)]},
        interrupted,
    ]
    fake.will("Events", *answers)  # type: ignore[arg-type]
    result = run("events", "-f")
    assert result.exit_code == 130
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["2026-11-21", "08:00:01", "paused", "foo", "by", "ann:", "disks"],
        ["2026-11-21", "08:00:02", "paused", "foo", "job", "7", "run", "3", "by", "ann:", "disks"],
    ]
    asked = [command for command in fake.asked if type(command).__name__ == "Events"]
    assert [(command.after, command.waiting) for command in asked] == [  # type: ignore[attr-defined]
        (0, False),
        (1, True),
        (1, True),
        (2, True),
    ]
    assert pauses == [lookup.PAUSE_S]


def test_events_from_now_on_begin_at_the_last_one(fake: FakeServer) -> None:
    fake.will("Overview", {"newestEvent": 41})
    fake.will("Events", interrupted)
    assert run("events", "-f", "--after", "-1", "-o", "jsonl").exit_code == 130
    assert fake.wired[-1][1]["after"] == 41


def test_a_table_has_a_persons_words_and_json_those_of_the_wire(fake: FakeServer) -> None:
    lost = {**RUN, "status": "frozen"}
    for _ in range(2):
        fake.will("ListRuns", {"runs": [lost]})
    table = run("run", "list", "--status", "lost")
    assert table.stdout.splitlines()[1].split()[:2] == ["3", "lost"]
    assert fake.wired[-1][1]["status"] == "frozen"
    assert json.loads(run("run", "list", "--status", "frozen", "-o", "json").stdout)[0]["status"] == "frozen"


def deletion(*numbers: int, before: int | None = None, running: int = 0, events: int = 0) -> dict[str, Any]:
    """Return a reply to DeleteRuns."""
    runs = [
        {
            "runID": number,
            "jobID": 7,
            "name": f"n/{number % 2}",
            "status": "fail",
            "ended": "2026-11-21 08:01:31",
        }
        for number in numbers
    ]
    return {"runs": runs, "running": running, "events": events, "before": before}


def test_runs_are_deleted_request_by_request_after_a_question(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.cli.session.interactive", lambda: True)
    pages = [deletion(9, 7, before=5), deletion(4, running=1, events=2)]
    fake.will("DeleteRuns", *pages, *pages)
    found = run("run", "delete", "--name", "n/*", "--by", "ann", stdin="y\n")
    assert "3 runs: 2 n/1, 1 n/0" in found.stderr
    assert found.stdout == "Deleted 3 runs; removed the detail of 2 events; 1 run in progress left alone.\n"
    asked = sent(fake, "DeleteRuns")
    assert [(one["dryRun"], one.get("before")) for one in asked] == [
        (True, None),
        (True, 5),
        (False, None),
        (False, 5),
    ]
    assert {(one["name"], one["by"]) for one in asked} == {("n/*", "ann")}
    fake.will("DeleteRuns", deletion(9))
    assert run("run", "delete", "9", stdin="n\n").exit_code == 1
    assert [one["dryRun"] for one in sent(fake, "DeleteRuns")[4:]] == [True], "nothing but looked"


def test_a_look_lists_the_runs_and_deletes_none(fake: FakeServer) -> None:
    fake.will("DeleteRuns", deletion(9, 7), deletion(9, 7), deletion())
    found = run("run", "delete", "--before", "2026-11-22 00:00:00Z", "--dry-run")
    assert [line.split()[:3] for line in found.stdout.splitlines()[1:]] == [
        ["9", "fail", "n/1"],
        ["7", "fail", "n/1"],
    ]
    assert run("run", "delete", "--name", "x", "--dry-run", "-o", "name").stdout == "9\n7\n"
    assert run("run", "delete", "--name", "x", "--dry-run").stderr == "No matching run to delete.\n"
    asked = sent(fake, "DeleteRuns")
    assert all(one["dryRun"] for one in asked)
    assert asked[0]["endedBefore"] == "2026-11-22 00:00:00"


def test_a_secret_is_read_from_stdin_and_numbers_go_in_parts(fake: FakeServer) -> None:
    fake.will("DeleteRuns", deletion(3))
    assert run("run", "delete", "--text", "-", "--yes", stdin="hunter2\n").stdout == "Deleted 1 run.\n"
    assert sent(fake, "DeleteRuns")[0]["text"] == "hunter2"
    numbers = [str(number) for number in range(1, RUNS_DELETED_AT_ONCE_MAX + 2)]
    fake.will(
        "DeleteRuns",
        deletion(*range(2, RUNS_DELETED_AT_ONCE_MAX + 1)),
        deletion(RUNS_DELETED_AT_ONCE_MAX + 1),
    )
    found = run("run", "delete", "--yes", *numbers)
    assert (found.exit_code, found.stderr.strip()) == (3, "Error: No such run: 1")
    assert [len(one["runIDs"]) for one in sent(fake, "DeleteRuns")[1:]] == [RUNS_DELETED_AT_ONCE_MAX, 1]


def test_runs_to_delete_are_numbers_or_filters_and_nobody_guesses(fake: FakeServer) -> None:
    for given in ((), ("1", "--name", "a"), ("1", "--text", "x"), ("--dry-run",)):
        assert run("run", "delete", *given).exit_code == 2
    assert not sent(fake, "DeleteRuns")
    fake.will("DeleteRuns", deletion(1))
    found = run("run", "delete", "1")
    assert found.exit_code == 2
    assert "--yes" in found.stderr
    fake.will("DeleteRuns", WrongState("Run is running", "runIDs: run 1 has not ended"))
    refused = run("run", "delete", "1", "--yes")
    assert "run 1 has not ended" in refused.stderr
    assert refused.exit_code == 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that moves when the program waits."""
    clock = ManualClock(SystemClock().now())
    for module in (lookup, run_commands):
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
    monkeypatch.setattr(lookup.time, "sleep", clock.advance)
    return clock


def statuses(fake: FakeServer, clock: ManualClock, *listed: str) -> None:
    """Let a run have these statuses one after another, each after the whole wait."""

    def answer(status: str) -> Callable[[Command[Any]], Response]:
        def waited(command: Command[Any]) -> Response:
            clock.advance(json.loads(command.wire()).get("timeout", 0) / 1_000)
            return Response(200, "OK", {}, json.dumps({"lines": [], "status": status}).encode())

        return waited

    fake.will("ReadOutput", *map(answer, listed))


def test_stop_waits_for_the_end(fake: FakeServer, clock: ManualClock) -> None:
    statuses(fake, clock, "running", "terminated")
    stopped = run("run", "stop", "7", "--reason", "the disk is full", "--by", "ann")
    assert (stopped.exit_code, stopped.stdout) == (0, "Run 7 has ended: terminated.\n")
    (given,) = sent(fake, "TerminateRun")
    assert (given["runID"], given["reason"], given["by"]) == (7, "the disk is full", "ann")
    assert sent(fake, "KillRun") == []


def test_stop_kills_what_does_not_end_in_time(fake: FakeServer, clock: ManualClock) -> None:
    fake.will("ListRuns", {"runs": [{"runID": 7}], "before": None})
    statuses(fake, clock, *["running"] * 3, "killed")
    begun = clock.monotonic()
    stopped = run("run", "stop", "--job", "3", "--grace", "2s", "-o", "json")
    assert json.loads(stopped.stdout) == {"runID": "7", "status": "killed"}
    assert clock.monotonic() - begun == pytest.approx(2 + run_commands.KILLED_S)
    assert len(sent(fake, "KillRun")) == 1
    assert sent(fake, "ListRuns")[0] == {"jobID": 3, "status": "running", "limit": 1}


def test_stop_gives_up_when_the_worker_is_gone(fake: FakeServer, clock: ManualClock) -> None:
    statuses(fake, clock, *["running"] * 9)
    stopped = run("run", "stop", "7", "--grace", "1s")
    assert (stopped.exit_code, "its worker may be gone" in stopped.stderr) == (124, True)


def test_stop_leaves_alone_what_has_ended(fake: FakeServer, clock: ManualClock) -> None:
    statuses(fake, clock, "frozen")
    assert run("run", "stop", "7").stdout == "Run 7 has ended: lost.\n"
    assert [name for name, _ in fake.wired] == ["ReadOutput"]
    fake.will("ListRuns", {"runs": [], "before": None})
    stopped = run("run", "stop", "--job", "3")
    assert (stopped.exit_code, "job 3 has no run in progress" in stopped.stderr) == (3, True)
    assert run("run", "stop").exit_code == 2
