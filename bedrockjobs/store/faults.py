"""What can go wrong in a database, whichever engine keeps it."""

from __future__ import annotations

from bedrockjobs.job.rows import Job


class StoreError(Exception):
    """The database could not do what it was asked; nothing of the open unit was committed."""

    reason = "Disk error"
    detail = "nothing was done; the disk refused to be read or written"


class StoreBusy(StoreError):
    """Another process keeps the database locked."""

    reason = "Database busy"
    detail = "nothing was done; another process keeps the database locked"


class StoreAway(StoreError):
    """The database cannot be reached, or cannot promise what it must: what was not committed is undone."""

    reason = "Database away"
    detail = "nothing was done; the database cannot be reached at the moment, try again"


class StoreFull(StoreError):
    """The disk is full."""

    reason = "Disk full"
    detail = "nothing was done; the database cannot grow"


class StoreBroken(StoreError):
    """Nobody knows what is on disk, as a sync failed: the server must end, and a new start find out."""


class StoreDamaged(StoreBroken):
    """The file is damaged, or is no database: nothing more may be served from it."""

    reason = "Database damaged"


class StoreConflict(StoreError):
    """Another server's transaction came between: the commands of the unit have to be done one by one."""

    reason = "Database busy"
    detail = "nothing was done; another server keeps the same jobs locked"


class RowDamaged(Exception):
    """A job's data is not what was stored: whoever needs the row can do nothing, until it is set aside."""

    def __init__(self, job: Job) -> None:
        """Hold the job, with its data marked as damaged."""
        super().__init__(f"the data of job {job.job_id} is not what was stored")
        self.job = job
