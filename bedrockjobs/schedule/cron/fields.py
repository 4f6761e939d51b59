"""The grammar of one crontab field: ``*``, values, names, ranges, steps and lists of them.

It knows what a field may hold, not how many fields there are nor what they mean together.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bedrockjobs.schedule.cron.days import LAST, DayField
from bedrockjobs.schedule.cron.plan import YEAR_MAX, YEAR_MIN
from bedrockjobs.schedule.cron.problem import BadSchedule

MONTH_NAMES = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
WEEKDAY_NAMES = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]


def _numbered(names: list[str], start: int) -> dict[str, int]:
    return {form: n for n, name in enumerate(names, start) for form in (name, name[:3])}


class Field(NamedTuple):
    """A field's name and the values it takes."""

    name: str
    low: int
    high: int
    names: dict[str, int] = {}
    forms: str = ""
    """What it takes beside numbers, for messages."""

    @property
    def range(self) -> str:
        """Return the field's range in words: ``0-59``."""
        return f"{self.low}-{self.high}"

    def bad(self, value: str, expected: str) -> BadSchedule:
        """Return the error for ``value`` in this field."""
        return BadSchedule(self.name, value, expected, self.range)

    def number(self, text: str, term: str) -> int:
        """Read one number or name; ``term`` is what the message shows."""
        if (named := self.names.get(text.lower())) is not None:
            return named
        if text == "?":
            raise self.bad(term, "* where a field is left open; ? leaves open a day field of an expression")
        if not (text.isascii() and text.isdigit()):
            raise self.bad(term, f"a number in {self.range}{self.forms}")
        # A number of hundreds of digits is out of range without being converted.
        if len(text) > 9 or not self.low <= int(text) <= self.high:
            raise self.bad(term, f"a number in {self.range}")
        return int(text)


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
MONTH_DAY = Field("day-of-month", 1, 31, {}, ", L, LW or a form such as 15W")
MONTH = Field("month", 1, 12, _numbered(MONTH_NAMES, 1), " or a name such as JAN")
WEEK_DAY = Field(
    "day-of-week", 0, 7, _numbered(WEEKDAY_NAMES, 0), ", a name such as MON, or a form such as 5L or 5#2"
)
YEAR = Field("year", YEAR_MIN, YEAR_MAX)

ALL = (SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEK_DAY, YEAR)
"""In the order of an expression of seven fields."""

STEP_MAX = 999_999_999
"""The longest step that is read: far beyond every field, and quick to convert."""

_SUNDAY_AGAIN = 7
_OPEN = "?"
"""What leaves a day field open beside ``*``, in the manner of Quartz and gorhill."""


def values_of(field: Field, text: str) -> int:
    """Return the set of values that ``text`` means in a field without special forms."""
    found = 0
    for term in _terms(field, text):
        for value in _spread(field, term):
            found |= 1 << value
    return found


def years_of(text: str) -> int:
    """Return the years, bit 0 being the first that a schedule may name."""
    return values_of(YEAR, text) >> YEAR_MIN


def month_days_of(text: str) -> DayField:
    """Read a day-of-month field, with ``L``, ``LW`` and ``15W``."""
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
    """Read a day-of-week field (0 and 7 are Sunday), with ``5L`` and ``5#2``."""
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


def members_of(field: Field, term: str) -> frozenset[int]:
    """Return the values of a term without special forms, Sunday being 0; raises BadSchedule."""
    values = 0
    for value in _spread(field, term):
        values |= 1 << (value % _SUNDAY_AGAIN if field is WEEK_DAY else value)
    return frozenset(value for value in range(values.bit_length()) if values >> value & 1)


def _from_monday(weekday: int) -> int:
    return (weekday - 1) % 7


def _terms(field: Field, text: str) -> list[str]:
    terms = text.split(",")
    if "" in terms:
        raise field.bad(text, "a value on both sides of each comma")
    return terms


def _day_terms(field: Field, text: str) -> list[str]:
    return ["*"] if text == _OPEN else _terms(field, text)


def _spread(field: Field, term: str) -> range:
    """Return the values of ``*``, ``x``, ``x-y``, each perhaps with ``/step``."""
    body, slash, step_text = term.partition("/")
    step = _step(field, step_text, term) if slash else 1
    # In `*` and `x/y` a week ends with Saturday, so that Sunday is not counted at both of its ends.
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


def _step(field: Field, text: str, term: str) -> int:
    """Read a step; one beyond the end of its range leaves the first value, as in most other crons."""
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not 1 <= int(text) <= STEP_MAX:
        raise field.bad(term, f"a step in 1-{STEP_MAX}")
    return int(text)
