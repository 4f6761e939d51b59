"""The speed of this machine now, relative to the one on which the limits on processor time were set.

Two programs on the two halves of one core, or neighbours that fill its caches, make the same work take up to
twice the processor time. So a time is divided by what a fixed piece of work took just then: bars on processor
time are ratios to a baseline of the same run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

WORK_S = 0.0063
"""Processor time of ``_work`` where the bars were set: two cores with nothing else to do."""

COPY_S = 0.009
"""The same of ``_copy``."""

COPIED_BYTES = 4 * 1024 * 1024

SLOWNESS_MAX = 6.0
"""Slower times are used as measured: a machine with a third of the speed, whose cores are
shared by two, is not that slow."""

DELAY_MAX = 20.0
"""The same by the clock on the wall, where others have their turn too."""

TRIES = 3
"""Measurements, of which the median counts."""

DELAY_WORKS = 12
"""Pieces of work in a row, so that other processes get the core in between."""


def slowness() -> float:
    """Return how much slower this machine is now than the one on which the bars were set, at least 1."""
    computed = sorted(_taken(_work) for _ in range(TRIES))[TRIES // 2]
    copied = sorted(_taken(_copy) for _ in range(TRIES))[TRIES // 2]
    return min(max(1.0, computed / WORK_S, copied / COPY_S), SLOWNESS_MAX)


def delay() -> float:
    """Return the same by wall-clock time, for bars on waiting times: at least 1."""
    began = time.monotonic()
    for _ in range(DELAY_WORKS):
        _work()
    return min(max(1.0, (time.monotonic() - began) / (DELAY_WORKS * WORK_S)), DELAY_MAX)


def in_time(taken_s: float, bar_s: float) -> bool:
    """Return whether a time is within a bar, at the present speed of this machine."""
    return taken_s < bar_s or taken_s / delay() < bar_s


def _taken(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _copy() -> str:
    """Allocate and copy memory, as a server does with the data of large jobs."""
    return bytes(bytearray(COPIED_BYTES)).decode("latin-1")


_ROWS = [{"name": f"row/{number}", "value": number, "texts": ["a" * 10, "b" * 10]} for number in range(500)]


def _work() -> int:
    """Do what a server does: read and write JSON, cut texts, fill dicts."""
    found: dict[str, int] = {}
    for _ in range(4):
        for row in json.loads(json.dumps(_ROWS)):
            for part in str(row["name"]).split("/"):
                found[part] = found.get(part, 0) + len(row["texts"])
    return len(found)
