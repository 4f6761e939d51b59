"""Parsing of Cronken's ``cron_args``: the keyword arguments of APScheduler 3's cron trigger.

They differ from an expression in three ways: 0 is Monday; a day must match all day fields; and an absent
field is ``*`` if its unit is larger than the smallest unit present, else its first value. Clock changes
follow this package's rule. ``jitter`` is only validated; the caller applies it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from bedrockjobs.schedule.cron.expression import (
    EXPRESSION_MAX,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    BadSchedule,
    CronField,
    parse_expression,
)
from bedrockjobs.schedule.cron.plan import EVERY_YEAR, LAST, YEAR_MAX, YEAR_MIN, DayField, DayRule, Schedule
from bedrockjobs.schedule.cron.zones import find_zone

_MONTHS = {name[:3]: n for n, name in enumerate(MONTH_NAMES, 1)}
_WEEKDAYS = {name[:3]: (n - 1) % 7 for n, name in enumerate(WEEKDAY_NAMES)}
_PLACES = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": LAST}

_FIELDS = {
    "year": CronField("year", YEAR_MIN, 9999),
    "month": CronField("month", 1, 12, _MONTHS, " or a name such as jan"),
    "day": CronField("day", 1, 31, {}, ", last, or a form such as 2nd fri"),
    "week": CronField("week", 1, 53),
    "day_of_week": CronField("day_of_week", 0, 6, _WEEKDAYS, " (0 is Monday) or a name such as mon"),
    "hour": CronField("hour", 0, 23),
    "minute": CronField("minute", 0, 59),
    "second": CronField("second", 0, 59),
}
"""The fields in the order of APScheduler's trigger, largest unit first."""

_BELOW = {"month": "1", "day": "1", "hour": "0", "minute": "0", "second": "0"}
_OTHERS = ("cronstring", "timezone", "start_date", "end_date", "jitter")
_BLANKS = " \t"
_TERM = re.compile(r"(\*|[^-/]+)(?:-([^-/]+))?(?:/([0-9]{1,4}))?")
_DATE = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,6}))?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def texts_of(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return the arguments that are given as text; numbers are converted, and None counts as not given."""
    texts = {}
    for key, value in arguments.items():
        if key not in _FIELDS and key not in _OTHERS:
            raise BadSchedule("cron_args", str(key), f"one of {', '.join([*_FIELDS, *_OTHERS])}")
        if value is None:
            continue
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadSchedule(key, repr(value), "a string or a whole number")
        texts[key] = str(value)
        if len(texts[key]) > EXPRESSION_MAX:
            raise BadSchedule(key, texts[key], f"at most {EXPRESSION_MAX} characters")
    return texts


def parse_cron_args(arguments: Mapping[str, str]) -> Schedule:
    """Parse the result of ``texts_of``; raises BadSchedule with the argument, its value and its range."""
    named = [name for name in _FIELDS if name in arguments]
    zone = arguments.get("timezone", "")
    if zone:
        find_zone(zone)
    jitter = arguments.get("jitter", "0")
    if not (jitter.isascii() and jitter.isdigit()):
        raise BadSchedule("jitter", jitter, "a whole number of seconds, 0 or more")
    if "cronstring" in arguments:
        if named:
            raise BadSchedule("cronstring", arguments["cronstring"], f"no {named[0]} in addition")
        schedule = parse_expression(arguments["cronstring"])
    elif named:
        schedule = _schedule(arguments, named)
    else:
        raise BadSchedule("cron_args", "", f"cronstring or at least one of {', '.join(_FIELDS)}")
    return replace(
        schedule,
        zone=zone,
        start=_date("start_date", arguments.get("start_date")),
        end=_date("end_date", arguments.get("end_date")),
    )


def _schedule(arguments: Mapping[str, str], named: list[str]) -> Schedule:
    order = list(_FIELDS)
    below = order[order.index(named[-1]) + 1 :]
    text = {
        name: arguments.get(name, _BELOW.get(name, "*") if name in below else "*").strip(_BLANKS)
        for name in order
    }
    sets = {name: _values(_FIELDS[name], text[name]) for name in order if name != "day"}
    weekdays = DayField(weekdays=sets["day_of_week"], every=text["day_of_week"] == "*")
    schedule = Schedule(
        seconds=sets["second"],
        minutes=sets["minute"],
        hours=sets["hour"],
        days=DayRule(
            _days(text["day"]), weekdays, either=False, weeks=0 if text["week"] == "*" else sets["week"]
        ),
        months=sets["month"],
        years=sets["year"] >> YEAR_MIN & EVERY_YEAR,
        wild="*" in text["minute"] or "*" in text["hour"],
    )
    if schedule.first_from(datetime(YEAR_MIN, 1, 1)) is None:
        shown = ", ".join(f"{name}={arguments[name]}" for name in named)
        raise BadSchedule("cron_args", shown, f"a date that exists in the years {YEAR_MIN}-{YEAR_MAX}")
    return schedule


def _values(field: CronField, text: str) -> int:
    bits = 0
    for term in re.split(" *, *", text):
        for value in _spread(field, term):
            bits |= 1 << value
    return bits


def _days(text: str) -> DayField:
    field = _FIELDS["day"]
    days, places, last = 0, set(), False
    for term in re.split(" *, *", text):
        place, *weekday = re.split("[ \t]+", term.lower())
        if place == "last" and not weekday:
            last = True
        elif place in _PLACES and len(weekday) == 1:
            if weekday[0] not in _WEEKDAYS:
                raise field.bad(term, "a place and a weekday, such as 2nd fri or last mon")
            places.add((_WEEKDAYS[weekday[0]], _PLACES[place]))
        else:
            for value in _spread(field, term):
                days |= 1 << value
    return DayField(days=days, places=frozenset(places), last=last, every=text == "*")


def _spread(field: CronField, term: str) -> range:
    if (parts := _TERM.fullmatch(term)) is None or (parts[1] == "*" and parts[2]):
        raise field.bad(term, "*, a number, a range or a step, such as */5, 1-5 or 10-50/5")
    first = field.low if parts[1] == "*" else field.number(parts[1], term)
    last = field.high if parts[1] == "*" or parts[3] else first
    if parts[2]:
        last = field.number(parts[2], term)
    if last < first:
        raise field.bad(term, f"a range that goes up, within {field.range}")
    step = int(parts[3] or 1)
    if parts[3] and not 1 <= step <= last - first:
        raise field.bad(term, f"a step of at most {last - first}, the length of its range")
    if parts[3] and parts[1].lower() in field.names:
        raise field.bad(term, "no step after a name; a number takes one")
    return range(first, last + 1, step)


def _date(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    expected = "a date such as 2030-01-31 or 2030-01-31 09:00:00, optionally with an offset such as +02:00"
    if (parts := _DATE.fullmatch(text.strip(_BLANKS))) is None:
        raise BadSchedule(name, text, expected)
    *numbers, micro, offset = parts.groups()
    try:
        moment = datetime(*(int(n or 0) for n in numbers), microsecond=int(micro or 0))  # type: ignore[misc,arg-type]
    except ValueError:
        raise BadSchedule(name, text, expected) from None
    if offset is None:
        return moment
    if offset == "Z":
        return moment.replace(tzinfo=UTC)
    ahead = timedelta(hours=int(offset[1:3]), minutes=int(offset[4:]))
    if ahead >= timedelta(days=1):
        raise BadSchedule(name, text, expected)
    return moment.replace(tzinfo=timezone(ahead if offset[0] == "+" else -ahead))
