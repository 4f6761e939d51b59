"""A unit on SQLite: the open transaction, and the caches that outlive it.

The statements use the writer's connection. The caches are a list of ``InMemory`` objects, and no other code
resets them: a rollback to a savepoint undoes each cache; a rollback of the transaction, or a change by
another process, drops all caches.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from bedrockjobs.base.background import in_slices
from bedrockjobs.base.config import ID_BLOCK, RECENT_DATA_CHARS_MAX, RECENT_ROWS_MAX, SET_ROWS
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import DamagedJob, Job, checksum_of, damaged, is_plain, job_from, saved_columns
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import (
    InMemory,
    RowDamaged,
    StoreBroken,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from bedrockjobs.store.ready_queue import ReadyQueue
from bedrockjobs.store.records import Records
from bedrockjobs.store.sandbox import is_damage
from bedrockjobs.store.statements import STATEMENTS as SQL

# Cache of the rows written last.
#
# Most jobs are taken soon after they are created, and finished soon after they are taken. Reading a row
# costs as much as finding it, and there is only one writer.


class RowCache:
    """Rows by jobID, as the open transaction has them."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, Job] = OrderedDict()  # popping the oldest item of a plain dict is O(n)
        self.get = self._rows.get
        """Return a cached row, or None."""
        self.forget = self._rows.clear
        """Drop all rows."""

    def keep(self, row: Job) -> None:
        """Cache a written row; evict the oldest one if the cache is full."""
        rows = self._rows
        if len(row.data) > RECENT_DATA_CHARS_MAX:
            rows.pop(row.job_id, None)
            return
        if len(rows) >= RECENT_ROWS_MAX and row.job_id not in rows:
            rows.popitem(last=False)
        rows[row.job_id] = row

    def drop(self, job_id: int) -> None:
        """Drop a deleted row."""
        self._rows.pop(job_id, None)

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Return None: ``undo`` drops the rows, which are cheap to read again."""

    def undo(self, mark: None) -> None:
        """Drop all rows, since some of them may have been rolled back."""
        self.forget()


# jobIDs and runIDs are allocated in memory, from blocks reserved in the database.
#
# The database stores the first unreserved ID, so most commits need not write it. If the server is killed, the
# rest of its block stays unused; a clean shutdown releases the rest.


class Identifiers:
    """The ID allocator of one database."""

    def __init__(self, execute: Callable[..., Any], job_exists: Callable[[int], bool]) -> None:
        """Use the writer's connection; ``job_exists`` returns whether a jobID is in use."""
        self._execute = execute
        self._job_exists = job_exists
        self._jobs = _Counter(execute, "nextJobID")
        self._runs = _Counter(execute, "nextRunID")
        self._counters = (self._jobs, self._runs)
        self._highest_job = 0
        self._known = False

    def _load(self) -> None:
        self._jobs.load()
        self._runs.load()
        self._highest_job = int(self._execute(SQL["highest_job_id"]).fetchone()[0] or 0)
        self._known = True

    def new_job(self) -> int:
        """Allocate a jobID, skipping jobIDs of imported jobs."""
        if not self._known:
            self._load()
        found = self._jobs.next
        while found <= self._highest_job and self._job_exists(found):
            found += 1
        self._jobs.next = found + 1
        return found

    def return_job(self, job_id: int) -> None:
        """Release the jobID that was allocated last, so that the next job gets it."""
        assert job_id == self._jobs.next - 1
        self._jobs.next = job_id

    def new_run(self) -> int:
        """Allocate a runID."""
        if not self._known:
            self._load()
        self._runs.next += 1
        return self._runs.next - 1

    def save(self) -> None:
        """Reserve a new block in the open transaction if the last block is used up."""
        if self._known and (self._jobs.next > self._jobs.end or self._runs.next > self._runs.end):
            for counter in self._counters:
                if counter.next > counter.end:
                    counter.write(counter.next + ID_BLOCK)

    def give_back(self) -> None:
        """Release the unused part of the blocks in the open transaction."""
        if not self._known:
            self._load()
        for counter in self._counters:
            counter.write(counter.next)

    def saved(self) -> None:
        """Record that the transaction was committed."""
        if not self._known:
            return
        for counter in self._counters:
            counter.kept = counter.next, counter.end

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int] | None:
        """Return the next jobID and the next runID, or None if they are unknown."""
        return (self._jobs.next, self._runs.next) if self._known else None

    def undo(self, mark: tuple[int, int] | None) -> None:
        """Release the IDs that were allocated since the mark."""
        if mark is None:
            self.forget()
        else:
            self._jobs.next, self._runs.next = mark

    def forget(self) -> None:
        """Read the stored IDs again at the next allocation."""
        self._known = False


class _Counter:
    """The counter of jobIDs or of runIDs."""

    def __init__(self, execute: Callable[..., Any], key: str) -> None:
        self._execute = execute
        self._key = key
        self.next = 0
        """The next ID to allocate."""
        self.end = 0
        """The first unreserved ID, in the open transaction."""
        self.kept = 0, 0
        """``next`` and ``end`` as of the last commit."""

    def load(self) -> None:
        """Read the first unreserved ID; if unchanged since the last commit, continue in that block."""
        stored = int(self._execute(SQL["get_meta"], (self._key,)).fetchone()[0])
        before, end = self.kept
        self.next, self.end = (before if stored == end else stored), stored
        self.kept = self.next, self.end

    def write(self, end: int) -> None:
        if end != self.end:
            self._execute(SQL["set_meta"], (self._key, end))
            self.end = end


# Facts about the whole database, each read once and used very often.


class CachedFlags:
    """Whether any job has children, when the next job expires, and the crash list."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute
        self.any_family: bool | None = None
        """Whether any job may have children; None if unknown."""
        self._expiry: str | None = None
        self._expiry_known = False
        self._crash_patterns: tuple[str, ...] | None = None

    def families(self) -> bool:
        """Return whether any job may have children; most databases have none."""
        if self.any_family is None:
            self.any_family = self._execute(SQL["has_families"]).fetchone() is not None
        return self.any_family

    def set_family(self) -> None:
        """Record that a job with a parent was inserted."""
        self.any_family = True

    def next_expiry(self) -> str | None:
        """Return a lower bound for the next expiry, or None if no job expires."""
        if not self._expiry_known:
            self._expiry = self._execute(SQL["next_expiry"]).fetchone()[0]
            self._expiry_known = True
        return self._expiry

    def add_expiry(self, timestamp: str) -> None:
        """Record the expiry of a written job, if it is earlier than the next expiry."""
        if self._expiry_known and (self._expiry is None or timestamp < self._expiry):
            self._expiry = timestamp

    def drop_expiry(self) -> None:
        """Drop the cached next expiry, so that it is read again when it is needed."""
        self._expiry_known = False

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            found = self._execute(SQL["get_meta"], ("crashPatterns",)).fetchone()
            self._crash_patterns = tuple(json.loads(found[0])) if found else ()
        return self._crash_patterns

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Return None: ``undo`` drops the flags, which are cheap to read again."""

    def undo(self, mark: None) -> None:
        """Drop all flags."""
        self.forget()

    def forget(self) -> None:
        """Drop all flags."""
        self.any_family = self._crash_patterns = None
        self._expiry_known = False


# Writes of plain jobs (see ``is_plain``: without special attributes) are deferred and executed in sets. One
# statement for many rows takes half the time of one for each, and a job that is created and taken in one
# transaction is written once. The deferred writes are executed before every statement that names the table
# ``jobs``, so that no statement reads a state without them.


_CLAIM_JOB = SQL["claim_job"]
_NAMES_JOBS = re.compile(r"\bjobs\b").search
_PLAIN_COLUMNS = 11


@cache
def _of_rows(statement: str, rows: int, row: str) -> str:
    """Return a statement for ``rows`` rows; ``row`` is the text of the placeholders of one row."""
    return SQL[statement].format(rows=", ".join([row] * rows))


class DeferredWrites:
    """The writer's connection, which defers the writes of plain jobs until a statement may read them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Execute statements on ``connection``."""
        self._connection = connection
        self._run = connection.execute
        self._names_jobs: dict[str, bool] = {}
        self.created: dict[int, Job] = {}
        """New plain jobs without a stored row, in their present state: some of them are RUNNING already."""
        self.taken: dict[int, Job] = {}
        """Plain jobs that became RUNNING, but whose stored row is still QUEUED."""
        self.deleted: dict[int, None] = {}
        """jobIDs of plain jobs that were deleted, but still have a stored row."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:
        """Execute a statement, after the deferred writes if it names the table ``jobs``."""
        if self.created or self.taken or self.deleted:
            names_jobs = self._names_jobs.get(sql)
            if names_jobs is None:
                names_jobs = self._names_jobs[sql] = _NAMES_JOBS(sql) is not None
            if names_jobs:
                self.write()
        return self._run(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> sqlite3.Cursor:
        """Execute a statement for each row, after the deferred writes."""
        self.write()
        return self._connection.executemany(sql, rows)

    def row(self, job_id: int) -> Job | None:
        """Return a job whose write is deferred, or None; the row cache lacks it if it has much data."""
        return self.created.get(job_id) or self.taken.get(job_id)

    def claim(self, job: Job) -> None:
        """Defer the write that makes a plain job RUNNING."""
        (self.created if job.job_id in self.created else self.taken)[job.job_id] = job

    def delete(self, job_id: int) -> None:
        """Defer the deletion of a plain job."""
        if self.created.pop(job_id, None) is None:
            self.taken.pop(job_id, None)
            self.deleted[job_id] = None

    def write(self) -> None:
        """Execute all deferred writes."""
        created, taken, deleted = self.created, self.taken, self.deleted
        self.created, self.taken, self.deleted = {}, {}, {}
        if created:
            values: list[Any] = []
            for job in created.values():
                values += job[:6]
                data = job.data
                values += (data, job.priority, job.attempt, job.run_id, checksum_of(data))
            for at in range(0, len(values), SET_ROWS * _PLAIN_COLUMNS):
                some = values[at : at + SET_ROWS * _PLAIN_COLUMNS]
                row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                self._run(_of_rows("insert_plain_jobs", len(some) // _PLAIN_COLUMNS, row), some)
        if taken:
            ids = [job.job_id for job in taken.values() if not job.run_id]
            now = next(iter(taken.values())).last_run  # the time of the transaction
            for at in range(0, len(ids), SET_ROWS):
                some = ids[at : at + SET_ROWS]
                self._run(_of_rows("claim_jobs", len(some), "?"), (now, *some))
            for job in taken.values():
                if job.run_id:
                    self._run(_CLAIM_JOB, (job.last_run, job.attempt, job.run_id, job.job_id))
        if deleted:
            ids = [*deleted]
            for at in range(0, len(ids), SET_ROWS):
                some = ids[at : at + SET_ROWS]
                self._run(_of_rows("delete_jobs", len(some), "?"), some)

    def forget(self) -> None:
        """Drop the deferred writes."""
        self.created, self.taken, self.deleted = {}, {}, {}


_DATA = Job._fields.index("data")
_JOB_BY_ID = SQL["job_by_id"]


def fault_of(error: Exception) -> StoreError | None:
    """Translate an error of SQLite; return None for any other exception."""
    if isinstance(error, StoreError):
        return error
    if not isinstance(error, sqlite3.Error):
        return None
    name = getattr(error, "sqlite_errorname", "")
    text = f"{error} ({name})"
    if is_damage(error):
        return StoreDamaged(text)
    if "FSYNC" in name:
        return StoreBroken(text)
    if name == "SQLITE_FULL":
        return StoreFull(text)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(text)
    return StoreError(text)


REPLACED = "\ufffd"
"""Replacement for bytes that are not UTF-8."""


def is_undecodable(error: Exception) -> bool:
    """Return whether an error was raised by Python for a text that is not UTF-8."""
    return not hasattr(error, "sqlite_errorcode") and "decode" in str(error)


def replacing(value: bytes) -> str:
    """Decode a text, replacing invalid bytes."""
    return value.decode(errors="replace")


class SQLiteUnit:
    """The open transaction of one database, controlled by its engine."""

    def __init__(
        self, connection: sqlite3.Connection, settings: Settings, monotonic: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._deferred = DeferredWrites(connection)
        self._execute = self._deferred.execute
        self.moment = datetime.min.replace(tzinfo=UTC)
        self.caches_dropped = False
        """Whether another process changed the database before this unit."""
        self.chars_read = 0
        self._rows = RowCache()
        self._facts = CachedFlags(self._execute)
        self.identifiers = Identifiers(self._execute, lambda job_id: self._found(job_id) is not None)
        self.new_job_id, self.new_run_id = self.identifiers.new_job, self.identifiers.new_run
        self.return_job_id = self.identifiers.return_job
        self.records = Records(self._deferred)
        """The tables other than ``jobs``."""
        self.records.configure(settings)
        self.ready = ReadyQueue(
            self._deferred, self._found, self._read_ahead, self._rows.get, self.records, settings, monotonic
        )
        """The queued jobs."""
        self._parts: tuple[InMemory, ...] = (
            self._rows,
            self._facts,
            self.identifiers,
            self.records,
            self.ready,
            self.ready.patterns,
        )
        self.first_due, self.soonest = self.ready.first_due, self.ready.soonest
        self.search = self.ready.patterns.search
        self.pauses_changed = self.ready.pauses_changed
        self.slots_changed = self.ready.slots_changed
        self.start_by_key = self.ready.start_by_key
        self.became_ready, self.must_wake_all = self.ready.became_ready, self.ready.must_wake_all
        self.news = self.ready.news
        self.workers_with_own_jobs = self.ready.workers_with_own_jobs
        self.due_on_all_hosts, self.lock_held = self.ready.all_hosts.due, self.ready.lock_held
        self.crash_patterns, self.next_expiry = self._facts.crash_patterns, self._facts.next_expiry
        self._stored: Job | None = None
        """The row read or written last, as it is in the open transaction."""
        self._changes_before = 0
        self.wipes_log = False
        """Whether the write-ahead log must be truncated because it contains purged data."""

    # --- the transaction ---------------------------------------------------------------------------------

    fault = staticmethod(fault_of)

    def open(self, moment: datetime, *, caches_dropped: bool) -> None:
        """Begin a unit in a transaction that the engine has begun."""
        self.moment = self.ready.moment = moment
        self.caches_dropped = caches_dropped
        self._stored = None
        self._changes_before = self._connection.total_changes
        self.ready.refresh()

    @property
    def changed(self) -> bool:
        """Return whether the open transaction has written anything."""
        deferred = self._deferred
        if deferred.created or deferred.taken or deferred.deleted:
            return True
        return self._connection.total_changes != self._changes_before

    def write(self) -> None:
        """Execute all deferred writes, before a commit."""
        self._deferred.write()
        self.identifiers.save()

    def savepoint(self) -> list[Any]:
        """Begin a savepoint; return its mark."""
        self._deferred.write()
        marks = [part.mark() for part in self._parts]
        self._execute("SAVEPOINT part")
        return marks

    def release(self) -> None:
        """Release the savepoint."""
        self._deferred.write()
        self._execute("RELEASE part")

    def undo(self, mark: object) -> None:
        """Roll back to the savepoint and undo the caches."""
        assert isinstance(mark, list)
        self._deferred.forget()
        self._execute("ROLLBACK TO part")
        self._execute("RELEASE part")
        self._stored = None
        for part, its in zip(self._parts, mark, strict=True):
            part.undo(its)
        self.ready.refresh()

    def forget(self) -> None:
        """Drop all deferred writes and caches."""
        self._deferred.forget()
        self._stored = None
        for part in self._parts:
            part.forget()

    # --- rows --------------------------------------------------------------------------------------------

    def insert(self, job: Job) -> None:
        """Insert a job."""
        if is_plain(job):
            self._deferred.created[job.job_id] = job
        else:
            if job.parent_job_id:
                self._facts.set_family()
            self._execute(SQL["insert_job"], (*job, checksum_of(job.data)))
            if job.expires:
                self._facts.add_expiry(job.expires)
        self._rows.keep(job)
        self.ready.note(job)

    def job(self, job_id: int) -> Job | None:
        """Return a job, or None; raises RowDamaged."""
        job = self._found(job_id)
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        return job

    shown = job

    def several(self, job_ids: Sequence[int]) -> list[Job]:
        """Return the existing jobs among some jobIDs; raises RowDamaged."""
        return [job for job in map(self.job, job_ids) if job is not None]

    def _found(self, job_id: int) -> Job | None:
        job = self._rows.get(job_id) or self._deferred.row(job_id)
        if job is not None:
            return job
        try:
            found = self._execute(_JOB_BY_ID, (job_id,)).fetchone()
        except sqlite3.OperationalError as error:
            return self._undecodable(error, "job_by_id", (job_id,))[0]
        if found is None:
            return None
        self._stored = job = job_from(found)
        self.chars_read += len(job.data)
        return job

    def _read_ahead(self, job_ids: list[int]) -> bool:
        """Cache the rows of the jobs that will be taken next, up to the first row too long for the cache.

        Return whether the row of the first jobID is in the cache now.
        """
        missing = [job_id for job_id in job_ids if self._rows.get(job_id) is None]
        cursor = self._execute(_of_rows("jobs_by_id", len(missing), "?"), missing)
        chars = 0
        try:
            for row in cursor:
                job = job_from(row)
                chars += len(job.data)
                if len(job.data) > RECENT_DATA_CHARS_MAX:
                    break
                if type(job) is Job:
                    self._rows.keep(job)
        except sqlite3.OperationalError as error:  # a text is not UTF-8: see _undecodable
            if not is_undecodable(error):
                raise
        finally:
            cursor.close()
        self.chars_read += chars
        return self._rows.get(job_ids[0]) is not None

    def save(self, job: Job) -> None:
        """Update a job; raises RowDamaged for a DamagedJob."""
        if type(job) is DamagedJob:
            raise RowDamaged(job)
        written = saved_columns(job)
        stored = self._rows.get(job.job_id) or self._stored
        if type(stored) is Job and stored.job_id == job.job_id and stored.data == job.data:
            self._execute(SQL["save_job"], (*written, job.job_id))
        else:
            self._execute(SQL["save_job_and_data"], (*written, job.data, checksum_of(job.data), job.job_id))
        self._stored = job
        self._rows.keep(job)
        if job.expires:
            self._facts.add_expiry(job.expires)
        self.ready.note(job)

    def claim(self, job: Job) -> None:
        """Write a plain job that becomes RUNNING: update lastRun, attempt and runID."""
        self._deferred.claim(job)
        self._rows.keep(job)
        self.ready.took(job)

    def delete(self, job_id: int) -> None:
        """Delete a job."""
        self._execute(SQL["delete_job"], (job_id,))
        self._rows.drop(job_id)
        self.ready.drop(job_id)

    def delete_plain(self, job_id: int) -> str | None:
        """Delete a RUNNING job and return its name, or None if finishing it takes more than a delete."""
        if self.records.keep_finished_s or (self._facts.any_family is not False and self._facts.families()):
            return None
        job = self._rows.get(job_id)
        if job is None:  # reading it would cost more than the conditions, which the statement has too
            for (name,) in self._execute(SQL["delete_plain_job"], (job_id,)).fetchall():
                return str(name, "utf-8", "replace")
            return None
        plain = (
            job.state == "RUNNING"
            and not (job.repeat or job.parent_job_id or job.lane or job.run_id)
            and job.options_json == job.memory_json == "{}"
        )
        if plain:
            self._deferred.delete(job_id)
            self._rows.drop(job_id)
        return job.name if plain else None

    # --- queries -----------------------------------------------------------------------------------------

    def _jobs(self, statement: str, *parameters: str | int) -> list[Job]:
        """Return the jobs that a statement finds; a damaged job is returned as DamagedJob."""
        try:
            return [job_from(row) for row in self._execute(SQL[statement], parameters)]
        except sqlite3.OperationalError as error:
            return self._undecodable(error, statement, parameters)

    def _sound_jobs(self, statement: str, *parameters: str | int) -> list[Job]:
        """Return the jobs that a statement finds; raises RowDamaged for the first damaged job."""
        jobs = self._jobs(statement, *parameters)
        for job in jobs:
            if type(job) is DamagedJob:
                raise RowDamaged(job)
        return jobs

    def _undecodable(
        self, error: sqlite3.OperationalError, statement: str, parameters: tuple[str | int, ...]
    ) -> list[Job]:
        """Execute a statement again after an error about texts that are not UTF-8; re-raise other errors.

        Jobs whose data is not UTF-8 are returned as DamagedJob.
        """
        if not is_undecodable(error):
            raise error
        self._connection.text_factory = replacing
        try:
            rows = self._execute(SQL[statement], parameters).fetchall()
        finally:
            self._connection.text_factory = str
        return [damaged(row) if REPLACED in row[_DATA] else job_from(row) for row in rows]

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return at most ``limit`` expired jobs, oldest first."""
        expiry = self._facts.next_expiry()
        if expiry is None or expiry > now:
            return []
        self._facts.drop_expiry()  # after these have been handled
        return self._jobs("expired", now, limit)

    def repeating(self, due: str | None = None) -> Iterator[Job]:
        """Yield all jobs with a repeat, ordered by name; with ``due``, only jobs queued and due by then."""
        asked = (SQL["repeating"],) if due is None else (SQL["repeating_due"], (due,))
        for (job_id,) in in_slices(self._execute(*asked).fetchall()):
            yield from self._jobs("job_by_id", job_id)

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the jobs of a name in any state, at most ``limit``, lowest jobID first."""
        return self._sound_jobs("named", name, limit)

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""
        return self._sound_jobs("bound_of_name", name)

    def first_of_name(self, name: str, *, mocked: bool) -> Job | None:
        """Return the oldest job of a name in any state; ``mocked``: a mocked job, otherwise a real one."""
        found = self._execute(SQL["first_of_name"], (name, int(mocked))).fetchone()
        return None if found is None else self.job(found[0])

    def children(self, job_id: int) -> list[Job]:
        """Return the children of a job, in the order of their jobIDs."""
        return self._sound_jobs("children_of", job_id) if self._facts.families() else []

    def has_children(self, job_id: int) -> bool:
        """Return whether a job has children."""
        if self._facts.any_family is False or not self._facts.families():
            return False
        return self._execute(SQL["has_children"], (job_id,)).fetchone() is not None

    def has_pending_children(self, job_id: int) -> bool:
        """Return whether a job has unfinished children."""
        return self._execute(SQL["has_pending_children"], (job_id,)).fetchone() is not None

    def skipped_locked(self, request: TakeRequest, now: str) -> bool:
        """Return False: only one unit is open at a time, so no other unit has locked jobs."""
        return False

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace the GLOB patterns of CrashBedrockJob."""
        self._execute(SQL["set_meta"], ("crashPatterns", json.dumps(patterns)))
        self._facts.forget()

    def set_seen(self, now: str) -> None:
        """Store the heartbeat of the server."""
        self._execute(SQL["set_meta"], ("seen", now))

    def wipe_log(self) -> None:
        """Purge deleted data from the write-ahead log after the commit."""
        self.wipes_log = True

    def record_shutdown(self, now: str) -> None:
        """Store that the server shut down cleanly; release reserved ids."""
        self.set_seen(now)
        self.identifiers.give_back()
