"""What happened, the newest first: by kind and name, page by page.

Events are stored and told in the order in which they happened, so a page is made of stretches, the newest
stretch first, until it has enough or has looked far enough.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bedrockjobs.commands import Events
from bedrockjobs.config import LIST_MAX
from bedrockjobs.errors import BadArguments
from bedrockjobs.pages.site import Pages, Site

ROWS = 100
"""Events on a page."""

STRETCHES_MAX = 10
"""Stretches of events that are looked at for one page; the next page goes on behind them."""

KINDS = (
    "failed", "lost", "timeout", "expired", "deleted", "paused", "resumed", "triggered", "drained",
    "undrained", "synced", "worker joined", "worker left", "server started",
)  # fmt: skip
"""Kinds that a person is offered; any other can be typed."""

_FILTERS = ("kind", "name", "before")


async def events(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of events."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    wanted = Events.read({name: given[name] for name in ("kind", "name") if given[name]})
    rows, reached = await _older(site, wanted, await _end(site, given["before"]))
    return site.show(
        request,
        "events.html",
        title="Events",
        rows=[
            dict(zip(("seq", "at", "kind", "name", "jobID", "runID", "by", "detail"), row, strict=True))
            for row in rows
        ],
        kinds=KINDS,
        filters=given,
        following=reached if reached > 1 else None,
        reached=reached,
    )


PAGES: Pages = (("/ui/events", events),)


async def _end(site: Site, before: str) -> int:
    """Return the number before which the page's events come."""
    if not before:
        return (await site.service.views.events(Events(after=-1, limit=1))).reached + 1
    if not (before.isascii() and before.isdigit() and len(before) < 19):
        raise BadArguments("Malformed before", "before: expected the number of an event")
    return int(before)


async def _older(site: Site, wanted: Events, before: int) -> tuple[list[tuple[Any, ...]], int]:
    """Return the newest events below a number that are wanted, and the number down to which was looked."""
    stretch = LIST_MAX if wanted.kind or wanted.name else ROWS
    found: list[tuple[Any, ...]] = []
    for _ in range(STRETCHES_MAX):
        after = max(before - 1 - stretch, 0)
        page = await site.service.views.events(wanted.model_copy(update={"after": after, "limit": stretch}))
        found += [row for row in reversed(page.events) if row[0] < before]
        before = after + 1
        if len(found) >= ROWS or not after:
            break
    if len(found) > ROWS or (len(found) == ROWS and before > 1):
        return found[:ROWS], found[ROWS - 1][0]
    return found, before
