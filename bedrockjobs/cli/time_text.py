"""Moments as people read them: in the zone of their machine, with UTC beside it."""

from __future__ import annotations

import re
from datetime import datetime

from bedrockjobs.base.clock import duration_text
from bedrockjobs.base.wire import moment_of

FAR_YEAR = 9000
"""From this year on a moment stands for never: a schedule without a next tick keeps the last day there is."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

_TOLD = re.compile(
    r"\b(since|until|at) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?!\.?\d| UTC|Z)", re.ASCII
)
"""A moment in a sentence of the server's."""

_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII)


def local_text(timestamp: str) -> str:
    """Return a stored timestamp in local time with UTC: ``2026-11-23 09:00 CET (08:00 UTC)``."""
    if not timestamp:
        return ""
    moment = moment_of(timestamp)
    if moment.year >= FAR_YEAR:
        return "never"
    local = moment.astimezone()
    if not local.utcoffset():
        return f"{_day_and_time(moment)} UTC"
    utc = _time(moment) if local.date() == moment.date() else _day_and_time(moment)
    return f"{_day_and_time(local)} {local:%Z} ({utc} UTC)"


def with_local_times(sentence: str) -> str:
    """Return a sentence of the server's, whose moments are UTC without saying so, by this machine's clock."""
    return _TOLD.sub(lambda found: f"{found[1]} {_with_zone(moment_of(found[2]))}", sentence)


def _with_zone(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def is_timestamp(text: str) -> bool:
    """Tell whether a text is a moment as servers store them."""
    return _STAMP.fullmatch(text) is not None


def zone_now(now: datetime) -> str:
    """Return the name of this machine's zone: ``CET``; in summer it may have another."""
    return f"{now.astimezone():%Z}"


def moment_text(text: str, now: datetime, *, whole: bool = False) -> str:
    """Return a stored timestamp in local time and how far away it is: ``09:00:05 (3m ago)``.

    The day is left out where it is today's, unless the ``whole`` is wanted; the zone where it is that of now.
    """
    moment = moment_of(text)
    if moment.year >= FAR_YEAR:
        return "never"
    local, today = moment.astimezone(), now.astimezone()
    day = "" if local.date() == today.date() and not whole else f"{local:%Y-%m-%d} "
    zone = f" {local:%Z}" if local.tzname() != today.tzname() else ""
    return f"{day}{local:%H:%M:%S}{zone} ({away_text((moment - now).total_seconds())})"


def away_text(seconds: float) -> str:
    """Return how far away something is, in one unit: ``3m ago``, ``in 2d``, ``now``."""
    far = abs(seconds)
    if far < 1:
        return "now"
    size, unit = next((size, unit) for size, unit in _UNITS if far >= size)
    words = f"{int(far // size)}{unit}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def _time(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def _day_and_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d} {_time(moment)}"


def seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds between two stored timestamps; None where one is missing."""
    return (moment_of(later) - moment_of(earlier)).total_seconds() if earlier and later else None


def took_text(earlier: str, later: str) -> str:
    """Return the time between two stored timestamps as a duration: ``1m30s``; empty where one is missing."""
    seconds = seconds_between(earlier, later)
    if seconds is None:
        return ""
    return duration_text(max(round(seconds, 1 if seconds < 10 else 0), 0))


def countdown_text(now: str, then: str) -> str:
    """Return how far a stored timestamp is away: ``in 1h30m``, ``due since 5s``, ``never``."""
    seconds = seconds_between(now, then)
    if seconds is None:
        return ""
    if moment_of(then).year >= FAR_YEAR:
        return "never"
    if round(seconds) <= 0:
        return "due" if round(seconds) == 0 else f"due since {rough_text(-seconds)}"
    return f"in {rough_text(seconds)}"


def rough_text(seconds: float) -> str:
    """Return a duration with its two largest units: ``2d5h``, ``1h30m``, ``12s``."""
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"
