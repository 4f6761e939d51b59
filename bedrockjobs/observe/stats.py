"""What was done in each minute, counted in memory and written once a minute, for charts.

A chart may miss the last minute before a crash; nothing else depends on it. It knows no rows and no SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from bedrockjobs.observe.measurements import Measurements


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
        self.measurements = Measurements()
        """What is measured since the start, for `/metrics`."""
        self._before = self.open.counts()

    def begin(self, minute: str) -> None:
        """Begin a minute."""
        self._before = self._totals()
        self.open = Minute(minute)

    def since_start(self) -> dict[str, int]:
        """Return the counts since the start by name, without those of waits."""
        return dict(zip(JOBS_DONE, self._totals(), strict=False))

    def _totals(self) -> tuple[int, ...]:
        return tuple(one + other for one, other in zip(self._before, self.open.counts(), strict=True))
