"""Repeat expressions: Bedrock's grammar, SQLite's meaning."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import REPEAT_MODIFIERS_MAX
from bedrockjobs.schedule.cron import BadSchedule, parse
from bedrockjobs.schedule.repeat import complaint, later, next_run, parse_repeat, parse_retry_after
from tests.effort import examples

SCHEDULED, STARTED, FINISHED = "2026-11-21 13:00:00", "2026-11-21 13:15:00", "2026-11-21 13:45:00"


def after(text: str, compatibility: str = "document", **moments: str) -> str | None:
    given = {"scheduled": SCHEDULED, "started": STARTED, "finished": FINISHED, **moments}
    return next_run(text, compatibility=compatibility, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SCHEDULED, +1 HOUR", "2026-11-21 14:00:00"),
        ("STARTED, +1 HOUR", "2026-11-21 14:15:00"),
        ("FINISHED, +1 HOUR", "2026-11-21 14:45:00"),
        ("finished, +1 minute", "2026-11-21 13:46:00"),
        ("FINISHED,+30 SECONDS", "2026-11-21 13:45:30"),
        ("FINISHED, + 1 HOUR", "2026-11-21 14:45:00"),
        ("FINISHED ,  +1   HOURS ", "2026-11-21 14:45:00"),
        ("FINISHED, -1 HOUR", "2026-11-21 12:45:00"),
        ("FINISHED, +99999999 SECONDS", "2030-01-21 23:31:39"),
        ("FINISHED, +999 YEARS", "3025-11-21 13:45:00"),
        ("FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2026-11-22 04:00:00"),
        ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-23 06:00:00"),
        ("FINISHED, WEEKDAY 6", "2026-11-21 13:45:00"),
        ("FINISHED, WEEKDAY 0", "2026-11-22 13:45:00"),
        ("FINISHED, +1 MONTH, START OF MONTH", "2026-12-01 00:00:00"),
        ("FINISHED, START OF YEAR, +1 YEAR", "2027-01-01 00:00:00"),
        ("FINISHED, +1 HOUR, START OF HOUR", "2026-11-21 14:00:00"),
        ("FINISHED, START OF HOUR, +90 MINUTES, START OF HOUR, +1 SECOND", "2026-11-21 14:00:01"),
        ("HOURLY", "2026-11-21 14:45:00"),
        ("daily", "2026-11-22 13:45:00"),
        (" WEEKLY ", "2026-11-28 13:45:00"),
    ],
)
def test_next_run(text: str, expected: str) -> None:
    assert after(text) == expected


def test_months_overflow_as_sqlite_lets_them() -> None:
    assert after("FINISHED, +1 MONTH", finished="2027-01-31 00:00:00") == "2027-03-03 00:00:00"
    assert after("FINISHED, +1 YEAR", finished="2028-02-29 00:00:00") == "2029-03-01 00:00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HOURLY", "2026-11-21 14:00:00"),
        ("DAILY", "2026-11-22 00:00:00"),
        ("WEEKLY", "2026-11-22 00:00:00"),
        ("FINISHED, +1 HOUR", "2026-11-21 14:45:00"),
    ],
)
def test_canned_repeats_of_the_present_original(text: str, expected: str) -> None:
    assert after(text, "current") == expected


def test_missed_windows() -> None:
    behind = {"scheduled": "2020-01-01 00:00:07"}
    assert after("SCHEDULED, +1 HOUR", **behind) == "2020-01-01 01:00:07"
    assert after("SCHEDULED, +1 HOUR", "current", **behind) == "2026-11-21 14:00:07"
    assert after("SCHEDULED, +1 DAY", "current", **behind) == "2020-01-02 00:00:07"
    assert after("SCHEDULED, +4 HOURS", "current", **behind) == "2020-01-01 04:00:07"
    assert after("SCHEDULED, +1 HOUR, START OF HOUR", "current", **behind) == "2020-01-01 01:00:00"


def test_a_job_that_never_started_repeats_from_its_end() -> None:
    assert after("STARTED, +1 HOUR", started="") == "2026-11-21 14:45:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "every minute",
        "FINISHED",
        "FINISHED,",
        "BOGUS, +1 MINUTE",
        "FINISHED, +1 FORTNIGHT",
        "FINISHED, 1 MINUTE",
        "FINISHED, WEEKDAY 7",
        "FINISHED, +1.5 HOURS",
        "FINISHED, +1 WEEK",
        "FINISHED, UTC",
        "FINISHED, +01:00",
        "FINISHED, +1000 HOURS",
        "FINISHED, +123456789 SECONDS",
        "FINISHED, ++1 HOUR",
        "FINISHED, +1 HOUR;",
        "FINISHED, START OF WEEK",
        "FINISHED, LOCALTIME",
        "FINISHED, '+1 HOUR'",
        "HOURLY, +1 HOUR",
        "FINISHED, , +1 DAY",
        "FINISHED" + ", +1 DAY" * (REPEAT_MODIFIERS_MAX + 1),
    ],
)
def test_what_is_no_repeat(text: str) -> None:
    with pytest.raises(ValueError):
        parse_repeat(text)


def test_a_message_names_the_modifier() -> None:
    with pytest.raises(ValueError, match="not '\\+1 FORTNIGHT'"):
        parse_repeat("FINISHED, +1 DAY, +1 fortnight")


@pytest.mark.parametrize("text", ["5 minutes", "START OF HOUR", "", "+1 DAY,", "SCHEDULED, +1 DAY"])
def test_what_is_no_retry_after(text: str) -> None:
    with pytest.raises(ValueError):
        parse_retry_after(text)


def test_later_keeps_milliseconds() -> None:
    assert later("2026-11-21 13:00:00.125", ("+5 SECONDS",)) == "2026-11-21 13:00:05.125"
    assert later("2026-11-21 13:00:00", ("+5 SECONDS",)) == "2026-11-21 13:00:05"
    assert later("9999-12-31 23:59:59", ("+1 DAY",)) is None


def test_dates_that_do_not_exist() -> None:
    assert after("FINISHED, +999 YEARS, " + ", ".join(["+999 YEARS"] * 9)) is None
    assert after("FINISHED, -999 YEARS, -999 YEARS, -999 YEARS") is None


units = st.sampled_from(["SECONDS", "MINUTE", "HOURS", "DAY", "MONTHS", "YEARS"])
offsets = st.builds(
    lambda sign, n, unit: f"{sign}{n} {unit}", st.sampled_from("+-"), st.integers(0, 999), units
)
anchors = st.sampled_from(["START OF DAY", "START OF MONTH", "START OF YEAR", "START OF HOUR", "WEEKDAY 3"])


@given(
    st.sampled_from(["SCHEDULED", "STARTED", "FINISHED"]),
    st.lists(st.one_of(offsets, anchors), min_size=1, max_size=6),
)
@settings(max_examples=examples(100, night=300), deadline=None)
def test_case_and_blanks_mean_nothing_and_the_result_is_a_timestamp(base: str, modifiers: list[str]) -> None:
    text = f"{base}, {', '.join(modifiers)}"
    found = after(text)
    assert found == after(text.lower()) == after(text.replace(" ", "  ").replace(",", " ,"))
    assert found is None or len(found) == 19


def test_years_before_the_first_are_no_dates() -> None:
    """Timestamps are compared as texts, and year 0 is before all dates that the server can compute."""
    assert after("FINISHED, -999 YEARS, -999 YEARS, -28 YEARS") is None
    assert after("FINISHED, -999 YEARS, -999 YEARS, -27 YEARS") == "0001-11-21 13:45:00"
    assert later("0000-11-21 13:45:00", ("+1 DAY",)) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("every 5m", "; every 5m is CRON 5m"),
        ("@every 5m", "; every 5m is CRON 5m"),
        ("Every 10 minutes", "; every 10 minutes is CRON 10m"),
        ("every day", "; every day is CRON @daily"),
        ("every weekday", "; every weekday is CRON 0 0 * * 1-5"),
        ("every monday", "; every monday is CRON mon"),
        ("every 24 hours", "; every 24 hours is CRON @daily"),
        ("every 60s", "; every 60s is CRON 1m"),
        ("@every 1h30m", "; every 1h30m is FINISHED, +90 MINUTES"),
        ("@every 90s", "; every 90s is FINISHED, +90 SECONDS"),
        ("every 2 days", "; every 2 days is FINISHED, +48 HOURS"),
        ("every 0.5h", "; every 0.5h is CRON 30m"),
        ("5m", "; this schedule is CRON 5m"),
        ("0 9 * * 1-5", "; this schedule is CRON 0 9 * * 1-5"),
        ("@daily", "; this schedule is CRON @daily"),
        ("every fish", "with modifiers"),
        ("every 0s", "with modifiers"),
        ("every", "with modifiers"),
        ("@every 100ms", "with modifiers"),
        ("fish", "with modifiers"),
    ],
)
def test_the_right_spelling_is_said(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="HOURLY") as caught:
        parse_repeat(text)
    assert str(caught.value).endswith(hint)
    # The description equals the behaviour.
    if " is " in hint and "CRON" in hint:
        meant = hint.partition(" is CRON ")[2]
        assert parse(meant)
        if "very" in text:
            with pytest.raises(BadSchedule, match=re.escape(f"expected {meant} to mean every")):
                parse(text)
    elif " is " in hint:
        repeat = hint.partition(" is ")[2]
        assert parse_repeat(repeat).base == "FINISHED"
        with pytest.raises(BadSchedule, match=re.escape(f"is the repeat {repeat}")):
            parse(text)


UNITS = {
    "s": 1,
    "seconds": 1,
    "m": 60,
    "minutes": 60,
    "h": 3_600,
    "hours": 3_600,
    "d": 86_400,
    "days": 86_400,
}


def test_each_interval_that_is_said_is_taken_and_lasts_as_long() -> None:
    """Ticks by the clock are as far apart as said if the next larger unit is a multiple."""
    for count in (1, 2, 3, 5, 10, 12, 15, 20, 24, 30, 45, 60, 72, 90, 100, 120, 168, 999):
        for unit, size_s in UNITS.items():
            with pytest.raises(ValueError, match=" is ") as caught:
                parse_repeat(f"every {count} {unit}")
            said = str(caught.value).partition("; ")[2].partition(" is ")[2]
            first = after(said)
            assert first is not None, said
            second = after(said, finished=first)
            assert second is not None, said
            apart = datetime.fromisoformat(second) - datetime.fromisoformat(first)
            field = re.fullmatch(r"CRON (\d+)([smh])", said)
            if field is None or {"s": 60, "m": 60, "h": 24}[field[2]] % int(field[1]) == 0:
                assert apart.total_seconds() == count * size_s, (count, unit, said, first, second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("every day", "repeat: expected HOURLY, DAILY, WEEKLY, CRON and its fields, or SCHEDULED"),
        ("CRON 61 * * * *", "repeat: minute '61': expected a number in 0-59"),
        ("CRON every 5m", "repeat: expression 'every 5m': expected 5m to mean every 5m"),
    ],
)
def test_a_complaint_says_once_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"expected|modifiers") as caught:
        next_run(text, scheduled="2026-11-21 00:00:00", started="", finished="2026-11-21 00:00:00")
    assert complaint(caught.value).startswith(words)
