"""ValidateSchedule: errors, plain words, next ticks, and warnings that agree with what the evaluator does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from bedrockjobs.base.config import REPEAT_CHARS_MAX
from bedrockjobs.commands import ValidateReply
from bedrockjobs.schedule import cron
from bedrockjobs.views.schedules import TICKS_SHOWN, validated, words_of

NOW = datetime(2026, 11, 21, 3, 29, 56, 332_000, UTC)


def check(repeat: str, now: datetime = NOW, compatibility: Any = "document") -> dict[str, Any]:
    """Return the reply, which must match the reply class."""
    found: dict[str, Any] = json.loads(validated(repeat, now, compatibility))
    ValidateReply.model_validate(found)
    assert list(found) == ["valid", "errors", "warnings", "words", "next"]
    assert found["valid"] == (not found["errors"])
    return found


def warnings(repeat: str) -> list[str]:
    """Return the warnings of a valid repeat."""
    found = check(repeat)
    assert found["valid"], found
    return list(found["warnings"])


def test_cron_args_as_json() -> None:
    found = check('CRON TZ=Asia/Tokyo {"week": "1", "day_of_week": "mon", "hour": 9}')
    assert found["next"][0] == "2027-01-04 00:00:00"
    assert found["words"]
    assert found["warnings"] == []
    assert "timezone" not in check('CRON {"hour": 9, "timezone": "Asia/Tokyo"}')["words"]
    for bad, named in (
        ('{"hour"', "JSON"),
        ("{}", "cron_args"),
        ('{"hour": 24}', "hour"),
        ('{"jitter": 1}', "jitter"),
    ):
        (error,) = check(f"CRON {bad}")["errors"]
        assert named in error


def test_keyword_fields_say_what_becomes_of_a_time_that_comes_twice() -> None:
    (once, *_) = warnings('CRON TZ=Europe/London {"hour": 1, "minute": 30}')[1:]
    told = "2027-10-31 01:30 in Europe/London comes twice because the clock is put back: that tick runs "
    assert once == told + "the first time only"
    (both, *_) = warnings('CRON TZ=Europe/London {"hour": 1, "minute": "*/30"}')[1:]
    assert both == told.replace("01:30", "01:00") + "both times"


@pytest.mark.parametrize("prefix", ["", "CRON ", "cron  ", "CRON TZ=UTC ", "TZ=UTC "])
def test_an_expression_is_read_with_and_without_its_beginning(prefix: str) -> None:
    assert check(f"{prefix}0 9 * * 1-5") == {
        "valid": True,
        "errors": [],
        "warnings": [],
        "words": "at 09:00, on Monday to Friday",
        "next": [
            "2026-11-23 09:00:00",
            "2026-11-24 09:00:00",
            "2026-11-25 09:00:00",
            "2026-11-26 09:00:00",
            "2026-11-27 09:00:00",
        ],
    }


def test_ticks_are_utc_and_words_name_another_zone() -> None:
    found = check("CRON TZ=Europe/Berlin 0 9 * * *")
    assert found["words"] == "at 09:00, every day (Europe/Berlin)"
    assert found["next"][0] == "2026-11-21 08:00:00"
    assert len(found["next"]) == TICKS_SHOWN


@pytest.mark.parametrize(
    ("repeat", "error"),
    [
        ("99 * * * *", "minute '99': expected a number in 0-59"),
        (
            "TZ=Mars/X * * * * *",
            "zone 'Mars/X': expected the name of a time zone such as Europe/Berlin or UTC",
        ),
        ("CRON", "expression '': expected 5 to 7 fields"),
        ("foo", "expression 'foo': expected 5 to 7 fields"),
        ("0 0 30 2 *", "would never fire"),
        ("SCHEDULED", "repeat: expected modifiers like +5 MINUTES"),
        ("FINISHED, +1 FORTNIGHT", "not '+1 FORTNIGHT'"),
        ("x" * REPEAT_CHARS_MAX, "expression 'xxx"),
    ],
)
def test_what_is_wrong_is_said(repeat: str, error: str) -> None:
    found = check(repeat)
    assert (found["words"], found["next"], found["warnings"]) == ("", [], [])
    assert error in found["errors"][0]


# --- warnings --------------------------------------------------------------------------------------------


def test_two_restricted_day_fields_mean_either() -> None:
    told = "day-of-month and day-of-week are both restricted: a day that fits either of them counts"
    assert warnings("0 0 1 * 1") == [told]
    assert warnings("0 0 1 * *") == warnings("0 0 * * 1") == []
    assert "2026-11-23 00:00:00" in check("0 0 1 * 1")["next"], "a Monday"
    assert "2026-12-01 00:00:00" in check("0 0 1 * 1")["next"], "the first"


def test_six_fields_are_said_to_be_read_in_one_of_two_ways() -> None:
    (seconds,) = warnings("0 */3 * * * *")
    assert seconds.startswith("6 fields: the first one is read as the second")
    assert check("0 */3 * * * *")["next"][0] == "2026-11-21 03:30:00"
    year, _ = warnings("0 0 1 1 * 2027")
    assert year == "6 fields: the last one is read as the year, the first as the minute"
    assert warnings("0 0 */3 * * * *") == []


@pytest.mark.parametrize(
    ("repeat", "step"),
    [
        ("*/7 * * * *", "minute */7: the steps restart with each hour: the one after 56 is 4 long, not 7"),
        ("45m", "minute */45: the steps restart with each hour: the one after 45 is 15 long, not 45"),
        ("7S", "second */7: the steps restart with each minute: the one after 56 is 4 long, not 7"),
        ("0 */5 * * *", "hour */5: the steps restart with each day: the one after 20 is 4 long, not 5"),
        ("0 1,0/9 * * *", "hour 0/9: the steps restart with each day: the one after 18 is 6 long, not 9"),
        ("0 0 1 */5 *", "month */5: the steps restart with each year: the one after 11 is 2 long, not 5"),
        ("0 0 */2 * *", "day-of-month */2: the steps restart with each month"),
        ("0 0 * * */2", "day-of-week */2: the steps restart with each week"),
        (
            "*/40 * * * * * *",
            "second */40: the steps restart with each minute: the one after 40 is 20 long, ",
        ),
        (
            "*/7 * * * * 2027",
            "minute */7: the steps restart with each hour: the one after 56 is 4 long, not 7",
        ),
    ],
)
def test_steps_that_do_not_divide_evenly(repeat: str, step: str) -> None:
    assert any(found.startswith(step) for found in warnings(repeat)), warnings(repeat)


@pytest.mark.parametrize(
    ("repeat", "said"),
    [
        ("*/60 * * * *", "minute */60: the step goes beyond the end, so only 0 is meant"),
        ("0 3-23/24 * * *", "hour 3-23/24: the step goes beyond the end, so only 3 is meant"),
        ("0 0 1/32 * *", "day-of-month 1/32: the step goes beyond the end, so only 1 is meant"),
        ("0 0 1 */13 *", "month */13: the step goes beyond the end, so only 1 is meant"),
        ("0 0 * * mon-fri/9", "day-of-week mon-fri/9: the step goes beyond the end, so only mon is meant"),
        ("*/90 * * * * *", "second */90: the step goes beyond the end, so only 0 is meant"),
        ("0 0 0 1 1 * 2030/300", "year 2030/300: the step goes beyond the end, so only 2030 is meant"),
    ],
)
def test_steps_that_leave_one_value(repeat: str, said: str) -> None:
    assert said in warnings(repeat)


@pytest.mark.parametrize(
    "repeat",
    [
        "*/5 * * * *",
        "*/1 * * * *",
        "15m",
        "1h",
        "0 */12 * * *",
        "0 0 1 */4 *",
        "0 0 */31 * *",
        "0 0 * * */7",
        "@daily",
    ],
)
def test_steps_that_do_divide_evenly(repeat: str) -> None:
    assert warnings(repeat) == []


def test_the_gap_that_is_told_is_the_one_that_comes() -> None:
    ticks = [
        datetime.fromisoformat(tick) for tick in check("*/7 * * * *", NOW + timedelta(minutes=15))["next"]
    ]
    gaps = {later - earlier for earlier, later in pairwise(ticks)}
    assert gaps == {timedelta(minutes=7), timedelta(minutes=4)}


def test_a_schedule_that_ends_says_so() -> None:
    assert warnings("0 0 0 1 1 * 2027-2029") == ["it ends with the tick of 2029-01-01 00:00:00"]
    (error,) = check("0 0 0 1 1 * 2020")["errors"]
    assert error == (
        "expression '0 0 0 1 1 * 2020': expected a tick that is still to come; its last one has passed, so it"
        " never fires"
    )
    assert check("0 0 0 1 1 * 2020")["next"] == []
    assert check("@never") == {
        "valid": True,
        "errors": [],
        "warnings": [],
        "next": [],
        "words": "never by itself, only when triggered",
    }


# --- changes of the clock --------------------------------------------------------------------------------


def ticks_of_day(repeat: str, day: datetime) -> list[datetime]:
    """Return the evaluator's ticks in 24 hours."""
    zone, expression = cron.split_zone(repeat)
    found, at = [], day - timedelta(seconds=1)
    while (tick := cron.next_tick(expression, at, zone)) and tick < day + timedelta(days=1):
        found.append(at := tick)
    return found


SPRING = datetime(2027, 3, 27, 23, tzinfo=UTC)
"""Midnight in Berlin before the clock is put forward."""

AUTUMN = datetime(2027, 10, 30, 22, tzinfo=UTC)
"""Midnight in Berlin before it is put back."""


def test_a_fixed_time_that_is_skipped_or_repeated() -> None:
    repeat = "CRON TZ=Europe/Berlin 30 2 * * *"
    assert warnings(repeat) == [
        "2027-03-28 02:30 in Europe/Berlin does not exist because the clock is put forward:"
        " that tick runs at 03:00 instead",
        "2027-10-31 02:30 in Europe/Berlin comes twice because the clock is put back:"
        " that tick runs the first time only",
    ]
    assert ticks_of_day(repeat, SPRING) == [datetime(2027, 3, 28, 1, tzinfo=UTC)]
    assert ticks_of_day(repeat, AUTUMN) == [datetime(2027, 10, 31, 0, 30, tzinfo=UTC)]


def test_a_time_that_follows_real_time_is_skipped_or_repeated() -> None:
    repeat = "TZ=Europe/Berlin */30 2 * * *"
    left_out, both = warnings(repeat)
    assert left_out.endswith("put forward: that tick is skipped")
    assert both.endswith("put back: that tick runs both times")
    assert ticks_of_day(repeat, SPRING) == []
    assert len(ticks_of_day(repeat, AUTUMN)) == 4


@pytest.mark.parametrize(
    "repeat",
    [
        "TZ=Europe/Berlin 30 3 * * *",
        "TZ=Europe/Berlin 30 2 1 * *",
        "TZ=Europe/Berlin */5 * * * *",
        "TZ=Europe/Berlin 1h",
        "TZ=Africa/Lagos 30 2 * * *",
        "30 2 * * *",
    ],
)
def test_no_warning_of_the_clock_where_nothing_happens(repeat: str) -> None:
    assert warnings(repeat) == []


def test_half_hours_and_the_southern_half() -> None:
    (told,) = warnings("TZ=Australia/Lord_Howe 45 1 * * *")
    assert told.startswith("2027-04-04 01:45 in Australia/Lord_Howe comes twice")
    (told,) = warnings("TZ=Australia/Lord_Howe 15 2 * * *")
    assert told.endswith("put forward: that tick runs at 02:30 instead")
    assert told.startswith("2027-10-03 02:15")


def test_a_year_is_looked_at_and_no_more() -> None:
    day = timedelta(days=1)
    found = check("TZ=Europe/Berlin 30 2 * * *", SPRING + day)
    assert [told[:10] for told in found["warnings"]] == ["2027-10-31", "2028-03-26"]


# --- Bedrock's repeats -----------------------------------------------------------------------------------


def test_a_repeat_of_bedrock_is_read_too() -> None:
    found = check(" finished, +1 DAY, START OF DAY")
    assert found["words"] == "+1 DAY, START OF DAY, counted from the end of each run"
    assert found["next"][:2] == ["2026-11-22 00:00:00", "2026-11-23 00:00:00"]
    assert found["warnings"] == []
    assert check("HOURLY")["next"][0] == "2026-11-21 04:29:56"
    assert check("HOURLY", compatibility="current")["next"][0] == "2026-11-21 04:00:00"
    assert "counted from the moment it was due" in check("SCHEDULED, +1 HOUR")["words"]
    assert "counted from the moment it was taken" in check("STARTED, +1 HOUR")["words"]


def test_a_repeat_that_does_not_move_on_says_so() -> None:
    (told,) = warnings("FINISHED, START OF DAY")
    assert told.endswith("it is due again at once")
    assert len(check("FINISHED, START OF DAY")["next"]) == TICKS_SHOWN


def test_a_repeat_without_a_date_says_so() -> None:
    far = "FINISHED" + ", +999 YEARS" * 9
    assert warnings(far) == ["there is no such date: the job ends with its first run"]


# --- words of what is stored -----------------------------------------------------------------------------


def test_words_of_stored_schedules() -> None:
    assert words_of("CRON TZ=Europe/Berlin @daily") == "at 00:00, every day (Europe/Berlin)"
    assert words_of("CRON 99 * * * *") == "minute '99': expected a number in 0-59"
    assert words_of.cache_info().maxsize == 4_096


@pytest.mark.parametrize(
    ("expression", "hinted"),
    [
        ("0 0 9 ? * 2-6", True),
        ("0 0 9 ? * 6#3", True),
        ("0 0 9 ? * 6L", True),
        ("0 0 9 ? * MON-FRI", False),
        ("0 0 9 1 * ?", False),
        ("0 0 9 ? * */2", False),
        ("0 9 * * 2-6", False),
    ],
)
def test_weekdays_of_quartz_are_hinted_at(expression: str, hinted: bool) -> None:
    found = json.loads(validated(expression, datetime(2026, 11, 21, tzinfo=UTC), "document"))
    assert found["valid"], found
    assert any("Quartz" in warning for warning in found["warnings"]) == hinted
