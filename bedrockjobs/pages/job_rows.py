"""Details for the rows of the job list, depending on the listed state.

Each detail is one bounded read for all rows of a page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.job.eligibility import need_of
from bedrockjobs.job.rows import Job
from bedrockjobs.pages.family import Family, told
from bedrockjobs.pages.run import progress_of
from bedrockjobs.pages.site import Site
from bedrockjobs.pages.words import by_hand
from bedrockjobs.views.families import FamilyCounts
from bedrockjobs.views.problems import pause_words
from bedrockjobs.views.queues import Held, QueuedGroup
from bedrockjobs.views.states import NewestRun

LINE_CHARS_SHOWN = 300
"""Maximum length of an error or message in a row; the job's page has all of it."""


class Row(NamedTuple):
    """A job in a list."""

    job: Job
    standing: str = ""
    """Of a queued job: ready, later, paused, blocked or mocked."""
    why: str = ""
    """Why it is not taken, or its error."""
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
        return [Row(job, why=_why(job), run=runs.get(job.job_id)) for job in jobs]
    return [_running(job, runs.get(job.job_id)) for job in jobs]


def _queued(job: Job, held: Held, *, whole: bool) -> Row:
    """Return the row of a queued job; unless ``whole``, no other job is named."""
    group = QueuedGroup(job.lane, job.name, "")
    due = job.next_run <= held.now
    standing = held.standing(group, due=due)
    pause, lock = held.pause_of(group), held.lock_holder(group)
    why = ""
    if standing == "paused" and pause is not None:
        why = pause_words(pause)
    elif standing == "blocked":
        why = f"{f'job {lock}' if whole else 'another job'} holds its lock"
    elif standing == "ready" and not held.takers.any_of(job.name, need_of(job.lane)):
        why = "nobody takes it"
    elif standing == "later" and by_hand(job.next_run):
        why = "only by hand"
    return Row(job, standing=standing, why=why)


def _running(job: Job, run: NewestRun | None) -> Row:
    """Return the row of a running job; jobs taken without a worker name have no run."""
    if run is None or run.run_id != job.run_id:
        return Row(job)
    said: Any = json.loads(run.progress) if run.progress else None
    message = str(said.get("message", "")) if isinstance(said, dict) else ""
    return Row(job, run=run, progress=progress_of(said), message=message[:LINE_CHARS_SHOWN])


def _why(job: Job) -> str:
    return line_of(job.memory.error or "")[:LINE_CHARS_SHOWN]


def _family(counts: FamilyCounts | None) -> Family | None:
    if counts is None:
        return None
    known = {state: count for state, count in counts.states.items() if count}
    return told(counts._replace(states=known), []) if known else None
