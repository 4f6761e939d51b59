"""`bedrockjobs schedule ...`: schedules by name, actions on them, and output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_fake import FakeServer, run

from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.cli.lookup import literal
from bedrockjobs.cli.schedule import repeat_of, split_repeat
from bedrockjobs.commands import Command

REPEAT = "CRON TZ=Europe/Berlin 0 9 * * *"
SCHEDULE = {
    "jobID": 7,
    "name": "backup",
    "state": "QUEUED",
    "repeat": REPEAT,
    "words": "at 09:00",
    "nextRun": "2026-11-22 08:00:00",
    "lastRun": "2026-11-21 08:00:00",
    "lastStatus": "success",
    "runID": 3,
    "paused": "",
    "source": "",
}
VALID = {
    "valid": True,
    "errors": [],
    "warnings": ["mind the gap"],
    "words": "at 09:00",
    "next": ["2026-11-22 08:00:00", "2026-11-23 08:00:00"],
}
INVALID = {"valid": False, "errors": ["minute '61': expected 0-59"], "warnings": [], "words": "", "next": []}


@pytest.fixture
def fake(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Show times in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    return fake


def sent(fake: FakeServer, verb: str) -> list[dict[str, Any]]:
    """Return the parameters sent with a command."""
    return [given for name, given in fake.wired if name == verb]


# --- expressions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "zone", "repeat"),
    [
        ("0 9 * * *", None, "CRON 0 9 * * *"),
        ("0 9 * * *", "Europe/Berlin", "CRON TZ=Europe/Berlin 0 9 * * *"),
        ("CRON 0 9 * * *", "Asia/Tokyo", "CRON TZ=Asia/Tokyo 0 9 * * *"),
        (" cron TZ=Asia/Tokyo @daily ", None, "CRON TZ=Asia/Tokyo @daily"),
        ("TZ=UTC @daily", "UTC", "CRON TZ=UTC @daily"),
        ("0 9 * * *", "", "CRON 0 9 * * *"),
    ],
)
def test_an_expression_and_a_zone_are_a_repeat(expression: str, zone: str | None, repeat: str) -> None:
    assert repeat_of(expression, zone) == repeat
    assert repeat_of(*split_repeat(repeat)) == repeat


def test_two_zones_are_one_too_many(fake: FakeServer) -> None:
    result = run("schedule", "next", "TZ=Asia/Tokyo @daily", "--zone", "UTC")
    assert (result.exit_code, "names the zone 'Asia/Tokyo' itself" in result.stderr) == (2, True)
    assert fake.asked == []


def test_a_name_is_no_pattern() -> None:
    assert literal("a*[b]?") == "a[*][[]b][?]"


# --- add, update, delete --------------------------------------------------------------------------------


def test_add_checks_the_expression_and_the_name(fake: FakeServer) -> None:
    fake.will("ValidateSchedule", VALID)
    fake.will("ListJobs", {"jobs": []})
    fake.will("CreateJob", {"jobID": 7})
    reasons = [{"reason": "nextRun", "detail": "x"}, {"reason": "no worker", "detail": "no worker is alive"}]
    fake.will("ExplainJob", {"waitsFor": reasons})
    result = run(
        "schedule",
        "add",
        "back[up",
        "0 9 * * *",
        "--zone",
        "Europe/Berlin",
        "--data",
        "{}",
        "--priority",
        "750",
        "--argv",
        "restic backup /srv",
        "--catchup",
        "all",
        "--jitter",
        "5m",
    )
    assert result.exit_code == 0, result.stderr
    assert fake.wired == [
        ("ValidateSchedule", {"repeat": REPEAT}),
        ("ListJobs", {"name": "back[[]up", "limit": 1}),
        (
            "CreateJob",
            {
                "name": "back[up",
                "repeat": REPEAT,
                "data": {},
                "jobPriority": 750,
                "unique": True,
                "overwrite": False,
                "argv": ["restic", "backup", "/srv"],
                "catchup": "all",
                "jitter": 300,
            },
        ),
        ("ExplainJob", {"jobID": 7}),
    ]
    assert result.stdout.splitlines() == [
        "Added schedule back[up (job 7): at 09:00",
        "Next tick: 2026-11-22 08:00 UTC",
    ]
    assert result.stderr.splitlines() == [
        "Warning: mind the gap",
        "Note: No live worker takes it: no worker is alive.",
    ]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"jobID": 7, "repeat": REPEAT}, "a schedule 'backup' already exists: job 7; `bedrockjobs"),
        ({"jobID": 7, "repeat": "DAILY"}, "a job 'backup' already exists: job 7\n"),
    ],
)
def test_add_refuses_a_name_that_is_taken(there: dict[str, Any], said: str, fake: FakeServer) -> None:
    fake.will("ValidateSchedule", VALID)
    fake.will("ListJobs", {"jobs": [there]})
    result = run("schedule", "add", "backup", "0 9 * * *")
    assert (result.exit_code, said in result.stderr) == (4, True)
    assert sent(fake, "CreateJob") == []


def test_a_bad_expression_is_wrong_usage(fake: FakeServer) -> None:
    fake.will("ValidateSchedule", INVALID)
    result = run("schedule", "add", "backup", "61 9 * * *")
    assert (result.exit_code, "minute '61': expected 0-59" in result.stderr) == (2, True)
    assert [name for name, _ in fake.wired] == ["ValidateSchedule"]


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        (["30 9 * * *"], {"repeat": "CRON TZ=Europe/Berlin 30 9 * * *"}),
        (["30 9 * * *", "--zone", "Asia/Tokyo"], {"repeat": "CRON TZ=Asia/Tokyo 30 9 * * *"}),
        (["--zone", "Asia/Tokyo"], {"repeat": "CRON TZ=Asia/Tokyo 0 9 * * *"}),
        (["--zone", ""], {"repeat": "CRON 0 9 * * *"}),
        (["--data", '{"a":1}', "--retries", "2"], {"data": {"a": 1}, "retries": 2}),
    ],
)
def test_update_changes_what_is_given(
    arguments: list[str], changes: dict[str, Any], fake: FakeServer
) -> None:
    fake.will("ListSchedules", {"schedules": [SCHEDULE]})
    fake.will("ValidateSchedule", VALID)
    result = run("schedule", "update", "backup", *arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert sent(fake, "UpdateJob") == [{"jobID": 7, **changes}]
    assert sent(fake, "ValidateSchedule") == ([{"repeat": changes["repeat"]}] if "repeat" in changes else [])
    assert json.loads(result.stdout)["outcome"] == "updated"


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [([], 3, "there is no schedule 'nope'"), ([SCHEDULE, SCHEDULE], 4, "several schedules are named 'nope'")],
)
def test_update_wants_one_schedule(
    found: list[dict[str, Any]], status: int, said: str, fake: FakeServer
) -> None:
    fake.will("ListSchedules", {"schedules": found})
    result = run("schedule", "update", "nope", "@daily")
    assert (result.exit_code, said in result.stderr) == (status, True)
    assert sent(fake, "UpdateJob") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["update", "backup"], "nothing to change"),
        (["update", "backup", "--retries", "x"], "retries: expected"),
        (["pause"], "give a name or a pattern like 'report*', or --all"),
        (["pause", "foo", "--all"], "not both"),
        (["pause", "foo", "--until", "someday"], "--until: expected a date like 2026-11-21 03:29:56"),
        (["resume"], "or --all"),
        (["trigger"], "give the name of a job, or --job ID"),
        (["trigger", "foo", "--job", "7"], "give the name of a job, or --job ID"),
        (["delete"], "Missing argument"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_sent(
    arguments: list[str], said: str, fake: FakeServer
) -> None:
    result = run("schedule", *arguments)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True)
    assert fake.asked == []


def test_delete_goes_on_after_a_refusal(fake: FakeServer) -> None:
    found = {"schedules": [SCHEDULE]}
    fake.will("ListSchedules", found, {"schedules": []}, found)
    fake.will("DeleteJob", "", WrongState("Can't delete a RUNNING job"))
    result = run("schedule", "delete", "a", "b", "c")
    assert (result.exit_code, result.stdout) == (3, "Deleted schedule a (job 7).\n")
    assert result.stderr.splitlines() == [
        "Error: Schedule b: there is no schedule 'b'; `bedrockjobs schedule list` shows them",
        "Error: Schedule c: 405 Can't delete a RUNNING job",
    ]
    assert sent(fake, "DeleteJob") == [{"jobID": 7}] * 2


# --- list, next, show -----------------------------------------------------------------------------------


def test_list_is_for_people_and_for_programs(fake: FakeServer) -> None:
    page = {"schedules": [SCHEDULE, {**SCHEDULE, "jobID": 8, "name": "x", "paused": "x*"}]}
    fake.will("ListSchedules", page, page, page)
    assert [line.split("  ")[0].split() for line in run("schedule", "list", "*").stdout.splitlines()] == [
        ["jobID"],
        ["7"],
        ["8"],
    ]
    assert json.loads(run("schedule", "list", "-o", "json").stdout) == page["schedules"]
    assert run("schedule", "list", "--source", "s", "-o", "name").stdout == "backup\nx\n"
    assert sent(fake, "ListSchedules") == [
        {"name": "*", "limit": 100},
        {"limit": 100},
        {"source": "s", "limit": 100},
    ]


def test_an_empty_list_is_said_on_stderr(fake: FakeServer) -> None:
    for _ in range(2):
        fake.will("ListSchedules", {"schedules": []})
    result = run("schedule", "list")
    words = "No schedules: `bedrockjobs schedule add NAME EXPRESSION` makes one.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", words)
    assert run("schedule", "list", "a*").stderr == "No schedules.\n"


def test_next_of_a_name_and_of_an_expression(fake: FakeServer) -> None:
    fake.will("ListSchedules", {"schedules": [SCHEDULE]}, {"schedules": []})
    fake.will("ValidateSchedule", VALID, VALID)
    assert run("schedule", "next", "backup").stdout.splitlines() == [
        "at 09:00",
        "2026-11-22 08:00 UTC",
        "2026-11-23 08:00 UTC",
    ]
    assert run("schedule", "next", "0 9 * * *", "-o", "name").stdout.splitlines() == VALID["next"]
    assert sent(fake, "ValidateSchedule") == [{"repeat": REPEAT}, {"repeat": "CRON 0 9 * * *"}]


def test_next_from_another_time(fake: FakeServer) -> None:
    fake.will("ListSchedules", {"schedules": []})
    fake.will("ValidateSchedule", VALID)
    assert run("schedule", "next", "0 9 * * *", "--from", "2027-01-01").exit_code == 0
    assert sent(fake, "ValidateSchedule") == [{"repeat": "CRON 0 9 * * *", "after": "2027-01-01 00:00:00"}]


def test_next_of_what_is_neither(fake: FakeServer) -> None:
    fake.will("ListSchedules", {"schedules": []})
    fake.will("ValidateSchedule", INVALID)
    result = run("schedule", "next", "bakcup")
    assert (result.exit_code, "there is no schedule 'bakcup', and as" in result.stderr) == (2, True)


RUN = {
    "runID": 3,
    "jobID": 7,
    "name": "backup",
    "attempt": 1,
    "cause": "schedule",
    "status": "success",
    "scheduledFor": "2026-11-21 08:00:00",
    "started": "2026-11-21 08:00:01",
    "ended": "2026-11-21 08:01:31",
    "worker": "w1",
    "exitCode": 0,
    "error": "",
    "output": ["done"],
}
TICK = {
    "tick": "2026-11-21 08:00:00",
    "until": "2026-11-21 08:00:00",
    "count": 1,
    "outcome": "fired",
    "reason": "",
    "late": 1,
    "runID": 3,
    "status": "fail",
    "failed": 1,
}


def test_show_is_the_whole_of_a_schedule(fake: FakeServer) -> None:
    failing = {"failingSince": "2026-11-20 08:00:00", "neverSucceeded": True}
    for _ in range(2):
        fake.will("ListSchedules", {"schedules": [SCHEDULE]})
        fake.will("QueryJob", {"jobID": 7, "data": {"a": 1.5}, "priority": 500, "runTimeout": 5400})
        fake.will("ListRuns", {"runs": [RUN]})
        fake.will("ListTicks", {"ticks": [TICK], **failing})
        fake.will("ValidateSchedule", VALID)
    lines = run("schedule", "show", "backup").stdout.splitlines()
    assert lines[:4] == [
        "name           backup",
        "job            7, QUEUED",
        "schedule       0 9 * * * Europe/Berlin",
        "in words       at 09:00",
    ]
    assert "runTimeout     1h30m" in lines
    assert "failing since  2026-11-20 08:00 UTC (3d ago)" in lines
    assert "succeeded      never" in lines
    assert lines[lines.index("Last ticks") + 2].split()[8:] == ["1", "ran", "fail", "1", "1", "3"]
    assert lines[lines.index("Last runs") + 2].split() == [
        "3",
        "success",
        "schedule",
        "1",
        "2026-11-21",
        "08:00:01",
        "(2d",
        "ago)",
        "1m30s",
        "w1",
        "0",
    ]
    assert lines[-3:] == ["Next ticks", "2026-11-22 08:00 UTC", "2026-11-23 08:00 UTC"]
    page = json.loads(run("schedule", "show", "backup", "-o", "json").stdout)
    assert page["schedule"] == SCHEDULE
    assert (page["runs"], page["ticks"], page["next"]) == ([RUN], [TICK], VALID["next"])
    assert (page["failingSince"], page["neverSucceeded"]) == ("2026-11-20 08:00:00", True)
    assert sent(fake, "ListRuns")[0] == {"jobID": 7, "limit": 5}


def test_show_on_a_day_has_its_runs_and_ticks_alone(fake: FakeServer) -> None:
    times = ("2026-11-22 00:00:00", "2026-11-21 23:59:59", "2026-11-21 00:00:00", "2026-11-20 23:59:59")
    fake.will("ListSchedules", {"schedules": [SCHEDULE]})
    fake.will("QueryJob", {"jobID": 7})
    fake.will("ListRuns", {"runs": [{**RUN, "started": each} for each in times]})
    ticks = [{**TICK, "tick": each, "until": each} for each in times[1:]]
    fake.will("ListTicks", {"ticks": ticks[:1]}, {"ticks": ticks})
    fake.will("ValidateSchedule", VALID)
    page = json.loads(run("schedule", "show", "backup", "--on", "2026-11-21", "-o", "json").stdout)
    assert [each["started"] for each in page["runs"]] == [*times[1:3]]
    assert [each["tick"] for each in page["ticks"]] == [*times[1:3]]
    assert sent(fake, "ListTicks")[1]["before"] == times[0]
    bad = run("schedule", "show", "backup", "--on", "tuesday")
    assert (bad.exit_code, "expected today, yesterday, or a day like 2026-11-22" in bad.stderr) == (2, True)


# --- pause, resume, trigger -----------------------------------------------------------------------------


def test_pause_says_how_it_ends(fake: FakeServer) -> None:
    fake.will("ListJobs", {"jobs": [{"jobID": 7}]}, {"jobs": []})
    result = run("schedule", "pause", "rep*", "--reason", "disks", "--by", "ann")
    assert result.stdout == "Paused rep*; `bedrockjobs schedule resume 'rep*'` ends it.\n"
    until = run("schedule", "pause", "foo", "--until", "2026-11-22T10:00Z", "--by", "ann")
    assert until.stdout == "Paused foo until 2026-11-22 10:00 UTC.\n"
    assert until.stderr == "No job matches at the moment.\n"
    everything = run("schedule", "pause", "--all", "--by", "ann", "-o", "json")
    assert json.loads(everything.stdout) == {"name": "*", "outcome": "paused", "until": None}
    assert sent(fake, "PauseJobs") == [
        {"name": "rep*", "reason": "disks", "by": "ann"},
        {"name": "foo", "until": "2026-11-22 10:00:00", "by": "ann"},
        {"name": "*", "by": "ann"},
    ]


def test_a_time_from_now_counts_from_the_servers_clock(fake: FakeServer) -> None:
    fake.will("Status", {"now": "2031-02-28 23:30:00"}, {"now": "9999-12-31 23:30:00"})
    fake.will("ListJobs", {"jobs": [{"jobID": 7}]})
    result = run("schedule", "pause", "foo", "--until", "2h", "--by", "ann")
    assert (result.exit_code, result.stdout) == (0, "Paused foo until 2031-03-01 01:30 UTC.\n")
    assert sent(fake, "PauseJobs") == [{"name": "foo", "until": "2031-03-01 01:30:00", "by": "ann"}]
    never = run("schedule", "pause", "foo", "--until", "2h")
    assert (never.exit_code, "years end at 9999" in never.stderr) == (2, True)
    assert len(sent(fake, "PauseJobs")) == 1


def test_who_asks_is_the_user_unless_told(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "bob")
    run("schedule", "pause", "--all")
    run("schedule", "pause", "--all", env={"BEDROCKJOBS_BY": "deploy"})
    assert [given["by"] for given in sent(fake, "PauseJobs")] == ["bob", "deploy"]


def test_resume(fake: FakeServer) -> None:
    both, none, star = {"resumed": ["a", "b*"]}, {"resumed": []}, {"resumed": ["*"]}
    fake.will("ResumeJobs", both, none, NotFound("Not paused"), star)
    assert run("schedule", "resume", "--all", "--yes", "--by", "ann").stdout == "Resumed a, b*.\n"
    assert run("schedule", "resume", "--all", "--yes").stdout == "Nothing was paused.\n"
    assert run("schedule", "resume", "foo").exit_code == 3
    assert run("schedule", "resume", "*").stdout == "Resumed *.\n"
    assert sent(fake, "ResumeJobs")[0] == {"all": True, "by": "ann"}
    assert sent(fake, "ResumeJobs")[-1]["name"] == "*"


def test_resume_all_lists_the_pauses_and_asks(fake: FakeServer) -> None:
    pauses = [
        {"pattern": "a", "by": "ann", "reason": "disks", "since": "", "until": ""},
        {"pattern": "b*", "by": "", "reason": "", "since": "", "until": ""},
    ]
    fake.will("ListPauses", {"pauses": pauses}, {"pauses": pauses}, {"pauses": pauses})
    result = run("schedule", "resume", "--all")
    assert result.exit_code == 2
    assert "ann: disks (a)\nunknown (b*)\n" in result.stderr
    assert "stdin is not a terminal: give --yes" in result.stderr
    assert sent(fake, "ResumeJobs") == []


@pytest.mark.parametrize(
    ("arguments", "given", "pending", "said"),
    [
        (["backup"], {"name": "backup"}, False, "Job 7 is due now.\n"),
        (["--job", "7"], {"jobID": 7}, True, "Job 7 is running; it runs once more at its end.\n"),
    ],
)
def test_trigger(
    arguments: list[str], given: dict[str, Any], pending: bool, said: str, fake: FakeServer
) -> None:
    fake.will("TriggerJob", {"jobID": 7, "pending": pending})
    assert run("schedule", "trigger", *arguments, "--by", "ann").stdout == said
    assert sent(fake, "TriggerJob") == [{**given, "by": "ann"}]


def test_a_race_of_two_who_add_makes_no_second_schedule(fake: FakeServer) -> None:
    made: list[Command[Any]] = []
    fake.will("ValidateSchedule", VALID)
    fake.will("ListJobs", {"jobs": []})
    fake.will("CreateJob", {"jobID": 7})
    run("schedule", "add", "backup", "@daily")
    made += [command for command in fake.asked if type(command).__name__ == "CreateJob"]
    assert [(command.unique, command.overwrite) for command in made] == [(True, False)]  # type: ignore[attr-defined]


def test_an_update_tells_the_next_run_that_the_server_has(fake: FakeServer) -> None:
    """A due tick stays due, whatever the new expression is."""
    due = {**SCHEDULE, "nextRun": "2026-11-20 08:00:00"}
    fake.will("ListSchedules", {"schedules": [SCHEDULE]}, {"schedules": [due]})
    fake.will("ValidateSchedule", VALID)
    result = run("schedule", "update", "backup", "30 9 * * *")
    assert result.stdout.splitlines()[-1] == "Next tick: 2026-11-20 08:00 UTC"
