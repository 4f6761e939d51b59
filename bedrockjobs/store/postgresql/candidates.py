"""The queued jobs among those that a unit knows, by who is next.

An entry may be out of date: it is checked when it comes to the top. No statements, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest

Order = tuple[int, str, int]
"""How takes sort jobs: priority, highest first, then nextRun, then jobID."""

EVERYTHING: Order = (1, "", 0)
"""Behind the last job there may be."""

NOWHERE: Order = (-max(PRIORITIES) - 1, "", 0)
"""Before the first job there may be."""

_Classes = dict[int, list[tuple[str, int]]]
"""NextRun and jobID of queued jobs, a heap for each priority."""


def order_of(job: Job) -> Order:
    """Return where a job stands among those that are due."""
    return -job.priority, job.next_run, job.job_id


class Candidates:
    """Queued jobs by name, and by the patterns that they were asked for with."""

    def __init__(self) -> None:
        """Begin with none."""
        self._names: dict[str, _Classes] = {}
        self._patterns: dict[Names, _Classes] = {}

    def clear(self) -> None:
        """Begin anew with none."""
        self._names, self._patterns = {}, {}

    def offer(self, job: Job) -> None:
        """Note a job that was read or written, if it is queued."""
        if job.queued:
            _push(self._names.setdefault(job.name, {}), job)
            for names, classes in self._patterns.items():
                if names.match(job.name):
                    _push(classes, job)

    def first(
        self,
        request: TakeRequest,
        now: str,
        job: Callable[[int], Job | None],
        is_open: Callable[[Job], bool],
    ) -> Job | None:
        """Return the first that is due and asked for; ``job`` returns a row, ``is_open`` whether it may be
        taken where only its name and its lane count."""
        names = request.names
        if not names.exact:
            return _first_of(self._matching(names), request, now, job, is_open)
        if names.single is not None:  # nearly all of them
            classes = self._names.get(names.single)
            return None if classes is None else _first_of(classes, request, now, job, is_open)
        known = names.exact & self._names.keys()
        firsts = (_first_of(self._names[name], request, now, job, is_open) for name in known)
        return min((each for each in firsts if each is not None), key=order_of, default=None)

    def _matching(self, names: Names) -> _Classes:
        """Return all that some patterns match."""
        found = self._patterns.get(names)
        if found is None:
            found = self._patterns[names] = {}
            for name, classes in self._names.items():
                if names.match(name):
                    for priority, heap in classes.items():
                        found.setdefault(priority, []).extend(heap)
            for heap in found.values():
                heapify(heap)
        return found


def _first_of(
    classes: _Classes,
    request: TakeRequest,
    now: str,
    job: Callable[[int], Job | None],
    is_open: Callable[[Job], bool],
) -> Job | None:
    """Return the first of some jobs, see ``Candidates.first``."""
    for priority in PRIORITIES:
        heap, closed, found = classes.get(priority), [], None
        while heap and heap[0][0] <= now and found is None:
            next_run, job_id = heap[0]
            known = job(job_id)
            if known is None or not known.queued or order_of(known) != (-priority, next_run, job_id):
                heappop(heap)
            elif request.fits(known) and is_open(known):
                found = known
            else:
                closed.append(heappop(heap))
        if heap is not None:
            for entry in closed:
                heappush(heap, entry)
        if found is not None:
            return found
    return None


def _push(classes: _Classes, job: Job) -> None:
    heappush(classes.setdefault(job.priority, []), (job.next_run, job.job_id))
