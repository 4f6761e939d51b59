"""The schedules page: next tick, last ticks, and buttons to pause and trigger."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.commands import ListRuns, ListSchedules
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.pages.ticking import cells, exactly, why_paused

ROWS = 25
"""Schedules on a page: each costs two more reads, of its ticks and of its runs."""

FAILING_SHOWN = 10
"""Failing schedules listed above the others, with their errors: one more read for each."""

_FILTERS = ("name", "source", "after")


class Failing(NamedTuple):
    """A schedule whose last run failed."""

    run: dict[str, Any]
    line: str
    """The main line of its error."""


async def _failing(site: Site) -> tuple[list[Failing], bool]:
    """Return the schedules whose last run failed, and whether there are more."""
    names = await site.views.find.schedules_that_failed(FAILING_SHOWN + 1)
    found = []
    for name in names[:FAILING_SHOWN]:
        runs = (await site.ask(ListRuns.read({"name": exactly(name), "limit": 1})))["runs"]
        found += [Failing(run, line_of(run["error"])) for run in runs]
    return found, len(names) > FAILING_SHOWN


async def schedules(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of schedules."""
    given = {name: request.query[name] for name in _FILTERS if request.query.get(name)}
    rows = (await site.ask(ListSchedules.read({**given, "limit": ROWS + 1})))["schedules"]
    shown = rows[:ROWS]
    failing, more_fail = ([], False) if given else await _failing(site)
    return await site.show(
        request,
        "schedules.html",
        title="Schedules",
        failing=failing,
        more_fail=more_fail,
        rows=shown,
        cells={row["jobID"]: await cells(site, row["jobID"]) for row in shown},
        pauses=await why_paused(site, shown),
        exactly=exactly,
        filters={name: given.get(name, "") for name in _FILTERS},
        following=shown[-1]["jobID"] if len(rows) > ROWS else None,
    )


PAGES: Pages = (("/ui/schedules", schedules),)
