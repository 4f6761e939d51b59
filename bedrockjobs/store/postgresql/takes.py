"""Which job a take gets: the first of those that the unit knows, where it is known that none comes before it.

Of each request it is remembered up to where the database was looked at. What the unit knows and what it locks
is one: a job that was found for one command and not taken serves the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from bedrockjobs.base.config import NAMES_KEPT_MAX, TAKEN_AT_ONCE
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE, Lane, parse_lane
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.postgresql.candidates import Order, order_of
from bedrockjobs.store.postgresql.job_locks import JobLocks
from bedrockjobs.store.postgresql.rows import Rows
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction

Key = tuple[Names, bool, int | None, str | None, tuple[str, ...], str]
"""What decides which jobs a request finds, and at which moment."""

_EVERYTHING: Order = (1, "", 0)
"""Behind the last job there may be."""


def key_of(request: TakeRequest, now: str) -> Key:
    """Return what is the same for requests that find the same jobs."""
    return request.names, request.mocked, request.priority, request.worker, request.accepts, now


@lru_cache(maxsize=NAMES_KEPT_MAX)
def lanes_open_to(accepts: tuple[str, ...], worker: str | None, *, mocked: bool) -> tuple[str, ...]:
    """Return the lanes that a take looks into, as the column ``found`` has them."""
    lanes = [OPEN_LANE, MOCK_LANE] if mocked else [OPEN_LANE]
    for now in (False, True):
        for own in ("", *accepts):
            plain = str(Lane(now, own, ""))
            lanes += [plain, f"{plain} lock".strip()]
            if worker:
                lanes.append(str(Lane(now, own, "", worker)))
    return tuple(dict.fromkeys(lanes))


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _regex(names: Names) -> str | None:
    return None if names.everything else anchored_regex(names.patterns)


def look(
    request: TakeRequest, now: str, limit: int, known: Iterable[int] = (), closed: Iterable[str] = ()
) -> Statement:
    """Return the statement that locks the next jobs of a request.

    It leaves out those that are ``known``, and those whose lock is ``closed`` as far as this unit knows.
    """
    lanes = list(lanes_open_to(request.accepts, request.worker, mocked=request.mocked))
    exact = request.names.exact
    asked = sorted(exact) if exact else _regex(request.names)
    statement = SQL["take_by_name" if exact else "take_in_order"]
    return statement, (now, limit, lanes, list(known), asked, request.priority, list(closed))


def planned_looks(requests: Iterable[TakeRequest]) -> list[tuple[TakeRequest, int]]:
    """Return each different request of some with the number of jobs that all of them may take.

    Patterns may find jobs that another request of the unit takes before them, and look so far ahead.
    """
    counts: dict[Key, tuple[TakeRequest, int]] = {}
    total = 0
    for request in requests:
        total += request.limit
        key = key_of(request, "")
        counts[key] = (request, counts[key][1] + request.limit if key in counts else request.limit)
    if len(counts) == 1:
        return list(counts.values())
    return [(request, count if request.names.exact else total) for request, count in counts.values()]


class Takes:
    """The takes of one unit."""

    def __init__(
        self,
        transaction: Transaction,
        rows: Rows,
        locks: JobLocks,
        is_paused: Callable[[str], bool],
    ) -> None:
        """Look with ``transaction`` and among ``rows``."""
        self._transaction = transaction
        self._rows = rows
        self._locks = locks
        self._is_paused = is_paused
        self._looked: dict[Key, Order] = {}
        """Up to where all jobs are known that a request finds in the database."""

    def forget(self) -> None:
        """Look again: what was passed over may be open now, or another unit begins."""
        self._looked.clear()

    def looked(self, request: TakeRequest, now: str, limit: int, found: list[Row]) -> None:
        """Note what the statement of ``look`` has found; jobs that the unit has changed do not count."""
        jobs = self._rows.read(found)
        full = len(found) >= limit and jobs
        self._looked[key_of(request, now)] = max(map(order_of, jobs)) if full else _EVERYTHING

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID."""
        key = key_of(request, now)
        while True:
            best = self._rows.candidates.first(request, now, self._rows.now.get, self._is_open)
            seen = self._looked.get(key)
            if seen is not None and (seen == _EVERYTHING or (best is not None and order_of(best) <= seen)):
                return best
            limit = max(request.limit, TAKEN_AT_ONCE)
            (found,) = self._transaction.read(
                look(request, now, limit, self._rows.queued(), self._locks.closed())
            )
            self.looked(request, now, limit, found)

    def _is_open(self, job: Job) -> bool:
        """Tell whether a job may be taken where no pause covers its name and nobody holds its lock."""
        lane = parse_lane(job.lane)
        if not lane.now and self._is_paused(job.name):
            return False
        return not lane.lock or self._locks.is_free(lane.lock)

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a stamp before which no further job becomes due that a request asks for."""
        lanes = list(lanes_open_to(request.accepts, request.worker, mocked=request.mocked))
        exact = sorted(request.names.exact)
        statement = "soonest_by_name" if exact else "soonest_of_any"
        ((found,),) = self._transaction.read((SQL[statement], (now, lanes, exact) if exact else (now, lanes)))
        return found[0]  # type: ignore[no-any-return]
