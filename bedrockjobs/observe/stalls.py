"""Watchdog of the event loop: measures stalls and their causes, for the log and ``/metrics``.

A thread samples the loop's CPU time. If the loop is busy, the thread schedules a callback in it; while the
callback is late, the thread samples the loop's stack. So requests cost nothing, and an idle server almost
nothing. A delay during which the loop uses no CPU is due to a busy machine, and is not attributed to a
command.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import LOOP_STALL_S
from bedrockjobs.commands import Command
from bedrockjobs.observe.stats import UNKNOWN, Measurements

log = logging.getLogger(__name__)

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
