"""From when to when each lock was held last: why the ticks of a schedule that waited for it were missed.

It lives in memory and follows from no table: after a restart a tick that passed before it counts as missed
for want of a worker. What the present holders tell is read anew with them. No SQL here.
"""

from __future__ import annotations

from collections import OrderedDict

from bedrockjobs.base.config import LOCKS_REMEMBERED_MAX
from bedrockjobs.store.base import Held


class LockHistory:
    """The last stretch of each lock; of very many locks, those that were held long ago are forgotten."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._last: OrderedDict[str, Held] = OrderedDict()  # of a dict, to find the first is a long way

    def hold(self, lock: str, since: str) -> None:
        """Note that a lock is held, by somebody who took it at ``since``, in whole seconds."""
        known = self._last.get(lock)
        if known is None or (known.until and known.until < since):
            known = Held(since)
        self._last[lock] = known._replace(until="")
        self._last.move_to_end(lock)
        if len(self._last) > LOCKS_REMEMBERED_MAX:
            self._last.popitem(last=False)

    def release(self, lock: str, until: str) -> None:
        """Note that nobody holds a lock any more."""
        known = self._last.get(lock)
        if known is not None:
            self._last[lock] = known._replace(until=until)

    def last(self, lock: str) -> Held | None:
        """Return when a lock was held last, None where nobody knows."""
        return self._last.get(lock)
