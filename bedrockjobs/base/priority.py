"""Lower the CPU priority of background reads, queries and backups.

The process of Query imports this, so it uses only the standard library.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from bedrockjobs.base.config import LOOKS_NICE

REST_S = 0.00002
"""Seconds of a rest, which takes 70 us: the shortest possible."""

STEPS_BETWEEN_RESTS = 10_000
"""Steps of SQLite's machine between two rests, half a millisecond: a read takes a seventh longer."""


def give_way() -> None:
    """Lower the priority of this thread and of those that it starts, on Linux."""
    thread = threading.get_native_id()
    with suppress(OSError):  # other systems have no thread numbers of this kind
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(now, LOOKS_NICE))


def rest() -> None:
    """Yield the processor for an instant.

    A long read calls it every ``STEPS_BETWEEN_RESTS``: a kernel that does not preempt would let it run until
    its next tick, up to 4 ms, while a command waits for the processor.
    """
    time.sleep(REST_S)  # noqa: TID251 - in a thread or a process beside the server
