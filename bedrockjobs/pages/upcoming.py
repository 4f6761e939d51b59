"""What schedules will do in the next 24 hours, in order of time.

Ticks are worked out one after the other, only as many as a page shows, however often a schedule ticks.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.commands import ListSchedules
from bedrockjobs.config import LIST_MAX
from bedrockjobs.errors import BadArguments
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.pages.ticking import next_ticks
from bedrockjobs.wire import moment_of, stamp

AHEAD = timedelta(hours=24)
"""How far ahead ticks are shown."""

TICKS_SHOWN = 100
"""Ticks on a page."""

SCHEDULES_LOOKED_AT = 2_000
"""Schedules whose ticks are shown; the page says so where there are more, and a name finds the others."""

_CURSOR = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([0-9]{1,18})")


class Coming(NamedTuple):
    """One tick to come."""

    at: str
    job_id: int
    schedule: dict[str, Any]


async def upcoming(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of ticks to come."""
    name, after = request.query.get("name", ""), request.query.get("after", "")
    now = site.now()
    schedules, more = await _schedules(site, {"name": name} if name else {})
    ticks = _page(schedules, now, _cursor(after))
    shown = ticks[:TICKS_SHOWN]
    return site.show(
        request,
        "upcoming.html",
        title="Upcoming",
        ticks=shown,
        looked_at=SCHEDULES_LOOKED_AT if more else 0,
        filters={"name": name, "after": after},
        following=f"{shown[-1].at} {shown[-1].job_id}" if len(ticks) > TICKS_SHOWN else None,
    )


PAGES: Pages = (("/ui/upcoming", upcoming),)


def _cursor(text: str) -> tuple[str, int] | None:
    """Return the tick after which a page begins: its moment and its job."""
    if not text:
        return None
    found = _CURSOR.fullmatch(text)
    try:
        return (stamp(moment_of(found[1])), int(found[2])) if found else _refuse()
    except ValueError:
        return _refuse()


def _refuse() -> tuple[str, int]:
    raise BadArguments(
        "Malformed after", "after: expected a tick, a space and a jobID, as in a link to a page"
    )


async def _schedules(site: Site, wanted: dict[str, str]) -> tuple[list[dict[str, Any]], bool]:
    """Return the schedules that are looked at, and whether there are others."""
    found: list[dict[str, Any]] = []
    while len(found) < SCHEDULES_LOOKED_AT:
        last = found[-1]["jobID"] if found else 0
        page = (await site.ask(ListSchedules.read({**wanted, "after": last, "limit": LIST_MAX})))["schedules"]
        found += page
        if len(page) < LIST_MAX:
            return found, False
    return found[:SCHEDULES_LOOKED_AT], True


def _page(schedules: list[dict[str, Any]], now: datetime, cursor: tuple[str, int] | None) -> list[Coming]:
    """Return the ticks after the cursor, one more than a page shows, in order of time and job."""
    end = stamp(now + AHEAD)
    lines = [_line(schedule, now, cursor, end) for schedule in schedules if schedule["state"] != "FAILED"]
    merged = heapq.merge(*lines, key=lambda coming: coming[:2])
    return [coming for _, coming in zip(range(TICKS_SHOWN + 1), merged, strict=False)]


def _line(
    schedule: dict[str, Any], now: datetime, cursor: tuple[str, int] | None, end: str
) -> Iterator[Coming]:
    """Yield a schedule's ticks after the cursor; one that is due and not yet taken is among them."""
    for at in _ticks(schedule, now, cursor):
        if at > end:
            return
        if cursor is None or (at, schedule["jobID"]) > cursor:
            yield Coming(at, schedule["jobID"], schedule)


def _ticks(schedule: dict[str, Any], now: datetime, cursor: tuple[str, int] | None) -> Iterator[str]:
    begin = now
    if cursor is None and schedule["state"] == "QUEUED":
        first = schedule["nextRun"][:19]
        yield first
        begin = max(moment_of(first), now)
    elif cursor is not None:
        begin = moment_of(cursor[0]) - timedelta(seconds=1)
    for tick in next_ticks(schedule["repeat"], begin.astimezone(UTC)):
        yield stamp(tick)
