"""How far limits by name pattern may go, each with its reason."""

from __future__ import annotations

LIMITS_MAX = 100
"""Patterns with a limit: the name of each job that is created is matched with all of them."""

QUEUED_LIMIT_MAX = 100_000
"""Jobs that a limit may let be queued: they are counted within a transaction, 40 ms for so many."""

RUNNING_LIMIT_MAX = 10_000
"""Runs at once that a limit may let through: all runs in progress are counted with each take of its names."""

PER_SECOND_MAX = 100_000
"""Creates a second that a limit may let through: more than a server does."""
