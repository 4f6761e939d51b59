"""Which days of a month a schedule means, as one integer whose bit d stands for day d.

Weekdays are counted from 0 = Monday, as ``date.weekday`` does. It knows no grammar and no time of day.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date

EVERY_DAY = 0xFFFFFFFE
"""Bits 1 to 31."""

LAST = 0
"""In place of a number from 1 to 5: the last such weekday of the month."""

_SATURDAY, _SUNDAY = 5, 6
_SEVENTHS = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28

_WEEKDAYS = tuple(
    tuple(
        sum(_SEVENTHS << (1 + (weekday - first) % 7) for weekday in range(7) if chosen >> weekday & 1)
        for chosen in range(128)
    )
    for first in range(7)
)
"""Days by the weekday of the 1st, then by a set of weekdays; they run past the 31st."""


@dataclass(frozen=True, slots=True)
class DayField:
    """One field that chooses days: by number, by weekday, or by their place in the month."""

    days: int = 0
    weekdays: int = 0
    places: frozenset[tuple[int, int]] = frozenset()
    """(weekday, n): its nth in the month, or its ``LAST``."""
    nearest: frozenset[int] = frozenset()
    """Days in whose place the nearest working day (Monday to Friday) of the same month counts."""
    last: bool = False
    last_workday: bool = False
    every: bool = False
    """Whether the field was left open with ``*``; ``1-31`` means the same days and is a restriction."""

    def of_month(self, first: int, length: int) -> int:
        """Return the days of a month that begins on weekday ``first`` and has ``length`` days."""
        found = self.days | _WEEKDAYS[first][self.weekdays]
        if self.places:
            for weekday, n in self.places:
                day = 1 + (weekday - first) % 7
                found |= 1 << (day + 7 * (n - 1 if n else (length - day) // 7))
        for day in self.nearest:
            if day <= length:
                found |= 1 << _nearest_workday(first, length, day)
        if self.last:
            found |= 1 << length
        if self.last_workday:
            found |= 1 << _nearest_workday(first, length, length)
        return found & (2 << length) - 2


def _nearest_workday(first: int, length: int, day: int) -> int:
    """Return the working day nearest to ``day`` that does not leave the month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else 3
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True)
class DayRule:
    """Day of month and day of week together."""

    month_day: DayField
    week_day: DayField
    either: bool
    """Whether one of the two is enough (crontab's rule when both are restricted) or both must hold."""
    weeks: int = 0
    """ISO weeks allowed, bit by number; 0 for any."""

    def of_month(self, year: int, month: int) -> int:
        """Return the days of this month that the rule allows."""
        first, length = monthrange(year, month)
        found = self.month_day.of_month(first, length)
        other = self.week_day.of_month(first, length)
        found = found | other if self.either else found & other
        if self.weeks and found:
            for day in range(1, length + 1):
                if found >> day & 1 and not self.weeks >> date(year, month, day).isocalendar().week & 1:
                    found &= ~(1 << day)
        return found
