"""How much a worker takes on while its machine is busy (``--max-load``).

It is asked now and then, and neither starts, waits for nor stops anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bedrockjobs.base.clock import Clock, SystemClock

GROW_S = 5.0
"""Time after which one more slot is tried while the load is below the limit."""

SHRINK_S = 20.0
"""Time after a halving before the next: the load is a mean over a minute and shows an effect late."""

SLOTS_MIN = 1
"""Slots that stay under any load: else a load that is not ours would stop the work for ever."""


def load_per_cpu() -> float:
    """Return the mean number of runnable processes of the last minute, per CPU that we may use."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Throttle:
    """How many slots may be in use: one more every few seconds while there is room, half when there is none.

    It begins with one slot, so that many workers that start on a busy machine do not all fill up at once.
    """

    def __init__(
        self,
        slots_max: int,
        load_max: float,
        *,
        load: Callable[[], float] = load_per_cpu,
        clock: Clock | None = None,
    ) -> None:
        """Allow up to ``slots_max`` while the load per CPU is at most ``load_max``."""
        self._slots_max = slots_max
        self._load_max = load_max
        self._load = load
        self._clock = clock or SystemClock()
        self._slots = min(SLOTS_MIN, slots_max)
        self._grown_at = self._clock.monotonic()
        self._shrunk_at = -SHRINK_S + self._grown_at

    def slots(self) -> int:
        """Return how many slots may be in use now; cheap enough to be asked before each question for jobs."""
        now = self._clock.monotonic()
        if now - self._grown_at < GROW_S:
            return self._slots
        if self._load() > self._load_max:
            self._grown_at = now
            if now - self._shrunk_at >= SHRINK_S:
                self._slots, self._shrunk_at = max(SLOTS_MIN, self._slots // 2), now
        else:
            steps = int((now - self._grown_at) // GROW_S)
            self._slots = min(self._slots_max, self._slots + steps)
            self._grown_at += steps * GROW_S
        return self._slots

    def next_s(self) -> float:
        """Return the seconds until ``slots`` may answer otherwise, for a worker that waits for it."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())
