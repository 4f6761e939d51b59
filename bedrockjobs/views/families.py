"""Children of jobs: pages of them, counts by state, and those that failed.

Within a scope, children are scanned in stretches until enough are found or the time is up; the result says
how far the scan got.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import Any, NamedTuple

from bedrockjobs.base.principal import Scope
from bedrockjobs.engine.render import job_as_unseen
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Reader
from bedrockjobs.views.visible import filter_of

CHILDREN_COUNTED = 10_000
"""Children examined per query: 10 ms of the reader."""

FAMILY_S = 0.025
"""Time after which no further stretch is scanned; a job's page makes three such scans."""

_FOUND_FROM = 2


class Children(NamedTuple):
    """Children by jobID, the last jobID examined, and whether there are none after it."""

    jobs: list[Job]
    reached: int
    ended: bool


class FamilyCounts(NamedTuple):
    """Number of children by state, and whether there are more."""

    states: dict[str, int]
    more: bool


class _Stretch(NamedTuple):
    """Rows found in one stretch of children."""

    rows: list[tuple[Any, ...]]
    reached: int
    ended: bool
    cut: bool
    """Whether rows beyond the limit were left out."""


class Families:
    """Reads the children of jobs, limited to a scope."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Read from ``reader``; without ``data`` payloads are hidden."""
        self._reader = reader
        self._scope = scope
        self._data = data

    async def children(self, job_id: int, after: int, limit: int, *, full: bool = False) -> Children:
        """Return a page of a job's children by jobID. A ``full`` page has no time limit."""
        length = limit + 1 if self._scope is None else CHILDREN_COUNTED
        deadline, found = _deadline(inf if full else FAMILY_S), list[Job]()
        while True:
            stretch = await self._stretch("children", job_id, after, limit, length)
            found += map(job_from, stretch.rows)
            if stretch.cut or len(found) > limit:
                found = found[:limit]
                return Children(self._shown(found), found[-1].job_id, ended=False)
            after = stretch.reached
            if stretch.ended or len(found) == limit or _now() >= deadline:
                return Children(self._shown(found), after, stretch.ended)

    async def counts(self, job_id: int) -> FamilyCounts:
        """Count the first ``CHILDREN_COUNTED`` children by state; within a scope, as many as time allows."""
        deadline, after, found = _deadline(FAMILY_S), 0, Counter[str]()
        while True:
            stretch = await self._stretch("family", job_id, after, len(STATES), CHILDREN_COUNTED)
            found.update(dict(stretch.rows))
            after = stretch.reached
            if stretch.ended or self._scope is None or _now() >= deadline:
                return FamilyCounts(dict(found), more=not stretch.ended)

    async def failed(self, job_id: int, limit: int) -> list[Job]:
        """Return the first failed children of a job, among those that ``counts`` examines."""
        deadline, after, found = _deadline(FAMILY_S), 0, list[Job]()
        while True:
            stretch = await self._stretch("failed_children", job_id, after, limit, CHILDREN_COUNTED)
            found += map(job_from, stretch.rows)
            after = stretch.reached
            all_there = stretch.ended or stretch.cut or self._scope is None or len(found) >= limit
            if all_there or _now() >= deadline:
                return self._shown(found[:limit])

    def _shown(self, found: list[Job]) -> list[Job]:
        return found if self._data else list(map(job_as_unseen, found))

    async def _stretch(self, statement: str, job_id: int, after: int, limit: int, length: int) -> _Stretch:
        """Examine the next children after a jobID."""
        given = {"jobID": job_id, "after": after, "stretch": length, "visible": filter_of(self._scope)}
        page = await self._reader.view(statement, given, limit, scans=self._scope is not None)
        highest, looked = page.rows[0][:_FOUND_FROM]
        rows = [row[_FOUND_FROM:] for row in page.rows if row[_FOUND_FROM] is not None]
        return _Stretch(rows, after if highest is None else highest, looked < length, page.more)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _deadline(within_s: float) -> float:
    return _now() + within_s
