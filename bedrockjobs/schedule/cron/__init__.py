"""Cron schedules: expressions, Cronken's ``cron_args``, their ticks and their description.

The package is independent of the rest of the server, of jobs, clock and store.

It does not wrap cronsim because the dialect here is larger (years, ``15W``, ``@never``, mappings whose day
fields are ANDed), three rules differ (``*/2`` restricts a day field, ``1/2`` ends with Saturday, seconds do
not change what happens when a clock is put back), and cronsim gives up after 50 years.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from bedrockjobs.base.jsontext import whole_number
from bedrockjobs.schedule.cron.expression import (
    AROUND,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    instead_of_every,
    parse_cron_args,
    parse_expression,
    texts_of,
)
from bedrockjobs.schedule.cron.plan import (
    EVERY_YEAR,
    LAST,
    YEAR_MIN,
    BadSchedule,
    DayField,
    DayRule,
    Schedule,
    count_moments,
    find_zone,
    next_moment,
)

__all__ = [
    "AROUND",
    "BadSchedule",
    "Schedule",
    "count_ticks",
    "describe",
    "instead_of_every",
    "next_tick",
    "parse",
    "split_zone",
]

PARSED_MAX = 16_384
"""Maximum number of parsed schedules in the cache, about 1 kB each: more than a server has, so that each is
parsed once."""

_PREFIX = re.compile(r"(?:CRON(?=[ \t]|$)[ \t]*)?(?:(?:CRON_)?TZ=([^ \t]*)[ \t]*)?", re.IGNORECASE)


def next_tick(expression: str | Mapping[str, str], after: datetime, zone: str = "UTC") -> datetime | None:
    """Return the first time strictly after ``after`` at which the expression fires; None if there is none.

    ``after`` must be aware. The result is in UTC, so that results compare correctly even if a zone's clock is
    put back. A mapping is Cronken's ``cron_args``, whose ``timezone`` takes precedence over ``zone``. Raises
    BadSchedule for an invalid expression or zone.
    """
    if after.tzinfo is None:
        raise ValueError("after: expected a datetime with a time zone")
    schedule = parse(expression)
    return next_moment(schedule, after, find_zone(schedule.zone or zone))


def count_ticks(
    expression: str | Mapping[str, str], after: datetime, until: datetime, zone: str = "UTC"
) -> int:
    """Return how often the expression fires after ``after`` and up to ``until``, both aware.

    Counting a year of ticks every second takes about as long as a year of ticks every day. Raises
    BadSchedule.
    """
    schedule = parse(expression)
    return count_moments(schedule, after, until, find_zone(schedule.zone or zone)) if schedule.years else 0


def parse(expression: str | Mapping[str, str]) -> Schedule:
    """Parse an expression, or ``cron_args`` as a mapping or its JSON text.

    Raises BadSchedule, also for an expression that can never fire.
    """
    if isinstance(expression, str):
        return _parse_text(expression)
    return _parse_mapping(tuple(texts_of(expression).items()))


def describe(expression: str | Mapping[str, str]) -> str:
    """Describe in plain words when the expression fires: ``at 09:00, on Monday to Friday``."""
    return words_for(parse(expression))


def split_zone(text: str) -> tuple[str, str]:
    """Split ``CRON TZ=Europe/Berlin 0 9 * * 1-5`` into its zone and its expression.

    ``CRON`` is optional, the default zone is ``UTC``. Raises BadSchedule for an unknown zone.
    """
    text = text.strip(AROUND)
    prefix = _PREFIX.match(text)
    assert prefix is not None
    zone = "UTC" if prefix[1] is None else prefix[1]
    find_zone(zone)
    return zone, text[prefix.end() :]


@lru_cache(maxsize=PARSED_MAX)
def _parse_text(text: str) -> Schedule:
    if text.lstrip(AROUND).startswith("{"):
        return _parse_json(text)
    return parse_expression(text)


def _parse_json(text: str) -> Schedule:
    """Parse ``cron_args`` as a JSON object, for schedules that no expression can express."""
    try:
        arguments = json.loads(text, parse_int=whole_number)
    except RecursionError:
        raise BadSchedule("cron_args", text, "a JSON object that is not nested so deep") from None
    except ValueError as error:
        raise BadSchedule("cron_args", text, f"a JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise BadSchedule("cron_args", text, "a JSON object")
    if "jitter" in arguments:
        raise BadSchedule("jitter", str(arguments["jitter"]), "no jitter here; it is an option of the job")
    return parse(arguments)


@lru_cache(maxsize=PARSED_MAX)
def _parse_mapping(items: tuple[tuple[str, str], ...]) -> Schedule:
    return parse_cron_args(dict(items))


# The description is derived from the sets of values, not from the text, so it says what will really happen.


_PLACES = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 5: "5th", LAST: "last"}
_WEEKDAYS = [name.capitalize() for name in (*WEEKDAY_NAMES[1:], WEEKDAY_NAMES[0])]
_MONTHS = ["", *(name.capitalize() for name in MONTH_NAMES)]


def words_for(schedule: Schedule) -> str:
    """Describe when the schedule fires, without its zone."""
    if not schedule.years:
        return "never by itself, only when triggered"
    parts = [_time(_values(schedule.seconds), _values(schedule.minutes), _values(schedule.hours))]
    parts.append(_days(schedule.days))
    if schedule.days.weeks:
        parts.append(f"in ISO week {_listed(_values(schedule.days.weeks))}")
    if len(months := _values(schedule.months)) < 12:
        parts.append(f"in {_listed(months, _MONTHS)}")
    if schedule.years != EVERY_YEAR:
        parts.append(f"in {_listed([YEAR_MIN + year for year in _values(schedule.years)])}")
    if not any(parts[1:]) and parts[0].startswith("at ") and ":" in parts[0]:
        parts.append("every day")
    parts += [
        f"{word} {_shown(at)}" for word, at in (("from", schedule.start), ("until", schedule.end)) if at
    ]
    return ", ".join(part for part in parts if part)


def _time(seconds: list[int], minutes: list[int], hours: list[int]) -> str:
    regular = _regular_time(seconds, minutes, hours)
    if regular:
        return regular
    # Times of day that are listed individually; more are described by minutes and hours.
    if len(seconds) * len(minutes) * len(hours) <= 6:
        tail = "" if seconds == [0] else ":{:02}"
        form = "{:02}:{:02}" + tail
        return "at " + _joined(form.format(h, m, s) for h in hours for m in minutes for s in seconds)
    parts = [] if seconds == [0] else [_unit("second", seconds, 60)]
    if len(minutes) < 60 or not parts:
        parts.append(_unit("minute", minutes, 60))
    if len(hours) < 24:
        parts.append(f"in {'hour' if len(hours) == 1 else 'hours'} {_listed(hours)}")
    elif len(minutes) < 60 and not _step(minutes, 60):
        parts.append("of every hour")
    else:
        parts += [] if len(minutes) < 60 else ["of every minute"]
    return " ".join(parts)


def _regular_time(seconds: list[int], minutes: list[int], hours: list[int]) -> str:
    """Return ``every 5 minutes`` and the like if the ticks are evenly spaced, else an empty text."""
    steps = (_step(seconds, 60), _step(minutes, 60), _step(hours, 24))
    if steps[1:] == (1, 1) and steps[0]:
        return _every(steps[0], "second")
    if seconds == [0] and steps[2] == 1 and steps[1]:
        return _every(steps[1], "minute")
    if seconds == [0] and len(minutes) == 1 and (steps[2] > 1 or (steps[2] and minutes == [0])):
        return _every(steps[2], "hour") + (f", from 00:{minutes[0]:02} on" if steps[2] > 1 else "")
    return ""


def _step(values: list[int], count: int) -> int:
    """Return the step if the values divide the whole range of the field evenly, or 0."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step and count % step == 0 and values == list(range(0, count, step)) else 0


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _unit(unit: str, values: list[int], count: int) -> str:
    if step := _step(values, count):
        return _every(step, unit)
    return f"at {unit if len(values) == 1 else unit + 's'} {_listed(values)}"


def _days(rule: DayRule) -> str:
    fields = [_day_field(field) for field in (rule.month_day, rule.week_day) if not field.every]
    return (" or " if rule.either else ", but only ").join(fields)


def _day_field(field: DayField) -> str:
    chosen = []
    if days := _values(field.days):
        chosen.append(f"{'day' if len(days) == 1 else 'days'} {_listed(days)} of the month")
    if field.weekdays:
        chosen.append(_listed(_values(field.weekdays), _WEEKDAYS))
    chosen += [f"the {_PLACES[n]} {_WEEKDAYS[weekday]} of the month" for weekday, n in sorted(field.places)]
    chosen += [f"the working day nearest to day {day}" for day in sorted(field.nearest)]
    chosen += ["the last day of the month"] if field.last else []
    chosen += ["the last working day of the month"] if field.last_workday else []
    return "on " + _joined(chosen)


def ranges(values: Iterable[int], names: Sequence[str] = (), to: str = "-") -> list[str]:
    """Return ascending values as text; three or more consecutive values become a range such as ``9-17``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    result = []
    for run in runs:
        shown = [names[value] if names else str(value) for value in run]
        result += shown if len(run) < 3 else [f"{shown[0]}{to}{shown[-1]}"]
    return result


def _listed(values: list[int], names: Sequence[str] = ()) -> str:
    """Return values as text, such as ``1, 5 and 9 to 17``."""
    return _joined(ranges(values, names, " to "))


def _joined(parts: Iterable[str]) -> str:
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last


def _values(chosen: int) -> list[int]:
    return [value for value in range(chosen.bit_length()) if chosen >> value & 1]


def _shown(at: datetime) -> str:
    return at.isoformat(" ")
