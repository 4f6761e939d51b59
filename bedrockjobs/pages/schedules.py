"""The schedules: when each ticks next, what became of its last ticks, and buttons to hold and start it."""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.commands import ListSchedules
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.pages.ticking import cells, exactly, why_paused

ROWS = 25
"""Schedules on a page: each costs two reads more, of its ticks and of its runs."""

_FILTERS = ("name", "source", "after")


async def schedules(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of schedules."""
    given = {name: request.query[name] for name in _FILTERS if request.query.get(name)}
    rows = (await site.ask(ListSchedules.read({**given, "limit": ROWS + 1})))["schedules"]
    shown = rows[:ROWS]
    return await site.show(
        request,
        "schedules.html",
        title="Schedules",
        rows=shown,
        cells={row["jobID"]: await cells(site, row["jobID"]) for row in shown},
        pauses=await why_paused(site, shown),
        exactly=exactly,
        filters={name: given.get(name, "") for name in _FILTERS},
        following=shown[-1]["jobID"] if len(rows) > ROWS else None,
    )


PAGES: Pages = (("/ui/schedules", schedules),)
