"""Time zones: from wall-clock times to UTC, and the rule for clock changes.

The rule is that of Debian's cron. A schedule with fixed minutes and hours fires right after a forward change
for a time that the change skips, and only once in a stretch that a backward change repeats. A schedule with
``*`` in minute or hour follows real time: it skips what is skipped, and repeats what is repeated.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bedrockjobs.schedule.cron.expression import BadSchedule
from bedrockjobs.schedule.cron.plan import YEAR_MAX, YEAR_MIN, Schedule

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
