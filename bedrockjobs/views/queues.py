"""Snapshots of the queue: what is queued, and whether it may be taken.

The terms are those of ``bedrockjobs.job.eligibility``. A lane is the part of the queue whose jobs have the
same lock and the same requirements. A snapshot reads the queue by groups, one for each lane and name, never
job by job. Beyond a limit it sets ``more``; its counts are lower bounds then. Within a scope, it reads only
names in scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, moment_of, timestamp_ms
from bedrockjobs.base.config import LIST_MAX, PAUSES_MAX
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.principal import Scope
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.eligibility import (
    Drain,
    EligibleWorkers,
    LockHolders,
    Pauses,
    Readiness,
    Requirements,
    lock_holder,
    need_of,
    plain_pattern,
    readiness_of,
)
from bedrockjobs.job.limits import Limit, limits_from, microseconds_of, next_start, slots_by
from bedrockjobs.job.rows import MOCK_LANE, UNTAKEN, PauseRow, decode_options, parse_lane
from bedrockjobs.store.base import Reader
from bedrockjobs.views.render import (
    filter_of,
    in_scope,
    name_range,
    patterns_of,
    prefix_of_all,
    visible_pauses,
)

NAMES_MAX = 1_000
"""Maximum names examined for one pattern or scope; there may be more."""

NAMES_WALKED = 40_000
"""Maximum names scanned to find matching ones; reading them takes 40 ms."""

GROUPS_MAX = 1_000
"""Maximum groups in a snapshot; each costs about 20 index seeks."""

ALIKE_MAX = 100
"""Maximum names with the same prefix, up to a slash, that get a group each; further names share a group."""

COUNTED_MAX = 10_000
"""Maximum jobs counted in one group."""

COUNTS_MAX = 10_000
"""Maximum jobs counted in one snapshot, in about 20 ms."""

COUNTED_LEAST = 10
"""Jobs that are counted in each group even if the limit of the snapshot is exceeded."""

GROUPS_READ_MAX = 20_000
"""Maximum pairs of name and lane that are looked up for a page of names."""

SET_ASIDE_SCANNED = 50_000
"""Maximum failed or waiting jobs scanned for a scope, by its common prefix; reading them takes 50 ms."""

RUNNING_COUNTED_MAX = 100_000
"""Maximum running jobs that are counted, in 0.3 s of a reader: more than a server has workers for."""

OLDEST_MAX = 20_000
"""Maximum jobs scanned, oldest first, for running jobs without a worker's name, which no index covers."""

HELD_MAX = 10_000
"""Maximum lanes of running jobs in a snapshot: more than any installation has at a time."""

ALL = 100_000_000
"""Maximum failed, waiting or repeating jobs that are counted: in effect all. A million take 0.1 s."""

COUNT_S = 5.0
"""Maximum seconds for counting the whole queue; if they do not suffice, only a part is counted."""

COUNT_SLICE = 1_000
"""Maximum groups counted by one query, so that other reads can run in between."""

NAMES_COUNTED_MAX = 20_000
"""Maximum groups kept from a full count, those with the most jobs: about 5 MB."""

AGE_PER_COST = 20
"""A full count is cached for this many times its duration, so that counting takes at most 5 % of a reader's
time."""

COUNTED_EACH_TIME = 20_000
"""Maximum jobs of a full count that is not cached but repeated for every snapshot, in about 20 ms."""

AGE_MAX_S = 60.0
"""Maximum age of a cached count in seconds."""

GROUPS_A_TURN = 100
"""Groups processed between two yields to the event loop."""


@dataclass(slots=True)
class QueuedGroup:
    """The queued jobs of one lane and name; with ``rest``, also of all later names with the same prefix."""

    lane: str
    name: str
    oldest: str
    """The earliest ``nextRun``, whether due or not; empty if unknown."""
    rest: bool = False
    """True if the group has ``name`` and all names after it with the same prefix up to a slash."""
    due: int = 0
    later: int = 0
    more_due: bool = False
    """True if more jobs are due than were counted."""
    more_later: bool = False

    @property
    def more(self) -> bool:
        """Return whether there are more jobs than were counted."""
        return self.more_due or self.more_later


class Held(NamedTuple):
    """Pauses, held locks and workers at one point in time."""

    now: str
    pauses: Pauses
    holders: dict[str, LockHolders]
    """The running jobs that hold each lock."""
    takers: EligibleWorkers
    drains: dict[str, Drain]
    limits: tuple[Limit, ...] = ()
    may_name_all: bool = True
    """True if messages may name any worker and job; False within a scope."""
    starts: Mapping[str, Sequence[tuple[str, Limit]]] = MappingProxyType({})
    """By concurrency key that has to wait: its next start by each limit per key, as a timestamp."""

    def standing(self, group: QueuedGroup, *, due: bool) -> Readiness:
        """Return whether jobs of a group that are due, or not due, are ready, later, paused or blocked."""
        waits = self.next_start(group) is not None
        return readiness_of(
            group.name, group.lane, due=due, pauses=self.pauses, holders=self.holders, waits=waits
        )

    def next_start(self, group: QueuedGroup) -> tuple[str, Limit] | None:
        """Return when the key of a group may start its next job, and the limit; None if it need not wait."""
        if not self.starts:
            return None
        lane = parse_lane(group.lane)
        found = () if lane.now else self.starts.get(lane.lock, ())
        matching = (each for each in found if glob(group.name, each[1].pattern))
        return max(matching, key=itemgetter(0), default=None)

    def pause_of(self, group: QueuedGroup) -> PauseRow | None:
        """Return the pause that applies to a group."""
        return self.pauses.pause_for(group.name, group.lane)

    def lock_holder(self, group: QueuedGroup) -> int | None:
        """Return the jobID of a job that holds a group's lock, or None if another job may take the lock."""
        return lock_holder(group.lane, self.holders)


@dataclass(slots=True)
class Totals:
    """Counts of queued jobs by standing: ready, later, paused, blocked, mocked."""

    ready: int = 0
    later: int = 0
    paused: int = 0
    blocked: int = 0
    mocked: int = 0
    untaken: int = 0
    """Ready jobs that no worker takes."""
    oldest: str = ""
    """When the oldest ready job became due."""
    more: set[str] = field(default_factory=set)
    """The names of the counts that are lower bounds."""

    def count(self, name: Readiness, jobs: int, *, more: bool) -> None:
        """Add to the count of one standing; with ``more``, the count becomes a lower bound."""
        setattr(self, name, getattr(self, name) + jobs)
        if more:
            self.more.add(name)

    def note_oldest(self, timestamp: str) -> None:
        """Note when a ready job became due, if that is earlier than ``oldest``."""
        if timestamp:
            self.oldest = min(filter(None, (self.oldest, timestamp)))


class RunningCounts(NamedTuple):
    """The number of running jobs by name."""

    by_name: dict[str, int]
    more: bool
    """True if more jobs are running than were counted."""


class QueueSnapshot(NamedTuple):
    """A snapshot of the queue."""

    held: Held
    groups: list[QueuedGroup]
    more: bool
    """True if groups were left out."""
    unlocked_lanes: list[str]
    """The lanes without a held lock: their due jobs are ready unless paused."""
    age: float = 0.0
    """Seconds since the jobs were counted."""


class _Count(NamedTuple):
    """A count of the whole queue."""

    groups: list[QueuedGroup]
    more: bool
    """True if groups were left out."""
    at: float
    """When the count began, by the clock of the event loop."""
    cost_s: float


class _BegunCount(NamedTuple):
    """A count of the whole queue that was not finished in time, and which the next call continues."""

    groups: list[QueuedGroup]
    more: bool
    last: tuple[str, str]
    """The last lane and name that were counted."""
    size: int
    """How many groups the next query counts."""
    at: float


class Queues:
    """Takes snapshots of the queue, limited to a scope."""

    def __init__(
        self, reader: Reader, presence: WorkerRegistry, clock: Clock, scope: Scope | None = None
    ) -> None:
        """Read jobs from ``reader`` and live workers from ``presence``."""
        self._reader = reader
        self._presence = presence
        self._clock = clock
        self._scope = scope
        self._counted: _Count | None = None
        self._begun: _BegunCount | None = None
        self._counting = asyncio.Lock()

    # --- pauses, locks and workers -----------------------------------------------------------------------

    @property
    def now(self) -> str:
        """Return the current timestamp, in milliseconds."""
        return timestamp_ms(self._clock.now())

    async def held(self) -> Held:
        """Read the pauses, the held locks and the live workers."""
        now = timestamp_ms(self._clock.now())
        pauses = Pauses(await self.pauses(now))
        drains = (await self._reader.view("drained_workers", {}, HELD_MAX)).rows
        holders: dict[str, LockHolders] = {}
        found = (await self._reader.view("limits_set", {}, 1)).rows
        limits = limits_from(found[0][0]) if found else ()
        for lane, job_id, running, name, options in (
            await self._reader.view("lanes_held", {}, HELD_MAX)
        ).rows:
            if lock := parse_lane(lane).lock:
                one = LockHolders(running, job_id, slots_by(name, decode_options(options), limits))
                first = min(holders.get(lock, one), one, key=lambda held: held.first)
                before = holders[lock].running if lock in holders else 0
                holders[lock] = first._replace(running=before + running)
        drained = {row[0]: Drain._make(row) for row in drains}
        takers = EligibleWorkers(self._presence.workers, drained, self._presence.requested_names)
        starts = await self._starts(limits, now)
        return Held(now, pauses, holders, takers, drained, limits, self._scope is None, starts)

    async def _starts(self, limits: Sequence[Limit], now: str) -> dict[str, list[tuple[str, Limit]]]:
        """Return the keys that have to wait, with their next starts."""
        found: dict[str, list[tuple[str, Limit]]] = {}
        for limit in limits:
            if limit.starts_by_key:
                above = microseconds_of(moment_of(now)) + limit.ahead_us
                parameters = {"pattern": limit.pattern, "above": above}
                for key, paced in (await self._reader.view("keys_that_wait", parameters, HELD_MAX)).rows:
                    found.setdefault(key, []).append((next_start(limit, paced), limit))
        return found

    async def pauses(self, now: str = "") -> tuple[PauseRow, ...]:
        """Return the active pauses, by pattern."""
        parameters = {"now": now or timestamp_ms(self._clock.now())}
        rows = (await self._reader.view("pauses_held", parameters, PAUSES_MAX)).rows
        return visible_pauses(map(PauseRow._make, rows), self._scope)

    async def on_all_hosts(self) -> dict[str, Requirements]:
        """Return what each schedule on all hosts requires of workers, by its name."""
        rows = (await self._reader.view("schedules_on_all_hosts", {}, LIST_MAX)).rows
        return {
            name: Requirements(decode_options(options).own_command)
            for name, options in rows
            if in_scope(self._scope, name)
        }

    # --- snapshots ---------------------------------------------------------------------------------------

    async def snapshot(self) -> QueueSnapshot:
        """Take a snapshot of the whole queue, within the scope."""
        if self._scope is not None:
            names, more = await self.first_names(None, "", NAMES_MAX, NAMES_WALKED)
            snapshot = await self.snapshot_of(names)
            return snapshot._replace(more=snapshot.more or more)
        if (counted := await self._count_all()) is not None:
            age = asyncio.get_running_loop().time() - counted.at
            return QueueSnapshot(await self.held(), counted.groups, counted.more, [], age)
        held = await self.held()
        lanes, more = await self._lanes()
        parameters = {
            "lanes": jsontext.dump(lanes),
            "alike": ALIKE_MAX,
            "walked": GROUPS_MAX + len(lanes) + 1,
        }
        page = await self._reader.view("queue_groups", parameters, GROUPS_MAX, scans=True)
        groups = [QueuedGroup(lane, name, oldest or "", bool(rest)) for lane, name, rest, oldest in page.rows]
        await self._count(groups, held)
        open_lanes = [
            lane
            for lane in lanes
            if lane not in (MOCK_LANE, *UNTAKEN)
            and lock_holder(lane, held.holders) is None
            and parse_lane(lane).lock not in held.starts
        ]
        return QueueSnapshot(held, groups, more or page.more, open_lanes)

    async def snapshot_of(self, names: Sequence[str]) -> QueueSnapshot:
        """Take a snapshot of the given names."""
        if self._scope is None and (counted := await self._count_all()) is not None and not counted.more:
            wanted = set(names)
            age = asyncio.get_running_loop().time() - counted.at
            groups = [group for group in counted.groups if group.name in wanted]
            return QueueSnapshot(await self.held(), groups, False, [], age)
        held = await self.held()
        lanes, more = await self._lanes()
        most = max(GROUPS_READ_MAX // max(len(names), 1), 1)
        more, lanes = more or len(lanes) > most, lanes[:most]
        parameters = {"lanes": jsontext.dump(lanes), "names": jsontext.dump(list(names))}
        page = await self._reader.view("queue_groups_of_names", parameters, GROUPS_READ_MAX, scans=True)
        groups = [QueuedGroup(lane, name, oldest or "") for lane, name, _, oldest in page.rows]
        await self._count(groups, held)
        return QueueSnapshot(held, groups, more or page.more, [])

    async def _count_all(self) -> _Count | None:
        """Return a count of the whole queue, cached for a time in proportion to its cost.

        If counting takes too long, returns the previous count, or None; the next call continues. The index is
        read in slices; concurrent callers wait for the same count.
        """
        loop = asyncio.get_running_loop()
        async with self._counting:
            known = self._counted
            if known is not None and loop.time() - known.at < min(known.cost_s * AGE_PER_COST, AGE_MAX_S):
                return known
            late, now = loop.time() + COUNT_S, timestamp_ms(self._clock.now())
            groups: list[QueuedGroup] = []
            more, last, size, began = False, ("", ""), COUNT_SLICE, loop.time()
            if self._begun is not None and began - self._begun.at < AGE_MAX_S:
                groups, more, last, size, began = self._begun
            self._begun = None
            while True:
                if loop.time() >= late:
                    self._begun = _BegunCount(groups, more, last, size, began)
                    return known
                parameters = {"now": now, "lane": last[0], "name": last[1]}
                try:
                    page = await self._reader.view("count_all_groups", parameters, size, scans=True)
                except TimedOut:  # few names have very many jobs, or the machine is busy
                    if size == 1:
                        return known
                    size = max(size // 8, 1)
                    continue
                for lane, name, due, later, oldest in page.rows:
                    groups.append(QueuedGroup(lane, name, oldest, due=due, later=later))
                if len(groups) > 2 * NAMES_COUNTED_MAX or (not page.more and len(groups) > NAMES_COUNTED_MAX):
                    groups.sort(key=lambda group: group.due + group.later, reverse=True)
                    del groups[NAMES_COUNTED_MAX:]
                    more = True
                if not page.more:
                    break
                last = page.rows[-1][:2]
            counted = _Count(groups, more, began, loop.time() - began)
            few = sum(group.due + group.later for group in groups) + len(groups) <= COUNTED_EACH_TIME
            self._counted = None if few else counted
            return counted

    async def ranked(self, pattern: str | None, after: str, limit: int) -> list[str] | None:
        """Return matching names, those with most due jobs first, beginning after the name ``after``.

        Leaves out names without queued, running or failed jobs. Returns None within a scope, or if the queue
        is too large to be counted.
        """
        if self._scope is not None or (counted := await self._count_all()) is None:
            return None
        due: dict[str, int] = {}
        later: dict[str, int] = {}
        for group in counted.groups:
            due[group.name] = due.get(group.name, 0) + group.due
            later[group.name] = later.get(group.name, 0) + group.later
        (running, _), failed = await self.running(), await self.failed()
        names = await matching(due.keys() | running.keys() | failed.keys(), pattern)
        names.sort(
            key=lambda name: (
                -due.get(name, 0),
                -failed.get(name, 0),
                -running.get(name, 0),
                -later.get(name, 0),
                name,
            )
        )
        begin = names.index(after) + 1 if after in names else 0
        return names[begin : begin + limit]

    async def _lanes(self) -> tuple[list[str], bool]:
        # Maximum lanes in a snapshot: there is one for each lock, and for each worker with jobs of its own.
        page = await self._reader.view("queue_lanes", {}, 1_000, scans=True)
        return [row[0] for row in page.rows], page.more

    async def _count(self, groups: list[QueuedGroup], held: Held) -> None:
        """Count the jobs of each group: the fewer groups there are, the more jobs of each are counted."""
        budget = COUNTS_MAX  # jobs that are counted again count once
        open_groups = [group for group in groups if not group.rest]
        most = 0
        while open_groups:
            further = max(min(budget // len(open_groups), COUNTED_MAX), COUNTED_LEAST)
            if further <= most:
                break
            most = further
            pairs = [[group.lane, group.name] for group in open_groups]
            parameters = {"groups": jsontext.dump(pairs), "now": held.now, "most": most + 1}
            rows = (await self._reader.view("count_groups", parameters, len(pairs), scans=True)).rows
            for key, due, later in rows:
                group = open_groups[key]
                group.due, group.later = min(due, most), min(later, most)
                group.more_due, group.more_later = due > most, later > most
                budget -= 0 if group.more else group.due + group.later
            open_groups = [group for group in open_groups if group.more]
        budget -= sum(group.due + group.later for group in open_groups)
        await self._count_rests([group for group in groups if group.rest], held, max(budget, 0))

    async def _count_rests(self, rests: list[QueuedGroup], held: Held, budget: int) -> None:
        """Count the groups of several names, except groups where a pause applies only to some names."""
        for group in rests:
            group.more_due = group.more_later = True
        uniform = [group for group in rests if self._is_uniform(group, held)]
        if not uniform:
            return
        most = max(min(budget // len(uniform), COUNTED_MAX), COUNTED_LEAST)
        ranges = [[group.lane, group.name, f"{prefix_of(group.name)}0"] for group in uniform]
        parameters = {"rests": jsontext.dump(ranges), "now": held.now, "most": most}
        for key, counts in (await self._reader.view("count_rests", parameters, len(ranges), scans=True)).rows:
            due, later, oldest, looked = jsontext.parse(counts)
            group = uniform[key]
            group.due, group.later, group.oldest = int(due), int(later), oldest or ""
            group.more_due = group.more_later = looked == most

    @staticmethod
    def _is_uniform(group: QueuedGroup, held: Held) -> bool:
        """Return whether each pause applies to all names of a group or to none of them."""
        beginning = f"{prefix_of(group.name)}/"
        for pause in held.pauses.rows:
            fixed = literal_prefix(pause.pattern)
            if plain_pattern(pause.pattern) == f"{fixed}*" and beginning.startswith(fixed):
                continue
            if fixed.startswith(beginning) or beginning.startswith(fixed):
                return False
        return True

    # --- sums --------------------------------------------------------------------------------------------

    async def add_up(self, snapshot: QueueSnapshot, groups: Iterable[QueuedGroup], totals: Totals) -> None:
        """Add the counts of groups to ``totals``."""
        held = snapshot.held
        for number, group in enumerate(groups):
            if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
                await asyncio.sleep(0)
            stands = held.standing(group, due=True)
            totals.count(stands, group.due, more=group.more_due)
            if group.later or group.more_later:
                totals.count(held.standing(group, due=False), group.later, more=group.more_later)
            if stands == "ready":
                if group.oldest and group.oldest <= held.now:
                    totals.note_oldest(group.oldest)
                if not group.rest and not held.takers.any_eligible(group.name, need_of(group.lane)):
                    totals.untaken += group.due

    async def totals(self, snapshot: QueueSnapshot) -> Totals:
        """Return the totals of a snapshot of the whole queue."""
        totals = Totals()
        await self.add_up(snapshot, snapshot.groups, totals)
        if snapshot.more:
            totals.more |= {"ready", "later", "paused", "blocked", "mocked"}
            if (
                snapshot.unlocked_lanes and not snapshot.held.pauses.rows
            ):  # then the lanes alone say what is ready
                await self._by_lanes(snapshot, totals)
        if "ready" in totals.more:
            totals.more.add("untaken")
        return totals

    async def _by_lanes(self, snapshot: QueueSnapshot, totals: Totals) -> None:
        parameters: dict[str, Any] = {
            "lanes": jsontext.dump(snapshot.unlocked_lanes),
            "now": snapshot.held.now,
        }
        page = await self._reader.view("lanes_at_once", {**parameters, "most": COUNTED_MAX}, 1, scans=True)
        due, oldest = page.rows[0]
        totals.ready = max(totals.ready, due)
        if oldest is not None and oldest <= snapshot.held.now:
            totals.note_oldest(oldest)

    async def running(self) -> RunningCounts:
        """Count the running jobs by name."""
        most = RUNNING_COUNTED_MAX
        parameters = {"now": timestamp_ms(self._clock.now()), "most": most, "oldest": OLDEST_MAX}
        counts: dict[str, int] = {}
        page = await self._reader.view("running_by_name", parameters, 2 * NAMES_COUNTED_MAX, scans=True)
        for name, count in page.rows:
            counts[name] = counts.get(name, 0) + count
        visible = {name: count for name, count in counts.items() if in_scope(self._scope, name)}
        return RunningCounts(visible, more=page.more or sum(counts.values()) >= most)

    async def failed(self) -> dict[str, int]:
        """Return the number of failed jobs by name."""
        if self._scope is not None:
            parameters = aside_of(self._scope)
            return dict(
                (
                    await self._reader.view("failed_by_name_of_visible", parameters, OLDEST_MAX, scans=True)
                ).rows
            )
        parameters = {"most": ALL}
        return dict((await self._reader.view("failed_by_name", parameters, OLDEST_MAX, scans=True)).rows)

    async def counted_names(self, pattern: str) -> list[str] | None:
        """Return the matching names of queued, running or failed jobs; None if not all can be counted."""
        if self._scope is not None or (counted := await self._count_all()) is None or counted.more:
            return None
        (running, _), failed = await self.running(), await self.failed()
        names = {group.name for group in counted.groups}
        return await matching(names | running.keys() | failed.keys(), pattern)

    async def names(self, pattern: str | None, after: str, limit: int) -> list[str]:
        """Return a page of names of jobs; raises TimedOut if the scan takes longer than ``query_s``."""
        # In effect no limit: the scan ends at the last name or at the query timeout.
        return (await self.first_names(pattern, after, limit, 1_000_000_000))[0]

    async def first_names(
        self, pattern: str | None, after: str, limit: int, walked: int
    ) -> tuple[list[str], bool]:
        """Return matching names among the next ``walked`` after ``after``, and whether more may follow."""
        first: set[str] = set()
        more = False
        patterns = patterns_of(pattern, self._scope)
        for one in patterns:
            names, cut = await self._first_names(one, after, limit, walked // len(patterns))
            first.update(names)
            more = more or cut
        return sorted(first)[:limit], more or len(first) > limit

    async def _first_names(
        self, pattern: str | None, after: str, limit: int, walked: int
    ) -> tuple[list[str], bool]:
        low = literal_prefix(pattern or "")
        names_asked = name_range(low, exact=bool(pattern) and low == pattern)
        parameters = {"pattern": pattern, "after": after, **names_asked, "walked": walked}
        page = await self._reader.view("names_of_jobs", parameters, limit, scans=True)
        names: list[str] = [row[0] for row in page.rows]
        cut = bool(page.rows) and page.rows[-1][1] >= walked
        if cut and pattern and not glob(names[-1], pattern):
            del names[-1]
        return names, cut or len(names) == limit


async def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Return the names that match a pattern; yields to the event loop from time to time."""
    found = []
    for number, name in enumerate(names, 1):
        if not number % (10 * GROUPS_A_TURN):
            await asyncio.sleep(0)
        if pattern is None or glob(name, pattern):
            found.append(name)
    return found


def aside_of(scope: Scope) -> dict[str, Any]:
    """Return the parameters of statements that count failed and waiting jobs within a scope."""
    among = name_range(prefix_of_all(None, scope))
    return {**among, "looked": SET_ASIDE_SCANNED, "visible": filter_of(scope)}


def prefix_of(name: str) -> str:
    """Return a name up to its first slash."""
    return name.partition("/")[0]
