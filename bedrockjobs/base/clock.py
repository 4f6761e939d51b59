"""The one source of time. Nothing else in the project asks the operating system what time it is.

A moment is an aware UTC datetime; the database and the wire carry it as text (``wire.stamp``).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the server needs to know of time."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow, for measuring how long something took or may take."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime) -> None:
        """Start at ``start``, an aware datetime."""
        self._start = self._now = start

    def now(self) -> datetime:
        """Return the moment the clock was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds the clock was moved since its start."""
        return (self._now - self._start).total_seconds()

    def move_to(self, moment: datetime) -> None:
        """Move the clock to a moment."""
        self._now = moment

    def advance(self, seconds: float) -> None:
        """Move the clock; a negative number moves it back, as a machine's clock may."""
        self._now += timedelta(seconds=seconds)


class StandingClock(ManualClock):
    """The clock of ``serve --test-clock``: its date stands still until it is moved, waits pass as ever."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()
