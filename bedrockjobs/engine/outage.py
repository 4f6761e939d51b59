"""Whether the database can be written at the moment, as far as the transactions tell: for ``/readyz``.

It looks whether a full disk has room again. It knows no SQL and nothing of who asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from bedrockjobs.base.background import TimeSlices
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import PG_LOOK_S, PG_LOOK_S_MAX
from bedrockjobs.engine.events import HoldChanged
from bedrockjobs.engine.submission import Submission
from bedrockjobs.job.quarantine import RELEASE, hold_words
from bedrockjobs.store.base import Engine, StoreBroken, StoreError

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
        self.hold: str | None = None
        """What a person reads while the queue is held after a restore; it takes commands even so. None:
        nobody has looked yet."""

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


# While the database is away: it is looked for, and no command waits for it longer than it may.
#
# Those who wait for a job stay. It knows neither handlers nor SQL.


log = logging.getLogger(__name__)

Step = Callable[[], object]
"""What follows some work."""

TICK_S = 0.1
"""Time between two looks who has waited long enough: a hundredth of ``command_s`` by default."""

LOOK_SHARE = 0.05
"""The part of the time that a database has been away after which it is looked for again."""


class Outage:
    """What is known of a database that is away, and who has waited since when."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        command_s: float,
        *,
        gathered: deque[Submission],
        health: Health,
        refuse: Callable[[list[Submission], Exception], object],
        tick: Callable[[], object],
        over: Callable[[], object],
    ) -> None:
        """Look for ``engine`` while commands are ``gathered``, and tell ``health``.

        ``refuse`` gets commands that have waited ``command_s``, and why.
        ``tick`` is called now and then, ``over`` when the database is there again.
        """
        self._engine = engine
        self._clock = clock
        self._command_s = command_s
        self._gathered = gathered
        self._health, self._refuse, self._tick, self._over = health, refuse, tick, over
        self._loop = asyncio.get_running_loop()
        self._slices = TimeSlices[Step]()
        self._error: StoreError | None = None
        self._since = 0.0
        self._marks: deque[tuple[float, int]] = deque()
        """How many commands had come at some moments, those counted that were taken out since."""
        self._taken_out = 0
        self._given_up = False

    @property
    def lasts(self) -> bool:
        """Tell whether the database is away."""
        return self._error is not None

    @property
    def stays(self) -> bool:
        """Tell whether it is away and nobody looks for it any more."""
        return self._given_up and self._error is not None

    def begin(self, error: StoreError) -> None:
        """Look for a database that is away, unless that is done already."""
        self._health.failed(error)
        if self._error is None:
            log.warning("the database is away: %s", error)
            self._error, self._since = error, self._clock.monotonic()
            if self._given_up:
                self.give_up()
                return
            self._marks.clear()
            self._taken_out = 0
            self._watch()
            self._look_soon()

    def give_up(self) -> None:
        """Refuse all who wait, as the server stops; the database is not looked for any more."""
        self._given_up = True
        if self._error is not None:
            commands = list(self._gathered)
            self._gathered.clear()
            self._refuse(commands, self._error)

    # --- looking for it ----------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        away_s = self._clock.monotonic() - self._since
        pause_s = min(max(PG_LOOK_S, away_s * LOOK_SHARE), PG_LOOK_S_MAX)
        self._loop.call_later(pause_s * random.uniform(0.5, 1.5), self._look)  # noqa: S311

    def _look(self) -> None:
        if not self._given_up:
            self._follow(self._slices.begin(self._reach))

    def _follow(self, step: Step | None) -> None:
        if step is None:
            self._slices.call_when_ready(lambda: self._follow(self._slices.go_on()), self._loop.call_soon)
        else:
            step()

    def _reach(self) -> Step:
        try:
            self._engine.reach()
        except Exception as error:
            fault = self._engine.fault(error)
            if fault is None:
                log.exception("the database could not be looked for")
                fault = StoreError(str(error))
            return lambda: self._not_yet(fault)
        return self._reached

    def _not_yet(self, error: StoreError) -> None:
        if str(error) != str(self._error):
            log.warning("the database is still away: %s", error)
        self._error = error
        self._health.failed(error)
        self._look_soon()

    def _reached(self) -> None:
        log.info("the database is there again after %.1f s", self._clock.monotonic() - self._since)
        self._error = None
        self._health.reached()
        self._over()

    # --- who waits meanwhile -----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Refuse who has waited long enough, as long as the database is away."""
        if self._error is None or self._given_up:
            return
        now = self._clock.monotonic()
        self._marks.append((now, self._taken_out + len(self._gathered)))
        count = 0
        while self._marks and self._marks[0][0] <= now - self._command_s:
            count = self._marks.popleft()[1] - self._taken_out
        if count > 0:
            self._take_out(count, self._error)
        self._tick()
        self._loop.call_later(min(TICK_S, self._command_s), self._watch)

    def _take_out(self, count: int, error: StoreError) -> None:
        """Refuse the first commands; what nobody asked for, such as jobs on their way back, stays."""
        first = [self._gathered.popleft() for _ in range(count)]
        kept = [one for one in first if one.command is None]
        self._gathered.extendleft(reversed(kept))
        self._taken_out += count - len(kept)
        self._refuse([one for one in first if one.command is not None], error)
