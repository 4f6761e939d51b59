"""What all imports share: locations, names, equivalent cron expressions, and imported definitions."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from bedrockjobs.base.config import SCHEDULE_FILE_CHARS_MAX, SCHEDULES_PER_SYNC_MAX
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron import ranges
from bedrockjobs.schedule.cron.expression import WEEKDAY_NAMES, CronField, members_of
from bedrockjobs.schedule.cron.plan import (
    EVERY_DAY,
    EVERY_YEAR,
    LAST,
    YEAR_MAX,
    YEAR_MIN,
    DayField,
    DayRule,
    Schedule,
    find_zone,
    next_moment,
)

MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
"""Macros that Debian's cron, cronie, Kubernetes and Fugit support, in lower case."""

WEEKDAYS = tuple(name[:3] for name in WEEKDAY_NAMES)
"""The first three letters of the weekdays, in lower case, from Sunday on."""

# Locations in a text.


class Position(NamedTuple):
    """The line of an item, and the lines of its keys; lines are counted from 1."""

    line: int
    keys: dict[str, int]


# Names of schedules, derived from their shell commands.


WRAPPERS = frozenset(
    {
        "sudo",
        "doas",
        "env",
        "nice",
        "ionice",
        "timeout",
        "flock",
        "nohup",
        "exec",
        "time",
        "chronic",
        "setsid",
        "chrt",
        "stdbuf",
        "systemd-cat",
        "cronic",
        "su-exec",
        "gosu",
    }
)
"""Programs that run another program; the name is derived from that program."""

OPTIONS_WITH_VALUES = frozenset({"-u", "-g", "-n", "-c", "-k", "-s", "-t", "-p"})
"""Options of ``WRAPPERS`` that are followed by a value."""

OF_FLOCK = frozenset({"-w", "-E"})
"""Options of flock that are followed by a value; its ``-n``, unlike that of other wrappers, is not."""

INTERPRETERS = re.compile(r"(?:ba|da|k|z)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|node|php[\d.]*|java")
"""Programs that run a script; the name is derived from the script."""

PASSED = frozenset({"cd", ".", "source", "export", "umask", "set", "test", "[", "[[", "true", "sleep"})
"""Commands that are skipped, because they only prepare for the next command."""

BRACKETS = frozenset("(){}")
"""Words that group commands."""

_ENDS = re.compile(r"&&|\|\||[;|&\n]")
_REDIRECTION = re.compile(r"\d*[<>]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DURATION = re.compile(r"[\d.]+[smhd]?")
_SUFFIX = re.compile(r"(?<=.)\.(?:sh|bash|py|pl|rb|php|js|jar)$")
_TASK = re.compile(r"[A-Za-z][\w:-]*")
_UNNAMEABLE = re.compile(r"[^\w.:+-]+")


def name_of(command: str) -> str:
    """Return a name derived from a shell command; empty if no word is suitable.

    ``cd /srv && ./backup.sh --full`` becomes ``backup``.
    """
    for part in _ENDS.split(command):
        words = [word for word in part.split() if word not in BRACKETS and not _ASSIGNMENT.match(word)]
        if words and _base(words[0]) not in PASSED:
            return _named(_unwrapped(words))
    return ""


def _unwrapped(words: list[str]) -> list[str]:
    """Return a command without wrappers and their options."""
    while len(words) > 1 and _base(words[0]) in WRAPPERS:
        wrapper, words = _base(words[0]), words[1:]
        valued = OF_FLOCK if wrapper == "flock" else OPTIONS_WITH_VALUES
        while len(words) > 1 and (
            words[0].startswith("-") or _ASSIGNMENT.match(words[0]) or _DURATION.fullmatch(words[0])
        ):
            words = words[2:] if words[0] in valued and len(words) > 2 else words[1:]
        if wrapper == "flock" and len(words) > 1:
            words = words[1:]  # the file of the lock
    return words


def _named(words: list[str]) -> str:
    if len(words) > 1 and INTERPRETERS.fullmatch(_base(words[0])):
        script = next((word for word in words[1:] if not word.startswith("-")), words[0])
        words = words[words.index(script) :]
    parts = [_SUFFIX.sub("", _base(words[0]))]
    for word in words[1:3]:  # a program and its subcommands, as in ``restic-backup``
        if not _TASK.fullmatch(word) or _REDIRECTION.match(word):
            break
        parts.append(word)
    name = "-".join(filter(None, (_UNNAMEABLE.sub("", part) for part in parts)))[:60]
    return name if any(map(str.isalnum, name)) else ""


def _base(word: str) -> str:
    return word.strip("\"'()").rstrip("/").rpartition("/")[2]


# Equivalent cron expressions: they are computed from sets of values, independent of the spelling.


READ_MAX = 1_024
"""Maximum number of parsed expressions in the cache. Expressions repeat in a large file, and parsing one
takes almost a millisecond."""

_WEEKS_OF_MONTH = [sum(1 << day for day in range(7 * n + 1, min(7 * n + 8, 32))) for n in range(5)]
"""Sets of days as bits (1-7, 8-14, ...), on which the first, second, ... occurrence of a weekday in a month
falls."""

_NAMES = [name.upper() for name in (*WEEKDAYS[1:], WEEKDAYS[0])]

_MONTHS = list(
    {monthrange(year, month): (year, month) for year in range(1970, 1998) for month in range(1, 13)}.values()
)
"""A (year, month) for each possible month: for each weekday of the first day with each number of days."""


class NoExpression(ValueError):
    """No cron expression of bedrockjobs is equivalent; the message says what cannot be expressed."""


def same_schedule(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules fire at the same times in one zone."""
    if not one.years and not other.years:
        return True
    return (
        (one.seconds, one.minutes, one.hours, one.months, one.years, one.wild, one.start, one.end)
        == (
            other.seconds,
            other.minutes,
            other.hours,
            other.months,
            other.years,
            other.wild,
            other.start,
            other.end,
        )
        and one.days.weeks == other.days.weeks
        and all(one.days.of_month(*month) == other.days.of_month(*month) for month in _MONTHS)
    )


def here(field: CronField, term: str) -> frozenset[int] | None:
    """Return the values of a term by the rules of bedrockjobs, with Sunday as 0; None if they refuse it."""
    try:
        return members_of(field, term)
    except cron.BadSchedule:
        return None


@lru_cache(maxsize=READ_MAX)
def kept_or_rewritten(text: str, schedule: Schedule) -> str:
    """Return ``text`` if bedrockjobs reads it as ``schedule``, or else an equivalent expression.

    Raises NoExpression if there is none.
    """
    try:
        if same_schedule(cron.parse(text), schedule):
            return " ".join(text.split())
    except cron.BadSchedule:
        pass
    return expression_for(schedule)


def expression_for(schedule: Schedule) -> str:
    """Return an expression of bedrockjobs for a schedule, without a zone; raises NoExpression."""
    if not schedule.years:
        return "@never"
    if schedule.start is not None or schedule.end is not None:
        raise NoExpression("a first or last moment (start_date, end_date)")
    star = "*" if schedule.wild else ""
    month_day, week_day = _days(schedule.days)
    fields = [
        _set(schedule.minutes, 0, 59, star),
        _set(schedule.hours, 0, 23, star),
        month_day,
        _set(schedule.months, 1, 12),
        week_day,
    ]
    if schedule.years != EVERY_YEAR:
        fields.append(_set(schedule.years << YEAR_MIN, YEAR_MIN, YEAR_MAX))
    if schedule.seconds != 1 or (schedule.years != EVERY_YEAR and not _has_year(fields[-1])):
        fields.insert(0, _set(schedule.seconds, 0, 59))
    text = " ".join(fields)
    if not same_schedule(cron.parse(text), schedule):
        raise NoExpression("what it does when its zone's clock is changed")
    return text


def _has_year(field: str) -> bool:
    """Return whether bedrockjobs would read the last field as a year; ``*/2`` would not be read so."""
    return not field.startswith("*")


def _days(rule: DayRule) -> tuple[str, str]:
    """Return both day fields. If both are restricted, a day in bedrockjobs has to match only one of them."""
    if rule.weeks:
        raise NoExpression("a week of the year (week)")
    month_day, week_day = rule.month_day, rule.week_day
    if rule.either:
        return _day_fields(_union(month_day, week_day))
    if _open(week_day):
        return _day_fields(month_day)
    if _open(month_day):
        return _day_fields(week_day)
    return _day_fields(_both(month_day, week_day))


def _open(field: DayField) -> bool:
    return field.every or field.days == EVERY_DAY or field.weekdays == 0x7F


def _union(one: DayField, other: DayField) -> DayField:
    return DayField(
        one.days | other.days,
        one.weekdays | other.weekdays,
        one.places | other.places,
        one.nearest | other.nearest,
        one.last or other.last,
        one.last_workday or other.last_workday,
    )


def _both(month_day: DayField, week_day: DayField) -> DayField:
    """Return the days that match both fields, as the nth weekdays of a month; raises NoExpression."""
    plain = not (month_day.nearest or month_day.last or month_day.last_workday or month_day.weekdays)
    weeks = [n for n, days in enumerate(_WEEKS_OF_MONTH, 1) if month_day.days & days == days]
    whole = sum(_WEEKS_OF_MONTH[n - 1] for n in weeks) == month_day.days
    if not plain or not whole or week_day.places:
        raise NoExpression("a day of the month and a weekday that must both hold")
    weekdays = [weekday for weekday in range(7) if week_day.weekdays >> weekday & 1]
    places = {(weekday, n) for weekday in weekdays for n in weeks}
    places |= {place for place in month_day.places if place[0] in weekdays}
    return DayField(places=frozenset(places))


def _day_fields(field: DayField) -> tuple[str, str]:
    if _open(field):
        return "*", "*"
    days = ranges(_members(field.days, 31))
    days += [f"{day}W" for day in sorted(field.nearest)]
    days += ["L"] if field.last else []
    days += ["LW"] if field.last_workday else []
    weekdays = ranges(_members(field.weekdays, 6), _NAMES)
    weekdays += [
        f"{(weekday + 1) % 7}L" if n == LAST else f"{(weekday + 1) % 7}#{n}"
        for weekday, n in sorted(field.places)
    ]
    if not days and not weekdays:
        raise NoExpression("days that do not exist")
    return ",".join(days) or "*", ",".join(weekdays) or "*"


def _set(values: int, low: int, high: int, star: str = "*") -> str:
    """Return a set of values as a field; ``star`` is empty if a ``*`` would change what clock changes do."""
    members = _members(values, high)
    star = star or f"{low}-{high}"
    step = members[1] - members[0] if len(members) > 1 else 0
    if len(members) == high - low + 1:
        return star
    if step > 1 and members == list(range(low, high + 1, step)):
        return f"{star}/{step}"
    if step > 1 and len(members) > 2 and members == list(range(members[0], members[-1] + 1, step)):
        return f"{members[0]}-{members[-1]}/{step}"
    return ",".join(ranges(members))


def _members(values: int, high: int) -> list[int]:
    return [value for value in range(high + 1) if values >> value & 1]


# Imported definitions, and when they fire in the other system and here.


PLACES_SHOWN_MAX = 5
"""Maximum number of locations of one name that a message shows, so that it stays readable."""


class Unreadable(ValueError):
    """A text cannot be parsed; the message names the location and what was expected."""


class Refused(ValueError):
    """A definition is invalid or has no counterpart in bedrockjobs; the message says why.

    The other definitions of the text are still imported.
    """


class ImportedSchedule(NamedTuple):
    """A definition of another system and its equivalent in bedrockjobs."""

    name: str
    place: str
    """Where the definition is in the text, such as ``line 3`` or ``job 2, line 7``."""
    source_text: str
    """The schedule as the other system writes it."""
    expression: str = ""
    """The equivalent cron expression of bedrockjobs; empty if the definition is refused, or if it repeats
    after the end of a run."""
    zone: str = "UTC"
    old: Schedule | None = None
    """The original schedule, with times in ``zone``; None if it could not be parsed or has no ticks."""
    repeat_after: str = ""
    """The repeat of a definition that repeats after the end of a run, such as ``FINISHED, +10 SECONDS``;
    otherwise empty."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Job options, by their names in a definitions file."""
    paused: bool = False
    warnings: tuple[str, ...] = ()
    refused: str = ""
    """Why the definition cannot be imported; empty if it can."""

    @property
    def repeat(self) -> str:
        """Return the ``repeat`` for CreateJob; empty if the definition is refused."""
        if not self.expression or self.refused:
            return "" if self.refused else self.repeat_after
        return f"CRON {self.expression}" if self.zone == "UTC" else f"CRON TZ={self.zone} {self.expression}"

    @property
    def differs(self) -> bool:
        """Return whether the schedule fires at different times in bedrockjobs than in the other system."""
        if self.old is None or not self.expression or self.refused:
            return False
        return not same_schedule(self.old, cron.parse(self.expression))

    def old_times(self, after: datetime, count: int) -> list[datetime]:
        """Return the next ``count`` ticks after ``after`` in the other system, in UTC."""
        return _times(self.old, self.zone, after, count)

    def our_times(self, after: datetime, count: int) -> list[datetime]:
        """Return the next ``count`` ticks after ``after`` in bedrockjobs, in UTC."""
        if not self.expression or self.refused:
            return []
        return _times(cron.parse(self.expression), self.zone, after, count)

    def with_reading(self, old: Schedule, expression: str, notes: Iterable[str]) -> ImportedSchedule:
        """Return a copy with the original schedule, an equivalent expression, and a warning for each note."""
        changed = self._replace(old=old, expression=expression)
        return changed.with_warning(*(f"{note}; written so" for note in notes))

    def with_warning(self, *warnings: str) -> ImportedSchedule:
        """Return a copy with additional warnings."""
        return self._replace(warnings=(*self.warnings, *warnings))


def _times(schedule: Schedule | None, zone: str, after: datetime, count: int) -> list[datetime]:
    times: list[datetime] = []
    if schedule is None:
        return times
    clock = find_zone(schedule.zone or zone)
    at: datetime | None = after
    while len(times) < count and at is not None:
        at = next_moment(schedule, at, clock)
        if at is not None:
            times.append(at)
    return times


def check_size(text: str) -> None:
    """Raise Unreadable if a text is too long."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise Unreadable(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")


def check_count(schedules: Sequence[object], place: str) -> None:
    """Raise Unreadable, which names ``place``, if there are more definitions than one source may have."""
    if len(schedules) > SCHEDULES_PER_SYNC_MAX:
        raise Unreadable(f"{place}: expected at most {SCHEDULES_PER_SYNC_MAX} schedules")


def shortened(text: str) -> str:
    """Return a text for a message: in quotes, and cut if it is longer than 40 characters."""
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def once(schedules: list[ImportedSchedule]) -> list[ImportedSchedule]:
    """Return the definitions; refuse all whose name occurs more than once, with the locations of the name."""
    places: dict[str, list[str]] = {}
    for entry in schedules:
        places.setdefault(entry.name, []).append(entry.place)
    return [
        entry if len(places[entry.name]) == 1 else entry._replace(refused=_twice(places[entry.name]))
        for entry in schedules
    ]


def _twice(places: list[str]) -> str:
    more = len(places) - PLACES_SHOWN_MAX
    shown = [*places[:PLACES_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])]
    return f"{', '.join(shown[:-1])} and {shown[-1]} have one name: expected a name once"


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names; ``-2``, ``-3``, ... is appended to each duplicate."""
    unique: list[str] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        free = name
        while free in taken:
            number = numbers.get(name, 2)
            free, numbers[name] = f"{name}-{number}", number + 1
        taken.add(free)
        unique.append(free)
    return unique
