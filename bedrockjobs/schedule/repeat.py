"""Repeat expressions: Bedrock's, a base with SQLite datetime modifiers, and our own ``CRON`` schedules.

Bedrock's grammar is checked here. Modifiers are evaluated by SQLite on a private in-memory connection, so
that ``+1 MONTH`` means the same on both engines. This is the only module outside the store that uses SQL.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from datetime import UTC, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, NamedTuple

from bedrockjobs.base.clock import moment_of, timestamp
from bedrockjobs.base.config import REPEAT_MODIFIERS_MAX
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron import plan
from bedrockjobs.schedule.cron.plan import find_zone

Base = Literal["SCHEDULED", "STARTED", "FINISHED"]

REANCHOR_MAX = timedelta(hours=4)
"""Interval below which a repeat skips missed runs with ``compatibility: current``, as in the current
Bedrock."""

NEVER = "9999-12-31 23:59:59"
"""The next run of a schedule ``@never``, which only runs if it is triggered."""

START_OF_HOUR = "START OF HOUR"
"""Bedrock's own modifier, which SQLite does not have."""

_OFFSET = re.compile(r"([+-]) ?(\d{1,8} SECONDS?|\d{1,3} (?:MINUTE|HOUR|DAY|MONTH|YEAR)S?)")
_ANCHOR = re.compile(r"START OF (?:DAY|MONTH|YEAR)|WEEKDAY [0-6]")

_CANNED: dict[Compatibility, dict[str, str]] = {
    "document": {"HOURLY": "FINISHED, +1 HOUR", "DAILY": "FINISHED, +1 DAY", "WEEKLY": "FINISHED, +7 DAYS"},
    "current": {
        "HOURLY": "FINISHED, +1 HOUR, START OF HOUR",
        "DAILY": "FINISHED, +1 DAY, START OF DAY",
        "WEEKLY": "FINISHED, +1 DAY, WEEKDAY 0, START OF DAY",
    },
}

_sqlite = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)


class Repeat(NamedTuple):
    """A parsed repeat expression."""

    base: Base
    modifiers: tuple[str, ...]


def complaint(error: ValueError) -> str:
    """Return the message for an invalid repeat, which begins with ``repeat:``."""
    message = str(error)
    return f"repeat: {message}" if ": expected" in message else f"repeat: expected {message}"


@lru_cache(maxsize=4096)
def parse_repeat(text: str, compatibility: Compatibility = "document") -> Repeat:
    """Parse a repeat expression such as ``FINISHED, +1 DAY, START OF DAY`` or ``HOURLY``.

    Raises ValueError that says what was expected. The syntax is that of Bedrock's Jobs document.
    """
    upper = text.strip().upper()
    base, _, rest = _CANNED[compatibility].get(upper, upper).partition(",")
    base = base.strip()
    if base not in ("SCHEDULED", "STARTED", "FINISHED"):
        raise ValueError(_meant(text))
    return Repeat(base, _modifiers(rest, start_of_hour=True))  # type: ignore[arg-type]


def _meant(text: str) -> str:
    """Return the message for a text that is no repeat; if it is a bare schedule, with CRON before it."""
    forms = "HOURLY, DAILY, WEEKLY, CRON and its fields, or SCHEDULED, STARTED or FINISHED with modifiers"
    interval, meant = cron.instead_of_every(text)
    if meant:
        return f"{forms}; every {interval} is {meant if meant[:8] == 'FINISHED' else f'CRON {meant}'}"
    try:
        cron.parse(cron.split_zone(text)[1])
    except cron.BadSchedule:
        return forms
    return f"{forms}; this schedule is CRON {text.strip()[:100]}"


@lru_cache(maxsize=4096)
def parse_retry_after(text: str) -> tuple[str, ...]:
    """Parse the modifiers of a retryAfter such as ``+5 MINUTES``; raises ValueError as ``parse_repeat``."""
    return _modifiers(text, start_of_hour=False)


def _modifiers(text: str, *, start_of_hour: bool) -> tuple[str, ...]:
    modifiers = []
    parts = text.upper().split(",", REPEAT_MODIFIERS_MAX)
    if len(parts) > REPEAT_MODIFIERS_MAX:
        raise ValueError(f"at most {REPEAT_MODIFIERS_MAX} modifiers")
    for part in parts:
        modifier = " ".join(part.split())
        if offset := _OFFSET.fullmatch(modifier):
            modifier = offset[1] + offset[2]
        elif not (_ANCHOR.fullmatch(modifier) or (start_of_hour and modifier == START_OF_HOUR)):
            raise ValueError(
                f"modifiers like +5 MINUTES, START OF DAY or WEEKDAY 1, not {part.strip()[:100]!r}"
            )
        modifiers.append(modifier)
    return tuple(modifiers)


def is_cron(text: str) -> bool:
    """Return whether a repeat is a cron schedule: ``CRON TZ=Europe/Berlin 0 9 * * 1-5``."""
    return text.lstrip(cron.AROUND)[:5].upper() in ("CRON ", "CRON\t")


def next_run(
    text: str, *, scheduled: str, started: str, finished: str, compatibility: Compatibility = "document"
) -> str | None:
    """Return the timestamp of the next run; None if it is outside the years 0 to 9999.

    ``started`` may be empty. Raises ValueError for a malformed expression.
    """
    if is_cron(text):
        return _next_tick(text, finished)
    repeat = parse_repeat(text, compatibility)
    base = {"SCHEDULED": scheduled, "STARTED": started or finished, "FINISHED": finished}[repeat.base]
    found = _evaluate(base, repeat.modifiers)
    if found is not None and compatibility == "current" and repeat.base == "SCHEDULED" and found < finished:
        return _reanchored(base, found, finished, repeat.modifiers)
    return found


def count_ticks(text: str, after: str, until: str) -> int:
    """Return how many ticks a schedule has after one timestamp and up to another; raises ValueError."""
    zone, expression = cron.split_zone(text)
    return cron.count_ticks(expression, moment_of(after), moment_of(until), zone)


def never_again(text: str) -> cron.BadSchedule:
    """Return the error for a schedule of which no tick is still to come."""
    _, expression = cron.split_zone(text)
    expected = "a tick that is still to come; its last one has passed, so it never fires"
    return cron.BadSchedule("expression", expression, expected)


def has_ticks(text: str) -> bool:
    """Return whether a schedule has ticks, as all do except ``@never``; raises ValueError."""
    return bool(cron.parse(cron.split_zone(text)[1]).years)


def same_ticks(one: str, other: str) -> bool:
    """Return whether two schedules have the same ticks, even if they are written differently.

    Returns False if one of them cannot be parsed.
    """
    if one == other:
        return True
    try:
        return _meaning(one) == _meaning(other)
    except ValueError:
        return False


def offset_at(text: str, tick: str) -> int | None:
    """Return the UTC offset of a schedule's zone at a tick, in seconds; None for UTC. Raises ValueError."""
    zone = _zone_of(text)
    if zone is UTC or tick >= NEVER:
        return None
    offset = moment_of(tick).astimezone(zone).utcoffset()
    return None if offset is None else int(offset.total_seconds())


def same_wall_time(text: str, tick: str, offset: int) -> str:
    """Return the current UTC time of a tick's wall-clock time, which was planned with the UTC ``offset``."""
    wall = (moment_of(tick) + timedelta(seconds=offset)).replace(tzinfo=_zone_of(text))
    return timestamp(wall.astimezone(UTC))


def clock_change_note(text: str, tick: str) -> str:
    """Return what a clock change did to a tick of a schedule; empty if nothing. Raises ValueError."""
    if _zone_of(text) is UTC:
        return ""
    zone, schedule = _meaning(text)
    return plan.clock_change_note(schedule, moment_of(tick), zone)


def _zone_of(text: str) -> tzinfo:
    zone, expression = cron.split_zone(text)
    if zone == "UTC" and "{" not in expression:
        return UTC
    return find_zone(cron.parse(expression).zone or zone)


def _meaning(text: str) -> tuple[tzinfo, cron.Schedule]:
    zone, expression = cron.split_zone(text)
    schedule = cron.parse(expression)
    return find_zone(schedule.zone or zone), replace(schedule, zone="")


def _next_tick(text: str, after: str) -> str | None:
    zone, expression = cron.split_zone(text)
    if not has_ticks(text):
        return NEVER
    tick = cron.next_tick(expression, moment_of(after), zone)
    return None if tick is None else timestamp(tick)


def _reanchored(base: str, planned: str, now: str, modifiers: tuple[str, ...]) -> str:
    """Return the first time from ``now`` on that is whole intervals after ``planned``.

    An interval of ``REANCHOR_MAX`` or more, or one with other modifiers than offsets, stays at ``planned``.
    """
    step = moment_of(planned) - moment_of(base[:19])
    if not timedelta(0) < step < REANCHOR_MAX or not all(m[0] in "+-" for m in modifiers):
        return planned
    missed = -((moment_of(planned) - moment_of(now)) // step)
    return timestamp(moment_of(planned) + missed * step)


def later(moment: str, modifiers: tuple[str, ...]) -> str | None:
    """Return a timestamp moved by modifiers, keeping milliseconds; None if the date is out of range."""
    marks = ",?" * len(modifiers)
    row = _sqlite.execute(f"SELECT strftime('%Y-%m-%d %H:%M:%f', ?{marks})", (moment, *modifiers)).fetchone()
    moved: str | None = row[0]
    return moved.removesuffix(".000") if moved and moved[0] != "-" and moved[:4] != "0000" else None


def _evaluate(moment: str, modifiers: tuple[str, ...]) -> str | None:
    at: str | None = moment
    pending: list[str] = []
    for modifier in (*modifiers, None):
        if modifier is not None and modifier != START_OF_HOUR:
            pending.append(modifier)
            continue
        marks = ",?" * len(pending)
        at = _sqlite.execute(f"SELECT datetime(?{marks})", (at, *pending)).fetchone()[0]
        pending = []
        if modifier == START_OF_HOUR and at:
            at = at[:14] + "00:00"
    return at if at and at[0] != "-" and at[:4] != "0000" else None  # SQLite allows earlier years
