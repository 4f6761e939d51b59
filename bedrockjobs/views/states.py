"""Counts of jobs by state, children of jobs, and details for the rows of job lists.

Every count has a maximum; a count that reaches it is a lower bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOBS_COUNTED_MAX
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.principal import Scope
from bedrockjobs.engine.render import job_as_unseen
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Reader
from bedrockjobs.views.queues import OLDEST_MAX
from bedrockjobs.views.render import filter_of, name_range, patterns_of

# Children of jobs: pages of them, counts by state, and those that failed.
#
# Within a scope, children are scanned in stretches until enough are found or the time is up; the result
# says how far the scan got.


CHILDREN_COUNTED = 10_000
"""Maximum children examined by one query; reading them takes 10 ms."""

FAMILY_S = 0.025
"""Seconds after which no further stretch of children is scanned; the page of a job makes three scans."""


class Children(NamedTuple):
    """Children ordered by jobID, the last jobID that was examined, and whether no child follows it."""

    jobs: list[Job]
    keys: dict[int, str]
    """The unique keys that the children hold, by jobID, as stored: until when a key is held, then the key."""
    reached: int
    ended: bool


class FamilyCounts(NamedTuple):
    """The number of children in each state, and whether there are more."""

    states: dict[str, int]
    more: bool


class _Stretch(NamedTuple):
    """Rows found in one stretch of children."""

    rows: list[tuple[Any, ...]]
    reached: int
    ended: bool
    cut: bool
    """True if rows beyond the limit were left out."""


class Families:
    """Reads the children of jobs, limited to a scope."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Read through ``reader``; without ``data``, hide the data of jobs."""
        self._reader = reader
        self._scope = scope
        self._data = data

    async def children(self, job_id: int, after: int, limit: int, *, full: bool = False) -> Children:
        """Return up to ``limit`` children with a jobID above ``after``; a ``full`` page has no time limit."""
        length = limit + 1 if self._scope is None else CHILDREN_COUNTED
        deadline, jobs, keys = _deadline(inf if full else FAMILY_S), list[Job](), dict[int, str]()
        while True:
            stretch = await self._stretch("children", job_id, after, limit, length)
            for row in stretch.rows:
                jobs.append(job_from(row))
                if row[-1] is not None:
                    keys[jobs[-1].job_id] = row[-1]
            if stretch.cut or len(jobs) > limit:
                jobs = jobs[:limit]
                return Children(self._shown(jobs), keys, jobs[-1].job_id, ended=False)
            after = stretch.reached
            if stretch.ended or len(jobs) == limit or _now() >= deadline:
                return Children(self._shown(jobs), keys, after, stretch.ended)

    async def counts(self, job_id: int) -> FamilyCounts:
        """Count the first ``CHILDREN_COUNTED`` children by state; within a scope, as many as time allows."""
        deadline, after, states = _deadline(FAMILY_S), 0, Counter[str]()
        while True:
            stretch = await self._stretch("family", job_id, after, len(STATES), CHILDREN_COUNTED)
            states.update(dict(stretch.rows))
            after = stretch.reached
            if stretch.ended or self._scope is None or _now() >= deadline:
                return FamilyCounts(dict(states), more=not stretch.ended)

    async def failed(self, job_id: int, limit: int) -> list[Job]:
        """Return the first failed children of a job, among those that ``counts`` examines."""
        deadline, after, jobs = _deadline(FAMILY_S), 0, list[Job]()
        while True:
            stretch = await self._stretch("failed_children", job_id, after, limit, CHILDREN_COUNTED)
            jobs += map(job_from, stretch.rows)
            after = stretch.reached
            all_there = stretch.ended or stretch.cut or self._scope is None or len(jobs) >= limit
            if all_there or _now() >= deadline:
                return self._shown(jobs[:limit])

    def _shown(self, jobs: list[Job]) -> list[Job]:
        return jobs if self._data else list(map(job_as_unseen, jobs))

    async def _stretch(self, statement: str, job_id: int, after: int, limit: int, length: int) -> _Stretch:
        """Examine up to ``length`` children after a jobID, and return up to ``limit`` rows."""
        parameters = {"jobID": job_id, "after": after, "stretch": length, "visible": filter_of(self._scope)}
        page = await self._reader.view(statement, parameters, limit, scans=self._scope is not None)
        highest, looked = page.rows[0][:2]
        rows = [row[2:] for row in page.rows if row[2] is not None]
        return _Stretch(rows, after if highest is None else highest, looked < length, page.more)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _deadline(within_s: float) -> float:
    return _now() + within_s


CHILDREN_OF_MANY = 200
"""Maximum children counted for each listed job: 10,000 for a page of 50, in 15 ms of a reader."""

FAMILY_STATES = ("FINISHED", "FAILED", "RUNNING", "QUEUED", "CANCELLED")
"""States by which children are counted; a child that waits for its own children counts as queued."""

ALL = ""
"""The key of the count of jobs in any state."""

KEPT = "kept"
"""The key of the count of finished jobs that are kept as runs."""

Counts = dict[str, tuple[int, bool]]
"""For each state, the number of jobs and whether there may be more. RUNNING includes RUNQUEUED."""


class NewestRun(NamedTuple):
    """The newest run of a job; ``progress`` is JSON text or empty."""

    job_id: int
    run_id: int
    status: str
    started: str
    ended: str
    worker: str
    progress: str


class States:
    """Counts jobs, limited to a scope."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Read through ``reader``; without ``data``, hide progress."""
        self._reader = reader
        self._scope = scope
        self._data = data

    async def counts(self, pattern: str | None = None) -> Counts:
        """Return the number of jobs by state, for all names or for those that match a GLOB.

        Returns an empty dict for a pattern without a literal prefix, which would need a full scan, and for a
        scope of several patterns, which may overlap.
        """
        if self._scope is None and (pattern is None or not pattern.strip("*")):
            return await self._all()
        patterns = patterns_of(pattern, self._scope)
        if len(patterns) != 1 or not patterns[0] or not literal_prefix(patterns[0]):
            return {}
        return await self._named(patterns[0])

    async def _all(self) -> Counts:
        most = JOBS_COUNTED_MAX + 1
        page = await self._reader.view("count_states", {"most": most, "oldest": OLDEST_MAX}, 1, scans=True)
        *counts, queued, children, expiring, kept = page.rows[0]
        keys = (ALL, "QUEUED", "RUNNING", "PAUSED", "FAILED", "FINISHED", "CANCELLED", KEPT)
        states = {
            key: (min(count, JOBS_COUNTED_MAX), count == most)
            for key, count in zip(keys, counts, strict=True)
        }
        cancelled = max(children, expiring)
        bounded = (("QUEUED", queued), ("FINISHED", children), ("CANCELLED", cancelled), (KEPT, kept))
        for key, looked in bounded:
            states[key] = (states[key][0], looked == most)
        return states

    async def _named(self, pattern: str) -> Counts:
        low = literal_prefix(pattern)
        parameters = {
            "pattern": pattern,
            **name_range(low, exact=low == pattern),
            "most": JOBS_COUNTED_MAX + 1,
        }
        rows = (await self._reader.view("count_states_of_names", parameters, len(STATES), scans=True)).rows
        runs = kept = 0
        if (await self._reader.view("count_kept", {"most": 1}, 1)).rows[0][0]:
            ((runs, kept),) = (await self._reader.view("count_kept_of_names", parameters, 1, scans=True)).rows
        states = {state: matching for state, _, matching in rows}
        states["RUNNING"] = states.get("RUNNING", 0) + states.pop("RUNQUEUED", 0)
        more = sum(looked for _, looked, _ in rows) > JOBS_COUNTED_MAX
        counts = {ALL: sum(states.values()), **states}
        shown = {key: (min(count, JOBS_COUNTED_MAX), more) for key, count in counts.items()}
        shown[KEPT] = (min(kept, JOBS_COUNTED_MAX), runs > JOBS_COUNTED_MAX)
        nothing = dict.fromkeys(("QUEUED", "PAUSED", "FAILED", "FINISHED", "CANCELLED"), (0, more))
        return nothing | shown

    async def newest_runs(self, jobs: Iterable[int]) -> dict[int, NewestRun]:
        """Return the newest run of each job that has one, by jobID."""
        rows = await self._of_jobs("newest_runs_of_jobs", jobs)
        runs = map(NewestRun._make, rows)
        return {run.job_id: run if self._data else run._replace(progress="") for run in runs}

    async def families(self, jobs: Iterable[int]) -> dict[int, FamilyCounts]:
        """Count the first ``CHILDREN_OF_MANY`` children of each job by state."""
        rows = await self._of_jobs("families", jobs, most=CHILDREN_OF_MANY, visible=filter_of(self._scope))
        result = {}
        for job_id, text in rows:
            looked, *counts = map(int, text.split())
            states = dict(zip(FAMILY_STATES, counts, strict=True))
            result[job_id] = FamilyCounts(states, looked >= CHILDREN_OF_MANY)
        return result

    async def _of_jobs(self, statement: str, jobs: Iterable[int], **parameters: Any) -> list[tuple[Any, ...]]:
        job_ids = list(jobs)
        if not job_ids:
            return []
        page = await self._reader.view(
            statement, {"jobs": jsontext.dump(job_ids), **parameters}, len(job_ids), scans=True
        )
        return page.rows
