"""The cron dialect: the meaning of each form, refusals and their messages, and invariants."""

from __future__ import annotations

import calendar
import pickle
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.schedule.cron import BadSchedule, count_ticks, describe, next_tick, parse, plan
from tests.effort import examples

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday


def ticks(text: str, count: int, after: datetime = NEW_YEAR) -> list[str]:
    """Return the next ticks as text."""
    found, at = [], after
    for _ in range(count):
        tick = next_tick(text, at)
        assert tick is not None
        found.append(tick.strftime("%Y-%m-%d %H:%M:%S"))
        at = tick
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/15 * * * *", ["2024-01-01 00:15:00", "2024-01-01 00:30:00"]),
        ("0 9 * * 1-5", ["2024-01-01 09:00:00", "2024-01-02 09:00:00"]),
        ("  0   9\t* * 1-5 ", ["2024-01-01 09:00:00"]),
        # Six fields: the last is a year if it holds a number of four digits, otherwise seconds come first.
        ("0 */3 * * * *", ["2024-01-01 00:03:00", "2024-01-01 00:06:00"]),
        ("0 */3 * * * 2024-2026", ["2024-01-01 03:00:00", "2024-01-01 06:00:00"]),
        ("0 0 1 1 * 2030,2040", ["2030-01-01 00:00:00", "2040-01-01 00:00:00"]),
        ("30 0 0 1 1 * 2199", ["2199-01-01 00:00:30"]),
        ("30 0 12 * * * *", ["2024-01-01 12:00:30"]),
        ("0 0 12 1 1 * 2025/7", ["2025-01-01 12:00:00", "2032-01-01 12:00:00"]),
        # Steps, lists, names.
        ("5/20 * * * *", ["2024-01-01 00:05:00", "2024-01-01 00:25:00", "2024-01-01 00:45:00"]),
        ("10-20/5,59 0 * * *", ["2024-01-01 00:10:00", "2024-01-01 00:15:00", "2024-01-01 00:20:00"]),
        ("0 0 1 jan,Jul *", ["2024-07-01 00:00:00", "2025-01-01 00:00:00"]),
        ("0 0 1 FEB-march *", ["2024-02-01 00:00:00", "2024-03-01 00:00:00"]),
        ("0 0 * * wednesday", ["2024-01-03 00:00:00"]),
        # Sunday is 0 and 7, and can end a range by its name.
        ("0 0 * * 0", ["2024-01-07 00:00:00"]),
        ("0 0 * * 7", ["2024-01-07 00:00:00"]),
        ("0 0 * * fri-sun", ["2024-01-05 00:00:00", "2024-01-06 00:00:00", "2024-01-07 00:00:00"]),
        ("0 0 * * 5-7", ["2024-01-05 00:00:00", "2024-01-06 00:00:00", "2024-01-07 00:00:00"]),
        ("0 0 * * sun-mon", ["2024-01-07 00:00:00", "2024-01-08 00:00:00"]),
        ("0 0 * * sun-sun", ["2024-01-07 00:00:00", "2024-01-14 00:00:00"]),
        ("0 0 * * 7-mon", ["2024-01-07 00:00:00", "2024-01-08 00:00:00", "2024-01-14 00:00:00"]),
        ("0 0 * * 7-1", ["2024-01-07 00:00:00", "2024-01-08 00:00:00", "2024-01-14 00:00:00"]),
        ("0 0 * * 7-2/2", ["2024-01-02 00:00:00", "2024-01-07 00:00:00", "2024-01-09 00:00:00"]),
        ("0 0 * * 7-7", ["2024-01-07 00:00:00", "2024-01-14 00:00:00"]),
        ("0 0 * * 7-sun", ["2024-01-07 00:00:00", "2024-01-14 00:00:00"]),
        ("0 0 * * 5-5", ["2024-01-05 00:00:00", "2024-01-12 00:00:00"]),
        # A ? leaves a day field open.
        ("0 0 ? * 1", ["2024-01-08 00:00:00", "2024-01-15 00:00:00"]),
        ("0 0 13 * ?", ["2024-01-13 00:00:00", "2024-02-13 00:00:00"]),
        ("0 0 0 ? * ?", ["2024-01-02 00:00:00", "2024-01-03 00:00:00"]),
        # Only blanks and tabs separate fields; a line end may follow.
        ("0\t \t12 * *\t*\r\n", ["2024-01-01 12:00:00"]),
        ("0 0 * * 7/2", ["2024-01-07 00:00:00", "2024-01-14 00:00:00"]),
        # Both day fields restricted: either is enough, also with a step.
        ("0 0 13 * 5", ["2024-01-05 00:00:00", "2024-01-12 00:00:00", "2024-01-13 00:00:00"]),
        ("0 0 */10 * 3", ["2024-01-03 00:00:00", "2024-01-10 00:00:00", "2024-01-11 00:00:00"]),
        ("0 0 1-31 * 3", ["2024-01-02 00:00:00", "2024-01-03 00:00:00"]),
        ("0 0 *,5 * 3", ["2024-01-03 00:00:00", "2024-01-10 00:00:00"]),
        # Special days.
        ("0 0 L * *", ["2024-01-31 00:00:00", "2024-02-29 00:00:00"]),
        ("0 0 LW * *", ["2024-01-31 00:00:00", "2024-02-29 00:00:00", "2024-03-29 00:00:00"]),
        ("0 0 6W * *", ["2024-01-05 00:00:00", "2024-02-06 00:00:00", "2024-03-06 00:00:00"]),
        ("0 0 1W 6,9 *", ["2024-06-03 00:00:00", "2024-09-02 00:00:00"]),
        ("0 0 31w * *", ["2024-01-31 00:00:00", "2024-03-29 00:00:00"]),
        ("0 0 10,L * *", ["2024-01-10 00:00:00", "2024-01-31 00:00:00"]),
        ("0 0 * * 5L", ["2024-01-26 00:00:00", "2024-02-23 00:00:00"]),
        ("0 0 * * friL", ["2024-01-26 00:00:00"]),
        ("0 0 * * 5#2", ["2024-01-12 00:00:00", "2024-02-09 00:00:00"]),
        ("0 0 * * Mon#5", ["2024-01-29 00:00:00", "2024-04-29 00:00:00"]),
        ("0 0 * * 7#1,1", ["2024-01-07 00:00:00", "2024-01-08 00:00:00"]),
        # Macros, intervals and weekdays.
        ("@minutely", ["2024-01-01 00:01:00", "2024-01-01 00:02:00"]),
        ("@hourly", ["2024-01-01 01:00:00"]),
        ("@daily", ["2024-01-02 00:00:00"]),
        ("@Midnight", ["2024-01-02 00:00:00"]),
        ("@weekly", ["2024-01-07 00:00:00"]),
        ("@monthly", ["2024-02-01 00:00:00"]),
        ("@yearly", ["2025-01-01 00:00:00"]),
        ("@annually", ["2025-01-01 00:00:00"]),
        ("5s", ["2024-01-01 00:00:05", "2024-01-01 00:00:10"]),
        ("25m", ["2024-01-01 00:25:00", "2024-01-01 00:50:00", "2024-01-01 01:00:00"]),
        ("12H", ["2024-01-01 12:00:00", "2024-01-02 00:00:00"]),
        ("Tue", ["2024-01-02 00:00:00", "2024-01-09 00:00:00"]),
        # Rare days.
        ("0 0 29 2 *", ["2024-02-29 00:00:00", "2028-02-29 00:00:00"]),
        ("0 0 * 2 4#5", ["2024-02-29 00:00:00", "2052-02-29 00:00:00", "2080-02-29 00:00:00"]),
    ],
)
def test_what_an_expression_means(text: str, expected: list[str]) -> None:
    assert ticks(text, len(expected)) == expected


def test_a_weekday_with_a_step_fires_14_times_in_january_2024() -> None:
    """FTL's own case: ``1/2`` is Monday, Wednesday and Friday; its first evaluator added Sunday."""
    at, found = NEW_YEAR - timedelta(seconds=1), []
    while (tick := next_tick("0 0 * * 1/2", at)) and tick.month == 1:
        found.append(tick.weekday())
        at = tick
    assert len(found) == 14
    assert set(found) == {0, 2, 4}


def test_none_when_it_never_fires_again() -> None:
    assert next_tick("@never", NEW_YEAR) is None
    assert next_tick("0 0 1 1 * 2023", NEW_YEAR) is None
    assert next_tick("0 0 1 1 * 2024", NEW_YEAR) is None
    assert next_tick("* * * * *", datetime(2199, 12, 31, 23, 59, tzinfo=UTC)) is None
    assert next_tick("* * * * *", datetime.max.replace(tzinfo=UTC), "Asia/Tokyo") is None


def test_the_first_tick_there_is() -> None:
    earliest = datetime.min.replace(tzinfo=UTC)
    assert next_tick("@yearly", earliest) == datetime(1970, 1, 1, tzinfo=UTC)
    assert next_tick("@yearly", earliest, "America/New_York") == datetime(1970, 1, 1, 5, tzinfo=UTC)
    assert next_tick("@yearly", earliest, "Asia/Tokyo") == datetime(1969, 12, 31, 15, tzinfo=UTC)


def test_strictly_after_to_the_microsecond() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert next_tick("0 12 * * *", noon - timedelta(microseconds=1)) == noon
    assert next_tick("0 12 * * *", noon) == noon + timedelta(days=1)
    assert next_tick("0 12 * * *", noon + timedelta(microseconds=1)) == noon + timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("*/60 * * * *", "0 * * * *"),
        ("0 */24 * * *", "0 0 * * *"),
        ("0 3-23/24 * * *", "0 3 * * *"),
        ("0 0 1/32 * *", "0 0 1 * *"),
        ("0 0 1 */13 *", "0 0 1 1 *"),
        ("0 0 * * */8", "0 0 * * 0"),
        ("0 0 * * 1-5/99", "0 0 * * 1"),
        ("*/90 0 0 * * *", "0 0 0 * * *"),
        ("0 0 0 1 1 * 2030/300", "0 0 0 1 1 * 2030"),
    ],
)
def test_a_step_beyond_the_end_leaves_the_first_value(text: str, same: str) -> None:
    """As in crontab(5), robfig/cron and croniter, in each field."""
    assert replace(parse(text), wild=False) == replace(parse(same), wild=False)


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="after: expected a datetime with a time zone"):
        next_tick("* * * * *", datetime(2024, 1, 1))


@pytest.mark.parametrize(
    ("text", "field", "value", "words"),
    [
        ("61 * * * *", "minute", "61", "minute '61': expected a number in 0-59"),
        ("* 24 * * *", "hour", "24", "hour '24': expected a number in 0-23"),
        ("0 0 0 * *", "day-of-month", "0", "expected a number in 1-31"),
        ("0 0 1 13 *", "month", "13", "expected a number in 1-12"),
        ("0 0 * * 8", "day-of-week", "8", "expected a number in 0-7"),
        ("60 * * * * *", "second", "60", "second '60': expected a number in 0-59"),
        ("0 0 1 1 * 1969", "year", "1969", "expected a number in 1970-2199"),
        ("0 0 1 1 * 2200", "year", "2200", "expected a number in 1970-2199"),
        (f"{'9' * 1000} * * * *", "minute", "9" * 1000, "999…': expected a number in 0-59"),
        ("* 10-5 * * *", "hour", "10-5", "expected a range that goes up, within 0-23"),
        ("0 0 * * 5-0", "day-of-week", "5-0", "expected a range that goes up, within 0-7"),
        ("0 0 * * sat-mon", "day-of-week", "sat-mon", "expected a range that goes up"),
        ("0 0 1 dec-jan *", "month", "dec-jan", "expected a range that goes up, within 1-12"),
        ("*/0 * * * *", "minute", "*/0", "expected a step in 1-999999999"),
        ("*/ * * * *", "minute", "*/", "expected a step in 1-999999999"),
        ("*/-1 * * * *", "minute", "*/-1", "expected a step in 1-999999999"),
        ("1,,2 * * * *", "minute", "1,,2", "expected a value on both sides of each comma"),
        (", * * * *", "minute", ",", "expected a value on both sides of each comma"),
        ("x * * * *", "minute", "x", "expected a number in 0-59"),
        ("-1 * * * *", "minute", "-1", "expected a number in 0-59"),
        ("1-2-3 * * * *", "minute", "1-2-3", "expected a number in 0-59"),
        ("1- * * * *", "minute", "1-", "expected a number in 0-59"),
        ("*-5 * * * *", "minute", "*-5", "expected a number in 0-59"),
        ("1.5 * * * *", "minute", "1.5", "expected a number in 0-59"),
        ("٣ * * * *", "minute", "٣", "expected a number in 0-59"),
        ("? * * * *", "minute", "?", "expected * for any value"),
        ("0 0 * ? *", "month", "?", "? is accepted only in a day field"),
        ("0 0 ?,1 * *", "day-of-month", "?", "expected * for any value"),
        ("0 0 * * ?/2", "day-of-week", "?/2", "expected * for any value"),
        ("0 0 * * 6-0", "day-of-week", "6-0", "expected a range that goes up"),
        ("0\u00a00 * * *", "expression", "0\u00a00 * * *", "blanks or tabs between fields, not U+00A0"),
        ("0 0 *\u3000* *", "expression", "0 0 *\u3000* *", "blanks or tabs between fields, not U+3000"),
        ("0 0 * *\u0085*", "expression", "0 0 * *\u0085*", "blanks or tabs between fields, not U+0085"),
        ("\u00a00 0 * * *", "expression", "\u00a00 0 * * *", "not U+00A0"),
        ("0 0 * * *\n0 1 * * *", "expression", "0 0 * * *\n0 1 * * *", "not U+000A"),
        ("0 0 1 foo *", "month", "foo", "or a name such as JAN"),
        ("0 0 mon * *", "day-of-month", "mon", "L, LW or a form such as 15W"),
        ("0 0 32W * *", "day-of-month", "32W", "expected a number in 1-31"),
        ("0 0 L-3 * *", "day-of-month", "L-3", "L, LW or a form such as 15W"),
        ("0 0 * * L", "day-of-week", "L", "such as 5L for the last Friday"),
        ("0 0 * * 8L", "day-of-week", "8L", "expected a number in 0-7"),
        ("0 0 * * 5#6", "day-of-week", "5#6", "such as 5#2 (place 1-5)"),
        ("0 0 * * #2", "day-of-week", "#2", "a name such as MON"),
        ("L * * * *", "minute", "L", "expected a number in 0-59"),
        ("*/1234567890 * * * *", "minute", "*/1234567890", "expected a step in 1-999999999"),
        ("0 0 30 2 *", "day-of-month", "30", "month 2 of year 1970-2199; '0 0 30 2 *' would never fire"),
        ("0 0 31 4,6,9,11 *", "day-of-month", "31", "would never fire"),
        ("0 0 29 2 * 2023", "day-of-month", "29", "a day that exists in month 2 of year 2023"),
        ("0 0 * 2 1#5 2023", "day-of-week", "1#5", "would never fire"),
        ("@reboot", "expression", "@reboot", "expected one of @minutely, @hourly"),
        ("90s", "second", "90s", "expected an interval of 1-59 seconds"),
        ("0m", "minute", "0m", "expected an interval of 1-59 minutes"),
        ("24h", "hour", "24h", "expected an interval of 1-23 hours"),
        ("2d", "expression", "2d", "expected 5 to 7 fields, an interval such as 5m"),
        ("1h30m", "expression", "1h30m", "expected 5 to 7 fields"),
        ("", "expression", "", "expected 5 to 7 fields"),
        ("* * * *", "expression", "* * * *", "expected 5 to 7 fields"),
        ("* * * * * * * *", "expression", "* * * * * * * *", "expected 5 to 7 fields"),
        ("1 " * 1500, "expression", "1 " * 1500, "expected at most 2000 characters"),
    ],
)
def test_bad_expressions(text: str, field: str, value: str, words: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        parse(text)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{field} ")
    assert len(str(caught.value)) < 300


def test_what_the_error_carries() -> None:
    with pytest.raises(ValueError) as caught:
        parse("*/0 * * * *")
    bad = caught.value
    assert isinstance(bad, BadSchedule)
    assert (bad.field, bad.value, bad.expected, bad.range) == (
        "minute",
        "*/0",
        "a step in 1-999999999",
        "0-59",
    )
    again = pickle.loads(pickle.dumps(bad))
    assert (str(again), again.range) == (str(bad), "0-59")


def _fits(field: str, day: date) -> bool:
    """Return whether a day matches one term of a day field, by its definition."""
    length = calendar.monthrange(day.year, day.month)[1]
    crontab_weekday = (day.weekday() + 1) % 7
    if field == "*":
        return True
    if field == "L":
        return day.day == length
    if field == "LW":
        return day.weekday() < 5 and all(
            date(day.year, day.month, later).weekday() > 4 for later in range(day.day + 1, length + 1)
        )
    if field.endswith("W"):
        wanted = int(field[:-1])
        if wanted > length or day.weekday() > 4:
            return False
        working = [d for d in range(1, length + 1) if date(day.year, day.month, d).weekday() < 5]
        return day.day == min(working, key=lambda d: (abs(d - wanted), d))
    if field.endswith("L"):
        return crontab_weekday == int(field[:-1]) % 7 and day.day + 7 > length
    if "#" in field:
        weekday, place = field.split("#")
        return crontab_weekday == int(weekday) % 7 and (day.day - 1) // 7 + 1 == int(place)
    raise AssertionError(field)


@pytest.mark.parametrize("month_day", ["*", "L", "LW", *(f"{day}W" for day in (1, 2, 3, 15, 29, 30, 31))])
@pytest.mark.parametrize("week_day", ["*", "0L", "5L", "7L", "0#1", "3#5", "6#4"])
def test_days_by_brute_force_over_400_days(month_day: str, week_day: str) -> None:
    first = date(2023, 12, 15)
    days = [first + timedelta(days=n) for n in range(400)]
    either = month_day != "*" and week_day != "*"
    expected = [
        day for day in days if (any if either else all)((_fits(month_day, day), _fits(week_day, day)))
    ]
    at = datetime(2023, 12, 14, 23, 59, tzinfo=UTC)
    found = []
    while (tick := next_tick(f"0 0 {month_day} * {week_day}", at)) and tick.date() <= days[-1]:
        found.append(tick.date())
        at = tick
    assert found == expected


_WEEKDAYS_TEXT = st.sampled_from(["*", "1-5", "0", "7", "*/2", "1/2", "fri-sun", "5#2", "5L", "1#5", "3,6L"])


def _list_of(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    term = st.one_of(
        value.map(str),
        st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
        st.tuples(value, st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    )
    return st.one_of(st.just("*"), st.lists(term, min_size=1, max_size=3).map(",".join))


EXPRESSION = st.tuples(
    _list_of(0, 59),
    _list_of(0, 59),
    _list_of(0, 23),
    st.one_of(_list_of(1, 28), st.sampled_from(["L", "LW", "31W,3", "15W", "L,1"])),
    _list_of(1, 12),
    _WEEKDAYS_TEXT,
).map(" ".join)
"""Expressions that fire in every month they name, so that none is refused."""
ZONE = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
MOMENT = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


@settings(max_examples=examples(25, night=900), deadline=None)
@given(EXPRESSION, ZONE, MOMENT)
def test_ticks_increase_and_none_is_left_out(text: str, zone: str, after: datetime) -> None:
    tick = next_tick(text, after, zone)
    assert tick is not None
    assert tick > after
    assert tick.microsecond == 0
    # No moment between has a tick of its own: asked from anywhere between, the answer is the same.
    between = after + (tick - after) / 2
    assert next_tick(text, between, zone) == tick
    assert next_tick(text, tick - timedelta(microseconds=1), zone) == tick
    later = next_tick(text, tick, zone)
    assert later is not None
    assert later > tick


@settings(max_examples=examples(25, night=900), deadline=None)
@given(EXPRESSION, MOMENT)
def test_a_tick_matches_its_own_expression(text: str, after: datetime) -> None:
    tick = next_tick(text, after)
    assert tick is not None
    second, minute, hour, _, month, _ = text.split()
    for field, value, low, high in (
        (second, tick.second, 0, 59),
        (minute, tick.minute, 0, 59),
        (hour, tick.hour, 0, 23),
        (month, tick.month, 1, 12),
    ):
        assert any(_holds(term, value, low, high) for term in field.split(",")), (text, tick)


def _holds(term: str, value: int, low: int, high: int) -> bool:
    body, _, step = term.partition("/")
    first, _, last = body.partition("-")
    start = low if body == "*" else int(first)
    end = high if body == "*" or (step and not last) else int(last or first)
    return start <= value <= end and (value - start) % int(step or 1) == 0


@settings(max_examples=examples(25, night=500), deadline=None)
@given(st.text(max_size=40) | st.text("0123456789*/-,LW#@?monjanTZ \t", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        schedule = parse(text)
    except BadSchedule:
        return
    assert describe(text)
    assert schedule.years == 0 or next_tick(text, datetime(1969, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("5s", "every 5 seconds"),
        ("25m", "at minutes 0, 25 and 50 of every hour"),
        ("*/5 * * * *", "every 5 minutes"),
        ("@hourly", "every hour"),
        ("5 */2 * * *", "every 2 hours, from 00:05 on"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("0 9 * * *", "at 09:00, every day"),
        ("0 9,17 * * 1-5", "at 09:00 and 17:00, on Monday to Friday"),
        ("15 0 9 * * *", "at 09:00:15, every day"),
        ("*/15 9-17 * * mon-fri", "every 15 minutes in hours 9 to 17, on Monday to Friday"),
        ("10,20 * * * * *", "at seconds 10 and 20 of every minute"),
        ("* 5 * * * *", "every second at minute 5 of every hour"),
        ("* * 3 * * *", "every second in hour 3"),
        ("0 0 13 * FRI", "at 00:00, on day 13 of the month or on Friday"),
        ("0 0 1,15,20-25 * *", "at 00:00, on days 1, 15 and 20 to 25 of the month"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 0 LW * *", "at 00:00, on the last working day of the month"),
        ("0 12 15W * *", "at 12:00, on the working day nearest to day 15"),
        ("0 0 * * 5#2,1L", "at 00:00, on the last Monday of the month and the 2nd Friday of the month"),
        ("0 0 1 jan,jun-aug *", "at 00:00, on day 1 of the month, in January and June to August"),
        ("0 0 * * * 2030-2032", "at 00:00, in 2030 to 2032"),
        ("@never", "never by itself, only when triggered"),
    ],
)
def test_described(text: str, words: str) -> None:
    assert describe(text) == words


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")


CHANGES = ((3, 28), (3, 8), (10, 24), (10, 31), (4, 4), (2, 14))
"""Days on whose evening, or on the next day, some clock is changed in 2026."""


@pytest.mark.parametrize("seed", range(60))
def test_ticks_are_counted_as_they_come_one_by_one(seed: int) -> None:
    """Also over clock changes: with and without ``*``, bounded and unbounded."""
    dice = random.Random(seed)
    field = dice.choice
    fields = (
        "0 30 * */20 5,50",
        "0 7 * */10 1-20",
        "* 2 1-3 */5 0",
        "* * * 1,15 L",
        "* * 3-11 */2",
        "* * 1-5 0#1",
    )
    expression = " ".join(field(each.split()) for each in fields)
    zone = field(ZONES)
    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randrange(365 * 86_400))
    if dice.random() < 0.5:  # near a change of the clock
        after = datetime(2026, *field(CHANGES), 20, tzinfo=UTC)
    stepped, at = 0, after
    until = after + timedelta(seconds=dice.randrange(1, 9 * 86_400))
    while (found := next_tick(expression, at, zone)) is not None and found <= until and stepped < 5_000:
        stepped, at = stepped + 1, found
    until = at if stepped == 5_000 else until
    assert count_ticks(expression, after, until, zone) == stepped, (expression, zone, after, until)


def test_a_year_of_seconds_is_counted_in_no_more_steps_than_a_year_of_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worst case: a schedule of every second that did not run for a year."""
    steps = 0
    search = plan.next_moment

    def counting(*given: Any) -> datetime | None:
        nonlocal steps
        steps += 1
        return search(*given)

    monkeypatch.setattr(plan, "next_moment", counting)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    assert count_ticks("* * * * * *", begin, begin + timedelta(days=365)) == 365 * 86_400
    assert steps == 0
    assert count_ticks("*/5 * * * *", begin, begin + timedelta(days=365), "Europe/Berlin") == 365 * 288
    assert steps < 200, "only the hours around two changes are looked at one by one"
