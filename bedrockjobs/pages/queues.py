"""The queues page: backlog, throughput, latency and workers by name.

Names are grouped at their slashes, one level at a time; names that match a pattern are listed one by one.
"""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.commands import ListQueues
from bedrockjobs.pages.site import Pages, Site, rows_asked
from bedrockjobs.pages.ticking import exactly

ROWS = 50
"""Rows on a page, most jobs first; a group or a pattern shows the others."""

WORKERS_NAMED = 2
"""Workers named in a row; the others are only counted."""

_FILTERS = ("name", "under")


async def queues(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the queue by name."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    asked = ListQueues.read({"name": given["name"]} if given["name"] else {})
    under = given["under"] if given["under"].endswith("/") and not asked.name else ""
    folder, limit = site.views.folder, rows_asked(request, ROWS)
    if asked.name or under:
        pattern = asked.name or ListQueues.read({"name": f"{exactly(under)}*"}).name or ""
        folds = await folder.some(pattern, under, limit)
    else:
        folds = await folder.all(limit)
    return await site.show(
        request,
        "queues.html",
        title="Queues",
        rows=folds.rows,
        left_out=folds.left_out,
        more=folds.more,
        age=folds.age,
        patterns={
            fold.label: f"{exactly(fold.label)}*" if fold.folded else exactly(fold.label)
            for fold in folds.rows
        },
        filters={"name": asked.name or "", "under": under},
        above=_above(under),
        workers_named=WORKERS_NAMED,
    )


PAGES: Pages = (("/ui/queues", queues),)


def _above(under: str) -> list[str]:
    """Return the parent groups of a group, outermost first."""
    parts = under.split("/")[:-1]
    return ["/".join(parts[: number + 1]) + "/" for number in range(len(parts))]
