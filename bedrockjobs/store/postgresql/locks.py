"""Advisory lock keys, the locks of jobs, and the allocation of jobIDs and runIDs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

from bedrockjobs.job.rows import Job, parse_lane
from bedrockjobs.store.base import LockPeriod
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction, UnitRows, order_of
from bedrockjobs.store.ready_queue import LockHistory

LockKind = Literal["control", "events", "key", "limits", "lock", "name", "schema", "watch"]
"""``control``: pauses, drains and the crash list. ``events``: numbers of events. ``key``: an idempotency key.
``limits``: takes of names with concurrency limits. ``lock``: the lock of a job. ``name``: a name of unique
jobs. ``schema``: the tables themselves. ``watch``: maintenance."""


SALT = "lockSalt"
"""The key in ``meta`` of the secret from which lock keys are derived."""


class AdvisoryKeys:
    """The advisory lock keys of one schema; another schema in the same database has different keys."""

    def __init__(self, schema: str, salt: str = "") -> None:
        """Derive keys for ``schema`` with the secret ``salt`` of its tables.

        Any role that may connect can take an advisory lock, so a role that could guess a key could block all
        servers.
        """
        self._salt = f"{schema}/{salt}".encode() if salt else schema.encode()

    def key_of(self, kind: LockKind, text: str = "") -> int:
        """Return the key of one item; if two items share a key, their units wait for each other."""
        digest = blake2b(b"\0".join((self._salt, kind.encode(), text.encode())), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


# The locks of jobs: at most one job with a lock is RUNNING, or as many as its concurrencyLimit says,
# whichever server runs it.
#
# Two units could each see that a lock is free and take a job. So a unit acquires an advisory lock until its
# commit, and then looks for jobs that hold the lock, and for the starts of a concurrency key. If the unit
# cannot acquire the advisory lock, it skips the job.


class JobLocks:
    """The locks of jobs, as one unit sees them."""

    def __init__(
        self, transaction: Transaction, rows: UnitRows, keys: AdvisoryKeys, paced: Callable[[str, str], int]
    ) -> None:
        """Read with ``transaction``; ``rows`` are the jobs as the unit has changed them.

        ``paced`` reads what ``Records.paced`` returns.
        """
        self._transaction = transaction
        self._rows = rows
        self._keys = keys
        self._history = LockHistory()
        self._ours: dict[str, bool] = {}
        """Whether this unit has acquired the advisory lock of a job lock."""
        self._holders: dict[str, set[int]] = {}
        """By lock, the jobs that may hold it; for jobs changed in this unit, ``_holds`` verifies that."""
        self._slots: dict[str, int] = {}
        """By lock, how many jobs may run with it: the highest number that this unit has seen."""
        self._read_paced = paced
        self._paced: dict[str, dict[str, int]] = {}
        """By concurrency key and pattern, the starts so far: no other unit changes them."""

    def forget(self) -> None:
        """Drop the state of the unit, but keep the history of locks."""
        self._ours, self._holders, self._slots, self._paced = {}, {}, {}, {}

    def paced(self, pattern: str, key: str) -> int:
        """Return what ``Records.paced`` does for a key whose lock the unit has acquired."""
        known = self._paced.setdefault(key, {})
        if pattern not in known:
            known[pattern] = self._read_paced(pattern, key)
        return known[pattern]

    def is_free(self, lock: str, slots: int) -> bool:
        """Return whether a job with this lock may be taken, if up to ``slots`` jobs may run with the lock."""
        self._slots[lock] = max(slots, self._slots.get(lock, 1))
        if lock not in self._ours:
            ((got,),), holders = self._transaction.run_statements(
                (SQL["try_lock"], (self._keys.key_of("lock", lock),)), (SQL["holders_of"], (lock,))
            )
            self._ours[lock] = got
            self._holders.setdefault(lock, set()).update(job_id for job_id, _ in holders)
        return self._ours[lock] and sum(self._holds(job_id, lock) for job_id in self._holders[lock]) < slots

    def closed(self) -> list[str]:
        """Return the locks known to this unit without a free slot."""
        return [lock for lock in self._ours if not self.is_free(lock, self._slots[lock])]

    def _holds(self, job_id: int, lock: str) -> bool:
        return job_id not in self._rows.now or _lock_of(self._rows.now[job_id]) == lock

    def record_write(self, before: Job | None, after: Job | None, moment: str) -> bool:
        """Record that a job was written; return whether that released a lock."""
        acquired, released = _lock_of(after), _lock_of(before)
        if after is not None and acquired:
            self._holders.setdefault(acquired, set()).add(after.job_id)
            self._history.hold(acquired, after.last_run)
            self._paced.pop(acquired, None)
        if before is not None and released and released != acquired:
            self._history.hold(released, before.last_run)  # another server may have started it
            self._history.release(released, moment)
            return True
        return False

    def steps_aside(self, before: Job | None, after: Job | None) -> bool:
        """Return whether a queued job with a lock left its position, so that another job may be first now.

        Takes must then read again: if many locks are held, a take reads only the first job of each lock.
        """
        if before is None or not before.queued or not parse_lane(before.lane).lock:
            return False
        place = before.name, before.lane, order_of(before)
        return after is None or (
            not _lock_of(after) and (not after.queued or place != (after.name, after.lane, order_of(after)))
        )

    def held(self, lane: str) -> LockPeriod | None:
        """Return when the lock of a lane was held last; None if unknown or if the lane has no lock."""
        lock = parse_lane(lane).lock
        if not lock:
            return None
        (holders,) = self._transaction.run_statements((SQL["holders_of"], (lock,)))
        for _, since in holders:
            self._history.hold(lock, since)
        found = self._history.last(lock)
        return None if found is None or (not found.until and not holders) else found


def _lock_of(job: Job | None) -> str:
    """Return the lock that a job holds; empty if it holds none."""
    return parse_lane(job.lane).lock if job is not None and job.state == "RUNNING" else ""


# jobIDs and runIDs are drawn from sequences; those of a unit that was rolled back are reused by this server.


DRAWN_MAX = 1_000
"""Maximum number of IDs that one statement draws if a unit needs more than planned; it takes milliseconds."""


class IDAllocator:
    """Allocates jobIDs or runIDs."""

    def __init__(self, transaction: Transaction, draw: str) -> None:
        """Draw IDs from a sequence with the statement ``draw``."""
        self._transaction = transaction
        self._sql = SQL[draw]
        self._free: deque[int] = deque()
        self._used: list[int] = []

    def planned(self, count: int) -> list[Statement]:
        """Return the statement that draws IDs until ``count`` are free, or nothing if there are enough."""
        missing = count - len(self._free)
        return [(self._sql, (missing,))] if missing > 0 else []

    def add_numbers(self, rows: list[Row]) -> None:
        """Add IDs that were drawn from the sequence."""
        self._free.extend(number for (number,) in rows)

    def new(self) -> int:
        """Allocate an ID.

        If a unit needs more IDs than planned, it draws as many as it has used so far (at most ``DRAWN_MAX``),
        so the number doubles with each draw. IDs that the unit does not use are kept for later units.
        """
        count = max(len(self._used), 1)
        while not self._free:  # a draw skips numbers that exist already
            (rows,) = self._transaction.run_statements(*self.planned(min(count, DRAWN_MAX)))
            self.add_numbers(rows)
            count *= 2
        number = self._free.popleft()
        self._used.append(number)
        return number

    def return_last(self, number: int) -> None:
        """Release the ID that was allocated last, so that it is allocated again."""
        assert self._used[-1] == number
        self._free.appendleft(self._used.pop())

    def committed(self) -> None:
        """Record that the unit was committed, so that its IDs stay used."""
        self._used.clear()

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return the number of IDs that the unit has allocated."""
        return len(self._used)

    def undo(self, mark: int) -> None:
        """Release the IDs that were allocated since the mark."""
        self._free.extendleft(reversed(self._used[mark:]))
        del self._used[mark:]

    def forget(self) -> None:
        """Release all IDs that the open unit has allocated."""
        self.undo(0)
