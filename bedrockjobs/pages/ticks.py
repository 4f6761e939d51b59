"""Ticks of schedules for the pages: last and next ticks, pauses, and a calendar of outcomes per day."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple

from bedrockjobs.base.clock import moment_of, timestamp
from bedrockjobs.base.vocabulary import FAILED_STATUSES, called
from bedrockjobs.commands import ExplainJob, ListRuns, ListTicks
from bedrockjobs.pages.site import Site
from bedrockjobs.schedule import cron

TICKS_SHOWN = 30
"""Maximum ticks that are shown as cells: the last ones."""


class Cell(NamedTuple):
    """One tick: its state, its tooltip, and the runID, 0 if there was no run."""

    state: str
    tooltip: str
    run_id: int


async def cells(site: Site, job_id: int) -> list[Cell]:
    """Return the last ticks of a schedule, oldest first."""
    rows = (await site.read(ListTicks(job_id=job_id, limit=TICKS_SHOWN)))["ticks"]
    runs = (await site.read(ListRuns(job_id=job_id, limit=TICKS_SHOWN)))["runs"]
    return cells_of(rows, runs)


def cells_of(rows: list[dict[str, Any]], runs: list[dict[str, Any]]) -> list[Cell]:
    """Return the last ticks from the newest rows of the tick history and the newest runs, oldest first.

    A row of the tick history may cover several ticks, so runs are matched by their scheduled time.
    """
    result: list[Cell] = []
    for row in rows[:TICKS_SHOWN]:
        own = {
            run["scheduledFor"][:19]: run
            for run in reversed(runs)
            if row["tick"] <= run["scheduledFor"][:19] <= row["until"] and run["cause"] != "manual"
        }
        each = [_fired(row, tick, own[tick]) for tick in sorted(own, reverse=True)][: row["count"]]
        each += [_cell(row)] * min(row["count"] - len(each), TICKS_SHOWN)
        result += each
    return result[:TICKS_SHOWN][::-1]


def failed_in_a_row(rows: list[dict[str, Any]], runs: list[dict[str, Any]]) -> int:
    """Return how many of the newest ticks failed without a success in between, as far as is known.

    For a row of the tick history with several ticks, only the number of failures is known: the row counts if
    all its ticks failed. Within a row, the newest runs show the order.
    """
    ticks: set[str] = set()
    for run in runs:
        if run["ended"] and run["status"] not in FAILED_STATUSES:
            break
        if run["ended"]:
            ticks.add(run["scheduledFor"])
    whole = 0
    for row in rows:
        if row["outcome"] == "skipped":
            continue
        if row.get("failed", 0) < row["count"]:
            break
        whole += row["count"]
    return max(len(ticks), whole)


def _fired(row: dict[str, Any], tick: str, run: dict[str, Any]) -> Cell:
    late_s = int((moment_of(run["started"]) - moment_of(tick)).total_seconds())
    state = state_of({**row, "late": late_s})
    why = f", {row['reason']}" if row["reason"] else ""
    tooltip = f"{tick} UTC: {called(state)}{why}{_late(late_s)}; run {run['runID']}: {called(run['status'])}"
    return Cell(state if run["status"] == "success" else run["status"], tooltip, run["runID"])


def _cell(row: dict[str, Any]) -> Cell:
    state = state_of(row)
    when = f"{row['tick']} UTC"
    if row["count"] > 1:
        when = f"{row['count']} ticks, {row['tick']} to {row['until']} UTC"
    why = f", {row['reason']}" if row["reason"] else ""
    return Cell(state, f"{when}: {called(state)}{why}{_late(row['late'])}", row["runID"])


def _late(late_s: int) -> str:
    return f", {late_s} s late" if late_s > 0 else ""


def state_of(row: dict[str, Any]) -> str:
    """Return the state of a row of the tick history: ``missed``, ``late`` or else its outcome."""
    if row["reason"] in ("server down", "no worker"):
        return "missed"
    if row["outcome"] == "fired" and row["late"] >= 10:  # less is ordinary latency
        return "late"
    return str(row["outcome"])


def end_of(row: dict[str, Any]) -> tuple[str, str]:
    """Return a row's state by the outcomes of its runs, and how many of its ticks failed, as text."""
    state, status, failed = state_of(row), row.get("status", ""), row.get("failed", 0)
    if status == "running":
        return status, ""
    if failed:
        shown = status if status in FAILED_STATUSES else "fail"
        return shown, f"{failed} of {row['count']}" if row["count"] > 1 else ""
    return (status if status in ("terminated", "killed") else state), ""


async def pause_descriptions(site: Site, schedules: list[dict[str, Any]]) -> dict[str, str]:
    """Return a description of each pause that applies to the schedules, by its pattern."""
    reasons: dict[str, str] = {}
    for row in schedules:
        if row["paused"] and row["paused"] not in reasons:
            waits = (await site.read(ExplainJob(job_id=row["jobID"])))["waitsFor"]
            pauses_told = [wait["detail"] for wait in waits if wait["reason"] in ("paused", "held")]
            reasons[row["paused"]] = pauses_told[0] if pauses_told else f"{row['paused']} is paused"
    return reasons


def zone_of(repeat: str) -> str:
    """Return the zone of a stored schedule."""
    return cron.split_zone(repeat)[0]


def next_ticks(repeat: str, after: datetime) -> Iterator[datetime]:
    """Yield the ticks of a stored schedule in UTC; none if it is invalid."""
    try:
        zone, expression = cron.split_zone(repeat)
        at = cron.next_tick(expression, after, zone)
        while at is not None:
            yield at.astimezone(UTC)
            at = cron.next_tick(expression, at, zone)
    except ValueError:
        return


def timestamps(ticks: Iterator[datetime], count: int) -> list[str]:
    """Return the timestamps of the first ``count`` ticks."""
    return [timestamp(tick) for _, tick in zip(range(count), ticks, strict=False)]


TICKS_PLACED_MAX = 1_000
"""Maximum ticks assigned to days one by one, in 10 us each; further ticks are spread evenly over the days."""

WIDTH, HEIGHT, LEFT = 640, 110, 34
"""Width and height of the chart, and the width of its scale, in SVG units."""

MISSED = frozenset({"server down", "no worker", "too late", "no ping"})
"""Reasons for which a skipped tick counts as missed: it was not skipped on purpose."""

KINDS = (("ran", "success"), ("failed", "fail"), ("missed", "missed"), ("skipped", "skipped"))
"""The outcomes of ticks, each with its mark, as a bar stacks them from the bottom up."""


class TickHistoryRow(NamedTuple):
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
    """The outcomes of the ticks of one day, in the schedule's time zone."""

    day: date
    ran: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    about: bool = False
    """True if ticks were distributed evenly over this and other days, so that counts are approximate."""

    @property
    def total(self) -> int:
        """Return the number of ticks of the day."""
        return self.ran + self.failed + self.missed + self.skipped

    @property
    def summary(self) -> str:
        """Return a description: ``Sat 2026-11-21: 3 ran, 1 failed``."""
        counts = [(kind, getattr(self, kind)) for kind, _ in KINDS]
        summary = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
        return f"{self.day:%a %Y-%m-%d}: {'about ' if self.about and summary else ''}{summary or 'no tick'}"


class OutcomeSegment(NamedTuple):
    """A segment of a bar: the ticks of one outcome."""

    kind: str
    mark: str
    y: float
    height: float


class Bar(NamedTuple):
    """The bar of one day in the chart."""

    day: Day
    x: float
    width: float
    parts: list[OutcomeSegment]


def days_of(
    history: Iterable[TickHistoryRow],
    runs: Iterable[tuple[str, str, str]],
    repeat: str,
    zone: tzinfo,
    now: datetime,
) -> list[Day]:
    """Return the last days, oldest first.

    ``runs`` are (scheduled time, cause, status), newest first. A tick failed if its newest run failed.
    """
    today = now.astimezone(zone).date()
    days = [Day(today - timedelta(days=back)) for back in reversed(range(30))]  # about a month
    begins = [datetime.combine(day.day, time(), zone) for day in days]
    left = TICKS_PLACED_MAX
    for row in history:
        left -= _enter(row, days, begins, repeat, left)
    problem_days: set[str] = set()
    for meant_for, cause, status in runs:
        tick = meant_for[:19]
        if cause == "manual" or tick in problem_days:
            continue
        problem_days.add(tick)
        place = bisect_right(begins, moment_of(tick)) - 1
        if status in FAILED_STATUSES and place >= 0 and days[place].ran:
            days[place].ran -= 1
            days[place].failed += 1
    return days


def _enter(
    row: TickHistoryRow, days: Sequence[Day], begins: Sequence[datetime], repeat: str, most: int
) -> int:
    """Add the ticks of a row to their days; return how many were computed one by one, at most ``most``."""
    first, last = (bisect_right(begins, moment_of(timestamp)) - 1 for timestamp in (row.tick, row.until))
    kind = "ran" if row.outcome != "skipped" else "missed" if row.reason in MISSED else "skipped"
    if last < 0:
        return 0
    if first == last:
        _add(days[last], kind, row.ticks)
        return 0
    if row.ticks <= most:
        places = _places(row, begins, repeat)
        if len(places) == row.ticks:
            for place in places:
                if place >= 0:
                    _add(days[place], kind, 1)
            return row.ticks
    _spread(row, kind, days, begins)
    return min(row.ticks, most)


def _places(row: TickHistoryRow, begins: Sequence[datetime], repeat: str) -> list[int]:
    """Return the index of the day of each tick of a row, as the current schedule gives them."""
    places: list[int] = []
    until = moment_of(row.until)
    for tick in next_ticks(repeat, moment_of(row.tick) - timedelta(seconds=1)):
        if tick > until or len(places) > row.ticks:
            break
        places.append(bisect_right(begins, tick) - 1)
    return places


def _spread(row: TickHistoryRow, kind: str, days: Sequence[Day], begins: Sequence[datetime]) -> None:
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
    bars = []
    for index, day in enumerate(days):
        parts, foot = [], HEIGHT - 5.0
        for kind, mark in KINDS:
            if count := getattr(day, kind):
                height = max(count / most * (HEIGHT - 20), 3)
                foot -= height
                parts.append(OutcomeSegment(kind, mark, foot, height))
        bars.append(Bar(day, LEFT + index * step, step - 3, parts))
    return bars
