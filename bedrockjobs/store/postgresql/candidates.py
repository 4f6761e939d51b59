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

        def first_of(classes: _Classes) -> Job | None:
            for priority in PRIORITIES:
                if (heap := classes.get(priority)) and (found := _first_due(heap, priority)) is not None:
                    return found
            return None

        def _first_due(heap: list[tuple[str, int]], priority: int) -> Job | None:
            closed, found = [], None
            while heap and heap[0][0] <= now and found is None:
                next_run, job_id = heap[0]
                known = job(job_id)
                if known is None or not known.queued or order_of(known) != (-priority, next_run, job_id):
                    heappop(heap)
                elif request.fits(known) and is_open(known):
                    found = known
                else:
                    closed.append(heappop(heap))
            for entry in closed:
                heappush(heap, entry)
            return found

        exact = request.names.exact
        if not exact:
            return first_of(self._matching(request.names))
        firsts = (first_of(self._names[name]) for name in exact & self._names.keys())
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


def _push(classes: _Classes, job: Job) -> None:
    heappush(classes.setdefault(job.priority, []), (job.next_run, job.job_id))
