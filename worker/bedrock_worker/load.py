"""How much a worker takes on while its machine is busy, and whether its program was replaced meanwhile.

Two small judges that are asked now and then: ``Throttle`` (``--max-load``) and ``FileWatch``
(``--version-watch``). Neither starts, waits for or stops anything.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from bedrockjobs.base.clock import Clock, SystemClock

GROW_S = 5.0
"""Time after which one more slot is tried while the load is below the limit."""

SHRINK_S = 20.0
"""Time after a halving before the next: the load is a mean over a minute and shows an effect late."""

SLOTS_MIN = 1
"""Slots that stay under any load: else a load that is not ours would stop the work for ever."""

Mark = tuple[int, int, int]
"""What tells cheaply that a file may have changed: inode, size and time of change in ns."""


def load_per_cpu() -> float:
    """Return the mean number of runnable processes of the last minute, per CPU that we may use."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Throttle:
    """How many slots may be in use: one more every few seconds while there is room, half when there is none.

    It begins with one slot, so that many workers that start on a busy machine do not all fill up at once.
    """

    def __init__(
        self,
        slots_max: int,
        load_max: float,
        *,
        load: Callable[[], float] = load_per_cpu,
        clock: Clock | None = None,
    ) -> None:
        """Allow up to ``slots_max`` while the load per CPU is at most ``load_max``."""
        self._slots_max = slots_max
        self._load_max = load_max
        self._load = load
        self._clock = clock or SystemClock()
        self._slots = min(SLOTS_MIN, slots_max)
        self._grown_at = self._clock.monotonic()
        self._shrunk_at = -SHRINK_S + self._grown_at

    def slots(self) -> int:
        """Return how many slots may be in use now; cheap enough to be asked before each question for jobs."""
        now = self._clock.monotonic()
        if now - self._grown_at < GROW_S:
            return self._slots
        if self._load() > self._load_max:
            self._grown_at = now
            if now - self._shrunk_at >= SHRINK_S:
                self._slots, self._shrunk_at = max(SLOTS_MIN, self._slots // 2), now
        else:
            steps = int((now - self._grown_at) // GROW_S)
            self._slots = min(self._slots_max, self._slots + steps)
            self._grown_at += steps * GROW_S
        return self._slots

    def next_s(self) -> float:
        """Return the seconds until ``slots`` may answer otherwise, for a worker that waits for it."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())


class FileWatch:
    """Whether a file's content is another than at the start. Touching or copying it anew is no change."""

    def __init__(self, mark: Callable[[], Mark | None], digest: Callable[[], bytes | None]) -> None:
        """Watch through two readings, None where there is no file; ``digest`` is read only on a new mark."""
        self._read_mark, self._read_digest = mark, digest
        self._mark, self._digest = mark(), digest()
        self._changed = False

    @classmethod
    def of(cls, path: Path) -> FileWatch:
        """Watch a file; a link is followed each time, so that one that is turned to a new release counts."""
        return cls(lambda: mark_of(path), lambda: digest_of(path))

    def changed(self) -> bool:
        """Tell whether it changed; once it has, it stays so. A file that is gone is not changed yet."""
        mark = None if self._changed else self._read_mark()
        if mark is not None and mark != self._mark:
            digest = self._read_digest()
            if digest is not None:
                self._changed = digest != self._digest
                self._mark = mark
        return self._changed


def mark_of(path: Path) -> Mark | None:
    """Return a file's mark, None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def digest_of(path: Path) -> bytes | None:
    """Return the SHA-256 of a file, None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
