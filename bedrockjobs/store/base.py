"""The seam between the queue and the database that keeps it: what every engine offers, whatever it is.

The dispatcher, maintenance and the views see these protocols only. An ``Engine`` opens one ``Unit`` after
another: an open transaction with the rows as it sees them. Handlers see nothing but the ``Unit``; stamps
(``YYYY-MM-DD HH:MM:SS.mmm``) and limits are parameters. What goes wrong in the database is a StoreError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.faults import StoreError
from bedrockjobs.store.side_tables import Records

# --- what lives in memory --------------------------------------------------------------------------------


class InMemory(Protocol):
    """Something kept in memory that follows from the database."""

    def mark(self) -> Any:
        """Return what ``undo`` needs to come back to the present state; asked before each part."""
        ...

    def undo(self, mark: Any) -> None:
        """Be as at the mark, or more cautious: know less, look sooner."""
        ...

    def forget(self) -> None:
        """Know nothing; what is asked for next is read anew. Takes no time however much was known."""
        ...


class StillSearching(Exception):
    """The first job of some names is not found within one unit: ``Unit.search`` goes on in the next ones."""


# --- a unit ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Plan:
    """Which rows a command is going to touch, as far as its parameters tell."""

    jobs: tuple[int, ...] = ()
    """jobIDs; an engine that locks rows adds their parents and children."""
    ends: tuple[int, ...] = ()
    """jobIDs of jobs that are ended in a way that removes most: those with nothing but themselves."""
    runs: tuple[int, ...] = ()
    """runIDs."""
    names: tuple[str, ...] = ()
    """Names of which all jobs matter: ``unique``, or a command that is given by name."""
    keys: tuple[str, ...] = ()
    """Idempotency keys."""
    takes: tuple[TakeRequest, ...] = ()
    """What is asked for."""
    creates: tuple[str, ...] = ()
    """Names of jobs that it creates, which somebody who waits may take."""
    own_jobs: bool = False
    """Whether it matters for which workers jobs are queued that nobody else may take."""
    new_jobs: int = 0
    """jobIDs to draw."""
    new_runs: int = 0
    """runIDs to draw."""
    control: bool = False
    """Whether it changes pauses, drains or the crash list, which all units read."""
    everything: bool = False
    """Whether it may touch any row, so that no other unit may be open."""


class Held(NamedTuple):
    """A stretch of time in which somebody held a lock, one after another."""

    since: str
    until: str = ""
    """When it was let go; empty while it is held."""


class Unit(Protocol):
    """An open transaction, with the rows as it sees them."""

    @property
    def records(self) -> Records:
        """Return the tables beside jobs."""
        ...

    @property
    def moment(self) -> datetime:
        """Return when all that it does happens, in UTC."""
        ...

    @property
    def changed(self) -> bool:
        """Tell whether anything was written in this unit."""
        ...

    @property
    def read_anew(self) -> bool:
        """Tell whether somebody else changed the database before this unit, so that all is read anew."""
        ...

    def fault(self, error: Exception) -> StoreError | None:
        """Return the fault that an exception of the engine's library means; None for any other exception."""
        ...

    def savepoint(self) -> object:
        """Begin a part that can be undone by itself; return its mark. Parts do not nest."""
        ...

    def release(self) -> None:
        """Keep the part."""
        ...

    def undo(self, mark: object) -> None:
        """Undo the part that began at a mark."""
        ...

    def became_ready(self) -> list[Job]:
        """Return the jobs that became ready, now or for later, since this was last asked."""
        ...

    def must_wake_all(self) -> bool:
        """Tell, once, whether anybody who waits may be served now: what is paused has changed."""
        ...

    def new_job_id(self) -> int:
        """Return a jobID that no job has or had, counting up from 1."""
        ...

    def new_run_id(self) -> int:
        """Return a runID that no run has or had, counting up from 1."""
        ...

    def insert(self, job: Job) -> None:
        """Add a job."""
        ...

    @property
    def chars_read(self) -> int:
        """Return how many characters of data were read from the database for ``job``, ever."""
        ...

    def job(self, job_id: int) -> Job | None:
        """Return a job, or None; raises RowDamaged, as do the lists of jobs by family and by name."""
        ...

    def shown(self, job_id: int) -> Job | None:
        """Return a job that is only shown, or None: no engine locks it. Raises RowDamaged."""
        ...

    def save(self, job: Job) -> None:
        """Write what can change in a job: all but created, jobID and parentJobID.

        Raises RowDamaged for a DamagedJob.
        """
        ...

    def claim(self, job: Job) -> None:
        """Write lastRun, attempt and runID of a plain job that becomes RUNNING."""
        ...

    def delete(self, job_id: int) -> None:
        """Remove a job."""
        ...

    def delete_plain(self, job_id: int) -> bool:
        """Remove a RUNNING job if that is all its end takes; return whether it was.

        That is so for most jobs: no repeat, no parent, no run, no lane, nothing noted, and no job in the
        table has children.
        """
        ...

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID.

        Jobs that are paused, or whose lock is held, are passed over. A damaged one comes as a DamagedJob.
        Raises StillSearching if that takes longer than others may wait for this unit.
        """
        ...

    def search(self, wanted: Collection[Names]) -> Sequence[Names]:
        """Go on for a few milliseconds with the search for jobs of ``wanted``, which StillSearching put off.

        Returns those for which ``first_due`` is worth asking again. Searches for other names are given up.
        """
        ...

    def passed_over(self, request: TakeRequest, now: str) -> bool:
        """Tell whether ``first_due`` passed over a due job: another unit has it, and may put it back.

        So it does with one that became due since the unit began, where there may be others beside it.
        """
        ...

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a stamp before which no further job becomes due that a request asks for, in any class.

        None if there is none at all.
        """
        ...

    def workers_with_own_jobs(self) -> frozenset[str]:
        """Return the workers for which jobs are queued that nobody else may take."""
        ...

    def lock_held(self, lane: str) -> Held | None:
        """Return when the lock of a lane was held last; None where nobody knows, or it has none."""
        ...

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return jobs whose ``expires`` has passed, the oldest first, damaged ones as DamagedJobs."""
        ...

    def due_on_all_hosts(self, now: str) -> list[Job]:
        """Return the queued schedules on all hosts that are due and not paused, the oldest first."""
        ...

    def repeating(self, due: str | None = None) -> Iterator[Job]:
        """
        Yield all jobs with a repeat, by name, damaged ones as DamagedJobs; each is read when it comes.

        With ``due``, a stamp, only those that are queued and due by then.
        """
        ...

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the first jobs of a name, by jobID, whatever their state."""
        ...

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""
        ...

    def pauses_changed(self, *, wake: bool = True) -> None:
        """Note that what is paused has changed; ``wake`` where anybody who waits may be served."""
        ...

    def first_of_name(self, name: str, *, mocked: bool) -> Job | None:
        """Return the oldest job of a name in any state, mocked or real."""
        ...

    def children(self, job_id: int) -> list[Job]:
        """Return the children of a job by jobID."""
        ...

    def has_children(self, job_id: int) -> bool:
        """Tell whether a job has children, in any state."""
        ...

    def has_pending_children(self, job_id: int) -> bool:
        """Tell whether a job has children that have not ended."""
        ...

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        ...

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace them."""
        ...

    def set_seen(self, now: str) -> None:
        """Note that a server is alive."""
        ...

    def wipe_log(self) -> None:
        """Let nothing of what was deleted be left in the engine's log once this unit is on disk."""
        ...

    def sign_off(self, now: str) -> None:
        """Note that a server ends well, and give back what it has reserved."""
        ...


# --- reads beside the units ------------------------------------------------------------------------------

Parameters = Sequence[Any] | Mapping[str, Any]
"""What a statement is given: by place, or by name."""


class Page(NamedTuple):
    """Some rows, and whether there are more than these."""

    rows: list[tuple[Any, ...]]
    more: bool


class Reader(Protocol):
    """Reads of committed rows that need no unit; statements are looked up by their names."""

    async def open(self) -> None:
        """Open what it reads with."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...

    async def query(self, sql: str, form: str) -> str:
        """Run one SELECT of a user; return its rows as text.

        ``form``: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines. Raises BadArguments,
        BadQuery, TimedOut, TooMany or Unavailable.
        """
        ...

    async def view(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        *,
        scans: bool = False,
        again: bool = False,
        bytes_max: int = ...,
    ) -> Page:
        """Return at most ``limit`` rows of a named statement, none behind the one that exceeds ``bytes_max``.

        ``scans`` says that it may look at many rows for few; ``again`` lets in who was let in before. Raises
        TooMany where very many read, TimedOut where it took too long.
        """
        ...


# --- an engine -------------------------------------------------------------------------------------------


class Engine(Protocol):
    """One database, open for writing."""

    tight: bool
    """Whether the disk is full: only commands that free room are done."""
    shared: bool
    """Whether other servers may work on the database too: units are a SharedUnit then, and wait in turns."""
    waits_for_disk: bool
    """Whether a commit waits long enough to be done by a thread of its own."""

    def search_in_s(self) -> float:
        """Return the seconds until ``search`` can go on: some tokens search for very much."""
        ...

    def reach(self) -> None:
        """Connect to a database that was away; raises StoreAway where it still is. None is open."""
        ...

    def begin(self, plans: Iterable[Plan] = ()) -> Unit:
        """Open a unit for commands with these plans; raises StoreBusy where another process writes."""
        ...

    def commit(self) -> None:
        """Write the open unit to disk; raises StoreError, after which the unit has to be rolled back.

        It may be called in a thread, while nothing else uses the unit.
        """
        ...

    def confirm(self) -> None:
        """Make sure, after a commit that wrote, that what was written will be found; raises StoreError."""
        ...

    def rollback(self) -> None:
        """Undo the open unit, and forget all that lives in memory."""
        ...

    def fault(self, error: Exception) -> StoreError | None:
        """Return the fault that an exception of the engine's library means; None for any other exception."""
        ...

    def make_room(self) -> None:
        """Give up what is kept in reserve on a disk that is full."""
        ...

    def look_for_room(self) -> None:
        """Find out whether a disk that was full has room again."""
        ...

    def changed_outside(self) -> bool:
        """Tell whether somebody else changed the database since the last unit; asked where none is open."""
        ...

    def seen(self) -> str:
        """Return when a server of this database was last known to be alive; empty for a new one."""
        ...

    def next_moment(self) -> str | None:
        """Return the next stamp at which time alone makes something of a job or a pause."""
        ...

    def next_on_all_hosts(self) -> str | None:
        """Return when the next schedule on all hosts is due."""
        ...

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due."""
        ...

    def close(self) -> None:
        """Close the database; an open unit is rolled back."""
        ...
