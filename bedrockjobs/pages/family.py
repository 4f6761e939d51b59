"""How far the children of a job are: a bar of those that are done, failed, run and wait, and the failed ones.

It knows no template.
"""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.job.rows import Job
from bedrockjobs.pages.site import Site
from bedrockjobs.pages.words import number
from bedrockjobs.views.families import FamilyCounts

FAILED_SHOWN = 20
"""Children that failed which stand above all others."""

_PARTS = (
    ("done", "success", ("FINISHED",)),
    ("failed", "FAILED", ("FAILED",)),
    ("running", "RUNNING", ("RUNNING", "RUNQUEUED")),
    ("waiting", "QUEUED", ("QUEUED", "PAUSED")),
    ("cancelled", "CANCELLED", ("CANCELLED",)),
)
"""The parts of the bar from left to right: what each is called, the mark it has, and its states."""


class Part(NamedTuple):
    """A part of the bar: what it is called, its mark, how many, and where it lies, in percent of the bar."""

    called: str
    mark: str
    amount: int
    begins: float
    width: float


class Family(NamedTuple):
    """The children of a job."""

    total: int
    more: bool
    """Whether there are more than were counted."""
    parts: list[Part]
    """Those that are not empty."""
    words: str
    """The bar in words: ``12 children: 9 done, 1 failed, 2 waiting``."""
    failed: list[Job]
    """The first that have failed, without their data."""


async def family(site: Site, job_id: int) -> Family | None:
    """Return how far a job's children are; None where it has none."""
    counts = await site.views.families.counts(job_id)
    if not counts.states:
        return None
    failed = await site.views.families.failed(job_id, FAILED_SHOWN) if "FAILED" in counts.states else []
    return told(counts, [child._replace(data="") for child in failed])


def told(counted: FamilyCounts, failed: list[Job]) -> Family:
    """Return a family of which there are so many in each state."""
    counts, more = counted
    total = sum(counts.values())
    parts: list[Part] = []
    begins = 0.0
    for called, mark, states in _PARTS:
        if count := sum(counts.get(state, 0) for state in states):
            parts.append(Part(called, mark, count, begins, 100 * count / total))
            begins += 100 * count / total
    words = ", ".join(f"{number(part.amount)} {part.called}" for part in parts)
    noun = "child" if total == 1 else "children"
    return Family(total, more, parts, f"{number(total)}{'+' if more else ''} {noun}: {words}", failed)
