"""What failed: jobs that wait for somebody to look, and runs that failed, were lost or took too long.

Both come newest first, page by page, and those of a page that failed alike are put together: the same name,
and the same line that says what was wrong.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.commands import ListJobs
from bedrockjobs.pages.site import Pages, Site, cursor

JOBS_SHOWN = 200
"""FAILED jobs on a page."""

RUNS_SHOWN = 100
"""Failed runs on a page."""

ERROR_CHARS_SHOWN = 2_000
"""Length of an error up to which it is shown; its run has the whole of it."""

BAD = ("fail", "frozen", "timeout")
"""Statuses of runs that somebody should look at."""

_HOW_IT_ENDED = re.compile(r"exit status \d+|SIG\w+|timed out after .+")
"""What a worker writes above the last lines of a command."""

_FILTERS = ("name", "before", "runsBefore")


class Failure(NamedTuple):
    """One job or run that failed: its number, when, and its error."""

    number: int
    at: str
    error: str
    worker: str = ""
    took_from: str = ""


class Group(NamedTuple):
    """Failures with the same state, name and line that says what was wrong; the newest comes first."""

    key: str
    state: str
    name: str
    line: str
    failures: list[Failure]


class Failed(NamedTuple):
    """A page of failures: its groups, the number after which the next page comes, and what is missing."""

    groups: list[Group]
    following: int | None
    note: str = ""


async def failures(site: Site, request: web.Request) -> web.StreamResponse:
    """Show what failed."""
    given = {name: request.query.get(name, "") for name in _FILTERS}
    wanted = {"name": given["name"]} if given["name"] else {}
    asked = ListJobs.read({**wanted, "after": given["before"] or "0"})
    return await site.show(
        request,
        "failures.html",
        title="Failures",
        jobs=await _jobs(site, asked),
        runs=await _runs(site, asked.name, cursor(request, "runsBefore", "a runID")),
        filters=given,
    )


PAGES: Pages = (("/ui/failures", failures),)


async def _jobs(site: Site, asked: ListJobs) -> Failed:
    """Return a page of FAILED jobs below ``asked.after``, or the first one where that is 0."""
    found = await site.views.find.jobs(
        state="FAILED", pattern=asked.name, before=asked.after or None, limit=JOBS_SHOWN
    )
    told = [(job, job.memory.error) for job in found.jobs]
    rows = [
        ("FAILED", job.name, Failure(job.job_id, job.last_run, _text(error or ""))) for job, error in told
    ]
    return Failed(_groups(rows), None if found.ended else found.reached)


async def _runs(site: Site, pattern: str | None, before: int | None) -> Failed:
    """Return a page of failed runs below a number."""
    found = await site.views.find.runs(before=before, statuses=BAD, pattern=pattern, limit=RUNS_SHOWN)
    rows = [
        (run.status, run.name, Failure(run.run_id, run.ended, _text(run.error), run.worker, run.started))
        for run in found.runs
    ]
    note = ""
    if not found.ended and len(rows) < RUNS_SHOWN:
        note = f"The search took its time: it looked down to run {found.reached}. Older runs come behind it."
    return Failed(_groups(rows), None if found.ended else found.reached, note)


def _text(error: Any) -> str:
    return str(error or "")[:ERROR_CHARS_SHOWN]


def line_of(error: str) -> str:
    """Return the line that says what was wrong: the first one, or the last one of what a command printed."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    return lines[-1] if _HOW_IT_ENDED.fullmatch(lines[0]) else lines[0]


def _groups(rows: list[tuple[str, str, Failure]]) -> list[Group]:
    found: dict[tuple[str, str, str], list[Failure]] = {}
    for state, name, failure in rows:
        found.setdefault((state, name, line_of(failure.error)), []).append(failure)
    return [
        Group(hashlib.sha256(repr(key).encode()).hexdigest()[:12], *key, alike)
        for key, alike in found.items()
    ]
