"""Wakes the dispatcher when it is time; a timer that is early enough is kept, since to set one costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """One timer of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """Call ``wake`` when it is time."""
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0  # in the loop's seconds

    def set(self, seconds: float) -> None:
        """Wake after some seconds at the latest."""
        now = self._loop.time()
        if now < self._at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = now + seconds
        self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._at = 0.0  # a loop may fire a little early: this timer is gone and cannot be kept
        self._wake()

    def cancel(self) -> None:
        """Wake no more."""
        if self._timer is not None:
            self._timer.cancel()
