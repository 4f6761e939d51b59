"""The jobs page: filtered by state, name, text and time, with bulk actions.

The URL holds the whole state. The search is bounded in time; the page says how far it got.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.config import NAME_CHARS_MAX, PRIORITIES
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.jsontext import dump
from bedrockjobs.base.wire import timestamp_ms
from bedrockjobs.commands import ListJobs
from bedrockjobs.pages.asked import iso, text_in, time_in
from bedrockjobs.pages.job_rows import rows_of
from bedrockjobs.pages.site import HEADERS, Pages, Site, cursor, rows_asked
from bedrockjobs.views.find import RunsFound, TimeField
from bedrockjobs.views.states import ALL, KEPT, Counts

ROWS = 50
"""Jobs on a page: more than a screen, and quick to render."""

KEPT_ROWS = 50
"""Kept finished jobs on a page, in a list of their own."""

NAMES_OFFERED = 20
"""Suggested names while typing."""

MATCHING_MAX = 1_000
"""Jobs that a bulk action on all matches affects; repeat the action for more."""

MOMENTS: dict[TimeField, str] = {"created": "created", "next": "next run", "last": "last run"}
"""Labels of the timestamps to filter by."""

TABS = (
    (ALL, "All"),
    ("QUEUED", "Queued"),
    ("RUNNING", "Running"),
    ("PAUSED", "Waiting for children"),
    ("FAILED", "Failed"),
    ("FINISHED", "Finished"),
    ("CANCELLED", "Cancelled"),
)
"""States in display order; RUNNING includes RUNQUEUED."""

MATCHING_S = 1.0
"""Time limit for finding the jobs of a bulk action."""


class Tab(NamedTuple):
    """A tab: its state in the URL, its label, and the number of jobs; None if not counted."""

    state: str
    called: str
    amount: tuple[int, bool] | None
    current: bool


class JobFilters(NamedTuple):
    """Filters of the list; empty ones match everything."""

    state: str | None
    name: str | None
    text: str | None
    moment: TimeField
    """The timestamp that ``since`` and ``until`` limit."""
    since: str | None
    until: str | None
    before: int | None

    def search(self) -> dict[str, Any]:
        """Return the filter as search parameters."""
        given = self._asdict()
        return {"pattern": given.pop("name"), **given}

    def address(self) -> dict[str, str | None]:
        """Return the filter as query parameters, without the page."""
        timed = self.since or self.until
        return {
            "state": self.state,
            "name": self.name,
            "text": self.text,
            "time": self.moment if timed else None,
            "from": iso(self.since),
            "to": iso(self.until),
        }


async def jobs(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of jobs, newest first."""
    asked = _asked(request)
    limit = rows_asked(request, ROWS)
    found = (await site.views.find.jobs(**asked.search(), limit=limit)).without_data()
    kept = await _kept(site, request, asked)
    return await site.show(
        request,
        "jobs.html",
        title="Jobs",
        asked=asked.address(),
        moments=MOMENTS,
        begins=asked.before is None,
        found=found,
        full=len(found.jobs) >= limit,
        rows=await rows_of(site, asked.state, found.jobs),
        listed="RUNNING" if asked.state == "RUNQUEUED" else asked.state or ALL,
        tabs=await _tabs(site, asked),
        kept=kept,
        keeps=site.settings.keep_finished > 0,
        later_kept=not request.query.get("keptBefore"),
        now_ms=timestamp_ms(site.now()),
        priorities=PRIORITIES,
        matching_max=MATCHING_MAX,
    )


async def names(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer the names that begin with the typed prefix, as a JSON array."""
    typed = request.query.get("name", "")[:NAME_CHARS_MAX]
    return _json(await site.views.find.names(typed.rstrip("*"), NAMES_OFFERED))


async def matching(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer the matches for a bulk action: jobIDs, the first names, and whether these are all."""
    asked = _asked(request)._replace(before=None)
    found = await site.views.find.jobs(**asked.search(), limit=MATCHING_MAX, within_s=MATCHING_S)
    shown = [row.name for row in found.jobs[:NAMES_OFFERED]]
    return _json({"ids": [row.job_id for row in found.jobs], "names": shown, "all": found.ended})


PAGES: Pages = (("/ui/jobs", jobs), ("/ui/jobs/names", names), ("/ui/jobs/matching", matching))


async def _tabs(site: Site, asked: JobFilters) -> list[Tab]:
    """Return the tabs; counts consider the name filter only, and are left out with other filters."""
    counts: Counts = {}
    if not (asked.text or asked.since or asked.until):
        counts = dict(await site.views.states.counts(asked.name))
    if counts:
        (ended, more), (kept, more_kept) = counts["FINISHED"], counts[KEPT]
        counts["FINISHED"] = (ended + kept, more or more_kept)
    current = "RUNNING" if asked.state == "RUNQUEUED" else asked.state or ALL
    return [Tab(state, called, counts.get(state), state == current) for state, called in TABS]


async def _kept(site: Site, request: web.Request, asked: JobFilters) -> RunsFound | None:
    """Return the kept finished jobs; None if the filter excludes them."""
    if asked.state != "FINISHED" or asked.text or asked.since or asked.until:
        return None
    before = cursor(request, "keptBefore", "a runID")
    return await site.views.find.runs(before=before, pattern=asked.name, kept=True, limit=KEPT_ROWS)


def _asked(request: web.Request) -> JobFilters:
    given = {key: value for key, value in request.query.items() if value}
    moment = given.get("time", "created")
    if moment not in MOMENTS:
        raise BadArguments("Malformed time", f"time: expected one of {', '.join(MOMENTS)}")
    checked = ListJobs.read({key: given[key] for key in ("state", "name") if key in given})
    return JobFilters(
        checked.state,
        checked.name,
        text_in(given),
        moment,
        time_in(given, "from"),
        time_in(given, "to"),
        cursor(request, "before", "a jobID"),
    )


def _json(value: Any) -> web.Response:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(text=dump(value), content_type="application/json", headers=headers)
