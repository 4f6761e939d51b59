"""Limits, retention and muted failures by name pattern, in their stored form as JSON arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bedrockjobs.base.glob import glob
from bedrockjobs.commands.limits import rate_of
from bedrockjobs.job.rows import Job, Options

AT_LIMIT = "(limit)"
"""Author (``by``) of the pause of a pattern whose limit of running jobs or of starts is reached."""

NEXT_START = "next start by"
"""Start of the reason of a pause by ``AT_LIMIT`` because of a rate of starts. The complete reason is
``next start by 100/1m``."""


class Limit(NamedTuple):
    """Limits for the names that match a pattern; 0 is no limit."""

    pattern: str
    """GLOB pattern."""
    queued: int
    """Maximum number of queued jobs, including those that are due later."""
    per_second: int
    """Maximum number of jobs created per second; as many may be created in one burst."""
    running: int
    """Maximum number of runs in progress at the same time."""
    by: str
    since: str
    starts: str = ""
    """Maximum rate at which jobs are started, like ``100/1m`` (100 a minute); empty: no limit."""
    burst: int = 0
    """Maximum number of starts in a burst, after a time without starts; 0: the number in ``starts``."""
    each_key: str = ""
    """The pattern as a regular expression for SQL if ``running`` applies to each key, else empty."""

    @property
    def per_key(self) -> bool:
        """Return whether ``running`` applies to the runs of each concurrency key, not to all together."""
        return bool(self.each_key)

    @property
    def together(self) -> int:
        """Return how many runs may be in progress at once, all keys together; 0 is no limit."""
        return 0 if self.per_key else self.running


def slots_of(job: Job, limits: Sequence[Limit]) -> int:
    """Return how many jobs with the lock or the concurrency key of a job may run at once, itself included."""
    return slots_by(job.name, job.options, limits)


def slots_by(name: str, options: Options, limits: Sequence[Limit]) -> int:
    """Return how many jobs with the lock or the concurrency key in ``options`` may run at once."""
    if not options.concurrency_key:
        return 1
    most = [each.running for each in limits if each.per_key and glob(name, each.pattern)]
    return min(most + ([options.concurrency_limit] if options.concurrency_limit else []), default=1)


def per_key(limits: Sequence[Limit]) -> list[tuple[str, int]]:
    """Return the patterns whose limit is per key, each with its number of runs."""
    return [(each.pattern, each.running) for each in limits if each.per_key]


# A token bucket, stored as one number ``paced``: the time, in seconds, at which all starts so far would have
# been made at an even pace. Each start adds the time between two starts at that pace; ``paced`` may be ahead
# of the clock by as many of them as a burst has starts.


def next_start(limit: Limit, paced: float) -> float:
    """Return the earliest time of the next start, in seconds like ``paced``."""
    pace, burst = _pace_and_burst(limit)
    return paced - (burst - 1) * pace


def after_start(limit: Limit, paced: float, now: float) -> float:
    """Return ``paced`` after a start."""
    pace, _ = _pace_and_burst(limit)
    return max(paced, now) + pace


def after_clock_change(limit: Limit, paced: float, now: float) -> float:
    """Return ``paced`` after the clock was set: no further ahead than the starts of a burst can be."""
    pace, burst = _pace_and_burst(limit)
    return min(paced, now + burst * pace)


def _pace_and_burst(limit: Limit) -> tuple[float, int]:
    rate = rate_of(limit.starts)
    pace = rate.period_s / rate.starts
    # Starts that a rate allows within a twentieth of a second may come together, since holding back a pattern
    # between two starts takes a few transactions
    return pace, max(limit.burst or rate.starts, int(0.05 / pace) + 1)


def limits_from(text: str) -> tuple[Limit, ...]:
    """Parse stored limits; an empty text has none."""
    return tuple(Limit(*row) for row in json.loads(text)) if text else ()


def text_of_limits(limits: Sequence[Limit]) -> str:
    """Return the stored form of limits; earlier versions can read it if no limit is per key."""
    return json.dumps([each if each.per_key else each[:-1] for each in limits])


# Retention by name pattern: the stored form, and the value for one name.


RetentionKind = Literal[
    "runs", "runs_bytes", "output", "output_bytes", "events", "ticks", "events_bytes", "ticks_bytes"
]
"""What has a retention: a size in bytes if the name ends in ``bytes``, else a time in seconds."""


class Retention(NamedTuple):
    """Retention for the names that match a pattern. If it is None, another pattern or the default applies."""

    pattern: str
    """GLOB pattern."""
    by: str
    since: str
    runs: int | None = None
    """Seconds a run is kept after its end."""
    runs_bytes: int | None = None
    """Maximum total size of the runs of all these names, with their output; the newest are kept."""
    output: int | None = None
    """Seconds the output of a run is kept after its end."""
    output_bytes: int | None = None
    """Maximum size of the output kept of one run."""
    events: int | None = None
    """Seconds events are kept."""
    ticks: int | None = None
    """Seconds the tick history of schedules is kept."""
    events_bytes: int | None = None
    """Maximum total size of the events of all these names; the newest are kept."""
    ticks_bytes: int | None = None
    """Maximum size of the tick history of one schedule; its newest entries are kept."""


RetentionRules = tuple[tuple[str, int], ...]
"""Patterns with their values for one kind, in the order of precedence."""


def retention_from(text: str) -> tuple[Retention, ...]:
    """Parse stored retention."""
    return tuple(Retention(*row) for row in json.loads(text))


def text_of_retention(retention: Sequence[Retention]) -> str:
    """Return retention in its stored form."""
    return json.dumps(retention)


def rules_of(retention: Sequence[Retention], kind: RetentionKind) -> RetentionRules:
    """Return the values for a kind, the longest pattern first, which is usually the most specific."""
    rules = [(row.pattern, value) for row in retention if (value := getattr(row, kind)) is not None]
    return tuple(sorted(rules, key=lambda rule: (-len(rule[0]), rule[0])))


def rule_for(rules: RetentionRules, name: str) -> tuple[str, int] | None:
    """Return the pattern that applies to a name, with its value; None if there is none."""
    return next((rule for rule in rules if glob(name, rule[0])), None)


def value_for(rules: RetentionRules, name: str, default: int) -> int:
    """Return the value that applies to a name, or else ``default``."""
    rule = rule_for(rules, name)
    return default if rule is None else rule[1]


# Muted failures, by fingerprint and name pattern.


class Mute(NamedTuple):
    """Failures that are acknowledged (seen) as soon as they happen."""

    fingerprint: str
    pattern: str
    """GLOB pattern of the names."""
    by: str
    reason: str
    since: str
    until: str
    """When the mute ends; if empty, it ends with the first failure in a new release."""
    releases: tuple[str, ...] = ()
    """Versions of the live workers when the mute began; empty if it ends at a time."""

    def covers(self, name: str, now: str) -> bool:
        """Return whether the mute applies to a name now, unless a new release has ended it."""
        return glob(name, self.pattern) and (not self.until or now < self.until)

    def is_new(self, release: str) -> bool:
        """Return whether a failure in a worker of this version ends the mute; False if it is unknown."""
        return bool(release) and not self.until and release not in self.releases


def mutes_from(text: str) -> tuple[Mute, ...]:
    """Parse stored mutes."""
    return tuple(Mute(*row)._replace(releases=tuple(row[6])) for row in json.loads(text))


def text_of_mutes(mutes: Sequence[Mute]) -> str:
    """Return mutes in their stored form."""
    return json.dumps(mutes)
