"""The next job of a name pattern, at any backlog.

For each pattern in use the writer remembers the first job of every matching group, a group being the jobs of
one lane, name and priority, in one heap a priority. What is remembered is only a lower bound: a job that
became ready is always in it, a job that is gone may still be. So nothing has to be updated when a job is
taken, changed or deleted; an entry is checked by one seek when it reaches the top.

A new pattern begins with a walk through the names. It may take seconds, so it is done in slices, each in a
transaction with other work: ``search`` goes on with one walk for one slice, and a take that needs more raises
StillSearching. A pause costs nothing: entries with paused names are put aside as they reach the top, and come
back in slices when the pause ends. A pattern with more names than are remembered has no heaps: it looks
through the queue in order, and remembers up to where nothing matches.

The writer owns this; it has no locks and speaks SQL through the ``Seeks`` it is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any, Never, Protocol

from bedrockjobs.base.config import (
    PRIORITIES,
    SEARCH_BURST,
    SEARCHED_AT_ONCE,
    SEARCHED_PER_S_MAX,
    SEARCHED_UNIT_MAX,
    STEPS_FREE,
)
from bedrockjobs.base.glob import PatternSet
from bedrockjobs.job.rows import Job, PauseRow
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import StillSearching

NAMES_MATCHED_MAX = 50_000
"""Names with their matching patterns that are cached; the cache is cleared beyond."""

UNINDEXED_MAX = 128
"""Remembered patterns that are compared with every new name, as they have no fixed part of their own."""

EARLY_MAX = 10_000
"""Jobs that one wide pattern remembers before the place up to which it has looked; beyond, it looks again."""

RETRIED_AT_ONCE = 100
"""Names returned by one ``search`` whose search was lost, as the index forgot it."""

Group = str | tuple[str, str]
"""The jobs of one priority and one name: in the pattern's lane, or in one of its lanes, named with it."""

HeapEntry = tuple[str, int, Group]
"""nextRun, jobID and group of the first job of a group."""

Head = tuple[Group, str, int, str, int]
"""Group, name, priority, nextRun and jobID of the first job of a group."""


class Seeks(Protocol):
    """What the store answers."""

    def job(self, job_id: int) -> Job | None:
        """Return a job."""
        ...

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""
        ...

    def pause_of(self, name: str) -> PauseRow | None:
        """Return a pause that covers a name."""
        ...

    def pauses(self) -> Sequence[PauseRow]:
        """Return all pauses."""
        ...

    def held_lock(self, lane: str) -> str:
        """Return the lock of a lane if somebody holds it, else an empty text."""
        ...

    def combines(self, lane: str) -> bool:
        """Tell whether a lane stands for all lanes with locks that are found in it."""
        ...

    def heads_of(self, lane: str, names: Names) -> Iterable[Head]:
        """Return the heads of the groups of a list of names."""
        ...

    def heads_after(self, lane: str, after: Any, prefix: str) -> tuple[list[Head], Any, int]:
        """Return the next heads of names with a prefix, where they end, and how many rows that cost.

        The end is None if nothing follows. The next call begins behind it, the first one with None.
        """
        ...

    def due_after(
        self, lane: str, now: str, priority: int, after: tuple[str, int]
    ) -> Iterator[tuple[str, int, str]]:
        """Yield nextRun, jobID and name of the next due jobs behind a place, as many as one slice sees."""
        ...


class _Pattern:
    """What is remembered for one pattern in one lane."""

    def __init__(self, names: Names, lane: str, by: str) -> None:
        self.names = names
        self.lane = lane
        self.by = by
        """The token that asked for it first, which pays for its walk."""
        self.heaps: dict[int, list[HeapEntry]] = {priority: [] for priority in PRIORITIES}
        self.bounds: dict[int, dict[Group, HeapEntry]] = {priority: {} for priority in PRIORITIES}
        self.groups = 0
        """How many bounds there are."""
        self.parked: dict[str, list[tuple[int, HeapEntry]]] = {}
        """Entries that wait for a lock, each with its priority."""
        self.paused: dict[str, list[tuple[int, HeapEntry]]] = {}
        """Entries whose names are paused, by the pattern of the pause."""
        self.returning: list[tuple[int, HeapEntry]] = []
        """Entries whose pause has ended; the pattern is not asked before they are back."""
        self.handed: HeapEntry | None = None
        """The job that was found last: it is probably taken by now."""
        self.walk: _Walk | None = None
        """The walk that has still to find all heads."""
        self.wide = False
        """Whether there are too many groups to remember."""
        self.floors: dict[int, tuple[str, int]] = {}
        """Of a wide pattern: nextRun and jobID, by priority, up to which only ``early`` jobs match."""
        self.early: dict[int, list[tuple[str, int]]] = {priority: [] for priority in PRIORITIES}
        """Jobs of a wide pattern that became ready below its floor: a heap for each priority."""

    def look_again(self) -> None:
        """Forget up to where nothing matches."""
        self.floors = {}
        self.early = {priority: [] for priority in PRIORITIES}


class _Walk:
    """A walk through the names of a lane with one beginning, for all patterns that need it."""

    def __init__(self, lane: str, prefix: str) -> None:
        self.lane = lane
        self.prefix = prefix
        self.at: Any = None
        self.patterns: dict[_Pattern, None] = {}
        """Those that began with it."""
        self.next_round: dict[_Pattern, None] = {}
        """Those that came while it was under way: they take the next round."""
        self._matching: PatternSet[_Pattern] = PatternSet()
        self._matching_next: PatternSet[_Pattern] = PatternSet()
        self._lists: list[_Pattern] = []

    def join(self, pattern: _Pattern) -> None:
        """Take a pattern along, from the next round on.

        It is indexed here and not as the round begins: very many may have come by then.
        """
        self.next_round[pattern] = None
        for text in pattern.names.patterns:
            self._matching_next.add(text, pattern)

    def begin_round(self) -> None:
        """Begin again for those that came meanwhile."""
        self.patterns, self.next_round, self.at = self.next_round, {}, None
        self._matching, self._matching_next = self._matching_next, PatternSet()
        self._lists = [pattern for pattern in self.patterns if pattern.names.exact]

    def that_match(self, name: str) -> list[_Pattern]:
        found = [one for one in self._matching.matching(name) if one in self.patterns]
        if self._lists:
            found += [one for one in self._lists if one.names.match(name)]
        return found


class Budget:
    """How many rows walks look at for each token: a burst, then so many a second."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Begin with nothing spent."""
        self._monotonic = monotonic
        self._spent: dict[str, float] = {}
        """Rows that the walks of each token looked at beyond its rate."""
        self._filled_at = monotonic()

    def spend(self, by: str, rows: int) -> None:
        """Count rows that were looked at for a token."""
        self._spent[by] = self.spent(by) + rows

    def spent(self, by: str) -> float:
        """Return how many rows a token has used up beyond its rate."""
        return self._spent.get(by, 0.0)

    def payer(self, tokens: Iterable[str]) -> str | None:
        """Return the token that has spent least of some; None if none may spend more."""
        now = self._monotonic()
        rows, self._filled_at = (now - self._filled_at) * SEARCHED_PER_S_MAX, now
        if self._spent and rows > 0:
            self._spent = {one: left for one, spent in self._spent.items() if (left := spent - rows) > 0}
        by = min(tokens, key=self.spent, default="")
        return by if self.spent(by) < SEARCH_BURST else None


class PatternIndex:
    """The remembered patterns, the least used forgotten first."""

    def __init__(
        self, seeks: Seeks, patterns_max: int, groups_max: int, monotonic: Callable[[], float]
    ) -> None:
        """Remember up to ``patterns_max`` patterns, each of a list counted, and ``groups_max`` groups."""
        self._seeks = seeks
        self._patterns_max = patterns_max
        self._groups_max = groups_max
        self._raised = 0
        """How often a bound was raised: if that is undone, the bound is too high to be true."""
        self.budget = Budget(monotonic)
        """What each token may still search."""
        self._steps = SEARCHED_UNIT_MAX
        self._garbage: list[Any] = []
        """Large containers that were dropped, and are freed in slices."""
        self._clear()

    def _clear(self) -> None:
        self._patterns: OrderedDict[tuple[Names, str], _Pattern] = OrderedDict()
        self._by_lane: dict[str, PatternSet[_Pattern]] = {}
        self._lists: dict[str, dict[str, dict[_Pattern, None]]] = {}
        """Patterns by lane and by each name of a list."""
        self._matching: dict[tuple[str, str], Sequence[_Pattern]] = {}
        self._walks: dict[tuple[str, str], _Walk] = {}
        self._pending: dict[Names, _Pattern] = {}
        """Names of which a take was put off, each with the pattern for which."""
        self._globs = self._groups = 0

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return how often a bound was raised: lowered ones stay true whatever is undone."""
        return self._raised

    def undo(self, mark: int) -> None:
        """Forget all patterns if a bound was raised since the mark."""
        if self._raised != mark:
            self.forget()

    def forget(self) -> None:
        """Forget all patterns."""
        if self._groups > SEARCHED_AT_ONCE:
            for pattern in self._patterns.values():
                self._discard(pattern)
        if len(self._matching) > SEARCHED_AT_ONCE:
            self._garbage.append(self._matching)
        self._clear()

    def _discard(self, pattern: _Pattern) -> None:
        """Free what a pattern remembers, in slices if it is large: a million entries take 0.1 s and more."""
        lists = *pattern.heaps.values(), *pattern.paused.values(), pattern.returning
        held: list[Any] = [*lists, *pattern.bounds.values()]
        self._garbage += [one for one in held if len(one) > SEARCHED_AT_ONCE]
        pattern.heaps = {priority: [] for priority in PRIORITIES}
        pattern.bounds = {priority: {} for priority in PRIORITIES}
        pattern.paused, pattern.parked, pattern.returning = {}, {}, []
        self._groups -= pattern.groups
        pattern.groups = 0

    def begin(self) -> None:
        """Begin a unit: takes may look at so many entries in it, and some garbage is freed."""
        self._steps = SEARCHED_UNIT_MAX
        if self._garbage:
            last = self._garbage[-1]
            if isinstance(last, dict):
                for _ in range(min(SEARCHED_AT_ONCE, len(last))):
                    last.popitem()
            else:
                del last[-SEARCHED_AT_ONCE:]
            if not last:
                self._garbage.pop()

    # --- what is remembered ------------------------------------------------------------------------------

    def unlock(self, lock: str) -> None:
        """Note that nobody holds a lock any more."""
        for pattern in self._patterns.values():
            for priority, entry in pattern.parked.pop(lock, ()):
                heappush(pattern.heaps[priority], entry)

    def pauses_changed(self) -> None:
        """Let entries come back whose pause has ended."""
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
        """Note a job that became ready, now or for later; ``lane`` is its own, or the one it is found in."""
        if not self._patterns:
            return
        matching = self._matching.get((lane, row.name))
        if matching is None:
            matching = self._matching[lane, row.name] = self._that_match(lane, row.name)
            if len(self._matching) > NAMES_MATCHED_MAX:
                self._forget_matches()
        if matching:
            group: Group = row.name if lane == row.lane else (row.lane, row.name)
            for pattern in matching:
                self._offer(pattern, (row.next_run, row.job_id, group), row.priority)

    def _that_match(self, lane: str, name: str) -> Sequence[_Pattern]:
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
        bounds = pattern.bounds[priority]
        bound = bounds.get(entry[2])
        if bound is None or entry < bound:
            if bound is None:
                if pattern.groups >= self._groups_max:
                    self._widen(pattern)
                    return
                pattern.groups += 1
                self._groups += 1
            bounds[entry[2]] = entry
            heappush(pattern.heaps[priority], entry)

    def _widen(self, pattern: _Pattern) -> None:
        pattern.wide = True
        self._discard(pattern)
        self._leave_walk(pattern)

    def first_due(
        self, names: Names, lane: str, now: str, priorities: tuple[int, ...], by: str
    ) -> Job | None:
        """Return the first due job of a pattern; raises StillSearching.

        ``by`` is the token that asks: walks for it count against its budget.
        """
        pattern = self._ready(names, lane, by)
        for priority in priorities:
            top = self._first_in_order if pattern.wide else self._top
            row = top(pattern, priority, now)
            if row is not None and row.next_run <= now:
                if not pattern.wide:
                    pattern.handed = pattern.heaps[priority][0]
                return row
        return None

    def soonest(self, names: Names, lane: str, now: str) -> str | None:
        """Return when a job of a ready pattern may become due after ``now``; ask ``first_due`` before."""
        pattern = self._patterns[names, lane]
        tops = [heap[0][0] for heap in pattern.heaps.values() if heap and heap[0][0] > now]
        return min(tops, default=None)

    def is_ready(self, names: Names, lane: str) -> bool:
        """Tell whether all heads of a pattern are known, or that they are too many."""
        pattern = self._patterns.get((names, lane))
        return pattern is not None and pattern.walk is None and not pattern.returning

    def is_wide(self, names: Names, lane: str) -> bool:
        """Tell whether a pattern has too many groups to remember."""
        pattern = self._patterns.get((names, lane))
        return pattern is not None and pattern.wide

    def _step(self, pattern: _Pattern, taken: int) -> None:
        """Count a step of a take; raises StillSearching if others have waited long enough."""
        if taken > STEPS_FREE:
            self._steps -= 1
            if self._steps < 0:
                self._put_off(pattern)

    def _put_off(self, pattern: _Pattern) -> Never:
        self._pending[pattern.names] = pattern
        raise StillSearching

    def _top(self, pattern: _Pattern, priority: int, _: str) -> Job | None:
        """Return the first job of a pattern and priority, due or not."""
        heap, bounds, handed = pattern.heaps[priority], pattern.bounds[priority], pattern.handed
        obeys = bool(self._seeks.pauses()) and not pattern.lane.startswith("now")
        steps = 0
        while heap:
            steps += 1
            self._step(pattern, steps)
            entry = heap[0]
            next_run, job_id, group = entry
            lane, name = (pattern.lane, group) if isinstance(group, str) else group
            if bounds.get(group) != entry:
                heappop(heap)  # a lower bound for this group was pushed later
                continue
            if obeys and (pause := self._seeks.pause_of(name)):
                heappop(heap)
                pattern.paused.setdefault(pause.pattern, []).append((priority, entry))
                self._raised += 1
                continue
            if lane is not pattern.lane and (lock := self._seeks.held_lock(lane)):
                heappop(heap)
                pattern.parked.setdefault(lock, []).append((priority, entry))
                self._raised += 1
                continue
            if entry != handed:
                row = self._seeks.job(job_id)
                if row is not None and _is_head(row, entry, (lane, name), priority):
                    return row
            head = self._seeks.head(lane, name, priority)
            if head is None:
                heappop(heap)
                del bounds[group]
                pattern.groups -= 1
                self._groups -= 1
                self._raised += 1
            elif head == (next_run, job_id):
                return self._seeks.job(job_id)
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
            if steps > STEPS_FREE:
                self._steps -= steps
                steps = 0
                if self._steps < 0:
                    self._put_off(pattern)

    # --- searches ----------------------------------------------------------------------------------------

    def _ready(self, names: Names, lane: str, by: str) -> _Pattern:
        """Return a pattern of which all heads are known; raises StillSearching."""
        key = (names, lane)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._begin(names, lane, by)
        else:
            self._patterns.move_to_end(key)
        if pattern.walk is not None:
            if len(self._walks) == 1 and self._steps > 0 and self._payer(pattern.walk) is not None:
                self._steps -= self._go_on(pattern.walk)
            if pattern.walk is not None:
                self._put_off(pattern)
        if pattern.returning:
            self._bring_back(pattern)
            if pattern.returning:
                self._put_off(pattern)
        return pattern

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
        """Begin to remember a pattern."""
        pattern = self._patterns[names, lane] = _Pattern(names, lane, by)
        self._raised += 1  # what is read now may lack rows that come back when the part is undone
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
                walk = self._walks[lane, prefix] = _Walk(lane, prefix)
            walk.join(pattern)
            pattern.walk = walk
            if not walk.patterns:
                walk.begin_round()
        self._make_room(pattern)
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

    def _found(self, pattern: _Pattern, head: Head) -> None:
        group, _, priority, next_run, job_id = head
        self._offer(pattern, (next_run, job_id, group), priority)

    def _make_room(self, newest: _Pattern) -> None:
        """Forget patterns, the least used first, but neither the newest nor those that are searched for.

        One with very many names becomes wide instead: to walk for it at each take costs more.
        """
        if not self._overflows and self._unindexed <= UNINDEXED_MAX:
            return
        for key, pattern in [*self._patterns.items()] if self._unindexed > UNINDEXED_MAX else ():
            if pattern is not newest and pattern.names not in self._pending and self._is_unindexed(pattern):
                del self._patterns[key]
                self._forget_pattern(pattern)
                if self._unindexed <= UNINDEXED_MAX:
                    break
        for key, pattern in [*self._patterns.items()] if self._overflows else ():
            if pattern.names is newest.names or pattern.walk is not None or pattern.names in self._pending:
                continue  # somebody waits for it: to begin it again and again would serve nobody
            if self._globs > self._patterns_max or pattern.groups <= SEARCHED_AT_ONCE:
                del self._patterns[key]
                self._forget_pattern(pattern)
            elif not self._seeks.combines(pattern.lane):
                self._widen(pattern)
            if not self._overflows:
                break
        self._forget_matches()

    @property
    def _overflows(self) -> bool:
        return self._globs > self._patterns_max or self._groups > self._groups_max

    @property
    def _unindexed(self) -> int:
        """Return how many patterns are compared with every name."""
        return sum(patterns.unindexed for patterns in self._by_lane.values())

    def _is_unindexed(self, pattern: _Pattern) -> bool:
        by_pattern = self._by_lane.get(pattern.lane)
        return by_pattern is not None and not all(map(by_pattern.indexes, pattern.names.patterns))

    def _forget_pattern(self, pattern: _Pattern) -> None:
        self._globs -= max(len(pattern.names.patterns), 1)
        self._unfile(pattern)
        self._leave_walk(pattern)
        self._discard(pattern)

    def _leave_walk(self, pattern: _Pattern) -> None:
        walk, pattern.walk = pattern.walk, None
        if walk is not None:
            walk.patterns.pop(pattern, None)
            walk.next_round.pop(pattern, None)
            if not walk.patterns:
                self._end_round(walk)

    def _end_round(self, walk: _Walk) -> None:
        if walk.next_round:
            walk.begin_round()
        else:
            self._walks.pop((walk.lane, walk.prefix), None)

    def _go_on(self, walk: _Walk) -> int:
        """Go on with a walk for one slice; return how many rows that cost."""
        self._raised += 1
        patterns, by = walk.patterns, self._payer(walk) or ""
        heads, walk.at, cost = self._seeks.heads_after(walk.lane, walk.at, walk.prefix)
        self.budget.spend(by, cost)
        ended = walk.at is None
        for head in heads:
            for pattern in walk.that_match(head[1]):
                self._found(pattern, head)
            if walk.patterns is not patterns:  # none of its patterns needs this round any longer
                return cost
        if ended and patterns:
            for pattern in patterns:
                pattern.walk = None
                self._patterns.move_to_end((pattern.names, pattern.lane))
                self._pending.pop(pattern.names, None)
            walk.patterns = {}
            self._end_round(walk)
        if self._groups > self._groups_max:
            self._make_room(next(reversed(self._patterns.values())))
        return cost

    def _payer(self, walk: _Walk) -> str | None:
        """Return the token that has spent least of those for which a walk is; None if none may spend more."""
        return self.budget.payer({pattern.by for pattern in (*walk.patterns, *walk.next_round)})

    def search_in_s(self) -> float:
        """Return the seconds until ``search`` can go on."""
        if not self._walks or any(pattern.walk is None for pattern in self._pending.values()):
            return 0.0
        if any(self._payer(walk) is not None for walk in self._walks.values()):
            return 0.0
        return SEARCHED_AT_ONCE / SEARCHED_PER_S_MAX

    def search(self, wanted: Collection[Names]) -> Sequence[Names]:
        """Go on with one walk for one slice; see ``store.base.Unit``."""
        lost = [names for names in wanted if names not in self._pending]
        if len(self._pending) > len(wanted) - len(lost):
            self._give_up(wanted)
        if lost:
            return lost[:RETRIED_AT_ONCE]
        payers = [(by, walk) for walk in self._walks.values() if (by := self._payer(walk)) is not None]
        if payers:
            self._go_on(min(payers, key=lambda payer: self.budget.spent(payer[0]))[1])
        ready = next((names for names, pattern in self._pending.items() if pattern.walk is None), None)
        if ready is None:
            return ()
        del self._pending[ready]
        return (ready,)

    def _give_up(self, wanted: Collection[Names]) -> None:
        """Forget patterns that are searched for and no longer wanted."""
        for names in [names for names in self._pending if names not in wanted]:
            pattern = self._pending.pop(names)
            if pattern.walk is not None:
                self._patterns.pop((names, pattern.lane), None)
                self._forget_pattern(pattern)
        self._forget_matches()


def _is_head(row: Job, entry: Sequence[Any], place: tuple[str, str], priority: int) -> bool:
    """Tell whether a job is still where its entry says; as that is a lower bound, it is then the first."""
    return (
        row.queued
        and (row.next_run, row.job_id) == tuple(entry[:2])
        and (row.lane, row.name) == place
        and row.priority == priority
    )
