"""What was done in each minute, counted in memory and written once a minute, for charts.

A chart may miss the last minute before a crash; nothing else depends on it. It knows no rows and no SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


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


class Tally:
    """The minute that is not written yet."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.open = Minute()

    def begin(self, minute: str) -> None:
        """Begin a minute."""
        self.open = Minute(minute)
