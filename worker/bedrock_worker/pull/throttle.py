"""Reduces the number of slots while the machine is busy (``--max-load``), by polling."""

from __future__ import annotations

import os
from collections.abc import Callable

from bedrockjobs.base.clock import Clock, SystemClock

GROW_S = 5.0
"""Interval after which one more slot is allowed while the load is below the limit."""

SHRINK_S = 20.0
"""Minimum interval of halvings: the load is a one-minute average and reacts late."""

SLOTS_MIN = 1
"""Slots allowed under any load; otherwise foreign load could stop the work entirely."""


def load_per_cpu() -> float:
    """Return the one-minute load average per CPU available to us."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Throttle:
    """The number of usable slots: one more every few seconds below the limit, half of them above it.

    It starts with one slot, so that many workers starting on a busy machine do not fill up at once.
    """

    def __init__(
        self,
        slots_max: int,
        load_max: float,
        *,
        load: Callable[[], float] = load_per_cpu,
        clock: Clock | None = None,
    ) -> None:
        """Allow up to ``slots_max`` slots while the load per CPU is at most ``load_max``."""
        self._slots_max = slots_max
        self._load_max = load_max
        self._load = load
        self._clock = clock or SystemClock()
        self._slots = min(SLOTS_MIN, slots_max)
        self._grown_at = self._clock.monotonic()
        self._shrunk_at = -SHRINK_S + self._grown_at

    def slots(self) -> int:
        """Return the number of usable slots; cheap."""
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
        """Return the seconds until ``slots`` may change."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())
