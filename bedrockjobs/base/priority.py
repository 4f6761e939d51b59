"""Work that may wait leaves the processors to commands: looks at the database, Queries, backups."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from bedrockjobs.base.config import LOOKS_NICE


def give_way() -> None:
    """Let the system prefer other threads to this one, on Linux; threads that it starts do as it does."""
    thread = threading.get_native_id()
    with suppress(OSError):  # elsewhere a thread has no number of this kind
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(now, LOOKS_NICE))
