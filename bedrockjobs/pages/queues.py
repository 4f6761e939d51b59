"""The queues: which names pile up, what comes in and goes out, how fast, and who takes them.

Names are folded at their slashes, one level at a time, or asked for by a pattern and shown one by one.
"""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.commands import ListQueues
from bedrockjobs.pages.site import Pages, Site, rows_asked
from bedrockjobs.pages.ticking import exactly

ROWS = 50
"""Rows on a page, those with the most jobs first; a fold or a pattern shows the others."""

WORKERS_NAMED = 2
"""Workers that a row names; the others it counts."""

_FILTERS = ("name", "under")


async def queues(site: Site, request: web.Request) -> web.StreamResponse:
    """Show how names are doing."""
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
    """Return the folds above one, the outermost first."""
    parts = under.split("/")[:-1]
    return ["/".join(parts[: number + 1]) + "/" for number in range(len(parts))]
