"""Outcomes of a schedule's runs: by tick, and since when it has been failing.

Pure functions of runs, given as (scheduled time, cause, status), newest first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from bedrockjobs.base.vocabulary import FAILED_STATUSES

RUNS_LOOKED_AT = 1_000
"""Newest runs of a schedule that are examined: a few milliseconds."""

Try = tuple[str, str, str]

UNDECIDED = frozenset({"running", "returned", "snoozed", "terminated", "killed"})
"""Statuses that count neither as success nor as failure; the last two are requested by a person."""


class ScheduleHealth(NamedTuple):
    """Whether a schedule is failing."""

    failing_since: str = ""
    """Scheduled time of the first failed run since the last success; empty if the last run did not fail."""
    has_succeeded: bool = True


def standing_of(tries: Iterable[Try]) -> ScheduleHealth:
    """Return since when a schedule has been failing, and whether any run succeeded."""
    since = ""
    for meant_for, _, status in tries:
        if status in UNDECIDED:
            continue
        if status not in FAILED_STATUSES:
            return ScheduleHealth(since)
        since = meant_for[:19]
    return ScheduleHealth(since, has_succeeded=not since)


class TickOutcomes:
    """Outcomes of a schedule's ticks, each by its newest run."""

    def __init__(self, tries: Iterable[Try]) -> None:
        """Index the runs of one schedule."""
        newest: dict[str, str] = {}
        for meant_for, cause, status in tries:
            if cause != "manual" and status not in ("returned", "snoozed"):
                newest.setdefault(meant_for[:19], status)
        self._ticks = sorted(newest)
        self._statuses = [newest[tick] for tick in self._ticks]
        failed = (status in FAILED_STATUSES for status in self._statuses)
        self._failed: Sequence[int] = [0, *accumulate(failed)]

    def of(self, first: str, last: str) -> tuple[str, int]:
        """Return the status of the last run in a range of ticks, or empty, and the number of failures."""
        low, high = bisect_left(self._ticks, first), bisect_right(self._ticks, last)
        return (self._statuses[high - 1] if high > low else "", self._failed[high] - self._failed[low])
