"""What was done in each minute, counted in memory and written once a minute, for charts.

A chart may miss the last minute before a crash; nothing else depends on it. It knows no rows and no SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bedrockjobs.base.wire import moment_of
from bedrockjobs.engine.events import JobFailed, JobLost, JobRetried, JobsCreated, JobsFinished, JobsTaken


@dataclass(slots=True)
class Minute:
    """The counts of one minute, in the order of the table ``stats``."""

    minute: str = ""
    """``YYYY-MM-DD HH:MM:00``; empty before anything happened."""
    created: int = 0
    taken: int = 0
    finished: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    waits: int = 0
    """Takes of which it was measured how long the job had been due: one in each transaction."""
    wait_ms: int = 0
    """How long these had been due, together."""

    def counts(self) -> tuple[int, ...]:
        """Return the counts alone."""
        return tuple(getattr(self, field.name) for field in fields(self)[1:])


JOBS_DONE = ("created", "taken", "finished", "failed", "retried", "lost")
"""The first counts of a minute: what was done with jobs."""


class Stats:
    """The minute that is not written yet."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.open = Minute()
        self._before = self.open.counts()

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what is counted of each event."""
        return {
            JobsCreated: self._created,
            JobsTaken: self._taken,
            JobsFinished: self._finished,
            JobFailed: self._failed,
            JobRetried: self._retried,
            JobLost: self._lost,
        }

    def _created(self, event: JobsCreated) -> None:
        self.open.created += event.jobs

    def _finished(self, event: JobsFinished) -> None:
        self.open.finished += event.jobs

    def _failed(self, _: JobFailed) -> None:
        self.open.failed += 1

    def _retried(self, _: JobRetried) -> None:
        self.open.retried += 1

    def _lost(self, _: JobLost) -> None:
        self.open.lost += 1

    def _taken(self, event: JobsTaken) -> None:
        """Count jobs, and how long the job of one take of a commit had been due."""
        minute = self.open
        minute.taken += event.jobs
        if event.first:
            minute.waits += 1
            wait_s = (moment_of(event.at) - moment_of(event.due)).total_seconds()
            minute.wait_ms += max(int(wait_s * 1_000), 0)

    def closing(self, minute: str) -> tuple[int, ...] | None:
        """Return the counts to be written as ``minute`` begins; None where nothing was counted."""
        counts = self.open.counts()
        return counts if self.open.minute != minute and any(counts) else None

    def begin(self, minute: str) -> None:
        """Begin a minute."""
        self._before = self._totals()
        self.open = Minute(minute)

    def since_start(self) -> dict[str, int]:
        """Return the counts since the start by name, without those of waits."""
        return dict(zip(JOBS_DONE, self._totals(), strict=False))

    def _totals(self) -> tuple[int, ...]:
        return tuple(one + other for one, other in zip(self._before, self.open.counts(), strict=True))
