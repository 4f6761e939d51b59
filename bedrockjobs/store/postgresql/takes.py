"""Which job a take gets: the first of those that the unit knows, where it is known that none comes before it.

Of each name or pattern it is remembered up to where the database was looked at. What the unit knows and what
it locks is one: a job that was found for one command and not taken serves the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from bedrockjobs.base.config import TAKEN_AT_ONCE
from bedrockjobs.job.lanes import parse_lane
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.postgresql.candidates import Order, order_of
from bedrockjobs.store.postgresql.job_locks import JobLocks
from bedrockjobs.store.postgresql.looks import Look, Sort, lanes_open_to, sort_of
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.postgresql.rows import Rows, row_order
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction

Key = tuple[Sort, str | Names, str]
"""A name or patterns of a sort, and the moment."""

_EVERYTHING: Order = (1, "", 0)
"""Behind the last job there may be."""


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
        self._seen: dict[Key, bool] = {}
        """Whether a job is due that another unit has."""

    def forget(self) -> None:
        """Look again: what was passed over may be open now, or another unit begins."""
        self._looked.clear()
        self._seen.clear()

    def looked(self, look: Look, now: str, found: list[Row], claimed: str = "") -> None:
        """Note what the statement of a look has found, at which stamp it has claimed plain ones."""
        self._rows.read(found, claimed)
        if look.patterns is not None:
            full = len(found) >= look.limit
            self._looked[look.sort, look.patterns, now] = max(map(row_order, found)) if full else _EVERYTHING
            return
        orders: dict[str, Order] = {}
        for row in found:
            name, order = row[3], row_order(row)
            orders[name] = max(orders.get(name, order), order)
        counts = Counter([row[3] for row in found])
        for name, wanted in look.wanted.items():
            self._looked[look.sort, name, now] = orders[name] if counts[name] >= wanted else _EVERYTHING

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID."""
        sort, names = sort_of(request), request.names
        while True:
            best = self._rows.candidates.first(request, now, self._rows.now.get, self._is_open)
            unknown = [asked for asked in names.exact or (names,) if not self._covers(sort, asked, now, best)]
            if not unknown:
                return best
            limit = max(request.limit, TAKEN_AT_ONCE)
            wanted = {asked: limit for asked in unknown if isinstance(asked, str)}
            look = Look(sort, wanted) if wanted else Look(sort, {}, names, limit)
            statement = look.statement(now, self._rows.queued(), self._locks.closed())
            (found,) = self._transaction.read(statement)
            self.looked(look, now, found)

    def _covers(self, sort: Sort, asked: str | Names, now: str, best: Job | None) -> bool:
        """Tell whether no job that is not known comes before the best of those that are."""
        seen = self._looked.get((sort, asked, now))
        return seen is not None and (seen == _EVERYTHING or (best is not None and order_of(best) <= seen))

    def _is_open(self, job: Job) -> bool:
        """Tell whether a job may be taken where no pause covers its name and nobody holds its lock."""
        lane = parse_lane(job.lane)
        if not lane.now and self._is_paused(job.name):
            return False
        return not lane.lock or self._locks.is_free(lane.lock)

    def passed_over(self, request: TakeRequest, now: str) -> bool:
        """Tell whether a job is due that another unit has: it is queued for all who only look."""
        sort, names = sort_of(request), request.names
        for asked in names.exact or (names,):
            key = sort, asked, now
            if key not in self._seen:
                look = Look(sort, {asked: 1}) if isinstance(asked, str) else Look(sort, {}, names, 1)
                statement = look.statement(now, self._rows.queued(), self._locks.closed(), seen=True)
                (found,) = self._transaction.read(statement)
                self._seen[key] = bool(found)
            if self._seen[key]:
                return True
        return False

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a stamp before which no further job becomes due that a request asks for."""
        lanes = list(lanes_open_to(sort_of(request)))
        exact = sorted(request.names.exact)
        statement = "soonest_by_name" if exact else "soonest_of_any"
        ((found,),) = self._transaction.read((SQL[statement], (now, lanes, exact) if exact else (now, lanes)))
        return found[0]  # type: ignore[no-any-return]
