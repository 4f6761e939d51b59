"""Moments as people read them: in the zone of their machine, with UTC beside it."""

from __future__ import annotations

from datetime import datetime

from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.wire import moment_of

FAR_YEAR = 9000
"""From this year on a moment stands for never: a schedule without a next tick keeps the last day there is."""


def local_text(stamp: str) -> str:
    """Return a stored stamp in local time with UTC: ``2026-11-23 09:00 CET (08:00 UTC)``."""
    if not stamp:
        return ""
    moment = moment_of(stamp)
    if moment.year >= FAR_YEAR:
        return "never"
    local = moment.astimezone()
    if not local.utcoffset():
        return f"{_day_and_time(moment)} UTC"
    utc = _time(moment) if local.date() == moment.date() else _day_and_time(moment)
    return f"{_day_and_time(local)} {local:%Z} ({utc} UTC)"


def _time(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def _day_and_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d} {_time(moment)}"


def seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds between two stored stamps; None where one is missing."""
    return (moment_of(later) - moment_of(earlier)).total_seconds() if earlier and later else None


def took_text(earlier: str, later: str) -> str:
    """Return the time between two stored stamps as a duration: ``1m30s``; empty where one is missing."""
    seconds = seconds_between(earlier, later)
    if seconds is None:
        return ""
    return duration_text(max(round(seconds, 1 if seconds < 10 else 0), 0))


def countdown_text(now: str, then: str) -> str:
    """Return how far a stored stamp is away: ``in 1h30m``, ``due since 5s``, ``never``."""
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
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"
