"""The schedules page, with next and last ticks and with actions; the page of one schedule; upcoming ticks."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import moment_of, span, timestamp, timestamp_ms
from bedrockjobs.base.config import TICK_ROWS_MAX
from bedrockjobs.base.errors import BadArguments, NotFound, line_of
from bedrockjobs.base.glob import literal
from bedrockjobs.commands import ListRuns, ListSchedules, ListTicks, QueryJob, ValidateSchedule
from bedrockjobs.pages import ticks as days
from bedrockjobs.pages.formatting import hidden_options, option_text
from bedrockjobs.pages.site import ROWS, Pages, Site
from bedrockjobs.pages.ticks import (
    cells,
    cells_of,
    end_of,
    failed_in_a_row,
    next_ticks,
    pause_descriptions,
    timestamps,
    zone_of,
)
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
        month=days.bars_of(month),
        kinds=[(kind, mark, sum(getattr(day, kind) for day in month)) for kind, mark in days.KINDS],
        most=max(day.total for day in month),
        about=any(day.about for day in month),
        troubled=[day for day in reversed(month) if day.failed or day.missed][:7],
        month_size={"width": days.WIDTH, "height": days.HEIGHT, "left": days.LEFT},
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


async def _days(site: Site, job_id: int, repeat: str, zone: str) -> list[days.Day]:
    """Return the outcomes of a schedule's last days, in its time zone."""
    rows, runs = await site.views.find.history_of(job_id, TICK_ROWS_MAX, RUNS_EXAMINED)
    history = [days.TickHistoryRow._make(row) for row in rows if row[0] is not None]
    return days.days_of(history, runs, repeat, find_zone(zone), site.now())


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


PAGES: Pages = (("/ui/schedules", schedules), ("/ui/schedules/{jobID}", schedule), ("/ui/upcoming", upcoming))
