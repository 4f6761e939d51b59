"""The upcoming page: ticks of all schedules in the next 24 hours, in order of time.

Only as many ticks are computed as a page shows.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import moment_of, timestamp, timestamp_ms
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.commands import ListSchedules
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.pages.ticks import next_ticks
from bedrockjobs.views.find import ScheduleAhead
from bedrockjobs.views.schedules import words_of

AHEAD = timedelta(hours=24)
"""How far ahead ticks are shown."""

TICKS_SHOWN = 100
"""Maximum ticks on a page."""

LINES_SHOWN = 20
"""Maximum schedules with a timeline: those that are due next."""

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


PAGES: Pages = (("/ui/upcoming", upcoming),)


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
    for schedule in schedules[:LINES_SHOWN]:
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
