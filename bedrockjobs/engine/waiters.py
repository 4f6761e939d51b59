"""Waiters: GetJobs that wait, which job each can take, who is next, and when a job becomes due for them.

Waiters that ask for the same jobs form a group. Groups are indexed by exact name, by prefix for patterns like
``text*``, and by the literal parts of other patterns, so that the groups for a job are found without looking
at all of them. This belongs to the event loop; it contains no SQL and no sockets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, cast

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.errors import CommandError, Unavailable
from bedrockjobs.base.glob import PatternSet
from bedrockjobs.base.principal import Scope, TokenShares
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.base import AccessPlan, SharedUnit

LONGER_PARTS = "names: ask for longer fixed parts, or do not wait"
"""Advice to a client whose patterns would have to be compared with every name."""

HEAP_SLACK = 100
"""Maximum number of outdated entries of a heap, beyond the number of current ones, before the heap is
rebuilt."""

WAKE_LATE_S = 0.001
"""Seconds by which the dispatcher wakes later than a job's nextRun, as timestamps are cut to milliseconds."""

GroupKey = tuple[Names, bool, int | None, tuple[str, ...], Scope | None, bool, str | None]
"""What a group asks for: names, mocked, priority, accepts, scope, whether it asks only once, and the worker
if it has jobs of its own or is drained."""


class Waiter:
    """One GetJob that waits."""

    __slots__ = ("deadline", "group", "once", "request", "seq", "submission", "token")

    def __init__(
        self,
        submission: Any,
        request: TakeRequest,
        seq: int,
        deadline: float,
        *,
        once: bool = False,
        token: str = "",
    ) -> None:
        """Wait for ``request`` of a token until ``deadline`` (monotonic seconds); ``seq`` orders by age.

        A waiter with ``once`` waits only until the store knows whether there is a job.
        """
        self.submission = submission
        self.request = request
        self.seq = seq
        self.deadline = deadline
        self.once = once
        self.token = token
        self.group: WaiterGroup | None = None


class WaiterGroup:
    """Waiters that ask for the same jobs, oldest first."""

    __slots__ = ("due", "held", "key", "once", "request", "waiters")

    def __init__(self, key: GroupKey, request: TakeRequest, *, held: bool, once: bool) -> None:
        """Start without waiters; a group that is ``held`` is not served, since its worker is drained."""
        self.key = key
        self.request = request
        self.held = held
        self.once = once
        self.waiters: dict[int, Waiter] = {}
        self.due: str | None = None
        """A timestamp before which no job becomes due for the group; None if no matching job is queued."""

    def oldest(self) -> Waiter:
        """Return the waiter to be served first."""
        return next(iter(self.waiters.values()))


def oldest_of(groups: Sequence[WaiterGroup]) -> Waiter:
    """Return the longest-waiting waiter of some groups; usually there is only one group."""
    if len(groups) == 1:
        return groups[0].oldest()
    return min([group.oldest() for group in groups], key=lambda waiter: waiter.seq)


class Waiting:
    """All waiters of a server."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, WaiterGroup] = {}
        self._held: frozenset[str] = frozenset()
        self._alone: frozenset[str] = frozenset()
        self._by_name: defaultdict[str, list[WaiterGroup]] = defaultdict(list)
        self._by_prefix: defaultdict[int, defaultdict[str, list[WaiterGroup]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._by_glob: PatternSet[WaiterGroup] = PatternSet()
        self._last_name: str | None = None
        self._last_found: list[WaiterGroup] = []
        """The groups found for the last name, because a create looks them up twice."""
        self._searching: dict[Names, dict[WaiterGroup, None]] = {}
        """Groups to be served when the store has finished searching for their names."""
        self._due: list[tuple[str, int, WaiterGroup]] = []
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._tie = 0
        self._polled = self._polled_names = 0  # position of the fallback poll in patterns and names
        self.count = 0
        """Number of waiters."""
        self.sooner = False
        """Whether a deadline or due time was added since the dispatcher last checked them."""
        self._waits_of: Counter[tuple[str, str]] = Counter()
        """Number of waiters by worker and token."""
        self._unindexed_of: Counter[tuple[str, str]] = Counter()
        """Number of waiters by token and pattern, for patterns that are compared with every name."""
        self._shares = TokenShares("Too many patterns are waited for")
        """How many patterns that are compared with every name each token waits for."""
        self._changes: list[tuple[Waiter, bool]] = []
        """Waiters added (True) or removed since the last commit, for rollback."""

    def __len__(self) -> int:
        """Return the number of waiters."""
        return self.count

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return a mark: the number of changes since the last commit."""
        return len(self._changes)

    def undo(self, mark: int) -> None:
        """Roll back to the mark: re-add waiters removed since, remove waiters added since."""
        again: dict[int, Waiter] = {}
        for waiter, began in reversed(self._changes[mark:]):
            if began:
                again.pop(waiter.seq, None)
                self._take_out(waiter)
                waiter.submission.waiter = None
            else:
                again[waiter.seq] = waiter
        del self._changes[mark:]
        self._put_back(list(again.values()))

    def forget(self) -> None:
        """Roll back all changes since the last commit."""
        self.undo(0)

    def committed(self) -> int:
        """Make the changes since the last commit permanent; return how many waiters were added."""
        if not self._changes:
            return 0
        count = 0
        for waiter, began in self._changes:
            if began:
                count += 1
                waiter.submission.parked()
        self._changes = []
        return count

    # --- adding and removing waiters ---------------------------------------------------------------------

    def add(self, waiter: Waiter, patterns_waiting_max: int | None = None) -> WaiterGroup:
        """Add a waiter; return its group, whose ``due`` may have to be updated.

        Raises Unavailable without adding it if more than ``patterns_waiting_max`` patterns would have to be
        compared with every job, and TooMany if its token has more than its share of such patterns.
        """
        before, token = self._by_glob.unindexed, waiter.token
        own_before = self._shares.used(token)
        group = self._put_in(waiter)
        if patterns_waiting_max is not None and self._by_glob.unindexed:
            try:
                if before < self._by_glob.unindexed > patterns_waiting_max:
                    raise Unavailable("Too many patterns are waited for", LONGER_PARTS)
                if own_before < self._shares.used(token):
                    self._shares.check(token, patterns_waiting_max, 0)
            except CommandError:
                self._take_out(waiter)
                raise
        self._changes.append((waiter, True))
        return group

    def _put_in(self, waiter: Waiter) -> WaiterGroup:
        request = waiter.request
        held, key = request.worker in self._held, self._key(waiter)
        group = self._groups.get(key)
        if group is None:
            shared = request if request.worker == key[-1] else replace(request, worker=None)
            group = self._groups[key] = WaiterGroup(key, shared, held=held, once=waiter.once)
            self._file(group)
        group.waiters[waiter.seq] = waiter
        waiter.group = group
        if self._by_glob.unindexed:
            for use in self._unindexed(waiter, group):
                self._unindexed_of[use] += 1
                if self._unindexed_of[use] == 1:
                    self._shares.add(use[0])
        self.count += 1
        self.sooner = True
        if request.worker is not None:
            self._waits_of[request.worker, waiter.token] += 1
        heappush(self._deadlines, (waiter.deadline, waiter.seq, waiter))
        return group

    def _key(self, waiter: Waiter) -> GroupKey:
        request = waiter.request
        alone = request.worker in self._held or request.worker in self._alone
        worker = request.worker if alone else None
        return (
            request.names,
            request.mocked,
            request.priority,
            request.accepts,
            request.scope,
            waiter.once,
            worker,
        )

    def waits_of(self, worker: str, token: str = "") -> int:
        """Return how many waiters a worker of a token has."""
        return self._waits_of[worker, token]

    def regroup(self, held: frozenset[str], alone: frozenset[str]) -> None:
        """Regroup waiters: ``held`` workers are drained, and not served; ``alone`` ones have own jobs."""
        if held is self._held and alone is self._alone:
            return
        changed = (self._held ^ held) | (self._alone ^ alone)
        if not changed:
            self._held, self._alone = held, alone
            return
        moved = [waiter for waiter in self.everyone() if waiter.request.worker in changed]
        for waiter in moved:
            self._take_out(waiter)
        self._held, self._alone = held, alone
        self._put_back(moved)

    def _put_back(self, waiters: list[Waiter]) -> None:
        """Add waiters again at their former positions."""
        for group in {id(group): group for group in map(self._put_in, waiters)}.values():
            group.waiters = dict(sorted(group.waiters.items()))
            self.note_due(group, "")

    def remove(self, waiter: Waiter) -> bool:
        """Remove a waiter; return False if it was no longer waiting."""
        if not self._take_out(waiter):
            return False
        self._changes.append((waiter, False))
        if len(self._deadlines) > 2 * self.count + HEAP_SLACK or len(self._due) > HEAP_SLACK:
            self._compact()
        return True

    def _compact(self) -> None:
        """Rebuild the heaps when most entries are outdated, which would otherwise stay until due."""
        if len(self._deadlines) > 2 * self.count + HEAP_SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].group is not None]
            heapify(self._deadlines)
        if len(self._due) > 2 * len(self._groups) + HEAP_SLACK:
            self._due = [entry for entry in self._due if entry[2].due == entry[0] and entry[2].waiters]
            heapify(self._due)

    def _take_out(self, waiter: Waiter) -> bool:
        group, waiter.group = waiter.group, None
        if group is None:
            return False
        del group.waiters[waiter.seq]
        if self._by_glob.unindexed:
            for use in self._unindexed(waiter, group):
                self._unindexed_of[use] -= 1
                if not self._unindexed_of[use]:
                    del self._unindexed_of[use]
                    self._shares.remove(use[0])
        self.count -= 1
        worker = waiter.request.worker
        if worker is not None:
            self._waits_of[worker, waiter.token] -= 1
            if not self._waits_of[worker, waiter.token]:
                del self._waits_of[worker, waiter.token]
        if not group.waiters:
            del self._groups[group.key]
            self._unfile(group)
            if self._searching:
                self._end_search(group)
            group.due = None
        return True

    def _unindexed(self, waiter: Waiter, group: WaiterGroup) -> Iterator[tuple[str, str]]:
        """Yield the token of a waiter with each of its patterns that are compared with every name."""
        if not (group.held or group.once):
            for pattern in group.request.names.globs:
                if not self._by_glob.indexes(pattern):
                    yield waiter.token, pattern

    def _file(self, group: WaiterGroup) -> None:
        """Index a group by its names, unless it is held or asks only once."""
        if group.held or group.once:
            return
        self._last_name = None
        names = group.request.names
        for name in names.exact:
            self._by_name[name].append(group)
        for prefix in names.prefixes:
            self._by_prefix[len(prefix)][prefix].append(group)
        for pattern in names.globs:
            self._by_glob.add(pattern, group)

    def _unfile(self, group: WaiterGroup) -> None:
        if group.held or group.once:
            return
        self._last_name = None
        names = group.request.names
        for name in names.exact:
            self._by_name[name].remove(group)
            if not self._by_name[name]:
                del self._by_name[name]
        for prefix in names.prefixes:
            files = self._by_prefix[len(prefix)]
            files[prefix].remove(group)
            if not files[prefix]:
                del files[prefix]
            if not files:
                del self._by_prefix[len(prefix)]
        for pattern in names.globs:
            self._by_glob.discard(pattern, group)

    # --- searches ----------------------------------------------------------------------------------------

    def begin_search(self, group: WaiterGroup) -> None:
        """Stop serving a group until the store has found the jobs of its names."""
        self._searching.setdefault(group.request.names, {})[group] = None
        self.sooner = True
        group.due = ""

    def searched(self) -> Collection[Names]:
        """Return the names that the store should search for."""
        return self._searching.keys()

    def end_search(self, names: Names) -> None:
        """Let groups with these names be served again, since the store has found their jobs."""
        for group in self._searching.pop(names, ()):
            group.due = None
            self.note_due(group, "")

    def _end_search(self, group: WaiterGroup) -> None:
        groups = self._searching.get(group.request.names)
        if groups is not None and group in groups:
            del groups[group]
            if not groups:
                del self._searching[group.request.names]

    def groups_for(self, row: Job) -> list[WaiterGroup]:
        """Return the groups that can take a job."""
        if self._by_prefix or self._by_glob:
            groups = self._groups_at(row.name)
        else:
            groups = iter(self._by_name.get(row.name, ()))
        if row.lane:
            return [group for group in groups if group.request.fits(row)]
        priority = row.priority  # apart from it, a job of the open lane only has to fit the names
        return [group for group in groups if group.request.priority in (None, priority)]

    def plan(self, names: Iterable[str]) -> AccessPlan:
        """Return the access set of the waiters that will be served if jobs of these names are created."""
        takes: list[TakeRequest] = []
        for name, count in Counter(names).items():
            left = count
            asking = dict.fromkeys(self._groups_at(name))
            for group in sorted(asking, key=lambda group: group.oldest().seq):
                takes.append(replace(group.oldest().request, limit=min(left, len(group.waiters))))
                left -= takes[-1].limit
                if not left:
                    break
        new_runs = sum(request.limit for request in takes if request.worker)
        return AccessPlan(takes=tuple(takes), own_jobs=True, new_runs=new_runs)

    def _groups_at(self, name: str) -> Iterator[WaiterGroup]:
        """Yield the groups that ask for a name; a group may be yielded several times."""
        yield from self._by_name.get(name, ())
        for length, files in self._by_prefix.items():
            yield from files.get(name[:length], ())
        if self._by_glob:
            if name != self._last_name:
                self._last_name, self._last_found = name, self._by_glob.matching(name)
            yield from self._last_found

    def note_due(self, group: WaiterGroup, timestamp: str) -> None:
        """Record that a job may become due for a group at ``timestamp``."""
        if not group.held and (group.due is None or timestamp < group.due):
            group.due = timestamp
            self.sooner = True
            self._tie += 1
            heappush(self._due, (timestamp, self._tie, group))

    def note_all_due(self) -> None:
        """Record that a job may be due for every group."""
        for group in self._groups.values():
            self.note_due(group, "")

    def note_some_due(self, count: int) -> None:
        """Record that a job may be due for the next ``count`` groups with patterns, in rotation."""
        groups = [group for group in self._groups.values() if group.request.names.patterns]
        for group in groups[self._polled : self._polled + count]:
            self.note_due(group, "")
        self._polled = self._polled + count if self._polled + count < len(groups) else 0

    def names_in_turn(self, count: int) -> list[str]:
        """Return the next ``count`` of the exact names that waiters ask for, in rotation."""
        names = list(self._by_name)
        found = names[self._polled_names : self._polled_names + count]
        self._polled_names = self._polled_names + count if self._polled_names + count < len(names) else 0
        return found

    def groups_of_pattern(self, pattern: str) -> list[WaiterGroup]:
        """Return all groups that may ask for names that match a pattern, and possibly some others."""
        found = [group for group in self._groups.values() if not group.held]
        return [group for group in found if group.request.names.may_match(pattern)]

    def note_name_due(self, name: str, timestamp: str) -> None:
        """Record that a job of which only the name is known may become due at ``timestamp``."""
        for group in self._groups_at(name):
            self.note_due(group, timestamp)

    def due_groups(self, now: str) -> list[WaiterGroup]:
        """Return the groups for which a job may be due, and clear their ``due``."""
        found = []
        while self._due and self._due[0][0] <= now:
            timestamp, _, group = heappop(self._due)
            if group.due == timestamp and group.waiters:
                group.due = None
                found.append(group)
        return found

    def next_due(self) -> str | None:
        """Return the earliest timestamp at which a job may become due for any group."""
        while self._due and (self._due[0][2].due != self._due[0][0] or not self._due[0][2].waiters):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def overdue(self, now: float) -> list[Waiter]:
        """Return the waiters whose deadline has passed at monotonic ``now``, for the caller to remove."""
        found = []
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].group is None):
            _, _, waiter = heappop(self._deadlines)
            if waiter.group is not None:
                found.append(waiter)
        return found

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of a waiter in monotonic seconds; None without waiters."""
        while self._deadlines and self._deadlines[0][2].group is None:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def everyone(self) -> list[Waiter]:
        """Return all waiters."""
        return [waiter for group in self._groups.values() for waiter in group.waiters.values()]


# Fallback poll: look for jobs whose notification from another server was lost. One statement asks for many
# names, so the poll is cheap regardless of the number of waiters.


def poll(context: Context, waiting: Waiting) -> None:
    """Mark groups for which a job may be due.

    These are groups of names for which a job is due (the next names in rotation, and all names of jobs that
    became due lately), and the next groups with patterns in rotation, whether or not a job is due.
    """
    if not waiting.count:
        return
    # There are two polls a second, so that 2,000 names take two seconds. PostgreSQL needs 1.5 ms for 500
    # names without jobs, and 15 ms if all have jobs due later.
    names = waiting.names_in_turn(500)
    # Patterns find jobs of any name that became due in the time that a transaction may take to commit
    # (``unit_s_max``)
    lately = after_seconds(context.now_ms, -5)
    for name in cast(SharedUnit, context.unit).due_names(names, context.now_ms, lately):
        waiting.note_name_due(name, "")
    waiting.note_some_due(16)  # groups, each of which costs one or two round trips
