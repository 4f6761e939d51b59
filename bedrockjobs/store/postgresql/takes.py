"""Which job a take gets: the first of those that the unit knows, where it is known that none comes before it.

Of each name or pattern it is remembered up to where the database was looked at. What the unit knows and what
it locks is one: a job that was found for one command and not taken serves the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import count

from bedrockjobs.base.config import TAKEN_AT_ONCE
from bedrockjobs.job.lanes import parse_lane
from bedrockjobs.job.rows import Job, PauseRow
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.postgresql.behind_heads import BehindHeads
from bedrockjobs.store.postgresql.candidates import EVERYTHING, NOWHERE, Order, order_of
from bedrockjobs.store.postgresql.heads import BEGINNING, Head, Wanted
from bedrockjobs.store.postgresql.job_locks import JobLocks
from bedrockjobs.store.postgresql.looks import Look, Sort, key_of, lanes_open_to, sort_of
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.postgresql.remembered import Remembered
from bedrockjobs.store.postgresql.rows import Rows, row_order
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction

Key = tuple[Sort, str | Names, str]
"""A name or patterns of a sort, and the moment."""

NAMES_ASKED_AT_ONCE = 16
"""Names of patterns that one statement asks for more jobs: those of which fewest are known, in order."""

LOCKS_LOOKED_AT = 20
"""Jobs with a lock of a name and class of which it is looked whether any may be taken, for who waits."""

LATELY_MAX = 1_000
"""Jobs of a class that became due lately, whose names are told to who waits: half a millisecond."""


class Asked:
    """The names of some patterns that are asked one by one, those with the next due jobs first."""

    def __init__(self, limit: int) -> None:
        """Ask for so many jobs at a time, from the beginning."""
        self.limit = limit
        self.often: dict[str, int] = {}
        """Names that were asked again, each with how often, by earlier units too."""
        self.names: dict[str, int] = {}
        """Those that were found so far, each with how often it was asked."""
        self.last = BEGINNING
        """Where the last of them stands."""
        self.end: Order | None = None
        """Up to where all jobs of these names are known, unless another look was done since."""

    def wanted(self, names: list[str]) -> dict[str, int]:
        """Return how many jobs of some names to ask for next, and note that they are asked.

        One more than their part, so that it is known what follows; a name of which that was not enough has
        most of the next jobs, and is asked for more and more.
        """
        each = -(-self.limit // max(len(self.names), 1)) + 1
        wanted = {name: min(each << self.names[name], max(self.limit, each)) for name in names}
        self.often.update((name, self.names[name]) for name in names if self.names[name])
        self.names.update((name, self.names[name] + 1) for name in names)
        return wanted

    def found(self, head: Head) -> None:
        """Note the next name."""
        self.names.setdefault(head[3], self.often.get(head[3], 0))
        self.last, self.end = head, None


class Takes:
    """The takes of one unit."""

    def __init__(
        self,
        transaction: Transaction,
        rows: Rows,
        locks: JobLocks,
        is_paused: Callable[[str], bool],
        remembered: Remembered,
        own_jobs: Callable[[], Collection[str]],
        pauses: Callable[[], Sequence[PauseRow]],
    ) -> None:
        """Look with ``transaction`` and among ``rows``, from where jobs begin as far as is remembered."""
        self._transaction = transaction
        self._remembered = remembered
        self._own_jobs = own_jobs
        self._pauses = pauses
        self._rows = rows
        self._locks = locks
        self._is_paused = is_paused
        self._looked: dict[Key, Order] = {}
        """Up to where all jobs are known that a request finds in the database."""
        self._asked: dict[Key, Asked] = {}
        """The names that were asked for patterns of which a walk did not find enough."""
        self._behind_heads: dict[Key, Look] = {}
        """What was asked for in the first round trip for patterns of which heads are remembered."""
        self._seen: dict[Key, bool] = {}
        """Whether a job is due that another unit has."""

    def forget(self) -> None:
        """Look again: what was passed over may be open now, or another unit begins."""
        self._looked.clear()
        self._asked.clear()
        self._behind_heads.clear()
        self._seen.clear()

    def behind_heads(
        self, asked: Iterable[BehindHeads], now: str, found: Iterator[list[Row]], *, sure: bool
    ) -> None:
        """Note what was found for patterns whose heads are remembered; ``sure``: whether they still are."""
        for each in asked:
            rows = next(found)
            self._rows.read((row for row in rows if row[1] is not None), each.claimed)
            if sure:
                self._looked[_key(each.look, now)] = each.found(rows)
                self._behind_heads[_key(each.look, now)] = each.look
            else:
                self.ask([each.look], now)

    def ask(self, looks: Iterable[Look], now: str) -> None:
        """Ask names for what some patterns look for, as is done where a walk stopped at the beginning."""
        for look in looks:
            self._looked[_key(look, now)] = NOWHERE
            self._asked[_key(look, now)] = Asked(max(look.limit, TAKEN_AT_ONCE))

    def looked(
        self,
        look: Look,
        now: str,
        found: list[Row],
        locked: list[Row] | None,
        complete: bool = True,
        claimed: str = "",
    ) -> None:
        """Note what the statement of a look has found, at which stamp it has claimed plain ones.

        ``locked`` is what ``Look.with_lock`` has found, None where it was not asked; ``complete`` tells
        whether names were looked for in all lanes in which anything is queued.
        """
        if look.patterns is not None:
            self._walked(look, look.patterns, now, found)
            return
        self._rows.read(found, claimed)
        if not complete or (self._remembered.locks and (locked is None or _is_cut(locked))):
            return  # it is asked once somebody wants the jobs
        self._rows.read(locked or ())
        orders: dict[str, list[Order]] = {}
        for row in (*found, *(locked or ())):
            orders.setdefault(row[3], []).append(row_order(row))
        for asked in self._asked.values():
            asked.end = None
        for name, wanted in look.wanted.items():
            known = sorted(orders.get(name, ()))  # as many of plain jobs, and as many of those with a lock
            self._looked[look.sort, name, now] = known[wanted - 1] if len(known) >= wanted else EVERYTHING

    def _walked(self, look: Look, names: Names, now: str, found: list[Row]) -> None:
        """Note what a walk has found; where it had to stop, each name is asked for what lies behind."""
        jobs = [row for row in found if row[1] is not None]
        self._rows.read(jobs)
        key = look.sort, names, now
        if len(jobs) < len(found):
            stop = next(row for row in found if row[1] is None)
            self._looked[key] = -stop[8], stop[4], stop[12]
            self._asked.setdefault(key, Asked(max(look.limit, TAKEN_AT_ONCE)))
        else:
            self._looked[key] = max(map(row_order, jobs)) if len(jobs) >= look.limit else EVERYTHING

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then earliest nextRun, then lowest jobID.

        Raises StillSearching, see ``store.base.Unit``.
        """
        sort, names = self._sort_of(request), request.names
        limit = max(request.limit, TAKEN_AT_ONCE)
        while True:
            best = self._rows.candidates.first(request, now, self._rows.now.get, self._is_open)
            asked = self._asked.get((sort, names, now))
            if asked is not None:
                unknown = asked.wanted(self._names_to_ask(asked, sort, now, best))
            else:
                exact = [name for name in names.exact if not _covers(self._end(sort, name, now), best)]
                unknown = dict.fromkeys(exact, limit)
            if unknown:
                self._look(Look(sort, unknown), now)
            elif names.exact or _covers(self._end(sort, names, now), best):
                return best
            elif asked is not None:
                self._ask(asked, sort, request, now)
            elif (more := self._behind_heads.pop((sort, names, now), None)) is not None:
                self.ask([more], now)
            else:
                self._look(Look(sort, {}, names, limit), now)

    def _sort_of(self, request: TakeRequest) -> Sort:
        return sort_of(request, self._own_jobs() if request.worker else ())

    def _found(self, look: Look, now: str, *, seen: bool = False) -> tuple[list[Row], list[Row] | None]:
        """Return what a look finds without a lock, and with one, None where nobody has any."""
        floors, known, closed = self._remembered.floors, self._rows.queued(), self._locks.closed()
        first = look.statement(now, floors, known, closed, seen=seen)
        if look.patterns is not None or not self._remembered.locks:
            return self._transaction.read(first)[0], None
        found, locked = self._transaction.read(first, look.with_lock(now, known, closed, seen=seen))
        for tried in count(1):
            if not _is_cut(locked):
                break
            further = look.with_lock(now, known, closed, seen=seen, tried=tried)
            (locked,) = self._transaction.read(further)
        return found, locked

    def _look(self, look: Look, now: str) -> None:
        self.looked(look, now, *self._found(look, now))

    def _ask(self, asked: Asked, sort: Sort, request: TakeRequest, now: str) -> None:
        """Find the names with the next due jobs, behind those that were found before."""
        names = request.names
        wanted = Wanted(asked.last, now, sort.priority, asked.limit + 1, self._pauses())
        heads, found, end = self._remembered.find(
            key_of(sort, names),
            request.by,
            wanted,
            asked.names.keys(),
            lambda statement: self._transaction.read(statement)[0],
        )
        asked.often = heads.often
        heads.note_asked(found)
        for head in found[: asked.limit]:
            asked.found(head)
        if len(found) > asked.limit:
            end = (*found[-1][:2], found[-1][2] - 1)
        key = sort, names, now
        self._looked[key] = EVERYTHING if end is None else max(self._looked[key], end)

    def _end(self, sort: Sort, asked: str | Names, now: str) -> Order:
        """Return up to where all jobs are known."""
        return self._looked.get((sort, asked, now), NOWHERE)

    def _names_to_ask(self, asked: Asked, sort: Sort, now: str, best: Job | None) -> list[str]:
        """Return which names of patterns are asked for more jobs, none where all that count are known."""
        if asked.end is None:
            asked.end = min((self._end(sort, name, now) for name in asked.names), default=EVERYTHING)
        if _covers(asked.end, best):
            return []
        unknown = sum(not _covers(self._end(sort, name, now), best) for name in asked.names)
        count = max(unknown, NAMES_ASKED_AT_ONCE)
        found = nsmallest(count, asked.names, key=lambda name: self._end(sort, name, now))
        return [name for name in found if self._end(sort, name, now) != EVERYTHING]

    def _is_open(self, job: Job) -> bool:
        """Tell whether a job may be taken where no pause covers its name and nobody holds its lock."""
        lane = parse_lane(job.lane)
        if not lane.now and self._is_paused(job.name):
            return False
        return not lane.lock or self._locks.is_free(lane.lock)

    def passed_over(self, request: TakeRequest, now: str) -> bool:
        """Tell whether a job is due that another unit has: it is queued for all who only look."""
        sort, names = self._sort_of(request), request.names
        for asked in names.exact or (names,):
            key = sort, asked, now
            if key not in self._seen:
                look = Look(sort, {asked: 1}) if isinstance(asked, str) else Look(sort, {}, names, 1)
                found, locked = self._found(look, now, seen=True)
                self._seen[key] = any(row[1] is not None for row in (*found, *(locked or ())))
            if self._seen[key]:
                return True
        return False

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a stamp before which no further job becomes due that a request asks for."""
        lanes = list(lanes_open_to(self._sort_of(request)))
        exact = sorted(request.names.exact)
        statement = "soonest_by_name" if exact else "soonest_of_any"
        ((found,),) = self._transaction.read((SQL[statement], (now, lanes, exact) if exact else (now, lanes)))
        return found[0]  # type: ignore[no-any-return]

    def due_names(self, names: Sequence[str], now: str, lately: str) -> list[str]:
        """Return those of some names of which a job is due, and all of which one became due ``lately``."""
        found = self._transaction.read(
            (SQL["due_of_names"], (now, list(names), LOCKS_LOOKED_AT)),
            (SQL["due_lately"], (now, lately, LATELY_MAX)),
        )
        return list(dict.fromkeys(name for rows in found for (name,) in rows))


def _is_cut(locked: list[Row]) -> bool:
    """Tell whether a look at jobs with a lock ended before it had seen all that count."""
    return any(row[1] is None for row in locked)


def _covers(end: Order, best: Job | None) -> bool:
    """Tell whether no job that is not known comes before the best of those that are."""
    return end == EVERYTHING or (best is not None and order_of(best) <= end)


def _key(look: Look, now: str) -> Key:
    """Return under which key it is noted what a look at patterns has found."""
    assert look.patterns is not None
    return look.sort, look.patterns, now
