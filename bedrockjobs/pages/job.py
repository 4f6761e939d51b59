"""The page of one job: state, reasons why it waits, timeline, data, children and options.

Its runs and events outlive it for a while, and are shown even when the job is gone.
"""

from __future__ import annotations

import json
import re
from math import inf
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.base.wire import called
from bedrockjobs.commands import ExplainJob, ListJobs, ListRuns
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.job.unique_key import HeldKey
from bedrockjobs.pages.formatting import NOT_SHOWN, hidden_options, option_text
from bedrockjobs.pages.jobs import family
from bedrockjobs.pages.runs import tail
from bedrockjobs.pages.site import Pages, Site
from bedrockjobs.views.states import Children

RUNS_SHOWN = 20
"""Newest runs shown."""

CHILDREN_SHOWN = 50
"""Children on a page."""

LINES_SHOWN = 100
"""Last output lines of the newest run that are shown."""


_OPTIONAL = ("attempt", "error", "exitCode", "expires", "parentJobID")
"""Optional members of a job's reply."""


class TimelineEntry(NamedTuple):
    """An entry of the timeline; ``run`` is 0 if it is not about a run."""

    at: str
    mark: str
    text: str
    run: int


async def job(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a job."""
    job_id = ListJobs.read({"after": request.match_info["jobID"]}).after
    exists = await site.views.job_exists(job_id)
    runs = (await site.read(ListRuns(job_id=job_id, limit=RUNS_SHOWN)))["runs"]
    events = await site.views.find.events_of(job_id)
    explained = await _explained(site, job_id)
    after = ListJobs.read({"after": request.query.get("children") or 0}).after
    log, log_after = (
        await tail(site, runs[0]["runID"], LINES_SHOWN) if runs and site.shows_data else (None, 0)
    )
    children = await _children(site, job_id, after) if exists else Children([], {}, after, ended=True)
    relatives = await family(site, job_id) if children.jobs else None
    place = await site.views.workflow_of(job_id)
    # Read last, so that a page that waits for its turn does not hold up to 4 MiB of data.
    members = await _members(site, job_id) if exists else None
    watched = "HX-Request" in request.headers  # an open page that refreshes after its job was removed
    if members is None and not runs and not events and not place and not watched:
        raise NotFound("No job with this jobID", f"there is no job {job_id}, and no record of one")
    shown = dict.fromkeys(_OPTIONAL) if members else {}
    shown |= {key: json.loads(text) for key, text in (members or {}).items() if key != "data"}
    return await site.show(
        request,
        "job.html",
        title=f"Job {job_id}",
        job_id=job_id,
        job=shown if members else None,
        exit_status=_exit_status(shown),
        name=shown.get("name") or (runs[0]["name"] if runs else ""),
        data=(members or {}).get("data", "{}"),
        waits=explained.get("waitsFor", []) if members else [],
        in_workflow=place,
        unique=_unique(explained),
        held_after_end=explained.get("after end", ""),
        options={
            key: option_text(key, value) for key, value in shown.items() if key in OPTIONS or key == "source"
        }
        | hidden_options(shown),
        runs=runs,
        log=log,
        log_after=log_after,
        follows=log is not None and runs[0]["status"] == "running",
        timeline=timeline(shown, runs, events),
        children=children.jobs,
        family=relatives,
        children_after=None if children.ended else children.reached,
        children_begin=after == 0,
        priorities=PRIORITIES,
        lines=_lines(request, job_id),
    )


PAGES: Pages = (("/ui/jobs/{jobID:[0-9]{1,18}}", job),)


async def _members(site: Site, job_id: int) -> dict[str, str] | None:
    """Return the members of a job as JSON texts; None if it does not exist."""
    shown_job = await site.views.job(job_id)
    return None if shown_job is None else jsontext.members(shown_job)


async def _children(site: Site, job_id: int, after: int) -> Children:
    """Return a page of children, without their data."""
    page = await site.views.families.children(job_id, after, CHILDREN_SHOWN)
    return page._replace(jobs=[child._replace(data="") for child in page.jobs])


async def _explained(site: Site, job_id: int) -> dict[str, Any]:
    """Return the reply to ExplainJob, or what a job that is gone still holds."""
    try:
        explained: dict[str, Any] = await site.read(ExplainJob(job_id=job_id))
    except NotFound as error:
        return {"after end": error.detail.partition("; ")[2]}
    return explained


def _unique(explained: dict[str, Any]) -> tuple[str, str] | None:
    """Return the unique key that a job holds, and until when, as text."""
    if "uniqueUntil" not in explained:
        return None
    held = HeldKey(explained["name"], explained.get("uniqueKey", NOT_SHOWN), explained["uniqueUntil"])
    return held.key, held.until_text


def _exit_status(shown: dict[str, Any]) -> int | None:
    """Return the exit status of a failed job, unless its error contains it."""
    code, error = shown.get("exitCode"), str(shown.get("error") or "")
    return None if code is None or re.search(rf"\bexit status {code}\b", error) else int(code)


def timeline(
    shown: dict[str, Any], runs: list[dict[str, Any]], events: list[tuple[Any, ...]]
) -> list[TimelineEntry]:
    """Return the timeline, newest first, without events that repeat the end of a run.

    Entries with equal timestamps keep their causal order: created, taken, ended, and events as they were
    recorded. An event about no run follows the runs of the events before it, and a deletion all.
    """
    entries: list[TimelineEntry] = []
    order: dict[int, float] = {}
    reached: dict[str, float] = {}
    ends = {(run["runID"], run["ended"][:19], run["error"]) for run in runs if run["ended"]}
    if shown:
        entries.append(TimelineEntry(shown["created"], "QUEUED", "created", 0))
    for run in sorted(runs, key=lambda run: int(run["runID"])):
        cause = "" if run["cause"] in ("schedule", "queue") else f", {run['cause']}"
        text = f"taken by {run['worker'] or 'a client without a name'} (attempt {run['attempt']}{cause})"
        entries.append(TimelineEntry(run["started"], "running", text, run["runID"]))
        if run["ended"]:
            error = f": {line_of(run['error'])}" if run["error"] else ""
            entries.append(
                TimelineEntry(run["ended"], run["status"], f"{called(run['status'])}{error}", run["runID"])
            )
    for _, at, kind, _, _, run_id, by, detail in sorted(events):
        reached[at] = max(run_id, reached.get(at, 0))
        if kind in ("failed", "retried", "lost", "timeout") and (run_id, at[:19], detail) in ends:
            continue
        author = f" by {by}" if by else ""
        order[len(entries)] = inf if kind == "deleted" else run_id or reached[at]
        entries.append(
            TimelineEntry(at, kind, f"{kind}{author}{': ' if detail else ''}{line_of(detail)}", run_id)
        )
    places = sorted(range(len(entries)), key=lambda at: (entries[at].at, order.get(at, entries[at].run)))
    return [entries[at] for at in places[::-1]]


def _lines(request: web.Request, job_id: int) -> list[tuple[str, str]]:
    """Return shell commands that show the same job, each with a label."""
    host, port = request.url.host or "localhost", request.url.port or 80
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [
        ("nc", f"printf 'QueryJob\\njobID: {job_id}\\n\\n' | nc -q 1 {host} {port}"),
        ("curl", f"curl -d '{{\"jobID\":{job_id}}}' http://{address}/QueryJob"),
        ("command", f"bedrockjobs job show {job_id} --server {address}"),
    ]
