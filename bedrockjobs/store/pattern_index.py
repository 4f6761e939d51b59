"""Finds the next job that matches a name pattern, however many jobs are queued.

Jobs of one lane, name and priority form a group. For each pattern in use the index has the first job of every
matching group, in one heap per priority. An entry is only a lower bound: a queued job is always covered, but
a deleted job may still have an entry. So nothing is updated when a job is taken, changed or deleted; an entry
is verified by one seek when it reaches the top.

A new pattern begins with a scan of the names. The scan may take seconds, so it is done in slices, each in a
transaction with other work: ``search`` continues one scan for one slice, and a take that needs more raises
StillSearching. A pause does not change the index at once: entries with paused names are set aside when they
reach the top, and return in slices when the pause ends. A pattern with too many names is wide: it has no
heaps, but scans the queue in order and keeps a low-water mark, a position below which nothing matches.

The patterns of a short list are indexed one by one, so that a new list of known patterns costs nothing.

The writer owns the index; it has no locks and uses SQL only through ``Seeks``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace, nsmallest
from itertools import accumulate, chain, islice
from typing import Any, Generic, Protocol, TypeVar

from bedrockjobs.base.config import (
    PRIORITIES,
    SEARCH_BURST,
    SEARCHED_AT_ONCE,
    SEARCHED_BETWEEN,
    SEARCHED_PER_S_MAX,
    SEARCHED_S,
    SEARCHED_UNIT_MAX,
    STEPS_FREE,
)
from bedrockjobs.base.glob import PatternSet
from bedrockjobs.job.rows import Job, PauseRow
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import StillSearching

NAMES_MATCHED_MAX = 50_000
"""Maximum number of names in the cache of the patterns that match a name; a full cache is cleared."""

UNINDEXED_MAX = 128
"""Maximum number of patterns without a fixed part, since each new name is matched against all of them."""

EARLY_MAX = 10_000
"""Maximum number of jobs cached for a wide pattern that were queued below its low-water mark; if there are
more, the mark is dropped."""

SCANS_TRIED_MAX = 100
"""Maximum number of scans from which one ``search`` chooses; scans whose tokens are over their budget come
last."""

GROUPS_IN_ONE_DICT_MAX = 10_000
"""Maximum number of groups of a pattern whose bounds are in one dict. The bounds of more groups are spread
over ``PARTS_OF_BOUNDS`` dicts; spreading takes 2 ms."""

PARTS_OF_BOUNDS = 64
"""Number of dicts over which the bounds are spread: even with millions of groups, one dict grows within
milliseconds."""

STEPS_OF_SCAN = 50
"""Minimum number of steps charged for a slice of a scan: a new pattern without names takes 0.1 ms."""

EVICTIONS_TRIED_MAX = 100
"""Maximum number of patterns examined to evict one. If all examined patterns are being searched, the cache
exceeds its limit a little."""

Group = str | tuple[str, str]
"""Identifies the jobs of one priority and name: the name, or lane and name if the pattern's lane combines
several lanes."""

HeapEntry = tuple[str, int, Group]
"""nextRun and jobID of the first job of a group, and the group."""

GroupHead = tuple[Group, str, int, str, int]
"""A group, its name and priority, and nextRun and jobID of its first job."""


class Seeks(Protocol):
    """Index seeks in the database."""

    def job(self, job_id: int) -> Job | None:
        """Return a job."""

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""

    def pause_of(self, name: str) -> PauseRow | None:
        """Return a pause that covers a name."""

    def pauses(self) -> Sequence[PauseRow]:
        """Return all pauses."""

    def held_lock(self, job: Job) -> str:
        """Return the lock of a job if it keeps the job from starting, otherwise an empty string."""

    def start_by_key(self, job: Job) -> str:
        """Return when a job may start by the limits of starts per key; empty if none applies."""

    def combines(self, lane: str) -> bool:
        """Return whether a lane stands for all lanes that differ from it only in the lock's name."""

    def heads_of(self, lane: str, names: Names) -> Iterable[GroupHead]:
        """Return the first job of each group whose name is in a list of names."""

    def heads_after(self, lane: str, after: Any, prefix: str, limit: int) -> tuple[list[GroupHead], Any, int]:
        """Return the next heads of names with a prefix, the new position, and the cost in rows.

        ``after`` is the position that the last call returned, or None at the beginning; the new position is
        None at the end. The cost is about ``limit``.
        """

    def due_after(
        self, lane: str, now: str, priority: int, after: tuple[str, int]
    ) -> Iterator[tuple[str, int, str]]:
        """Yield nextRun, jobID and name of some due jobs after a position, in order."""


class _Pattern:
    """The index of one pattern in one lane."""

    def __init__(self, names: Names, lane: str, by: str) -> None:
        self.names = names
        self.lane = lane
        self.by = by
        """The token that requested the pattern first; the scan may be charged to its ``Budget``."""
        self.heaps: dict[int, list[HeapEntry]] = {priority: [] for priority in PRIORITIES}
        self.bounds: dict[int, list[dict[Group, HeapEntry]]] = {priority: [{}] for priority in PRIORITIES}
        """For each priority, the lowest entry of each group: in one dict, or in several dicts, since adding
        to a large dict may take 30 ms."""
        self.groups = 0
        """Number of groups with bounds."""
        self.parked: dict[str, list[tuple[int, HeapEntry]]] = {}
        """Entries that wait for a lock, by the lock, each with its priority."""
        self.held_until: list[tuple[str, int, HeapEntry]] = []
        """A heap of the entries whose key may not start another job until a time, each with its priority."""
        self.paused: dict[str, list[tuple[int, HeapEntry]]] = {}
        """Entries whose names are paused, by the pattern of the pause, each with its priority."""
        self.returning: list[tuple[int, HeapEntry]] = []
        """Entries whose pause has ended; they return to the heaps before the pattern is used."""
        self.handed: HeapEntry | None = None
        """The job found last, which is probably taken by now."""
        self.walk: _LaneWalk | None = None
        """The unfinished scan for the first jobs of the groups."""
        self.needed_by: dict[Names, None] = {}
        """Names whose takes are postponed until this pattern is ready."""
        self.wide = False
        """Whether there are too many groups for heaps."""
        self.floors: dict[int, tuple[str, int]] = {}
        """Low-water marks of a wide pattern by priority; below them only ``early`` jobs match."""
        self.early: dict[int, list[tuple[str, int]]] = {priority: [] for priority in PRIORITIES}
        """Jobs of a wide pattern that were queued below its low-water mark: a heap of nextRun and jobID per
        priority."""

    def bounds_of(self, group: Group, priority: int) -> dict[Group, HeapEntry]:
        """Return the dict with the lowest entry of a group."""
        bounds = self.bounds[priority]
        return bounds[0] if len(bounds) == 1 else bounds[hash(group) % PARTS_OF_BOUNDS]

    def spread_bounds(self) -> None:
        """Spread the bounds over many dicts."""
        for priority, (one, *_) in self.bounds.items():
            many: list[dict[Group, HeapEntry]] = [{} for _ in range(PARTS_OF_BOUNDS)]
            for group, entry in one.items():
                many[hash(group) % PARTS_OF_BOUNDS][group] = entry
            self.bounds[priority] = many

    def look_again(self) -> None:
        """Drop the low-water marks, so that the queue is scanned from its beginning again."""
        self.floors = {}
        self.early = {priority: [] for priority in PRIORITIES}


class Walked(Protocol):
    """A pattern that needs a scan for the first jobs of its groups."""

    names: Names
    by: str
    """The token that requested the pattern first; the scan may be charged to its ``Budget``."""


W = TypeVar("W", bound=Walked)


class Walk(Generic[W]):
    """A scan of the names with one prefix, shared by all patterns that need it.

    A pattern that joins during a round waits for the next round, which begins at the first name again.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.patterns: dict[W, None] = {}
        """Patterns that are part of the present round."""
        self.next_round: dict[W, None] = {}
        """Patterns that joined during the present round and wait for the next round."""
        self._matching: PatternSet[W] = PatternSet()
        self._matching_next: PatternSet[W] = PatternSet()
        self._lists: list[W] = []

    def join(self, pattern: W) -> None:
        """Add a pattern to the next round.

        The pattern is indexed now, since indexing all patterns when the round begins might take long.
        """
        self.next_round[pattern] = None
        for text in pattern.names.patterns:
            self._matching_next.add(text, pattern)

    def leave(self, pattern: W) -> None:
        """Remove a pattern, from this round or the next one."""
        self.patterns.pop(pattern, None)
        self.next_round.pop(pattern, None)

    def begin_round(self) -> None:
        """Begin the next round of the scan: with the patterns that joined since the last round began, and
        without those of the last round."""
        self.patterns, self.next_round = self.next_round, {}
        self._matching, self._matching_next = self._matching_next, PatternSet()
        self._lists = [pattern for pattern in self.patterns if pattern.names.exact]

    def matching(self, name: str) -> list[W]:
        """Return the patterns of this round that match a name."""
        found = [one for one in self._matching.matching(name) if one in self.patterns]
        if self._lists:
            found += [one for one in self._lists if one.names.match(name)]
        return found

    def payer(self, budget: Budget) -> str | None:
        """Return the token whose budget pays for the scan, or None if all tokens are over their limit."""
        return budget.payer({pattern.by for pattern in (*self.patterns, *self.next_round)})


class _LaneWalk(Walk[_Pattern]):
    """A scan in one lane."""

    def __init__(self, lane: str, prefix: str) -> None:
        super().__init__(prefix)
        self.lane = lane
        self.at: Any = None

    def begin_round(self) -> None:
        super().begin_round()
        self.at = None


class Budget:
    """Limits how many rows a second are scanned for each token; short bursts may exceed the rate."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Begin with full budgets."""
        self._monotonic = monotonic
        self._spent: dict[str, float] = {}
        """Rows scanned for each token in excess of its rate."""
        self._filled_at = monotonic()

    def spend(self, by: str, rows: int) -> None:
        """Charge scanned rows to a token."""
        self._spent[by] = self.spent(by) + rows

    def spent(self, by: str) -> float:
        """Return the rows a token has used in excess of its rate."""
        return self._spent.get(by, 0.0)

    def payer(self, tokens: Iterable[str]) -> str | None:
        """Return the token that has spent least, or None if all are over their limit."""
        now = self._monotonic()
        rows, self._filled_at = (now - self._filled_at) * SEARCHED_PER_S_MAX, now
        if self._spent and rows > 0:
            self._spent = {one: left for one, spent in self._spent.items() if (left := spent - rows) > 0}
        by = min(tokens, key=self.spent, default="")
        return by if self.spent(by) < SEARCH_BURST else None


class Turns:
    """Decides which searches for new patterns may begin in a unit.

    A new pattern costs more than a take, so each unit begins only a few searches. Tokens take turns, so that
    a token with very many patterns delays only its own takes.
    """

    def __init__(self) -> None:
        self._invited: Sequence[Names] = ()
        """Names whose search this unit begins before any other."""
        self._crowded = False
        """Whether further names wait for their search to begin."""
        self._turned_away: dict[Names, str] = {}
        """Names whose search could not begin yet, with the token that requested them."""

    def admits(self, names: Names, by: str, *, has_room: bool) -> bool:
        """Return whether this unit may begin a search; ``has_room``: the unit has done little work so far."""
        if names in self._invited or (has_room and not self._crowded):
            return True
        self._turned_away[names] = by
        return False

    def next_of(self, lost: list[Names]) -> Sequence[Names]:
        """Return the names whose search the next unit begins; ``lost``: all names not yet searched."""
        self._invited = self._for_one_unit(lost) if lost or self._turned_away else ()
        self._crowded = len(lost) > len(self._invited)
        return self._invited

    def _for_one_unit(self, lost: list[Names]) -> list[Names]:
        """Return the first names for which a unit has time."""
        self._turned_away = {names: self._turned_away.get(names, "") for names in lost}
        turns: Counter[str] = Counter()
        in_turn: list[tuple[int, int, Names]] = []
        for at, (names, by) in enumerate(self._turned_away.items()):
            in_turn.append((turns[by], at, names))
            turns[by] += 1
        most = max(SEARCHED_UNIT_MAX // STEPS_OF_SCAN, 1)
        first = [names for _, _, names in nsmallest(most, in_turn)]
        parts = accumulate(len(names.parts) or 1 for names in first)
        return first[: max(sum(count <= most for count in parts), 1)]


class PatternIndex:
    """An LRU cache of patterns with the first job of each name."""

    def __init__(
        self, seeks: Seeks, patterns_max: int, groups_max: int, monotonic: Callable[[], float]
    ) -> None:
        """Cache up to ``groups_max`` groups and ``patterns_max`` patterns, counting each one of a list."""
        self._seeks = seeks
        self._patterns_max = patterns_max
        self._groups_max = groups_max
        self._monotonic = monotonic
        self._left_s = SEARCHED_S
        """Time left for scans in the open unit."""
        self._read = 0
        """Rows that scans have read in the open unit."""
        self._raised = 0
        """Number of times that a bound was raised: a raised bound may be too high after a rollback."""
        self.budget = Budget(monotonic)
        """The search budget of each token."""
        self._steps = SEARCHED_UNIT_MAX
        self._garbage: list[Any] = []
        """Large dropped containers, freed in slices."""
        self._clear()

    def _clear(self) -> None:
        self._patterns: OrderedDict[tuple[Names, str], _Pattern] = OrderedDict()
        self._by_lane: dict[str, PatternSet[_Pattern]] = {}
        self._lists: dict[str, dict[str, dict[_Pattern, None]]] = {}
        """Patterns that are lists of names, by lane and name."""
        self._matching: dict[tuple[str, str], Sequence[_Pattern]] = {}
        self._walks: OrderedDict[tuple[str, str], _LaneWalk] = OrderedDict()
        self._pending: dict[Names, dict[_Pattern, None]] = {}
        """Names with a postponed take, and the patterns that the take needs."""
        self._resumable: dict[Names, None] = {}
        """The names in ``_pending`` that need no scan, but more steps than one unit has."""
        self._turns = Turns()
        self._asked: tuple[Names, Sequence[Names]] | None = None
        """The names of the present take, and the patterns in it, which are looked up one by one."""
        self._compared: OrderedDict[_Pattern, None] = OrderedDict()
        """The patterns that are compared with every name, least recently used first."""
        self._globs = self._groups = 0

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return the count of raised bounds; lowered bounds stay valid after a rollback."""
        return self._raised

    def undo(self, mark: int) -> None:
        """Drop all patterns if a bound was raised since the mark."""
        if self._raised != mark:
            self.forget()

    def forget(self) -> None:
        """Drop all patterns."""
        if self._groups > SEARCHED_AT_ONCE:
            for pattern in self._patterns.values():
                self._discard(pattern)
        if len(self._matching) > SEARCHED_AT_ONCE:
            self._garbage.append(self._matching)
        self._clear()

    def _discard(self, pattern: _Pattern) -> None:
        """Free the entries of a pattern, in slices if there are many: a million take 0.1 s or more."""
        lists = *pattern.heaps.values(), *pattern.paused.values(), pattern.returning, pattern.held_until
        held: list[Any] = [*lists, *chain.from_iterable(pattern.bounds.values())]
        self._garbage += [one for one in held if len(one) > SEARCHED_AT_ONCE]
        pattern.heaps = {priority: [] for priority in PRIORITIES}
        pattern.bounds = {priority: [{}] for priority in PRIORITIES}
        pattern.paused, pattern.parked, pattern.returning, pattern.held_until = {}, {}, [], []
        self._groups -= pattern.groups
        pattern.groups = 0

    def begin(self) -> None:
        """Begin a unit: reset the limit of examined entries and free some garbage."""
        self._steps, self._left_s, self._read = SEARCHED_UNIT_MAX, SEARCHED_S, 0
        if self._garbage:
            last = self._garbage[-1]
            if isinstance(last, dict):
                for _ in range(min(SEARCHED_AT_ONCE, len(last))):
                    last.popitem()
            else:
                del last[-SEARCHED_AT_ONCE:]
            if not last:
                self._garbage.pop()

    # --- entries -----------------------------------------------------------------------------------------

    def unlock(self, lock: str) -> None:
        """Return the entries that waited for a released lock to the heaps."""
        for pattern in self._patterns.values():
            for priority, entry in pattern.parked.pop(lock, ()):
                heappush(pattern.heaps[priority], entry)

    def unlock_all(self) -> None:
        """Return the entries that waited for any lock or key to the heaps, before their patterns are used."""
        for pattern in self._patterns.values():
            while pattern.parked:
                pattern.returning += pattern.parked.popitem()[1]
            pattern.returning += [(priority, entry) for _, priority, entry in pattern.held_until]
            pattern.held_until = []

    def pauses_changed(self) -> None:
        """Return the entries whose pause has ended to the heaps."""
        pauses = {pause.pattern for pause in self._seeks.pauses()}
        for pattern in self._patterns.values():
            if pattern.wide:
                pattern.look_again()
            for paused in [one for one in pattern.paused if one not in pauses]:
                entries = pattern.paused.pop(paused)
                if pattern.returning:
                    pattern.returning += entries
                else:
                    pattern.returning = entries

    def offer(self, row: Job, lane: str) -> None:
        """Add a queued job; ``lane`` is the job's lane, or the lane that combines it with other locks."""
        if not self._patterns:
            return
        matching = self._matching.get((lane, row.name))
        if matching is None:
            matching = self._matching[lane, row.name] = self._patterns_matching(lane, row.name)
            if len(self._matching) > NAMES_MATCHED_MAX:
                self._forget_matches()
        if matching:
            group: Group = row.name if lane == row.lane else (row.lane, row.name)
            for pattern in matching:
                self._offer(pattern, (row.next_run, row.job_id, group), row.priority)

    def _patterns_matching(self, lane: str, name: str) -> Sequence[_Pattern]:
        by_pattern, by_name = self._by_lane.get(lane), self._lists.get(lane)
        found = by_pattern.matching(name) if by_pattern else []
        return [*found, *by_name.get(name, ())] if by_name else found

    def _forget_matches(self) -> None:
        if len(self._matching) > SEARCHED_AT_ONCE:
            self._garbage.append(self._matching)
        self._matching = {}

    def _offer(self, pattern: _Pattern, entry: HeapEntry, priority: int) -> None:
        if pattern.wide:
            if entry[:2] <= pattern.floors.get(priority, ("", 0)):
                early = pattern.early[priority]
                heappush(early, entry[:2])
                if len(early) > EARLY_MAX:
                    pattern.look_again()
            return
        bounds = pattern.bounds_of(entry[2], priority)
        bound = bounds.get(entry[2])
        if bound is None or entry < bound:
            if bound is None:
                if pattern.groups >= self._groups_max:
                    self._widen(pattern)
                    return
                pattern.groups += 1
                self._groups += 1
                if pattern.groups == GROUPS_IN_ONE_DICT_MAX:
                    pattern.spread_bounds()
                    bounds = pattern.bounds_of(entry[2], priority)
            bounds[entry[2]] = entry
            heappush(pattern.heaps[priority], entry)

    def _widen(self, pattern: _Pattern) -> None:
        pattern.wide = True
        self._discard(pattern)
        self._leave_walk(pattern)
        for names in pattern.needed_by:  # they no longer need a scan, and none would end for them
            if self._is_ready(names):
                self._resumable[names] = None

    def first_due(
        self,
        names: Names,
        lane: str,
        now: str,
        priorities: tuple[int, ...],
        by: str,
        parts: Sequence[Names] = (),
    ) -> Job | None:
        """Return the first due job that matches ``names``; raises StillSearching.

        ``parts`` are the patterns of ``names`` if that is a list: each is indexed on its own. The scan is
        charged to the budget of the token ``by``.
        """
        parts = parts or (names,)
        if any((part, lane) not in self._patterns for part in parts) and not self._turns.admits(
            names, by, has_room=self._steps > 0
        ):
            raise StillSearching
        self._asked = names, parts
        patterns = [self._known(part, lane, by) for part in parts]
        found: list[Job] = []
        unknown = False
        for pattern in patterns:  # all of them, so that their scans continue together
            try:
                row = self._first_of(pattern, now, priorities)
            except StillSearching:
                unknown = True
                self._pending.setdefault(names, {})[pattern] = None
                pattern.needed_by[names] = None
            else:
                found += () if row is None else (row,)
        if unknown:
            if self._is_ready(names):
                self._resumable[names] = None
            raise StillSearching
        return first_in_order(found)

    def _first_of(self, pattern: _Pattern, now: str, priorities: tuple[int, ...]) -> Job | None:
        self._make_ready(pattern)
        if pattern.held_until:
            self._release_keys(pattern, now)
        for priority in priorities:
            top = self._first_in_order if pattern.wide else self._top
            row = top(pattern, priority, now)
            if row is not None and row.next_run <= now:
                if not pattern.wide:
                    pattern.handed = pattern.heaps[priority][0]
                return row
        return None

    def soonest(self, names: Names, lane: str, now: str) -> str | None:
        """Return when a job of an indexed pattern may become due after ``now``; call ``first_due`` before."""
        pattern = self._patterns[names, lane]
        tops = [heap[0][0] for heap in pattern.heaps.values() if heap and heap[0][0] > now]
        tops += [start for start, _, _ in pattern.held_until[:1] if start > now]
        return min(tops, default=None)

    def is_ready(self, names: Names, lane: str) -> bool:
        """Return whether the scan of a pattern, or of each pattern of a short list, is complete."""
        if names.parts:
            return all(part.single is not None or self.is_ready(part, lane) for part in names.parts)
        pattern = self._patterns.get((names, lane))
        return pattern is not None and pattern.walk is None and not pattern.returning

    def is_wide(self, names: Names, lane: str) -> bool:
        """Return whether a pattern, or a pattern of a short list, has too many groups for heaps."""
        if names.parts:
            return any(self.is_wide(part, lane) for part in names.parts)
        pattern = self._patterns.get((names, lane))
        return pattern is not None and pattern.wide

    def _step(self, pattern: _Pattern, taken: int) -> None:
        """Count a step of a take; raises StillSearching if the unit has used up its steps."""
        if taken > STEPS_FREE:
            self._steps -= 1
            if self._steps < 0:
                raise StillSearching

    def _no_longer_pending(self, names: Names) -> None:
        self._resumable.pop(names, None)
        for pattern in self._pending.pop(names):
            pattern.needed_by.pop(names, None)

    def _release_keys(self, pattern: _Pattern, now: str) -> None:
        """Return the entries whose key may start another job to the heaps."""
        held, steps = pattern.held_until, 0
        while held and held[0][0] <= now:
            steps += 1
            self._step(pattern, steps)
            _, priority, entry = heappop(held)
            heappush(pattern.heaps[priority], entry)

    def _top(self, pattern: _Pattern, priority: int, now: str) -> Job | None:
        """Return the first job of a pattern and priority, due or not."""
        heap, handed = pattern.heaps[priority], pattern.handed
        obeys = bool(self._seeks.pauses()) and not pattern.lane.startswith("now")
        steps = 0
        while heap:
            steps += 1
            self._step(pattern, steps)
            entry = heap[0]
            next_run, job_id, group = entry
            lane, name = (pattern.lane, group) if isinstance(group, str) else group
            bounds = pattern.bounds_of(group, priority)
            if bounds.get(group) != entry:
                heappop(heap)  # a lower bound for this group was pushed later
                continue
            if obeys and (pause := self._seeks.pause_of(name)):
                heappop(heap)
                pattern.paused.setdefault(pause.pattern, []).append((priority, entry))
                self._raised += 1
                continue
            row = self._seeks.job(job_id) if entry != handed else None
            if row is None or not _is_head(row, entry, (lane, name), priority):
                row = None
                head = self._seeks.head(lane, name, priority)
                if head == (next_run, job_id):
                    row = self._seeks.job(job_id)
            if row is not None:
                if lane is pattern.lane:
                    return row
                if lock := self._seeks.held_lock(row):
                    pattern.parked.setdefault(lock, []).append((priority, entry))
                elif (start := self._seeks.start_by_key(row)) > now:
                    heappush(pattern.held_until, (start, priority, entry))
                else:
                    return row
                heappop(heap)
                self._raised += 1
                continue
            if head is None:
                heappop(heap)
                del bounds[group]
                pattern.groups -= 1
                self._groups -= 1
                self._raised += 1
            else:
                bounds[group] = (*head, group)
                heapreplace(heap, (*head, group))
                self._raised += 1
        return None

    def _first_in_order(self, pattern: _Pattern, priority: int, now: str) -> Job | None:
        """Return the first due job of a wide pattern."""
        names, early, steps = pattern.names, pattern.early[priority], 0
        obeys = bool(self._seeks.pauses()) and not pattern.lane.startswith("now")
        while early and early[0][0] <= now:
            steps += 1
            self._step(pattern, steps)
            row = self._seeks.job(early[0][1])
            if row is not None and _is_head(row, early[0], (pattern.lane, row.name), priority):
                paused = obeys and self._seeks.pause_of(row.name) is not None
                if names.match(row.name) and not paused:
                    return row
            heappop(early)  # it comes with a new floor if it was paused
            self._raised += 1
        while True:
            begun = self._monotonic()
            floor = passed = pattern.floors.get(priority, ("", 0))
            found = None
            for next_run, job_id, name in self._seeks.due_after(pattern.lane, now, priority, floor):
                if names.match(name) and not (obeys and self._seeks.pause_of(name)):
                    found = job_id
                    break
                steps += 1
                passed = next_run, job_id
            if passed != floor:
                pattern.floors[priority] = passed
                self._raised += 1
            if found is not None:
                return self._seeks.job(found)
            if passed == floor:
                return None
            self._left_s -= self._monotonic() - begun
            if steps > STEPS_FREE:
                self._steps -= steps
                self._read += steps
                steps = 0
                if self._steps < 0 or not self._has_time:
                    raise StillSearching

    # --- searches ----------------------------------------------------------------------------------------

    def _known(self, names: Names, lane: str, by: str) -> _Pattern:
        """Return a pattern of the index; add it if it is new."""
        key = (names, lane)
        pattern = self._patterns.get(key)
        if pattern is None:
            return self._begin(names, lane, by)
        self._patterns.move_to_end(key)
        if pattern in self._compared:
            self._compared.move_to_end(pattern)
        return pattern

    def _make_ready(self, pattern: _Pattern) -> None:
        """Complete the heads of a pattern if that takes few steps; raises StillSearching."""
        if pattern.walk is not None:
            if self._steps > 0 and self._has_time and pattern.walk.payer(self.budget) is not None:
                self._steps -= max(self._go_on(pattern.walk), STEPS_OF_SCAN)
            if pattern.walk is not None:
                raise StillSearching
        if pattern.returning:
            self._bring_back(pattern)
            if pattern.returning:
                raise StillSearching

    def _bring_back(self, pattern: _Pattern) -> None:
        room = min(self._steps, SEARCHED_AT_ONCE)
        if room <= 0:
            return
        entries = pattern.returning[-room:]
        del pattern.returning[-room:]
        for priority, entry in entries:
            heappush(pattern.heaps[priority], entry)
        self._steps -= len(entries)

    def _begin(self, names: Names, lane: str, by: str) -> _Pattern:
        """Add a pattern to the index."""
        pattern = self._patterns[names, lane] = _Pattern(names, lane, by)
        self._raised += 1  # a rollback may restore rows that are missing now
        self._globs += max(len(names.patterns), 1)
        self._file(pattern)
        self._forget_matches()
        combines = self._seeks.combines(lane)
        if names.exact and not combines:
            for head in self._seeks.heads_of(lane, names):
                self._found(pattern, head)
        elif names.everything and not combines:
            pattern.wide = True
        else:
            prefix = names.prefix()
            walk = self._walks.get((lane, prefix))
            if walk is None:
                walk = self._walks[lane, prefix] = _LaneWalk(lane, prefix)
            walk.join(pattern)
            pattern.walk = walk
            if not walk.patterns:
                walk.begin_round()
        self._make_room()
        return pattern

    def _file(self, pattern: _Pattern) -> None:
        if pattern.names.exact:
            by_name = self._lists.setdefault(pattern.lane, {})
            for name in pattern.names.exact:
                by_name.setdefault(name, {})[pattern] = None
        else:
            by_pattern = self._by_lane.setdefault(pattern.lane, PatternSet())
            for text in pattern.names.patterns:
                by_pattern.add(text, pattern)
            if not all(map(by_pattern.indexes, pattern.names.patterns)):
                self._compared[pattern] = None

    def _unfile(self, pattern: _Pattern) -> None:
        if pattern.names.exact:
            by_name = self._lists[pattern.lane]
            for name in pattern.names.exact:
                by_name[name].pop(pattern, None)
                if not by_name[name]:
                    del by_name[name]
        else:
            for text in pattern.names.patterns:
                self._by_lane[pattern.lane].discard(text, pattern)
            self._compared.pop(pattern, None)

    def _found(self, pattern: _Pattern, head: GroupHead) -> None:
        group, _, priority, next_run, job_id = head
        self._offer(pattern, (next_run, job_id, group), priority)

    def _make_room(self) -> None:
        """Evict the least used patterns, except patterns of the present take and patterns being searched.

        A pattern with very many names becomes wide instead, since a scan at each take costs more.
        """
        if not self._overflows and self._unindexed <= UNINDEXED_MAX:
            return
        for _ in range(EVICTIONS_TRIED_MAX if self._unindexed > UNINDEXED_MAX else 0):
            pattern = next(iter(self._compared))
            if self._is_in_use(pattern):
                self._compared.move_to_end(pattern)
                continue
            del self._patterns[pattern.names, pattern.lane]
            self._forget_pattern(pattern)
            if self._unindexed <= UNINDEXED_MAX:
                break
        for _ in range(min(len(self._patterns), EVICTIONS_TRIED_MAX) if self._overflows else 0):
            key, pattern = next(iter(self._patterns.items()))
            self._patterns.move_to_end(key)
            if self._is_in_use(pattern) or (pattern.wide and self._globs <= self._patterns_max):
                continue
            if self._globs > self._patterns_max or pattern.groups <= SEARCHED_AT_ONCE:
                del self._patterns[key]
                self._forget_pattern(pattern)
            elif not self._seeks.combines(pattern.lane):
                self._widen(pattern)
            if not self._overflows:
                break
        self._forget_matches()

    def _is_in_use(self, pattern: _Pattern) -> bool:
        """Return whether a take needs a pattern, which is then not evicted: its scan would start again."""
        asked = self._asked is not None and pattern.names in self._asked[1]
        return asked or pattern.walk is not None or bool(pattern.needed_by)

    @property
    def _overflows(self) -> bool:
        return self._globs > self._patterns_max or self._groups > self._groups_max

    @property
    def _unindexed(self) -> int:
        """Return the number of patterns that are matched against every name."""
        return sum(patterns.unindexed for patterns in self._by_lane.values())

    def _forget_pattern(self, pattern: _Pattern) -> None:
        self._globs -= max(len(pattern.names.patterns), 1)
        self._unfile(pattern)
        self._leave_walk(pattern)
        self._discard(pattern)

    def _leave_walk(self, pattern: _Pattern) -> None:
        walk, pattern.walk = pattern.walk, None
        if walk is not None:
            walk.leave(pattern)
            if not walk.patterns:
                self._end_round(walk)

    def _end_round(self, walk: _LaneWalk) -> None:
        if walk.next_round:
            walk.begin_round()
        else:
            self._walks.pop((walk.lane, walk.prefix), None)

    def _go_on(self, walk: _LaneWalk) -> int:
        """Continue a scan until the unit has no time left for it; return the rows read."""
        begun, cost, by = self._monotonic(), 0, walk.payer(self.budget) or ""
        while True:
            read = self._read_some(walk, min(SEARCHED_BETWEEN, SEARCHED_AT_ONCE - cost))
            self.budget.spend(by, read)
            cost += read
            self._read += read
            now = self._monotonic()
            begun, self._left_s = now, self._left_s - (now - begun)
            if cost >= SEARCHED_AT_ONCE or not self._has_time or walk.at is None:
                return cost

    @property
    def _has_time(self) -> bool:
        """Return whether scans may continue in this unit; each unit may read ``SEARCHED_BETWEEN`` rows."""
        return self._left_s > 0 or self._read < SEARCHED_BETWEEN

    def _read_some(self, walk: _LaneWalk, limit: int) -> int:
        """Continue a scan for about ``limit`` rows; return the number of rows read."""
        self._raised += 1
        patterns = walk.patterns
        heads, walk.at, cost = self._seeks.heads_after(walk.lane, walk.at, walk.prefix, limit)
        ended = walk.at is None
        for head in heads:
            for pattern in walk.matching(head[1]):
                self._found(pattern, head)
            if walk.patterns is not patterns:  # no pattern needs this round any longer
                return cost
        if ended and patterns:
            for pattern in patterns:
                pattern.walk = None
                self._patterns.move_to_end((pattern.names, pattern.lane))
                for names in [*pattern.needed_by]:
                    if self._is_ready(names):
                        self._no_longer_pending(names)
            walk.patterns = {}
            self._end_round(walk)
        if self._groups > self._groups_max:
            self._make_room()
        return cost

    def search_in_s(self) -> float:
        """Return the seconds until the budgets allow ``search`` to continue."""
        if not self._walks or self._resumable:
            return 0.0
        if any(walk.payer(self.budget) is not None for walk in islice(self._walks.values(), SCANS_TRIED_MAX)):
            return 0.0
        return SEARCHED_AT_ONCE / SEARCHED_PER_S_MAX

    def search(self, wanted: Collection[Names]) -> Sequence[Names]:
        """Continue one scan for one slice; see ``store.base.Unit``."""
        lost = [names for names in wanted if names not in self._pending]
        if len(self._pending) > len(wanted) - len(lost):
            self._give_up(wanted)
        invited = self._turns.next_of(lost)
        walks: list[tuple[float, tuple[str, str]]] = []
        for key in [*islice(self._walks, SCANS_TRIED_MAX)]:
            if (by := self._walks[key].payer(self.budget)) is None:
                self._walks.move_to_end(key)
            else:
                walks.append((self.budget.spent(by), key))
        room = SEARCHED_AT_ONCE
        for _, key in sorted(walks):
            if room > 0 and key in self._walks:
                room -= max(self._go_on(self._walks[key]), STEPS_OF_SCAN)
                if not self._has_time:
                    break
        if (ready := next(iter(self._resumable), None)) is None:
            return invited
        self._no_longer_pending(ready)
        return (*invited, ready)

    def _is_ready(self, names: Names) -> bool:
        """Return whether a postponed take no longer needs a scan."""
        return all(pattern.walk is None for pattern in self._pending[names])

    def _give_up(self, wanted: Collection[Names]) -> None:
        """Cancel searches that are no longer wanted."""
        for names in [names for names in self._pending if names not in wanted]:
            needed = self._pending[names]
            self._no_longer_pending(names)
            for pattern in needed:
                if pattern.walk is not None and not pattern.needed_by:
                    self._patterns.pop((pattern.names, pattern.lane), None)
                    self._forget_pattern(pattern)
        self._forget_matches()


def first_in_order(rows: Sequence[Job]) -> Job | None:
    """Return the job that is taken first, or None if there are no ``rows``."""
    return (
        rows[0]
        if len(rows) == 1
        else min(rows, key=lambda row: (-row.priority, row.next_run, row.job_id), default=None)
    )


def _is_head(row: Job, entry: Sequence[Any], place: tuple[str, str], priority: int) -> bool:
    """Return whether a job still matches its entry; if so, it is the first job of its group."""
    return (
        row.queued
        and (row.next_run, row.job_id) == tuple(entry[:2])
        and (row.lane, row.name) == place
        and row.priority == priority
    )
