"""Reading an expression of five to seven fields, a macro, an interval or a weekday.

Here is decided what fields mean together; ``cron_args`` reads Cronken's mappings, which mean other things.
"""

from __future__ import annotations

import re
from datetime import datetime

from bedrockjobs.schedule.cron import fields
from bedrockjobs.schedule.cron.days import DayField, DayRule
from bedrockjobs.schedule.cron.plan import YEAR_MAX, YEAR_MIN, Schedule
from bedrockjobs.schedule.cron.problem import AROUND, BadSchedule

EXPRESSION_MAX = 2000
"""Characters of an expression: room for a list in every field, and a bound on what reading one can cost."""

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
_INTERVALS = {
    "s": (fields.SECOND, "*/{} * * * * *"),
    "m": (fields.MINUTE, "0 */{} * * * *"),
    "h": (fields.HOUR, "0 0 */{} * * *"),
}
_EVERY = ("every", "@every")
"""What other systems put before an interval, and we do without."""
_PERIODS = {
    "second": "1s", "minute": "@minutely", "hour": "@hourly", "day": "@daily", "week": "@weekly",
    "month": "@monthly", "year": "@yearly", "weekday": "0 0 * * 1-5",
}  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNIT = "(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)"
_DURATION = re.compile(rf"(?:[0-9]{{1,9}}(?:\.[0-9]{{1,9}})? ?{_UNIT} ?)+")
_PARTS = re.compile(rf"([0-9.]+) ?({_UNIT})")
_YEAR = re.compile(r"(?<![0-9/])[0-9]{4}")
_NO_SEPARATOR = re.compile(r"[^\S \t]")
"""Blanks of other kinds: ends of lines, no-break and ideographic spaces, what other programs paste."""
_NO_DAYS = DayRule(DayField(), DayField(), either=False)


def parse_expression(text: str) -> Schedule:
    """Read an expression; raises BadSchedule that names the field, the value and what was expected."""
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
    """Raise BadSchedule for an expression that is too long to be read."""
    if len(text) > EXPRESSION_MAX:
        raise BadSchedule("expression", text, f"at most {EXPRESSION_MAX} characters")


def fields_of(text: str) -> list[str]:
    """Return the fields of an expression; only blanks and tabs stand between them. Raises BadSchedule."""
    inner = text.strip(AROUND)
    if other := _NO_SEPARATOR.search(inner):
        raise BadSchedule("expression", inner, f"blanks or tabs between fields, not U+{ord(other[0]):04X}")
    return [field for field in re.split("[ \t]", inner) if field]


def instead_of_every(text: str) -> tuple[str, str]:
    """Split ``every 5 minutes`` or ``@every 1h30m`` into its interval and what means that here.

    The latter is an expression such as ``5m``, or a repeat such as ``FINISHED, +90 MINUTES`` if no expression
    has such an interval; empty if it cannot be told. Both are empty for a text that begins with another word.
    """
    word, _, interval = " ".join(text.split()).partition(" ")
    if word.lower() not in _EVERY:
        return "", ""
    lower = interval.lower()
    if (period := _PERIODS.get(lower)) is not None:
        return interval, period
    if lower in fields.WEEK_DAY.names:
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
        if not rest and count < 1_000:  # a repeat has three digits of them
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
    """Return the fields that a macro, an interval or a weekday stands for."""
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
    if word.lower() in fields.WEEK_DAY.names:
        return f"0 0 * * {word}"
    raise BadSchedule("expression", word, FORMS)


def _schedule(text: str, seven: list[str]) -> Schedule:
    second, minute, hour, month_day, month, week_day, year = seven
    seconds = fields.values_of(fields.SECOND, second)
    minutes = fields.values_of(fields.MINUTE, minute)
    hours = fields.values_of(fields.HOUR, hour)
    month_days = fields.month_days_of(month_day)
    months = fields.values_of(fields.MONTH, month)
    week_days = fields.week_days_of(week_day)
    schedule = Schedule(
        seconds,
        minutes,
        hours,
        DayRule(month_days, week_days, either=not (month_days.every or week_days.every)),
        months,
        fields.years_of(year),
        wild="*" in minute or "*" in hour,
    )
    if schedule.first_from(datetime(YEAR_MIN, 1, 1)) is None:
        field, value = (fields.WEEK_DAY, week_day) if month_days.every else (fields.MONTH_DAY, month_day)
        years = f"{YEAR_MIN}-{YEAR_MAX}" if year == "*" else year
        expected = f"a day that month {month} of year {years} has; {text!r} would never fire"
        raise BadSchedule(field.name, value, expected)
    return schedule
