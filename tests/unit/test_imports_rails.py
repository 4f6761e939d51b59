"""Imports from whenever and Solid Queue, compared with small versions of their rules; and what is refused."""

from __future__ import annotations

from datetime import date, timedelta
from math import floor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.imports.imported import ImportedSchedule, Unreadable
from bedrockjobs.imports.solid_queue import expression_of, parse_solid_queue
from bedrockjobs.imports.whenever import parse_whenever, times_of
from bedrockjobs.schedule import cron
from tests.effort import examples


def one(entries: list[ImportedSchedule]) -> ImportedSchedule:
    (found,) = entries
    return found


# --- whenever ----------------------------------------------------------------------------------------------


def listed(frequency: int, last: int, start: int) -> str:
    """List the values of a field by whenever's rule."""
    if frequency == 1:
        return "*"
    if frequency > floor(last * 0.5 + 0.999):
        return str(frequency)
    first = start
    if not ((last + 1) % frequency == 0 or start > 0):
        start += frequency
    values = list(range(start, last + 1, frequency))
    most = floor(last / frequency + 0.5) + (first == 0)
    return ",".join(map(str, values[:most]))


@settings(max_examples=examples(160, night=5_000), deadline=None)
@given(
    st.sampled_from([("minute", 1, 59), ("hour", 60, 23), ("day", 1440, 29)]).flatmap(
        lambda unit: st.tuples(st.just(unit), st.integers(1, unit[2]))
    ),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_durations_become_what_whenever_writes(
    said: tuple[tuple[str, int, int], int], hour: int, minute: int
) -> None:
    (unit, _, _), count = said
    half = "pm" if hour >= 12 else "am"
    at = None if unit == "minute" else f"'{(hour - 1) % 12 + 1}:{minute:02} {half}'"
    expected = {
        "minute": f"{listed(count, 59, 0)} * * * *",
        "hour": f"{minute} {listed(count, 23, 0)} * * *",
        "day": f"{minute} {hour} {listed(count, 31, 1)} * *",
    }[unit]
    assert list(times_of(f"{count}.{unit}s", at)) == [expected]


MONDAYS_AND_FRIDAYS = ["30 4 * * 1", "0 18 * * 1", "30 4 * * 5", "0 18 * * 5"]


@pytest.mark.parametrize(
    ("time", "at", "expected"),
    [
        ("2.weeks", None, ["0 0 1,15 * *"]),
        ("3.months", None, ["0 0 1 1,4,7,10 *"]),
        (":daily", None, ["@daily"]),
        ("'0 0 27-31 * *'", None, ["0 0 27-31 * *"]),
        (":sunday", "'12pm'", ["0 12 * * 0"]),
        (
            "'monday, Friday'",
            "['4:30 am', '18:00']",
            ["30 4 * * 1", "0 18 * * 1", "30 4 * * 5", "0 18 * * 5"],
        ),
        ("[:weekday, :weekend]", "'04:05'", ["5 4 * * 1-5", "5 4 * * 6,0"]),
        ("1.day", "16", ["0 16 * * *"]),
        ("1.hour", "16", ["16 * * * *"]),
    ],
)
def test_times(time: str, at: str | None, expected: list[str]) -> None:
    assert list(times_of(time, at)) == expected


SCHEDULE = """
set :output, "#{path}/cron.log"  # not needed here
set :path, '/srv/shop'
every 1.day, :at => '4:30 am' do
  rake "orders:clean", output: nil
  runner "Order.remind('it''s')"  # Ruby
  command 'backup --to "#1"'
end
env :LANG, 'C'
"""


def test_what_runs() -> None:
    rake, runner, command = parse_whenever(SCHEDULE, environment="staging", zone="Europe/Berlin")
    env = ["env", "LANG=C", "/bin/bash", "-l", "-c"]
    assert [each.name for each in (rake, runner, command)] == ["orders:clean", "Order.remind", "backup"]
    assert {each.repeat for each in (rake, runner, command)} == {"CRON TZ=Europe/Berlin 30 4 * * *"}
    assert rake.options["argv"] == [
        *env,
        "cd /srv/shop && RAILS_ENV=staging bundle exec rake orders:clean --silent",
    ]
    assert runner.options["argv"][-1].startswith("cd /srv/shop && bundle exec bin/rails runner -e staging '")
    assert command.options["argv"] == [*env, 'backup --to "#1"']
    assert rake.warnings == ("line 2: set :output is left out: the server keeps the output of each run",)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("every 1.day do\n  rake 'a'\nend", "line 2", "expected --path"),
        ("every :day, at: '4 am' do\n  command 'a'\nend", "line 2", "whenever refuses it"),
        ("every 1.day, at: '4:30' do\n  command 'a'\nend", "line 2", "write am or pm"),
        ("every 1.month, at: '4 am' do\n  command 'a'\nend", "line 2", "the day|its day"),
        ("every 12.months do\n  command 'a'\nend", "line 2", "expected 1 to 11"),
        ("every 90.minutes do\n  command 'a'\nend", "line 2", "whole hours"),
        ("every 30.seconds do\n  command 'a'\nend", "line 2", "expected a duration"),
        ("every :reboot do\n  command 'a'\nend", "line 2", "@reboot"),
        ('every :hour do\n  command "a #{b}"\nend', "line 2", "line 2: expected set"),
        ("job_type :x, 'y'", "line 1", "line 1: expected set"),
        ("if x\n  every :hour do\n    command 'a'\n  end\nend", "line 1", "line 1: expected set"),
        ("every 1.day, roles: [:db] do\n  command 'a'\nend", "line 1", "line 1: expected set"),
    ],
)
def test_what_is_refused(text: str, place: str, why: str) -> None:
    """A single sentence names the line; nothing of a block that is refused is imported."""
    found = one(parse_whenever(text))
    assert found.place == place
    assert not found.repeat
    assert any(each in found.refused for each in why.split("|"))


def test_a_block_without_an_end_is_unreadable() -> None:
    for text in ("every :hour do\n", "if x\n  every :hour do\n  end\n"):
        with pytest.raises(Unreadable, match="line 1: expected end"):
            parse_whenever(text)


# --- Solid Queue -------------------------------------------------------------------------------------------


RECURRING = """
development: {}
production:
  clean:
    class: Clean::Records
    queue: background
    args: [1000, {batch_size: 500, "odd key": "it's #{1}"}]
    schedule: every hour
    concurrency: 3
  purge:
    command: "Draft.due.delete_all"
    description: Old drafts
    schedule: "*/5 9-17 * * 1-5 Europe/Berlin"
"""


def test_tasks() -> None:
    clean, purge = parse_solid_queue(RECURRING, zone="Asia/Tokyo")
    arguments = r"1000, batch_size: 500, 'odd key': 'it\'s #{1}'"
    program = f"Clean::Records.set(queue: 'background').perform_later({arguments})"
    assert clean.options["argv"] == ["bin/rails", "runner", program]
    assert (clean.repeat, clean.warnings) == (
        "CRON TZ=Asia/Tokyo 0 * * * *",
        ("line 9: concurrency is left out",),
    )
    assert purge.repeat == "CRON TZ=Europe/Berlin */5 9-17 * * 1-5"
    assert purge.options == {"argv": ["bin/rails", "runner", "Draft.due.delete_all"], "note": "Old drafts"}
    assert parse_solid_queue(RECURRING, environment="development") == []
    assert one(parse_solid_queue("a: {class: A, schedule: every day}")).repeat == "CRON 0 0 * * *"


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ("every 5 minutes", "*/5 * * * *"),
        ("every 30 seconds", "*/30 * * * * *"),
        ("every 12 hours", "0 */12 * * *"),
        ("every minute", "* * * * *"),
        ("Every day at 9AM", "0 9 * * *"),
        ("at 5:30 pm every tuesday", "30 17 * * 2"),
        ("every weekday at noon", "0 12 * * 1-5"),
        ("every sun at 12am", "0 0 * * 0"),
        ("@daily", "@daily"),
    ],
)
def test_english(said: str, expression: str) -> None:
    assert expression_of(said) == (expression, "")


@pytest.mark.parametrize(
    "said",
    [
        "every 90 minutes",
        "every 24 hours",
        "every 2 days",
        "every day at 25:00",
        "every day at 13pm",
        "5/20 * * * *",
        "0 0 L * *",
        "0 0 */1 * 1",
        "0 22-2 * * *",
        "@reboot",
        "",
    ],
)
def test_schedules_with_several_meanings(said: str) -> None:
    with pytest.raises(cron.BadSchedule):
        expression_of(said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{class: a, schedule: every day}", "class: expected"),
        ("{class: 'A.x', schedule: every day}", "class: expected"),
        ("{class: A}", "schedule: expected"),
        ("{class: A, schedule: every day, args: [2026-11-27]}", "args: expected"),
        ("{command: 1, schedule: every day}", "command: expected"),
    ],
)
def test_tasks_that_are_refused(text: str, why: str) -> None:
    found = one(parse_solid_queue(f"b: {{class: A, schedule: every day}}\na: {text}")[1:])
    assert (found.place, found.repeat) == ("line 2", "")
    assert found.refused.startswith(why)


def test_a_missing_environment_is_named() -> None:
    with pytest.raises(Unreadable, match="no environment test, only development, production"):
        parse_solid_queue(RECURRING, environment="test")


LIMITS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}


@st.composite
def fields(draw: Any, low: int, high: int) -> tuple[str, set[int] | None]:
    """Return a field and its values by Fugit's rule; None for no restriction."""
    if draw(st.booleans()):
        step = draw(st.integers(2, 9))
        return draw(st.sampled_from([("*", None), (f"*/{step}", set(range(low, high + 1, step)))]))
    words, values = [], set()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(2, 9))
        word, more = draw(
            st.sampled_from(
                [
                    (f"{first}", {first}),
                    (f"{first}-{last}", set(range(first, last + 1))),
                    (f"{first}-{last}/{step}", set(range(first, last + 1, step))),
                ]
            )
        )
        words.append(word)
        values |= more
    return ",".join(words), values


@settings(max_examples=examples(160, night=5_000), deadline=None)
@given(st.tuples(*(fields(*limits) for limits in LIMITS.values())), st.integers(0, 1460))
def test_cron_expressions_fire_as_fugit_says(
    said: tuple[tuple[str, set[int] | None], ...], days_later: int
) -> None:
    """By day, and by hour and minute; a day matches either field if both are restricted."""
    text = " ".join(word for word, _ in said)
    minute, hour, day, month, weekday = (values for _, values in said)
    try:
        expression, _ = expression_of(text)
    except cron.BadSchedule:  # it can never fire
        return
    found = cron.parse(expression)
    assert found.minutes == bits(minute, 60)
    assert found.hours == bits(hour, 24)
    at = date(2026, 1, 1) + timedelta(days=days_later)
    matches = [day is None or at.day in day, weekday is None or at.isoweekday() % 7 in weekday]
    either = day is not None and weekday is not None
    by_fugit = (month is None or at.month in month) and (any(matches) if either else all(matches))
    ours = found.months >> at.month & 1 and found.days.of_month(at.year, at.month) >> at.day & 1
    assert bool(ours) == by_fugit


def bits(values: set[int] | None, count: int) -> int:
    return sum(1 << value for value in (range(count) if values is None else values))
