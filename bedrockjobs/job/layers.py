"""The shape of a workflow for people: layers from the first jobs to the last, and the critical path."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

ENDED_STATES = frozenset({"FINISHED", "FAILED", "CANCELLED"})
"""States in which a workflow keeps a job that has ended."""


class TimedJob(NamedTuple):
    """A job of a workflow, for the critical path; ``started`` and ``ended`` are timestamps or empty."""

    after: Collection[str]
    waits: int
    state: str
    started: str
    ended: str


def layers(after: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Return the layer of each job by ref: 0, or one more than the highest layer among the jobs before it.

    ``after`` has, for each ref, the refs of the jobs before it. Refs that are not among its keys, because the
    token may not see these jobs, count as ended.
    """
    waits = {ref: sum(before in after for before in refs) for ref, refs in after.items()}
    behind: dict[str, list[str]] = {}
    for ref, refs in after.items():
        for before in refs:
            behind.setdefault(before, []).append(ref)
    found = dict.fromkeys(after, 0)
    ready = deque(ref for ref, count in waits.items() if not count)
    while ready:
        ref = ready.popleft()
        for each in behind.get(ref, ()):
            found[each] = max(found[each], found[ref] + 1)
            waits[each] -= 1
            if not waits[each]:
                ready.append(each)
    return found


def critical_path(steps: Mapping[str, TimedJob], now: str) -> list[str]:
    """Return the refs of the chain of jobs that determined when the workflow ended, first to last.

    The chain is followed backwards: from the job that ended last to whichever job before it ended last, and
    so on. A job that still runs counts as ending ``now``. Jobs that wait, and jobs that were cancelled before
    they began, are not part of it.
    """

    def last(refs: Iterable[str]) -> str:
        taking = [ref for ref in refs if ref in steps and _takes_time(steps[ref])]
        return max(taking, key=lambda ref: steps[ref].ended or now, default="")

    path: list[str] = []
    ref = last(steps)
    while ref:
        path.append(ref)
        ref = last(steps[ref].after)
    return path[::-1]


def _takes_time(step: TimedJob) -> bool:
    return bool(step.started) or (step.state not in ENDED_STATES and not step.waits)
