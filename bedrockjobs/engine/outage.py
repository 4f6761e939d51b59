"""Outages: whether the database can be written, as ``/readyz`` reports it, and reconnecting to it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from bedrockjobs.base.background import Step, WorkSteps
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import DATABASE_RETRY_S, DATABASE_RETRY_S_MAX
from bedrockjobs.engine.events import HoldChanged
from bedrockjobs.engine.submission import Submission
from bedrockjobs.job.eligibility import RELEASE, hold_text
from bedrockjobs.store.base import Engine, StoreBroken, StoreError


def _text_of(error: Exception) -> str:
    return f"{getattr(error, 'reason', 'failure').lower()}: {error}"


class Health:
    """What is wrong with the database of one server, if anything."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Start without known trouble, unless the disk of ``engine`` is full."""
        self._engine = engine
        self._clock = clock
        self._problem = ""
        self._until = 0.0
        self._look_from = 0.0
        self.hold: str | None = None
        """The message shown while the queue is quarantined after a restore, during which commands still work;
        empty if it is not quarantined, None until this is read."""

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {HoldChanged: self._hold_changed}

    def _hold_changed(self, event: HoldChanged) -> None:
        hold = event.hold and event.hold._replace(by="", reason="")  # readable without a token
        self.hold = "" if hold is None else f"{hold_text(hold)}; {RELEASE}"

    @property
    def problem(self) -> str:
        """Return a description of what is wrong, or an empty string."""
        if self._engine.lost_commit is not None:
            return _text_of(self._engine.lost_commit)
        if self._clock.monotonic() < self._until:
            return self._problem
        return "disk full: no jobs are created until space is freed" if self._engine.tight else ""

    def failed(self, error: Exception) -> None:
        """Record that a transaction failed; permanently if the server must stop."""
        self._problem = _text_of(error)
        # Trouble ends with the next write; a server without further writes is ready again after ten seconds
        self._until = self._clock.monotonic() + 10.0
        if isinstance(error, StoreBroken):
            self._until = float("inf")

    def committed(self, *, wrote: bool) -> None:
        """Record a committed transaction; ``wrote`` is true if the disk accepted a write."""
        if wrote and self._until != float("inf"):
            self._until = 0.0
        if self._engine.tight:
            self.check_disk()

    def check_disk(self) -> None:
        """Check whether a full disk has room again, if a check is due; no transaction may be open."""
        if self._engine.tight and self._clock.monotonic() >= self._look_from:
            # Seconds between two checks whether a full disk has room again.
            self._look_from = self._clock.monotonic() + 0.5
            self._engine.reserve_space()


# Outage handling: reconnect with backoff, and refuse commands that have waited too long. Waiters wait on.


log = logging.getLogger(__name__)


class Outage:
    """Reconnects to an unreachable database, and limits how long commands wait for it."""

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
        """Reconnect to ``engine`` while commands are ``gathered``, and report to ``health``.

        ``refuse`` receives the commands that have waited ``command_s``, with the error. ``tick`` is called
        regularly during an outage, ``over`` when the database can be reached again.
        """
        self._engine = engine
        self._clock = clock
        self._command_s = command_s
        self._gathered = gathered
        self._health, self._refuse, self._tick, self._ended = health, refuse, tick, over
        self._loop = asyncio.get_running_loop()
        self._slices = WorkSteps()
        self._error: StoreError | None = None
        self.is_active = False
        """Whether the database is unreachable."""
        self._since = 0.0
        self._marks: deque[tuple[float, int]] = deque()
        """Past times, each with the number of commands that had arrived by then since the outage began."""
        self._taken_out = 0
        self._given_up = False

    @property
    def is_final(self) -> bool:
        """Return True if the database is unreachable and no further attempt will be made."""
        return self._given_up and self._error is not None

    def start(self, error: StoreError) -> None:
        """Start reconnecting, unless that is already under way."""
        self._health.failed(error)
        if self._error is None:
            log.warning("the database is unreachable: %s", error)
            self._error, self._since, self.is_active = error, self._clock.monotonic(), True
            if self._given_up:
                self.give_up()
                return
            self._marks.clear()
            self._taken_out = 0
            self._watch()
            self._retry_soon()

    def give_up(self) -> None:
        """Refuse all queued commands and stop reconnecting, because the server is stopping."""
        self._given_up = True
        if self._error is not None:
            commands = list(self._gathered)
            self._gathered.clear()
            self._refuse(commands, self._error)

    # --- reconnecting ------------------------------------------------------------------------------------

    def _retry_soon(self) -> None:
        away_s = self._clock.monotonic() - self._since
        # Pause between reconnect attempts, as a share of the time that the database has been away.
        pause_s = min(max(DATABASE_RETRY_S, away_s * 0.05), DATABASE_RETRY_S_MAX)
        self._loop.call_later(pause_s * random.uniform(0.5, 1.5), self._try_if_due)  # noqa: S311

    def _try_if_due(self) -> None:
        if not self._given_up:
            self._slices.run(self._reconnect)

    def _reconnect(self) -> Step:
        try:
            self._engine.reach()
        except Exception as error:
            fault = self._engine.fault(error)
            if fault is None:
                log.exception("the attempt to reconnect to the database failed")
                fault = StoreError(str(error))
            return lambda: self._not_yet(fault)
        return self._on_reconnected

    def _not_yet(self, error: StoreError) -> None:
        if str(error) != str(self._error):
            log.warning("the database is still unreachable: %s", error)
        self._error = error
        self._health.failed(error)
        self._retry_soon()

    def _on_reconnected(self) -> None:
        log.info("the database is available again after %.1f s", self._clock.monotonic() - self._since)
        self._error, self.is_active = None, False
        self._health.committed(wrote=True)
        self._ended()

    # --- commands that wait meanwhile --------------------------------------------------------------------

    def _watch(self) -> None:
        """Refuse commands that have waited too long, repeatedly until the database is back."""
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
        # Seconds between two checks for commands that have waited too long: 1 % of the default
        # ``command_s``.
        self._loop.call_later(min(0.1, self._command_s), self._watch)

    def _take_out(self, count: int, error: StoreError) -> None:
        """Refuse the first ``count`` commands; keep internal submissions, such as requeues."""
        first = [self._gathered.popleft() for _ in range(count)]
        kept = [one for one in first if one.command is None]
        self._gathered.extendleft(reversed(kept))
        self._taken_out += count - len(kept)
        self._refuse([one for one in first if one.command is not None], error)
