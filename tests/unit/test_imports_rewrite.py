"""Expressions of other dialects, rewritten in ours: the same ticks, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.imports.imported import (
    ImportedSchedule,
    NoExpression,
    distinct,
    expression_for,
    kept_or_rewritten,
    same_schedule,
)
from bedrockjobs.schedule import cron
from tests.effort import examples

WRITTEN = [
    ({"second": "*/2"}, "*/2 * * * * *"),
    ({"minute": "0", "hour": "9", "day_of_week": "0-4"}, "0 9 * * MON-FRI"),
    ({"minute": "0", "hour": "9", "day_of_week": "5,6"}, "0 9 * * SAT,SUN"),
    ({"hour": "*/2"}, "0 */2 * * *"),
    ({"minute": "5-50/15"}, "5-50/15 * * * *"),
    ({"minute": "0-59", "hour": "3"}, "0-59 3 * * *"),
    ({"minute": "*", "hour": "3"}, "* 3 * * *"),
    ({"day": "1-7", "day_of_week": "mon"}, "0 0 * * 1#1"),
    ({"day": "8-21", "day_of_week": "tue,thu"}, "0 0 * * 2#2,2#3,4#2,4#3"),
    ({"day": "last fri", "hour": "3"}, "0 3 * * 5L"),
    ({"day": "last", "hour": "3"}, "0 3 L * *"),
    ({"day": "1st mon, 15", "hour": "1"}, "0 1 15 * 1#1"),
    ({"day": "2nd mon, 2nd tue", "day_of_week": "tue"}, "0 0 * * 2#2"),
    ({"day": "1-31", "day_of_week": "sun"}, "0 0 * * SUN"),
    ({"month": "1,7"}, "0 0 1 */6 *"),
    ({"year": "2027"}, "0 0 1 1 * 2027"),
    ({"year": "2027-2030", "second": "5"}, "5 * * * * * 2027-2030"),
    ({"year": "*/2"}, "0 0 0 1 1 * */2"),
    ({"cronstring": "@never"}, "@never"),
]


@pytest.mark.parametrize(("arguments", "expression"), WRITTEN, ids=lambda value: str(value))
def test_arguments_become_an_expression(arguments: dict[str, str], expression: str) -> None:
    """In the usual spelling, and with the same meaning."""
    schedule = cron.parse(arguments)
    assert expression_for(schedule) == expression
    assert same_schedule(cron.parse(expression), schedule)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"week": "3"}, "a week of the year"),
        ({"day": "*/2", "day_of_week": "mon"}, "must both hold"),
        ({"day": "last", "day_of_week": "mon"}, "must both hold"),
        ({"hour": "3", "start_date": "2030-01-01"}, "start_date"),
        ({"hour": "3", "end_date": "2030-01-01"}, "end_date"),
        ({"hour": "3", "minute": "*/30,5"}, "clock is changed"),
    ],
)
def test_what_no_expression_says_is_refused(arguments: dict[str, str], why: str) -> None:
    """The error names the obstacle."""
    with pytest.raises(NoExpression, match=why):
        expression_for(cron.parse(arguments))


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pairs = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    term = st.one_of(
        st.just("*"),
        number.map(str),
        pairs.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.integers(1, high - low).map(lambda step: f"*/{step}"),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join)


ARGUMENTS = st.fixed_dictionaries(
    {"hour": _field(0, 23)},
    optional={
        "second": _field(0, 59),
        "minute": _field(0, 59),
        "day": st.one_of(_field(1, 31), st.sampled_from(["last", "1st mon", "last sun,3"])),
        "day_of_week": _field(0, 6),
        "month": _field(1, 12),
        "year": st.sampled_from(["2027", "2027-2031", "*/3"]),
    },
)


@settings(max_examples=examples(25, night=600), deadline=None)
@given(ARGUMENTS)
def test_every_expression_that_is_written_means_the_same(arguments: dict[str, str]) -> None:
    """For any arguments, the result is equivalent or refused."""
    try:
        schedule = cron.parse(arguments)
        expression = expression_for(schedule)
    except (cron.BadSchedule, NoExpression):
        return
    assert same_schedule(cron.parse(expression), schedule)


def test_a_text_that_means_the_same_stays() -> None:
    """Except for blanks."""
    assert kept_or_rewritten("0  9 * *   1-5", cron.parse("0 9 * * MON-FRI")) == "0 9 * * 1-5"
    assert kept_or_rewritten("0 9 * * 0", cron.parse("0 9 * * MON")) == "0 9 * * MON"
    assert kept_or_rewritten("no schedule", cron.parse("0 9 * * MON")) == "0 9 * * MON"


@pytest.mark.parametrize(
    "other", ["5 9 * * 1", "0 9 * * 2", "0 9 1 * 1", "0 9 * 1 1", "0 9 * * 1 2030", "1 0 9 * * 1", "@never"]
)
def test_schedules_that_differ_are_not_the_same(other: str) -> None:
    """In whichever field."""
    assert not same_schedule(cron.parse("0 9 * * 1"), cron.parse(other))


def test_names_are_made_distinct() -> None:
    """Also if the second name equals the one that the third would get."""
    assert distinct(["a", "a", "a-2", "a", "b"]) == ["a", "a-2", "a-2-2", "a-3", "b"]


@pytest.mark.parametrize(
    ("found", "repeat"),
    [
        ({"expression": "5m"}, "CRON 5m"),
        ({"expression": "5m", "zone": "Asia/Tokyo"}, "CRON TZ=Asia/Tokyo 5m"),
        ({"repeat_after": "FINISHED, +1 HOUR"}, "FINISHED, +1 HOUR"),
        ({"expression": "5m", "refused": "why"}, ""),
    ],
)
def test_the_repeat_of_what_was_found(found: dict[str, Any], repeat: str) -> None:
    """As CreateJob takes it."""
    assert ImportedSchedule("a", "line 1", "", **found).repeat == repeat
