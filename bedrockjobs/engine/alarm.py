"""A timer of the event loop that rings once, at the earliest moment it was set to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls something after some time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], object]) -> None:
        """Call ``ring``, once it is set."""
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0  # when it rings, in the loop's seconds

    def set(self, seconds: float) -> None:
        """Ring after some seconds at the latest; a time that is early enough is kept."""
        now = self._loop.time()
        if now < self._at <= now + seconds:
            return
        self.cancel()
        self._at = now + seconds
        self._timer = self._loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()

    def forget(self) -> None:
        """Note that who was to be woken is awake: a loop may ring a little early, its time is not kept."""
        self._at = 0.0
