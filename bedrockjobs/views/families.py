"""The children of a job, as people look at them: page by page, how many are in each state, which have failed.

Whoever sees some names only is shown one stretch of children after the other, until there are enough or the
time is over; then it is told how far was looked. It knows no page and no protocol.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import Any, NamedTuple

from bedrockjobs.base.caller import Scope
from bedrockjobs.engine.render import job_as_unseen
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Reader
from bedrockjobs.views.visible import filter_of

CHILDREN_COUNTED = 10_000
"""Children of a job that are looked at in one go, and counted by their states: 10 ms of the reader."""

FAMILY_S = 0.025
"""Time after which no further stretch is looked at: a page of a family asks three times."""

_FOUND_FROM = 2


class Children(NamedTuple):
    """Some children by jobID; the jobID up to which was looked; whether there are none behind it."""

    jobs: list[Job]
    reached: int
    ended: bool


class FamilyCounts(NamedTuple):
    """How many children are in each state, and whether there are more than were looked at."""

    states: dict[str, int]
    more: bool


class _Stretch(NamedTuple):
    """What was found in a stretch of children."""

    rows: list[tuple[Any, ...]]
    reached: int
    ended: bool
    cut: bool
    """Whether more was found than was to be shown."""


class Families:
    """The children of the jobs of one server."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Look with ``reader``, for somebody who sees the names of ``scope``, and ``data`` or not."""
        self._reader = reader
        self._scope = scope
        self._data = data

    async def children(self, job_id: int, after: int, limit: int, *, full: bool = False) -> Children:
        """Return a page of a job's children by jobID; one that is ``full`` has ``limit``, unless they end."""
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
        """Return how many of a job's children are in each state: ``CHILDREN_COUNTED``, or as time allows."""
        deadline, after, found = _deadline(FAMILY_S), 0, Counter[str]()
        while True:
            stretch = await self._stretch("family", job_id, after, len(STATES), CHILDREN_COUNTED)
            found.update(dict(stretch.rows))
            after = stretch.reached
            if stretch.ended or self._scope is None or _now() >= deadline:
                return FamilyCounts(dict(found), more=not stretch.ended)

    async def failed(self, job_id: int, limit: int) -> list[Job]:
        """Return the first children of a job that have failed, among those that are counted."""
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
        """Look at the next children behind a jobID."""
        given = {"jobID": job_id, "after": after, "stretch": length, "visible": filter_of(self._scope)}
        page = await self._reader.view(statement, given, limit, scans=self._scope is not None)
        highest, looked = page.rows[0][:_FOUND_FROM]
        rows = [row[_FOUND_FROM:] for row in page.rows if row[_FOUND_FROM] is not None]
        return _Stretch(rows, after if highest is None else highest, looked < length, page.more)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _deadline(within_s: float) -> float:
    return _now() + within_s
