"""The next job of a name pattern, at any backlog.

For each pattern in use the writer remembers the first job of every matching group, a group being the jobs
of one lane, name and priority, in one heap a priority. What is remembered is only a lower bound: a job that
became ready is always in it, a job that is gone may still be. So nothing has to be told when a job is taken,
changed or deleted; an entry is checked by one seek when it reaches the top. The writer owns this; it has no
locks and speaks SQL through the ``Seeks`` it is given.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names

NAMES_MATCHED_MAX = 50_000
"""Names of which it is remembered which patterns they match; the memory is cleared beyond."""

Group = str | tuple[str, str]
"""The jobs of one priority and one name: in the pattern's lane, or in one of its lanes, named with it."""

HeapEntry = tuple[str, int, Group]
"""nextRun, jobID and group of the first job of a group."""


class Seeks(Protocol):
    """What the store answers."""

    def job(self, job_id: int) -> Job | None:
        """Return a job."""
        ...

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""
        ...

    def is_paused(self, name: str) -> bool:
        """Tell whether jobs of a name are not to be found at present."""
        ...

    def held_lock(self, lane: str) -> str:
        """Return the lock of a lane if somebody holds it, else an empty text."""
        ...

    def heads_of(self, lane: str, names: Names, limit: int) -> list[tuple[Group, int, str, int]] | None:
        """Return group, priority, nextRun and jobID of the head of each matching group; None if too many."""
        ...


class _Pattern:
    """What is remembered for one pattern in one lane."""

    def __init__(self, names: Names, lane: str) -> None:
        self.names = names
        self.globs = max(len(names.patterns), 1)
        self.lane = lane
        self.heaps: dict[int, list[HeapEntry]] = {priority: [] for priority in PRIORITIES}
        self.bounds: dict[tuple[Group, int], HeapEntry] = {}
        self.parked: dict[str, list[tuple[int, HeapEntry]]] = {}
        """Entries that wait for a lock, each with its priority."""
        self.handed: HeapEntry | None = None
        """The job that was found last: it is probably taken by now."""
        self.wide = False
        """Whether there are too many groups to remember; the store then looks through the queue."""


class PatternIndex:
    """The remembered patterns, the least used forgotten first."""

    def __init__(self, seeks: Seeks, patterns_max: int, groups_max: int) -> None:
        """Remember up to ``patterns_max`` patterns, with up to ``groups_max`` groups in all of them.

        Each pattern of a list counts, since each is matched with every name.
        """
        self._seeks = seeks
        self._patterns_max = patterns_max
        self._groups_max = groups_max
        self._patterns: OrderedDict[tuple[Names, str], _Pattern] = OrderedDict()
        self._matching: dict[tuple[str, str], tuple[_Pattern, ...]] = {}
        self._raised = 0
        """How often a bound was raised: where that is undone, the bound is too high to be true."""

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
        self._patterns = OrderedDict()
        self._matching = {}

    # --- what is remembered ------------------------------------------------------------------------------

    def unlock(self, lock: str) -> None:
        """Note that nobody holds a lock any more."""
        for pattern in self._patterns.values():
            for priority, entry in pattern.parked.pop(lock, ()):
                heappush(pattern.heaps[priority], entry)

    def offer(self, row: Job, lane: str) -> None:
        """Note a job that became ready, now or for later; ``lane`` is its own, or the one it is found in."""
        if not self._patterns:
            return
        matching = self._matching.get((lane, row.name))
        if matching is None:
            if len(self._matching) >= NAMES_MATCHED_MAX:
                self._matching.clear()
            matching = self._matching[lane, row.name] = tuple(
                pattern
                for pattern in self._patterns.values()
                if pattern.lane == lane and pattern.names.match(row.name)
            )
        group: Group = row.name if lane == row.lane else (row.lane, row.name)
        for pattern in matching:
            self._offer(pattern, (row.next_run, row.job_id, group), row.priority)

    def _offer(self, pattern: _Pattern, entry: HeapEntry, priority: int) -> None:
        if pattern.wide:
            return
        bound = pattern.bounds.get((entry[2], priority))
        if bound is None or entry < bound:
            if bound is None and len(pattern.bounds) >= self._groups_max:
                self._widen(pattern)
                return
            pattern.bounds[entry[2], priority] = entry
            heappush(pattern.heaps[priority], entry)

    @staticmethod
    def _widen(pattern: _Pattern) -> None:
        pattern.wide = True
        pattern.bounds.clear()
        pattern.parked.clear()
        for heap in pattern.heaps.values():
            heap.clear()

    def first_due(self, names: Names, lane: str, now: str, priorities: tuple[int, ...]) -> Job | None:
        """Return the first due job of a pattern that is not wide."""
        pattern = self._pattern(names, lane)
        for priority in priorities:
            row = self._top(pattern, priority)
            if row is not None and row.next_run <= now:
                pattern.handed = pattern.heaps[priority][0]
                return row
        return None

    def soonest(self, names: Names, lane: str, now: str) -> str | None:
        """Return when a job of the pattern may become due after ``now``; ask ``first_due`` before."""
        pattern = self._pattern(names, lane)
        tops = [heap[0][0] for heap in pattern.heaps.values() if heap and heap[0][0] > now]
        return min(tops, default=None)

    def knows(self, names: Names, lane: str) -> bool:
        """Tell whether anything is remembered of a pattern."""
        return (names, lane) in self._patterns

    def is_wide(self, names: Names, lane: str) -> bool:
        """Tell whether a pattern has too many groups to remember."""
        return self._pattern(names, lane).wide

    def _top(self, pattern: _Pattern, priority: int) -> Job | None:
        heap, bounds, handed = pattern.heaps[priority], pattern.bounds, pattern.handed
        while heap:
            entry = heap[0]
            next_run, job_id, group = entry
            lane, name = (pattern.lane, group) if isinstance(group, str) else group
            if not pattern.lane.startswith("now") and self._seeks.is_paused(name):
                heappop(heap)  # whoever opens it again lets all be forgotten
                bounds.pop((group, priority), None)
                self._raised += 1
                continue
            if bounds.get((group, priority)) != entry:
                heappop(heap)  # a lower bound for this group was pushed later
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
                del bounds[group, priority]
                self._raised += 1
            elif head == (next_run, job_id):
                return self._seeks.job(job_id)
            else:
                bounds[group, priority] = (*head, group)
                heapreplace(heap, (*head, group))
                self._raised += 1
        return None

    def _pattern(self, names: Names, lane: str) -> _Pattern:
        key = (names, lane)
        pattern = self._patterns.get(key)
        if pattern is not None:
            self._patterns.move_to_end(key)
            return pattern
        pattern = _Pattern(names, lane)
        self._raised += 1  # what is read now may lack rows that come back when the part is undone
        found = self._seeks.heads_of(lane, names, self._groups_max)
        if found is None:
            pattern.wide = True
        else:
            for group, priority, next_run, job_id in found:
                entry = (next_run, job_id, group)
                pattern.bounds[group, priority] = entry
                pattern.heaps[priority].append(entry)
            for heap in pattern.heaps.values():
                heapify(heap)
        self._patterns[key] = pattern
        self._make_room()
        self._matching.clear()
        return pattern

    def _make_room(self) -> None:
        """Forget patterns, the least used first; the newest stays, and is no larger than the whole room."""
        groups = sum(len(pattern.bounds) for pattern in self._patterns.values())
        globs = sum(pattern.globs for pattern in self._patterns.values())
        while len(self._patterns) > 1 and (globs > self._patterns_max or groups > self._groups_max):
            _, forgotten = self._patterns.popitem(last=False)
            groups -= len(forgotten.bounds)
            globs -= forgotten.globs


def _is_head(row: Job, entry: HeapEntry, place: tuple[str, str], priority: int) -> bool:
    """Tell whether a job is still where its entry says; as that is a lower bound, it is then the first."""
    return (
        row.queued
        and (row.next_run, row.job_id) == entry[:2]
        and (row.lane, row.name) == place
        and row.priority == priority
    )
