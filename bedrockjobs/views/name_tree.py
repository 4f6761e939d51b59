"""The queue as a tree of names, split at slashes: backlog, throughput and latency of each branch.

The tree is made from a snapshot of the queue (``bedrockjobs.views.queues``) and two short reads, of the
newest jobs and runs. A fold is a row for one name, or for all names with a prefix up to the next slash.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from bedrockjobs.base.clock import Clock, moment_of
from bedrockjobs.base.principal import Scope
from bedrockjobs.job.eligibility import Requirements, need_of
from bedrockjobs.job.rows import OPEN_LANE
from bedrockjobs.store.base import Reader
from bedrockjobs.views.problems import age_s, pause_text
from bedrockjobs.views.queues import (
    GROUPS_A_TURN,
    NAMES_MAX,
    NAMES_WALKED,
    QueuedGroup,
    Queues,
    QueueSnapshot,
    RunningCounts,
    Totals,
)
from bedrockjobs.views.render import in_scope, visible_pattern

MEASURED_MAX = 1_000
"""Maximum runs, and maximum jobs, by which rates are measured: the newest, read in a few milliseconds."""

MEASURED_S = 300.0
"""Seconds over which rates are measured; fewer if ``MEASURED_MAX`` runs or jobs do not reach back so far."""


class Percentiles(NamedTuple):
    """Median and 95th percentile, in seconds."""

    p50: float
    p95: float


@dataclass(slots=True)
class Fold:
    """One row: the name ``label``, or if it ends with a slash, all names with this prefix."""

    label: str
    names: int = 1
    totals: Totals = field(default_factory=Totals)
    running: int = 0
    more_running: bool = False
    """True if more jobs are running than were counted."""
    failed: int = 0
    more: bool = False
    """True if not all names or jobs were counted."""
    age: int = 0
    """Age in seconds of the oldest ready job."""
    workers: tuple[str, ...] = ()
    """The live workers that take jobs of any of its names."""
    paused_by: str = ""
    """The pattern of the pause that applies to all of its names."""
    pause_descriptions: str = ""
    incoming: float | None = None
    """Jobs created per minute; None if unknown."""
    outgoing: float | None = None
    """Runs ended per minute."""
    wait: Percentiles | None = None
    took: Percentiles | None = None

    @property
    def folded(self) -> bool:
        """Return whether the row is for several names."""
        return self.names > 1 or self.more


class Folds(NamedTuple):
    """Rows, those with most jobs first; how many rows were left out; whether names were not examined."""

    rows: list[Fold]
    left_out: int
    more: bool
    age: int = 0
    """Seconds since the queued jobs were counted."""


class _Measurements(NamedTuple):
    """What the newest jobs and runs of one fold show."""

    came: list[datetime]
    ended: list[datetime]
    waits: list[float]
    took: list[float]


class NameTree:
    """Groups names into folds, within a scope."""

    def __init__(self, reader: Reader, queues: Queues, clock: Clock, scope: Scope | None = None) -> None:
        """Read queued jobs from ``queues``, and the newest jobs and runs from ``reader``."""
        self._reader = reader
        self._queues = queues
        self._clock = clock
        self._scope = scope

    async def all(self, most: int) -> Folds:
        """Return at most ``most`` rows for all names, grouped at the first slash."""
        snapshot = await self._queues.snapshot()
        running, failed = await self._queues.running(), await self._queues.failed()
        names = {group.name for group in snapshot.groups} | running.by_name.keys() | failed.keys()
        labels = {name: _label(name, "") for name in names}
        return await self._folds(snapshot, labels, "", running, failed, most)

    async def some(self, pattern: str, under: str, most: int) -> Folds:
        """Return rows for the names that match a GLOB, grouped at the next slash after the prefix ``under``.

        Without ``under``, each name has a row of its own.
        """
        names, more = await self._queues.first_names(pattern, "", NAMES_MAX, NAMES_WALKED)
        if more and (counted := await self._queues.counted_names(pattern)) is not None:
            names, more = counted, False
        snapshot = await self._queues.snapshot_of(names)
        running, failed = await self._queues.running(), await self._queues.failed()
        labels = {name: _label(name, under) if under else name for name in names}
        folds = await self._folds(snapshot, labels, under, running, failed, most)
        return folds._replace(more=folds.more or more)

    async def _folds(
        self,
        snapshot: QueueSnapshot,
        labels: dict[str, str],
        under: str,
        running: RunningCounts,
        failed: dict[str, int],
        most: int,
    ) -> Folds:
        members: dict[str, list[str]] = {}
        for name, label in labels.items():
            members.setdefault(label, []).append(name)
        rests = {_label(group.name, under) for group in snapshot.groups if group.rest}
        shown = {
            name: label if len(members[label]) > 1 or label in rests else name
            for name, label in labels.items()
        }
        groups: dict[str, list[QueuedGroup]] = {}
        for group in snapshot.groups:
            groups.setdefault(shown[group.name], []).append(group)
        folds = {label: Fold(label, names=0) for label in set(shown.values())}
        names: dict[str, list[str]] = {}
        for name, label in shown.items():
            names.setdefault(label, []).append(name)
            fold = folds[label]
            fold.names += 1
            fold.running += running.by_name.get(name, 0)
            fold.more_running = running.more
            fold.failed += failed.get(name, 0)
        piled, later = await _backlogs(snapshot, shown)
        rows = sorted(
            folds.values(),
            key=lambda fold: (
                -piled[fold.label],
                -fold.failed,
                -fold.running,
                -later[fold.label],
                fold.label,
            ),
        )
        left_out, rows = len(rows[most:]), rows[:most]
        for fold in rows:
            await self._queues.add_up(snapshot, groups.get(fold.label, []), fold.totals)
            fold.more = fold.label in rests or bool(fold.totals.more)
            _set_workers(fold, snapshot, groups.get(fold.label, []), names[fold.label])
            fold.paused_by = visible_pattern(fold.paused_by, self._scope)
            fold.age = age_s(fold.totals.oldest, snapshot.held.now)
        await self._measure({fold.label: fold for fold in rows}, shown, under)
        return Folds(rows, left_out, snapshot.more, int(snapshot.age))

    async def _measure(self, folds: dict[str, Fold], shown: dict[str, str], under: str) -> None:
        """Set the throughput and the latency of each fold."""
        now = self._clock.now()
        jobs = (await self._reader.view("newest_jobs", {}, MEASURED_MAX, scans=True)).rows
        runs = (await self._reader.view("newest_runs", {}, MEASURED_MAX, scans=True)).rows
        seen: dict[str, _Measurements] = {}

        def of(name: str) -> _Measurements | None:
            if not in_scope(self._scope, name):
                return None
            label = shown.get(name) or _label(name, under)
            return seen.setdefault(label, _Measurements([], [], [], [])) if label in folds else None

        for name, created, is_new in jobs:
            if is_new and (measured := of(name)):
                measured.came.append(moment_of(created))
        for name, attempt, due, started, ended in runs:
            measured = of(name)
            if measured is None:
                continue
            meant, began = moment_of(due), moment_of(started)
            measured.waits.append(max((began - meant).total_seconds(), 0))
            if attempt == 1:
                measured.came.append(meant)
            if ended:
                measured.ended.append(moment_of(ended))
                measured.took.append(max((measured.ended[-1] - began).total_seconds(), 0))
        back = [
            _covered_period(now, [row[1] for row in jobs]),
            _covered_period(now, [row[3] for row in runs]),
        ]
        for label, measured in seen.items():
            fold = folds[label]
            fold.incoming = _rate_per_minute(now, measured.came, min(back))
            fold.outgoing = _rate_per_minute(now, measured.ended, back[1])
            fold.wait, fold.took = spread(measured.waits), spread(measured.took)


async def _backlogs(snapshot: QueueSnapshot, labels: Mapping[str, str]) -> tuple[Counter[str], Counter[str]]:
    """Return by fold how many jobs are ready, blocked or paused, and how many are not due yet."""
    piled: Counter[str] = Counter()
    later: Counter[str] = Counter()
    for number, group in enumerate(snapshot.groups):
        if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
            await asyncio.sleep(0)
        stands, label = snapshot.held.standing(group, due=True), labels[group.name]
        later[label] += group.later
        if stands in ("ready", "blocked", "paused"):
            piled[label] += group.due + (group.later if stands == "paused" else 0)
    return piled, later


def _label(name: str, under: str) -> str:
    """Return the fold of a name: up to the next slash after ``under``, or the whole name."""
    head, slash, _ = name[len(under) :].partition("/")
    return f"{under}{head}{slash}"


def _set_workers(
    fold: Fold, snapshot: QueueSnapshot, groups: Sequence[QueuedGroup], names: Sequence[str]
) -> None:
    """Set the workers of a fold, and the pause that applies to all of its names."""
    held = snapshot.held
    needs = {lane: need_of(lane) for lane in {group.lane for group in groups}}
    required = {(group.name, needs[group.lane]) for group in groups} | {
        (name, Requirements()) for name in names
    }
    fold.workers = tuple(
        sorted(frozenset().union(*{held.takers.names_for(name, need) for name, need in required}))
    )
    pauses = {held.pauses.pause_for(name, OPEN_LANE) for name in names} if held.pauses.rows else set()
    pause = next(iter(pauses)) if len(pauses) == 1 else None
    if pause is not None:
        fold.paused_by = pause.pattern
        fold.pause_descriptions = pause_text(pause) + (f": {pause.reason}" if pause.reason else "")


def spread(spans: list[float]) -> Percentiles | None:
    """Return the percentiles of durations; None if there are none."""
    if not spans:
        return None
    ranked = sorted(spans)
    return Percentiles(ranked[(len(ranked) - 1) // 2], ranked[(len(ranked) * 95 + 99) // 100 - 1])


def _covered_period(now: datetime, timestamps: list[str]) -> float:
    """Return the last seconds, up to ``MEASURED_S``, for which the timestamps are complete."""
    if len(timestamps) < MEASURED_MAX:
        return MEASURED_S
    return min(max((now - moment_of(min(timestamps))).total_seconds(), 1), MEASURED_S)


def _rate_per_minute(now: datetime, moments: list[datetime], back_s: float) -> float:
    """Return how many moments per minute were in the last ``back_s`` seconds."""
    return sum((now - moment).total_seconds() <= back_s for moment in moments) * 60 / back_s
