"""Free space on the disk of the database, for the overview, notification rules and metrics."""

from __future__ import annotations

import shutil

from bedrockjobs.base.settings import Settings

ROOM_LOW_BYTES = 1024**3
"""Free space below which a warning is shown: a day of a busy queue."""

WHEN_FULL = "when it is full no jobs are created"
"""The consequence, for messages."""


def free_bytes(settings: Settings) -> int | None:
    """Return the free bytes on the disk of the database; None on PostgreSQL or if unknown."""
    if settings.on_postgresql:
        return None
    try:
        return shutil.disk_usage(settings.database_path().resolve().parent).free
    except OSError:
        return None


def little_room(free: int | None) -> str:
    """Return a warning if little space is left; empty if there is enough or it is unknown."""
    if free is None or free >= ROOM_LOW_BYTES:
        return ""
    return f"{free / 1e6:,.0f} MB are free on the disk of the database: {WHEN_FULL}"
