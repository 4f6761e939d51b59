"""What is kept: each limit of the server and of names, and how much there is of it now."""

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
"""What can be kept, in words."""


async def kept(site: Site, request: web.Request) -> web.StreamResponse:
    """Show what is kept."""
    rows = (await site.ask(ListRetention()))["kept"]
    return await site.show(request, "kept.html", title="What is kept", rows=rows, kinds=KINDS)


PAGES: Pages = (("/ui/kept", kept),)
