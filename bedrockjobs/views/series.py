"""The history of names: counts of jobs, waits, durations and numbers of queued jobs, for each step of time.

The statistics (``bedrockjobs.observe.stats``) write these numbers minute by minute; numbers that are not
written yet are added here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.clock import Clock, moment_of, timestamp
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.base.principal import Scope
from bedrockjobs.commands.overview import HISTORY_RANGES, QueueCounts, QueueHistoryReply, QueueStep
from bedrockjobs.observe.stats import (
    ALL,
    JOBS_DONE,
    SPAN_S,
    STEP_HOUR,
    STEP_MINUTE,
    TOOK,
    WAITS,
    Stats,
    StatsRow,
)
from bedrockjobs.store.base import Reader
from bedrockjobs.views.queues import Queues
from bedrockjobs.views.render import in_scope

ROWS_MAX = 100_000
"""Maximum rows of one read: enough for 50 names with 1,440 one-minute steps each."""

_COUNTS = slice(3, 3 + TOOK.stop)
"""Where the counts are in a row of the table ``stats``."""


class _Sums(NamedTuple):
    """The sums of one step."""

    counts: list[int]
    depth: int | None


class Histories:
    """Reads the series of names, within a scope."""

    def __init__(self, reader: Reader, stats: Stats, clock: Clock, scope: Scope | None = None) -> None:
        """Read the table through ``reader``, and rows that this server has not written yet from ``stats``."""
        self._reader = reader
        self._stats = stats
        self._clock = clock
        self._scope = scope

    async def of_all(self, chosen: str) -> QueueHistoryReply:
        """Return the history of all names together; raises Forbidden within a scope."""
        if self._scope is not None:
            raise Forbidden(detail="statistics are not available for tokens limited to some names")
        return await self.of_name(ALL, chosen)

    async def of_name(self, name: str, chosen: str) -> QueueHistoryReply:
        """Return the history of a name over one of ``HISTORY_RANGES``."""
        length_s, step_s = HISTORY_RANGES[chosen]
        first, last = self._ends(length_s, step_s)
        steps: dict[int, _Sums] = {}
        for row in await self._rows([name], first, STEP_HOUR if step_s % STEP_HOUR == 0 else STEP_MINUTE):
            at = _seconds(row[2])
            at -= at % step_s
            found = steps.get(at)
            counts = row[_COUNTS] if found is None else _sum((found.counts, row[_COUNTS]))
            depth = row[-1] if row[-1] is not None or found is None else found.depth
            steps[at] = _Sums(list(counts), depth)
        nothing = _Sums([0] * TOOK.stop, None)
        return QueueHistoryReply(
            name=name,
            step=step_s,
            total=QueueCounts.model_validate(_counts(_sum(step.counts for step in steps.values()))),
            steps=[
                QueueStep.model_validate({"at": _timestamp(at), "depth": step.depth, **_counts(step.counts)})
                for at in range(first, last, step_s)
                for step in (steps.get(at, nothing),)
            ],
        )

    def _ends(self, length_s: int, step_s: int) -> tuple[int, int]:
        """Return the first second of a range that ends now, and the second after its last step."""
        now = int(self._clock.now().timestamp())
        last = now - now % step_s + step_s
        return last - length_s, last

    async def _rows(self, names: Sequence[str], first: int, step: int) -> list[StatsRow]:
        """Return the rows of names since a time; rows that are not written yet come last."""
        shown = [name for name in names if in_scope(self._scope, name)]
        since = _timestamp(first)
        parameters = {"names": jsontext.dump(shown), "step": step, "since": since}
        rows = (await self._reader.view("stats", parameters, ROWS_MAX)).rows
        unwritten = [row for row in self._stats.unwritten(shown) if row[1] == step and row[2] >= since]
        return [*rows, *unwritten]


class DepthSampler(BackgroundTask):
    """Counts the queued jobs by name, in each minute in which something happened and in the minute after it.

    It uses the same count of the queue as the pages, which takes at most 5 % of a reader's time.
    """

    def __init__(self, queues: Queues, stats: Stats, every_s: float = 60.0) -> None:
        """Count with ``queues`` every ``every_s`` seconds, and pass the counts to ``stats``.

        By default, this is the shortest step of a history.
        """
        self._queues = queues
        self._stats = stats
        self._every_s = every_s

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            with suppress(CommandError):  # the reader is busy: the next count follows soon
                await self.sample()

    async def sample(self) -> None:
        """Count once, unless nothing happened or the queue is too large to be counted."""
        if not self._stats.wants_depths:
            return
        snapshot = await self._queues.snapshot()
        if snapshot.more or any(group.more or group.rest for group in snapshot.groups):
            return
        depths: Counter[str] = Counter()
        for group in snapshot.groups:
            depths[group.name] += group.due + group.later
        self._stats.note_depths(depths)


def _sum(rows: Iterable[Sequence[int]]) -> list[int]:
    sums = [0] * TOOK.stop
    for row in rows:
        sums = [one + other for one, other in zip(sums, row, strict=True)]
    return sums


def _counts(counts: Sequence[int]) -> dict[str, int | float | None]:
    waits, took = counts[WAITS], counts[TOOK]
    return {
        **dict(zip(JOBS_DONE, counts, strict=False)),
        "wait_p50": quantile(waits, 0.5),
        "wait_p95": quantile(waits, 0.95),
        "took_p50": quantile(took, 0.5),
        "took_p95": quantile(took, 0.95),
    }


def quantile(buckets: Sequence[int], part: float) -> float | None:
    """Return an estimate of a quantile in seconds from the buckets of ``SPAN_S``; None if all are empty.

    The estimate is interpolated within its bucket; beyond the last bound, it is that bound.
    """
    left = part * sum(buckets)
    if not left:
        return None
    for below, above, count in zip((0.0, *SPAN_S), SPAN_S, buckets, strict=False):
        if left <= count:
            within = left / count
            exact = above * within if not below else below * (above / below) ** within
            return float(f"{exact:.2g}")
        left -= count
    return float(SPAN_S[-1])


def _seconds(text: str) -> int:
    return int(moment_of(text).timestamp())


def _timestamp(at: int) -> str:
    return timestamp(datetime.fromtimestamp(at, UTC))
