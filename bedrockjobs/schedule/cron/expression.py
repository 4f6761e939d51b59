"""Parsing of cron expressions, and of Cronken's ``cron_args``, whose fields act together in another way.

An expression has five to seven fields, or is a macro, an interval or a weekday.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from bedrockjobs.schedule.cron.plan import (
    EVERY_YEAR,
    LAST,
    YEAR_MAX,
    YEAR_MIN,
    BadSchedule,
    DayField,
    DayRule,
    Schedule,
    find_zone,
)

AROUND = " \t\r\n"
"""Characters that are ignored before and after a schedule, including line ends of a file."""

# The grammar of a single field: ``*``, values, names, ranges, steps and lists of them.


MONTH_NAMES = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
WEEKDAY_NAMES = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]


def _numbered(names: list[str], start: int) -> dict[str, int]:
    return {form: n for n, name in enumerate(names, start) for form in (name, name[:3])}


class CronField(NamedTuple):
    """A field's name and the values it accepts."""

    name: str
    low: int
    high: int
    names: dict[str, int] = {}
    forms: str = ""
    """What the field accepts in addition to numbers, in words for messages."""

    @property
    def range(self) -> str:
        """Return the field's range as text: ``0-59``."""
        return f"{self.low}-{self.high}"

    def bad(self, value: str, expected: str) -> BadSchedule:
        """Return the error for ``value`` in this field."""
        return BadSchedule(self.name, value, expected, self.range)

    def number(self, text: str, term: str) -> int:
        """Parse one number or name; ``term`` is shown in the error."""
        if (named := self.names.get(text.lower())) is not None:
            return named
        if text == "?":
            raise self.bad(term, "* for any value; ? is accepted only in a day field of an expression")
        if not (text.isascii() and text.isdigit()):
            raise self.bad(term, f"a number in {self.range}{self.forms}")
        # A number of hundreds of digits is out of range without being converted.
        if len(text) > 9 or not self.low <= int(text) <= self.high:
            raise self.bad(term, f"a number in {self.range}")
        return int(text)


SECOND = CronField("second", 0, 59)
MINUTE = CronField("minute", 0, 59)
HOUR = CronField("hour", 0, 23)
MONTH_DAY = CronField("day-of-month", 1, 31, {}, ", L, LW or a form such as 15W")
MONTH = CronField("month", 1, 12, _numbered(MONTH_NAMES, 1), " or a name such as JAN")
WEEK_DAY = CronField(
    "day-of-week", 0, 7, _numbered(WEEKDAY_NAMES, 0), ", a name such as MON, or a form such as 5L or 5#2"
)
YEAR = CronField("year", YEAR_MIN, YEAR_MAX)

ALL = (SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEK_DAY, YEAR)
"""All fields, in the order of an expression of seven fields."""

_SUNDAY_AGAIN = 7
_OPEN = "?"
"""Leaves a day field unrestricted, as ``*`` does; Quartz and gorhill have this form."""


def values_of(field: CronField, text: str) -> int:
    """Return the values of a field without special forms, as a set in which bit n stands for n."""
    bits = 0
    for term in _terms(field, text):
        for value in _spread(field, term):
            bits |= 1 << value
    return bits


def years_of(text: str) -> int:
    """Return the years as bits; bit 0 is ``YEAR_MIN``, the first year that a schedule may name."""
    return values_of(YEAR, text) >> YEAR_MIN


def month_days_of(text: str) -> DayField:
    """Parse a day-of-month field, with ``L``, ``LW`` and ``15W``."""
    days, nearest, last, last_workday = 0, set(), False, False
    terms = _day_terms(MONTH_DAY, text)
    for term in terms:
        upper = term.upper()
        if upper == "L":
            last = True
        elif upper == "LW":
            last_workday = True
        elif upper.endswith("W"):
            nearest.add(MONTH_DAY.number(term[:-1], term))
        else:
            for value in _spread(MONTH_DAY, term):
                days |= 1 << value
    return DayField(days, 0, frozenset(), frozenset(nearest), last, last_workday, every="*" in terms)


def week_days_of(text: str) -> DayField:
    """Parse a day-of-week field (0 and 7 are Sunday), with ``5L`` and ``5#2``."""
    weekdays, places = 0, set()
    terms = _day_terms(WEEK_DAY, text)
    for term in terms:
        day, hash_, place = term.partition("#")
        if hash_:
            if place not in ("1", "2", "3", "4", "5"):
                raise WEEK_DAY.bad(term, "a weekday and its place in the month, such as 5#2 (place 1-5)")
            places.add((_from_monday(WEEK_DAY.number(day, term)), int(place)))
        elif term[-1:] in ("L", "l") and term.lower() not in WEEK_DAY.names:
            if len(term) == 1:
                raise WEEK_DAY.bad(term, "a weekday before the L, such as 5L for the last Friday")
            places.add((_from_monday(WEEK_DAY.number(term[:-1], term)), LAST))
        else:
            for value in _spread(WEEK_DAY, term):
                weekdays |= 1 << _from_monday(value)
    return DayField(weekdays=weekdays, places=frozenset(places), every="*" in terms)


def members_of(field: CronField, term: str) -> frozenset[int]:
    """Return the values of a term without special forms, with 0 for Sunday. Raises BadSchedule."""
    values = 0
    for value in _spread(field, term):
        values |= 1 << (value % _SUNDAY_AGAIN if field is WEEK_DAY else value)
    return frozenset(value for value in range(values.bit_length()) if values >> value & 1)


def _from_monday(weekday: int) -> int:
    return (weekday - 1) % 7


def _terms(field: CronField, text: str) -> list[str]:
    terms = text.split(",")
    if "" in terms:
        raise field.bad(text, "a value on both sides of each comma")
    return terms


def _day_terms(field: CronField, text: str) -> list[str]:
    return ["*"] if text == _OPEN else _terms(field, text)


def _spread(field: CronField, term: str) -> range:
    """Return the values of ``*``, ``x`` or ``x-y``, each optionally with ``/step``."""
    body, slash, step_text = term.partition("/")
    step = _step(field, step_text, term) if slash else 1
    # In `*` and `x/y` a week ends with Saturday, so that Sunday is not counted twice.
    end = field.high - 1 if field is WEEK_DAY else field.high
    if body == "*":
        return range(field.low, end + 1, step)
    if not re.search("[^-]-[^-]", body):
        value = field.number(body, term)
        return range(value, (max(value, end) if slash else value) + 1, step)
    first_text, _, last_text = body.partition("-")
    first, last = field.number(first_text, term), field.number(last_text, term)
    if field is WEEK_DAY and not last and not last_text.isdigit():
        last = _SUNDAY_AGAIN if first else 0
    if field is WEEK_DAY and first == _SUNDAY_AGAIN and last < first:
        first = 0  # from Sunday on
    if last < first:
        raise field.bad(term, f"a range that goes up, within {field.range}")
    return range(first, last + 1, step)


def _step(field: CronField, text: str, term: str) -> int:
    """Parse a step; a step larger than the range leaves only the first value, as in most other crons."""
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not int(text):
        raise field.bad(term, "a step in 1-999999999")
    return int(text)


EXPRESSION_MAX = 2000
"""Maximum characters of an expression: room for a list in every field, and a bound on the cost of parsing."""

FORMS = "5 to 7 fields, an interval such as 5m, a weekday such as Mon, or a macro such as @daily"

NEVER = "@never"

MACROS = {
    "@minutely": "* * * * *",
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_INTERVAL = re.compile(r"([0-9]+)([smh])", re.IGNORECASE)
_INTERVALS = {"s": (SECOND, "*/{} * * * * *"), "m": (MINUTE, "0 */{} * * * *"), "h": (HOUR, "0 0 */{} * * *")}
_EVERY = ("every", "@every")
"""Words that other systems put before an interval, and that an expression here leaves out."""
_PERIODS = {
    "second": "1s",
    "minute": "@minutely",
    "hour": "@hourly",
    "day": "@daily",
    "week": "@weekly",
    "month": "@monthly",
    "year": "@yearly",
    "weekday": "0 0 * * 1-5",
}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNIT = "(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)"
_DURATION = re.compile(rf"(?:[0-9]{{1,9}}(?:\.[0-9]{{1,9}})? ?{_UNIT} ?)+")
_PARTS = re.compile(rf"([0-9.]+) ?({_UNIT})")
_YEAR = re.compile(r"(?<![0-9/])[0-9]{4}")
_NO_SEPARATOR = re.compile(r"[^\S \t]")
"""Matches a blank that does not separate fields but may be pasted: a line end, a no-break or an ideographic
space."""
_NO_DAYS = DayRule(DayField(), DayField(), either=False)


def parse_expression(text: str) -> Schedule:
    """Parse an expression; raises BadSchedule with the field, the value and what was expected."""
    check_length(text)
    words = fields_of(text)
    if words and words[0].lower() in _EVERY:
        raise _every(text.strip(AROUND), *instead_of_every(text))
    if len(words) == 1:
        if words[0].lower() == NEVER:
            return Schedule(1, 1, 1, _NO_DAYS, 0, 0, wild=False)
        words = fields_of(_written_out(words[0]))
    second, year = "0", "*"
    if len(words) == 7:
        second, *words, year = words
    elif len(words) == 6 and _YEAR.search(words[-1]):
        *words, year = words
    elif len(words) == 6:
        second, *words = words
    if len(words) != 5:
        raise BadSchedule("expression", text.strip(AROUND), FORMS)
    return _schedule(text.strip(AROUND), [second, *words, year])


def check_length(text: str) -> None:
    """Raise BadSchedule for an expression that is too long."""
    if len(text) > EXPRESSION_MAX:
        raise BadSchedule("expression", text, f"at most {EXPRESSION_MAX} characters")


def fields_of(text: str) -> list[str]:
    """Split an expression at blanks and tabs; raises BadSchedule for other separators."""
    inner = text.strip(AROUND)
    if other := _NO_SEPARATOR.search(inner):
        raise BadSchedule("expression", inner, f"blanks or tabs between fields, not U+{ord(other[0]):04X}")
    return [field for field in re.split("[ \t]", inner) if field]


def instead_of_every(text: str) -> tuple[str, str]:
    """Split ``every 5 minutes`` or ``@every 1h30m`` into its interval and what to write instead.

    The text to write instead is an expression such as ``5m``, or a repeat such as ``FINISHED, +90 MINUTES``
    if no expression has such an interval; empty if there is none. Both results are empty if the text does not
    begin with ``every`` or ``@every``.
    """
    word, _, interval = " ".join(text.split()).partition(" ")
    if word.lower() not in _EVERY:
        return "", ""
    lower = interval.lower()
    if (period := _PERIODS.get(lower)) is not None:
        return interval, period
    if lower in WEEK_DAY.names:
        return interval, interval[:3]
    parts = [(float(number), _SECONDS[unit[0]]) for number, unit in _PARTS.findall(lower)]
    seconds = sum(number * size for number, size in parts)
    if not _DURATION.fullmatch(lower) or not 1 <= seconds < 10**8 or seconds != int(seconds):
        return interval, ""
    whole = int(seconds)
    for unit, (field, _) in reversed(_INTERVALS.items()):
        count, rest = divmod(whole, _SECONDS[unit])
        if not rest and 1 <= count <= field.high:
            return interval, f"{count}{unit}"
    if whole == _SECONDS["d"]:
        return interval, "@daily"
    for unit, name in (("h", "HOURS"), ("m", "MINUTES")):
        count, rest = divmod(whole, _SECONDS[unit])
        if not rest and count < 1_000:  # a repeat allows three digits
            return interval, f"FINISHED, +{count} {name}"
    return interval, f"FINISHED, +{whole} SECONDS"


def _every(text: str, interval: str, meant: str) -> BadSchedule:
    expected = f"{FORMS}, without the word every"
    if meant.startswith("FINISHED"):
        expected = f"a time by the clock; every {interval} after the end of a run is the repeat {meant}"
    elif meant:
        expected = f"{meant} to mean every {interval}"
    return BadSchedule("expression", text, expected)


def _written_out(word: str) -> str:
    """Return the fields for which a macro, an interval or a weekday stands."""
    if word.startswith("@"):
        if (macro := MACROS.get(word.lower())) is None:
            raise BadSchedule("expression", word, f"one of {', '.join([*MACROS, NEVER])}")
        return macro
    if interval := _INTERVAL.fullmatch(word):
        field, form = _INTERVALS[interval[2].lower()]
        if len(interval[1]) > 2 or not 1 <= int(interval[1]) <= field.high:
            raise BadSchedule(
                field.name, word, f"an interval of 1-{field.high} {field.name}s", f"1-{field.high}"
            )
        return form.format(int(interval[1]))
    if word.lower() in WEEK_DAY.names:
        return f"0 0 * * {word}"
    raise BadSchedule("expression", word, FORMS)


def _schedule(text: str, seven: list[str]) -> Schedule:
    second, minute, hour, month_day, month, week_day, year = seven
    seconds = values_of(SECOND, second)
    minutes = values_of(MINUTE, minute)
    hours = values_of(HOUR, hour)
    month_days = month_days_of(month_day)
    months = values_of(MONTH, month)
    week_days = week_days_of(week_day)
    schedule = Schedule(
        seconds,
        minutes,
        hours,
        DayRule(month_days, week_days, either=not (month_days.every or week_days.every)),
        months,
        years_of(year),
        wild="*" in minute or "*" in hour,
    )
    if schedule.first_from(datetime(YEAR_MIN, 1, 1)) is None:
        field, value = (WEEK_DAY, week_day) if month_days.every else (MONTH_DAY, month_day)
        years = f"{YEAR_MIN}-{YEAR_MAX}" if year == "*" else year
        expected = f"a day that exists in month {month} of year {years}; {text!r} would never fire"
        raise BadSchedule(field.name, value, expected)
    return schedule


# Cronken's ``cron_args``: the keyword arguments of APScheduler 3's cron trigger.
#
# They differ from an expression in three ways: 0 is Monday; a day must match all day fields; and an absent
# field is ``*`` if its unit is larger than the smallest unit present, else its first value. Clock changes
# follow this package's rule. ``jitter`` is only validated; the caller applies it.


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
        schedule = _schedule_of(arguments, named)
    else:
        raise BadSchedule("cron_args", "", f"cronstring or at least one of {', '.join(_FIELDS)}")
    return replace(
        schedule,
        zone=zone,
        start=_date("start_date", arguments.get("start_date")),
        end=_date("end_date", arguments.get("end_date")),
    )


def _schedule_of(arguments: Mapping[str, str], named: list[str]) -> Schedule:
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
        for value in _spread_of(field, term):
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
            for value in _spread_of(field, term):
                days |= 1 << value
    return DayField(days=days, places=frozenset(places), last=last, every=text == "*")


def _spread_of(field: CronField, term: str) -> range:
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
