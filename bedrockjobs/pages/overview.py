"""The overview: problems first, then how things stand, then what was done in the last hour, day or week.

Counts are bounded by the views, charts come from the table of minutes; nothing here counts a table.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.jsontext import dump
from bedrockjobs.base.wire import moment_of, stamp, stamp_ms
from bedrockjobs.pages.site import HEADERS, Pages, Site
from bedrockjobs.pages.words import counted, lasted, number, short

RANGES = {"1h": (3_600, 60), "24h": (86_400, 600), "7d": (604_800, 3_600)}
"""What charts show: the seconds they go back, and the seconds of one of their steps (60, 144, 168 steps)."""

STEPS = {60: "a minute", 600: "per 10 minutes", 3_600: "an hour"}
"""What such a step is called in a title."""

WAITED_LONG_S = 300
"""Time a ready job may have waited before the page calls it a problem: a free worker takes it at once."""

TROUBLES_MAX = 1_000
"""Schedules in trouble that are counted; their own page shows all."""

NAMED = 3
"""Schedules that a problem names; the others it counts."""

_SERIES = ("created", "taken", "finished", "failed", "retried", "lost")


class Problem(NamedTuple):
    """What a person should know first: problem or notice, a sentence, and the page that shows more."""

    weight: str
    sentence: str
    path: str
    query: dict[str, str]


async def overview(site: Site, request: web.Request) -> web.StreamResponse:
    """Show how things stand."""
    chosen = _range(request)
    counts = await site.service.views.overview()
    schedules = await site.service.views.find.schedules_in_trouble(stamp_ms(site.now()), TROUBLES_MAX)
    rows = await _steps(site, chosen)
    sums = {name: sum(row[name] for row in rows) for name in _SERIES}
    return site.show(
        request,
        "overview.html",
        title="Overview",
        counts=counts,
        problems=_problems(site, counts, sums, schedules, chosen),
        sums=sums,
        ranges=tuple(RANGES),
        chosen=chosen,
        step=STEPS[RANGES[chosen][1]],
    )


async def chart(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer the numbers of the charts: arrays of the same length, the first of Unix times."""
    rows = await _steps(site, _range(request))
    found: dict[str, list[Any]] = {"at": [int(moment_of(row["minute"]).timestamp()) for row in rows]}
    for name in (*_SERIES, "wait_ms"):
        found[name] = [row[name] for row in rows]
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(text=dump(found), content_type="application/json", headers=headers)


PAGES: Pages = (("/ui/", overview), ("/ui/chart", chart))


def _range(request: web.Request) -> str:
    chosen = request.query.get("range") or "1h"
    if chosen not in RANGES:
        raise BadArguments("Malformed range", f"range: expected one of {', '.join(RANGES)}")
    return chosen


async def _steps(site: Site, chosen: str) -> list[dict[str, Any]]:
    """Return a row for each step of a range, also for those in which nothing was done, the oldest first."""
    back_s, step_s = RANGES[chosen]
    now = int(site.now().timestamp())
    first = now - now % step_s - back_s + step_s
    rows = await site.service.views.stats(_stamp(first), step_s)
    found = {row["minute"]: row for row in rows}
    nothing = {**dict.fromkeys(_SERIES, 0), "wait_ms": None}
    return [found.get(_stamp(at), {"minute": _stamp(at), **nothing}) for at in range(first, now + 1, step_s)]


def _stamp(at: int) -> str:
    return stamp(datetime.fromtimestamp(at, UTC))


def _problems(
    site: Site,
    counts: dict[str, Any],
    sums: dict[str, int],
    schedules: tuple[list[str], list[str]],
    chosen: str,
) -> list[Problem]:
    """Return what is wrong, the most pressing first."""
    found: list[Problem] = []
    now = stamp(site.now())
    oldest = counts["oldest_ready"]
    if counts["ready"][0] and not counts["workers"]:
        sentence = f"{_jobs(counts['ready'], 'is', 'are')} ready and no worker is there."
        found.append(Problem("problem", sentence, "ui/workers", {}))
    elif oldest and (site.now() - moment_of(oldest)).total_seconds() > WAITED_LONG_S:
        sentence = f"The oldest ready job has waited for {lasted(oldest, now)}."
        found.append(Problem("problem", sentence, "ui/jobs", {"state": "QUEUED"}))
    if sums["lost"]:
        runs = "1 run was" if sums["lost"] == 1 else f"{number(sums['lost'])} runs were"
        sentence = f"{runs} lost in the last {chosen}: a worker fell silent."
        found.append(Problem("problem", sentence, "ui/failures", {}))
    if counts["failed"][0]:
        sentence = f"{_jobs(counts['failed'], 'has', 'have')} failed. Somebody should look."
        found.append(Problem("problem", sentence, "ui/jobs", {"state": "FAILED"}))
    failed, paused = schedules
    if failed:
        runs = "run" if len(failed) == 1 else "runs"
        found.append(Problem("problem", f"The last {runs} of {_named(failed)} failed.", "ui/schedules", {}))
    if paused:
        found.append(Problem("notice", f"Paused: {_named(paused)}.", "ui/schedules", {}))
    return found


def _jobs(count: tuple[int, bool], one: str, many: str) -> str:
    return f"1 job {one}" if count[0] == 1 else f"{counted(count)} jobs {many}"


def _named(names: list[str]) -> str:
    """Return some names in a sentence; those that are too many are counted."""
    said, more = [short(name) for name in names[:NAMED]], len(names) - NAMED
    if more > 0:
        said.append(f"{number(more)} more schedule{'s' if more > 1 else ''}")
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
