"""The runs page: filtered by name, status, worker, time and last output.

The URL holds the whole state. The search is bounded in time; the page says how far it got.
"""

from __future__ import annotations

import json

from aiohttp import web

from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.base.vocabulary import ANY_FAILURE, FAILED_STATUSES, STATUSES, statuses_of
from bedrockjobs.commands import ListRuns
from bedrockjobs.pages.asked import iso, text_in, time_in
from bedrockjobs.pages.run import plain
from bedrockjobs.pages.site import Pages, Site, cursor, rows_asked

ROWS = 50
"""Runs on a page: more than a screen."""

SAID_CHARS = 200
"""Maximum length of a run's last message in its row; the run's page has all of it."""


async def runs(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of runs, newest first."""
    given = {key: value for key, value in request.query.items() if value}
    status = given.get("status", "")
    if status not in ("", ANY_FAILURE, *STATUSES):
        raise BadArguments(
            "Malformed status", f"status: expected {ANY_FAILURE} or one of {', '.join(STATUSES)}"
        )
    checked = ListRuns.read({key: given[key] for key in ("name", "worker") if key in given})
    before = cursor(request, "before", "a runID")
    since, until = time_in(given, "from"), time_in(given, "to")
    text = text_in(given)
    limit = rows_asked(request, ROWS)
    found = await site.views.find.runs(
        before=before,
        statuses=statuses_of(status),
        pattern=checked.name,
        worker=checked.worker,
        text=text,
        since=since,
        until=until,
        limit=limit,
    )
    asked = {
        "status": status,
        "name": checked.name,
        "worker": checked.worker,
        "text": text,
        "from": iso(since),
        "to": iso(until),
    }
    return await site.show(
        request,
        "runs.html",
        title="Runs",
        asked=asked,
        statuses=STATUSES,
        any_failure=ANY_FAILURE,
        failures=FAILED_STATUSES,
        begins=before is None,
        found=found,
        short=len(found.runs) < limit,
        said={run.run_id: said(run.error, run.output) for run in found.runs},
    )


PAGES: Pages = (("/ui/runs", runs),)


def said(error: str, output: str) -> str:
    """Return the last message of a run: the main line of its error, or its last line of output."""
    lines = [plain(line).strip() for line in json.loads(output)]
    told = line_of(error) or next((line for line in reversed(lines) if line), "")
    return told if len(told) <= SAID_CHARS else f"{told[:SAID_CHARS]}…"
