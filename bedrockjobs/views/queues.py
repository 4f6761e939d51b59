"""What is queued and what decides whether it may be taken: one bounded look, for all who ask.

The words are those of ``bedrockjobs.job.readiness``. A look reads the queue by lane and name (a group), never
job by job; where there are very many it stops at a limit and says ``more``: a count is then at least so high.
For somebody who sees some names only, these are found first, and nothing else is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.caller import Scope
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import LIST_MAX, NAME_CHARS_MAX, PAUSES_MAX
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.wire import stamp_ms
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.hold import plain_pattern
from bedrockjobs.job.lanes import MOCK_LANE, UNTAKEN, parse_lane
from bedrockjobs.job.options import decode_options
from bedrockjobs.job.readiness import Drain, Need, Pauses, Standing, Takers, lock_holder, need_of, standing
from bedrockjobs.job.rows import PauseRow
from bedrockjobs.store.base import Reader
from bedrockjobs.views.visible import filter_of, patterns_of, prefix_of_all, sees, visible_pauses

ANY_WALK = 1_000_000_000
"""More names than there are: a walk through them ends with the last, or with the time of a query."""

NAMES_MAX = 1_000
"""Names that match a pattern, or are all that somebody sees, that are looked at; there may be more."""

NAMES_WALKED = 40_000
"""Names that are looked at for those that match: 40 ms of the reader."""

LANES_MAX = 1_000
"""Lanes that a look knows: there is one for each lock and each worker with jobs of its own."""

GROUPS_MAX = 1_000
"""Groups that a look knows one by one, some 20 seeks each."""

ALIKE_MAX = 100
"""Names with the same beginning, up to a slash, that are known one by one; the others are one group."""

COUNTED_MAX = 10_000
"""Jobs of one group that are counted at the most."""

COUNTS_MAX = 10_000
"""Jobs that one look counts, all in all: some 20 ms."""

COUNTED_LEAST = 10
"""Jobs of one group that are counted in any case."""

LOOKS_MAX = 20_000
"""Pairs of a name and a lane that a page of names looks for."""

ASIDE_LOOKED_AT = 50_000
"""Jobs that have failed, or wait, with the beginning that seen names have in common: 50 ms of the reader."""

OLDEST_MAX = 20_000
"""The oldest jobs, among which runs of clients without a worker name are found: no index has them."""

HELD_MAX = 10_000
"""Lanes of running jobs that a look knows: more than machines have workers."""

ALL = 100_000_000
"""More jobs than fail, wait aside or repeat: of them all are counted, a million in a tenth of a second."""

COUNT_S = 5.0
"""Time after which a count of all that is queued is given up: then a bounded part of it is counted."""

COUNT_SLICE = 1_000
"""Groups that are counted at once, so that other reads have their turn between."""

NAMES_COUNTED_MAX = 20_000
"""Groups of a count of all that are kept, those with the most jobs: some 5 MB."""

AGE_PER_COST = 20
"""A count is good for so many times the time that it took: counting is then a twentieth of the reader."""

COUNTED_EACH_TIME = 20_000
"""Jobs that are counted for each look, in some 20 ms; a count of more is kept and told with its age."""

AGE_MAX_S = 60.0
"""How old a count may be in any case."""

GROUPS_A_TURN = 100
"""Groups that are judged until others get their turn in the event loop."""

HIGHEST = "\U0010ffff" * NAME_CHARS_MAX
"""A text that comes after every name."""


@dataclass(slots=True)
class Group:
    """The queued jobs of one lane and name, or of the rest of all names with one beginning."""

    lane: str
    name: str
    oldest: str
    """The lowest nextRun, due or not; empty where it is not known."""
    rest: bool = False
    """Whether it stands for ``name`` and all later names with the same beginning."""
    due: int = 0
    later: int = 0
    more_due: bool = False
    """Whether more are due than were counted."""
    more_later: bool = False

    @property
    def more(self) -> bool:
        """Tell whether there are more than were counted."""
        return self.more_due or self.more_later


class Held(NamedTuple):
    """What holds queued jobs back at one moment, and who takes them."""

    now: str
    pauses: Pauses
    holders: dict[str, int]
    """Running jobs by the lock that they hold."""
    takers: Takers
    drains: dict[str, Drain]
    tells_all: bool = True
    """Whether workers and jobs of other names may be told of."""

    def standing(self, group: Group, *, due: bool) -> Standing:
        """Return where the jobs of a group stand."""
        return standing(group.name, group.lane, due=due, pauses=self.pauses, holders=self.holders)

    def pause_of(self, group: Group) -> PauseRow | None:
        """Return what pauses a group."""
        return self.pauses.of(group.name, group.lane)

    def lock_holder(self, group: Group) -> int | None:
        """Return the job that holds a group's lock."""
        return lock_holder(group.lane, self.holders)


@dataclass(slots=True)
class Totals:
    """Jobs by standing, as far as they were counted."""

    ready: int = 0
    later: int = 0
    paused: int = 0
    blocked: int = 0
    mocked: int = 0
    untaken: int = 0
    """Ready ones that no worker takes."""
    oldest: str = ""
    """Since when the oldest ready one is due."""
    more: set[str] = field(default_factory=set)
    """The counts behind which there are more."""

    def count(self, name: Standing, jobs: int, *, more: bool) -> None:
        """Add jobs of one standing."""
        setattr(self, name, getattr(self, name) + jobs)
        if more:
            self.more.add(name)

    def note_oldest(self, stamp: str) -> None:
        """Note since when a ready job is due."""
        if stamp:
            self.oldest = min(filter(None, (self.oldest, stamp)))


class Look(NamedTuple):
    """What one look at the queue found."""

    held: Held
    groups: list[Group]
    more: bool
    """Whether there are groups that it does not know."""
    unlocked_lanes: list[str]
    """The lanes whose due jobs are ready unless they are paused."""
    age: float = 0.0
    """Seconds since its jobs were counted."""


class _Count(NamedTuple):
    """All that is queued, counted."""

    groups: list[Group]
    more: bool
    """Whether there are groups that were not kept."""
    at: float
    """When it was begun, by the clock of the event loop."""
    cost_s: float


class Queues:
    """Looks at the queue of one server."""

    def __init__(
        self, reader: Reader, presence: WorkerRegistry, clock: Clock, scope: Scope | None = None
    ) -> None:
        """Read from ``reader``, and live workers from ``presence``, for who sees the names of ``scope``."""
        self._reader = reader
        self._presence = presence
        self._clock = clock
        self._scope = scope
        self._counted: _Count | None = None
        self._counting = asyncio.Lock()

    # --- what holds back ---------------------------------------------------------------------------------

    async def held(self) -> Held:
        """Read what holds queued jobs back, and who takes them."""
        now = stamp_ms(self._clock.now())
        pauses = Pauses(await self.pauses(now))
        drains = (await self._reader.view("drained_workers", {}, HELD_MAX)).rows
        holders: dict[str, int] = {}
        for lane, job_id in (await self._reader.view("lanes_held", {}, HELD_MAX)).rows:
            if lock := parse_lane(lane).lock:
                holders[lock] = min(job_id, holders.get(lock, job_id))
        drained = {row[0]: Drain._make(row) for row in drains}
        takers = Takers(self._presence.workers, drained, self._presence.asked)
        return Held(now, pauses, holders, takers, drained, self._scope is None)

    async def pauses(self, now: str = "") -> tuple[PauseRow, ...]:
        """Return the pauses that hold, by pattern."""
        given = {"now": now or stamp_ms(self._clock.now())}
        rows = (await self._reader.view("pauses_held", given, PAUSES_MAX)).rows
        return visible_pauses(map(PauseRow._make, rows), self._scope)

    async def on_all_hosts(self) -> dict[str, Need]:
        """Return what the schedules on all hosts ask of their workers, by name."""
        rows = (await self._reader.view("schedules_on_all_hosts", {}, LIST_MAX)).rows
        return {
            name: Need(decode_options(options).own_command)
            for name, options in rows
            if sees(self._scope, name)
        }

    # --- a look ------------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """Look at all that is queued, of names that are seen."""
        if self._scope is not None:
            names, more = await self.first_names(None, "", NAMES_MAX, NAMES_WALKED)
            look = await self.look_at(names)
            return look._replace(more=look.more or more)
        if (counted := await self._count_all()) is not None:
            age = asyncio.get_running_loop().time() - counted.at
            return Look(await self.held(), counted.groups, counted.more, [], age)
        held = await self.held()
        lanes, more = await self._lanes()
        given = {"lanes": jsontext.dump(lanes), "alike": ALIKE_MAX, "walked": GROUPS_MAX + len(lanes) + 1}
        page = await self._reader.view("queue_groups", given, GROUPS_MAX, scans=True)
        groups = [Group(lane, name, oldest or "", bool(rest)) for lane, name, rest, oldest in page.rows]
        await self._count(groups, held)
        open_lanes = [
            lane
            for lane in lanes
            if lane not in (MOCK_LANE, *UNTAKEN) and lock_holder(lane, held.holders) is None
        ]
        return Look(held, groups, more or page.more, open_lanes)

    async def look_at(self, names: Sequence[str]) -> Look:
        """Look at what is queued of some names."""
        if self._scope is None and (counted := await self._count_all()) is not None and not counted.more:
            wanted = set(names)
            age = asyncio.get_running_loop().time() - counted.at
            groups = [group for group in counted.groups if group.name in wanted]
            return Look(await self.held(), groups, False, [], age)
        held = await self.held()
        lanes, more = await self._lanes()
        most = max(LOOKS_MAX // max(len(names), 1), 1)
        more, lanes = more or len(lanes) > most, lanes[:most]
        given = {"lanes": jsontext.dump(lanes), "names": jsontext.dump(list(names))}
        page = await self._reader.view("queue_groups_of_names", given, LOOKS_MAX, scans=True)
        groups = [Group(lane, name, oldest or "") for lane, name, _, oldest in page.rows]
        await self._count(groups, held)
        return Look(held, groups, more or page.more, [])

    async def _count_all(self) -> _Count | None:
        """Return a count of all that is queued, as old as it may be for what it costs; None if it takes long.

        Group by group in slices of the index; who asks meanwhile waits for the same count.
        """
        loop = asyncio.get_running_loop()
        async with self._counting:
            known = self._counted
            if known is not None and loop.time() - known.at < min(known.cost_s * AGE_PER_COST, AGE_MAX_S):
                return known
            self._counted = None
            began, now = loop.time(), stamp_ms(self._clock.now())
            groups: list[Group] = []
            more, last = False, ("", "")
            while True:
                if loop.time() - began >= COUNT_S:
                    return None
                given = {"now": now, "lane": last[0], "name": last[1]}
                try:
                    page = await self._reader.view("count_all_groups", given, COUNT_SLICE, scans=True)
                except TimedOut:
                    return None
                for lane, name, due, later, oldest in page.rows:
                    groups.append(Group(lane, name, oldest, due=due, later=later))
                if len(groups) > 2 * NAMES_COUNTED_MAX or (not page.more and len(groups) > NAMES_COUNTED_MAX):
                    groups.sort(key=lambda group: group.due + group.later, reverse=True)
                    del groups[NAMES_COUNTED_MAX:]
                    more = True
                if not page.more:
                    break
                last = page.rows[-1][:2]
            counted = _Count(groups, more, began, loop.time() - began)
            if sum(group.due + group.later for group in groups) + len(groups) > COUNTED_EACH_TIME:
                self._counted = counted
            return counted

    async def ranked(self, pattern: str | None, after: str, limit: int) -> list[str] | None:
        """Return the names with the most due jobs that match, from behind one on; None if it takes long.

        Names of which nothing is queued, runs or has failed are not among them.
        """
        if self._scope is not None or (counted := await self._count_all()) is None:
            return None
        due: dict[str, int] = {}
        later: dict[str, int] = {}
        for group in counted.groups:
            due[group.name] = due.get(group.name, 0) + group.due
            later[group.name] = later.get(group.name, 0) + group.later
        running, failed = await self.running(), await self.failed()
        found = [
            name
            for name in due.keys() | running.keys() | failed.keys()
            if pattern is None or glob(name, pattern)
        ]
        found.sort(
            key=lambda name: (
                -due.get(name, 0), -failed.get(name, 0), -running.get(name, 0), -later.get(name, 0), name
            )
        )  # fmt: skip
        begin = found.index(after) + 1 if after in found else 0
        return found[begin : begin + limit]

    async def _lanes(self) -> tuple[list[str], bool]:
        page = await self._reader.view("queue_lanes", {}, LANES_MAX, scans=True)
        return [row[0] for row in page.rows], page.more

    async def _count(self, groups: list[Group], held: Held) -> None:
        """Count the jobs of each group: of few groups very many, of many groups some."""
        left = COUNTS_MAX  # of which those that are counted anew use nothing
        open_groups = [group for group in groups if not group.rest]
        most = 0
        while open_groups:
            further = max(min(left // len(open_groups), COUNTED_MAX), COUNTED_LEAST)
            if further <= most:
                break
            most = further
            pairs = [[group.lane, group.name] for group in open_groups]
            given = {"groups": jsontext.dump(pairs), "now": held.now, "most": most + 1}
            rows = (await self._reader.view("count_groups", given, len(pairs), scans=True)).rows
            for key, due, later in rows:
                group = open_groups[key]
                group.due, group.later = min(due, most), min(later, most)
                group.more_due, group.more_later = due > most, later > most
                left -= 0 if group.more else group.due + group.later
            open_groups = [group for group in open_groups if group.more]
        left -= sum(group.due + group.later for group in open_groups)
        await self._count_rests([group for group in groups if group.rest], held, max(left, 0))

    async def _count_rests(self, rests: list[Group], held: Held, left: int) -> None:
        """Count names that are not known one by one, where one pause holds all of them or none."""
        for group in rests:
            group.more_due = group.more_later = True
        uniform = [group for group in rests if self._is_uniform(group, held)]
        if not uniform:
            return
        most = max(min(left // len(uniform), COUNTED_MAX), COUNTED_LEAST)
        ranges = [[group.lane, group.name, f"{prefix_of(group.name)}0"] for group in uniform]
        given = {"rests": jsontext.dump(ranges), "now": held.now, "most": most}
        for key, counts in (await self._reader.view("count_rests", given, len(ranges), scans=True)).rows:
            due, later, oldest, looked = jsontext.parse(counts)
            group = uniform[key]
            group.due, group.later, group.oldest = int(due), int(later), oldest or ""
            group.more_due = group.more_later = looked == most

    @staticmethod
    def _is_uniform(group: Group, held: Held) -> bool:
        """Tell whether each pause holds all names of a rest, or none of them."""
        beginning = f"{prefix_of(group.name)}/"
        for pause in held.pauses.rows:
            fixed = literal_prefix(pause.pattern)
            if plain_pattern(pause.pattern) == f"{fixed}*" and beginning.startswith(fixed):
                continue
            if fixed.startswith(beginning) or beginning.startswith(fixed):
                return False
        return True

    # --- sums --------------------------------------------------------------------------------------------

    async def add_up(self, found: Look, groups: Iterable[Group], totals: Totals) -> None:
        """Add groups of a look to their sums."""
        held = found.held
        for number, group in enumerate(groups):
            if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
                await asyncio.sleep(0)
            stands = held.standing(group, due=True)
            totals.count(stands, group.due, more=group.more_due)
            totals.count(held.standing(group, due=False), group.later, more=group.more_later)
            if stands == "ready":
                if group.oldest and group.oldest <= held.now:
                    totals.note_oldest(group.oldest)
                if not group.rest and not held.takers.any_of(group.name, need_of(group.lane)):
                    totals.untaken += group.due

    async def totals(self, found: Look) -> Totals:
        """Return the sums of a look at all that is queued."""
        totals = Totals()
        await self.add_up(found, found.groups, totals)
        if found.more:
            totals.more |= {"ready", "later", "paused", "blocked", "mocked"}
            if found.unlocked_lanes and not found.held.pauses.rows:  # then the lanes alone tell what is ready
                await self._by_lanes(found, totals)
        if "ready" in totals.more:
            totals.more.add("untaken")
        return totals

    async def _by_lanes(self, found: Look, totals: Totals) -> None:
        given: dict[str, Any] = {"lanes": jsontext.dump(found.unlocked_lanes), "now": found.held.now}
        page = await self._reader.view("lanes_at_once", {**given, "most": COUNTED_MAX}, 1, scans=True)
        due, oldest = page.rows[0]
        totals.ready = max(totals.ready, due)
        if oldest is not None and oldest <= found.held.now:
            totals.note_oldest(oldest)

    async def running(self) -> dict[str, int]:
        """Return how many runs are in progress, by name."""
        given = {"now": stamp_ms(self._clock.now()), "most": COUNTED_MAX + 1, "oldest": OLDEST_MAX}
        found: dict[str, int] = {}
        for name, count in (await self._reader.view("running_by_name", given, OLDEST_MAX, scans=True)).rows:
            found[name] = found.get(name, 0) + count
        return self._visible_counts(found)

    async def failed(self) -> dict[str, int]:
        """Return how many jobs have failed, by name."""
        if self._scope is not None:
            given = aside_of(self._scope)
            return dict(
                (await self._reader.view("failed_by_name_of_visible", given, OLDEST_MAX, scans=True)).rows
            )
        given = {"most": ALL}
        return dict((await self._reader.view("failed_by_name", given, OLDEST_MAX, scans=True)).rows)

    def _visible_counts(self, counts: dict[str, int]) -> dict[str, int]:
        return {name: count for name, count in counts.items() if sees(self._scope, name)}

    async def names(self, pattern: str | None, after: str, limit: int) -> list[str]:
        """Return a page of the names of jobs; raises TimedOut where too few match in ``query_s``."""
        return (await self.first_names(pattern, after, limit, ANY_WALK))[0]

    async def first_names(
        self, pattern: str | None, after: str, limit: int, walked: int
    ) -> tuple[list[str], bool]:
        """Return the names that match among the next ``walked``, and whether there may be more."""
        found: set[str] = set()
        more = False
        patterns = patterns_of(pattern, self._scope)
        for one in patterns:
            names, cut = await self._first_names(one, after, limit, walked // len(patterns))
            found.update(names)
            more = more or cut
        return sorted(found)[:limit], more or len(found) > limit

    async def _first_names(
        self, pattern: str | None, after: str, limit: int, walked: int
    ) -> tuple[list[str], bool]:
        low = literal_prefix(pattern or "")
        high = low if pattern and low == pattern else low + HIGHEST
        given = {"pattern": pattern, "after": after, "low": low, "high": high, "walked": walked}
        page = await self._reader.view("names_of_jobs", given, limit, scans=True)
        names: list[str] = [row[0] for row in page.rows]
        cut = bool(page.rows) and page.rows[-1][1] >= walked
        if cut and pattern and not glob(names[-1], pattern):
            del names[-1]
        return names, cut or len(names) == limit


def aside_of(scope: Scope) -> dict[str, Any]:
    """Return what a statement is given to count jobs that have failed or wait, of the names of a scope."""
    prefix = prefix_of_all(None, scope)
    return {
        "low": prefix, "high": prefix + HIGHEST, "looked": ASIDE_LOOKED_AT, "visible": filter_of(scope),
    }  # fmt: skip


def prefix_of(name: str) -> str:
    """Return the beginning of a name up to its first slash."""
    return name.partition("/")[0]
