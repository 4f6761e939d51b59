"""Whether there is room on the disk of the database: the same words for people, rules and metrics.

It knows the settings and the disk, no queue and no command.
"""

from __future__ import annotations

import shutil

from bedrockjobs.base.settings import Settings

ROOM_LOW_BYTES = 1024**3
"""Room on the disk of the database below which it is low: a day of a busy queue."""

WHEN_FULL = "when it is full no jobs are created"
"""What comes of it."""


def free_bytes(settings: Settings) -> int | None:
    """Return the room on the disk of the database; None where it is not this machine's, or not known."""
    if settings.on_postgresql:
        return None
    try:
        return shutil.disk_usage(settings.database_path().resolve().parent).free
    except OSError:
        return None


def little_room(free: int | None) -> str:
    """Return in a person's words that there is little room; empty where there is enough, or nobody knows."""
    if free is None or free >= ROOM_LOW_BYTES:
        return ""
    return f"{free / 1e6:,.0f} MB are free on the disk of the database: {WHEN_FULL}"
