"""The interface between the queue and its database, which every engine implements.

The dispatcher, maintenance and the views use only these classes. ``PeerLink`` and what follows it are the
interface between the servers that share a database. An ``Engine`` opens one ``Unit`` after
another; a unit is an open transaction, and all that handlers see. Timestamps (``YYYY-MM-DD HH:MM:SS.mmm``)
and limits are parameters. Database errors are raised as StoreError.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.base.errors import BadQuery
from bedrockjobs.base.principal import READING_TOKEN, TokenShares
from bedrockjobs.job.rows import InboxRow, Job
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.records import Records

_T = TypeVar("_T")

# Errors of a database, on either engine.


class StoreError(Exception):
    """A database operation failed; the open unit was not committed."""

    reason = "Disk error"
    detail = "nothing was done; the disk could not be read or written"


class StoreBusy(StoreError):
    """Another process holds a lock on the database."""

    reason = "Database busy"
    detail = "nothing was done; another process keeps the database locked"


class StoreAway(StoreError):
    """The database is unreachable or unsuitable; the open unit was rolled back."""

    reason = "Database away"
    detail = "nothing was done; the database cannot be reached at the moment, try again"


class StoreFull(StoreError):
    """The disk is full."""

    reason = "Disk full"
    detail = "nothing was done; the database cannot grow"


class StoreBroken(StoreError):
    """A sync failed, so the state on disk is unknown: the server must stop and recover at the next start."""


class StoreDamaged(StoreBroken):
    """The file is damaged or not a database, and must not be served."""

    reason = "Database damaged"


class StoreConflict(StoreError):
    """Another server's transaction interfered; the commands of the unit are executed again one by one."""

    reason = "Database busy"
    detail = "nothing was done; another server keeps the same jobs locked"


class RowDamaged(Exception):
    """The data of a job does not match its checksum; no worker may get the job."""

    def __init__(self, job: Job) -> None:
        """Hold the job, with its data marked as damaged."""
        super().__init__(f"the data of job {job.job_id} is not what was stored")
        self.job = job


# --- caches ----------------------------------------------------------------------------------------------


class InMemory(Protocol):
    """A cache of database content that is undone with the transaction."""

    def mark(self) -> Any:
        """Return what ``undo`` needs to restore the present state; called before each savepoint."""

    def undo(self, mark: Any) -> None:
        """Restore the state at the mark, or drop what is cached."""

    def forget(self) -> None:
        """Drop the cache, in constant time."""


class StillSearching(Exception):
    """The search for a job does not fit into one unit; ``Unit.search`` continues it in later units."""


# --- a unit ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AccessPlan:
    """The rows that a command will access, as far as its parameters show."""

    jobs: tuple[int, ...] = ()
    """jobIDs; an engine with row locks adds their parents and children."""
    ends: tuple[int, ...] = ()
    """jobIDs of jobs that end, and are usually deleted."""
    runs: tuple[int, ...] = ()
    """runIDs."""
    names: tuple[str, ...] = ()
    """Names of jobs. The command may access every job with one of these names, because it creates a job with
    ``unique``, or chooses its job by the parameter ``name``."""
    keys: tuple[str, ...] = ()
    """Idempotency keys and unique keys."""
    key_holders: tuple[int, ...] = ()
    """jobIDs whose unique keys are read."""
    workflows: tuple[int, ...] = ()
    """workflowIDs; an engine with row locks adds the workflows of ``jobs`` and ``ends``."""
    takes: tuple[TakeRequest, ...] = ()
    """Requests for jobs, by names or patterns."""
    creates: tuple[str, ...] = ()
    """Names of jobs that the command creates, and that a waiter may take."""
    own_jobs: bool = False
    """Whether the command calls ``workers_with_own_jobs``."""
    new_jobs: int = 0
    """Number of jobIDs to allocate."""
    new_runs: int = 0
    """Number of runIDs to allocate."""
    control: bool = False
    """Whether the command changes pauses, drains or the crash list, which all units read."""
    everything: bool = False
    """Whether the command may access any row. If so, no other unit may be open."""


class LockPeriod(NamedTuple):
    """A period in which a lock was held without a gap."""

    since: str
    until: str = ""
    """When the lock was released; empty while it is held."""


class ReadyNews:
    """What became ready in a unit since waiters were last served."""

    __slots__ = ("jobs", "wakes_all")

    def __init__(self) -> None:
        """Start without news."""
        self.jobs: list[Job] = []
        """Jobs that were queued, whether due or not."""
        self.wakes_all = False
        """Whether all waiters must be checked again."""


class Unit(Protocol):
    """An open transaction."""

    @property
    def news(self) -> ReadyNews:
        """Return the news that the next ``became_ready`` and ``must_wake_all`` will return."""

    @property
    def records(self) -> Records:
        """Return the tables other than ``jobs``."""

    @property
    def moment(self) -> datetime:
        """Return the time in UTC that counts for everything done in this unit."""

    @property
    def changed(self) -> bool:
        """Return whether this unit has written anything."""

    @property
    def caches_dropped(self) -> bool:
        """Return whether another process changed the database before this unit, so caches were dropped."""

    def fault(self, error: Exception) -> StoreError | None:
        """Translate an exception of the database driver; return None for any other exception."""

    def savepoint(self) -> object:
        """Begin a savepoint; return its mark. Savepoints do not nest."""

    def release(self) -> None:
        """Release the savepoint."""

    def undo(self, mark: object) -> None:
        """Roll back to the savepoint."""

    def became_ready(self) -> list[Job]:
        """Return the jobs queued since the last call, whether due or not."""

    def must_wake_all(self) -> bool:
        """Return whether all waiters must be checked again because pauses changed; reset it to False."""

    def new_job_id(self) -> int:
        """Allocate a jobID; jobIDs count up from 1 and are never reused."""

    def return_job_id(self, job_id: int) -> None:
        """Release the jobID that was allocated last, because no job needs it."""

    def new_run_id(self) -> int:
        """Allocate a runID; runIDs count up from 1 and are never reused."""

    def insert(self, job: Job) -> None:
        """Insert a job."""

    @property
    def chars_read(self) -> int:
        """Return the total number of data characters that ``job`` has read from the database."""

    def job(self, job_id: int) -> Job | None:
        """Return a job or None; raises RowDamaged, as do ``children``, ``named`` and ``bound_of_name``."""

    def shown(self, job_id: int) -> Job | None:
        """Return a job or None, without locking its row; raises RowDamaged."""

    def several(self, job_ids: Sequence[int]) -> list[Job]:
        """Return the existing jobs among some jobIDs; raises RowDamaged."""

    def save(self, job: Job) -> None:
        """Update a job: all columns but created, jobID and parentJobID.

        Raises RowDamaged for a DamagedJob.
        """

    def claim(self, job: Job) -> None:
        """Write a plain job that becomes RUNNING: update lastRun, attempt and runID."""

    def delete(self, job_id: int) -> None:
        """Delete a job."""

    def delete_plain(self, job_id: int) -> str | None:
        """Delete a RUNNING job and return its name, or None if finishing it takes more than a delete.

        A delete suffices for most jobs: for a job without repeat, parent, run, lane and memory, if no job in
        the table has children.
        """

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID.

        Jobs are skipped if they are paused, if their lock is held, or if their key may not start another job
        yet. A damaged job is returned as a DamagedJob.
        Raises StillSearching if the search would block other commands for too long.
        """

    def search(self, wanted: Collection[Names]) -> Sequence[Names]:
        """Continue the searches for ``wanted`` that raised StillSearching, for a few milliseconds.

        Return the names for which ``first_due`` should be retried. Searches for other names are cancelled.
        """

    def skipped_locked(self, request: TakeRequest, now: str) -> bool:
        """Return whether ``first_due`` skipped a due job because another unit has locked it.

        The job may stay queued when that unit ends. On a shared database, jobs that became due after this
        unit began count too.
        """

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a lower bound for when the next matching job becomes due, or None if no job matches.

        Jobs of all priorities count, whatever priority the request asks for.
        """

    def workers_with_own_jobs(self) -> frozenset[str]:
        """Return the workers that have queued jobs bound to them."""

    def lock_held(self, lane: str) -> LockPeriod | None:
        """Return when the lock of a lane was held last; None if unknown or if the lane has no lock."""

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return at most ``limit`` expired jobs, oldest first; a damaged job is returned as DamagedJob."""

    def due_on_all_hosts(self, now: str) -> list[Job]:
        """Return the broadcast schedules that are due and not paused, oldest first."""

    def repeating(self, due: str | None = None) -> Iterator[Job]:
        """Yield all jobs with a repeat, ordered by name; a damaged job is yielded as DamagedJob.

        Each job is read just before it is yielded. With ``due``, yield only jobs that are queued and due by
        that timestamp.
        """

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the jobs of a name in any state, at most ``limit``, lowest jobID first."""

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""

    def pauses_changed(self, *, wake: bool = True) -> None:
        """Handle a change of the pauses; with ``wake``, all waiters are checked again."""

    def slots_changed(self) -> None:
        """Handle a change of the limits per concurrency key; all waiters are checked again."""

    def start_by_key(self, job: Job) -> str:
        """Return when a job may start by the limits of starts per key; empty if none applies."""

    def first_of_name(self, name: str, *, mocked: bool) -> Job | None:
        """Return the oldest job of a name in any state; ``mocked``: a mocked job, otherwise a real one."""

    def children(self, job_id: int) -> list[Job]:
        """Return the children of a job, in the order of their jobIDs."""

    def has_children(self, job_id: int) -> bool:
        """Return whether a job has children, in any state."""

    def has_pending_children(self, job_id: int) -> bool:
        """Return whether a job has unfinished children."""

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace the GLOB patterns of CrashBedrockJob."""

    def set_seen(self, now: str) -> None:
        """Store the heartbeat of the server."""

    def wipe_log(self) -> None:
        """Purge deleted data from the engine's write-ahead log after the commit."""

    def record_shutdown(self, now: str) -> None:
        """Store that the server shut down cleanly; release reserved ids."""


# --- reads outside of units ------------------------------------------------------------------------------

Parameters = Sequence[Any] | Mapping[str, Any]
"""Positional or named parameters of a statement."""


class Page(NamedTuple):
    """Some rows, and whether there are more."""

    rows: list[tuple[Any, ...]]
    more: bool


class PendingReads:
    """Counts running and waiting reads, in total and by token; one token may use a share of the limit.

    The token of a read is ``READING_TOKEN``, which a task inherits from the caller that creates it.
    """

    def __init__(self, most: int) -> None:
        """Admit at most ``most`` running and waiting reads."""
        self.most = most
        self._reads = TokenShares("Too many queries")

    @property
    def count(self) -> int:
        """Return the number of running and waiting reads."""
        return self._reads.total

    async def run(self, read: Callable[[], Awaitable[_T]], *, again: bool = False) -> _T:
        """Count and run a read; raises TooMany if too many are pending, unless it is a follow-up (``again``).

        If the caller is cancelled, the read still runs to its end and counts until then, so that limits hold.
        """
        if again:
            self._reads.add(READING_TOKEN.get())
        else:
            self._reads.begin(READING_TOKEN.get(), self.most)
        task = asyncio.ensure_future(self._run_to_end(read))
        task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(task)

    async def _run_to_end(self, read: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await read()
        finally:
            self._reads.remove(READING_TOKEN.get())


def _retrieve_exception(read: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a read: asyncio logs it otherwise if the caller was cancelled."""
    if not read.cancelled():
        read.exception()


class FreeQueries(Protocol):
    """Executes the SQL of Query."""

    async def run_query(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text. Raises CommandError."""

    def refuse(self) -> None:
        """Refuse new queries."""

    async def cancel_all(self) -> None:
        """Cancel running queries."""


class ReadExecutor(Protocol):
    """Executes reads one after another."""

    async def close(self) -> None:
        """Cancel running reads and refuse new ones."""


class Reader(ABC):
    """Reads committed rows for one server, outside of units; subclasses execute the statements.

    Index seeks and scans use separate connections, so that a slow list does not delay clients that follow a
    run.
    """

    _seeks: ReadExecutor
    _scans: ReadExecutor
    queries: FreeQueries
    """Executes the SQL of Query; it is stopped before the reader is closed."""

    @abstractmethod
    async def open(self) -> None:
        """Open the connections."""

    async def close(self) -> None:
        """Close the connections and cancel running reads."""
        await self._seeks.close()
        await self._scans.close()
        await self.queries.cancel_all()

    async def query(self, sql: str, form: str) -> str:
        """Run one SELECT that ends in ``;``; return its rows as text.

        ``form``: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines. Raises BadArguments
        for invalid SQL, BadQuery if the SQL is not allowed or exceeds a limit, TimedOut after ``query_s``,
        TooMany if too many queries wait, Unavailable if no query can run.
        """
        if not sql.rstrip().endswith(";"):
            raise BadQuery("Query Missing Semicolon", "query: expected one SELECT that ends in ;")
        return await self.queries.run_query(sql, form)

    async def view(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        *,
        scans: bool = False,
        again: bool = False,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Page:
        """Return at most ``limit`` rows of a named statement, up to the row that exceeds ``bytes_max``.

        ``scans``: the statement may scan many rows. ``again``: a follow-up read, exempt from the limit of
        waiting reads. Raises TooMany if too many reads wait, TimedOut after ``query_s``.
        """
        parameters = {**parameters, "limit": limit + 1}
        return await self._page(name, parameters, limit, bytes_max, scans=scans, again=again)

    @abstractmethod
    async def _page(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        bytes_max: int,
        *,
        scans: bool,
        again: bool,
    ) -> Page:
        """Execute a read of ``view``."""


class RowReader(Protocol):
    """Reads committed rows by ID in parallel to the open unit, one transaction after another.

    A transaction sees everything that was acknowledged before its ``begin``.
    """

    def begin(self, plans: Sequence[AccessPlan]) -> Unit:
        """Read the rows that the plans name; return a unit that can only read. Raises StoreError."""

    def end(self) -> None:
        """End the transaction; raises StoreError."""


# --- an engine -------------------------------------------------------------------------------------------


class Engine(Protocol):
    """One database, open for writing."""

    tight: bool
    """Whether the disk is full, so that only commands that free space are executed."""
    shared: bool
    """Whether other servers may share the database; units are then SharedUnits."""
    waits_for_disk: bool
    """Whether a commit is slow enough to run in a thread."""
    lost_commit: StoreError | None
    """The error after which the outcome of a commit is unknown, or None. While it is set, no unit begins."""

    @property
    def row_reader(self) -> RowReader | None:
        """Return an object that reads rows in parallel to the open unit; None if only the writer can."""

    def search_in_s(self) -> float:
        """Return the seconds until ``Unit.search`` may continue; searches are rate limited per token."""

    def reach(self) -> None:
        """Reconnect to the database while no unit is open; raises StoreAway if it is still unreachable."""

    def begin(self, plans: Iterable[AccessPlan] = ()) -> Unit:
        """Open a unit for commands with these plans; raises StoreBusy if another process is writing."""

    def commit(self) -> None:
        """Commit the open unit; after a StoreError the unit must be rolled back.

        It may run in a thread while nothing else uses the unit.
        """

    def confirm(self) -> None:
        """Verify after a commit that the written data is in place; raises StoreError."""

    def rollback(self) -> None:
        """Roll back the open unit and drop all caches."""

    def fault(self, error: Exception) -> StoreError | None:
        """Translate an exception of the database driver; return None for any other exception."""

    def free_reserve(self) -> None:
        """Free the disk reserve."""

    def reserve_space(self) -> None:
        """Allocate the disk reserve again if the disk has room again."""

    def changed_outside(self) -> bool:
        """Return whether another process changed the database since the last unit; call it between units."""

    def seen(self) -> str:
        """Return the last heartbeat of a server of this database; empty if there was none."""

    def next_moment(self) -> str | None:
        """Return when the next job expires or the next pause ends, whichever is first; None if neither."""

    def planned(self) -> object:
        """Return an object that stays equal until ``next_moment`` or ``next_on_all_hosts`` changes."""

    def next_on_all_hosts(self) -> str | None:
        """Return when the next broadcast schedule is due, or None."""

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due after ``now``, or None."""

    def close(self) -> None:
        """Close the database and roll back an open unit."""


# Cluster membership and notifications between the servers of one database.
#
# ``PeerLink`` connects a server to the others. A notification only says that something may have changed; the
# state is in tables that all servers read, so nothing is lost if a server or a connection fails.


ServerState = Literal["starting", "serving", "stopping", "silent"]
"""State of a server; ``silent``: without a recent heartbeat."""


class ServerRow(NamedTuple):
    """A server that is alive."""

    name: str
    address: str
    """The address on which the server listens; empty before it listens."""
    started: str
    pulse: str
    """The last heartbeat of the server."""
    version: str
    workers: int = 0
    """Number of connected workers; a worker that is connected to several servers counts for each server."""
    state: ServerState = "serving"


class WorkerRow(NamedTuple):
    """A live worker, as its server knows it."""

    name: str
    joined: str
    heartbeat: str
    until: str
    """When the worker is considered gone unless it sends another heartbeat."""
    host: str
    pid: int
    version: str
    asked: list[str]
    """The names and patterns that the worker requests."""
    accepts: list[str]
    slots: int
    quiet: bool
    by: str | None
    """The name of the token that the worker uses; empty if it uses none; None if an older server wrote the
    row."""


class OpenRunRow(NamedTuple):
    """A run in progress, on a worker of any server."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    stop: str


class WorkerChanges(NamedTuple):
    """Changes of a server's workers since its last ``PeerLink.exchange``."""

    workers: list[WorkerRow]
    left: list[tuple[str, str]]
    """Workers that shut down, each with its token."""
    beats: list[int]
    """runIDs of the runs whose workers sent a heartbeat."""
    served: int = 0
    """Number of connected workers."""


class PeerState(NamedTuple):
    """All servers, workers and runs of the cluster, and what changed since the last ``PeerLink.exchange``."""

    joined: list[str]
    """New workers."""
    left: list[str]
    """Workers that shut down or timed out."""
    lost: list[str]
    """Servers that timed out."""
    servers: list[ServerRow]
    workers: list[WorkerRow]
    runs: list[OpenRunRow]
    inbox: bool = False
    """Whether there are jobs to take in from the inbox."""


class NameTaken(RuntimeError):
    """A live server already has the name."""


class PeerLink(Protocol):
    """Connection of one server to the other servers of its database."""

    on_notification: Callable[[str], object]
    """Called on the event loop with each notification from another server."""
    address: str
    """The address of this server; empty until it listens."""
    state: ServerState
    """The state of this server."""

    async def connect(self, version: str) -> None:
        """Join the cluster; raises NameTaken if a live server has this name, StoreError."""

    async def exchange(self, changes: WorkerChanges) -> PeerState:
        """Store a heartbeat of this server and the changes of its workers; return the state of the cluster.

        Raises StoreError.
        """

    async def inbox(self) -> list[InboxRow]:
        """Return the next jobs to take in, which applications created in transactions; raises StoreError."""

    async def move_clock(self, moment: str) -> str:
        """Advance the test clock of the database; return its time. Raises StoreError."""

    async def publish(self, text: str) -> None:
        """Publish a notification to all other servers; raises StoreError if the database is unreachable."""

    async def close(self) -> None:
        """Stop publishing and listening."""


class Watch(NamedTuple):
    """Result of an attempt to become the maintenance leader."""

    mine: bool
    """Whether this server is the maintenance leader."""
    seen: str
    """When maintenance ran last; empty for a new database."""
    away: tuple[str, str]
    """Start and end of the last outage of all servers; empty if there was none."""


class SharedUnit(Unit, Protocol):
    """A unit on a database that other servers share."""

    def watch(self) -> Watch:
        """Try to become the maintenance leader until this unit ends; return the result and stored times."""

    def watched(self, now: str) -> None:
        """Store that maintenance has run."""

    def record_outage(self, since: str, until: str) -> None:
        """Store an outage of all servers and renew the lease of each run in progress."""

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runIDs of at most ``limit`` runs with an expired lease."""

    def due_names(self, names: Sequence[str], now: str, lately: str) -> list[str]:
        """Return which of ``names`` have a due job, and all names with a job due since ``lately``."""

    def left_ready(self) -> tuple[list[tuple[str, str]], bool]:
        """Return name and nextRun of the jobs that the unit made ready and that are still queued.

        The second value is whether all waiters must be checked again.
        """
