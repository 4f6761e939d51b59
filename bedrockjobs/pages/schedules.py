"""The schedules page, with next and last ticks and with actions; the page of one schedule; upcoming ticks."""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import moment_of, span, timestamp, timestamp_ms
from bedrockjobs.base.config import TICK_ROWS_MAX
from bedrockjobs.base.errors import BadArguments, NotFound, line_of
from bedrockjobs.base.glob import literal
from bedrockjobs.base.vocabulary import FAILED_STATUSES, called
from bedrockjobs.commands import ExplainJob, ListRuns, ListSchedules, ListTicks, QueryJob, ValidateSchedule
from bedrockjobs.pages.formatting import hidden_options, option_text
from bedrockjobs.pages.site import ROWS, Pages, Site
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import find_zone
from bedrockjobs.views.find import ScheduleAhead
from bedrockjobs.views.schedules import RUNS_EXAMINED, words_of

# The page of one schedule: next ticks, clock changes, tick history and durations of runs.


RUNS_SHOWN = 30
"""Maximum runs in the chart of durations."""

CHART_WIDTH, CHART_HEIGHT, CHART_LEFT = 640, 130, 104
"""Width and height of the chart of durations, and the width that its scale has on narrow screens, in SVG
units."""

_TOLD_ELSEWHERE = frozenset(
    {
        "created",
        "data",
        "jobID",
        "lastRun",
        "name",
        "nextRun",
        "repeat",
        "retryAfter",
        "state",
        "error",
        "exitCode",
        "parentJobID",
        "parentData",
        "finishedChildJobs",
        "cancelledChildJobs",
        "failedChildJobs",
        "attempt",
        "runID",
        "expires",
        "hidden",
    }
)


class DurationBar(NamedTuple):
    """A run in the chart of durations."""

    run: dict[str, Any]
    x: float
    y: float
    width: float
    height: float


class Tick(NamedTuple):
    """A label of the chart's scale, with its distance from the top."""

    y: float
    text: str


async def schedule(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a schedule."""
    job = await site.read(QueryJob.read({"jobID": request.match_info["jobID"]}))
    job.pop("data", None)  # up to 4 MiB that are not shown
    row = await _row(site, job)
    parameters = {"before": request.query["before"]} if request.query.get("before") else {}
    reply = await site.read(ListTicks.read({"jobID": job["jobID"], "limit": ROWS + 1, **parameters}))
    ticks = reply["ticks"]
    runs = (await site.read(ListRuns(job_id=job["jobID"], limit=RUNS_SHOWN)))["runs"]
    meaning = await site.read(ValidateSchedule(repeat=row["repeat"]))
    zone = zone_of(row["repeat"]) if meaning["valid"] else "UTC"
    coming = [
        (tick, f"{moment_of(tick).astimezone(find_zone(zone)):%a %Y-%m-%d %H:%M:%S %z}")
        for tick in timestamps(next_ticks(row["repeat"], site.now()), 10)
    ]
    month = await _days(site, job["jobID"], row["repeat"], zone)
    bars, longest_s = _bars(runs)
    durations = [Tick(_height_of(part * longest_s, longest_s), span(part * longest_s)) for part in (0.5, 1)]
    # ``troubled``: the newest days with failed or missed ticks, which are listed below the chart.
    return await site.show(
        request,
        "schedule.html",
        title=row["name"],
        row=row,
        job=job,
        zone=zone,
        coming=coming,
        notes=[*meaning["errors"], *meaning["warnings"]],
        pauses=await pause_descriptions(site, [row]),
        exactly=literal,
        history=[(tick, *end_of(tick)) for tick in ticks[:ROWS]],
        failing_since=reply.get("failingSince", ""),
        in_a_row=failed_in_a_row(ticks, runs),
        strip=[] if parameters else cells_of(ticks, runs),
        never_succeeded=reply.get("neverSucceeded", False),
        older=ticks[ROWS - 1]["tick"] if len(ticks) > ROWS else None,
        before=parameters.get("before", ""),
        month=bars_of(month),
        kinds=[(kind, mark, sum(getattr(day, kind) for day in month)) for kind, mark in DAY_KINDS],
        most=max(day.total for day in month),
        about=any(day.about for day in month),
        troubled=[day for day in reversed(month) if day.failed or day.missed][:7],
        month_size={"width": MONTH_WIDTH, "height": MONTH_HEIGHT, "left": MONTH_LEFT},
        bars=bars,
        longest_s=longest_s,
        durations=[Tick(CHART_HEIGHT - 5, "0"), *durations],
        chart={"width": CHART_WIDTH, "height": CHART_HEIGHT, "left": CHART_LEFT},
        options={
            name: option_text(name, value)
            for name, value in sorted(job.items())
            if name not in _TOLD_ELSEWHERE
        }
        | hidden_options(job),
    )


async def _days(site: Site, job_id: int, repeat: str, zone: str) -> list[Day]:
    """Return the outcomes of a schedule's last days, in its time zone."""
    rows, runs = await site.views.find.history_of(job_id, TICK_ROWS_MAX, RUNS_EXAMINED)
    history = [TickHistoryRow._make(row) for row in rows if row[0] is not None]
    return days_of(history, runs, repeat, find_zone(zone), site.now())


async def _row(site: Site, job: dict[str, Any]) -> dict[str, Any]:
    """Return the row of ListSchedules for a job; raises NotFound if it is no schedule."""
    wanted = ListSchedules(name=literal(job["name"]), after=max(job["jobID"] - 1, 0), limit=1)
    rows = (await site.read(wanted))["schedules"]
    if not rows or rows[0]["jobID"] != job["jobID"]:
        raise NotFound(
            "Not a schedule", f"job {job['jobID']} ({job['name']}) has no repeat that begins with CRON"
        )
    schedule: dict[str, Any] = rows[0]
    return schedule


def _height_of(seconds: float, longest_s: float) -> float:
    """Return the y coordinate of a duration in the chart."""
    return CHART_HEIGHT - 5 - (seconds / longest_s * (CHART_HEIGHT - 20) if longest_s else 0)


def _bars(runs: list[dict[str, Any]]) -> tuple[list[DurationBar], float]:
    """Return a bar for each ended run, oldest first, and the longest duration in seconds."""
    ended = [run for run in reversed(runs) if run["ended"]]
    took = [
        max((moment_of(run["ended"]) - moment_of(run["started"])) / timedelta(seconds=1), 0) for run in ended
    ]
    longest = max(took, default=0)
    step = (CHART_WIDTH - CHART_LEFT) / RUNS_SHOWN
    bars = []
    for index, (run, seconds) in enumerate(zip(ended, took, strict=True)):
        height = max(seconds / longest * (CHART_HEIGHT - 20) if longest else 0, 3)
        bars.append(DurationBar(run, CHART_LEFT + index * step, CHART_HEIGHT - 5 - height, step - 3, height))
    return bars, longest


SCHEDULE_ROWS = 25
"""Maximum schedules on a page: each costs two more reads, of its ticks and of its runs."""

FAILING_SHOWN = 10
"""Maximum failing schedules that are listed above the others: each costs one more read, of its error."""

_FILTERS = ("name", "source", "after")


class Failing(NamedTuple):
    """A schedule whose last run failed."""

    run: dict[str, Any]
    line: str
    """The main line of the error of that run."""


async def _failing(site: Site) -> tuple[list[Failing], bool]:
    """Return the schedules whose last run failed, and whether there are more."""
    names = await site.views.find.schedules_that_failed(FAILING_SHOWN + 1)
    failing = []
    for name in names[:FAILING_SHOWN]:
        runs = (await site.read(ListRuns.read({"name": literal(name), "limit": 1})))["runs"]
        failing += [Failing(run, line_of(run["error"])) for run in runs]
    return failing, len(names) > FAILING_SHOWN


async def schedules(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of schedules."""
    parameters = {name: request.query[name] for name in _FILTERS if request.query.get(name)}
    rows = (await site.read(ListSchedules.read({**parameters, "limit": SCHEDULE_ROWS + 1})))["schedules"]
    shown = rows[:SCHEDULE_ROWS]
    failing, more_fail = ([], False) if parameters else await _failing(site)
    return await site.show(
        request,
        "schedules.html",
        title="Schedules",
        failing=failing,
        more_fail=more_fail,
        rows=shown,
        cells={row["jobID"]: await cells(site, row["jobID"]) for row in shown},
        pauses=await pause_descriptions(site, shown),
        exactly=literal,
        filters={name: parameters.get(name, "") for name in _FILTERS},
        following=shown[-1]["jobID"] if len(rows) > SCHEDULE_ROWS else None,
    )


# The upcoming page: ticks of all schedules in the next 24 hours, in order of time.
#
# Only as many ticks are computed as a page shows.


AHEAD = timedelta(hours=24)
"""How far ahead ticks are shown."""

TICKS_SHOWN = 100
"""Maximum ticks on a page."""

MARKS_SHOWN = 48
"""Maximum ticks drawn one by one in a timeline; a schedule with more is drawn as a bar."""

SCHEDULES_EXAMINED = 2_000
"""Maximum schedules whose ticks are shown, those due next; the page says if there are more schedules."""

_CURSOR = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([0-9]{1,18})")


class Coming(NamedTuple):
    """An upcoming tick."""

    at: str
    job_id: int
    schedule: ScheduleAhead


class ScheduleTimeline(NamedTuple):
    """The timeline of one schedule."""

    schedule: ScheduleAhead
    description: str
    ticks: list[tuple[str, float]]
    """The timestamp of each tick, and the minutes until then; of a frequent schedule, only its first tick."""
    frequent: bool


async def upcoming(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of upcoming ticks."""
    name, after = request.query.get("name", ""), request.query.get("after", "")
    command = ListSchedules.read({"name": name} if name else {})
    now = site.now()
    schedules, more = await site.views.find.schedules_ahead(
        command.name, timestamp_ms(now), SCHEDULES_EXAMINED
    )
    end = timestamp(now + AHEAD)
    reached = ""
    if more:  # the schedules that were left out may have ticks from then on
        reached = end = min(schedules[-1].next_run[:19], end)
    ticks = _page(schedules, now, _cursor(after), end)
    shown = ticks[:TICKS_SHOWN]
    return await site.show(
        request,
        "upcoming.html",
        title="Upcoming",
        ticks=[(tick, words_of(tick.schedule.repeat)) for tick in shown],
        lines=[] if after else [line for line in _lines(schedules, now) if line.ticks],
        marks=MARKS_SHOWN,
        day_minutes=AHEAD // timedelta(minutes=1),
        reached=reached,
        filters={"name": name, "after": after},
        following=f"{shown[-1].at} {shown[-1].job_id}" if len(ticks) > TICKS_SHOWN else None,
    )


def _cursor(text: str) -> tuple[str, int] | None:
    """Return the tick after which a page begins, as timestamp and jobID, or None; raises BadArguments."""
    if not text:
        return None
    match = _CURSOR.fullmatch(text)
    try:
        return (timestamp(moment_of(match[1])), int(match[2])) if match else _refuse()
    except ValueError:
        return _refuse()


def _refuse() -> tuple[str, int]:
    raise BadArguments(
        "Malformed after", "after: expected a tick, a space and a jobID, as in a link to a page"
    )


def _page(
    schedules: list[ScheduleAhead], now: datetime, cursor: tuple[str, int] | None, end: str
) -> list[Coming]:
    """Return the ticks after the cursor, ordered by time and jobID, up to one more than a page shows."""
    lines = [_line(schedule, now, cursor, end) for schedule in schedules]
    merged = heapq.merge(*lines, key=lambda coming: coming[:2])
    return [coming for _, coming in zip(range(TICKS_SHOWN + 1), merged, strict=False)]


def _lines(schedules: list[ScheduleAhead], now: datetime) -> Iterator[ScheduleTimeline]:
    """Yield the timelines of the schedules that are due next."""
    end = timestamp(now + AHEAD)
    for schedule in schedules[:20]:
        coming = [line.at for line in islice(_line(schedule, now, None, end), MARKS_SHOWN + 1)]
        frequent = len(coming) > MARKS_SHOWN
        ticks = [(at, max((moment_of(at) - now).total_seconds() / 60, 0)) for at in coming]
        yield ScheduleTimeline(
            schedule, words_of(schedule.repeat), ticks[:1] if frequent else ticks, frequent
        )


def _line(
    schedule: ScheduleAhead, now: datetime, cursor: tuple[str, int] | None, end: str
) -> Iterator[Coming]:
    """Yield a schedule's ticks after the cursor, including a tick that is due and not yet taken."""
    for at in _ticks(schedule, now, cursor):
        if at > end:
            return
        if cursor is None or (at, schedule.job_id) > cursor:
            yield Coming(at, schedule.job_id, schedule)


def _ticks(schedule: ScheduleAhead, now: datetime, cursor: tuple[str, int] | None) -> Iterator[str]:
    begin = now
    if cursor is None and schedule.state == "QUEUED":
        first = schedule.next_run[:19]
        yield first
        begin = max(moment_of(first), now)
    elif cursor is not None:
        begin = moment_of(cursor[0]) - timedelta(seconds=1)
    for tick in next_ticks(schedule.repeat, begin.astimezone(UTC)):
        yield timestamp(tick)


# Ticks of a schedule: last and next ticks, pauses, and a calendar of outcomes per day.


CELLS_SHOWN = 30
"""Maximum ticks that are shown as cells: the last ones."""


class Cell(NamedTuple):
    """One tick: its state, its tooltip, and the runID, 0 if there was no run."""

    state: str
    tooltip: str
    run_id: int


async def cells(site: Site, job_id: int) -> list[Cell]:
    """Return the last ticks of a schedule, oldest first."""
    rows = (await site.read(ListTicks(job_id=job_id, limit=CELLS_SHOWN)))["ticks"]
    runs = (await site.read(ListRuns(job_id=job_id, limit=CELLS_SHOWN)))["runs"]
    return cells_of(rows, runs)


def cells_of(rows: list[dict[str, Any]], runs: list[dict[str, Any]]) -> list[Cell]:
    """Return the last ticks from the newest rows of the tick history and the newest runs, oldest first.

    A row of the tick history may cover several ticks, so runs are matched by their scheduled time.
    """
    result: list[Cell] = []
    for row in rows[:CELLS_SHOWN]:
        own = {
            run["scheduledFor"][:19]: run
            for run in reversed(runs)
            if row["tick"] <= run["scheduledFor"][:19] <= row["until"] and run["cause"] != "manual"
        }
        each = [_fired(row, tick, own[tick]) for tick in sorted(own, reverse=True)][: row["count"]]
        each += [_cell(row)] * min(row["count"] - len(each), CELLS_SHOWN)
        result += each
    return result[:CELLS_SHOWN][::-1]


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

MONTH_WIDTH, MONTH_HEIGHT, MONTH_LEFT = 640, 110, 34
"""Width and height of the chart, and the width of its scale, in SVG units."""

MISSED = frozenset({"server down", "no worker", "too late", "no ping"})
"""Reasons for which a skipped tick counts as missed: it was not skipped on purpose."""

DAY_KINDS = (("ran", "success"), ("failed", "fail"), ("missed", "missed"), ("skipped", "skipped"))
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
        counts = [(kind, getattr(self, kind)) for kind, _ in DAY_KINDS]
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
    step = (MONTH_WIDTH - MONTH_LEFT) / len(days)
    bars = []
    for index, day in enumerate(days):
        parts, foot = [], MONTH_HEIGHT - 5.0
        for kind, mark in DAY_KINDS:
            if count := getattr(day, kind):
                height = max(count / most * (MONTH_HEIGHT - 20), 3)
                foot -= height
                parts.append(OutcomeSegment(kind, mark, foot, height))
        bars.append(Bar(day, MONTH_LEFT + index * step, step - 3, parts))
    return bars


PAGES: Pages = (("/ui/schedules", schedules), ("/ui/schedules/{jobID}", schedule), ("/ui/upcoming", upcoming))
