"""Limits by name pattern of what may be created and of what may run, as they are kept: a JSON array."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

AT_LIMIT = "(limit)"
"""Who has paused a name of which as many jobs run as may at once."""


class Limit(NamedTuple):
    """What may be created and may run of the names that match a pattern; 0 is no limit."""

    pattern: str
    """GLOB."""
    queued: int
    """Jobs that may be queued, those for later included."""
    per_second: int
    """Jobs that may be created a second, in one go as many."""
    running: int
    """Runs that may be in progress at once."""
    by: str
    since: str


def limits_from(text: str) -> tuple[Limit, ...]:
    """Read what is kept; an empty text holds none."""
    return tuple(Limit(*row) for row in json.loads(text)) if text else ()


def text_of_limits(limits: Sequence[Limit]) -> str:
    """Return limits as they are kept."""
    return json.dumps(limits)
