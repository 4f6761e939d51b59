"""How the runs of a schedule ended: for each of its ticks, and since when it fails.

Pure functions of runs, which are for when each was meant, its cause and its status, the newest first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from bedrockjobs.base.statuses import FAILED_STATUSES

RUNS_LOOKED_AT = 1_000
"""The newest runs of a schedule that are looked at for those that failed: some milliseconds."""

Try = tuple[str, str, str]

UNDECIDED = frozenset({"running", "returned", "snoozed", "terminated", "killed"})
"""Statuses that say neither that a run succeeded nor that it failed; a person wanted the last two."""


class Standing(NamedTuple):
    """How a schedule stands."""

    failing_since: str = ""
    """For when the first run was meant that failed since the last success; empty if the last one did not."""
    has_succeeded: bool = True


def standing_of(tries: Iterable[Try]) -> Standing:
    """Return since when a schedule fails, and whether any of the runs succeeded."""
    since = ""
    for meant_for, _, status in tries:
        if status in UNDECIDED:
            continue
        if status not in FAILED_STATUSES:
            return Standing(since)
        since = meant_for[:19]
    return Standing(since, has_succeeded=not since)


class Ends:
    """How the ticks of a schedule ended, by the newest run of each."""

    def __init__(self, tries: Iterable[Try]) -> None:
        """Read the runs of one schedule."""
        newest: dict[str, str] = {}
        for meant_for, cause, status in tries:
            if cause != "manual" and status not in ("returned", "snoozed"):
                newest.setdefault(meant_for[:19], status)
        self._ticks = sorted(newest)
        self._statuses = [newest[tick] for tick in self._ticks]
        failed = (status in FAILED_STATUSES for status in self._statuses)
        self._failed: Sequence[int] = [0, *accumulate(failed)]

    def of(self, first: str, last: str) -> tuple[str, int]:
        """Return the status of the last run for some ticks, empty if none is kept, and how many failed."""
        low, high = bisect_left(self._ticks, first), bisect_right(self._ticks, last)
        return (self._statuses[high - 1] if high > low else "", self._failed[high] - self._failed[low])
