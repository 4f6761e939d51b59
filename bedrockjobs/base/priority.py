"""Lower the CPU priority of background reads, queries and backups.

The Query process imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

REST_S = 0.00002
"""Seconds that ``rest`` asks to sleep: too few to matter, since the shortest possible sleep takes 70 us."""

STEPS_BETWEEN_RESTS = 10_000
"""Number of SQLite virtual-machine steps between two rests, half a millisecond. With the rests, a read takes
a seventh longer."""


def give_way() -> None:
    """On Linux, lower the priority of this thread and of the threads that it starts."""
    thread = threading.get_native_id()
    with suppress(OSError):  # other systems have no thread ids of this kind
        now = os.getpriority(os.PRIO_PROCESS, thread)
        # With a nice value of 10, commands wait half as long as at equal priority
        os.setpriority(os.PRIO_PROCESS, thread, max(now, 10))


def rest() -> None:
    """Yield the CPU briefly.

    Long reads call this every ``STEPS_BETWEEN_RESTS``: a kernel that does not preempt would let them run
    until its next tick, up to 4 ms, while a command waits for the CPU.
    """
    time.sleep(REST_S)  # noqa: TID251 - in a thread or a process beside the server
