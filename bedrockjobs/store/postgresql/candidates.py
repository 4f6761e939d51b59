"""The queued jobs among those that a unit knows, by who is next.

An entry may be out of date: it is checked when it comes to the top. No statements, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest

Order = tuple[int, str, int]
"""How takes sort jobs: priority, highest first, then nextRun, then jobID."""

_Group = tuple[int, str]
"""Priority and lane."""


def order_of(job: Job) -> Order:
    """Return where a job stands among those that are due."""
    return -job.priority, job.next_run, job.job_id


class Candidates:
    """Queued jobs by name, and by priority and lane, each group in one heap."""

    def __init__(self) -> None:
        """Begin with none."""
        self._names: dict[str, dict[_Group, list[tuple[str, int]]]] = {}

    def clear(self) -> None:
        """Begin anew with none."""
        self._names = {}

    def offer(self, job: Job) -> None:
        """Note a job that was read or written, if it is queued."""
        if job.queued:
            groups = self._names.setdefault(job.name, {})
            heappush(groups.setdefault((job.priority, job.lane), []), (job.next_run, job.job_id))

    def first(
        self,
        request: TakeRequest,
        now: str,
        job: Callable[[int], Job | None],
        is_open: Callable[[Job], bool],
    ) -> Job | None:
        """Return the first that is due and asked for; ``job`` returns a row, ``is_open`` whether it may be
        taken where only its name and its lane count."""
        best: Job | None = None
        exact = request.names.exact
        names = exact & self._names.keys() if exact else [n for n in self._names if request.names.match(n)]
        for name in names:
            for group, heap in self._names[name].items():
                found = _first_sound(heap, (name, *group), job)
                if (
                    found is not None
                    and found.next_run <= now
                    and (best is None or order_of(found) < order_of(best))
                    and request.fits(found)
                    and is_open(found)
                ):
                    best = found
        return best


def _first_sound(
    heap: list[tuple[str, int]], place: tuple[str, int, str], job: Callable[[int], Job | None]
) -> Job | None:
    """Return the job on top of a heap; entries that are out of date are dropped."""
    while heap:
        next_run, job_id = heap[0]
        found = job(job_id)
        if (
            found is not None
            and found.queued
            and found.next_run == next_run
            and (found.name, found.priority, found.lane) == place
        ):
            return found
        heappop(heap)
    return None
