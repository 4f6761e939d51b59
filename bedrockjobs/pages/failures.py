"""What failed: jobs that wait for somebody to look, and runs that failed, were lost or took too long.

What is alike stands together; groups that somebody has marked as seen are folded away below the others.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from aiohttp import web

from bedrockjobs.base.statuses import FAILED_STATUSES
from bedrockjobs.commands import ListJobs
from bedrockjobs.commands.failures import FailureGroupReply
from bedrockjobs.pages.site import Pages, Site, cursor
from bedrockjobs.views.failures import Failed, failed_jobs, failed_runs

_FILTERS = ("name", "before", "runsBefore")


class Shown(NamedTuple):
    """A page of failures: what is new, what was seen, where it goes on, and what is missing."""

    groups: list[FailureGroupReply]
    seen: list[FailureGroupReply]
    following: int | None
    note: str


async def failures(site: Site, request: web.Request) -> web.StreamResponse:
    """Show what failed."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    wanted = {"name": given["name"]} if given["name"] else {}
    asked = ListJobs.read({**wanted, "after": given["before"] or "0"})
    views = site.views
    runs = await failed_runs(views, asked.name, cursor(request, "runsBefore", "a runID"))
    return await site.show(
        request,
        "failures.html",
        title="Failures",
        jobs=_shown(await failed_jobs(views, asked.name, asked.after or None)),
        runs=_shown(runs),
        key_of=key_of,
        failures=FAILED_STATUSES,
        filters=given,
    )


PAGES: Pages = (("/ui/failures", failures),)


def _shown(found: Failed) -> Shown:
    note = ""
    if found.stopped_at is not None:
        note = (
            f"The search took its time: it looked down to run {found.stopped_at}. Older runs come behind it."
        )
    unseen = [group for group in found.groups if group.unseen]
    return Shown(unseen, [group for group in found.groups if not group.unseen], found.following, note)


def key_of(group: FailureGroupReply) -> str:
    """Return what names a group on the page: the same however many are in it."""
    return hashlib.sha256(repr((group.state, group.name, group.line)).encode()).hexdigest()[:12]
