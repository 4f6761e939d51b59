"""Statistics: counts per minute for charts, in total and by name; measurements and stalls for ``/metrics``.

A minute is written to the database after it is over. After a crash, charts may lack the last minute; nothing
else depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from bedrockjobs.base.clock import SystemClock, moment_of
from bedrockjobs.base.config import (
    LOOP_STALL_S,
    STATS_AT_ONCE,
    STATS_COUNTED_MAX,
    STATS_NAMES_MAX,
    STATS_PENDING_MAX,
)
from bedrockjobs.commands import Command
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


log = logging.getLogger(__name__)

SPAN_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_600, 10_800, 36_000)
"""Bucket bounds in seconds of the waits and durations that are counted by name: two bounds for each power of
ten, so that a percentile can be estimated."""

UNKNOWN = "unknown"
"""The activity of a stall that ended before the loop's stack was sampled."""


class Histogram:
    """A histogram: each value is counted in the first bucket whose bound is at least as high."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Create one bucket up to each of ``bounds``, which ascend, and one bucket beyond the last bound."""
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def up_to(self) -> Iterator[tuple[float, int]]:
        """Yield each bound with the number of values up to it; the last bound is infinite."""
        count = 0
        for bound, more in zip((*self.bounds, float("inf")), self._counts, strict=True):
            count += more
            yield bound, count


class Measurements:
    """The measurements of one server; to be used only in the thread of the event loop."""

    def __init__(self) -> None:
        self.commit_s = Histogram((0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0))
        """Durations of commits in seconds: half a millisecond on a good disk, seconds on a failing one."""
        self.batch = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000))
        """Numbers of commands per commit; the setting ``batch_max`` is 1,000 by default."""
        self.wait_s = Histogram((0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400))
        """Waits of jobs in seconds, from the time at which a job is due to the start of its run."""
        self.run_s = Histogram((0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400))
        """Durations of runs in seconds."""
        self.late_s = Histogram((0, 1, 2, 5, 10, 30, 60, 300, 900, 3_600))
        """Delays in seconds from a tick to the start of its run."""
        self.loop_late_s = Histogram((0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0))
        """Delays of the event loop in seconds, which should stay below a tenth of a second."""
        self.stalls_s: dict[str, float] = {UNKNOWN: 0.0}
        """Seconds of the longest stall of each activity."""
        self.runs_started: Counter[str] = Counter()
        """Number of started runs by cause, such as ``retry``."""
        self.runs_ended: Counter[str] = Counter()
        """Number of ended runs by the status with which they ended."""
        self.ticks: Counter[str] = Counter()
        """Number of ticks of schedules by outcome."""
        self.skipped: Counter[str] = Counter()
        """Number of skipped ticks by reason."""

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
        """Count ticks of a schedule, and how late they were; a skipped tick has no delay."""
        self.ticks[event.outcome] += event.ticks
        if event.outcome == "skipped":
            self.skipped[event.reason] += event.ticks
        else:
            self.late_s.add(event.late_s)


JOBS_DONE = ("created", "taken", "finished", "failed", "retried", "lost")
"""What is counted for jobs; the counters of a name begin with one counter for each of these words."""

CREATED, TAKEN, FINISHED, FAILED, RETRIED, LOST = range(len(JOBS_DONE))

WAITS, TOOK = (slice(first, first + len(SPAN_S) + 1) for first in (LOST + 1, LOST + 2 + len(SPAN_S)))
"""The parts of a name's counters that hold the buckets of waits and the buckets of durations."""

STEP_MINUTE, STEP_HOUR = 60, 3_600
"""The lengths of time, in seconds, that a row of the table ``stats`` may cover."""

ALL = ""
"""The name of the rows that count all names together."""

StatsRow = tuple[Any, ...]
"""A row of the table ``stats``: name, length of time, timestamp, the counts of ``JOBS_DONE``, the buckets of
``WAITS``, the buckets of ``TOOK``, and the depth of the queue, or None if it is unknown."""


def _zeros() -> list[int]:
    return [0] * TOOK.stop


class Stats:
    """The counters of the current minute, the rows of earlier minutes to write, and totals since the start.

    In each hour, at most ``STATS_NAMES_MAX`` names have counters of their own. Of the names that first appear
    in the same minute, those with the most jobs are chosen.
    """

    def __init__(self) -> None:
        self._depths: Mapping[str, int] | None = None
        """The number of queued jobs by name, counted in the current minute; None if they have not been
        counted in it."""
        self._minute = ""
        self._all = _zeros()
        self._names: dict[str, list[int]] = {}
        self._rest = _zeros()
        """The shared counters of all names beyond ``STATS_COUNTED_MAX`` in a minute; they are never
        written."""
        self._names_before: Collection[str] = ()
        """The names that had counts in the previous minute."""
        self._hour = ""
        self._names_of_hour: set[str] = set()
        """The names for which rows are written in this hour."""
        self._pending: list[StatsRow] = []
        self._before = _zeros()
        """The sums of the counters of all earlier minutes since the start."""

    # --- counting ------------------------------------------------------------------------------------------

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handlers of events."""
        return {
            JobsCreated: self._created,
            JobsTaken: self._taken,
            JobsFinished: self._finished,
            RunFailed: lambda event: self._count(FAILED, event.name),
            JobRetried: lambda event: self._count(RETRIED, event.name),
            JobLost: lambda event: self._count(LOST, event.name),
            RunEnded: self._ended,
        }

    def _of(self, name: str) -> list[int]:
        """Return the counters of a name in the current minute, which the caller changes."""
        if name in self._names:
            return self._names[name]
        if len(self._names) >= STATS_COUNTED_MAX:
            return self._rest
        counters = self._names[name] = _zeros()
        return counters

    def _count(self, place: int, name: str) -> None:
        self._all[place] += 1
        self._of(name)[place] += 1

    def _created(self, event: JobsCreated) -> None:
        names, of = self._names.get, self._of
        for name in event.names:
            (names(name) or of(name))[CREATED] += 1
        self._all[CREATED] += len(event.names)

    def _finished(self, event: JobsFinished) -> None:
        names, of = self._names.get, self._of
        for name in event.names:
            (names(name) or of(name))[FINISHED] += 1
        self._all[FINISHED] += len(event.names)

    def _taken(self, event: JobsTaken) -> None:
        """Count taken jobs and their waits; consecutive jobs with the same due time share one computation."""
        names, of, together, at = self._names.get, self._of, self._all, moment_of(event.at)
        before, bucket = "", 0
        for name, due in event.jobs:
            counters = names(name) or of(name)
            counters[TAKEN] += 1
            if due:
                if due != before:
                    wait_s, before = (at - moment_of(due)).total_seconds(), due
                    bucket = WAITS.start + bisect_left(SPAN_S, wait_s)
                counters[bucket] += 1
                together[bucket] += 1
        together[TAKEN] += len(event.jobs)

    def _ended(self, event: RunEnded) -> None:
        self._count(TOOK.start + bisect_left(SPAN_S, event.took_s), event.name)

    def since_start(self) -> dict[str, int]:
        """Return the counts of jobs since the start, by kind."""
        sums = (one + other for one, other in zip(self._before, self._all, strict=True))
        return dict(zip(JOBS_DONE, sums, strict=False))

    # --- minutes that are over -----------------------------------------------------------------------------

    def to_write(self, minute: str) -> list[StatsRow]:
        """Return rows to write once ``minute`` has begun: the oldest, as many as one transaction takes."""
        rows = self._pending if minute == self._minute else [*self._pending, *self._rows()]
        return rows[: max(STATS_AT_ONCE, len(rows) // 10)]

    def begin_minute(self, minute: str, written: int = 0) -> None:
        """Let ``minute`` be the current minute; drop the first ``written`` of the rows to write."""
        if minute != self._minute:
            self._pending += self._rows()
            self._before = [one + other for one, other in zip(self._before, self._all, strict=True)]
            self._minute, self._all, self._depths = minute, _zeros(), None
            self._names_before = [name for name, counters in self._names.items() if any(counters)]
            self._names = {}
        del self._pending[:written]
        del self._pending[:-STATS_PENDING_MAX]

    def _rows(self) -> list[StatsRow]:
        """Return the rows of the current minute; the rows of ``ALL`` come first."""
        if not self._names:
            return []
        if self._hour != self._minute[:13]:
            self._hour, self._names_of_hour = self._minute[:13], set()
        names = self._names_of_hour
        rows = self._rows_of(ALL, self._all)
        for name in sorted(self._names, key=lambda name: sum(self._names[name][: LOST + 1]), reverse=True):
            if name in names or len(names) < STATS_NAMES_MAX:
                names.add(name)
                rows += self._rows_of(name, self._names[name])
        return rows

    def _rows_of(self, name: str, counters: list[int]) -> list[StatsRow]:
        depth = None
        if self._depths is not None:
            depth = sum(self._depths.values()) if name == ALL else self._depths.get(name, 0)
        return [
            (name, step, at, *counters, depth)
            for step, at in ((STEP_MINUTE, self._minute), (STEP_HOUR, f"{self._minute[:13]}:00:00"))
        ]

    def unwritten(self, names: Container[str]) -> list[StatsRow]:
        """Return the rows of ``names`` that are not yet written, including those of the current minute."""
        rows = [row for row in self._pending if row[0] in names]
        now = {name: counters for name, counters in self._names.items() if name in names}
        if ALL in names:
            now[ALL] = self._all
        for name, counters in now.items():
            rows += self._rows_of(name, counters)
        return rows

    # --- depth of queues -----------------------------------------------------------------------------------

    @property
    def wants_depths(self) -> bool:
        """Return whether the depths of queues may have changed since the last time they were counted."""
        return bool(self._names or self._names_before)

    def note_depths(self, depths: Mapping[str, int]) -> None:
        """Store the number of queued jobs by name, as counted now; a missing name has no queued jobs."""
        self._depths = depths
        for name in self._names_before:  # their depths may have changed after the last count
            self._of(name)


# The watch of the event loop: measures stalls and their causes, for the log and ``/metrics``.
#
# A thread samples the loop's CPU time. If the loop is busy, the thread schedules a callback in it; while the
# callback is late, the thread samples the loop's stack. So requests cost nothing, and an idle server almost
# nothing. A delay during which the loop uses no CPU is due to a busy machine, and is not attributed to a
# command.


SAMPLE_S = 0.03
"""Seconds between two samples, and therefore the precision of the measured stalls."""

SAMPLE_IDLE_S = 0.25
"""Seconds between two samples after ``RESTS`` idle samples in a row, when stalls are unlikely."""

RESTS = 100
"""Number of idle samples in a row (three seconds) after which the thread samples less often."""

AT_WORK_S = SAMPLE_S / 10
"""Seconds of CPU time between two samples from which on the loop counts as busy."""

ROOMS = (
    ("bedrockjobs.engine.maintenance", "maintenance"),
    ("bedrockjobs.pages", "page"),
    ("bedrockjobs.observe.prometheus", "metrics"),
    ("bedrockjobs.views", "view"),
    ("bedrockjobs.protocol", "request"),
    ("aiohttp", "request"),
    ("bedrockjobs.engine", "transaction"),
)
"""The activity of the loop outside of commands, by the prefix of a module on its stack; the first prefix
found applies."""


class LoopWatch:
    """Watches the event loop in which it is started."""

    def __init__(self, measurements: Measurements) -> None:
        """Record delays of the loop in ``measurements``."""
        self._measurements = measurements
        self._clock = SystemClock()
        self._last_seen: Counter[tuple[str, str]] = Counter()
        """How often each activity, with its place in the code, was sampled since the last callback."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._check, name="loop watch", daemon=True)
        self._scheduled_at: tuple[float, float] | None = None
        """Monotonic time at which the pending callback was scheduled, and the loop's CPU time at that moment,
        in seconds; None if no callback is pending."""
        self._log_from = dict.fromkeys((logging.WARNING, logging.INFO), 0.0)
        self._unlogged = Counter[int]()

    def start(self) -> None:
        """Start watching the event loop of this thread."""
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._cpu: Callable[[], float] = self._clock.thread_cpu()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    # --- in the loop -------------------------------------------------------------------------------------

    def _on_callback(self) -> None:
        assert self._scheduled_at is not None
        when, cpu = self._scheduled_at
        late_s = self._clock.monotonic() - when
        self._measurements.loop_late_s.add(late_s)
        if late_s >= LOOP_STALL_S:
            self._log_stall(late_s, min(self._cpu() - cpu, late_s), self._last_seen)
        if self._last_seen:
            self._last_seen = Counter()
        self._scheduled_at = None

    def _log_stall(self, late_s: float, computed_s: float, samples: Counter[tuple[str, str]]) -> None:
        if computed_s < LOOP_STALL_S:
            text = f"the event loop was delayed by {late_s:.3f} s, by a busy machine or a slow disk"
            self._log(logging.INFO, text)
            return
        (act, place), _ = samples.most_common(1)[0] if samples else ((UNKNOWN, ""), 1)
        self._measurements.record_stall(act, late_s)
        where = f"{act} at {place}" if place else act
        text = f"the event loop was blocked for {late_s:.3f} s, computing {computed_s:.3f} s, in {where}"
        self._log(logging.WARNING, text)

    def _log(self, level: int, text: str) -> None:
        now = self._clock.monotonic()
        if now < self._log_from[level]:
            self._unlogged[level] += 1
            return
        suppressed = self._unlogged.pop(level, 0)
        more = f"; {suppressed} more since the last such line" if suppressed else ""
        self._log_from[level] = now + 10.0  # shortest interval between two log lines of a level
        log.log(level, "%s%s", text, more)

    # --- in the thread -----------------------------------------------------------------------------------

    def _check(self) -> None:
        before, rests = 0.0, 0
        with suppress(OSError, RuntimeError):  # the loop or its thread has ended
            while not self._stopped.wait(SAMPLE_S if rests < RESTS else SAMPLE_IDLE_S):
                now, cpu = self._clock.monotonic(), self._cpu()
                rests = 0 if self._scheduled_at or cpu - before >= AT_WORK_S else rests + 1
                if self._scheduled_at is None:
                    if cpu - before >= AT_WORK_S:
                        self._scheduled_at = now, cpu
                        self._loop.call_soon_threadsafe(self._on_callback)
                elif now - self._scheduled_at[0] > LOOP_STALL_S / 2:
                    frame = sys._current_frames().get(self._watched)
                    if frame is not None:
                        self._last_seen[act_of(frame)] += 1
                before = cpu


def act_of(frame: FrameType | None) -> tuple[str, str]:
    """Return the activity on a stack (a command, or a part of the server) and its place in the code."""
    command, place = "", ""
    packages: set[str] = set()
    while frame is not None and not command:
        module = frame.f_globals.get("__name__", "")
        if not place and module.startswith("bedrockjobs."):
            place = f"{module.removeprefix('bedrockjobs.')}.{frame.f_code.co_name}"
        packages.update(room for beginning, room in ROOMS if module.startswith(beginning))
        command = next(filter(None, map(_name_of, list(frame.f_locals.values()))), "")
        frame = frame.f_back
    return command or next((room for _, room in ROOMS if room in packages), UNKNOWN), place


def _name_of(value: object) -> str:
    """Return the name of a command or command class; empty for anything else."""
    if isinstance(value, Command):
        return type(value).__name__
    if isinstance(value, type) and issubclass(value, Command) and value is not Command:
        return value.__name__
    return ""
