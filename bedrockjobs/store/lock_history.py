"""The last time each lock was held, which explains the missed ticks of a schedule that waited for it.

It is kept in memory only: after a restart, ticks from before count as missed for lack of a worker. The
present holders are read from the database.
"""

from __future__ import annotations

from collections import OrderedDict

from bedrockjobs.base.config import LOCKS_REMEMBERED_MAX
from bedrockjobs.store.base import Held


class LockHistory:
    """The last period in which each lock was held, for a limited number of locks."""

    def __init__(self) -> None:
        """Begin empty."""
        self._last: OrderedDict[str, Held] = OrderedDict()  # popping the oldest item of a plain dict is O(n)

    def hold(self, lock: str, since: str) -> None:
        """Record that a lock is held since ``since``, in whole seconds."""
        known = self._last.get(lock)
        if known is None or (known.until and known.until < since):
            known = Held(since)
        self._last[lock] = known._replace(until="")
        self._last.move_to_end(lock)
        if len(self._last) > LOCKS_REMEMBERED_MAX:
            self._last.popitem(last=False)

    def release(self, lock: str, until: str) -> None:
        """Record that a lock was released."""
        known = self._last.get(lock)
        if known is not None:
            self._last[lock] = known._replace(until=until)

    def last(self, lock: str) -> Held | None:
        """Return when a lock was held last, or None if unknown."""
        return self._last.get(lock)
