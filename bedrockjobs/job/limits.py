"""Limits by name pattern of what may be created and of what may run, as they are kept: a JSON array."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bedrockjobs.base.glob import glob

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


# What is kept of names, by pattern: as it is stored, and what it means for one name.


RetentionKind = Literal[
    "runs", "runs_bytes", "output", "output_bytes", "events", "ticks", "events_bytes", "ticks_bytes"
]
"""What can be limited for names: times in seconds, but for those in bytes."""


class Retention(NamedTuple):
    """How much is kept of the names that match a pattern; None: what another pattern says, or the default."""

    pattern: str
    """GLOB."""
    by: str
    since: str
    runs: int | None = None
    """Seconds after its end in which a run is kept."""
    runs_bytes: int | None = None
    """Room for the runs of all these names, with their output; the newest are kept."""
    output: int | None = None
    """Seconds after the end of a run in which its output is kept."""
    output_bytes: int | None = None
    """Output kept of one run."""
    events: int | None = None
    """Seconds in which events are kept."""
    ticks: int | None = None
    """Seconds in which the ledgers of schedules are kept."""
    events_bytes: int | None = None
    """Room for the events of all these names; the newest are kept."""
    ticks_bytes: int | None = None
    """Room for the ledger of one schedule; its newest entries are kept."""


RetentionRules = tuple[tuple[str, int], ...]
"""Patterns and what each says of one kind, the one that decides first."""


def retention_from(text: str) -> tuple[Retention, ...]:
    """Read what is stored."""
    return tuple(Retention(*row) for row in json.loads(text))


def text_of_retention(kept: Sequence[Retention]) -> str:
    """Return it as it is stored."""
    return json.dumps(kept)


def rules_of(kept: Sequence[Retention], kind: RetentionKind) -> RetentionRules:
    """Return what is said of a kind: the longest pattern first, which is the narrowest of most."""
    found = [(row.pattern, value) for row in kept if (value := getattr(row, kind)) is not None]
    return tuple(sorted(found, key=lambda rule: (-len(rule[0]), rule[0])))


def rule_for(rules: RetentionRules, name: str) -> tuple[str, int] | None:
    """Return the pattern that decides for a name, and what it says; None without one."""
    return next((rule for rule in rules if glob(name, rule[0])), None)


def value_for(rules: RetentionRules, name: str, default: int) -> int:
    """Return what counts for a name."""
    found = rule_for(rules, name)
    return default if found is None else found[1]
