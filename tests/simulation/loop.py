"""An event loop that skips idle time, and a clock that follows it.

Callbacks of a killed server are dropped: each callback belongs to the life that scheduled it.
"""

from __future__ import annotations

import asyncio
from asyncio import base_events
from collections.abc import Callable
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

BEGINNING = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
"""The date of the first moment: the night in which many clocks of Europe are put back."""


class Mortal:
    """A life that may be killed, together with all callbacks that it has scheduled."""

    alive = True

    def look(self) -> None:
        """Check after each callback whether the server is still alive."""


LIFE: ContextVar[Mortal | None] = ContextVar("life", default=None)
"""The life to which the current callback belongs."""


class VirtualLoop(base_events.BaseEventLoop):
    """An asyncio loop without operating system: waiting only advances its time."""

    def __init__(self) -> None:
        """Begin at second 0."""
        super().__init__()
        self._now = 0.0
        self._selector = self  # which has nothing but time to offer
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the time to the next timer."""
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self._now += timeout
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back in the next turn, unless the present life is over then."""
        return super().call_soon(_mortal(callback, context), *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back in the next turn: there is no other thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a time, unless the present life is over then."""
        return super().call_at(when, _mortal(callback, context), *args, context=context)


def _mortal(callback: Callable[..., object], context: Context | None) -> Callable[..., object]:
    life = LIFE.get() if context is None else context.get(LIFE)
    if life is None:
        return callback

    def call(*args: Any) -> None:
        if life.alive:
            callback(*args)
            life.look()

    return call


class VirtualClock:
    """The settable clock of a machine on such a loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Follow a loop."""
        self._loop = loop
        self.ahead = timedelta()
        """By how much it was set forward."""

    def now(self) -> datetime:
        """Return the date."""
        return BEGINNING + timedelta(seconds=self._loop.time()) + self.ahead

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return self._loop.time()

    def ahead_s(self) -> float:
        """Return by how much the wall clock is ahead of the monotonic one."""
        return self.ahead.total_seconds()
