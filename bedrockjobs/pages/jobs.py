"""The jobs page: filtered by state, name, text and time, with bulk actions.

The URL contains all filters. The search is bounded in time; the page says how far it got.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.config import NAME_CHARS_MAX, PRIORITIES
from bedrockjobs.base.errors import BadArguments, line_of
from bedrockjobs.commands import ListJobs
from bedrockjobs.job.eligibility import need_of
from bedrockjobs.job.limits import slots_of
from bedrockjobs.job.rows import Job
from bedrockjobs.pages.formatting import iso, number, runs_only_if_triggered
from bedrockjobs.pages.runs import progress_of
from bedrockjobs.pages.site import (
    MATCHING_S,
    MATCHING_SLICE,
    PRESETS,
    ROWS,
    Pages,
    Site,
    cursor,
    follow_tokens,
    json_answer,
    preset_in,
    rows_asked,
    slice_answer,
    text_in,
    time_in,
)
from bedrockjobs.views.find import RunsFound, TimeField
from bedrockjobs.views.problems import pause_text, start_text
from bedrockjobs.views.queues import Held, QueuedGroup
from bedrockjobs.views.states import ALL, KEPT, Counts, FamilyCounts, NewestRun

# Progress of a job's children as a bar, with the first failed ones.


_PARTS = (
    ("done", "success", ("FINISHED",)),
    ("failed", "FAILED", ("FAILED",)),
    ("running", "RUNNING", ("RUNNING", "RUNQUEUED")),
    ("waiting", "QUEUED", ("QUEUED", "PAUSED")),
    ("cancelled", "CANCELLED", ("CANCELLED",)),
)
"""The segments of the progress bar from left to right: label, mark and states."""


class StateSegment(NamedTuple):
    """A segment of the bar; its position and width are percentages."""

    called: str
    mark: str
    amount: int
    begins: float
    width: float


class Family(NamedTuple):
    """The children of a job."""

    total: int
    more: bool
    """True if the count is a lower bound."""
    parts: list[StateSegment]
    """The segments that are not empty."""
    text: str
    """The bar in words: ``12 children: 9 done, 1 failed, 2 waiting``."""
    failed: list[Job]
    """The first failed children, without their data."""


async def family(site: Site, job_id: int) -> Family | None:
    """Return the progress of a job's children; None if it has none."""
    counts = await site.views.families.counts(job_id)
    if not counts.states:
        return None
    failed = await site.views.families.failed(job_id, 20) if "FAILED" in counts.states else []
    return progress_bar(counts, [child._replace(data="") for child in failed])


def progress_bar(
    counted: FamilyCounts, failed: list[Job], nouns: tuple[str, str] = ("child", "children")
) -> Family:
    """Return the progress bar for counts by state; ``nouns`` are singular and plural of what is counted."""
    counts, more = counted
    total = sum(counts.values())
    parts: list[StateSegment] = []
    begins = 0.0
    for called, mark, states in _PARTS:
        if count := sum(counts.get(state, 0) for state in states):
            parts.append(StateSegment(called, mark, count, begins, 100 * count / total))
            begins += 100 * count / total
    text = ", ".join(f"{number(part.amount)} {part.called}" for part in parts)
    noun = nouns[total != 1]
    return Family(total, more, parts, f"{number(total)}{'+' if more else ''} {noun}: {text}", failed)


# Details in the rows of the job list, depending on the state that is listed.
#
# Each kind of detail costs one bounded read for all rows of a page.


LINE_CHARS_SHOWN = 300
"""Maximum characters of an error or message in a row; the page of the job shows all of it."""


class Row(NamedTuple):
    """A job in a list."""

    job: Job
    standing: str = ""
    """The standing of a queued job: ready, later, paused, blocked or mocked."""
    why: str = ""
    """Why a queued job is not taken, or the error of a failed job."""
    run: NewestRun | None = None
    progress: float | None = None
    """Progress of the run in percent."""
    message: str = ""
    """Progress message of the run."""
    family: Family | None = None


async def rows_of(site: Site, state: str | None, jobs: Sequence[Job]) -> list[Row]:
    """Return the rows of a list of jobs in one state, or in all states."""
    if state in (None, "QUEUED"):
        held = await site.views.queues.held()
        whole = site.caller.scope is None
        return [_queued(job, held, whole=whole) if job.state == "QUEUED" else Row(job) for job in jobs]
    ids = [job.job_id for job in jobs]
    if state == "PAUSED":
        families = await site.views.states.families(ids)
        return [Row(job, family=_family(families.get(job.job_id))) for job in jobs]
    if state not in ("RUNNING", "RUNQUEUED", "FAILED"):
        return [Row(job) for job in jobs]
    runs = await site.views.states.newest_runs(ids)
    if state == "FAILED":
        return [
            Row(job, why=line_of(job.memory.error or "")[:LINE_CHARS_SHOWN], run=runs.get(job.job_id))
            for job in jobs
        ]
    return [_running(job, runs.get(job.job_id)) for job in jobs]


def _queued(job: Job, held: Held, *, whole: bool) -> Row:
    """Return the row of a queued job; the reason names other jobs only if ``whole``."""
    group = QueuedGroup(job.lane, job.name, "")
    due = job.next_run <= held.now
    standing = held.standing(group, due=due)
    pause, lock = held.pause_of(group), held.lock_holder(group)
    why = ""
    if standing == "paused" and pause is not None:
        why = pause_text(pause)
    elif standing == "blocked" and lock is None:
        start = held.next_start(group)
        why = start_text(*start, job, held.now) if start is not None else ""
    elif standing == "blocked":
        slots = slots_of(job, held.limits)
        why = f"{f'job {lock}' if whole else 'another job'} holds its lock"
        if slots > 1:
            why = f"{slots} jobs with its key run"
    elif standing == "ready" and not held.takers.any_eligible(job.name, need_of(job.lane)):
        why = "no worker takes it"
    elif standing == "later" and runs_only_if_triggered(job.next_run):
        why = "only by hand"
    return Row(job, standing=standing, why=why)


def _running(job: Job, run: NewestRun | None) -> Row:
    """Return the row of a running job; ``run`` is None if it was taken without a worker's name."""
    if run is None or run.run_id != job.run_id:
        return Row(job)
    progress: Any = json.loads(run.progress) if run.progress else None
    message = str(progress.get("message", "")) if isinstance(progress, dict) else ""
    return Row(job, run=run, progress=progress_of(progress), message=message[:LINE_CHARS_SHOWN])


def _family(counts: FamilyCounts | None) -> Family | None:
    if counts is None:
        return None
    known = {state: count for state, count in counts.states.items() if count}
    return progress_bar(counts._replace(states=known), []) if known else None


NAMES_OFFERED = 20
"""Maximum names that are suggested while a name is typed."""

MOMENTS: dict[TimeField, str] = {"created": "created", "next": "next run", "last": "last run"}
"""The label of each timestamp by which jobs can be filtered."""

TOKENS = {"name": "name", "state": "state", "text": "text", "time": "time", "since": "from", "until": "to"}
"""The words before a colon in the search box, each with its query parameter."""

TABS = (
    (ALL, "All"),
    ("QUEUED", "Queued"),
    ("RUNNING", "Running"),
    ("PAUSED", "Waiting"),
    ("FAILED", "Failed"),
    ("FINISHED", "Finished"),
    ("CANCELLED", "Cancelled"),
)
"""States in display order; RUNNING includes RUNQUEUED."""


class Tab(NamedTuple):
    """A tab: its state in the URL, its label, and its number of jobs (None if they are not counted)."""

    state: str
    called: str
    amount: tuple[int, bool] | None
    current: bool


class JobFilters(NamedTuple):
    """The filters of the list; an empty one matches every job."""

    state: str | None
    name: str | None
    text: str | None
    moment: TimeField
    """The timestamp that ``since`` and ``until`` limit."""
    since: str | None
    until: str | None
    before: int | None

    def search(self) -> dict[str, Any]:
        """Return the filters as arguments of the search."""
        parameters = self._asdict()
        return {"pattern": parameters.pop("name"), **parameters}

    def address(self) -> dict[str, str | None]:
        """Return the filters as query parameters, without the cursor ``before``."""
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
    follow_tokens(request, TOKENS)
    filters = _parse_query(request, site.views.now_ms)
    limit = rows_asked(request, ROWS)
    page = (await site.views.find.jobs(**filters.search(), limit=limit)).without_data()
    finished = await _kept_finished(site, request, filters)
    return await site.show(
        request,
        "jobs.html",
        title="Jobs",
        asked=filters.address(),
        moments=MOMENTS,
        presets=PRESETS,
        preset=preset_in(request),
        begins=filters.before is None,
        found=page,
        full=len(page.jobs) >= limit,
        rows=await rows_of(site, filters.state, page.jobs),
        listed="RUNNING" if filters.state == "RUNQUEUED" else filters.state or ALL,
        tabs=await _tabs(site, filters),
        kept=finished,
        keeps=site.settings.keep_finished > 0,
        later_kept=not request.query.get("keptBefore"),
        now_ms=timestamp_ms(site.now()),
        priorities=PRIORITIES,
    )


async def names(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with the names that begin with the typed prefix, as a JSON array."""
    typed = request.query.get("name", "")[:NAME_CHARS_MAX]
    return json_answer(await site.views.find.names(typed.rstrip("*"), NAMES_OFFERED))


async def matching(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with a slice of the jobs that match the filter."""
    filters = _parse_query(request, site.views.now_ms)
    page = await site.views.find.jobs(**filters.search(), limit=MATCHING_SLICE, within_s=MATCHING_S)
    found = [(job.job_id, job.name) for job in page.jobs]
    return slice_answer(found, None if page.ended else page.reached)


PAGES: Pages = (("/ui/jobs", jobs), ("/ui/jobs/names", names), ("/ui/jobs/matching", matching))


async def _tabs(site: Site, filters: JobFilters) -> list[Tab]:
    """Return the tabs. Jobs are counted by name only: with other filters, tabs have no counts."""
    counts: Counts = {}
    if not (filters.text or filters.since or filters.until):
        counts = dict(await site.views.states.counts(filters.name))
    if counts:
        (ended, more), (kept, more_kept) = counts["FINISHED"], counts[KEPT]
        counts["FINISHED"] = (ended + kept, more or more_kept)
    current = "RUNNING" if filters.state == "RUNQUEUED" else filters.state or ALL
    return [Tab(state, called, counts.get(state), state == current) for state, called in TABS]


async def _kept_finished(site: Site, request: web.Request, filters: JobFilters) -> RunsFound | None:
    """Return the finished jobs that are kept as runs; None if the filters exclude them."""
    if filters.state != "FINISHED" or filters.text or filters.since or filters.until:
        return None
    before = cursor(request, "keptBefore", "a runID")
    return await site.views.find.runs(before=before, pattern=filters.name, only_kept=True, limit=ROWS)


def _parse_query(request: web.Request, now: str) -> JobFilters:
    filters = {key: value for key, value in request.query.items() if value}
    moment = filters.get("time", "created")
    if moment not in MOMENTS:
        raise BadArguments("Malformed time", f"time: expected one of {', '.join(MOMENTS)}")
    checked = ListJobs.read({key: filters[key] for key in ("state", "name") if key in filters})
    return JobFilters(
        checked.state,
        checked.name,
        text_in(filters),
        moment,
        time_in(filters, "from", now),
        time_in(filters, "to", now),
        cursor(request, "before", "a jobID"),
    )
