"""What handlers may do to the rows, whatever the engine: the operations of one open transaction.

Every engine implements ``Transaction``. Handlers see nothing else of the store; moments are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bedrockjobs.job.rows import Job, Names
from bedrockjobs.store.records import Records


class Transaction(Protocol):
    """The rows, as one open transaction sees them."""

    records: Records
    """The tables beside jobs."""

    def savepoint(self) -> None:
        """Begin a part that can be undone by itself; parts do not nest."""
        ...

    def release(self) -> None:
        """Keep the part."""
        ...

    def undo(self) -> None:
        """Undo the part."""
        ...

    def new_job_id(self) -> int:
        """Return a jobID that no job has or had, counting up from 1."""
        ...

    def new_run_id(self) -> int:
        """Return a runID that no run has or had, counting up from 1."""
        ...

    def insert(self, row: Job) -> None:
        """Add a job."""
        ...

    def job(self, job_id: int) -> Job | None:
        """Return a job, or None."""
        ...

    def save(self, row: Job) -> None:
        """Write what can change in a job: all but created, jobID and parentJobID."""
        ...

    def claim(self, row: Job) -> None:
        """Write lastRun, attempt and runID of a job that becomes RUNNING."""
        ...

    def delete(self, job_id: int) -> None:
        """Remove a job."""
        ...

    def delete_plain(self, job_id: int) -> bool:
        """Remove a RUNNING job if that is all its end takes; return whether it was.

        That is so for most jobs: no repeat, no parent, no run, no lane, and no job in the table has children.
        """
        ...

    def first_due(
        self,
        names: Names,
        now: str,
        *,
        mocked: bool,
        priority: int | None,
        accepts: Sequence[str] = (),
        worker: str | None = None,
    ) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID.

        ``mocked`` lets mocked jobs in as well, ``accepts`` those that bring a command of these kinds,
        ``worker`` those that nobody else may take;
        ``priority`` restricts to one class. Jobs that are paused, or whose lock is held, are passed over.
        """
        ...

    def lock_holder(self, lock: str) -> int | None:
        """Return the job that runs under a lock."""
        ...

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return jobs whose ``expires`` has passed, the oldest first."""
        ...

    def repeating(self) -> list[Job]:
        """Return all jobs with a repeat, by name."""
        ...

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the first jobs of a name, by jobID, whatever their state."""
        ...

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""
        ...

    def count_ahead(self, row: Job, now: str, limit: int) -> int:
        """Return how many due jobs of its lane and name come before a job, up to ``limit``."""
        ...

    def reopen(self) -> None:
        """Serve those who wait anew: what is paused has changed."""
        ...

    def soonest(
        self,
        names: Names,
        now: str,
        *,
        mocked: bool,
        accepts: Sequence[str] = (),
        worker: str | None = None,
    ) -> str | None:
        """Return a stamp before which no further matching job becomes due, None if there is none at all."""
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
