"""Progress of a job's children as a bar, with the first failed ones."""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.job.rows import Job
from bedrockjobs.pages.site import Site
from bedrockjobs.pages.words import number
from bedrockjobs.views.families import FamilyCounts

FAILED_SHOWN = 20
"""Failed children listed above the others."""

_PARTS = (
    ("done", "success", ("FINISHED",)),
    ("failed", "FAILED", ("FAILED",)),
    ("running", "RUNNING", ("RUNNING", "RUNQUEUED")),
    ("waiting", "QUEUED", ("QUEUED", "PAUSED")),
    ("cancelled", "CANCELLED", ("CANCELLED",)),
)
"""Segments of the bar from left to right: label, mark and states."""


class Part(NamedTuple):
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
    """Whether the count is a lower bound."""
    parts: list[Part]
    """The segments that are not empty."""
    words: str
    """A text version: ``12 children: 9 done, 1 failed, 2 waiting``."""
    failed: list[Job]
    """The first failed children, without their data."""


async def family(site: Site, job_id: int) -> Family | None:
    """Return the progress of a job's children; None if it has none."""
    counts = await site.views.families.counts(job_id)
    if not counts.states:
        return None
    failed = await site.views.families.failed(job_id, FAILED_SHOWN) if "FAILED" in counts.states else []
    return told(counts, [child._replace(data="") for child in failed])


def told(counted: FamilyCounts, failed: list[Job]) -> Family:
    """Return the progress bar for counts by state."""
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
