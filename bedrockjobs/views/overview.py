"""Overview, ListQueues, ListPauses, QueueHistory: the state of the queue at a glance, and its history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.clock import Clock, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands.overview import (
    HISTORY_RANGES,
    ListQueues,
    NextSchedule,
    OverviewReply,
    PauseReply,
    PausesReply,
    QueueCounts,
    QueueHistoryReply,
    QueueReply,
    QueuesReply,
    QueueStep,
)
from bedrockjobs.job.eligibility import Requirements, need_of
from bedrockjobs.job.rows import EVERY_LANE, OPEN_LANE, RuleRow
from bedrockjobs.observe.stats import ALL as ALL_NAMES
from bedrockjobs.observe.stats import JOBS_DONE, SPAN_S, STEP_HOUR, STEP_MINUTE, TOOK, WAITS, Stats, StatsRow
from bedrockjobs.store.base import Reader
from bedrockjobs.views.find import Finder
from bedrockjobs.views.problems import age_s, free_bytes, problems
from bedrockjobs.views.queues import ALL, GROUPS_A_TURN, QueuedGroup, Queues, QueueSnapshot, Totals, aside_of
from bedrockjobs.views.render import in_scope, visible_pattern

SET_ASIDE = ("failed", "unseen", "children", "repeating")
"""Counts of jobs outside of the queue: failed, failed and unseen, waiting for other jobs, schedules."""


class OverviewBuilder:
    """Builds the overview and the lists of queues and pauses, within a scope."""

    def __init__(
        self,
        reader: Reader,
        queues: Queues,
        find: Finder,
        clock: Clock,
        settings: Settings,
        scope: Scope | None = None,
    ) -> None:
        """Build from the given views; ``queues`` and ``find`` must have the same scope."""
        self._scope = scope
        self._settings = settings
        self._reader = reader
        self._queues = queues
        self._find = find
        self._clock = clock

    async def overview(self, *, ahead: bool = True) -> OverviewReply:
        """Return the overview; without ``ahead``, it lists no next schedules."""
        return (await self.overview_and_snapshot(ahead=ahead))[0]

    async def overview_and_snapshot(self, *, ahead: bool = True) -> tuple[OverviewReply, QueueSnapshot]:
        """Return the overview, and the snapshot of the queue from which it was made."""
        snapshot = await self._queues.snapshot()
        totals = await self._queues.totals(snapshot)
        parameters = {"most": ALL}
        aside = await self._reader.view("set_aside", parameters, 1, scans=True)
        running, more_running = await self._queues.running()
        *set_aside, newest_event = aside.rows[0]
        if self._scope is not None:
            set_aside = await self._set_aside(self._scope)
        counts = {"running": sum(running.values()), **dict(zip(SET_ASIDE, set_aside, strict=True))}
        more = totals.more | ({"running"} if more_running else set())
        on_all_hosts = await self._queues.on_all_hosts()
        # Maximum schedules whose last run failed that are counted.
        last_failed = await self._find.schedules_that_failed(1_000)
        rule_rows = await self._reader.view("rules", {"after": ""}, 100)  # as many as there may be
        rules = list(map(RuleRow._make, rule_rows.rows)) if self._scope is None else []
        workers, taking = self._workers(snapshot)
        return (
            OverviewReply(
                now=timestamp(self._clock.now()),
                ready=totals.ready,
                later=totals.later,
                paused=totals.paused,
                blocked=totals.blocked,
                mocked=totals.mocked,
                untaken=totals.untaken,
                **counts,
                pauses=len(snapshot.held.pauses.rows),
                workers=workers,
                taking=taking,
                oldest_ready=totals.oldest,
                more=sorted(more),
                counted_age=int(snapshot.age),
                problems=await problems(
                    snapshot,
                    totals,
                    on_all_hosts,
                    counts["unseen"],
                    last_failed,
                    rules,
                    free_bytes(self._settings) if self._scope is None else None,
                ),
                next=await self._next() if ahead else [],
                newest_event=newest_event,
            ),
            snapshot,
        )

    def _workers(self, snapshot: QueueSnapshot) -> tuple[int, int]:
        """Return how many workers are live and how many take jobs; in a scope, only workers for its names."""
        takers = snapshot.held.takers
        if self._scope is None:
            return len(takers), takers.count_active
        names_taken = frozenset().union(
            *{takers.names_for(group.name, need_of(group.lane)) for group in snapshot.groups}
        )
        return len(names_taken), len(names_taken)

    async def unseen_failures(self) -> int:
        """Return the number of failed jobs that are not acknowledged, at most ``ALL``."""
        if self._scope is None:
            rows = (await self._reader.view("set_aside", {"most": ALL}, 1, scans=True)).rows
            return int(rows[0][SET_ASIDE.index("unseen")])
        return (await self._set_aside(self._scope))[SET_ASIDE.index("unseen")]

    async def _set_aside(self, scope: Scope) -> list[int]:
        """Return the ``SET_ASIDE`` counts within a scope."""
        parameters = {"most": ALL, **aside_of(scope)}
        return list((await self._reader.view("set_aside_of_visible", parameters, 1, scans=True)).rows[0])

    async def _next(self) -> list[NextSchedule]:
        # Maximum schedules that are examined, more than are shown: some of them are running.
        schedules, _ = await self._find.schedules_ahead(None, timestamp_ms(self._clock.now()), 100)
        return [
            NextSchedule(job_id=one.job_id, name=one.name, next_run=one.next_run, paused=one.paused)
            for one in schedules
            if one.state == "QUEUED" and one.next_run < "9999"  # a later one runs only when triggered
        ][:8]

    async def queues(self, command: ListQueues) -> QueuesReply:
        """Return a page of names with the counts of their jobs."""
        names = None
        if command.sort == "jobs":
            names = await self._queues.ranked(command.name, command.after, command.limit)
        if names is None:
            names = await self._queues.names(command.name, command.after, command.limit)
        snapshot = await self._queues.snapshot_of(names)
        (running, more_running), failed = await self._queues.running(), await self._queues.failed()
        on_all_hosts = await self._queues.on_all_hosts()
        groups: dict[str, list[QueuedGroup]] = {name: [] for name in names}
        for group in snapshot.groups:
            groups[group.name].append(group)
        replies = []
        for number, name in enumerate(names):
            if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
                await asyncio.sleep(0)
            totals = Totals()
            await self._queues.add_up(snapshot, groups[name], totals)
            pause = snapshot.held.pause_of(QueuedGroup(OPEN_LANE, name, ""))
            needs = {_need(group, on_all_hosts) for group in groups[name]} or {Requirements()}
            takers = {snapshot.held.takers.names_for(name, need) for need in needs}
            workers = takers.pop() if len(takers) == 1 else frozenset().union(*takers)
            replies.append(
                QueueReply(
                    name=name,
                    ready=totals.ready,
                    later=totals.later,
                    running=running.get(name, 0),
                    paused=totals.paused,
                    blocked=totals.blocked,
                    mocked=totals.mocked,
                    failed=failed.get(name, 0),
                    untaken=totals.untaken,
                    oldest_ready=totals.oldest,
                    age=age_s(totals.oldest, snapshot.held.now),
                    paused_by="" if pause is None else visible_pattern(pause.pattern, self._scope),
                    workers=len(workers),
                    more=snapshot.more or more_running or bool(totals.more),
                    counted_age=int(snapshot.age),
                )
            )
        return QueuesReply(queues=replies)

    async def pauses(self) -> PausesReply:
        """Return the active pauses."""
        rows = await self._queues.pauses()
        return PausesReply(pauses=[PauseReply(**row._asdict()) for row in rows])


def _need(group: QueuedGroup, on_all_hosts: dict[str, Requirements]) -> Requirements:
    """Return what the jobs of a group require of workers."""
    return on_all_hosts.get(group.name, Requirements()) if group.lane == EVERY_LANE else need_of(group.lane)


# The history of names: counts of jobs, waits, durations and numbers of queued jobs, for each step of time.
#
# The statistics (``bedrockjobs.observe.stats``) write these numbers minute by minute; numbers that are not
# written yet are added here.


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
        return await self.of_name(ALL_NAMES, chosen)

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
        rows = (await self._reader.view("stats", parameters, 100_000)).rows  # 50 names with 1,440 steps each
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
