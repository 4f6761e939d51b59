"""A unit on PostgreSQL: it locks and reads rows, changes them in memory, and writes them in sets at commit.

The rows in the access plans of its commands are read in the round trip that begins the unit. Other rows are
read when a handler asks for them, after all pending writes. They are locked with NOWAIT unless the unit has
only one command.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import NamedTuple, TypeVar, cast

from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import SECONDS, Clock, timestamp_ms
from bedrockjobs.base.config import SLICE
from bedrockjobs.job.limits import start_by_key
from bedrockjobs.job.rows import EVERY_LANE, DamagedJob, Job, job_from, workers_of
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import (
    AccessPlan,
    ReadyNews,
    RowDamaged,
    StoreAway,
    StoreConflict,
    StoreError,
    Unit,
)
from bedrockjobs.store.postgresql import transaction
from bedrockjobs.store.postgresql.connect_checks import ConnectChecks, Timeline
from bedrockjobs.store.postgresql.locks import AdvisoryKeys, IDAllocator, JobLocks
from bedrockjobs.store.postgresql.peers import ClockMoved, Timekeeping
from bedrockjobs.store.postgresql.records import PostgreSQLRecords
from bedrockjobs.store.postgresql.schema import check_needs
from bedrockjobs.store.postgresql.session import DatabaseSession, Row, Statement, fault_of
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.takes import (
    CachedBounds,
    CandidateQuery,
    SkippedLocked,
    SpeculativePrefetch,
    Takes,
    behind_heads,
    may_claim,
    planned_queries,
)
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.ready_queue import AllHostsSchedules

# The round trip that begins a unit: it locks the rows in its plans, in the same order in every unit.
#
# The order prevents deadlocks: control, names and keys, workflows, jobs without a parent, children, takes.
# See README.md.


T = TypeVar("T", int, str)


class OpeningRound:
    """The statements that begin one unit, and the parsing of their rows, in the same order."""

    def __init__(
        self,
        plans: Sequence[AccessPlan],
        now: str,
        keys: AdvisoryKeys,
        plain: Collection[int],
        remembered: CachedBounds,
        clock: str,
        *,
        workflows: bool = False,
    ) -> None:
        """Begin a unit with access plans at the timestamp ``now``.

        ``plain`` are the jobIDs of jobs that are probably deleted when they end.

        ``clock`` is the expected time of the test clock in the database; empty for none. ``workflows``:
        jobs may belong to workflows.
        """
        self._clock = clock
        self.now = now
        self._remembered = remembered
        self.names = _all(plan.names for plan in plans)
        """Names whose first job is needed."""
        self.keys = _all(plan.keys for plan in plans)
        """Idempotency keys and unique keys."""
        self.key_holders = _all(plan.key_holders for plan in plans)
        """Jobs whose unique keys are needed."""
        self.job_ids = _all(plan.jobs for plan in plans)
        """Jobs to lock."""
        self.ended = _all(plan.ends for plan in plans)
        """Jobs that end, and are deleted in this round trip."""
        self.run_ids = _all(plan.runs for plan in plans)
        """Runs to read."""
        looks = planned_queries(chain.from_iterable(plan.takes for plan in plans))
        self._bounds = remembered.bounds_to_read(looks, now)
        new = [query for query in looks if remembered.heads_for(query) is None]
        # Of patterns without cached heads, at most 20 read the queue as the unit begins: 0.3 ms each
        walks = [query for query in new if query.patterns is not None][:20]
        self.walks = [query for query in new if query.patterns is None] + walks
        """Queries to run in this round trip."""
        self.asks: list[CandidateQuery] = []
        """Queries for patterns with cached heads that are run later, one name at a time."""
        self.behind_heads: list[SpeculativePrefetch] = []
        """Queries for patterns with cached heads that are prefetched, which is possible only if no job has a
        lock."""
        self._lanes = remembered.lanes
        """Whether to read all lanes: whether the last unit saw queued jobs outside of the open lane."""
        self.claimed = now[:SECONDS] if may_claim(looks) else ""
        """The timestamp at which found plain jobs are marked as taken; empty if all jobs are only locked."""
        claimed = "" if self._lanes else self.claimed
        for query in looks:
            heads = remembered.heads_for(query)
            if heads is not None:
                first = None if remembered.locks else behind_heads(query, heads, now, claimed, remembered)
                if first is None:
                    self.asks.append(query)
                else:
                    self.behind_heads.append(first)
        self.new_jobs = sum(plan.new_jobs for plan in plans)
        self.new_runs = sum(plan.new_runs for plan in plans)
        self._alone = any(plan.control or plan.everything for plan in plans)
        if self._alone or self.job_ids or self.names or not all(job_id in plain for job_id in self.ended):
            self.job_ids, self.ended = _all([tuple(self.job_ids), tuple(self.ended)]), []
        self.own_jobs = any(plan.own_jobs for plan in plans)
        """Whether to read the workers with jobs bound to them."""
        self._locks = remembered.locks
        """Whether to query jobs with locks: whether the last unit saw any."""
        self.workflows = _all(plan.workflows for plan in plans)
        """Workflows to lock, in addition to those of ``job_ids``."""
        self.locks_workflows = bool(self.workflows or (self.job_ids and workflows))
        """Whether the workflows of ``job_ids`` are locked."""
        self._control = keys.key_of("control")
        self._waited = {keys.key_of("name", name) for name in self.names} | {
            keys.key_of("key", k) for k in self.keys
        }

    def statements(self) -> list[Statement]:
        """Return the statements in lock order; runs and keys are read without locks."""
        result: list[Statement] = [
            (SQL["lock_alone" if self._alone else "lock_shared"], (self._control,)),
            (SQL["epoch"], ()),
            *self._bounds,
            *([(SQL["bound_lanes"], ())] if self.own_jobs else []),
        ]
        if self._waited:
            result.append((SQL["lock_each"], (sorted(self._waited),)))
        if self.locks_workflows:
            result.append((SQL["lock_workflows"], (self.workflows, self.job_ids)))
        if self.ended:
            result.append((SQL["end_jobs"], (self.ended,)))
        if self.names:
            result.append((SQL["lock_jobs_and_firsts"], (self.job_ids, self.names)))
            result.append((SQL["lock_children_and_firsts"], (self.job_ids, self.names)))
        elif self.job_ids:
            result.append((SQL["lock_jobs"], (self.job_ids,)))
            result.append((SQL["lock_children"], (self.job_ids,)))
        if self.names:
            result.append((SQL["firsts"], (self.names,)))
        if self.job_ids or self.run_ids:
            # Maximum output that is read together with its run: a run that ends needs its last lines.
            result.append((SQL["runs_ahead"], (self.run_ids, self.job_ids, 4_096)))
        if self.keys or self.key_holders:
            result.append((SQL["keys_ahead"], (self.keys, self.key_holders)))
        floors = self._remembered.floors
        for query in self.walks:
            if self._lanes or query.patterns is not None:
                result.append(query.statement(self.now, floors, claimed=self.claimed))
            else:
                result.append(query.in_open_lane(self.now, floors, claimed=self.claimed))
            if self._looks_for_locks(query):
                result.append(query.with_lock(self.now))
        return result + [heads.statement(self.now) for heads in self.behind_heads]

    def _looks_for_locks(self, query: CandidateQuery) -> bool:
        return self._locks and query.patterns is None

    def epoch(self, results: Iterator[list[Row]]) -> int:
        """Read the first rows: the epoch of pauses, drains and the crash list, and the cached bounds.

        Raises ClockMoved if the test clock has another time, TooOld if the database needs newer servers.
        """
        next(results)
        ((epoch, clock, needs, lanes, locks),) = next(results)
        check_needs(int(needs))
        if clock != self._clock:
            raise ClockMoved(clock)
        self._remembered.lanes, self._remembered.locks = bool(lanes), bool(locks)
        self._remembered.store_rows(results, self.now)
        return int(epoch)

    def bound_lanes(self, results: Iterator[list[Row]]) -> list[str]:
        """Read the next rows: the lanes of jobs bound to a worker."""
        lanes = [lane for (lane,) in next(results)] if self.own_jobs else []
        if self._waited:
            next(results)
        return lanes

    def locked_workflows(self, results: Iterator[list[Row]]) -> list[Row]:
        """Read the next rows: the locked workflows."""
        return next(results) if self.locks_workflows else []

    def removed(self, results: Iterator[list[Row]]) -> list[Row]:
        """Read the next rows: the deleted jobs."""
        return next(results) if self.ended else []

    def jobs(self, results: Iterator[list[Row]]) -> list[Row]:
        """Read the next rows: the locked jobs."""
        return [*next(results), *next(results)] if self.job_ids or self.names else []

    def firsts(self, results: Iterator[list[Row]]) -> dict[tuple[str, bool], int | None]:
        """Read the next rows: the first job of each name, real and mocked."""
        rows = next(results) if self.names else []
        firsts = {(name, False): real for name, real, _ in rows}
        return firsts | {(name, True): mocked for name, _, mocked in rows}

    def runs(self, results: Iterator[list[Row]]) -> list[Row]:
        """Read the next rows: runs, each with its last line number, bytes printed and small output."""
        return next(results) if self.job_ids or self.run_ids else []

    def used_keys(self, results: Iterator[list[Row]]) -> list[Row]:
        """Read the next rows: the jobs of the keys."""
        return next(results) if self.keys or self.key_holders else []

    def looked(
        self, query: CandidateQuery, results: Iterator[list[Row]]
    ) -> tuple[list[Row], list[Row] | None, bool]:
        """Read the next rows, of a query: jobs without a lock, and jobs with a lock (None if not queried).

        The last value is ``complete``.
        """
        return next(results), next(results) if self._looks_for_locks(query) else None, self.complete

    @property
    def complete(self) -> bool:
        """Return whether all lanes with queued jobs were read."""
        return self._lanes or not self._remembered.lanes


def _all(lists: Iterable[tuple[T, ...]]) -> list[T]:
    return sorted(set(chain.from_iterable(lists)))


# The broadcast schedules. Each unit reads them again, since another server may have written them.


class AllHosts:
    """The broadcast schedules, as a unit on PostgreSQL reads them."""

    def __init__(
        self, transaction: Transaction, query: Callable[..., list[Job]], is_paused: Callable[[str], bool]
    ) -> None:
        """Read with ``transaction``; ``query`` reads and locks schedules."""
        self._transaction = transaction
        self._look = query
        self._schedules = AllHostsSchedules(is_paused)

    def due(self, now: str) -> list[Job]:
        """Lock and return the due schedules that are not paused, oldest first."""
        self._schedules.load(self._look("queued_in_lane", EVERY_LANE, now))
        return self._schedules.due(now)

    def next(self) -> str | None:
        """Return when the next schedule that is not paused is due, or None."""
        (rows,) = self._transaction.run_statements((SQL["next_in_lane"], (EVERY_LANE,)))
        self._schedules.load([job_from(row) for row in rows])
        return self._schedules.next


PLAIN_KEPT_MAX = 100_000
"""Maximum number of jobs that one server remembers as plain (probably deleted when they end), about 10 MB. A
server runs fewer jobs at a time."""


class UnitSavepoint(NamedTuple):
    """The marks of all parts of a unit, for ``undo``."""

    transaction: transaction.Savepoint
    rows: transaction.RowsSavepoint
    job_ids: int
    run_ids: int
    ready: int
    wake_all: bool


class WorkflowsUnlocked(StoreConflict):
    """A unit has locked jobs of workflows without locking the workflows first, as the lock order requires."""


class PostgreSQLUnit:
    """The open transaction of one session, controlled by its engine."""

    def __init__(
        self,
        session: DatabaseSession,
        keys: AdvisoryKeys,
        session_id: str,
        clock: Clock,
        *,
        serial: bool = False,
    ) -> None:
        """Use ``session``; ``session_id`` identifies the server, whose clock is ``clock``.

        A ``serial`` unit caches no bounds.
        """
        self.moment = datetime.min.replace(tzinfo=UTC)
        self.caches_dropped = False
        """Whether another server changed pauses, drains or the crash list before this unit."""
        self._rows = transaction.UnitRows()
        self._transaction = transaction.Transaction(session, self._differences)
        self.records = PostgreSQLRecords(self._transaction, keys)
        """The tables other than ``jobs``."""
        self._locks = JobLocks(self._transaction, self._rows, keys, self.records.paced)
        self.remembered = CachedBounds(
            clock.monotonic, lambda: self.records.known_pauses, self.records.pause_of, whole=serial
        )
        """The lower-bound cache of this server."""
        self._takes = Takes(
            self._transaction,
            self._rows,
            self._locks,
            self._is_paused,
            self.remembered,
            self.workers_with_own_jobs,
            self.records.pauses,
            self.records.limits,
            self.records.next_by_key,
        )
        all_hosts = AllHosts(self._transaction, self._lock_rows, self._is_paused)
        self.due_on_all_hosts, self.next_on_all_hosts = all_hosts.due, all_hosts.next
        self._job_ids = IDAllocator(self._transaction, "draw_jobs")
        self._run_ids = IDAllocator(self._transaction, "draw_runs")
        self._keys = keys
        self._firsts: dict[tuple[str, bool], int | None] = {}
        """The first job of each name in the plans, by whether it is mocked, while it is known."""
        self._plain: set[int] = set()
        """Jobs started by this server that are probably deleted when they end."""
        self._workflows = False
        """Whether this server has locked a job of a workflow; until then it does not look for workflows."""
        self._own_jobs: frozenset[str] | None = None
        """The workers with queued jobs bound to them; None if unknown."""
        self.news = ReadyNews()
        """What became ready in the open unit."""
        self._told_ready = list[Job]()
        self._told_wake_all = False  # told: returned, not yet sent to others
        self._may_wait = True
        """Whether to wait for locks of rows outside the plans: not with several commands in the unit, since
        the other commands would wait too."""
        self.first_due, self.due_names = self._takes.first_due, self._takes.due_names
        self._skipped_locked = SkippedLocked(self._takes, clock)
        self.skipped_locked, self.soonest = self._skipped_locked.is_locked_elsewhere, self._takes.soonest
        self.new_job_id, self.new_run_id = self._job_ids.new, self._run_ids.new
        self.return_job_id = self._job_ids.return_last
        self.lock_held = self._locks.held
        self.crash_patterns = self.records.crash_patterns
        self.set_crash_patterns = self.records.set_crash_patterns
        time = Timekeeping(self._transaction, self.records, keys, session_id)
        self.watch, self.watched, self.set_seen = time.watch, time.watched, time.watched
        self.record_outage, self.leases_over, self.record_shutdown = (
            time.record_outage,
            time.leases_over,
            time.record_shutdown,
        )

    # --- the transaction ---------------------------------------------------------------------------------

    fault = staticmethod(fault_of)

    def open(self, moment: datetime, plans: Sequence[AccessPlan], clock: str = "") -> None:
        """Begin the unit: lock and read the rows of the plans; raises ClockMoved or WorkflowsUnlocked."""
        self.forget()
        self.moment = moment
        self._may_wait = len(plans) <= 1
        opening = OpeningRound(
            plans,
            timestamp_ms(moment),
            self._keys,
            self._plain,
            self.remembered,
            clock,
            workflows=self._workflows,
        )
        self._plain.difference_update(opening.ended)
        numbers = ((self._job_ids, opening.new_jobs), (self._run_ids, opening.new_runs))
        drawn = [(kind, kind.planned(count)) for kind, count in numbers]
        statements = [*opening.statements(), *(one for _, draws in drawn for one in draws)]
        results = iter(self._transaction.begin(statements))
        self.caches_dropped = self.records.at_epoch(opening.epoch(results))
        if self.caches_dropped:
            self.news.wakes_all = True
        lanes = opening.bound_lanes(results)
        self._own_jobs = workers_of(lanes) if opening.own_jobs else None
        workflows = opening.locked_workflows(results)
        self._rows.read_ended(opening.removed(results))
        locked = self._rows.add_rows(opening.jobs(results))
        self._rows.miss(opening.job_ids)
        known = {None, *(job_id for job_id, job in self._rows.now.items() if job is not None)}
        self._firsts = {key: job_id for key, job_id in opening.firsts(results).items() if job_id in known}
        runs, keys = opening.runs(results), opening.used_keys(results)
        self.records.read_ahead(opening.run_ids, runs, opening.keys, opening.key_holders, keys)
        self.records.open_workflows(workflows, may_wait=self._may_wait)
        self._takes.query_names(opening.asks, opening.now)
        for query in opening.walks:
            self._takes.looked(query, opening.now, *opening.looked(query, results), opening.claimed)
        sure = opening.complete and not self.caches_dropped
        self._takes.behind_heads(opening.behind_heads, opening.now, results, sure=sure)
        self._transaction.wrote = self._rows.changed
        for kind, draws in drawn:
            if draws:
                kind.add_numbers(next(results))
        if not opening.locks_workflows and any('"workflow":' in job.memory_json for job in locked):
            self._workflows = True
            raise WorkflowsUnlocked("jobs belong to workflows")

    @property
    def changed(self) -> bool:
        """Return whether the unit has written anything."""
        return self._transaction.changed or self._rows.changed or self.records.changed

    def _differences(self, last: bool) -> list[Statement]:
        for job in self._rows.put_back() if last else ():
            self.remembered.lower(job)
        return self._rows.differences(last=last) + self.records.differences()

    @property
    def chars_read(self) -> int:
        """Return the total number of data characters read from the database."""
        return self._rows.chars_read

    def commit(self, before_events: Statement, last: Statement) -> None:
        """Write all changes and commit; raises StoreError."""
        self.remembered.committed(self._transaction.commit(before_events, last, self.remembered.end()))
        self.committed()

    def committed(self) -> None:
        """Record that the commit succeeded: the allocated IDs stay used."""
        self._job_ids.committed()
        self._run_ids.committed()

    def wipe_log(self) -> None:
        """Do nothing: PostgreSQL manages its own log, and VACUUM removes dead rows."""

    def savepoint(self) -> UnitSavepoint:
        """Begin a savepoint; return its mark."""
        return UnitSavepoint(
            self._transaction.savepoint(),
            self._rows.mark(),
            self._job_ids.mark(),
            self._run_ids.mark(),
            len(self.news.jobs),
            self.news.wakes_all,
        )

    def release(self) -> None:
        """Release the savepoint."""
        self._transaction.release()

    def undo(self, mark: object) -> None:
        """Roll back to the savepoint."""
        assert isinstance(mark, UnitSavepoint)
        self._transaction.undo(mark.transaction)
        self._rows.undo(mark.rows)
        self._job_ids.undo(mark.job_ids)
        self._run_ids.undo(mark.run_ids)
        del self.news.jobs[mark.ready :]
        self.news.wakes_all = mark.wake_all
        self.records.forget()
        self._firsts = {}
        self._locks.forget()  # those acquired since the savepoint are released
        self._takes.forget()
        self.remembered.undone()

    def forget(self) -> None:
        """Drop all rows: the unit has ended."""
        for part in (self._transaction, self._rows, self._takes, self._locks, self._skipped_locked):
            part.forget()
        self._firsts, self._own_jobs = {}, None
        self.news.jobs, self._told_ready = [], []
        self.news.wakes_all = self._told_wake_all = False

    def roll_back(self) -> None:
        """Drop the changes of the open unit; its IDs are reused."""
        if self.caches_dropped:  # the next unit must report the change
            self.records.at_epoch(0)
        for part in (self, self.records, self._job_ids, self._run_ids):
            part.forget()
        self.remembered.undone()

    # --- rows --------------------------------------------------------------------------------------------

    def insert(self, job: Job) -> None:
        """Insert a job."""
        if job.parent_job_id:
            self._rows.note_child(job.parent_job_id)
        self._write(job, None)
        first = self._firsts.get(_kind_of(job), 0)
        if first is None or job.job_id < first:  # another server may have drawn a higher jobID before
            self._firsts[_kind_of(job)] = job.job_id

    def job(self, job_id: int) -> Job | None:
        """Lock and return a job, or None; raises RowDamaged."""
        job = self._found(job_id)
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        return job

    def shown(self, job_id: int) -> Job | None:
        """Return a job or None without locking it; raises RowDamaged."""
        if job_id in self._rows.now:
            return self.job(job_id)
        (rows,) = self._transaction.run_statements((SQL["shown_job"], (job_id,)))
        job = job_from(rows[0]) if rows else None
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        return job

    def several(self, job_ids: Sequence[int]) -> list[Job]:
        """Lock and return the existing jobs among some jobIDs; raises RowDamaged."""
        missing = [job_id for job_id in job_ids if job_id not in self._rows.now]
        if missing:
            self._lock_rows("jobs_by_id", missing)
            self._rows.miss(missing)
        return [job for job in map(self.job, job_ids) if job is not None]

    def _found(self, job_id: int) -> Job | None:
        if job_id not in self._rows.now:
            self._lock_rows("jobs_by_id", [job_id])
            self._rows.miss([job_id])
        return self._rows.now[job_id]

    def save(self, job: Job) -> None:
        """Update a job; raises RowDamaged for a DamagedJob."""
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        self._write(job, self._found(job.job_id))

    def claim(self, job: Job) -> None:
        """Write a plain job that becomes RUNNING: update lastRun, attempt and runID."""
        self.save(job)
        if not (job.run_id or job.lane or job.parent_job_id or job.job_id in self._rows.parental) and (
            job.options_json == "{}" and not self.records.keep_finished_s
        ):
            if len(self._plain) >= PLAIN_KEPT_MAX:
                self._plain.clear()
            self._plain.add(job.job_id)

    def delete(self, job_id: int) -> None:
        """Delete a job."""
        before = self._found(job_id)
        self._rows.remove(job_id)
        self._update_caches(before, None)

    def delete_plain(self, job_id: int) -> str | None:
        """Delete a RUNNING job and return its name, or None if finishing it takes more than a delete."""
        job = self._found(job_id)
        if (
            job is None
            or job.state != "RUNNING"
            or (job.repeat or job.parent_job_id or job.lane or job.run_id)
            or not job.options_json == job.memory_json == "{}"
            or self.records.keep_finished_s
            or job_id in self._rows.parental
        ):
            return None
        self._rows.remove(job_id)
        self._update_caches(job, None)
        return job.name

    def _write(self, job: Job, before: Job | None) -> None:
        self._rows.write(job)
        self._update_caches(before, job)
        if job.queued:
            self.news.jobs.append(job)
            self.remembered.lower(job)
            if job.lane and self._own_jobs is not None:
                self._own_jobs |= workers_of([job.lane])

    def _update_caches(self, before: Job | None, after: Job | None) -> None:
        """Update two caches after a job was written: the first job of each name, and the locks."""
        if before is not None and (after is None or _kind_of(after) != _kind_of(before)):
            for job in filter(None, (before, after)):
                self._firsts.pop(_kind_of(job), None)
        if (before is not None and before.lane) or (after is not None and after.lane):
            let_go = self._locks.record_write(before, after, timestamp_ms(self.moment))
            if let_go or self._locks.steps_aside(before, after):
                self._takes.forget()
            self.news.wakes_all |= let_go

    # --- queries -----------------------------------------------------------------------------------------

    def _lock_rows(self, statement: str, *parameters: object) -> list[Job]:
        """Lock and return the jobs that a statement finds; a damaged job is returned as DamagedJob."""
        sql = SQL[statement]
        if not self._may_wait and sql.endswith("FOR UPDATE"):
            sql += " NOWAIT"
        (rows,) = self._transaction.run_statements((sql, parameters))
        return self._rows.add_rows(rows)

    def _sound(self, statement: str, *parameters: object) -> list[Job]:
        """Lock and return the jobs that a statement finds; raises RowDamaged for the first damaged job."""
        jobs = self._lock_rows(statement, *parameters)
        for job in jobs:
            if type(job) is DamagedJob:
                raise RowDamaged(job)
        return jobs

    def _is_true(self, statement: str, *parameters: object) -> bool:
        (rows,) = self._transaction.run_statements((SQL[statement], parameters))
        return bool(rows)

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return at most ``limit`` expired jobs, oldest first."""
        return self._lock_rows("expired", now, limit)

    def repeating(self, due: str | None = None) -> Iterator[Job]:
        """Yield all jobs with a repeat, ordered by name; with ``due``, only jobs queued and due by then."""
        statement = (SQL["repeating"], ()) if due is None else (SQL["repeating_due"], (due,))
        job_ids = iter([job_id for (job_id,) in self._transaction.run_statements(statement)[0]])
        while chunk := list(islice(job_ids, SLICE)):
            self._lock_rows("jobs_by_id", chunk)
            for job_id in in_slices(chunk):
                job = self._rows.now.get(job_id)
                if job is not None:
                    yield job

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the jobs of a name in any state, at most ``limit``, lowest jobID first."""
        return self._sound("named", name, limit)

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""
        return self._sound("bound_of_name", name)

    def first_of_name(self, name: str, *, mocked: bool) -> Job | None:
        """Return the oldest job of a name in any state; ``mocked``: a mocked job, otherwise a real one."""
        if (name, mocked) in self._firsts:
            job_id = self._firsts[name, mocked]
            return None if job_id is None else self.job(job_id)
        return next(iter(self._sound("first_mocked_of_name" if mocked else "first_of_name", name)), None)

    def children(self, job_id: int) -> list[Job]:
        """Return the children of a job, in the order of their jobIDs."""
        return self._sound("children_of", job_id) if self._may_have_children(job_id) else []

    def has_children(self, job_id: int) -> bool:
        """Return whether a job has children."""
        return self._may_have_children(job_id) and self._is_true("has_children", job_id)

    def has_pending_children(self, job_id: int) -> bool:
        """Return whether a job has unfinished children."""
        return self._may_have_children(job_id) and self._is_true("has_pending_children", job_id)

    def _may_have_children(self, job_id: int) -> bool:
        """Return whether a job ever had a child; True also for a job that is unknown or deleted."""
        return job_id in self._rows.parental or self._rows.now.get(job_id) is None

    # --- takes -------------------------------------------------------------------------------------------

    def _is_paused(self, name: str) -> bool:
        return self.records.pause_of(name) is not None

    def became_ready(self) -> list[Job]:
        """Return the jobs queued since the last call, whether due or not."""
        ready, self.news.jobs = self.news.jobs, []
        self._told_ready += ready
        return ready

    def must_wake_all(self) -> bool:
        """Return whether all waiters must be checked again; reset it to False."""
        wakes, self.news.wakes_all = self.news.wakes_all, False
        self._told_wake_all = self._told_wake_all or wakes
        return wakes

    def left_ready(self) -> tuple[list[tuple[str, str]], bool]:
        """Return name and nextRun of the jobs that the unit made ready and that are still queued.

        The second value is whether all waiters must be checked again.
        """
        now = self._rows.now
        jobs = [now.get(job.job_id) for job in (*self._told_ready, *self.news.jobs)]
        left = [(job.name, job.next_run) for job in jobs if job is not None and job.queued]
        return left, self._told_wake_all or self.news.wakes_all

    def pauses_changed(self, *, wake: bool = True) -> None:
        """Handle a change of the pauses; with ``wake``, all waiters are checked again."""
        self._takes.forget()
        self.news.wakes_all = self.news.wakes_all or wake

    slots_changed = pauses_changed
    """Handle a change of the limits per concurrency key."""

    def start_by_key(self, job: Job) -> str:
        """Return when a job may start by the limits of starts per key; empty if none applies."""
        return start_by_key(job, self.records.limits(), self.records.paced)

    def search(self, wanted: Collection[Names]) -> Sequence[Names]:
        """Continue a scan for postponed takes; see ``store.base.Unit``."""
        return self.remembered.search(
            wanted, lambda statement: self._transaction.run_statements(statement)[0]
        )

    def workers_with_own_jobs(self) -> frozenset[str]:
        """Return the workers that have queued jobs bound to them."""
        if self._own_jobs is None:
            (rows,) = self._transaction.run_statements((SQL["bound_lanes"], ()))
            self._own_jobs = workers_of(lane for (lane,) in rows)
        return self._own_jobs


def _kind_of(job: Job) -> tuple[str, bool]:
    """Return the key of ``_firsts`` for a job."""
    return job.name, job.mocked


# Lookups: committed rows, read in one round trip on a separate connection.


class CommittedRows:
    """The rows that one lookup has read, as a unit for commands that only read by ID."""

    def __init__(self, session: DatabaseSession, keys: AdvisoryKeys) -> None:
        """Read with ``session``."""
        self.records = PostgreSQLRecords(Transaction(session, lambda last: []), keys)
        self.moment = datetime.min.replace(tzinfo=UTC)
        self._jobs: dict[int, Job] = {}

    def read(self, moment: datetime, jobs: Iterable[Row]) -> None:
        """Replace all rows."""
        self.moment = moment
        self._jobs = {row[1]: job_from(row) for row in jobs}

    def job(self, job_id: int) -> Job | None:
        """Return a job, or None; raises RowDamaged."""
        job = self._jobs.get(job_id)
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        return job

    shown = job


class PostgreSQLRowReader:
    """Reads committed rows on a separate connection, opened at first use."""

    def __init__(
        self, connect: Callable[[], DatabaseSession], checks: ConnectChecks, keys: AdvisoryKeys, clock: Clock
    ) -> None:
        """Read over a session that ``connect`` returns, from the server that ``checks`` has seen last.

        ``connect`` returns a session that is not connected yet, so that ``close`` can end it while it
        connects.
        """
        self._connect, self._checks, self._keys, self._clock = connect, checks, keys, clock
        self._session: DatabaseSession | None = None
        self._place: Timeline | None = None
        self._rows: CommittedRows | None = None
        self._closed = False

    def begin(self, plans: Sequence[AccessPlan]) -> Unit:
        """Read the rows of the plans in one transaction, and end the transaction. Raises StoreError."""
        session, rows = self._opened()
        job_ids = _all(plan.jobs for plan in plans)
        try:
            _, jobs, used, kept, inbox, _ = session.run_statements(
                [
                    (SQL["begin_reading"], ()),
                    (SQL["shown_jobs"], (job_ids,)),
                    (SQL["keys_ahead"], ([], _all(plan.key_holders for plan in plans))),
                    (SQL["kept_of_jobs"], (job_ids,)),
                    (SQL["in_inbox"], (job_ids,)),
                    (SQL["commit"], ()),
                ]
            )
        except StoreError:
            session.close()
            raise
        rows.read(self._clock.now(), jobs)
        rows.records.look_up(job_ids, used, kept, inbox)
        return cast(Unit, rows)

    def end(self) -> None:
        """Do nothing: the transaction has ended."""

    def _opened(self) -> tuple[DatabaseSession, CommittedRows]:
        session, rows = self._session, self._rows
        if self._closed:
            raise StoreAway("the session has ended")
        if session is None or rows is None or not session.is_open or self._place != self._checks.seen:
            if session is not None:
                session.end()
            self._place = self._checks.seen
            self._session = session = self._connect()
            session.connect_again()
            try:
                self._checks.check_reader(session)
            except StoreError:
                session.close()
                raise
            self._rows = rows = CommittedRows(session, self._keys)
        return session, rows

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._session is not None:
            self._session.end()
