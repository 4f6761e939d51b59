"""The list of jobs: filtered by state, name and text, page by page, and acted on.

The address holds the whole state. A page looks through jobs for a bounded time and says how far it got.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.commands import ListJobs
from bedrockjobs.config import NAME_CHARS_MAX, PRIORITIES
from bedrockjobs.errors import BadArguments
from bedrockjobs.jsontext import dump
from bedrockjobs.pages.site import HEADERS, Pages, Site
from bedrockjobs.wire import stamp_ms

ROWS = 50
"""Jobs on a page: more than a screen, and quick to draw."""

TEXT_CHARS_MAX = 200
"""Characters of a text that is sought in data."""

NAMES_OFFERED = 20
"""Names that complete what was typed so far."""

MATCHING_MAX = 1_000
"""Jobs that one action on all that match is sent for; more are taken by acting again."""

MATCHING_S = 1.0
"""Time in which the jobs of such an action are looked up."""


class Asked(NamedTuple):
    """What a list is filtered by; empty lets all through."""

    state: str | None
    name: str | None
    text: str | None
    before: int | None


async def jobs(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of jobs, the newest first."""
    asked = _asked(request)
    found = await site.service.views.find.jobs(
        state=asked.state, pattern=asked.name, text=asked.text, before=asked.before, limit=ROWS
    )
    return site.show(
        request,
        "jobs.html",
        title="Jobs",
        asked=asked,
        found=found,
        now_ms=stamp_ms(site.now()),
        priorities=PRIORITIES,
        matching_max=MATCHING_MAX,
    )


async def names(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer the names that begin with what was typed, as a JSON array."""
    typed = request.query.get("name", "")[:NAME_CHARS_MAX]
    return _json(await site.service.views.find.names(typed.rstrip("*"), NAMES_OFFERED))


async def matching(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer the jobs that match, for an action on all of them: their jobIDs, and whether these are all."""
    asked = _asked(request)
    found = await site.service.views.find.jobs(
        state=asked.state, pattern=asked.name, text=asked.text, limit=MATCHING_MAX, within_s=MATCHING_S
    )
    return _json({"ids": [row.job_id for row in found.jobs], "all": found.ended})


PAGES: Pages = (("/ui/jobs", jobs), ("/ui/jobs/names", names), ("/ui/jobs/matching", matching))


def _asked(request: web.Request) -> Asked:
    given = {key: value for key, value in request.query.items() if value}
    before = given.get("before")
    if before is not None and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise BadArguments("Malformed before", "before: expected a jobID")
    text = given.get("text")
    if text is not None and len(text) > TEXT_CHARS_MAX:
        raise BadArguments("Malformed text", f"text: expected at most {TEXT_CHARS_MAX} characters")
    checked = ListJobs.read({key: given[key] for key in ("state", "name") if key in given})
    return Asked(checked.state, checked.name, text, None if before is None else int(before))


def _json(value: Any) -> web.Response:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(text=dump(value), content_type="application/json", headers=headers)
