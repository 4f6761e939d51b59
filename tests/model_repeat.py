"""The next time of a repeat, computed in plain Python for the reference model.

Written from the documents alone: it must not import ``bedrockjobs.schedule``, whose results it is compared
with, and it does not ask SQLite, whose ``datetime()`` the rules borrow.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from bedrockjobs.schedule.cron import BadSchedule, next_tick, split_zone

Base = Literal["SCHEDULED", "STARTED", "FINISHED"]

NEVER = "9999-12-31 23:59:59"
"""The nextRun of what does not come round by itself."""

_OFFSET = re.compile(r"([+-]) ?(\d{1,8}) (SECOND|MINUTE|HOUR|DAY|MONTH|YEAR)S?")
_START = re.compile(r"START OF (HOUR|DAY|MONTH|YEAR)")
_WEEKDAY = re.compile(r"WEEKDAY ([0-6])")
_STEP = {
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
}
_SHORT = timedelta(hours=4)
_CANNED = {
    "document": {"HOURLY": "FINISHED, +1 HOUR", "DAILY": "FINISHED, +1 DAY", "WEEKLY": "FINISHED, +7 DAYS"},
    "current": {
        "HOURLY": "FINISHED, +1 HOUR, START OF HOUR",
        "DAILY": "FINISHED, +1 DAY, START OF DAY",
        "WEEKLY": "FINISHED, +1 DAY, WEEKDAY 0, START OF DAY",
    },
}


class Malformed(ValueError):
    """Raised for a text that the grammar does not allow."""


def is_cron(repeat: str) -> bool:
    """Return whether a repeat is a cron schedule."""
    return repeat.lstrip(" \t\r\n")[:5].upper() in ("CRON ", "CRON\t")


def modifiers(text: str, *, repeat: bool) -> list[str]:
    """Split a comma list of modifiers, in upper case; START OF HOUR counts only in a ``repeat``."""
    found = [part.strip() for part in text.upper().split(",")]
    for part in found:
        offset, start = _OFFSET.fullmatch(part), _START.fullmatch(part)
        if offset:
            good = offset[3] == "SECOND" or len(offset[2]) <= 3
        elif start:
            good = repeat or start[1] != "HOUR"
        else:
            good = _WEEKDAY.fullmatch(part) is not None
        if not good:
            raise Malformed(part)
    return found


def split_repeat(text: str, mode: str) -> tuple[Base, list[str]]:
    """Return the base and the modifiers of a repeat expression; raises Malformed."""
    whole = text.strip().upper()
    base, comma, rest = _CANNED[mode].get(whole, whole).partition(",")
    word = base.strip()
    if not comma:
        raise Malformed(text)
    found = modifiers(rest, repeat=True)
    if word == "SCHEDULED":
        return "SCHEDULED", found
    if word == "STARTED":
        return "STARTED", found
    if word == "FINISHED":
        return "FINISHED", found
    raise Malformed(text)


def moved(moment: datetime, steps: list[str]) -> datetime | None:
    """Apply modifiers from left to right; None if a step leaves the years 1 to 9999."""
    try:
        for step in steps:
            moment = _moved_once(moment, step)
    except (OverflowError, ValueError):
        return None
    return moment


def _moved_once(moment: datetime, step: str) -> datetime:
    offset = _OFFSET.fullmatch(step)
    if offset:
        number = int(offset[1] + offset[2])
        if offset[3] in _STEP:
            return moment + number * _STEP[offset[3]]
        months = moment.year * 12 + moment.month - 1 + number * (12 if offset[3] == "YEAR" else 1)
        # A day that the month has not got runs over into the next month: 31 February is 3 March.
        first = moment.replace(year=months // 12, month=months % 12 + 1, day=1)
        return first + timedelta(days=moment.day - 1)
    start = _START.fullmatch(step)
    if start:
        moment = moment.replace(minute=0, second=0, microsecond=0)
        if start[1] == "HOUR":
            return moment
        moment = moment.replace(hour=0)
        if start[1] == "DAY":
            return moment
        return moment.replace(day=1) if start[1] == "MONTH" else moment.replace(day=1, month=1)
    today = moment.isoweekday() % 7
    return moment + timedelta(days=(int(step[-1]) - today) % 7)


def next_run(text: str, mode: str, *, scheduled: str, started: str, now: datetime) -> str | None:
    """Return the timestamp of the next run by a repeat, or None if that is no date.

    ``scheduled`` and ``started`` are timestamps, ``started`` may be empty; ``now`` is when it finished.
    """
    if is_cron(text):
        return _next_tick(text, now)
    base, steps = split_repeat(text, mode)
    start = now
    if base == "SCHEDULED":
        start = moment_of(scheduled)
    elif base == "STARTED" and started:
        start = moment_of(started)
    found = moved(start, steps)
    if found is None:
        return None
    if base == "SCHEDULED" and mode == "current" and found.replace(microsecond=0) < now:
        period = _short_period(steps)
        if period:
            first = start.replace(microsecond=0)  # stored slots have whole seconds
            found = first - ((first - now) // period) * period
    return whole(found)


def _next_tick(text: str, now: datetime) -> str | None:
    """Return the next tick by our cron evaluator, which is tested against oracles of its own."""
    try:
        zone, expression = split_zone(text)
        tick = next_tick(expression, now, zone)
    except BadSchedule:
        raise Malformed from None
    return NEVER if expression == "@never" else tick and whole(tick)


def last_tick(text: str, next_run: str, now: datetime, formers: tuple[tuple[str, datetime], ...] = ()) -> str:
    """Return the last tick up to now of a schedule that has been due since ``next_run``.

    ``formers`` are the repeats it had before, each with the moment up to which it counts.
    """
    found, following = next_run, moment_of(next_run)
    for repeat, until in (*formers, (text, now)):
        zone, expression = split_zone(repeat)
        while expression != "@never" and (tick := next_tick(expression, following, zone)) and tick <= until:
            found, following = whole(tick), tick
        following = max(following, until)
    return found


def _short_period(steps: list[str]) -> timedelta | None:
    """Return the interval of a repeat that skips missed runs: plain offsets, in all under four hours."""
    total = timedelta()
    for step in steps:
        offset = _OFFSET.fullmatch(step)
        if offset is None or offset[3] not in _STEP:
            return None
        total += int(offset[1] + offset[2]) * _STEP[offset[3]]
    return total if timedelta() < total < _SHORT else None


def moment_of(timestamp: str) -> datetime:
    """Return the moment of a timestamp."""
    return datetime.fromisoformat(timestamp).replace(tzinfo=UTC)


def whole(moment: datetime) -> str:
    """Return a timestamp in whole seconds."""
    return moment.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def with_ms(moment: datetime) -> str:
    """Return a timestamp with milliseconds."""
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def exact(moment: datetime) -> str:
    """Return a timestamp with milliseconds if there are any."""
    return with_ms(moment) if moment.microsecond >= 1000 else whole(moment)
