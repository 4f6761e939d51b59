"""The last days of a schedule, each by its own calendar: how many ticks ran, failed, were missed or skipped.

Pure: made of rows of the ledger and of runs. It knows no page and no template.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from bedrockjobs.base.statuses import FAILED_STATUSES
from bedrockjobs.base.wire import moment_of
from bedrockjobs.pages.ticking import next_ticks

DAYS_SHOWN = 30
"""Days that are shown: a month is what people ask about."""

TICKS_TOLD = 1_000
"""Ticks that are told apart by their days one by one, 10 us each; more are spread evenly."""

WIDTH, HEIGHT, LEFT = 640, 110, 34
"""Size of the chart, and the room of its scale, in its own units."""

MISSED = frozenset({"server down", "no worker", "too late", "no ping"})
"""Why a tick did not run that somebody counts on: nobody decided so."""

KINDS = (("ran", "success"), ("failed", "fail"), ("missed", "missed"), ("skipped", "skipped"))
"""What becomes of ticks, with its mark, from the foot of a bar to its top."""


class Ledger(NamedTuple):
    """A row of the ledger, as the view has it."""

    tick: str
    until: str
    ticks: int
    outcome: str
    reason: str
    late: int
    run_id: int


@dataclass(slots=True)
class Day:
    """A day of the schedule's own calendar."""

    day: date
    ran: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    about: bool = False
    """Whether some of its ticks were spread evenly over several days."""

    @property
    def total(self) -> int:
        """Return how many ticks it had."""
        return self.ran + self.failed + self.missed + self.skipped

    @property
    def words(self) -> str:
        """Return the day in words: ``Sat 2026-11-21: 3 ran, 1 failed``."""
        counts = [(kind, getattr(self, kind)) for kind, _ in KINDS]
        told = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
        return f"{self.day:%a %Y-%m-%d}: {'about ' if self.about and told else ''}{told or 'no tick'}"


class Part(NamedTuple):
    """A part of a bar: what it stands for, its mark, and where it lies."""

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
    """Return the last days, the oldest first.

    ``runs`` are the moment each was meant for, its cause and its status, the newest first. A tick failed
    whose newest run did, however often it was tried before.
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
    """Add a row to its days; return how many ticks were looked at for that."""
    first, last = (bisect_right(begins, moment_of(stamp)) - 1 for stamp in (row.tick, row.until))
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
    """Return the day of each tick of a row, as the schedule is now."""
    found: list[int] = []
    until = moment_of(row.until)
    for tick in next_ticks(repeat, moment_of(row.tick) - timedelta(seconds=1)):
        if tick > until or len(found) > row.ticks:
            break
        found.append(bisect_right(begins, tick) - 1)
    return found


def _spread(row: Ledger, kind: str, days: Sequence[Day], begins: Sequence[datetime]) -> None:
    """Add the ticks of a row to its days as if they came evenly."""
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
    """Return the days as bars, each as high as it has ticks."""
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
