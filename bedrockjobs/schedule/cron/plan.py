"""A parsed schedule: sets of values, and the search for the next time that matches, in a time zone.

Each set is an integer with one bit per value, so that "the next hour from 9 on" is a shift instead of a loop.
Naive times are wall-clock times.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# Errors that name the field, the value and what was expected, for both dialects.


class BadSchedule(ValueError):
    """A schedule cannot be parsed, or can never fire."""

    def __init__(self, field: str, value: str, expected: str, range: str = "") -> None:
        """Refuse ``value`` of ``field``; ``range`` is like ``0-59``, empty if the field has none."""
        self.field = field
        self.value = value
        self.expected = expected
        self.range = range
        shown = value if len(value) <= 100 else value[:100] + "…"
        within = f" (range {range})" if range and range not in expected else ""
        super().__init__(f"{field} {shown!r}: expected {expected}{within}")

    def __reduce__(self) -> tuple[type[BadSchedule], tuple[str, str, str, str]]:
        """Pickle by the four arguments; the default would pass only the message."""
        return type(self), (self.field, self.value, self.expected, self.range)


# The days of a month that a schedule selects, as one integer in which bit d is day d.
#
# Weekdays are counted from 0 = Monday, as in ``date.weekday``.


EVERY_DAY = 0xFFFFFFFE
"""All days of a month: bits 1 to 31."""

LAST = 0
"""Stands for the last such weekday of the month, where a number from 1 to 5 stands for the nth."""

_SATURDAY, _SUNDAY = 5, 6
_SEVENTHS = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28

_WEEKDAYS = tuple(
    tuple(
        sum(_SEVENTHS << (1 + (weekday - first) % 7) for weekday in range(7) if chosen >> weekday & 1)
        for chosen in range(128)
    )
    for first in range(7)
)
"""The days of a month on which certain weekdays fall, by the weekday of the 1st and the set of weekdays (bit
d: weekday d). The days extend past the 31st."""


@dataclass(frozen=True, slots=True)
class DayField:
    """One field that selects days: by number, by weekday, or by position in the month."""

    days: int = 0
    weekdays: int = 0
    places: frozenset[tuple[int, int]] = frozenset()
    """Pairs (weekday, n): the nth such weekday of the month, or for ``LAST`` the last one."""
    nearest: frozenset[int] = frozenset()
    """Days that are replaced by the nearest working day (Monday to Friday) of the same month."""
    last: bool = False
    last_workday: bool = False
    every: bool = False
    """Whether the field is unrestricted (``*``); ``1-31`` selects the same days, but counts as a
    restriction."""

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
    """Return the working day nearest to ``day`` within the same month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else 3
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True)
class DayRule:
    """How day of month and day of week are combined."""

    month_day: DayField
    week_day: DayField
    either: bool
    """True if it suffices that a day matches one of the two fields, which is crontab's rule if both are
    restricted; False if a day must match both."""
    weeks: int = 0
    """The set of ISO weeks allowed; 0 for all weeks."""

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


YEAR_MIN, YEAR_MAX = 1970, 2199
"""First and last year that a schedule may name; the last one bounds every search."""

EVERY_YEAR = (1 << YEAR_MAX - YEAR_MIN + 1) - 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """The meaning of an expression; sets are integers in which bit n stands for n."""

    seconds: int
    minutes: int
    hours: int
    days: DayRule
    months: int
    years: int
    """The set of years, in which bit 0 is ``YEAR_MIN``; with an empty set the schedule never fires by itself
    (``@never``)."""
    wild: bool
    """Whether the minute or the hour field contains a ``*``: such schedules follow real time across clock
    changes."""
    zone: str = ""
    """The zone given in a mapping, which takes precedence over the caller's zone; empty if none is given."""
    start: datetime | None = None
    end: datetime | None = None
    """``start`` and ``end`` are the first and the last time allowed, both inclusive; naive ones are
    wall-clock times of the zone."""

    def first_from(self, at: datetime) -> datetime | None:
        """Return the first matching wall-clock time from ``at`` on (naive, whole seconds)."""
        day = self._day_from(at.year, at.month, at.day)
        if day is None:
            return None
        if day == (at.year, at.month, at.day):
            if (time := self._time_from(at.hour, at.minute, at.second)) is not None:
                return datetime(*day, *time)
            if (day := self._day_from(at.year, at.month, at.day + 1)) is None:
                return None
        return datetime(*day, first(self.hours), first(self.minutes), first(self.seconds))

    def count(self, low: datetime, high: datetime) -> int:
        """Return how many wall-clock times match from ``low`` to ``high``, naive and both inclusive."""
        if low > high:
            return 0
        ticks = self._days_between(low, high) * self._times_until(24, 0, 0)
        if self._fits_day(low):
            ticks -= self._times_until(low.hour, low.minute, low.second)
        if self._fits_day(high):
            ticks -= self._times_until(24, 0, 0) - self._times_until(high.hour, high.minute, high.second + 1)
        return ticks

    def _fits_day(self, at: datetime) -> bool:
        return self._day_from(at.year, at.month, at.day) == (at.year, at.month, at.day)

    def _days_between(self, low: datetime, high: datetime) -> int:
        """Return how many days match from the day of ``low`` to that of ``high``, both inclusive."""
        total = 0
        for number in range(low.year * 12 + low.month - 1, high.year * 12 + high.month):
            year, month = number // 12, number % 12 + 1
            if year < YEAR_MIN or not (self.years >> year - YEAR_MIN & 1 and self.months >> month & 1):
                continue
            days = self.days.of_month(year, month)
            if (year, month) == (low.year, low.month):
                days &= -1 << low.day
            if (year, month) == (high.year, high.month):
                days &= (2 << high.day) - 1
            total += days.bit_count()
        return total

    def _times_until(self, hour: int, minute: int, second: int) -> int:
        """Return how many of a day's matching times are before this time."""
        minutes, seconds = self.minutes.bit_count(), self.seconds.bit_count()
        found = _below(self.hours, hour) * minutes * seconds
        if self.hours >> hour & 1:
            found += _below(self.minutes, minute) * seconds
            if self.minutes >> minute & 1:
                found += _below(self.seconds, second)
        return found

    def _day_from(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        while (found := first(self.years, max(year - YEAR_MIN, 0))) >= 0:
            if found + YEAR_MIN != year:
                year, month, day = found + YEAR_MIN, 1, 1
            while (later := first(self.months, month)) >= 0:
                if later != month:
                    month, day = later, 1
                if (fits := first(self.days.of_month(year, month), day)) >= 0:
                    return year, month, fits
                month, day = month + 1, 1
            year, month, day = year + 1, 1, 1
        return None

    def _time_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (fits := first(self.seconds, second)) >= 0:
                return hour, minute, fits
            if (fits := first(self.minutes, minute + 1)) >= 0:
                return hour, fits, first(self.seconds)
        if (fits := first(self.hours, hour + 1)) >= 0:
            return fits, first(self.minutes), first(self.seconds)
        return None


def _below(values: int, end: int) -> int:
    """Return how many values of the set are below ``end``."""
    return (values & (1 << end) - 1).bit_count()


def first(values: int, start: int = 0) -> int:
    """Return the smallest value of the set that is at least ``start``, or -1."""
    rest = values >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1


# Time zones: from wall-clock times to UTC, and the rule for clock changes.
#
# The rule is that of Debian's cron. A schedule with fixed minutes and hours fires right after a forward
# change for a time that the change skips, and only once in a stretch that a backward change repeats. A
# schedule with ``*`` in minute or hour follows real time: it skips what is skipped, and repeats what is
# repeated.


ZONE_CHARS_MAX = 100
"""Maximum length of a zone's name in characters, three times that of the longest name. Looking up a name
searches several folders."""

_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)
_EARLIEST = datetime(YEAR_MIN - 1, 12, 30, tzinfo=UTC)


@lru_cache(maxsize=1024)
def find_zone(name: str) -> tzinfo:
    """Return the zone of an IANA name; raises BadSchedule if it does not exist."""
    if len(name) > ZONE_CHARS_MAX:
        raise BadSchedule("zone", name, f"at most {ZONE_CHARS_MAX} characters")
    if name.upper() in ("UTC", "ETC/UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule("zone", name, "the name of a time zone such as Europe/Berlin or UTC") from None


def forget_zones() -> None:
    """Clear the cached zones, since an update of the system may have changed their rules."""
    find_zone.cache_clear()
    ZoneInfo.clear_cache()


def next_moment(schedule: Schedule, after: datetime, zone: tzinfo) -> datetime | None:
    """Return the first time strictly after ``after`` (aware) at which the schedule fires, in UTC."""
    if schedule.start is not None:
        after = max(after, _moment(schedule.start, zone) - _INSTANT)
    if after.year > YEAR_MAX + 1:
        return None
    moment = _search(schedule, max(after, _EARLIEST).astimezone(zone), zone)
    if moment is not None and schedule.end is not None and moment > _moment(schedule.end, zone):
        return None
    return moment


def count_moments(schedule: Schedule, after: datetime, until: datetime, zone: tzinfo) -> int:
    """Return how often the schedule fires after ``after`` and up to ``until`` (both aware).

    A stretch of time without a clock change is counted in one go by wall-clock times; the hours around a
    change are counted tick by tick.
    """
    if schedule.start is not None:
        after = max(after, _moment(schedule.start, zone) - _INSTANT)
    if schedule.end is not None:
        until = min(until, _moment(schedule.end, zone))
    after, until = max(after, _EARLIEST).astimezone(UTC), until.astimezone(UTC)
    count = 0
    while after < until:
        # Two clock changes are further apart than five days
        end = until if zone is UTC else min(after + timedelta(days=5), until)
        begin = max(after - _AROUND_CHANGE, _EARLIEST)  # the clock may have been put back just before
        if zone is UTC or begin.astimezone(zone).utcoffset() == end.astimezone(zone).utcoffset():
            count += schedule.count(_wall(after, zone) + _SECOND, _wall(end, zone))
            after = end
            continue
        change = _first_change(begin, end, zone)
        if change - _AROUND_CHANGE > after:
            end = change - _AROUND_CHANGE
            count += schedule.count(_wall(after, zone) + _SECOND, _wall(end, zone))
            after = end
            continue
        end = min(change + _AROUND_CHANGE, until)
        while (moment := next_moment(schedule, after, zone)) is not None and moment <= end:
            count, after = count + 1, moment
        after = end
    return count


_AROUND_CHANGE = timedelta(hours=3)
"""Time before and after a clock change in which ticks are counted one by one: more than any change moves a
clock."""


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0, microsecond=0)


def _first_change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """Return the moment at which the clock changes; the offsets of ``low`` and ``high`` differ."""
    offset = low.astimezone(zone).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    return (wall if wall.tzinfo else wall.replace(tzinfo=zone)).astimezone(UTC)


def _search(schedule: Schedule, after: datetime, zone: tzinfo) -> datetime | None:
    start = after.replace(tzinfo=None, fold=0, microsecond=0) + _SECOND
    if zone is UTC:
        found = schedule.first_from(start)
        return found and found.replace(tzinfo=UTC)
    if change := _repeated_at(after, zone):
        if schedule.wild:
            if not after.fold:
                if (found := schedule.first_from(start)) and found < change.upper:
                    return _utc(found, change.before)
                start = change.lower
            if (found := schedule.first_from(start)) and found < change.upper:
                return _utc(found, change.behind)
            start = change.upper
        elif after.fold:
            start = change.upper
    while found := schedule.first_from(start):
        before, behind = _offsets(found, zone)
        if before >= behind:
            return _utc(found, before)
        change = _change_at(found, before, behind, zone)
        if not schedule.wild:
            return change.moment
        start = change.upper
    return None


class _Change(NamedTuple):
    """One clock change of a zone."""

    moment: datetime
    before: timedelta
    behind: timedelta
    lower: datetime
    """The first wall-clock time that the change skips or repeats."""
    upper: datetime
    """The first wall-clock time after those that the change skips or repeats."""


def clock_change_note(schedule: Schedule, moment: datetime, zone: tzinfo) -> str:
    """Return what a clock change did to the tick at ``moment``, in UTC: it was moved, or comes twice.

    The note is empty for all other ticks, and for a schedule with ``*`` in minute or hour, which follows real
    time.
    """
    if schedule.wild or zone is UTC:
        return ""
    wall = _wall(moment, zone)
    earlier, now = (each.astimezone(zone).utcoffset() for each in (moment - _SECOND, moment))
    assert earlier is not None
    assert now is not None
    if earlier < now:
        missing = schedule.first_from(wall - (now - earlier))
        if missing is not None and missing < wall:
            return f"{missing:%H:%M} does not exist in {zone}, ran at {wall:%H:%M}"
    before, behind = _offsets(wall, zone)
    if before > behind and now == before:
        return f"{wall:%H:%M} comes twice in {zone}, ran the first time only"
    return ""


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _offsets(wall: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """Return the UTC offsets of a wall-clock time before and after a clock change; equal if it is in none."""
    before = zone.utcoffset(wall)
    behind = zone.utcoffset(wall.replace(fold=1))
    assert before is not None
    assert behind is not None
    return before, behind


def _repeated_at(moment: datetime, zone: tzinfo) -> _Change | None:
    wall = moment.replace(tzinfo=None, fold=0)
    before, behind = _offsets(wall, zone)
    return _change_at(wall, before, behind, zone) if before > behind else None


def _change_at(wall: datetime, before: timedelta, behind: timedelta, zone: tzinfo) -> _Change:
    """Find the clock change that skips or repeats a wall-clock time, which tzinfo does not provide."""
    narrow, wide = sorted((before, behind))
    early = _utc(wall.replace(microsecond=0), wide)
    low, high = 0, (wide - narrow) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if (early + middle * _SECOND).astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    moment = early + high * _SECOND
    naive = moment.replace(tzinfo=None)
    return _Change(moment, before, behind, naive + narrow, naive + wide)
