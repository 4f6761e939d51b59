"""The retention page: the limits of the server and of patterns, with current usage."""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.commands import ListRetention
from bedrockjobs.pages.site import Pages, Site

KINDS = {
    "runs": "Runs",
    "output": "Output",
    "events": "Events",
    "ticks": "History of schedules",
    "audit": "Changes by operators",
    "keys": "Idempotency keys",
}
"""Labels of the kinds of rows."""


async def kept(site: Site, request: web.Request) -> web.StreamResponse:
    """Show retention limits."""
    rows = (await site.ask(ListRetention()))["kept"]
    return await site.show(request, "kept.html", title="What is kept", rows=rows, kinds=KINDS)


PAGES: Pages = (("/ui/kept", kept),)
