"""The workers page: patterns, load and idle reason of each live worker, and a button to drain it.

On PostgreSQL it also lists the servers that share the database.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.commands import ListRuns, ListServers, ListWorkers
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.views.idle import why_idle

ROWS = 50
"""Workers on a page."""

RUNS_SHOWN = 10
"""Runs shown for each worker; the others are only counted."""

_FILTERS = ("name", "after")


async def workers(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of workers."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    asked = ListWorkers(name=given["name"] or None, after=given["after"], limit=ROWS + 1)
    fitting = (await site.ask(asked))["workers"]
    shown = fitting[:ROWS]
    runs = (await site.ask(ListRuns(status="running", limit=LIST_MAX)))["runs"] if shown else []
    there = site.service.presence.workers
    resting = [there[row["name"]] for row in shown if row["name"] in there and _rests(row)]
    servers = (await site.ask(ListServers()))["servers"] if site.settings.on_postgresql else []
    return await site.show(
        request,
        "workers.html",
        servers=servers,
        title="Workers",
        rows=shown,
        there=len(there),
        busy=sum(len(worker.runs) for worker in there.values()),
        slots=sum(worker.slots for worker in there.values()),
        runs={run["runID"]: run for run in runs},
        runs_shown=RUNS_SHOWN,
        why=await why_idle(site.views.queues, resting) if resting else {},
        filters=given,
        following=shown[-1]["name"] if len(fitting) > ROWS else None,
    )


PAGES: Pages = (("/ui/workers", workers),)


def _rests(worker: dict[str, Any]) -> bool:
    """Tell whether a worker is idle or takes no jobs."""
    return not worker["runIDs"] or worker["status"] != "active"
