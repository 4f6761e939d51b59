"""Numbers for advisory locks: what units of one schema wait for beside rows."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Literal

from bedrockjobs.job.rows import Job, parse_lane
from bedrockjobs.store.base import LockPeriod
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction, UnitRows, order_of
from bedrockjobs.store.ready_queue import LockHistory

LockKind = Literal["control", "events", "key", "limits", "lock", "name", "schema", "watch"]
"""``control``: pauses, drains, the crash list. ``events``: their numbers. ``key``: of CreateJob.
``limits``: takes of names of which so many may run at once. ``lock``: a job's. ``name``: of jobs that are to
be unique. ``schema``: the tables themselves. ``watch``: what time asks for."""


SALT = "lockSalt"
"""The key of ``meta`` with the secret that numbers are made with."""


class AdvisoryKeys:
    """The numbers of one schema; another in the same database has others."""

    def __init__(self, schema: str, salt: str = "") -> None:
        """Count for ``schema``; ``salt`` is the secret of its tables.

        Any role that may connect can take an advisory lock, and would stop all servers with one whose
        number it knows.
        """
        self._salt = f"{schema}/{salt}".encode() if salt else schema.encode()

    def of(self, kind: LockKind, text: str = "") -> int:
        """Return the number of one thing; two things may share one, and then wait for each other."""
        digest = blake2b(b"\0".join((self._salt, kind.encode(), text.encode())), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


# The locks of jobs: at most one job with a lock is RUNNING, whichever server hands it out.
#
# Two units could each see no holder and hand out a job. So whoever wants to holds an advisory lock until
# its commit, and looks for holders after it has that. Who does not get it passes the job over.


class JobLocks:
    """What one unit knows of locks."""

    def __init__(self, transaction: Transaction, rows: UnitRows, keys: AdvisoryKeys) -> None:
        """Look with ``transaction``; ``rows`` tell who holds a lock as the unit has it."""
        self._transaction = transaction
        self._rows = rows
        self._keys = keys
        self._history = LockHistory()
        self._ours: dict[str, bool] = {}
        """Whether this unit may hand out jobs with a lock, if nobody holds it."""
        self._holders: dict[str, set[int]] = {}
        """Jobs that may hold a lock; those that the unit knows are asked."""

    def forget(self) -> None:
        """Know nothing: another unit begins. Until when locks were held is still known."""
        self._ours, self._holders = {}, {}

    def is_free(self, lock: str) -> bool:
        """Tell whether a job with a lock may be handed out."""
        if lock not in self._ours:
            ((got,),), holders = self._transaction.read(
                (SQL["try_lock"], (self._keys.of("lock", lock),)), (SQL["holders_of"], (lock,))
            )
            self._ours[lock] = got
            self._holders.setdefault(lock, set()).update(job_id for job_id, _ in holders)
        return self._ours[lock] and not any(self._holds(job_id, lock) for job_id in self._holders[lock])

    def closed(self) -> list[str]:
        """Return the locks of which it is known that no job with them may be handed out."""
        return [lock for lock in self._ours if not self.is_free(lock)]

    def _holds(self, job_id: int, lock: str) -> bool:
        return job_id not in self._rows.now or _lock_of(self._rows.now[job_id]) == lock

    def note(self, before: Job | None, after: Job | None, moment: str) -> bool:
        """Note a job that was written; return whether it let go of a lock."""
        taken, left = _lock_of(after), _lock_of(before)
        if after is not None and taken:
            self._holders.setdefault(taken, set()).add(after.job_id)
            self._history.hold(taken, after.last_run)
        if before is not None and left and left != taken:
            self._history.hold(left, before.last_run)  # it may have been handed out by another server
            self._history.release(left, moment)
            return True
        return False

    def steps_aside(self, before: Job | None, after: Job | None) -> bool:
        """Tell whether a queued job with a lock is not to be taken where it stood: another may be then.

        Where many locks are held, a take knows of each lock no more than the first of its jobs.
        """
        if before is None or not before.queued or not parse_lane(before.lane).lock:
            return False
        place = before.name, before.lane, order_of(before)
        return after is None or (
            not _lock_of(after) and (not after.queued or place != (after.name, after.lane, order_of(after)))
        )

    def held(self, lane: str) -> LockPeriod | None:
        """Return when the lock of a lane was held last; None where nobody knows, or it has none."""
        lock = parse_lane(lane).lock
        if not lock:
            return None
        (holders,) = self._transaction.read((SQL["holders_of"], (lock,)))
        for _, since in holders:
            self._history.hold(lock, since)
        found = self._history.last(lock)
        return None if found is None or (not found.until and not holders) else found


def _lock_of(job: Job | None) -> str:
    """Return the lock that a job holds; empty where it holds none."""
    return parse_lane(job.lane).lock if job is not None and job.state == "RUNNING" else ""


# jobIDs and runIDs, drawn from a sequence; those of units that were undone are used again by this server.


DRAWN_MAX = 1_000
"""Numbers beyond what was planned that are drawn at once: milliseconds of work."""


class IDAllocator:
    """The next numbers of one kind."""

    def __init__(self, transaction: Transaction, draw: str) -> None:
        """Draw with the statement of that name."""
        self._transaction = transaction
        self._sql = SQL[draw]
        self._free: deque[int] = deque()
        self._used: list[int] = []

    def planned(self, count: int) -> list[Statement]:
        """Return the statement that draws what is missing to ``count``, if anything is."""
        missing = count - len(self._free)
        return [(self._sql, (missing,))] if missing > 0 else []

    def drawn(self, rows: list[Row]) -> None:
        """Keep numbers that were drawn."""
        self._free.extend(number for (number,) in rows)

    def new(self) -> int:
        """Return the next number.

        A unit that needs more than was planned draws as many as it has used: it may need very many. What is
        left over is for the units to come.
        """
        count = max(len(self._used), 1)
        while not self._free:  # fewer may have come than were drawn, as other hands have used some
            (rows,) = self._transaction.read(*self.planned(min(count, DRAWN_MAX)))
            self.drawn(rows)
            count *= 2
        number = self._free.popleft()
        self._used.append(number)
        return number

    def committed(self) -> None:
        """Note that what was used stays used."""
        self._used.clear()

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return how many were used."""
        return len(self._used)

    def undo(self, mark: int) -> None:
        """Use those again that were used since the mark."""
        self._free.extendleft(reversed(self._used[mark:]))
        del self._used[mark:]

    def forget(self) -> None:
        """Use all again that the open unit has used."""
        self.undo(0)
