"""Whether a take that found nothing is worth another look, in the next unit: others may have been faster."""

from __future__ import annotations

from datetime import timedelta

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.wire import stamp_ms
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.postgresql.takes import Takes

CLOCKS_APART = timedelta(milliseconds=20)
"""How far the clocks of two servers may be apart, each of which follows the database's."""


class PassedOver:
    """What one unit knows of that."""

    def __init__(self, takes: Takes, clock: Clock) -> None:
        """Look with ``takes`` for what is due by ``clock``."""
        self._takes = takes
        self._clock = clock
        self._present = ""

    def forget(self) -> None:
        """Another unit begins."""
        self._present = ""

    def tell(self, request: TakeRequest, now: str) -> bool:
        """Tell whether a job is due that another unit has, or that became due since this one began.

        What was due at its moment may be taken by others; what they left instead is stamped later than that.
        """
        if not self._present:
            self._present = max(now, stamp_ms(self._clock.now() + CLOCKS_APART))
        return self._takes.passed_over(request, self._present)
