"""Finds the next queued job to take, by name and priority, with lanes, locks and pauses.

A lane is a partition of the queued jobs: those with the same conditions for being taken. The lanes and
locks in use are cached, and loaded again after a rollback. Statements use the writer's connection.
"""

from __future__ import annotations

import sqlite3
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any

from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.config import (
    HEADS_KEPT_MAX,
    HEADS_READ_MAX,
    IN_TURN_MAX,
    LOCKS_CACHED_MAX,
    NAMES_CACHED_MAX,
    PRIORITIES,
    SEARCHED_AT_ONCE,
    SEARCHED_BETWEEN,
)
from bedrockjobs.base.glob import glob
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.limits import slots_of, start_by_key
from bedrockjobs.job.rows import (
    EVERY_LANE,
    MOCK_LANE,
    OPEN_LANE,
    UNTAKEN,
    Job,
    Lane,
    found_in,
    is_narrow,
    parse_lane,
)
from bedrockjobs.job.take_request import Names, TakeRequest, names_from
from bedrockjobs.store.base import LockPeriod, ReadyNews
from bedrockjobs.store.fair_turns import FairTurns, Turn, name_after
from bedrockjobs.store.pattern_index import GroupHead, PatternIndex, first_in_order
from bedrockjobs.store.records import HIGHEST, Records, StatementExecutor
from bedrockjobs.store.statements import STATEMENTS as SQL

# A group is the queued jobs of one lane, name and priority. Its first job (its head) is found by a seek.


NamedGroup = tuple[str, int, str, int]
"""Name and priority of a group, with nextRun and jobID of its first job."""


GroupPlace = tuple[str, int, bool]
"""Position of a scan of groups: name and priority of the last group, and whether the groups before it have so
many jobs each that seeks are cheaper than a scan."""

SEEK_ROWS = 10
"""Cost of one index seek, as a number of rows of a scan."""

_LOWEST = min(PRIORITIES)


def groups(
    execute: Callable[..., sqlite3.Cursor], lane: str, names: Names, limit: int
) -> list[NamedGroup] | None:
    """Return the first job of each matching group, or None if a scan of ``limit`` rows does not end."""
    if names.exact:
        return [group for name in names.exact for group in _of_name(execute, lane, name, PRIORITIES[0] + 1)]
    found, after, _ = groups_after(execute, lane, None, names.prefix(), limit + 1)
    return None if after is not None else [group for group in found if names.match(group[0])]


def groups_after(
    execute: Callable[..., sqlite3.Cursor], lane: str, after: GroupPlace | None, prefix: str, limit: int
) -> tuple[list[NamedGroup], GroupPlace | None, int]:
    """Continue a scan of the groups of a lane behind the position ``after``.

    A group consists of the queued jobs of one name and priority.
    Return the first job of each group whose name begins with ``prefix``, the position reached, and the cost.
    The cost is the number of rows read, about ``limit``. The position is None at the end of the lane.
    """
    found: list[NamedGroup] = []
    last = prefix + HIGHEST
    if after is None:
        rows = execute(SQL["queued_from"], (lane, prefix, last, limit)).fetchall()
    else:
        name, priority, crowded = after
        found = _of_name(execute, lane, name, priority)
        if crowded:
            return _by_seeks(execute, lane, name, last, limit, found)
        rows = execute(SQL["queued_behind"], (lane, name, last, limit)).fetchall()
    name, priority = "", -1
    for row in rows:
        if row[0] != name or row[1] != priority:
            found.append(row)
            name, priority = row[0], row[1]
    return (
        found,
        None if len(rows) < limit else (name, priority, len(found) * SEEK_ROWS < len(rows)),
        len(rows),
    )


def _of_name(execute: Callable[..., sqlite3.Cursor], lane: str, name: str, priority: int) -> list[NamedGroup]:
    """Return the first jobs of the groups of a name with a lower priority than ``priority``."""
    found: list[NamedGroup] = []
    while priority > _LOWEST:
        group = execute(SQL["next_group_of_name"], (lane, name, priority)).fetchone()
        if group is None:
            break
        found.append(group)
        priority = group[1]
    return found


def _by_seeks(
    execute: Callable[..., sqlite3.Cursor],
    lane: str,
    name: str,
    last: str,
    limit: int,
    found: list[NamedGroup],
) -> tuple[list[NamedGroup], GroupPlace | None, int]:
    """Continue ``groups_after`` by seeks: a scan would read all jobs of names that have many jobs each."""
    cost = 0
    while cost < limit:
        group = execute(SQL["next_group"], (lane, name, last)).fetchone()
        if group is None:
            return found, None, cost
        name = group[0]
        found += [group, *_of_name(execute, lane, name, group[1])]
        cost += 3 * SEEK_ROWS
    return found, (name, _LOWEST, False), cost


# The last time each lock was held, which explains the missed ticks of a schedule that waited for it.
#
# This history is in memory only: after a restart, earlier missed ticks are explained by the lack of a worker.
# The jobs that hold locks now are read from the database.


class LockHistory:
    """The last period in which each lock was held, for a limited number of locks."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, LockPeriod] = (
            OrderedDict()
        )  # popping the oldest item of a plain dict is O(n)

    def hold(self, lock: str, since: str) -> None:
        """Record that a lock is held since the timestamp ``since``, in whole seconds."""
        known = self._last.get(lock)
        if known is None or (known.until and known.until < since):
            known = LockPeriod(since)
        self._last[lock] = known._replace(until="")
        self._last.move_to_end(lock)
        if len(self._last) > LOCKS_CACHED_MAX:
            self._last.popitem(last=False)

    def release(self, lock: str, until: str) -> None:
        """Record that a lock was released."""
        known = self._last.get(lock)
        if known is not None:
            self._last[lock] = known._replace(until=until)

    def last(self, lock: str) -> LockPeriod | None:
        """Return when a lock was held last, or None if unknown."""
        return self._last.get(lock)


# Cache of the queued broadcast schedules, for which the server creates a job per host when they are due.
#
# A server has few of them, so all are cached.


class AllHostsSchedules:
    """The queued broadcast schedules, and when the next one is due."""

    def __init__(self, is_paused: Callable[[str], bool]) -> None:
        """Start empty; ``is_paused`` returns whether a name is paused."""
        self.rows: dict[int, Job] = {}
        self._is_paused = is_paused
        self._next: str | None = None
        self._known = False

    def load(self, rows: list[Job]) -> None:
        """Replace all cached schedules."""
        self.rows.clear()
        self.rows.update((row.job_id, row) for row in rows)
        self._known = False

    def note(self, row: Job) -> None:
        """Add, update or remove a job that was written."""
        if row.lane == EVERY_LANE and row.queued:
            self.rows[row.job_id] = row
            self._known = False
        else:
            self.set_aside(row.job_id)

    def set_aside(self, job_id: int) -> None:
        """Remove a schedule from the cache until it is written again."""
        if self.rows.pop(job_id, None) is not None:
            self._known = False

    def pauses_changed(self) -> None:
        """Handle a change of the pauses."""
        self._known = False

    @property
    def next(self) -> str | None:
        """Return when the next schedule that is not paused is due; None if there is none."""
        if not self._known:
            rows = self.rows.values()
            self._next = min((row.next_run for row in rows if not self._waits(row)), default=None)
            self._known = True
        return self._next

    def due(self, now: str) -> list[Job]:
        """Return the due schedules, oldest first."""
        if self.next is None or self.next > now:
            return []
        rows = [row for row in self.rows.values() if row.next_run <= now and not self._waits(row)]
        return sorted(rows, key=lambda row: (row.next_run, row.job_id))

    def _waits(self, row: Job) -> bool:
        return self._is_paused(row.name) and row.memory.trigger is None


# Cache of the next jobs in the open lane (jobs that any worker may take), in the order of takes: a line for
# each name, and one line for all names together.
#
# A changed or deleted job may keep an outdated entry until that entry is the first of its line. But every
# queued job that comes before the last entry of a line has an entry in it.


Head = tuple[int, str, int]
"""Negated priority, nextRun and jobID: sorts in the order of takes."""


class _Line:
    """The next jobs of one name, or of all names."""

    __slots__ = ("ahead", "heads", "wanted", "whole")

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.whole = False
        """Whether the line has an entry for every queued job of its name."""
        self.wanted = 1
        """Number of jobs that the next statement reads; it doubles each time."""
        self.ahead = True
        """Whether rows are read ahead of takes: not if they are too long for the row cache."""


class NextJobs:
    """The lines of the open lane: the next jobs of each name, and of all names (None)."""

    def __init__(self, execute: Callable[..., sqlite3.Cursor]) -> None:
        self._execute = execute
        self._lines: OrderedDict[str | None, _Line] = OrderedDict()

    def offer(self, row: Job) -> None:
        """Add a queued job of the open lane."""
        head = (-row.priority, row.next_run, row.job_id)
        lines = self._lines
        for name in (row.name, None):
            line = lines.get(name)
            if line is None:
                continue
            heads = line.heads
            if heads and head < heads[-1]:
                insort(heads, head)
            elif line.whole:
                heads.append(head)
            if len(heads) > HEADS_KEPT_MAX:
                heads.pop()
                line.whole = False

    def first(self, name: str | None) -> Head | None:
        """Return the first entry of a name, or of all names (None); the entry may be outdated."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
            if len(self._lines) > NAMES_CACHED_MAX:
                self._lines.popitem(last=False)
        if line.heads:
            return line.heads[0]
        if not line.whole:
            statement = "heads_of_any" if name is None else "heads_of_name"
            parameters = () if name is None else (name,)
            line.heads = self._execute(SQL[statement], (*parameters, line.wanted)).fetchall()
            line.whole = len(line.heads) < line.wanted
            line.wanted = min(2 * line.wanted, HEADS_READ_MAX)
        return line.heads[0] if line.heads else None

    def upcoming(self, name: str | None) -> list[int]:
        """Return the jobIDs whose rows to read ahead for a name, or for all names (None)."""
        line = self._lines[name]
        return [head[2] for head in line.heads[:16]] if line.ahead else []

    def stop_reading_ahead(self, name: str | None) -> None:
        """From now on, read the rows of a name, or of all names, one by one."""
        self._lines[name].ahead = False

    def drop_first(self, name: str | None) -> None:
        """Drop the first entry, since it is outdated."""
        del self._lines[name].heads[0]

    def took(self, job: Job) -> None:
        """Drop a taken job from the front of the lines of its name and of all names."""
        for name in (job.name, None):
            line = self._lines.get(name)
            if line is not None and line.heads and line.heads[0][2] == job.job_id:
                del line.heads[0]

    def is_empty(self, name: str | None) -> bool:
        """Return whether it is known that no job of a name, or of any name, is queued."""
        for line in (self._lines.get(None), self._lines.get(name)):
            if line is not None and line.whole and not line.heads:
                return True
        return False

    def forget(self) -> None:
        """Drop all lines."""
        self._lines.clear()


GROUPS_FREED_MAX = 100
"""Maximum number of groups that are examined when a lock is released, to find jobs for waiters; if there are
more, all waiters are checked again."""

GLANCE_ROWS = 20
"""Maximum number of due jobs examined in order before a pattern is indexed: often one of them matches, even
among a million names."""


class ReadyQueue:
    """The queued jobs of one database, in the order in which they are taken."""

    def __init__(
        self,
        connection: StatementExecutor,
        job: Callable[[int], Job | None],
        read_ahead: Callable[[list[int]], bool],
        cached: Callable[[int], Job | None],
        records: Records,
        settings: Settings,
        monotonic: Callable[[], float],
    ) -> None:
        """Use the writer's ``connection``; ``job`` returns a job, ``cached`` only a job in the row cache.

        ``read_ahead`` reads some jobs into the row cache. It returns False if the first job is too long for
        the cache.
        """
        self._execute = connection.execute
        self.job, self._cached, self._read_ahead = job, cached, read_ahead
        self._records = records
        self.pauses, self.pause_of = records.pauses, records.pause_of
        self.patterns = PatternIndex(
            self, settings.patterns_cached_max, settings.groups_remembered_max, monotonic
        )
        """The pattern index."""
        self.all_hosts = AllHostsSchedules(self.is_paused)
        """The queued broadcast schedules."""
        self.moment = datetime.min.replace(tzinfo=UTC)
        """The timestamp of the open unit."""
        self._lock_history = LockHistory()
        self.news = ReadyNews()
        """What became ready in the open unit."""
        self._version = 0
        """Number of changes of the lanes and locks so far."""
        self._next = NextJobs(self._execute)
        """The next jobs of the open lane."""
        self._turns = FairTurns()
        self._clear()

    def _clear(self) -> None:
        self._special: dict[str, Lane] = {}
        self._locked: dict[str, dict[str, None]] = {}
        self._lanes_of_lock: dict[str, dict[str, None]] = {}
        self._bound: dict[str, dict[str, Lane]] = {}
        self._bound_workers: frozenset[str] = frozenset()
        self._locks: dict[str, set[int]] = {}
        self._holders: dict[int, str] = {}
        """The lock that each running job holds, by jobID."""
        self.all_hosts.load([])
        self._known = False

    def refresh(self) -> None:
        """Load the lanes in use and the holders of locks in an open unit, unless they are cached."""
        self.patterns.begin()
        if self._known:
            return
        self._clear()
        for lane, job_id, since in in_slices(self._execute(SQL["holding"])):
            if lock := parse_lane(lane).lock:
                self._hold(lock, job_id, since)
        for (lane,) in in_slices(self._execute(SQL["queued_lanes"])):
            self._open_lane(lane)
        every = in_slices(self._execute(SQL["queued_in_lane"], (EVERY_LANE,)).fetchall())
        found = [self.job(job_id) for job_id, _ in every]
        self.all_hosts.load([job for job in found if job is not None])
        self._known = True

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int, bool]:
        """Return the version, the number of newly ready jobs and whether all waiters must be checked."""
        return self._version, len(self.news.jobs), self.news.wakes_all

    def undo(self, mark: tuple[int, int, bool]) -> None:
        """Drop the jobs queued since the mark; reload lanes and locks if they changed."""
        version, ready, self.news.wakes_all = mark
        del self.news.jobs[ready:]
        self._next.forget()
        if version != self._version:
            self._known = False

    def forget(self) -> None:
        """Drop cached lanes and locks; all waiters are checked again in any case."""
        self.news.jobs = []
        self._next.forget()
        self._known = False

    # --- written jobs ------------------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Update the caches for a written job."""
        if job.lane or job.job_id in self._holders or job.job_id in self.all_hosts.rows:
            self._version += 1
            self.note_lock(job)
            self.all_hosts.note(job)
        if job.queued:
            if job.lane:
                self._open_lane(job.lane)
                lock = parse_lane(job.lane).lock
                if lock in self._locks and self._slots_of(job) > 1:  # its limit may have been raised
                    self.patterns.unlock(lock)
            else:
                self._next.offer(job)
            self.patterns.offer(job, found_in(job.lane) if job.lane else OPEN_LANE)
            self.news.jobs.append(job)

    def took(self, job: Job) -> None:
        """Update the caches for a plain job that was taken."""
        if job.lane:
            self.note_lock(job)
        else:
            self._next.took(job)

    def became_ready(self) -> list[Job]:
        """Return the jobs queued since the last call, whether due or not."""
        found, self.news.jobs = self.news.jobs, []
        return found

    def must_wake_all(self) -> bool:
        """Return whether all waiters must be checked again; reset it to False."""
        found, self.news.wakes_all = self.news.wakes_all, False
        return found

    def _open_lane(self, lane: str) -> None:
        if lane in (MOCK_LANE, *UNTAKEN) or lane in self._special:
            return
        parts = parse_lane(lane)
        if parts.lock:
            where = str(parts._replace(lock="")) + " lock"
            self._locked.setdefault(where.lstrip(), {})[lane] = None
            self._lanes_of_lock.setdefault(parts.lock, {})[lane] = None
        elif not parts.worker:
            self._special[lane] = parts
        elif parts.worker in self._bound:
            self._bound[parts.worker][lane] = parts
        else:
            self._bound[parts.worker] = {lane: parts}
            self._bound_workers = frozenset(self._bound)

    def workers_with_own_jobs(self) -> frozenset[str]:
        """Return the workers that have queued jobs bound to them."""
        return self._bound_workers

    def drop(self, job_id: int) -> None:
        """Update the caches for a deleted job."""
        if job_id in self._holders:
            self._version += 1
            self._release(job_id)
        if job_id in self.all_hosts.rows:
            self._version += 1
            self.all_hosts.set_aside(job_id)

    # --- locks -------------------------------------------------------------------------------------------

    def note_lock(self, row: Job) -> None:
        """Record whether a job that was written holds the lock of its lane."""
        self._version += 1
        lock = parse_lane(row.lane).lock
        if lock and row.state == "RUNNING":
            if self._holders.get(row.job_id, lock) != lock:
                self._release(row.job_id)
            self._hold(lock, row.job_id, row.last_run)
        elif row.job_id in self._holders:
            self._release(row.job_id)

    def _hold(self, lock: str, job_id: int, since: str) -> None:
        self._lock_history.hold(lock, since)
        self._holders[job_id] = lock
        self._locks.setdefault(lock, set()).add(job_id)

    def _release(self, job_id: int) -> None:
        """Release the lock of a job; the jobs that wait for this lock are offered to waiters again."""
        lock = self._holders.pop(job_id)
        self._locks[lock].discard(job_id)
        if not self._locks[lock]:
            del self._locks[lock]
            self._lock_history.release(lock, timestamp_ms(self.moment))
        self.patterns.unlock(lock)
        everything = names_from("*", None)
        assert everything is not None
        for lane in self._lanes_of_lock.get(lock, ()):
            found = self.groups(lane, everything, GROUPS_FREED_MAX)
            if found is None:
                self.news.wakes_all = True
                return
            rows = [self.job(first) for _, _, _, first in found]
            self.news.jobs += [row for row in rows if row is not None]

    def held_lock(self, job: Job) -> str:
        """Return the lock of a job if it keeps the job from starting, otherwise an empty string."""
        lock = parse_lane(job.lane).lock
        holders = self._locks.get(lock)
        return lock if holders and len(holders) >= self._slots_of(job) else ""

    def _slots_of(self, job: Job) -> int:
        return slots_of(job, self._records.limits())

    def start_by_key(self, job: Job) -> str:
        """Return when a job may start by the limits of starts per key; empty if none applies."""
        return start_by_key(job, self._records.limits(), self._records.paced)

    def lock_held(self, lane: str) -> LockPeriod | None:
        """Return when the lock of a lane was held last; None if unknown or if the lane has no lock."""
        lock = parse_lane(lane).lock
        found = self._lock_history.last(lock) if lock else None
        return None if found is None or (not found.until and lock not in self._locks) else found

    def pauses_changed(self, *, wake: bool = True) -> None:
        """Handle a change of the pauses; with ``wake``, all waiters are checked again."""
        self.patterns.pauses_changed()
        self.all_hosts.pauses_changed()
        self.news.wakes_all = self.news.wakes_all or wake

    def slots_changed(self) -> None:
        """Handle a change of the limits per concurrency key; all waiters are checked again."""
        self.patterns.unlock_all()
        self.news.wakes_all = True

    # --- takes -------------------------------------------------------------------------------------------

    def is_paused(self, name: str) -> bool:
        """Return whether a name is paused."""
        return self.pause_of(name) is not None

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take; see ``store.base.Unit``."""
        job = self._first_in_order(request, now)
        if job is None or not (limits := self._records.limits()):
            return job
        return self._turns.in_turn(job, limits, request, now, self)

    def _first_in_order(self, request: TakeRequest, now: str) -> Job | None:
        names, priority = request.names, request.priority
        if not request.mocked and not self._special and not self._locked and not self._bound:
            if priority is None and names.single is not None and not self.pauses():
                return self._first(names.single, now)  # most takes
            return self._first_due(request, OPEN_LANE, now)
        firsts = [self._first_due(request, lane, now) for lane in self._lanes(request)]
        return first_in_order([row for row in firsts if row is not None])

    def _lanes(self, request: TakeRequest) -> Iterator[str]:
        accepts, worker = request.accepts, request.worker
        yield OPEN_LANE
        if request.mocked:
            yield MOCK_LANE
        for lane, parts in list(self._special.items()):
            if not parts.own or parts.own in accepts:
                if self._in_use(lane):
                    yield lane
                else:
                    del self._special[lane]
        for lane in list(self._locked):
            own = lane.removeprefix("now").strip().partition(" ")[0]
            if own == "lock" or own in accepts:
                yield lane
        bound = None if worker is None else self._bound.get(worker)
        if bound is not None and worker is not None:
            for lane in [lane for lane in bound if not self._in_use(lane)]:
                del bound[lane]
            if not bound:
                del self._bound[worker]
                self._bound_workers = frozenset(self._bound)
            yield from [lane for lane, parts in bound.items() if not parts.own or parts.own in accepts]

    def _in_use(self, lane: str) -> bool:
        return self._execute(SQL["lane_in_use"], (lane,)).fetchone() is not None

    def _first_due(self, request: TakeRequest, lane: str, now: str) -> Job | None:
        names, priority = request.names, request.priority
        paused = bool(self.pauses()) and not parse_lane(lane).now
        if paused and names.single is not None and self.is_paused(names.single):
            return None
        priorities = PRIORITIES if priority is None else (priority,)
        if lane in self._locked:
            return self._first_unlocked(request, lane, now, priorities)
        if names.single is not None:
            return self._first_of_name(names.single, lane, now, priority)
        if names.everything and not paused:
            if priority is None:
                if lane == OPEN_LANE:
                    return self._first(None, now)
                return self._found(SQL["due_of_any"], (lane, now))
            return self._found(SQL["due_of_any_of_priority"], (lane, now, priority))
        if parse_lane(lane).worker:  # not indexed: many lanes with few jobs each
            due = self._due(names, lane, now, priorities, paused)
            return next((job for job in in_slices(due) if job is not None), None)
        if not self.patterns.is_ready(names, lane):
            for job in islice(self._due(names, lane, now, priorities, paused), GLANCE_ROWS):
                if job is not None:
                    return job
        if not names.parts:
            return self.patterns.first_due(names, lane, now, priorities, request.by)
        found = [
            self._first_of_name(part.single, lane, now, priority)
            for part in names.parts
            if part.single is not None and not (paused and self.is_paused(part.single))
        ]
        if globs := [part for part in names.parts if part.single is None]:
            found.append(self.patterns.first_due(names, lane, now, priorities, request.by, globs))
        return first_in_order([row for row in found if row is not None])

    def _first_of_name(self, name: str, lane: str, now: str, priority: int | None) -> Job | None:
        """Return the first due job of a name."""
        if priority is None and lane == OPEN_LANE:
            return self._first(name, now)
        if priority is None:
            return self._found(SQL["due_by_name"], (lane, name, now))
        return self._found(SQL["due_by_name_of_priority"], (lane, name, now, priority))

    def _first_unlocked(
        self, request: TakeRequest, lane: str, now: str, priorities: tuple[int, ...]
    ) -> Job | None:
        """Return the first due job with a free lock, among all lanes that ``lane`` combines."""
        names = request.names
        if not self.patterns.is_wide(names, lane):
            return self.patterns.first_due(names, lane, now, priorities, request.by, names.parts)
        paused = bool(self.pauses()) and not lane.startswith("now")
        due = (self._first_with_slot(names, one, now, priorities, paused) for one in self._locked[lane])
        return first_in_order([row for row in due if row is not None])

    def _first_with_slot(
        self, names: Names, lane: str, now: str, priorities: tuple[int, ...], paused: bool
    ) -> Job | None:
        """Return the first due job of a lane with a lock, or None if its lock keeps it from starting."""
        due = self._due(names, lane, now, priorities, paused)
        job = next((job for job in in_slices(due) if job is not None), None)
        if job is None or self.held_lock(job):
            return None
        return (
            job if self.start_by_key(job) <= now else self._first_of_other_names(names, lane, now, priorities)
        )

    def _first_of_other_names(
        self, names: Names, lane: str, now: str, priorities: tuple[int, ...]
    ) -> Job | None:
        """Return the first due job of a lane whose name may start a job with the lane's key now."""
        found: list[Job] = []
        after: GroupPlace | None = None
        while True:
            heads, after, _ = groups_after(self._execute, lane, after, names.prefix(), SEARCHED_AT_ONCE)
            for name, priority, next_run, job_id in heads:
                if priority in priorities and next_run <= now and names.match(name):
                    job = None if self.is_paused(name) else self.job(job_id)
                    if job is not None and self.start_by_key(job) <= now and not self.held_lock(job):
                        found.append(job)
            if after is None:
                return first_in_order(found)

    def _first(self, name: str | None, now: str) -> Job | None:
        """Return the first due job of a name, or of all names: nearly always the first queued job."""
        while (head := self._next.first(name)) is not None:
            priority, next_run, job_id = head
            job = self._cached(job_id)
            if job is None:
                upcoming = self._next.upcoming(name)
                if upcoming and not self._read_ahead(upcoming):
                    self._next.stop_reading_ahead(name)
                job = self.job(job_id)
            if (
                job is not None
                and job.next_run == next_run
                and job.priority == -priority
                and job.queued
                and (name is None or job.name == name)
                and not job.lane
            ):
                if next_run <= now:
                    return job
                if name is None:
                    return self._found(SQL["due_of_any"], (OPEN_LANE, now))
                return self._found(SQL["due_by_name"], (OPEN_LANE, name, now))
            self._next.drop_first(name)
        return None

    def _found(self, statement: str, parameters: tuple[str | int, ...]) -> Job | None:
        """Return the job whose jobID a statement finds."""
        found = self._execute(statement, parameters).fetchone()
        return None if found is None else self.job(found[0])

    def _due(
        self, names: Names, lane: str, now: str, priorities: tuple[int, ...], paused: bool
    ) -> Iterator[Job | None]:
        """Yield each due job in the order of takes, but None in place of a job that does not match."""
        for priority in priorities:
            for job_id, name in self._execute(SQL["due_in_order"], (lane, now, priority)):
                matches = names.match(name) and not (paused and self.is_paused(name))
                yield self.job(job_id) if matches else None

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a lower bound for when the next matching job becomes due."""
        if not request.mocked and not self._special and not self._locked and not self._bound:
            return self._soonest(request.names, OPEN_LANE, now)
        found = [self._soonest(request.names, lane, now) for lane in self._lanes(request)]
        return min((timestamp for timestamp in found if timestamp is not None), default=None)

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due."""
        always = (OPEN_LANE, MOCK_LANE, *UNTAKEN)
        lanes = chain(always, self._special, *self._bound.values(), *self._locked.values())
        found = [self._execute(SQL["soonest_of_any"], (lane, now)).fetchone()[0] for lane in lanes]
        return min((timestamp for timestamp in found if timestamp is not None), default=None)

    def _soonest(self, names: Names, lane: str, now: str) -> str | None:
        timestamp: str | None
        if names.parts:
            found = [self._soonest(part, lane, now) for part in names.parts]
            return min((timestamp for timestamp in found if timestamp is not None), default=None)
        if lane == OPEN_LANE and self._next.is_empty(names.single):
            return None
        known = self.patterns.is_ready(names, lane) and not self.patterns.is_wide(names, lane)
        if lane in self._locked:
            if known:
                return self.patterns.soonest(names, lane, now)
            timestamps = chain(
                (self._soonest(names, one, now) for one in self._locked[lane]),
                (
                    self._records.next_by_key(limit, now)
                    for limit in self._records.limits()
                    if limit.starts_by_key and names.may_match(limit.pattern)
                ),
            )
            return min((timestamp for timestamp in timestamps if timestamp is not None), default=None)
        if names.single is not None:
            timestamp = self._execute(SQL["soonest_by_name"], (lane, names.single, now)).fetchone()[0]
        elif known and not is_narrow(lane):
            timestamp = self.patterns.soonest(names, lane, now)
        else:
            timestamp = self._execute(SQL["soonest_of_any"], (lane, now)).fetchone()[0]
        return timestamp

    # --- TurnSeeks: used by FairTurns --------------------------------------------------------------------

    def names_after(self, first: Job, after: str, begin: str) -> list[str]:
        """Return the next names of jobs without a lock; see ``TurnSeeks``."""
        lane = str(parse_lane(first.lane)._replace(lock=""))
        place = (lane, name_after(after, begin), begin + HIGHEST, IN_TURN_MAX)
        return [name for (name,) in self._execute(SQL["names_after"], place)]

    def first_of_names(self, names: Sequence[str], first: Job, request: TakeRequest, now: str) -> Job | None:
        """Return the job of some names to take now; see ``TurnSeeks``."""
        lane = str(parse_lane(first.lane)._replace(lock=""))
        firsts = [
            self._first_of_name(name, lane, now, first.priority) for name in names if not self.is_paused(name)
        ]
        return first_in_order([row for row in firsts if row is not None])

    def first_of_keys(
        self, pattern: str, turn: Turn, after: str, first: Job, request: TakeRequest, now: str
    ) -> Iterator[tuple[str, Job | None]]:
        """Yield the next locks and keys, each with its job to take now; see ``TurnSeeks``."""
        begin = str(Lane(False, parse_lane(first.lane).own, "x"))[:-1]
        for _ in range(IN_TURN_MAX):
            found = self._execute(SQL["lane_after"], (f"{begin}{after}", f"{begin}{HIGHEST}")).fetchone()
            if found is None:
                return
            after = parse_lane(found[0]).lock
            due = islice(self._due(request.names, found[0], now, (first.priority,), True), GLANCE_ROWS)
            job = next((job for job in due if job is not None and glob(job.name, pattern)), None)
            is_open = job is not None and not self.held_lock(job) and self.start_by_key(job) <= now
            yield after, job if is_open else None

    # --- Seeks: used by PatternIndex ---------------------------------------------------------------------

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""
        found: tuple[str, int] | None = self._execute(SQL["head_of_group"], (lane, name, priority)).fetchone()
        if found is None and (lock := parse_lane(lane).lock) and not self._in_use(lane):
            self._close_lane(lane, lock)
        return found

    def _close_lane(self, lane: str, lock: str) -> None:
        """Drop a lane with a lock, since no jobs are queued in it."""
        for lanes in (self._locked.get(found_in(lane), {}), self._lanes_of_lock.get(lock, {})):
            lanes.pop(lane, None)
        if not self._lanes_of_lock.get(lock):
            self._lanes_of_lock.pop(lock, None)
        if not self._locked.get(found_in(lane)):
            self._locked.pop(found_in(lane), None)

    def combines(self, lane: str) -> bool:
        """Return whether a lane stands for all lanes that differ from it only in the lock's name."""
        return lane in self._locked

    def heads_of(self, lane: str, names: Names) -> list[GroupHead]:
        """Return the first job of each group whose name is in a list of names."""
        return [(name, name, *rest) for name, *rest in self.groups(lane, names, 0) or ()]  # type: ignore[misc]

    def heads_after(self, lane: str, after: Any, prefix: str, limit: int) -> tuple[list[GroupHead], Any, int]:
        """Return the next heads of names with a prefix, the new position, and the cost; see ``Seeks``."""
        limit = max(min(limit, SEARCHED_AT_ONCE), 2)
        if lane not in self._locked:
            found, place, cost = groups_after(self._execute, lane, after, prefix, limit)
            return [(group[0], *group) for group in found], place, cost
        heads: list[GroupHead] = []
        lanes, at, place = after or (tuple(self._locked[lane]), 0, None)
        room = limit
        while at < len(lanes) and room > 0:
            one, begins = lanes[at], place is None
            found, place, cost = groups_after(self._execute, one, place, prefix, max(room, 2))
            heads += [((one, group[0]), *group) for group in found]
            room -= cost + SEEK_ROWS
            if place is None:
                at += 1
                if begins and not found and not self._in_use(one):
                    self._close_lane(one, parse_lane(one).lock)
        return heads, None if at == len(lanes) else (lanes, at, place), limit - room

    def due_after(
        self, lane: str, now: str, priority: int, after: tuple[str, int]
    ) -> Iterator[tuple[str, int, str]]:
        """Yield nextRun, jobID and name of at most ``SEARCHED_BETWEEN`` due jobs after a position."""
        yield from self._execute(SQL["due_after"], (lane, priority, now, *after, SEARCHED_BETWEEN))

    def groups(self, lane: str, names: Names, limit: int) -> list[NamedGroup] | None:
        """Return the first job of each matching group, or None if there are more than ``limit`` groups."""
        return groups(self._execute, lane, names, limit)
