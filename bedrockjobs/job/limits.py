"""Limits, retention and muted failures by name pattern, in their stored form as JSON arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.glob import glob
from bedrockjobs.commands.limits import rate_of
from bedrockjobs.job.rows import Job, Options, parse_lane

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
    """The pattern as a regular expression for SQL if ``running`` and ``starts`` apply to each key, else
    empty."""
    ahead_us: int = 0
    """What ``ahead_of`` returns, for SQL, if ``starts`` applies to each key, else 0."""
    fair: bool = False
    """Whether concurrency keys, and names without a key, are taken in turn: see ``store/turns.py``."""

    @property
    def per_key(self) -> bool:
        """Return whether ``running`` and ``starts`` apply to each concurrency key, not to all together."""
        return bool(self.each_key)

    @property
    def together(self) -> int:
        """Return how many runs may be in progress at once, all keys together; 0 is no limit."""
        return 0 if self.per_key else self.running

    @property
    def starts_together(self) -> str:
        """Return the rate of starts of all keys together; empty is no limit."""
        return "" if self.per_key else self.starts

    @property
    def starts_by_key(self) -> str:
        """Return the rate of starts of each concurrency key; empty is no limit."""
        return self.starts if self.per_key else ""


def slots_of(job: Job, limits: Sequence[Limit]) -> int:
    """Return how many jobs with the lock or the concurrency key of a job may run at once, itself included."""
    return slots_by(job.name, job.options, limits)


def slots_by(name: str, options: Options, limits: Sequence[Limit]) -> int:
    """Return how many jobs with the lock or the concurrency key in ``options`` may run at once."""
    if not options.concurrency_key:
        return 1
    most = [each.running for each in limits if each.per_key and each.running and glob(name, each.pattern)]
    return min(most + ([options.concurrency_limit] if options.concurrency_limit else []), default=1)


def per_key(limits: Sequence[Limit]) -> list[tuple[str, int, str, int]]:
    """Return the limits per key: pattern, number of runs, rate of starts and burst."""
    return [(each.pattern, each.running, each.starts, each.burst) for each in limits if each.per_key]


# A token bucket, stored as one number ``paced``: the time at which all starts so far would have been made at
# an even pace. Each start adds the time between two starts at that pace; ``paced`` may be ahead of the clock
# by as many of them as a burst has starts. A bucket that is not ahead of the clock is full, like one that is
# not stored. There is one bucket for each limit, or for each concurrency key if the limit is per key.
#
# Times are in microseconds since 1970.


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds_of(moment: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def stamp_of(microseconds: int) -> str:
    """Return the timestamp of a time in microseconds since 1970, rounded up to milliseconds."""
    return timestamp_ms(_EPOCH - timedelta(milliseconds=-microseconds // 1000))


def next_start(limit: Limit, paced: int) -> str:
    """Return the earliest time of the next start, as a timestamp."""
    return stamp_of(paced - ahead_of(limit))


def ahead_of(limit: Limit) -> int:
    """Return by how many microseconds ``paced`` may be ahead of the clock if a job may start now."""
    pace, burst = _pace_and_burst(limit)
    return round((burst - 1) * pace)


def after_start(limit: Limit, paced: int, now: int) -> int:
    """Return ``paced`` after a start."""
    pace, _ = _pace_and_burst(limit)
    return round(max(paced, now) + pace)


def most_paced(limit: Limit, now: int) -> int:
    """Return the highest possible ``paced``: as far ahead of the clock as the starts of a burst can be."""
    pace, burst = _pace_and_burst(limit)
    return round(now + burst * pace)


def _pace_and_burst(limit: Limit) -> tuple[float, int]:
    """Return the microseconds between two starts, and how many starts may come at once."""
    rate = rate_of(limit.starts)
    pace_s = rate.period_s / rate.starts
    # Starts that a rate allows within a twentieth of a second may come together, since holding back a pattern
    # between two starts takes a few transactions
    return pace_s * 1_000_000, max(limit.burst or rate.starts, int(0.05 / pace_s) + 1)


def fair_pattern(name: str, limits: Sequence[Limit]) -> str | None:
    """Return the pattern whose keys and names take turns with a name: the longest one; None without any."""
    found = [each.pattern for each in limits if each.fair and glob(name, each.pattern)]
    return max(found, key=len, default=None)


def by_key(name: str, limits: Sequence[Limit]) -> list[Limit]:
    """Return the limits of starts per key that apply to a name."""
    return [each for each in limits if each.starts_by_key and glob(name, each.pattern)]


def paced_key(job: Job) -> str:
    """Return the concurrency key whose starts a start of the job counts for; empty if there is none."""
    return (job.options.concurrency_key or "") if job.lane and parse_lane(job.lane).lock else ""


def start_by_key(job: Job, limits: Sequence[Limit], paced: Callable[[str, str], int]) -> str:
    """Return when a job may start by the limits of starts per key, as a timestamp; empty if none applies.

    ``paced`` returns the bucket of a pattern and a key. Jobs triggered by hand do not wait.
    """
    if not (limits and job.lane) or parse_lane(job.lane).now or not (key := paced_key(job)):
        return ""
    starts = (next_start(each, paced(each.pattern, key)) for each in by_key(job.name, limits))
    return max(starts, default="")


def limits_from(text: str) -> tuple[Limit, ...]:
    """Parse stored limits; an empty text has none. Before schema version 13, ``ahead_us`` was not stored."""
    limits = [Limit(*row) for row in json.loads(text)] if text else []
    return tuple(each._replace(ahead_us=ahead_of(each)) if each.starts_by_key else each for each in limits)


def text_of_limits(limits: Sequence[Limit]) -> str:
    """Return the stored form of limits, without last fields that have their defaults."""
    return json.dumps([each if each.fair else each[:-1] if each.per_key else each[:-3] for each in limits])


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
