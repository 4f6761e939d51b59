"""Statistics: counts per minute for charts, written once a minute, and measurements for ``/metrics``.

Charts may lack the last minute before a crash; nothing else depends on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bedrockjobs.base.clock import moment_of
from bedrockjobs.engine.events import (
    JobLost,
    JobRetried,
    JobsCreated,
    JobsFinished,
    JobsTaken,
    RunEnded,
    RunFailed,
    RunOpened,
    TicksEntered,
)

# Measurements since the start, in memory, for ``/metrics``: commits, waits, runs and ticks.
#
# Updated by events after their commit: a few additions, without locks or reading the clock.


COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Bucket bounds of the duration of a commit: half a millisecond on a good disk, seconds on a failing one."""

BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000)
"""Bucket bounds of commands per commit; ``batch_max`` is 1,000 by default."""

WAIT_S = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400)
"""Bucket bounds of the time from due to start of a run."""

RUN_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)
"""Bucket bounds of the duration of a run."""

LATE_S = (0, 1, 2, 5, 10, 30, 60, 300, 900, 3_600)
"""Bucket bounds of the delay of a run after its tick, in whole seconds."""


LOOP_LATE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Bucket bounds of delays of the event loop, which should stay below a tenth of a second."""

UNKNOWN = "unknown"
"""A stall that ended before its activity was sampled."""


class Histogram:
    """A histogram: each value is counted in the first bucket whose bound is not below it."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Create buckets up to each of the ascending ``bounds``, and one beyond the last."""
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def up_to(self) -> Iterator[tuple[float, int]]:
        """Yield cumulative counts by bound; the last bound is infinite."""
        count = 0
        for bound, more in zip((*self.bounds, float("inf")), self._counts, strict=True):
            count += more
            yield bound, count


class Measurements:
    """The measurements of one server; lives in the event loop."""

    def __init__(self) -> None:
        self.commit_s = Histogram(COMMIT_S)
        self.batch = Histogram(BATCH)
        self.wait_s = Histogram(WAIT_S)
        self.run_s = Histogram(RUN_S)
        self.late_s = Histogram(LATE_S)
        self.loop_late_s = Histogram(LOOP_LATE_S)
        """Delays of the event loop."""
        self.stalls_s: dict[str, float] = {UNKNOWN: 0.0}
        """The longest stall by activity."""
        self.runs_started: Counter[str] = Counter()
        """Runs by cause."""
        self.runs_ended: Counter[str] = Counter()
        """Runs by the status they ended with."""
        self.ticks: Counter[str] = Counter()
        """Ticks of schedules by outcome."""
        self.skipped: Counter[str] = Counter()
        """Skipped ticks by reason."""

    def committed(self, seconds: float, commands: int) -> None:
        """Record the duration of a commit and the number of its commands."""
        self.commit_s.add(seconds)
        self.batch.add(commands)

    def record_stall(self, act: str, seconds: float) -> None:
        """Record a stall of the event loop by an activity."""
        # Activities with a recorded longest stall: all commands and a few parts of the server.
        if act in self.stalls_s or len(self.stalls_s) < 100:
            self.stalls_s[act] = max(seconds, self.stalls_s.get(act, 0.0))

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handlers of events."""
        return {RunOpened: self._opened, RunEnded: self._ended, TicksEntered: self._ticked}

    def _opened(self, event: RunOpened) -> None:
        self.runs_started[event.cause] += 1
        self.wait_s.add(max(event.wait_s, 0.0))

    def _ended(self, event: RunEnded) -> None:
        self.runs_ended[event.status] += 1
        self.run_s.add(max(event.took_s, 0.0))

    def _ticked(self, event: TicksEntered) -> None:
        """Count ticks of a schedule; skipped ones have no delay."""
        self.ticks[event.outcome] += event.ticks
        if event.outcome == "skipped":
            self.skipped[event.reason] += event.ticks
        else:
            self.late_s.add(event.late_s)


@dataclass(slots=True)
class Minute:
    """The counts of one minute, in the column order of the table ``stats``."""

    minute: str = ""
    """``YYYY-MM-DD HH:MM:00``; empty before anything happened."""
    created: int = 0
    taken: int = 0
    finished: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    waits: int = 0
    """Takes whose wait was measured: one per transaction."""
    wait_ms: int = 0
    """Total wait of these takes, since the jobs were due."""

    def counts(self) -> tuple[int, ...]:
        """Return the counts without the minute."""
        return tuple(getattr(self, field.name) for field in fields(self)[1:])


JOBS_DONE = ("created", "taken", "finished", "failed", "retried", "lost")
"""The counts of jobs, which come first in a minute."""


class Stats:
    """The counts of the current minute, and totals since the start."""

    def __init__(self) -> None:
        self.open = Minute()
        self._before = self.open.counts()

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handlers of events."""
        return {
            JobsCreated: self._created,
            JobsTaken: self._taken,
            JobsFinished: self._finished,
            RunFailed: self._failed,
            JobRetried: self._retried,
            JobLost: self._lost,
        }

    def _created(self, event: JobsCreated) -> None:
        self.open.created += event.jobs

    def _finished(self, event: JobsFinished) -> None:
        self.open.finished += event.jobs

    def _failed(self, _: RunFailed) -> None:
        self.open.failed += 1

    def _retried(self, _: JobRetried) -> None:
        self.open.retried += 1

    def _lost(self, _: JobLost) -> None:
        self.open.lost += 1

    def _taken(self, event: JobsTaken) -> None:
        """Count taken jobs, and the wait of the first one in each transaction."""
        minute = self.open
        minute.taken += event.jobs
        if event.due:
            minute.waits += 1
            wait_s = (moment_of(event.at) - moment_of(event.due)).total_seconds()
            minute.wait_ms += max(int(wait_s * 1_000), 0)

    def closing(self, minute: str) -> tuple[int, ...] | None:
        """Return the counts to write when ``minute`` begins, or None if all are zero."""
        counts = self.open.counts()
        return counts if self.open.minute != minute and any(counts) else None

    def begin_minute(self, minute: str) -> None:
        """Start counting a new minute."""
        self._before = self._totals()
        self.open = Minute(minute)

    def since_start(self) -> dict[str, int]:
        """Return the counts of jobs since the start, by name."""
        return dict(zip(JOBS_DONE, self._totals(), strict=False))

    def _totals(self) -> tuple[int, ...]:
        return tuple(one + other for one, other in zip(self._before, self.open.counts(), strict=True))
