"""The page of one job: state, reasons why it waits, timeline, data, children and options.

After the job is gone, its runs and events are kept for a while; the page shows these then.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.errors import NotFound, line_of
from bedrockjobs.base.vocabulary import CLOCK_SET, called
from bedrockjobs.commands import ExplainJob, ListJobs, ListRuns
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.job.lifecycle import HeldKey
from bedrockjobs.pages.formatting import NOT_SHOWN, hidden_options, option_text
from bedrockjobs.pages.jobs import family
from bedrockjobs.pages.runs import is_ping, tail
from bedrockjobs.pages.site import ROWS, Pages, Site
from bedrockjobs.views.states import Children

_OPTIONAL = ("attempt", "error", "exitCode", "expires", "parentJobID")
"""The optional members of a reply to QueryJob that the template uses."""


class TimelineEntry(NamedTuple):
    """An entry of the timeline; ``run`` is the runID, or 0 if the entry is not about a run."""

    at: str
    mark: str
    text: str
    run: int


async def job(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a job."""
    job_id = ListJobs.read({"after": request.match_info["jobID"]}).after
    exists = await site.views.job_exists(job_id)
    runs = (await site.read(ListRuns(job_id=job_id, limit=20)))["runs"]
    events = await site.views.find.events_of(job_id)
    explained = await _explained(site, job_id)
    after = ListJobs.read({"after": request.query.get("children") or 0}).after
    log, log_after = await tail(site, runs[0]["runID"], 100) if runs and site.shows_data else (None, 0)
    children = await _children(site, job_id, after) if exists else Children([], {}, after, ended=True)
    relatives = await family(site, job_id) if children.jobs else None
    place = await site.views.workflow_of(job_id)
    # The last read: while the page waits for its other reads, it holds no data of up to 4 MiB.
    members = await _members(site, job_id) if exists else None
    watched = "HX-Request" in request.headers  # an open page refreshes, whose job may have been removed
    recorded = runs or place or any(event[2] != CLOCK_SET for event in events)
    if members is None and not recorded and not watched:
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
    page = await site.views.families.children(job_id, after, ROWS)
    return page._replace(jobs=[child._replace(data="") for child in page.jobs])


async def _explained(site: Site, job_id: int) -> dict[str, Any]:
    """Return the reply to ExplainJob; for a job that is gone, only ``after end``: its unique key, as text."""
    try:
        explained: dict[str, Any] = await site.read(ExplainJob(job_id=job_id))
    except NotFound as error:
        return {"after end": error.detail.partition("; ")[2]}
    return explained


def _unique(explained: dict[str, Any]) -> tuple[str, str] | None:
    """Return the unique key that a job holds, and until when, as text; None if it holds none."""
    if "uniqueUntil" not in explained:
        return None
    held = HeldKey(explained["name"], explained.get("uniqueKey", NOT_SHOWN), explained["uniqueUntil"])
    return held.key, held.until_text


def _exit_status(shown: dict[str, Any]) -> int | None:
    """Return the exit status of a failed job, or None if the job's error has it already."""
    code, error = shown.get("exitCode"), str(shown.get("error") or "")
    return None if code is None or re.search(rf"\bexit status {code}\b", error) else int(code)


_Moment = tuple[int, str]
"""How often the clock had been set before, and what it showed: such pairs sort in the real order of time."""


class _ClockSet(NamedTuple):
    """An event that the clock was set, with what it showed before and after."""

    seq: int
    before: str
    after: str


def _clock_sets(events: list[tuple[Any, ...]]) -> list[_ClockSet]:
    found = ((event[0], re.fullmatch(r"from (.+) to (.+)", event[7])) for event in sorted(events))
    return [_ClockSet(seq, words[1], words[2]) for seq, words in found if words]


def _moment_of(at: str, sets: list[_ClockSet], earlier: _Moment) -> _Moment:
    """Return the first moment, not before ``earlier``, at which the clock may have shown a timestamp."""
    for count in range(earlier[0], len(sets) + 1):
        begun = sets[count - 1].after if count else ""
        ended = sets[count].before if count < len(sets) else at
        if begun <= at and at[:19] <= ended and (count, at) >= earlier:
            return count, at
    return earlier[0], at


class _Step(NamedTuple):
    """A step of the job's life: its creation, or the beginning or end of a run."""

    entry: TimelineEntry
    moment: _Moment
    ends_earlier_run: bool = False
    """True for the end of a run that began at an earlier moment."""
    by_hand: bool = False
    """True for the beginning of a triggered run, unless that run was returned before."""


def timeline(
    shown: dict[str, Any], runs: list[dict[str, Any]], events: list[tuple[Any, ...]]
) -> list[TimelineEntry]:
    """Return the timeline, newest first, without events that repeat the end of a run.

    Runs are in the order in which they began, events in the order in which they were recorded. Both are
    merged by timestamps and, if timestamps are equal, by cause and effect (``_place``). If the clock was set
    meanwhile, timestamps are compared with what the clock showed before and after.
    """
    sets = _clock_sets([event for event in events if event[2] == CLOCK_SET])
    moment: _Moment = (0, "")
    steps: list[_Step] = []
    if shown:
        moment = _moment_of(shown["created"], sets, moment)
        steps.append(_Step(TimelineEntry(shown["created"], "QUEUED", "created", 0), moment))
    begun: list[tuple[_Moment, int, _Moment, dict[str, Any]]] = []
    for run in sorted(runs, key=lambda run: int(run["runID"])):
        began = moment = _moment_of(run["started"], sets, moment)
        if run["ended"]:
            moment = _moment_of(run["ended"], sets, moment)
        begun.append((began, int(run["runID"]), moment, run))
    returned = False
    for began, _, ended, run in sorted(begun, key=lambda one: one[:2]):
        steps += _steps(run, began, ended, by_hand=run["cause"] == "manual" and not returned)
        returned = run["status"] == "returned"
    ends = {(run["runID"], run["ended"][:19], run["error"]) for run in runs if run["ended"]}
    entries: list[TimelineEntry] = []
    done = 0
    triggers: Counter[_Moment] = Counter()
    """How many triggers of each moment have been read, without those that were cancelled before their run."""
    for seq, at, kind, _, _, run_id, by, detail in sorted(events):
        if kind == CLOCK_SET:
            continue
        moment = sum(each.seq < seq for each in sets), at
        place = max(done, _place(steps, moment, kind, run_id, triggers[moment]))
        if kind == "triggered" or (kind == "cancelled" and not run_id):
            triggers[moment] += 1 if kind == "triggered" else -1
        entries += [step.entry for step in steps[done:place]]
        done = place
        if kind in ("failed", "retried", "lost", "timeout") and (run_id, at[:19], detail) in ends:
            continue
        author = f" by {by}" if by else ""
        entries.append(
            TimelineEntry(at, kind, f"{kind}{author}{': ' if detail else ''}{line_of(detail)}", run_id)
        )
    entries += [step.entry for step in steps[done:]]
    return entries[::-1]


def _steps(run: dict[str, Any], began: _Moment, ended: _Moment, *, by_hand: bool) -> list[_Step]:
    """Return the beginning of a run, and its end if it has ended."""
    cause = "" if run["cause"] in ("schedule", "queue") else f", {run['cause']}"
    begun = "begun by a ping" if is_ping(run) else f"taken by {run['worker'] or 'a client without a name'}"
    text = f"{begun} (attempt {run['attempt']}{cause})"
    number, status = run["runID"], run["status"]
    steps = [_Step(TimelineEntry(run["started"], "running", text, number), began, by_hand=by_hand)]
    if run["ended"]:
        error = f": {line_of(run['error'])}" if run["error"] else ""
        end = TimelineEntry(run["ended"], status, f"{called(status)}{error}", number)
        steps.append(_Step(end, ended, ends_earlier_run=began < ended))
    return steps


def _place(steps: list[_Step], moment: _Moment, kind: str, run_id: int, triggers: int) -> int:
    """Return how many steps come before an event; ``triggers`` triggers of its moment were recorded earlier.

    An event about a run comes after the end of that run; only a stop comes before that end. Among the steps
    of its moment, any other event comes after the steps that may have caused it (the creation, and ends of
    runs that began earlier), and before the next run, which it may have caused. A trigger comes before the
    triggered run.
    """
    place = next((count for count in range(len(steps), 0, -1) if steps[count - 1].moment < moment), 0)
    if run_id:
        about = [count for count, step in enumerate(steps, 1) if step.entry.run == run_id]
        if about:
            ended = steps[about[-1] - 1].moment
            return about[0] if kind == "stop" and ended >= moment else max(place, about[-1])
    now = [count for count, step in enumerate(steps, 1) if step.moment == moment]
    if kind == "deleted":
        return max([place, *now])
    if kind == "triggered":
        triggered = [count for count in now if steps[count - 1].by_hand]
        if triggers < len(triggered):
            return triggered[triggers] - 1
    followed = [count for count in now if steps[count - 1].ends_earlier_run or not steps[count - 1].entry.run]
    return max([place, *followed])


def _lines(request: web.Request, job_id: int) -> list[tuple[str, str]]:
    """Return commands for a shell that show the same job, each with a label."""
    host, port = request.url.host or "localhost", request.url.port or 80
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [
        ("nc", f"printf 'QueryJob\\njobID: {job_id}\\n\\n' | nc -q 1 {host} {port}"),
        ("curl", f"curl -d '{{\"jobID\":{job_id}}}' http://{address}/QueryJob"),
        ("command", f"bedrockjobs job show {job_id} --server {address}"),
    ]
