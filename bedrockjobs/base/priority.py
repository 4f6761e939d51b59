"""Work that may wait leaves the processors to commands: looks at the database, Queries, backups."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from bedrockjobs.base.config import LOOKS_NICE

REST_S = 0.00002
"""Seconds of a rest, which takes 70 us: the least there is."""

STEPS_BETWEEN_RESTS = 10_000
"""Steps of SQLite's machine between two rests, half a millisecond: a look takes a seventh longer."""


def give_way() -> None:
    """Let the system prefer other threads to this one, on Linux; threads that it starts do as it does."""
    thread = threading.get_native_id()
    with suppress(OSError):  # elsewhere a thread has no number of this kind
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(now, LOOKS_NICE))


def rest() -> None:
    """Let others have this processor for an instant.

    A look that takes long calls it every ``STEPS_BETWEEN_RESTS``: a kernel that does not preempt lets it
    go on until its next tick, up to 4 ms, though a command waits for the processor.
    """
    time.sleep(REST_S)  # noqa: TID251 - in a thread or a process beside the server
