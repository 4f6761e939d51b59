"""Errors of a database, on either engine."""

from __future__ import annotations

from bedrockjobs.job.rows import Job


class StoreError(Exception):
    """A database operation failed; the open unit was not committed."""

    reason = "Disk error"
    detail = "nothing was done; the disk refused to be read or written"


class StoreBusy(StoreError):
    """Another process holds a lock on the database."""

    reason = "Database busy"
    detail = "nothing was done; another process keeps the database locked"


class StoreAway(StoreError):
    """The database is unreachable or unsuitable; everything uncommitted was rolled back."""

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
    """Another server's transaction interfered; the commands of the unit are retried one by one."""

    reason = "Database busy"
    detail = "nothing was done; another server keeps the same jobs locked"


class RowDamaged(Exception):
    """The data of a job does not match its checksum; the job must be set aside."""

    def __init__(self, job: Job) -> None:
        """Hold the job, with its data marked as damaged."""
        super().__init__(f"the data of job {job.job_id} is not what was stored")
        self.job = job
