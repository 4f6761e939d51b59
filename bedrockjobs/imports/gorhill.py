"""Cron expressions of gorhill/cronexpr and its forks, used by castle-cron, LUCI, FTL and supercronic.

Five fields begin with the minute. A sixth field is the year. Of seven fields, the first is the second. An
interpretation that may surprise is kept, and noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from bedrockjobs.imports.imported import READ_MAX, NoExpression, here, kept_or_rewritten
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron import expression as fields
from bedrockjobs.schedule.cron.expression import CronField, check_length
from bedrockjobs.schedule.cron.plan import EVERY_DAY, EVERY_YEAR, LAST, YEAR_MIN, DayField, DayRule, Schedule

MACROS = {
    "@yearly": "0 0 0 1 1 * *",
    "@annually": "0 0 0 1 1 * *",
    "@monthly": "0 0 0 1 * * *",
    "@weekly": "0 0 0 * * 0 *",
    "@daily": "0 0 0 * * * *",
    "@hourly": "0 0 * * * * *",
}
"""Macros, in lower case only, each with the fields that it stands for; the library replaces them anywhere in
an expression."""


@dataclass(frozen=True)
class Library:
    """The original library or one of its forks, described by their differences."""

    name: str
    month_zeros: bool = True
    """Whether ``03`` is March; the original reads it as month 0, which does not exist."""
    zero_ends_as_six: bool = False
    """Whether a range whose end is 0 (or 7 for Sunday) ends with 6 instead, in any field."""
    strict: bool = False
    """Whether an eighth field and a descending range with a step are errors."""


GORHILL = Library("gorhill/cronexpr", month_zeros=False)
HASHICORP = Library("hashicorp/cronexpr", zero_ends_as_six=True)
SUPERCRONIC = Library("supercronic", strict=True)


class NeverFires(cron.BadSchedule):
    """An expression that the library accepts, but for which it finds no tick or fails in the search."""


class Reading(NamedTuple):
    """A parsed expression of the library, and its equivalent in bedrockjobs."""

    schedule: Schedule
    expression: str
    """The equivalent expression in bedrockjobs."""
    notes: tuple[str, ...] = ()
    """Notes on interpretations that may surprise."""


class _Kind(NamedTuple):
    """A field of an expression as the library defines it."""

    field: CronField
    value: str
    """A regular expression that matches one value."""
    low: int
    high: int


_TO_59 = "0?[0-9]|[1-5][0-9]"
_SECOND = _Kind(fields.SECOND, _TO_59, 0, 59)
_MINUTE = _Kind(fields.MINUTE, _TO_59, 0, 59)
_HOUR = _Kind(fields.HOUR, "0?[0-9]|1[0-9]|2[0-3]", 0, 23)
_MONTH_DAY = _Kind(fields.MONTH_DAY, "0?[1-9]|[12][0-9]|3[01]", 1, 31)
_MONTH = _Kind(fields.MONTH, "|".join(["0?[1-9]|1[012]", *fields.MONTH.names]), 1, 12)
_WEEK_DAY = _Kind(fields.WEEK_DAY, "|".join(["0?[0-7]", *fields.WEEK_DAY.names]), 0, 6)
_YEAR = _Kind(fields.YEAR, "19[789][0-9]|20[0-9]{2}", 1970, 2099)

_WORD = re.compile(r"[^\t\n\f\r ]+")
_STEPS = frozenset(
    [*map(str, range(60)), *(f"0{digit}" for digit in range(10)), *map(str, range(1970, 2100))]
)
"""Steps that the library knows; it reads any other step as 0 and refuses it."""


@lru_cache(maxsize=READ_MAX)
def parse_gorhill(text: str, library: Library = GORHILL) -> Reading:
    """Parse an expression of the library, and find its equivalent in bedrockjobs; raises BadSchedule."""
    check_length(text)
    spelled = text
    for macro, meant in MACROS.items():
        spelled = spelled.replace(macro, meant)
    words = _WORD.findall(spelled)
    notes: list[str] = []
    if len(words) < 5 or (library.strict and len(words) > 7):
        forms = f"5 to 7 fields, or one of {', '.join(MACROS)} in lower-case letters"
        raise cron.BadSchedule("expression", text, forms)
    if len(words) > 7:
        notes.append(f"{library.name} ignores what follows the seventh field")
    seven = {5: ["0", *words, "*"], 6: ["0", *words]}.get(len(words), words[:7])
    schedule, more = evaluate(seven, library, text)
    if text.strip() in MACROS:
        return written(Reading(schedule, text.strip(), (*notes, *more)))
    seven = [field.replace("?", "*") for field in seven]
    ours = seven[1:-1] if len(words) < 7 and seven[-1] == "*" else seven
    return written(Reading(schedule, " ".join(ours), (*notes, *more)))


def written(reading: Reading) -> Reading:
    """Return the reading with an expression that means the same in bedrockjobs; raises BadSchedule."""
    schedule, text, notes = reading
    try:
        return Reading(schedule, kept_or_rewritten(text, schedule), notes)
    except NoExpression:
        # These libraries define no rule for clock changes, so either of ours is acceptable.
        schedule = replace(schedule, wild=False)
    try:
        return Reading(schedule, kept_or_rewritten(text, schedule), notes)
    except NoExpression as error:
        raise cron.BadSchedule("expression", text, f"no {error}, for which there is no expression") from None


def evaluate(
    seven: list[str], library: Library, text: str, since: datetime = datetime(YEAR_MIN, 1, 1)
) -> tuple[Schedule, list[str]]:
    """Return the schedule of seven fields, from second to year, and notes on surprising interpretations.

    Raises BadSchedule, also if there is no tick after ``since``.
    """
    second, minute, hour, month_day, month, week_day, year = (_FieldParser(library, kind) for kind in _KINDS)
    seconds, minutes = second.values(seven[0]), minute.values(seven[1])
    hours = hour.values(seven[2])
    month_days = month_day.month_days(seven[3])
    months = month.values(seven[4])
    week_days = week_day.week_days(seven[5])
    years = year.values(seven[6])
    readers = (second, minute, hour, month_day, month, week_day, year)
    for reader in readers:
        if reader.fails is not None:
            raise reader.fails
    every_year = years == set(range(_YEAR.low, _YEAR.high + 1))
    schedule = Schedule(
        bits_of(seconds),
        bits_of(minutes),
        bits_of(hours),
        DayRule(month_days, week_days, either=not (month_days.every or week_days.every)),
        bits_of(months),
        EVERY_YEAR if every_year else bits_of(years) >> YEAR_MIN,
        wild=bool(set("*?") & set(seven[1] + seven[2])),
    )
    notes = [note for reader in readers for note in reader.notes]
    if schedule.first_from(since) is None:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise NeverFires("expression", text, f"a tick; in {library.name} it would never fire{why}")
    return schedule, notes


_KINDS = (_SECOND, _MINUTE, _HOUR, _MONTH_DAY, _MONTH, _WEEK_DAY, _YEAR)


class _Term(NamedTuple):
    """One term of a field; terms are separated by commas."""

    text: str
    values: frozenset[int] | None
    """The values; None if the term is invalid, or valid only in a day field."""
    open: bool = False


class _FieldParser:
    """Parses one field as the library does; collects notes on interpretations that may surprise."""

    def __init__(self, library: Library, kind: _Kind) -> None:
        self.notes: list[str] = []
        self.fails: NeverFires | None = None
        """Set if the library accepts the field but fails in the search for a tick."""
        self._library = library
        self._kind = kind

    def values(self, text: str) -> set[int]:
        """Return the values of a field other than a day field."""
        result: set[int] = set()
        for term in self._terms(text):
            if term.open:
                return set(range(self._kind.low, self._kind.high + 1))
            if term.values is None:
                raise self._bad(term.text)
            result |= term.values
        name, library = self._kind.field.name, self._library.name
        if self._kind is _MONTH and 0 in result:
            expected = f"months without a zero before them; {library} reads one as month 0 and fails"
            self.fails = NeverFires(name, text, expected)
        elif not result:
            expected = f"a range that goes up; {library} finds no value in it and fails"
            self.fails = NeverFires(name, text, expected)
        return result

    def month_days(self, text: str) -> DayField:
        """Return the parsed day-of-month field."""
        days, nearest, last, last_workday = 0, set(), False, False
        terms = self._terms(text)
        for term in terms:
            lower = term.text.lower()
            if term.values is not None:
                days |= bits_of(term.values)
            elif lower == "l":
                last = True
            elif lower == "lw":
                last_workday = True
            elif match := re.fullmatch(f"({_MONTH_DAY.value})w", lower):
                nearest.add(int(match[1]))
            else:
                raise self._bad(term.text)
        if any(term.open for term in terms):
            return DayField(EVERY_DAY, every=True)
        return DayField(days, 0, frozenset(), frozenset(nearest), last, last_workday)

    def week_days(self, text: str) -> DayField:
        """Return the parsed day-of-week field."""
        weekdays, places = 0, set()
        terms = self._terms(text)
        for term in terms:
            lower = term.text.lower()
            if term.values is not None:
                weekdays |= bits_of((day - 1) % 7 for day in term.values)
            elif match := re.fullmatch(f"({_WEEK_DAY.value})(?:l|#([1-5]))", lower):
                place = int(match[2]) if match[2] else LAST
                day = self._number(match[1])
                if match[1].isdigit() and int(match[1]) % 7 != day:
                    self.notes.append(
                        f"{self._kind.field.name} {term.text}: {self._library.name} reads {match[1]} as 0"
                    )
                places.add(((day - 1) % 7, place))
            else:
                raise self._bad(term.text)
        if any(term.open for term in terms):
            return DayField(weekdays=0x7F, every=True)
        return DayField(weekdays=weekdays, places=frozenset(places))

    def _terms(self, text: str) -> list[_Term]:
        terms = [self._term(term) for term in text.split(",") if term]
        if not terms:
            raise self._kind.field.bad(text, "a value")
        return terms

    def _term(self, text: str) -> _Term:
        kind, lower = self._kind, text.lower()
        if lower in ("*", "?"):
            return _Term(text, frozenset(range(kind.low, kind.high + 1)), open=True)
        form = rf"(?:\*|(?P<first>{kind.value})(?:-(?P<last>{kind.value}))?)(?:/(?P<step>\d+))?"
        match = re.fullmatch(form, lower, re.ASCII)
        if match is None:
            return _Term(text, None)
        step = self._step(match["step"], text) if match["step"] else 1
        first = self._number(match["first"]) if match["first"] else kind.low
        last = kind.high if match["step"] else first
        why: list[str] = []
        digits = [word for word in match.group("first", "last") if word and word.isdigit() and int(word)]
        if zeros := [word for word in digits if not self._number(word)]:
            why.append(f"reads {zeros[0]} as 0")
        if match["last"]:
            last = self._number(match["last"])
            if not last and self._library.zero_ends_as_six and not match["step"]:
                last = 6
                why.append("lets a range that ends with 0 end with 6")
            if last < first:
                if self._library.strict and match["step"]:
                    raise kind.field.bad(text, f"a range that goes up ({self._library.name} refuses it)")
                why.append(f"finds no value in {first}-{last}")
        values = frozenset(range(first, last + 1, step))
        if why and values != here(kind.field, text):
            self.notes.append(f"{kind.field.name} {text}: {self._library.name} {' and '.join(why)}")
        return _Term(text, values)

    def _step(self, text: str, term: str) -> int:
        if text not in _STEPS or not 1 <= int(text) <= self._kind.high:
            raise self._kind.field.bad(
                term, f"a step in 1-{self._kind.high}, as {self._library.name} wants it"
            )
        return int(text)

    def _number(self, text: str) -> int:
        kind = self._kind
        if (named := kind.field.names.get(text)) is not None:
            return named
        if kind is _MONTH and text.startswith("0") and not self._library.month_zeros:
            return 0
        if kind is _WEEK_DAY:
            return int(text) % 7 if len(text) == 1 else 0
        return int(text)

    def _bad(self, term: str) -> cron.BadSchedule:
        kind = self._kind
        expected = f"what {self._library.name} reads: a number in {kind.low}-{kind.high}{kind.field.forms}"
        return cron.BadSchedule(kind.field.name, term, expected)


def bits_of(values: Iterable[int]) -> int:
    """Return a set of numbers as an integer, in which bit n is set for each number n."""
    bits = 0
    for value in values:
        bits |= 1 << value
    return bits
