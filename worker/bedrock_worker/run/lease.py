"""How long a run is certainly ours: counted from the sending of the last acknowledged heartbeat.

The command gets TERM and then KILL before the lease expires, so that the server never gives a job away that
still runs here.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from bedrockjobs.base.config import HEARTBEAT_S, LEASE_S_DEFAULT

TERM_BEFORE_S = 10.0
"""Time before the end of the lease at which the command gets TERM; a third of a lease under 30 s."""

KILL_BEFORE_S = 5.0
"""Time before the end of the lease at which it gets KILL; a sixth of a lease under 30 s."""

BEATS_PER_LEASE = LEASE_S_DEFAULT / HEARTBEAT_S
"""Heartbeats within a lease that is too short for one every ``HEARTBEAT_S``."""

End = Callable[[signal.Signals], None]


class Lease:
    """The lease of one run."""

    def __init__(self, seconds: int | None, end: End) -> None:
        """Create a lease of some seconds (45 if None or 0); ``end`` is called with TERM, then with KILL."""
        self.seconds = float(seconds or LEASE_S_DEFAULT)
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    @property
    def beat_s(self) -> float:
        """Return the interval of heartbeats that keeps it."""
        return min(float(HEARTBEAT_S), self.seconds / BEATS_PER_LEASE)

    @property
    def kill_s(self) -> float:
        """Return the seconds after which the command is killed."""
        return self.seconds - min(KILL_BEFORE_S, self.seconds / 6)

    def renew(self, sent_at: float) -> None:
        """Restart the lease at a time of the event loop's clock."""
        self.suspend()
        term_at = sent_at + self.seconds - min(TERM_BEFORE_S, self.seconds / 3)
        self._timer = asyncio.get_running_loop().call_at(term_at, self._term, sent_at + self.kill_s)

    def suspend(self) -> None:
        """Suspend the lease: the run is over, or its server does not use leases."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _term(self, kill_at: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(kill_at, self._end, signal.SIGKILL)
        self._end(signal.SIGTERM)
