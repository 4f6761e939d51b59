"""Cronken's ``cron_args``, with APScheduler 3 as the oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger

from bedrockjobs.schedule.cron import BadSchedule, describe, next_tick, parse
from tests.effort import examples

NOW = datetime(2024, 1, 10, 12, 34, 56, tzinfo=UTC)  # a Wednesday


def ticks(arguments: Mapping[str, str], count: int, after: datetime = NOW, zone: str = "UTC") -> list[str]:
    """Return the next ticks as text."""
    found: list[str] = []
    at = after
    while len(found) < count and (tick := next_tick(arguments, at, zone)) is not None:
        found.append(tick.strftime("%Y-%m-%d %H:%M:%S"))
        at = tick
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"second": "*/2"}, ["2024-01-10 12:34:58", "2024-01-10 12:35:00"]),
        ({"day_of_week": "0"}, ["2024-01-15 00:00:00"]),  # Monday
        ({"day_of_week": "6"}, ["2024-01-14 00:00:00"]),  # Sunday
        ({"day_of_week": "mon-fri", "hour": "9"}, ["2024-01-11 09:00:00", "2024-01-12 09:00:00"]),
        ({"day": "13", "day_of_week": "fri"}, ["2024-09-13 00:00:00", "2024-12-13 00:00:00"]),  # both
        ({"hour": "3"}, ["2024-01-11 03:00:00"]),
        ({"minute": "30"}, ["2024-01-10 13:30:00"]),
        ({"month": "6"}, ["2024-06-01 00:00:00"]),
        ({"year": "2025"}, ["2025-01-01 00:00:00"]),
        ({"day": "last"}, ["2024-01-31 00:00:00", "2024-02-29 00:00:00"]),
        ({"day": "2nd fri", "hour": "8"}, ["2024-01-12 08:00:00", "2024-02-09 08:00:00"]),
        ({"day": "last mon"}, ["2024-01-29 00:00:00"]),
        ({"week": "53"}, ["2026-12-28 00:00:00"]),
        ({"day_of_week": "1/2"}, ["2024-01-11 00:00:00", "2024-01-13 00:00:00", "2024-01-16 00:00:00"]),
        ({"hour": "0", "start_date": "2024-03-01"}, ["2024-03-01 00:00:00", "2024-03-02 00:00:00"]),
        ({"hour": "0", "end_date": "2024-01-12"}, ["2024-01-11 00:00:00", "2024-01-12 00:00:00"]),
        ({"hour": "9", "timezone": "Asia/Tokyo"}, ["2024-01-11 00:00:00"]),
        ({"hour": "9", "start_date": "2024-02-01 09:00:00+02:00"}, ["2024-02-01 09:00:00"]),
        ({"cronstring": "0 0 * * 0"}, ["2024-01-14 00:00:00"]),  # our dialect: Sunday
        ({"cronstring": "0 0 * * 1", "timezone": "Asia/Tokyo", "jitter": "5"}, ["2024-01-14 15:00:00"]),
    ],
)
def test_what_the_arguments_mean(arguments: Mapping[str, str], expected: list[str]) -> None:
    assert ticks(arguments, len(expected)) == expected


def test_an_end_in_the_past_means_that_it_never_fires_again() -> None:
    assert next_tick({"hour": "0", "end_date": "2023-12-31"}, NOW) is None


def test_start_and_end_are_wall_clock_times_of_the_zone_and_inclusive() -> None:
    arguments = {"minute": "0", "start_date": "2024-02-01 08:00:00", "end_date": "2024-02-01 09:00:00"}
    assert ticks(arguments, 9, zone="Europe/Berlin") == ["2024-02-01 07:00:00", "2024-02-01 08:00:00"]


def test_numbers_and_none_as_json_has_them() -> None:
    arguments = {"hour": 3, "minute": None, "jitter": 10}
    assert ticks(arguments, 1) == ["2024-01-11 03:00:00"]  # type: ignore[arg-type]


class Writer:
    """Writes random ``cron_args`` that APScheduler accepts."""

    RANGES = {
        "month": (1, 12),
        "day": (1, 31),
        "week": (1, 53),
        "day_of_week": (0, 6),
        "hour": (0, 23),
        "minute": (0, 59),
        "second": (0, 59),
    }
    WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def arguments(self) -> dict[str, str]:
        """Return one to four fields."""
        names = self.random.sample(list(self.RANGES), self.random.choice((1, 1, 2, 2, 3, 4)))
        found = {name: self._list(name) for name in names}
        if self.random.random() < 0.1:
            year = self.random.randrange(2024, 2030)
            found["year"] = self.random.choice((f"{year}-{year + 4}", f"{year},{year + 2}", "*/2"))
        return found

    def _list(self, name: str) -> str:
        joint = self.random.choice((",", ", "))
        return joint.join(self._term(name) for _ in range(self.random.choice((1, 1, 1, 2))))

    def _term(self, name: str) -> str:
        low, high = self.RANGES[name]
        first, last = sorted((self.random.randint(low, high), self.random.randint(low, high)))
        kind = self.random.random()
        if name == "day" and kind < 0.2:
            place = self.random.choice(("1st", "2nd", "3rd", "4th", "5th", "last"))
            return self.random.choice(("last", f"{place} {self.random.choice(self.WEEKDAYS)}"))
        names = {"month": ["", *self.MONTHS], "day_of_week": self.WEEKDAYS}.get(name)
        if names and kind < 0.25:
            return self.random.choice((names[first], f"{names[first]}-{names[last]}"))
        if kind < 0.4:
            return f"*/{self.random.randint(1, high - low)}"
        if kind < 0.5 and first < high:
            return f"{first}/{self.random.randint(1, high - first)}"
        if kind < 0.6:
            return f"{first}-{last}"
        # APScheduler takes a range that ends with 0 for one without an end; that is left out.
        if kind < 0.7 and 0 < first < last:
            return f"{first}-{last}/{self.random.randint(1, last - first)}"
        return str(first)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_random_arguments_against_apscheduler(zone: str) -> None:
    writer = Writer(seed=4)
    asked, fired = examples(150, night=1_500), 0
    for _ in range(asked):
        arguments = writer.arguments()
        after = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=writer.random.randrange(10**8))
        try:
            parse(arguments)
        except BadSchedule as refused:
            assert "a date that exists" in str(refused), arguments  # noqa: PT017
            continue
        trigger = CronTrigger(**arguments, timezone=ZoneInfo(zone))
        at = after
        for _ in range(2):
            theirs = trigger.get_next_fire_time(
                None, (at + timedelta(microseconds=1)).astimezone(ZoneInfo(zone))
            )
            ours = next_tick(arguments, at, zone)
            if ours is None:
                # It walks on to the year 9999; our years end with 2199.
                assert theirs is None or theirs.year > 2199, (arguments, str(at))
                break
            assert ours == theirs, (arguments, str(at))
            fired += 1
            at = ours
    assert fired > asked * 5 / 3


def test_a_change_of_the_clock_follows_our_one_rule_and_not_apscheduler() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    arguments = {"hour": "2", "minute": "30"}
    before = datetime(2024, 3, 30, 12, tzinfo=UTC)
    trigger = CronTrigger(**arguments, timezone=berlin)
    theirs = trigger.get_next_fire_time(None, before.astimezone(berlin))
    ours = next_tick(arguments, before, "Europe/Berlin")
    assert ours == datetime(2024, 3, 31, 1, 0, tzinfo=UTC)  # 03:00, right after the gap
    assert theirs.astimezone(UTC) == datetime(2024, 3, 31, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "fires"),
    [
        ({"hour": "1", "minute": "30"}, ["27 01:30 +0100", "28 01:30 +0000"]),
        ({"hour": "0-2", "minute": "30"}, ["27 00:30 +0100", "27 01:30 +0100", "27 02:30 +0000"]),
        ({"minute": "30"}, ["27 00:30 +0100", "27 01:30 +0100", "27 01:30 +0000", "27 02:30 +0000"]),
        ({"hour": "1", "minute": "*/30"}, ["27 01:00 +0100", "27 01:30 +0100", "27 01:00 +0000"]),
    ],
)
def test_the_second_time_of_an_hour_that_comes_twice(arguments: Mapping[str, str], fires: list[str]) -> None:
    """A fixed time fires the first time only, where APScheduler fires both times; with ``*`` both."""
    london = ZoneInfo("Europe/London")
    at, found = datetime(2024, 10, 26, 22, 45, tzinfo=UTC), []
    while len(found) < len(fires):
        tick = next_tick(arguments, at, "Europe/London")
        assert tick is not None
        found.append(tick.astimezone(london).strftime("%d %H:%M %z"))
        at = tick
    assert found == fires
    first = datetime(2024, 10, 27, 0, 30, tzinfo=UTC).astimezone(london)
    theirs = CronTrigger(hour="1", minute="30", timezone=london).get_next_fire_time(first, first)
    assert theirs.strftime("%d %H:%M %z") == "27 01:30 +0000"


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ({"hours": "3"}, "cron_args", "expected one of year, month, day"),
        ({}, "cron_args", "cronstring or at least one of year"),
        ({"timezone": "UTC"}, "cron_args", "cronstring or at least one of year"),
        ({"minute": "60"}, "minute", "minute '60': expected a number in 0-59"),
        ({"minute": "x"}, "minute", "minute 'x': expected a number in 0-59"),
        ({"minute": "*/60"}, "minute", "expected a step of at most 59, the length of its range"),
        ({"minute": "50-55/6"}, "minute", "expected a step of at most 5"),
        ({"minute": "*/0"}, "minute", "expected a step of at most 59"),
        ({"minute": "9-5"}, "minute", "expected a range that goes up, within 0-59"),
        ({"minute": "*-5"}, "minute", "expected *, a number, a range or a step"),
        ({"minute": ""}, "minute", "expected *, a number, a range or a step"),
        ({"day_of_week": "7"}, "day_of_week", "expected a number in 0-6"),
        ({"day_of_week": "monday"}, "day_of_week", "(0 is Monday) or a name such as mon"),
        ({"day_of_week": "mon/2"}, "day_of_week", "expected no step after a name"),
        ({"day": "2nd foo"}, "day", "expected a place and a weekday, such as 2nd fri"),
        ({"day": "6th fri"}, "day", "expected a number in 1-31, last, or a form such as 2nd fri"),
        ({"day": "30", "month": "2"}, "cron_args", "'month=2, day=30': expected a date that exists"),
        ({"hour": "1", "timezone": "Mars/Base"}, "zone", "the name of a time zone"),
        ({"hour": "1", "start_date": "tomorrow"}, "start_date", "expected a date such as 2030-01-31"),
        ({"hour": "1", "end_date": "2024-02-30"}, "end_date", "expected a date such as 2030-01-31"),
        ({"hour": "1", "end_date": "2024-02-03 00:00:00+99:00"}, "end_date", "expected a date such as"),
        ({"hour": "1", "jitter": "-1"}, "jitter", "expected a whole number of seconds, 0 or more"),
        ({"hour": ["1"]}, "hour", "expected a string or a whole number"),
        ({"hour": True}, "hour", "expected a string or a whole number"),
        ({"hour": "1," * 2000}, "hour", "expected at most 2000 characters"),
        ({"cronstring": "0 0 * * *", "hour": "1"}, "cronstring", "expected no hour in addition"),
        ({"cronstring": "61 0 * * *"}, "minute", "expected a number in 0-59"),
    ],
)
def test_bad_arguments(arguments: Mapping[str, str], field: str, words: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        parse(arguments)
    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"second": "*/2"}, "every 2 seconds"),
        ({"day": "13", "day_of_week": "fri"}, "at 00:00, on day 13 of the month, but only on Friday"),
        ({"day": "last mon", "hour": "8"}, "at 08:00, on the last Monday of the month"),
        ({"week": "1-3", "day_of_week": "0"}, "at 00:00, on Monday, in ISO week 1 to 3"),
        ({"hour": "9", "end_date": "2030-01-31"}, "at 09:00, every day, until 2030-01-31 00:00:00"),
    ],
)
def test_described(arguments: Mapping[str, str], words: str) -> None:
    assert describe(arguments) == words
