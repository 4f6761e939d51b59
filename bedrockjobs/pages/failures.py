"""The failures page: FAILED jobs and failed runs, grouped by fingerprint.

Groups that were marked as seen are collapsed below the others. Each group has a page of all its failures.
"""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.commands import ListFailures
from bedrockjobs.commands.overview import FailureGroupReply
from bedrockjobs.pages.site import Pages, Site, cursor
from bedrockjobs.views.failures import Failed, failed_alike

_FILTERS = ("name", "fingerprint", "before", "runsBefore")


class Shown(NamedTuple):
    """A page of failures: new groups, seen groups, and where the next page begins."""

    groups: list[FailureGroupReply]
    seen: list[FailureGroupReply]
    following: int | None


async def failures(site: Site, request: web.Request) -> web.StreamResponse:
    """Show failures by group."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    wanted = {name: given[name] for name in ("name", "fingerprint") if given[name]}
    asked = ListFailures.read(wanted)
    before, runs_before = cursor(request, "before", "a jobID"), cursor(request, "runsBefore", "a runID")
    jobs = await failed_alike(site.views, "job", asked.name, asked.fingerprint, before)
    runs = await failed_alike(site.views, "run", asked.name, asked.fingerprint, runs_before)
    return await site.show(
        request,
        "failures.html",
        title="Failures",
        jobs=_shown(jobs),
        runs=_shown(runs),
        failures=FAILED_STATUSES,
        filters=given,
    )


PAGES: Pages = (("/ui/failures", failures),)


def _shown(found: Failed) -> Shown:
    unseen = [group for group in found.groups if group.unseen]
    return Shown(unseen, [group for group in found.groups if not group.unseen], found.following)
