"""Asking a server again and again with waiting requests, without ever spinning.

A server that waits is asked again at once; one that answers at once with nothing (it is ending) is given a
pause, and a limited number of chances.
"""

from __future__ import annotations

import time

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.cli.session import UNAVAILABLE, Failure

WAIT_MS = 30_000
"""Time that one request of somebody who follows waits: below what most proxies and firewalls cut."""

WAITED_LEAST_S = 1.0
"""An empty answer that came sooner shows that the server did not wait."""

HASTY_MAX = 30
"""Empty answers in a row that came too soon, after which the server counts as unavailable."""

PAUSE_S = 1.0
"""Pause after one of them."""


class Pace:
    """Keeps the pace of one follower."""

    def __init__(self) -> None:
        """Begin with full patience."""
        self._clock = SystemClock()
        self._asked = 0.0
        self._hasty = 0

    def asking(self) -> dict[str, object]:
        """Return the parameters of a waiting request that is about to be sent."""
        self._asked = self._clock.monotonic()
        return {"connection": "wait", "timeout": WAIT_MS}

    def answered(self, *, something: bool) -> None:
        """Take an answer in; pauses after an empty one that came too soon, and raises Failure after many."""
        if something or self._clock.monotonic() - self._asked >= WAITED_LEAST_S:
            self._hasty = 0
            return
        self._hasty += 1
        if self._hasty >= HASTY_MAX:
            raise Failure("the server does not wait", UNAVAILABLE)
        time.sleep(PAUSE_S)
