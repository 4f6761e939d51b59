"""Which of the queued jobs is the next to be taken: lanes, locks and pauses, by names and priorities.

What is kept in memory follows from the tables and is loaded anew after a rollback. Statements go over the
writing connection; who waits, and what a take does, is not known here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence

from bedrockjobs.config import PRIORITIES, Settings
from bedrockjobs.store.heads import Heads
from bedrockjobs.store.lanes import EVERY_LANE, MOCK_LANE, OPEN_LANE, Lane, parse_lane
from bedrockjobs.store.records import Records
from bedrockjobs.store.rows import JobRow, Names, names_from
from bedrockjobs.store.statements import STATEMENTS as SQL

GROUPS_FREED_MAX = 10_000
"""Names and priorities under one lock that are looked at when it is free again."""


class Ready:
    """The queued jobs of one database, by who is next."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        job: Callable[[int], JobRow | None],
        records: Records,
        settings: Settings,
    ) -> None:
        """Look in the database of the writer's ``connection``; ``job`` returns a row."""
        self._execute = connection.execute
        self.job = job
        self._records = records
        self.heads = Heads(self, settings.patterns_cached_max, settings.groups_remembered_max)
        """What is remembered of patterns."""
        self._special: dict[str, Lane] = {}
        self._bound: dict[str, dict[str, Lane]] = {}
        self.bound: frozenset[str] = frozenset()
        """Workers for which jobs are queued that nobody else may take."""
        self.every: dict[int, JobRow] = {}
        """The queued schedules that run on all hosts, by jobID."""
        self._next_every: str | None = None
        self._locks: dict[str, set[int]] = {}
        self.holders: dict[int, str] = {}
        """The locks that are held, by jobID."""
        self.freed: list[JobRow] = []
        """Jobs that became ready, now or for later, since the list was last cleared."""
        self.reopened = False
        """Whether a pause ended, so that anybody who waits may be served."""

    def load(self) -> None:
        """Read which lanes are in use, and who holds their locks."""
        self.reopened = False
        self._locks.clear()
        self.holders.clear()
        for lane, job_id in self._execute(SQL["holding"]):
            if lock := parse_lane(lane).lock:
                self._hold(lock, job_id)
        self._special, self._bound, self.bound = {}, {}, frozenset()
        lane = OPEN_LANE
        while found := self._execute(SQL["next_lane"], (lane,)).fetchone():
            lane = found[0]
            self._open_lane(lane)
        self.every.clear()
        for job_id, _ in self._execute(SQL["queued_in_lane"], (EVERY_LANE,)):
            row = self.job(job_id)
            assert row is not None
            self.every[job_id] = row
        self._look_at_every()

    def add(self, row: JobRow) -> None:
        """Note a job that was queued."""
        self.heads.offer(row)
        self.freed.append(row)
        if row.lane:
            self._open_lane(row.lane)

    def _open_lane(self, lane: str) -> None:
        if lane in (MOCK_LANE, EVERY_LANE) or lane in self._special:
            return
        parts = parse_lane(lane)
        if not parts.worker:
            self._special[lane] = parts
        elif parts.worker in self._bound:
            self._bound[parts.worker][lane] = parts
        else:
            self._bound[parts.worker] = {lane: parts}
            self.bound = frozenset(self._bound)

    def drop(self, job_id: int) -> None:
        """Note a job that is gone."""
        if job_id in self.holders:
            self._release(job_id)
        if job_id in self.every:
            del self.every[job_id]
            self._look_at_every()

    # --- schedules that run on all hosts -----------------------------------------------------------------

    def note_every(self, row: JobRow) -> None:
        """Note whether a job that was written is a queued schedule that runs on all hosts."""
        if row.lane == EVERY_LANE and row.state == "QUEUED":
            self.every[row.job_id] = row
        elif self.every.pop(row.job_id, None) is None:
            return
        self._look_at_every()

    def due_every(self, now: str) -> list[JobRow]:
        """Return the schedules on all hosts that are due, the oldest first."""
        if self._next_every is None or self._next_every > now:
            return []
        rows = [row for row in self.every.values() if row.next_run <= now and not self._waits(row)]
        return sorted(rows, key=lambda row: (row.next_run, row.job_id))

    @property
    def next_every(self) -> str | None:
        """Return when the next of them is due."""
        return self._next_every

    def _look_at_every(self) -> None:
        rows = self.every.values()
        self._next_every = min((row.next_run for row in rows if not self._waits(row)), default=None)

    def _waits(self, row: JobRow) -> bool:
        return self.closed(row.name) and '"trigger"' not in row.options

    # --- locks -------------------------------------------------------------------------------------------

    def note_lock(self, row: JobRow) -> None:
        """Note whether a job that was written holds its lane's lock."""
        lock = parse_lane(row.lane).lock
        if lock and row.state == "RUNNING":
            if self.holders.get(row.job_id, lock) != lock:
                self._release(row.job_id)
            self._hold(lock, row.job_id)
        elif row.job_id in self.holders:
            self._release(row.job_id)

    def _hold(self, lock: str, job_id: int) -> None:
        self.holders[job_id] = lock
        self._locks.setdefault(lock, set()).add(job_id)

    def _release(self, job_id: int) -> None:
        """Let go of a lock: the jobs that waited for it are ready, unless it was set on two running ones."""
        lock = self.holders.pop(job_id)
        self._locks[lock].discard(job_id)
        if self._locks[lock]:
            return
        del self._locks[lock]
        everything = names_from("*", None)
        assert everything is not None
        for lane, parts in self._special.items():
            if parts.lock == lock:
                heads = self.groups(lane, everything, GROUPS_FREED_MAX)
                if heads is None:
                    self.reopened = True
                    return
                rows = [self.job(first) for _, _, _, first in heads]
                self.freed += [row for row in rows if row is not None]

    def lock_holder(self, lock: str) -> int | None:
        """Return the job that runs under a lock."""
        return min(self._locks.get(lock, ()), default=None)

    def reopen(self) -> None:
        """What is paused has changed: forget what was remembered of names, and serve those who wait."""
        self.heads.forget()
        self._look_at_every()
        self.reopened = True

    # --- who is next -------------------------------------------------------------------------------------

    def closed(self, name: str) -> bool:
        """Tell whether a name is paused."""
        return self._records.pause_of(name) is not None

    def first_due(
        self,
        names: Names,
        now: str,
        *,
        mocked: bool,
        priority: int | None,
        accepts: Sequence[str] = (),
        worker: str | None = None,
    ) -> JobRow | None:
        """Return the due job to take."""
        if not mocked and not self._special and not self._bound:
            return self._first_due(names, OPEN_LANE, now, priority)
        lanes = self._lanes(mocked, accepts, worker)
        found = [self._first_due(names, lane, now, priority) for lane in lanes]
        rows = [row for row in found if row is not None]
        return min(rows, key=lambda row: (-row.priority, row.next_run, row.job_id), default=None)

    def _lanes(self, mocked: bool, accepts: Sequence[str], worker: str | None) -> Iterator[str]:
        yield OPEN_LANE
        if mocked:
            yield MOCK_LANE
        for lane, parts in list(self._special.items()):
            if (not parts.own or parts.own in accepts) and not (parts.lock and parts.lock in self._locks):
                if self._in_use(lane):
                    yield lane
                else:
                    del self._special[lane]
        bound = None if worker is None else self._bound.get(worker)
        if bound is not None and worker is not None:
            for lane in [lane for lane in bound if not self._in_use(lane)]:
                del bound[lane]
            if not bound:
                del self._bound[worker]
                self.bound = frozenset(self._bound)
            yield from [lane for lane, parts in bound.items() if not parts.own or parts.own in accepts]

    def _in_use(self, lane: str) -> bool:
        return self._execute(SQL["lane_in_use"], (lane,)).fetchone() is not None

    def _first_due(self, names: Names, lane: str, now: str, priority: int | None) -> JobRow | None:
        paused = bool(self._records.pauses()) and not parse_lane(lane).now
        if paused and names.single is not None and self.closed(names.single):
            return None
        if lane and _is_narrow(lane):
            # There may be very many of these, with few jobs each: nothing is remembered of them.
            return self._look_through(
                names, lane, now, PRIORITIES if priority is None else (priority,), paused
            )
        if names.single is not None:
            if priority is None:
                return self._found("due_by_name", (lane, names.single, now))
            return self._found("due_by_name_of_priority", (lane, names.single, now, priority))
        if names.everything and not paused:
            if priority is None:
                return self._found("due_of_any", (lane, now))
            return self._found("due_of_any_of_priority", (lane, now, priority))
        priorities = PRIORITIES if priority is None else (priority,)
        if self.heads.is_wide(names, lane):
            return self._look_through(names, lane, now, priorities, paused)
        return self.heads.first_due(names, lane, now, priorities)

    def _found(self, statement: str, parameters: tuple[str | int, ...]) -> JobRow | None:
        """Return the job that a statement finds the jobID of."""
        found = self._execute(SQL[statement], parameters).fetchone()
        return None if found is None else self.job(found[0])

    def _look_through(
        self, names: Names, lane: str, now: str, priorities: tuple[int, ...], paused: bool
    ) -> JobRow | None:
        """Walk the due jobs in order; with very many matching names one is found soon."""
        for priority in priorities:
            for job_id, name in self._execute(SQL["due_in_order"], (lane, now, priority)):
                if names.match(name) and not (paused and self.closed(name)):
                    return self.job(job_id)
        return None

    def soonest(
        self,
        names: Names,
        now: str,
        *,
        mocked: bool,
        accepts: Sequence[str] = (),
        worker: str | None = None,
    ) -> str | None:
        """Return a stamp before which no further matching job becomes due."""
        if not mocked and not self._special and not self._bound:
            return self._soonest(names, OPEN_LANE, now)
        found = [self._soonest(names, lane, now) for lane in self._lanes(mocked, accepts, worker)]
        return min((stamp for stamp in found if stamp is not None), default=None)

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due."""
        bound = [lane for lanes in self._bound.values() for lane in lanes]
        lanes = (OPEN_LANE, MOCK_LANE, EVERY_LANE, *self._special, *bound)
        found = [self._execute(SQL["soonest_of_any"], (lane, now)).fetchone()[0] for lane in lanes]
        return min((stamp for stamp in found if stamp is not None), default=None)

    def _soonest(self, names: Names, lane: str, now: str) -> str | None:
        stamp: str | None
        if names.single is not None:
            stamp = self._execute(SQL["soonest_by_name"], (lane, names.single, now)).fetchone()[0]
        elif names.everything or _is_narrow(lane) or self.heads.is_wide(names, lane):
            stamp = self._execute(SQL["soonest_of_any"], (lane, now)).fetchone()[0]
        else:
            stamp = self.heads.soonest(names, lane, now)
        return stamp

    # --- Seeks: what Heads asks --------------------------------------------------------------------------

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""
        found: tuple[str, int] | None
        found = self._execute(SQL["head_of_group"], (lane, name, priority)).fetchone()
        return found

    def groups(self, lane: str, names: Names, limit: int) -> list[tuple[str, int, str, int]] | None:
        """Return the head of every group that ``names`` match, None where they are more than ``limit``."""
        found: list[tuple[str, int, str, int]] = []
        if names.exact:
            for name in names.exact:
                group = self._execute(SQL["next_group_of_name"], (lane, name, PRIORITIES[0] + 1)).fetchone()
                while group is not None:
                    found.append(group)
                    group = self._execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
            return found
        prefix = names.prefix()
        group = self._execute(SQL["first_group"], (lane, prefix)).fetchone()
        while group is not None and group[0].startswith(prefix):
            name = group[0]
            if names.match(name):
                while group is not None:
                    found.append(group)
                    group = self._execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
                if len(found) > limit:
                    return None
            group = self._execute(SQL["next_group"], (lane, name)).fetchone()
        return found


def _is_narrow(lane: str) -> bool:
    """Tell whether a lane is one of very many with few jobs each, of which nothing is remembered."""
    parts = parse_lane(lane)
    return bool(parts.lock or parts.worker)
