"""Schedules: outcomes of their ticks, since when they have been failing, and ValidateSchedule.

Outcomes are computed from runs, given as (scheduled time, cause, status), newest first.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import moment_of, timestamp
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import ValidateSchedule
from bedrockjobs.engine.handlers.context import Answer, handles
from bedrockjobs.engine.handlers.serving import Serving
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.expression import ALL, members_of
from bedrockjobs.schedule.cron.plan import find_zone
from bedrockjobs.schedule.repeat import complaint, never_again, next_run, parse_repeat

RUNS_EXAMINED = 1_000
"""Maximum runs of a schedule that are examined, newest first; reading them takes a few milliseconds."""

Try = tuple[str, str, str]

UNDECIDED = frozenset({"running", "returned", "snoozed", "terminated", "killed"})
"""Statuses that are neither success nor failure; terminated and killed runs were ended on request."""


class ScheduleHealth(NamedTuple):
    """Whether a schedule is failing."""

    failing_since: str = ""
    """Scheduled time of the first failed run since the last success; empty if the last run did not fail."""
    has_succeeded: bool = True


def standing_of(tries: Iterable[Try]) -> ScheduleHealth:
    """Return since when a schedule has been failing, and whether any of the runs succeeded."""
    since = ""
    for meant_for, _, status in tries:
        if status in UNDECIDED:
            continue
        if status not in FAILED_STATUSES:
            return ScheduleHealth(since)
        since = meant_for[:19]
    return ScheduleHealth(since, has_succeeded=not since)


class TickOutcomes:
    """Outcomes of a schedule's ticks, each by its newest run."""

    def __init__(self, tries: Iterable[Try]) -> None:
        """Index the runs of one schedule."""
        newest: dict[str, str] = {}
        for meant_for, cause, status in tries:
            if cause != "manual" and status not in ("returned", "snoozed"):
                newest.setdefault(meant_for[:19], status)
        self._ticks = sorted(newest)
        self._statuses = [newest[tick] for tick in self._ticks]
        failed = (status in FAILED_STATUSES for status in self._statuses)
        self._failed: Sequence[int] = [0, *accumulate(failed)]

    def summarize(self, first: str, last: str) -> tuple[str, int]:
        """Return the status of the last run in a range of ticks, or empty, and how many ticks failed."""
        low, high = bisect_left(self._ticks, first), bisect_right(self._ticks, last)
        return (self._statuses[high - 1] if high > low else "", self._failed[high] - self._failed[low])


# ValidateSchedule: errors, warnings, a description in words, and the next ticks of a repeat.
#
# Only the handler reads the clock: all other functions get the current time.


TICKS_SHOWN = 5
"""Maximum ticks in a reply: the next ones."""

_BASES = {
    "SCHEDULED": "the moment it was due",
    "STARTED": "the moment it was taken",
    "FINISHED": "the end of each run",
}
_BEDROCK = re.compile(r"\s*(?:HOURLY|DAILY|WEEKLY|SCHEDULED|STARTED|FINISHED)\s*(?:,|$)", re.IGNORECASE)

_BY_NAME = {field.name: field for field in ALL}
_FIELDS = tuple(_BY_NAME)
_COUNTED = {"second": ("minute", 60), "minute": ("hour", 60), "hour": ("day", 24), "month": ("year", 12)}
_DAYS = {"day-of-month": ("month", 31), "day-of-week": ("week", 7)}
_STEP = re.compile(r"[*0]/([0-9]{1,3})")
_INTERVAL = re.compile(r"([0-9]{1,2})([smh])", re.IGNORECASE)
_WEEKDAY_NUMBER = re.compile(r"(?<![/#0-9])[0-7]")
_UNITS = {"s": "second", "m": "minute", "h": "hour"}


@handles(ValidateSchedule)
def validate(serving: Serving, command: ValidateSchedule) -> Answer:
    """Validate a repeat as of the server's time, or of the time ``after`` in the command."""
    now = serving.clock.now()
    if command.after is not None:
        now = moment_of(stamped(command.after, timestamp(now)))
    return Answer(validated(command.repeat, now, serving.settings.compatibility))


def validated(text: str, now: datetime, compatibility: Compatibility) -> str:
    """Return the reply to ValidateSchedule as JSON text: valid, errors, warnings, words, next."""
    try:
        warnings, description, ticks = (
            _repeat(text, now, compatibility) if _BEDROCK.match(text) else _schedule(text, now)
        )
    except ValueError as error:
        reply = {"valid": False, "errors": [str(error)], "warnings": [], "words": "", "next": []}
    else:
        reply = {"valid": True, "errors": [], "warnings": warnings, "words": description, "next": ticks}
    return jsontext.dump(reply)


@lru_cache(maxsize=4_096)
def words_of(text: str) -> str:
    """Return the description of a stored repeat, or what is wrong with it."""
    try:
        zone, expression = cron.split_zone(text)
        return _words(expression, zone)
    except ValueError as error:
        return str(error)


def _words(expression: str, zone: str) -> str:
    return cron.describe(expression) + ("" if find_zone(zone) is UTC else f" ({zone})")


# --- Bedrock's repeats -----------------------------------------------------------------------------------


def _repeat(text: str, now: datetime, compatibility: Compatibility) -> tuple[list[str], str, list[str]]:
    try:
        repeat = parse_repeat(text, compatibility)
    except ValueError as error:
        raise ValueError(complaint(error)) from None
    ticks: list[str] = []
    at = timestamp(now)
    while len(ticks) < TICKS_SHOWN:
        tick = next_run(text, scheduled=at, started=at, finished=at, compatibility=compatibility)
        if tick is None:
            break
        ticks.append(at := tick)
    warnings = []
    if not ticks:
        warnings.append("there is no such date: the job ends with its first run")
    elif any(tick <= before for before, tick in zip([timestamp(now), *ticks], ticks, strict=False)):
        warnings.append("the next run is not later than the previous one: it is due again at once")
    return warnings, f"{', '.join(repeat.modifiers)}, counted from {_BASES[repeat.base]}", ticks


# --- schedules -------------------------------------------------------------------------------------------


def _schedule(text: str, now: datetime) -> tuple[list[str], str, list[str]]:
    zone, expression = cron.split_zone(text)
    schedule = cron.parse(expression)
    ticks: list[str] = []
    at: datetime | None = now
    while len(ticks) < TICKS_SHOWN and at is not None and (at := cron.next_tick(expression, at, zone)):
        ticks.append(timestamp(at))
    if schedule.years and not ticks:
        raise never_again(text)
    fields = "" if expression.startswith("{") else expression
    warnings = [*_reading(fields), *_quartz(fields), *_either(schedule), *_uneven(fields), *_single(fields)]
    if schedule.years:
        warnings += _left(ticks)
        zone = schedule.zone or zone
        warnings += _clock_changes(schedule, find_zone(zone), zone, now)
    return warnings, _words(expression, zone), ticks


def _fields(expression: str) -> dict[str, str]:
    """Return the fields of an expression by name; empty for a macro or an interval."""
    fields = expression.split()
    if len(fields) == 7:
        return dict(zip(_FIELDS, fields, strict=True))
    if len(fields) == 6 and _ends_with_year(expression):
        return dict(zip(_FIELDS[1:], fields, strict=True))
    return dict(zip(_FIELDS[:6] if len(fields) == 6 else _FIELDS[1:6], fields, strict=False))


def _ends_with_year(expression: str) -> bool:
    """Return whether six fields are minute to year: then a ``0`` for the second in front changes nothing."""
    try:
        return cron.parse(f"0 {expression.strip()}") == cron.parse(expression)
    except ValueError:
        return False


def _reading(expression: str) -> Iterator[str]:
    if len(expression.split()) != 6:
        return
    if _ends_with_year(expression):
        yield "6 fields: the last one is read as the year, the first as the minute"
    else:
        yield "6 fields: the first one is read as the second, not as the minute; some systems put a year last"


def _quartz(expression: str) -> Iterator[str]:
    """Warn of weekday numbers in an expression with ``?``, which is probably from Quartz."""
    days = _fields(expression).get("day-of-week", "")
    if "?" in expression and _WEEKDAY_NUMBER.search(days):
        yield (
            f"day-of-week {days}: 1 is Monday and 7 is Sunday here; in Quartz, which has the ?,"
            " 1 is Sunday and 7 is Saturday: names such as MON-FRI mean the same in both"
        )


def _either(schedule: cron.Schedule) -> Iterator[str]:
    if schedule.days.either:
        yield "day-of-month and day-of-week are both restricted: a day that fits either of them counts"


def _left(ticks: list[str]) -> Iterator[str]:
    if len(ticks) < TICKS_SHOWN:
        yield f"it ends with the tick of {ticks[-1]}"


def _uneven(expression: str) -> Iterator[str]:
    """Warn of steps that do not divide their range evenly, so that the last step is shorter."""
    for name, field in _steps(expression):
        for term in field.split(","):
            step = int(match[1]) if (match := _STEP.fullmatch(term)) else 1
            around, count = (_COUNTED | _DAYS)[name]
            if step == 1 or count <= step:
                continue
            text = f"{name} {term}: the steps restart with each {around}"
            if name in _DAYS:
                yield text
            elif count % step:
                last = (count - 1) // step * step
                yield f"{text}: the one after {last + (name == 'month')} is {count - last} long, not {step}"


def _single(expression: str) -> Iterator[str]:
    """Warn of steps that match a single value, such as ``*/60`` in minutes."""
    for name, text in _fields(expression).items():
        for term in text.split(","):
            body, slash, step = term.partition("/")
            field = _BY_NAME[name]
            # */7 in weekdays matches one value too, but is meant to: once a week.
            if not slash or int(step) == 1 or (body == "*" and int(step) <= field.high):
                continue
            if len(members_of(field, term)) == 1:
                first = field.low if body == "*" else body.partition("-")[0]
                yield f"{name} {term}: the step goes beyond the end, so only {first} is meant"


def _steps(expression: str) -> list[tuple[str, str]]:
    """Return name and text of the fields that may have steps; an interval ``7m`` is ``*/7`` of minutes."""
    if interval := _INTERVAL.fullmatch(expression.strip()):
        return [(_UNITS[interval[2].lower()], f"*/{int(interval[1])}")]
    fields = _fields(expression)
    return [(name, fields[name]) for name in (*_COUNTED, *_DAYS) if name in fields]


# --- clock changes -----------------------------------------------------------------------------------


class _OffsetChange(NamedTuple):
    """A clock change of a zone: its time, and the UTC offsets before and after it."""

    moment: datetime
    before: timedelta
    behind: timedelta


def _clock_changes(schedule: cron.Schedule, zone: tzinfo, name: str, now: datetime) -> Iterator[str]:
    """Warn of wall-clock times that a clock change skips or repeats.

    A schedule with ``*`` in minute and hour needs no warning: it goes on in real time through clock changes.
    """
    if schedule.wild and schedule.hours == (1 << 24) - 1:
        return
    for change in _changes(zone, now):
        wall = change.moment.replace(tzinfo=None)
        low, high = sorted((wall + change.before, wall + change.behind))
        tick = schedule.first_from(low)
        if tick is None or tick >= high:
            continue
        when = f"{tick:%Y-%m-%d %H:%M} in {name}"
        if change.before < change.behind:
            instead = "is skipped" if schedule.wild else f"runs at {high:%H:%M} instead"
            yield f"{when} does not exist because the clock is put forward: that tick {instead}"
        else:
            often = "runs both times" if schedule.wild else "runs the first time only"
            yield f"{when} comes twice because the clock is put back: that tick {often}"


def _changes(zone: tzinfo, now: datetime) -> Iterator[_OffsetChange]:
    """Yield the clock changes of a zone in the next 366 days."""
    if zone is UTC:
        return
    early = now.astimezone(UTC).replace(microsecond=0)
    for _ in range(366):
        late = early + timedelta(days=1)
        before, behind = _offset(early, zone), _offset(late, zone)
        if before != behind:
            low, high = 0, 86_400
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(early + timedelta(seconds=middle), zone) == before:
                    low = middle
                else:
                    high = middle
            yield _OffsetChange(early + timedelta(seconds=high), before, behind)
        early = late


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
