"""How far limits by name pattern and limits of what is kept may go, each with its reason."""

from __future__ import annotations

LIMITS_MAX = 100
"""Patterns with a limit: the name of each job that is created is matched with all of them."""

QUEUED_LIMIT_MAX = 100_000
"""Jobs that a limit may let be queued: they are counted within a transaction, 40 ms for so many."""

RUNNING_LIMIT_MAX = 10_000
"""Runs at once that a limit may let through: all runs in progress are counted with each take of its names."""

PER_SECOND_MAX = 100_000
"""Creates a second that a limit may let through: more than a server does."""

KEPT_BYTES_MAX = 2**50
"""Room that a limit of what is kept may give: more than a disk has."""

RUN_OUTPUT_BYTES_MIN = 64 * 1024
"""Output of one run that is kept at the least: a chunk at its beginning, and one at its end."""

EVENTS_KEPT_S_MIN = 86_400
"""Time in which events are kept at the least: messages are made of them, and are tried for a day."""

COUNTED_KEPT_MAX = 50_000
"""Rows of one kind and pattern that are counted to show how much is kept: a fifth of a second."""

AUDIT_KEPT_S = 90 * 86_400
"""How long it is kept what operators changed: until the end of a quarter is looked back at."""
