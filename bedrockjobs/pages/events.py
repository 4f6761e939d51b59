"""The events page: newest first, filtered by kind and name.

The search is bounded in time; the page says how far it got.
"""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.commands import Events
from bedrockjobs.pages.site import Pages, Site, cursor

ROWS = 100
"""Events on a page."""

KINDS = (
    "failed",
    "retried",
    "recovered",
    "lost",
    "timeout",
    "expired",
    "deleted",
    "paused",
    "resumed",
    "held",
    "released",
    "limited",
    "triggered",
    "handed back",
    "drained",
    "undrained",
    "synced",
    "undeclared",
    "planned anew",
    "worker joined",
    "worker left",
    "server started",
    "server joined",
    "server left",
)
"""Suggested kinds; any other can be typed."""

_FILTERS = ("kind", "name", "before")


async def events(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of events."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    wanted = Events.read({name: given[name] for name in ("kind", "name") if given[name]})
    found = await site.views.find.events(
        before=cursor(request, "before", "the number of an event"),
        kind=wanted.kind,
        pattern=wanted.name,
        limit=ROWS,
    )
    return await site.show(
        request,
        "events.html",
        title="Events",
        rows=[
            dict(zip(("seq", "at", "kind", "name", "jobID", "runID", "by", "detail"), row, strict=True))
            for row in found.rows
        ],
        kinds=KINDS,
        filters=given,
        following=None if found.ended else found.reached,
    )


PAGES: Pages = (("/ui/events", events),)
