"""The rate limiter: decides whether a job may be created, by limits on name patterns.

Queued jobs are counted on demand. A count grants a number of creates; when these are used up, the jobs are
counted again. So the ends of jobs cost nothing here, and creates almost nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bedrockjobs.base.clock import Clock, timestamp
from bedrockjobs.base.errors import TooMany
from bedrockjobs.base.glob import glob
from bedrockjobs.job.limits import Limit
from bedrockjobs.store.records import Records

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RateLimit:
    """The state of one limit: its token bucket of creates per second, and the creates left from a count.

    Times are in monotonic seconds, except for ``last_refused``, a timestamp.
    """

    limit: Limit
    tokens: float
    filled_at: float
    room: int = 0
    counted_at: float = float("-inf")
    full_until: float = float("-inf")
    refused: int = 0
    last_refused: str = ""
    reported_at: float = float("-inf")
    unreported: int = 0
    """Number of refusals not yet reported by an event."""


class RateLimiter:
    """The limits as one server counts them; other servers of the database count for themselves."""

    def __init__(self, clock: Clock, *, shared: bool) -> None:
        """Count by ``clock``; ``shared`` means that other servers create jobs in the same queue."""
        self._clock = clock
        self._shared = shared
        self._gates: dict[str, RateLimit] = {}

    def gate(self, limit: Limit) -> RateLimit:
        """Return the state of a limit; a changed limit starts from scratch."""
        gate = self._gates.get(limit.pattern)
        if gate is None or gate.limit != limit:
            gate = RateLimit(limit, float(limit.per_second), self._clock.monotonic())
            self._gates[limit.pattern] = gate
        return gate

    def remove(self, pattern: str) -> None:
        """Discard the state of a limit."""
        self._gates.pop(pattern, None)

    def admit(self, name: str, limits: tuple[Limit, ...], records: Records) -> None:
        """Count the creation of one job; raise TooMany if a limit does not allow it."""
        gates = [self.gate(limit) for limit in limits if glob(name, limit.pattern)]
        now = self._clock.monotonic()
        for gate in gates:
            limit = gate.limit
            if limit.per_second:
                gate.tokens = min(limit.per_second, gate.tokens + (now - gate.filled_at) * limit.per_second)
                gate.filled_at = now
                if gate.tokens < 1:
                    self._refuse(gate, f"{limit.per_second} created a second")
            if limit.queued and not self._has_room(gate, records, now):
                self._refuse(gate, f"{limit.queued} queued")
        for gate in gates:
            gate.tokens -= 1
            gate.room -= 1

    def _has_room(self, gate: RateLimit, records: Records, now: float) -> bool:
        if now < gate.full_until:
            return False
        # A count is valid for five seconds, as retried jobs are queued without asking the limiter
        if gate.room <= 0 or now - gate.counted_at >= 5.0:
            most = gate.limit.queued
            gate.room = most - records.count_queued(gate.limit.pattern, most)
            if self._shared:
                # On a shared database, one count grants at most a tenth of the limit, since other servers
                # create jobs too.
                gate.room = min(gate.room, most // 10 + 1)
            gate.counted_at = self._clock.monotonic()
            if gate.room <= 0:
                # A full queue is not counted again before 20 times the duration of the last count: at most
                # 5 % of the time.
                gate.full_until = gate.counted_at + (gate.counted_at - now) * 20
        return gate.room > 0

    def _refuse(self, gate: RateLimit, limit_text: str) -> None:
        gate.refused += 1
        gate.unreported += 1
        gate.last_refused = timestamp(self._clock.now())
        raise TooMany("Too many jobs", f"name: the limit of {gate.limit.pattern} is reached: {limit_text}")

    def take_refusals(self) -> list[tuple[str, str]]:
        """Return patterns whose limit was reached and the event text, at most once a minute each."""
        found = []
        for pattern, gate in self._gates.items():
            if gate.unreported and self._clock.monotonic() - gate.reported_at >= 60.0:
                jobs = "1 job was" if gate.unreported == 1 else f"{gate.unreported:,} jobs were"
                found.append((pattern, f"{jobs} refused: {_limit_text(gate.limit)}"))
                gate.reported_at, gate.unreported = self._clock.monotonic(), 0
        return found


def _limit_text(limit: Limit) -> str:
    parts = [f"{limit.queued:,} may be queued"] if limit.queued else []
    return " and ".join(parts + ([f"{limit.per_second:,} created a second"] if limit.per_second else []))
