"""Cronken's jobs, with APScheduler as the oracle for the old times."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from apscheduler.triggers.cron import CronTrigger

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import cronken
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable
from bedrockjobs.schedule import cron

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def only(arguments: dict[str, Any], *, read: dict[str, Any] | None = None, **job: Any) -> ImportedSchedule:
    """Read one job with these cron_args."""
    definition = {"cron_args": arguments, "job_args": {"cmd": "x", "lock": True, "ttl": 10, **job}}
    (found,) = cronken.parse_cronken(json.dumps({"job": definition}), **(read or {}))
    return found


def fires(trigger: CronTrigger, count: int) -> list[datetime]:
    """Return the trigger's next times."""
    found: list[datetime] = []
    at = NOW
    for _ in range(count):
        at = trigger.get_next_fire_time(at, at).astimezone(UTC)
        found.append(at)
    return found


CRONSTRINGS = [
    "0 0 * * 0",
    "0 9 * * 1-5",
    "30 6 1-7 * 6",
    "*/10 * * * *",
    "0 0 * * sun",
    "0 12 1 */3 *",
    "0 0 8-14 * 1,3",
]


@pytest.mark.parametrize("said", CRONSTRINGS)
def test_a_cronstring_as_cronken_ran_it(said: str) -> None:
    """0 is Monday and both day fields must match: the same times there, here and in APScheduler."""
    found = only({"cronstring": said}, read={"weekday_0": "monday"})
    expected = fires(CronTrigger.from_crontab(said, UTC), 5)
    assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == expected
    assert (found.differs, found.warnings, found.refused) == (False, (), "")


@pytest.mark.parametrize("said", CRONSTRINGS)
def test_a_cronstring_as_crontab_has_it(said: str) -> None:
    """It is unchanged; if Cronken ran it at other times, both are shown with a warning."""
    found = only({"cronstring": said})
    assert found.repeat == f"CRON {said}"
    assert found.old_times(NOW, 5) == fires(CronTrigger.from_crontab(said, UTC), 5)
    same = found.old_times(NOW, 30) == found.our_times(NOW, 30)
    assert found.differs is not same
    assert bool(found.warnings) is found.differs


@pytest.mark.parametrize(
    ("arguments", "repeat"),
    [
        ({"second": "*/2"}, "CRON */2 * * * * *"),
        ({"hour": "9", "day_of_week": "0-4"}, "CRON 0 9 * * MON-FRI"),
        ({"hour": 3, "day": "last fri"}, "CRON 0 3 * * 5L"),
        ({"hour": "3", "timezone": "Europe/Berlin"}, "CRON TZ=Europe/Berlin 0 3 * * *"),
    ],
)
def test_cron_args_run_exactly(arguments: dict[str, Any], repeat: str) -> None:
    """Whatever `--weekday-0` is."""
    expected = fires(CronTrigger(**{"timezone": UTC, **arguments}), 5)
    for weekday_0 in ("sunday", "monday"):
        found = only(arguments, read={"weekday_0": weekday_0})
        assert found.repeat == repeat
        assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == expected


@pytest.mark.parametrize(
    ("said", "weekday_0", "repeat", "differs"),
    [
        ("@weekly", "sunday", "CRON @weekly", True),
        ("@weekly", "monday", "CRON 0 0 * * MON", False),
        ("@daily", "sunday", "CRON @daily", False),
        ("@minutely", "monday", "CRON @minutely", False),
        ("@never", "sunday", "CRON @never", False),
    ],
)
def test_macros(said: str, weekday_0: str, repeat: str, differs: bool) -> None:
    """Cronken's @weekly is on Monday."""
    found = only({"cronstring": said}, read={"weekday_0": weekday_0})
    assert (found.repeat, found.differs) == (repeat, differs)


def test_what_a_job_has_beside_its_times() -> None:
    """A lock with its own name is unnecessary for a schedule; a short ttl becomes our minimum lease."""
    found = only({"minute": "*"}, cmd="echo a", lock="db", ttl=90)
    assert found.options == {"cmd": "echo a", "lock": "db", "lease": 90}
    assert only({"minute": "*", "jitter": 20}).options == {"cmd": "x", "jitter": 20}
    assert only({"minute": "*"}, lock=False).options == {"cmd": "x", "hosts": "all"}


@pytest.mark.parametrize(
    ("arguments", "repeat"),
    [
        ({"week": "3", "jitter": 5}, 'CRON {"week": "3"}'),
        ({"day": "1-10", "day_of_week": "mon"}, 'CRON {"day": "1-10", "day_of_week": "mon"}'),
        ({"hour": 3, "end_date": "2030-01-01"}, 'CRON {"hour": 3, "end_date": "2030-01-01"}'),
        ({"week": "3", "timezone": "Asia/Tokyo"}, 'CRON TZ=Asia/Tokyo {"week": "3"}'),
    ],
)
def test_what_no_expression_says_stays_as_it_is(arguments: dict[str, Any], repeat: str) -> None:
    """And fires at the same times."""
    found = only(arguments)
    assert (found.repeat, found.differs, found.refused) == (repeat, False, "")
    assert found.our_times(NOW, 5) == found.old_times(NOW, 5) != []
    zone, expression = cron.split_zone(found.repeat)
    assert cron.next_tick(expression, NOW, zone) == found.old_times(NOW, 1)[0]


def test_definitions_as_redis_keeps_them() -> None:
    """As JSON text in JSON; with a paused job, in the servers' zone."""
    text = json.dumps(
        {
            "a": json.dumps(
                {
                    "cron_args": {"cronstring": "0 9 * * *"},
                    "job_args": {"cmd": "x", "lock": True, "ttl": 10},
                    "job_state": {"paused": True, "validation_errors": "none"},
                }
            )
        }
    )
    (found,) = cronken.parse_cronken(text, zone="Asia/Tokyo")
    assert (found.paused, found.repeat) == (True, "CRON TZ=Asia/Tokyo 0 9 * * *")
    assert "added paused" in found.warnings[0]


def test_a_cronstring_that_cronken_cannot_read() -> None:
    """7 is Sunday in crontab(5) and nothing in Cronken."""
    found = only({"cronstring": "0 9 * * 7"})
    assert (found.repeat, found.old) == ("CRON 0 9 * * 7", None)
    assert "Cronken cannot read it" in found.warnings[0]
    assert "day_of_week" in only({"cronstring": "0 9 * * 7"}, read={"weekday_0": "monday"}).refused


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({}, "cron_args: expected an object"),
        ("no JSON", "expected a JSON object"),
        ([], "the definition: expected an object with cron_args, job_args, job_state"),
        ({"cron_args": {"minute": "*"}}, "job_args: expected an object with cmd, lock, ttl"),
        ({"cron_args": {"minute": "*"}, "other": 1}, "unknown key 'other'"),
        ({"cron_args": {"minutes": "*"}}, "'minutes': expected one of year"),
        ({"cron_args": {"minute": "61"}}, "minute '61'"),
        ({"cron_args": {"cronstring": "0 9 * *"}}, "five fields"),
        ({"cron_args": {"cronstring": "@reboot"}}, "@never"),
        ({"cron_args": {"cronstring": "0 9 * * *", "hour": "3"}}, "no hour in addition"),
        ({"cron_args": {"minute": "*", "timezone": "Nowhere"}}, "Nowhere"),
        ({"cron_args": {"minute": "*"}, "job_args": {"cmd": "", "lock": True, "ttl": 1}}, "job_args.cmd"),
        ({"cron_args": {"minute": "*"}, "job_args": {"cmd": "x", "lock": 1, "ttl": 1}}, "job_args.lock"),
        ({"cron_args": {"minute": "*"}, "job_args": {"cmd": "x", "lock": True, "ttl": "1"}}, "job_args.ttl"),
    ],
)
def test_jobs_that_cannot_be_read(definition: Any, why: str) -> None:
    """Each is refused, with the key."""
    if isinstance(definition, dict) and "job_args" not in why:
        definition = {"job_args": {"cmd": "x", "lock": True, "ttl": 1}, **definition}
    (found,) = cronken.parse_cronken(json.dumps({"job": definition}))
    assert why in found.refused
    assert found.repeat == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '"a"'])
def test_files_that_cannot_be_read(text: str) -> None:
    """They contain no object of jobs."""
    with pytest.raises(Unreadable, match="JSON object of jobs"):
        cronken.parse_cronken(text)


def test_a_job_says_its_line() -> None:
    """The error names the line in addition to the number."""
    definition = '{"cron_args": {"minute": "*"}, "job_args": {"cmd": "x", "lock": true, "ttl": 1}}'
    found = cronken.parse_cronken(f'{{"a": {definition},\n\n"b": {definition}}}')
    assert [entry.place for entry in found] == ["job 1, line 1", "job 2, line 3"]


def test_a_name_twice_is_refused_with_both_lines() -> None:
    """A Redis hash cannot contain it, but a file can."""
    definition = '{"cron_args": {"minute": "*"}, "job_args": {"cmd": "x", "lock": true, "ttl": 1}}'
    found = cronken.parse_cronken(f'{{"a": {definition},\n"a": {definition}}}')
    why = "job 1, line 1 and job 2, line 2 have one name: expected a name once"
    assert [entry.refused for entry in found] == [why, why]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{\n"a": ' + "[" * 50_000, "line 2: nested deeper than 64 levels"),
        ('{\n"a": {"cron_args": 1, "cron_args": 2}}', "line 2: the key 'cron_args' is given twice"),
        ('{"a": Infinity}', "line 1: expected a number, not Infinity"),
        ('{"a": {}} {}', "Extra data: line 1"),
        ('{"a": {},}', "Expecting property name"),
        ("{" + ",".join(f'"{n}": 1' for n in range(SCHEDULES_PER_SYNC_MAX + 1)) + "}", "at most 10000"),
    ],
    ids=lambda value: value[:30],
)
def test_files_that_say_too_much(text: str, why: str) -> None:
    """They are refused, with the line."""
    with pytest.raises(Unreadable, match=why):
        cronken.parse_cronken(text)


def test_a_definition_as_text_that_nests_without_end() -> None:
    """Only that definition is refused."""
    (found,) = cronken.parse_cronken(json.dumps({"a": "[" * 50_000}))
    assert found.refused == "expected a JSON object: line 1: nested deeper than 64 levels"
