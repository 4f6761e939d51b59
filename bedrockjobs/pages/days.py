"""Calendar of a schedule: per day, how many ticks ran, failed, were missed or skipped.

Pure functions of rows of the tick history and of runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import moment_of
from bedrockjobs.pages.ticking import next_ticks

DAYS_SHOWN = 30
"""Days shown: about a month."""

TICKS_TOLD = 1_000
"""Ticks assigned to their days one by one, 10 us each; more are distributed evenly."""

WIDTH, HEIGHT, LEFT = 640, 110, 34
"""Size of the chart, and the width of its scale, in SVG units."""

MISSED = frozenset({"server down", "no worker", "too late", "no ping"})
"""Reasons that count as missed: nobody decided to skip the tick."""

KINDS = (("ran", "success"), ("failed", "fail"), ("missed", "missed"), ("skipped", "skipped"))
"""Outcomes of ticks with their marks, from the bottom of a bar to its top."""


class Ledger(NamedTuple):
    """A row of the tick history."""

    tick: str
    until: str
    ticks: int
    outcome: str
    reason: str
    late: int
    run_id: int


@dataclass(slots=True)
class Day:
    """A day in the schedule's time zone."""

    day: date
    ran: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    about: bool = False
    """Whether some of its ticks were distributed evenly over several days."""

    @property
    def total(self) -> int:
        """Return the number of its ticks."""
        return self.ran + self.failed + self.missed + self.skipped

    @property
    def words(self) -> str:
        """Return a description: ``Sat 2026-11-21: 3 ran, 1 failed``."""
        counts = [(kind, getattr(self, kind)) for kind, _ in KINDS]
        told = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
        return f"{self.day:%a %Y-%m-%d}: {'about ' if self.about and told else ''}{told or 'no tick'}"


class Part(NamedTuple):
    """A segment of a bar."""

    kind: str
    mark: str
    y: float
    height: float


class Bar(NamedTuple):
    """A day in the chart."""

    day: Day
    x: float
    width: float
    parts: list[Part]


def days_of(
    ledger: Iterable[Ledger], runs: Iterable[tuple[str, str, str]], repeat: str, zone: tzinfo, now: datetime
) -> list[Day]:
    """Return the last days, oldest first.

    ``runs`` are (scheduled time, cause, status), newest first. A tick failed if its newest run failed.
    """
    today = now.astimezone(zone).date()
    days = [Day(today - timedelta(days=back)) for back in reversed(range(DAYS_SHOWN))]
    begins = [datetime.combine(day.day, time(), zone) for day in days]
    left = TICKS_TOLD
    for row in ledger:
        left -= _enter(row, days, begins, repeat, left)
    told: set[str] = set()
    for meant_for, cause, status in runs:
        tick = meant_for[:19]
        if cause == "manual" or tick in told:
            continue
        told.add(tick)
        place = bisect_right(begins, moment_of(tick)) - 1
        if status in FAILED_STATUSES and place >= 0 and days[place].ran:
            days[place].ran -= 1
            days[place].failed += 1
    return days


def _enter(row: Ledger, days: Sequence[Day], begins: Sequence[datetime], repeat: str, most: int) -> int:
    """Add a row to its days; return how many ticks were computed."""
    first, last = (bisect_right(begins, moment_of(timestamp)) - 1 for timestamp in (row.tick, row.until))
    kind = "ran" if row.outcome != "skipped" else "missed" if row.reason in MISSED else "skipped"
    if last < 0:
        return 0
    if first == last:
        _add(days[last], kind, row.ticks)
        return 0
    if row.ticks <= most:
        found = _places(row, begins, repeat)
        if len(found) == row.ticks:
            for place in found:
                if place >= 0:
                    _add(days[place], kind, 1)
            return row.ticks
    _spread(row, kind, days, begins)
    return min(row.ticks, most)


def _places(row: Ledger, begins: Sequence[datetime], repeat: str) -> list[int]:
    """Return the day index of each tick of a row, by the current schedule."""
    found: list[int] = []
    until = moment_of(row.until)
    for tick in next_ticks(repeat, moment_of(row.tick) - timedelta(seconds=1)):
        if tick > until or len(found) > row.ticks:
            break
        found.append(bisect_right(begins, tick) - 1)
    return found


def _spread(row: Ledger, kind: str, days: Sequence[Day], begins: Sequence[datetime]) -> None:
    """Distribute the ticks of a row evenly over its days."""
    begin, end = moment_of(row.tick), moment_of(row.until)
    step = (end - begin) / max(row.ticks - 1, 1)
    ends = [*begins[1:], begins[-1] + timedelta(days=2)]
    for place, (day, low, high) in enumerate(zip(days, begins, ends, strict=True)):
        if high <= begin or low > end:
            continue
        before = 0 if low <= begin else -((begin - low) // step)
        upto = row.ticks if high > end else min(-((begin - high) // step), row.ticks)
        _add(days[place], kind, max(upto - before, 0))
        day.about = True


def _add(day: Day, kind: str, count: int) -> None:
    setattr(day, kind, getattr(day, kind) + count)


def bars_of(days: Sequence[Day]) -> list[Bar]:
    """Return one bar per day, proportional to its ticks."""
    most = max((day.total for day in days), default=0) or 1
    step = (WIDTH - LEFT) / len(days)
    found = []
    for index, day in enumerate(days):
        parts, foot = [], HEIGHT - 5.0
        for kind, mark in KINDS:
            if count := getattr(day, kind):
                height = max(count / most * (HEIGHT - 20), 3)
                foot -= height
                parts.append(Part(kind, mark, foot, height))
        found.append(Bar(day, LEFT + index * step, step - 3, parts))
    return found
