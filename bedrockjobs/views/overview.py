"""Overview, ListQueues and ListPauses: the state of the queue at a glance."""

from __future__ import annotations

import asyncio

from bedrockjobs.base.clock import Clock, timestamp, timestamp_ms
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands.overview import (
    ListQueues,
    NextSchedule,
    OverviewReply,
    PauseReply,
    PausesReply,
    QueueReply,
    QueuesReply,
)
from bedrockjobs.job.eligibility import Requirements, need_of
from bedrockjobs.job.rows import EVERY_LANE, OPEN_LANE, RuleRow
from bedrockjobs.store.base import Reader
from bedrockjobs.views.find import Finder
from bedrockjobs.views.problems import age_s, free_bytes, problems
from bedrockjobs.views.queues import ALL, GROUPS_A_TURN, QueuedGroup, Queues, QueueSnapshot, Totals, aside_of
from bedrockjobs.views.render import visible_pattern

RULES_READ = 100
"""Maximum notification rules examined for failed deliveries: as many as there may be."""

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
        rule_rows = await self._reader.view("rules", {"after": ""}, RULES_READ)
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
