"""Whether the database can be written at the moment, as far as the transactions tell: for ``/readyz``.

It looks whether a full disk has room again. It knows no SQL and nothing of who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedrockjobs.base.clock import Clock
from bedrockjobs.engine.events import HoldChanged
from bedrockjobs.job.hold import RELEASE, hold_words
from bedrockjobs.store.base import Engine
from bedrockjobs.store.faults import StoreBroken

ROOM_LOOK_S = 0.5
"""Time between two looks whether a disk that was full has room again."""

BUSY_LOOK_S = 0.02
"""Time between two tries to begin while another process keeps the database locked."""

TROUBLE_S = 10.0
"""Time that a failed transaction counts if none is written after it: somebody must try again one day."""


class Health:
    """What is wrong with the database of one server."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Know of nothing that is wrong with ``engine``, unless its disk is full."""
        self._engine = engine
        self._clock = clock
        self._trouble = ""
        self._until = 0.0
        self._look_from = 0.0
        self.hold = ""
        """What a person reads while the queue is held after a restore; it takes commands even so."""

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what it does with each event that it hears of."""
        return {HoldChanged: self._hold_changed}

    def _hold_changed(self, event: HoldChanged) -> None:
        hold = event.hold and event.hold._replace(by="", reason="")  # anybody may read it
        self.hold = "" if hold is None else f"{hold_words(hold)}; {RELEASE}"

    @property
    def trouble(self) -> str:
        """Return what is wrong, as a person reads it; empty where nothing is."""
        if self._clock.monotonic() < self._until:
            return self._trouble
        return "disk full: no jobs are created until there is room" if self._engine.tight else ""

    def failed(self, error: Exception) -> None:
        """Note that a transaction failed; for good where the server must end."""
        self._trouble = f"{getattr(error, 'reason', 'failure').lower()}: {error}"
        self._until = self._clock.monotonic() + TROUBLE_S
        if isinstance(error, StoreBroken):
            self._until = float("inf")

    def reached(self) -> None:
        """Note that a database which was away is there again."""
        self.committed(wrote=True)

    def committed(self, *, wrote: bool) -> None:
        """Note that a transaction is done; ``wrote`` says that the disk took it."""
        if wrote and self._until != float("inf"):
            self._until = 0.0
        if self._engine.tight:
            self.look()

    def look(self) -> None:
        """Find out whether a full disk has room again, where it is time for that; none may be open."""
        if self._engine.tight and self._clock.monotonic() >= self._look_from:
            self._look_from = self._clock.monotonic() + ROOM_LOOK_S
            self._engine.look_for_room()
