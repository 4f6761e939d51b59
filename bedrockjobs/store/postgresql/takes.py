"""Finds the job of a take: the first known job, once it is certain that no unknown job comes before it.

For each name or pattern a unit keeps the position up to which it has read the database. The unit has locked
all jobs it knows: a job that was found for one command, but not taken, may be taken by the next command.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from heapq import nsmallest
from itertools import count
from typing import NamedTuple

from bedrockjobs.base.clock import Clock, ManualClock, after_seconds, timestamp_ms
from bedrockjobs.base.config import IN_TURN_MAX, NAMES_KEPT_MAX, SCANNED_MAX, TAKEN_AT_ONCE
from bedrockjobs.base.glob import anchored_regex, glob, literal_prefix
from bedrockjobs.job.limits import Limit, slots_of, start_by_key
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, OWN_COMMANDS, Job, Lane, PauseRow, found_in, parse_lane
from bedrockjobs.job.take_request import Names, TakeRequest, exact_names
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.fair_turns import FairTurns, Turn, name_after
from bedrockjobs.store.postgresql.heads import (
    ANY,
    BEGINNING,
    KEPT_S,
    Head,
    HeadIndex,
    HeadKey,
    HeadsOfNames,
    LowWaterMark,
    LowWaterMarks,
    MatchingHeads,
    PauseOf,
    Read,
    WantedHeads,
)
from bedrockjobs.store.postgresql.locks import JobLocks
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import (
    EVERYTHING,
    NOWHERE,
    Order,
    Transaction,
    UnitRows,
    order_of,
    row_order,
)

# Candidate queries: one statement for all requests that differ only in their names. Nothing is sent to the
# database here.


PASSED_MAX = 100
"""Maximum number of jobs of a name and priority with held locks that a take walks past before it looks for
the first job of each lock instead."""

LOCKS_MAX = 300
"""Maximum number of locks whose first job such a take looks for, within milliseconds. If there are more, the
query is repeated with higher limits."""

JOBS_FURTHER, LOCKS_FURTHER = 100, 10
"""Factors by which PASSED_MAX and LOCKS_MAX grow at each repetition; looking for the first job of a lock
takes as long as walking past five jobs."""

_OF_LOCKS = {found_in(str(Lane(now, own, "L"))) for now in (False, True) for own in ("", *OWN_COMMANDS)}


def is_of_locks(lane: str) -> bool:
    """Return whether the jobs of a lane have locks; ``lane`` is a value of the column ``found``."""
    return lane in _OF_LOCKS


class QueryShape(NamedTuple):
    """The parameters of a request, except its names, that decide which jobs it finds."""

    mocked: bool
    priority: int | None
    worker: str | None
    """The worker that sends the request, if queued jobs are bound to that worker; otherwise None."""
    accepts: tuple[str, ...]


class CandidateQuery(NamedTuple):
    """One statement that finds a number of jobs for each name, or for some patterns together."""

    sort: QueryShape
    requested: dict[str, int]
    """Number of jobs for each name; empty if the query has patterns."""
    patterns: Names | None = None
    limit: int = 0
    """Number of jobs to find for the patterns; 0 if the query has names."""
    by_workers: bool = False
    """Whether any of the requests comes from a worker, whose takes start runs."""

    def statement(
        self,
        now: str,
        floors: LowWaterMarks,
        known: Sequence[int] = (),
        closed: Sequence[str] = (),
        *,
        claimed: str = "",
        seen: bool = False,
    ) -> Statement:
        """Return the statement that locks the next jobs, except ``known`` jobs and jobs of ``closed`` locks.

        The search starts at the low-water marks ``floors``. With ``claimed``, a timestamp, the statement also
        marks plain jobs as taken. With ``seen``, it locks nothing, and also finds jobs that other units have
        locked.
        """
        if self.patterns is not None:
            left_out = (self.sort.priority, list(known), list(closed))
            lanes = list(lanes_open_to(self.sort))
            matching = (now, lanes, _regex(self.patterns), self.limit, *left_out)
            walked = (*floors.marks_of(ANY), scanned_max(self.limit))
            return SQL["see_in_order" if seen else "take_in_order"], (*matching, *walked)
        parameters = (
            *self._arguments(now, known, locks=False),
            *_by_class(map(floors.marks_of, self.requested)),
        )
        if claimed:
            return SQL["claim_by_name"], (*parameters, claimed)
        return SQL["see_by_name" if seen else "take_by_name"], parameters

    def in_open_lane(self, now: str, floors: LowWaterMarks, *, claimed: str) -> Statement:
        """Return a faster ``statement`` for names, correct if all queued jobs are in the open lane."""
        names, wanted = list(self.requested), list(self.requested.values())
        parameters = now, self.sort.priority, names, wanted, *_by_class(map(floors.marks_of, names))
        if claimed:
            return SQL["claim_in_open_lane"], (*parameters, claimed)
        return SQL["take_in_open_lane"], parameters

    def with_lock(
        self,
        now: str,
        known: Sequence[int] = (),
        closed: Sequence[str] = (),
        *,
        seen: bool = False,
        tried: int = 0,
    ) -> Statement:
        """Return the statement for jobs with locks, which ``statement`` does not find.

        ``tried``: number of times that the limits of this statement were too low; the limits grow with it.
        """
        parameters = self._arguments(now, known, locks=True)
        passed = max(PASSED_MAX, tried) * JOBS_FURTHER**tried
        locks = max(LOCKS_MAX, tried) * LOCKS_FURTHER**tried
        return SQL["see_with_lock" if seen else "take_with_lock"], (*parameters, list(closed), passed, locks)

    def _arguments(self, now: str, known: Sequence[int], *, locks: bool) -> tuple[object, ...]:
        lanes = [lane for lane in lanes_open_to(self.sort) if is_of_locks(lane) == locks]
        names, wanted = list(self.requested), list(self.requested.values())
        return now, lanes, names, wanted, self.sort.priority, list(known)


def scanned_max(limit: int) -> int:
    """Return the maximum number of jobs of a priority to examine in order to find ``limit`` jobs."""
    return max(SCANNED_MAX, 10 * limit)


def key_of(sort: QueryShape, names: Names) -> HeadKey:
    """Return the cache key of the heads of patterns."""
    return lanes_open_to(sort), names


def heads_of(key: HeadKey, heads: Sequence[Head]) -> Statement:
    """Return the statement that reads some heads, due or not, starting each search at its known head."""
    downs, next_runs, job_ids, names = map(list, zip(*heads, strict=True))
    return SQL["heads_of_names"], (list(key[0]), names, [-down for down in downs], next_runs, job_ids)


def floors_of(floors: Mapping[str, LowWaterMark]) -> Statement:
    """Return the statement that reads the low-water marks of some names, starting at the known marks."""
    return SQL["floors_of_names"], (list(floors), *_by_class(floors.values()))


def _by_class(floors: Iterable[LowWaterMark]) -> list[list[str]]:
    return [list(each) for each in zip(*floors, strict=True)]


def sort_of(request: TakeRequest, with_own_jobs: Collection[str] = ()) -> QueryShape:
    """Return the shape of a request; it includes the worker only if the worker is in ``with_own_jobs``."""
    worker = request.worker if request.worker in with_own_jobs else None
    return QueryShape(request.mocked, request.priority, worker, request.accepts)


def planned_queries(requests: Iterable[TakeRequest]) -> list[CandidateQuery]:
    """Return the candidate queries for some requests, with the total number of jobs they may take.

    Patterns may find jobs that another request of the unit takes first, so a query by patterns requests the
    total. Jobs bound to a worker are not included.
    """
    requests = list(requests)
    by_workers = any(request.worker for request in requests)
    names: dict[QueryShape, dict[str, int]] = {}
    patterns: dict[tuple[QueryShape, Names], int] = {}
    total = 0
    for request in requests:
        sort, limit = sort_of(request), request.limit
        total += limit
        if request.names.exact:
            wanted = names.setdefault(sort, {})
            for name in request.names.exact:
                wanted[name] = wanted.get(name, 0) + limit
        else:
            patterns[sort, request.names] = patterns.get((sort, request.names), 0) + limit
    looks = [CandidateQuery(sort, wanted, by_workers=by_workers) for sort, wanted in names.items()]
    if len(patterns) + len(looks) > 1:
        patterns = dict.fromkeys(patterns, total)
    return looks + [
        CandidateQuery(sort, {}, asked, limit, by_workers) for (sort, asked), limit in patterns.items()
    ]


def may_claim(looks: Sequence[CandidateQuery]) -> bool:
    """Return whether a query may mark jobs as taken: if it is the only one, and no request is a worker's."""
    return len(looks) == 1 and not looks[0].by_workers


@lru_cache(maxsize=NAMES_KEPT_MAX)
def lanes_open_to(sort: QueryShape) -> tuple[str, ...]:
    """Return the lanes that a take reads, as values of the column ``found``."""
    lanes = [OPEN_LANE, MOCK_LANE] if sort.mocked else [OPEN_LANE]
    for now in (False, True):
        for own in ("", *sort.accepts):
            plain = str(Lane(now, own, ""))
            lanes += [plain, f"{plain} lock".strip()]
            if sort.worker:
                lanes.append(str(Lane(now, own, "", sort.worker)))
    return tuple(dict.fromkeys(lanes))


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _regex(names: Names) -> str | None:
    return None if names.everything else anchored_regex(names.patterns)


# Where the queued jobs begin: lower bounds cached between units, so that takes need not scan up to there.
#
# The bounds are read from committed rows, lowered by jobs that this server queues and by notifications of
# other servers, and dropped if any of these may have been missed.


class CachedBounds:
    """The lower-bound cache of one server."""

    def __init__(
        self,
        monotonic: Callable[[], float] = lambda: 0.0,
        pauses: Callable[[], Sequence[PauseRow] | None] = lambda: (),
        pause_of: PauseOf = lambda _: None,
        *,
        whole: bool = False,
    ) -> None:
        """Begin empty.

        ``pauses`` returns all pauses, or None if they are not cached. ``whole``: nothing is cached between
        units.
        """
        self._pauses, self._pause_of = pauses, pause_of
        self.floors = LowWaterMarks({}, {})
        """Low-water marks of the names that takes request without patterns, and of the whole queue."""
        self._heads = HeadIndex(monotonic, whole=whole)
        """Cached heads of the patterns that takes request."""
        self.admit, self.undone = self._heads.admit, self._heads.undone
        self.search, self.search_in_s = self._heads.search, self._heads.search_in_s
        self.lanes = True
        """Whether any job was queued outside of the open lane when the open unit began, or since."""
        self.locks = False
        """Whether any job with a lock was queued when the open unit began."""
        self._since = ""
        """When the low-water marks were last dropped."""
        self._queued_elsewhere: list[tuple[str, str]] = []
        """Jobs queued by other servers since the open unit began: its reads may not include them."""
        self._unsure = False
        """Whether a notification may have been missed; the next unit then drops the cache."""
        self._names: list[str] = []
        self._used: list[MatchingHeads] = []
        self._asked: list[tuple[MatchingHeads, list[tuple[int, str]]]] = []

    def forget(self) -> None:
        """Drop all bounds: lanes, pauses or jobs may have changed."""
        self.floors.forget()
        self._heads.forget()

    def lower(self, job: Job) -> None:
        """Record a queued job."""
        if job.lane == OPEN_LANE:
            self.floors.lower(job.name, job.next_run, job.priority)
        else:
            self.lanes = True
        self._heads.lower(job)

    def on_queued(self, due: Mapping[str, str] | None) -> None:
        """Record the jobs that other servers queued: earliest nextRun by name; None if names are unknown."""
        if due is None:
            self._unsure = True
        else:
            self._queued_elsewhere += due.items()
            self._lower(due.items())

    def _lower(self, queued: Iterable[tuple[str, str]]) -> None:
        for name, next_run in queued:
            self.floors.lower(name, next_run)
            self._heads.on_queued(name, next_run)

    # --- one unit ----------------------------------------------------------------------------------------

    def bounds_to_read(self, looks: Sequence[CandidateQuery], now: str) -> list[Statement]:
        """Return the statements that read the bounds for these queries, before the unit writes anything."""
        if self._unsure or not (self._since and self._since <= now < after_seconds(self._since, KEPT_S)):
            self.floors.forget()
            if self._unsure:
                self._heads.forget()
            self._since, self._unsure = now, False
        self._queued_elsewhere.clear()
        self._heads.begin_unit(now)
        self._used = []
        names: dict[str, None] = {}
        for query in looks:
            names.update(dict.fromkeys(query.requested if query.patterns is None else [ANY]))
            heads = self.heads_for(query)
            if heads is not None:
                self._used += [part for part in heads.parts if part not in self._used]
        self._names = self.floors.to_raise(names, now)
        statements = (
            [floors_of({name: self.floors.marks_of(name) for name in self._names})] if self._names else []
        )
        return statements + self._reread_heads()

    def _reread_heads(self) -> list[Statement]:
        """Return the statements that read heads again, if their names were queried since the last read."""
        self._asked = [(heads, list(heads.used)) for heads in self._used if heads.used]
        return [heads_of(heads.key, heads.cached_heads(asked)) for heads, asked in self._asked]

    def _read_heads(self, results: Iterator[list[Row]]) -> None:
        for heads, asked in self._asked:
            heads.replace(asked, next(results))
        self._asked = []
        self._lower(self._queued_elsewhere)

    def store_rows(self, results: Iterator[list[Row]], now: str) -> None:
        """Store the rows of the statements from ``bounds_to_read``."""
        if self._names:
            self.floors.raised({name: timestamps for name, *timestamps in next(results)}, now)
        self._read_heads(results)

    def end(self) -> list[Statement]:
        """Return the statements to run with the commit, so that the next unit starts with current heads."""
        return self._reread_heads()

    def committed(self, results: Iterable[list[Row]]) -> None:
        """Store the rows of the statements from ``end``, after the commit."""
        self._read_heads(iter(results))

    # --- patterns ----------------------------------------------------------------------------------------

    def heads_for(self, query: CandidateQuery) -> HeadsOfNames | None:
        """Return the heads for a query, or None if it has names or its heads are not all cached."""
        return None if query.patterns is None else self._heads.heads_of(key_of(query.sort, query.patterns))

    def next_due(
        self, heads: HeadsOfNames, after: Head, now: str, priority: int | None, limit: int
    ) -> list[Head]:
        """Return the next heads that are due and not paused; raises StillSearching.

        StillSearching is also raised if the pauses are not cached.
        """
        pauses = self._pauses()
        if pauses is None:
            raise StillSearching
        return heads.next_due(WantedHeads(after, now, priority, limit, pauses, self._pause_of))

    def find(
        self, key: HeadKey, by: str, wanted: WantedHeads, seen: Collection[str], read: Read
    ) -> tuple[HeadsOfNames, list[Head], Order | None]:
        """Return what ``HeadIndex.find`` does; raises StillSearching."""
        found = self._heads.find(key, by, wanted._replace(pause_of=self._pause_of), seen, read)
        self._used += [part for part in found[0].parts if part not in self._used]
        return found


# Speculative prefetch: for a pattern with cached heads, the first round trip of a unit queries the names of
# the next heads.
#
# It requests about as many jobs per name as the last take found. The result is complete up to a position that
# follows from the numbers requested. Nothing is sent to the database here.


class SpeculativePrefetch(NamedTuple):
    """The prefetch statement for one query."""

    look: CandidateQuery
    complete_to: HeadsOfNames
    heads: list[Head]
    """The heads to query, in order."""
    requested: list[int]
    """Number of jobs to request for each head."""
    end: Order
    """The position before which there are no other heads."""
    claimed: str
    """The timestamp at which the query marks plain jobs (see ``is_plain``) as taken, if all jobs are in the
    open lane; otherwise empty."""

    def statement(self, now: str) -> Statement:
        """Return the statement that locks the next jobs."""
        downs, next_runs, job_ids, names = map(list, zip(*self.heads, strict=True))
        parameters = names, [-down for down in downs], next_runs, job_ids, self.requested, self.look.limit
        if self.claimed:
            return SQL["claim_behind_heads"], (now, *parameters, self.claimed)
        return SQL["take_behind_heads"], (now, list(self.complete_to.key[0]), *parameters)

    def add_rows(self, rows: Sequence[Row]) -> Order:
        """Return the position in the order of takes up to which the rows contain every job.

        Also adapts how many names, and how many jobs of each, the next transaction requests.
        """
        orders = [_order(row) for row in rows]
        ends = [self.end, *orders[self.look.limit - 1 :]]
        of_head: dict[tuple[int, str], list[Order]] = {}
        for order, row in zip(orders, rows, strict=True):
            of_head.setdefault((order[0], row[-1]), []).append(order)
        often = self.complete_to.often
        for (down, _, _, name), wanted in zip(self.heads, self.requested, strict=True):
            found = of_head.get((down, name), [])
            if len(found) >= wanted:
                ends.append(found[-1])
                often[name] = often.get(name, 0) + 1
            elif often.get(name) and 4 * len(found) <= wanted:
                often[name] -= 1
        end = min(ends)
        gone = [
            (down, name) for down, next_run, job_id, name in self.heads if (down, next_run, job_id) <= end
        ]
        self.complete_to.note_used([*of_head, *gone])
        self.complete_to.share = len(of_head) / self.look.limit
        return end


def behind_heads(
    query: CandidateQuery, known: HeadsOfNames, now: str, claimed: str, remembered: CachedBounds
) -> SpeculativePrefetch | None:
    """Return the prefetch for patterns with cached heads; None if no head is due or it would take too long.

    Plain jobs are marked as taken at ``claimed``, unless it is empty. Of the n-th name, 1/n of the limit is
    requested: if each name before it has as many jobs, no further job of that name is among the next jobs.
    """
    # Names queried in addition to 1.25 times the number that had any of the next jobs last time.
    count = min(query.limit, int(1.25 * known.share * query.limit) + 8)
    try:
        heads = remembered.next_due(known, BEGINNING, now, query.sort.priority, count + 1)
    except StillSearching:
        return None
    if not heads:
        return None
    end = EVERYTHING
    if len(heads) > count:
        down, next_run, job_id, _ = heads.pop()
        end = down, next_run, job_id - 1
    wanted = [
        min(-(-query.limit // place) + 1 << known.often.get(name, 0), query.limit + 1)
        for place, (*_, name) in enumerate(heads, 1)
    ]
    return SpeculativePrefetch(query, known, heads, wanted, end, claimed)


def _order(row: Row) -> Order:
    # The columns after the job's own: priority, nextRun, jobID, name
    priority, next_run, job_id = row[-4:-1]
    return -priority, next_run, job_id


TakeKey = tuple[QueryShape, str | Names, str]
"""What identifies a query of a take: its shape, its name or patterns, and its timestamp."""


class NextNames:
    """The names that match some patterns and are queried one by one, names with the next due jobs first."""

    def __init__(self, limit: int, patterns: Names | None) -> None:
        """Request ``limit`` jobs at a time; begin with the exact names in the list ``patterns``."""
        self.limit = limit
        self.often: dict[str, int] = {}
        """Names that were queried more than once, with how often; kept between units."""
        plain = [part.single for part in patterns.parts if part.single is not None] if patterns else []
        self.names = dict.fromkeys(plain, 0)
        """Names found so far, and how often each was queried."""
        self.last = BEGINNING
        """The head of the name that was added last."""
        self.end: Order | None = None
        """The position up to which all jobs of these names are known; None if it must be computed again."""

    def limit_per_name(self, names: list[str]) -> dict[str, int]:
        """Return how many jobs of each name to request next, and count the query.

        The number is the share of a name in ``limit`` and one job more, to know what follows. It is doubled
        each time it was not enough.
        """
        each = -(-self.limit // max(len(self.names), 1)) + 1
        wanted = {name: min(each << self.names[name], max(self.limit, each)) for name in names}
        self.often.update((name, self.names[name]) for name in names if self.names[name])
        self.names.update((name, self.names[name] + 1) for name in names)
        return wanted

    def add_name(self, head: Head) -> None:
        """Add the next name."""
        self.names.setdefault(head[3], self.often.get(head[3], 0))
        self.last, self.end = head, None


class Takes:
    """The takes of one unit."""

    def __init__(
        self,
        transaction: Transaction,
        rows: UnitRows,
        locks: JobLocks,
        is_paused: Callable[[str], bool],
        remembered: CachedBounds,
        own_jobs: Callable[[], Collection[str]],
        pauses: Callable[[], Sequence[PauseRow]],
        limits: Callable[[], Sequence[Limit]],
        next_by_key: Callable[[Limit, str], str | None],
    ) -> None:
        """Read with ``transaction`` and ``rows``, starting at the cached bounds ``remembered``."""
        self._transaction = transaction
        self._remembered = remembered
        self._own_jobs = own_jobs
        self._pauses = pauses
        self._limits = limits
        self._next_by_key = next_by_key
        self._rows = rows
        self._locks = locks
        self._is_paused = is_paused
        self._looked: dict[TakeKey, Order] = {}
        """For each query, the position up to which all jobs are known."""
        self._asked: dict[TakeKey, NextNames] = {}
        """For each query by patterns whose scan found too few jobs, the names that are queried instead."""
        self._behind_heads: dict[TakeKey, CandidateQuery] = {}
        """Queries by patterns that were prefetched in the first round trip."""
        self._seen: dict[TakeKey, bool] = {}
        """For each query, whether another unit has locked a due job."""
        self._turns = FairTurns()

    def forget(self) -> None:
        """Drop all positions: skipped jobs may be available now, or another unit begins."""
        self._looked.clear()
        self._asked.clear()
        self._behind_heads.clear()
        self._seen.clear()

    def behind_heads(
        self, prefetches: Iterable[SpeculativePrefetch], now: str, results: Iterator[list[Row]], *, sure: bool
    ) -> None:
        """Store the rows of the prefetches; ``sure``: whether the cached heads are still valid."""
        for each in prefetches:
            rows = next(results)
            self._rows.add_rows((row for row in rows if row[1] is not None), each.claimed)
            if sure:
                self._looked[_key(each.look, now)] = each.add_rows(rows)
                self._behind_heads[_key(each.look, now)] = each.look
            else:
                self.query_names([each.look], now)

    def query_names(self, looks: Iterable[CandidateQuery], now: str) -> None:
        """Query the names of some patterns one by one, as if a scan had found nothing."""
        for query in looks:
            self._looked[_key(query, now)] = NOWHERE
            self._asked[_key(query, now)] = NextNames(max(query.limit, TAKEN_AT_ONCE), query.patterns)

    def looked(
        self,
        query: CandidateQuery,
        now: str,
        rows: list[Row],
        locked: list[Row] | None,
        complete: bool = True,
        claimed: str = "",
    ) -> None:
        """Store the rows of a candidate query, which marked plain jobs as taken if ``claimed`` is not empty.

        ``locked`` are the rows of ``CandidateQuery.with_lock``, None if it was not run. ``complete`` is
        whether all lanes with queued jobs were read.
        """
        if query.patterns is not None:
            self._walked(query, query.patterns, now, rows)
            return
        self._rows.add_rows(rows, claimed)
        if not complete or (self._remembered.locks and (locked is None or _is_cut(locked))):
            return  # queried when a request needs these jobs
        self._rows.add_rows(locked or ())
        orders: dict[str, list[Order]] = {}
        for row in (*rows, *(locked or ())):
            orders.setdefault(row[3], []).append(row_order(row))
        for asked in self._asked.values():
            asked.end = None
        for name, wanted in query.requested.items():
            known = sorted(orders.get(name, ()))  # both queries return up to ``wanted``
            self._looked[query.sort, name, now] = known[wanted - 1] if len(known) >= wanted else EVERYTHING

    def _walked(self, query: CandidateQuery, names: Names, now: str, rows: list[Row]) -> None:
        """Store the rows of a scan by patterns; if it reached its limit, the names are queried one by one."""
        jobs = [row for row in rows if row[1] is not None]
        self._rows.add_rows(jobs)
        key = query.sort, names, now
        if len(jobs) < len(rows):
            stop = next(row for row in rows if row[1] is None)
            self._looked[key] = -stop[8], stop[4], stop[12]
            self._asked.setdefault(key, NextNames(max(query.limit, TAKEN_AT_ONCE), names))
        else:
            self._looked[key] = max(map(row_order, jobs)) if len(jobs) >= query.limit else EVERYTHING

    def first_due(self, request: TakeRequest, now: str) -> Job | None:
        """Return the due job to take: highest priority, then whose turn it is by a fair limit, then in order.

        Raises StillSearching, see ``store.base.Unit``.
        """
        job = self._first_in_order(request, now)
        if job is None or not (limits := self._limits()):
            return job
        return self._turns.in_turn(job, limits, request, now, self)

    def names_after(self, first: Job, after: str, begin: str) -> list[str]:
        """Return the next names of jobs without a lock; see ``TurnSeeks``."""
        return self._names_after(str(parse_lane(first.lane)._replace(lock="")), after, begin)

    def _names_after(self, found: str, after: str, begin: str) -> list[str]:
        place = (found, name_after(after, begin), begin, IN_TURN_MAX)
        (rows,) = self._transaction.run_statements((SQL["names_after"], place))
        return [name for (name,) in rows]

    def first_of_names(self, names: Sequence[str], first: Job, request: TakeRequest, now: str) -> Job | None:
        """Return the job of some names to take now; see ``TurnSeeks``."""
        asked = replace(request, names=exact_names(names), priority=first.priority)
        job = self._first_in_order(asked, now)
        return None if job is None or parse_lane(job.lane).lock else job

    def first_of_keys(
        self, pattern: str, turn: Turn, after: str, first: Job, request: TakeRequest, now: str
    ) -> Iterator[tuple[str, Job | None]]:
        """Yield the next locks and keys, each with its job to take now; see ``TurnSeeks``."""
        found = found_in(str(parse_lane(first.lane)._replace(lock="x")))
        names = request.names.exact or self._names_with_keys(pattern, turn, found, first)
        of_pattern = [name for name in names if request.names.match(name) and glob(name, pattern)]
        asked = (now, found, of_pattern, first.priority, after, IN_TURN_MAX)
        (rows,) = self._transaction.run_statements((SQL["take_by_keys"], asked))
        for job in self._rows.add_rows(rows):
            due = job.queued and request.fits(job) and self._is_open(now, job)
            yield parse_lane(job.lane).lock, job if due else None

    def _names_with_keys(self, pattern: str, turn: Turn, found: str, first: Job) -> list[str]:
        """Return the name of the first job in order, and the next names of jobs with keys."""
        names = self._names_after(found, turn.names_of_keys, literal_prefix(pattern))
        turn.names_of_keys = names[-1] if len(names) == IN_TURN_MAX else ""
        return [*dict.fromkeys([first.name, *names])]

    def _first_in_order(self, request: TakeRequest, now: str) -> Job | None:
        """Return the first due job: highest priority, then earliest nextRun, then lowest jobID."""
        sort, names = self._sort_of(request), request.names
        limit = max(request.limit, TAKEN_AT_ONCE)
        while True:
            is_open = partial(self._is_open, now)
            best = self._rows.candidates.first(request, now, self._rows.now.get, is_open)
            asked = self._asked.get((sort, names, now))
            if asked is not None:
                unknown = asked.limit_per_name(self._names_to_ask(asked, sort, now, best))
            else:
                exact = [name for name in names.exact if not _covers(self._end(sort, name, now), best)]
                unknown = dict.fromkeys(exact, limit)
            if unknown:
                self._scan(CandidateQuery(sort, unknown), now)
            elif names.exact or _covers(self._end(sort, names, now), best):
                return best
            elif asked is not None:
                self._find_names(asked, sort, request, now)
            elif (more := self._behind_heads.pop((sort, names, now), None)) is not None:
                self.query_names([more], now)
            elif self._remembered.admit(key_of(sort, names), request.by):
                self.query_names([CandidateQuery(sort, {}, names, limit)], now)
            else:
                self._scan(CandidateQuery(sort, {}, names, limit), now)

    def _sort_of(self, request: TakeRequest) -> QueryShape:
        return sort_of(request, self._own_jobs() if request.worker else ())

    def _split_by_lock(
        self, query: CandidateQuery, now: str, *, seen: bool = False
    ) -> tuple[list[Row], list[Row] | None]:
        """Return the rows of jobs without a lock, and of jobs with a lock (None if no job has a lock)."""
        floors, known, closed = self._remembered.floors, self._rows.queued(), self._locks.closed()
        first = query.statement(now, floors, known, closed, seen=seen)
        if query.patterns is not None or not self._remembered.locks:
            return self._transaction.run_statements(first)[0], None
        rows, locked = self._transaction.run_statements(first, query.with_lock(now, known, closed, seen=seen))
        for tried in count(1):
            if not _is_cut(locked):
                break
            further = query.with_lock(now, known, closed, seen=seen, tried=tried)
            (locked,) = self._transaction.run_statements(further)
        return rows, locked

    def _scan(self, query: CandidateQuery, now: str) -> None:
        self.looked(query, now, *self._split_by_lock(query, now))

    def _find_names(self, asked: NextNames, sort: QueryShape, request: TakeRequest, now: str) -> None:
        """Find the names with the next due jobs, after the names found before."""
        names = request.names
        wanted = WantedHeads(asked.last, now, sort.priority, asked.limit + 1, self._pauses())
        heads, first_names, end = self._remembered.find(
            key_of(sort, names),
            request.by,
            wanted,
            asked.names.keys(),
            lambda statement: self._transaction.run_statements(statement)[0],
        )
        asked.often = heads.often
        heads.note_used(head[0::3] for head in first_names)
        for head in first_names[: asked.limit]:
            asked.add_name(head)
        if len(first_names) > asked.limit:
            end = (*first_names[-1][:2], first_names[-1][2] - 1)
        key = sort, names, now
        self._looked[key] = EVERYTHING if end is None else max(self._looked[key], end)

    def _end(self, sort: QueryShape, asked: str | Names, now: str) -> Order:
        """Return the position up to which all jobs are known."""
        return self._looked.get((sort, asked, now), NOWHERE)

    def _names_to_ask(self, asked: NextNames, sort: QueryShape, now: str, best: Job | None) -> list[str]:
        """Return the names of patterns to query for more jobs; none if all jobs that matter are known."""
        if asked.end is None:
            asked.end = min((self._end(sort, name, now) for name in asked.names), default=EVERYTHING)
        if _covers(asked.end, best):
            return []
        unknown = sum(not _covers(self._end(sort, name, now), best) for name in asked.names)
        # Names of a pattern queried for more jobs by one statement: those whose jobs are known least far.
        count = max(unknown, 16)
        names = nsmallest(count, asked.names, key=lambda name: self._end(sort, name, now))
        return [name for name in names if self._end(sort, name, now) != EVERYTHING]

    def _is_open(self, now: str, job: Job) -> bool:
        """Return whether a job is not paused, its lock is free, and its key may start a job now."""
        lane = parse_lane(job.lane)
        if not lane.now and self._is_paused(job.name):
            return False
        if not lane.lock:
            return True
        limits = self._limits()
        if not self._locks.is_free(lane.lock, slots_of(job, limits)):
            return False
        return start_by_key(job, limits, self._locks.paced) <= now

    def skipped_locked(self, request: TakeRequest, now: str) -> bool:
        """Return whether another unit has locked a due job: a read without locks finds it still queued."""
        sort, names = self._sort_of(request), request.names
        for asked in names.exact or (names,):
            key = sort, asked, now
            if key not in self._seen:
                query = (
                    CandidateQuery(sort, {asked: 1})
                    if isinstance(asked, str)
                    else CandidateQuery(sort, {}, names, 1)
                )
                rows, locked = self._split_by_lock(query, now, seen=True)
                self._seen[key] = any(row[1] is not None for row in (*rows, *(locked or ())))
            if self._seen[key]:
                return True
        return False

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a lower bound for when the next matching job becomes due."""
        lanes = list(lanes_open_to(self._sort_of(request)))
        exact = sorted(request.names.exact)
        statement = "soonest_by_name" if exact else "soonest_of_any"
        ((rows,),) = self._transaction.run_statements(
            (SQL[statement], (now, lanes, exact) if exact else (now, lanes))
        )
        by_key = (
            self._next_by_key(limit, now)
            for limit in self._limits()
            if limit.starts_by_key and request.names.may_match(limit.pattern)
        )
        return min((timestamp for timestamp in (*rows, *by_key) if timestamp is not None), default=None)

    def due_names(self, names: Sequence[str], now: str, lately: str) -> list[str]:
        """Return which of ``names`` have a due job, and all names with a job due since ``lately``."""
        # Up to 20 jobs with a lock, per name and priority, decide whether a waiter may take one. Up to 1,000
        # jobs per lane and priority that became due lately are reported to waiters: half a millisecond.
        results = self._transaction.run_statements(
            (SQL["due_of_names"], (now, list(names), 20)), (SQL["due_lately"], (now, lately, 1_000))
        )
        return list(dict.fromkeys(name for rows in results for (name,) in rows))


def _is_cut(locked: list[Row]) -> bool:
    """Return whether a query for jobs with locks reached its limit."""
    return any(row[1] is None for row in locked)


def _covers(end: Order, best: Job | None) -> bool:
    """Return whether no unknown job comes before the best known job."""
    return end == EVERYTHING or (best is not None and order_of(best) <= end)


def _key(query: CandidateQuery, now: str) -> TakeKey:
    """Return the key of the position of a pattern query."""
    assert query.patterns is not None
    return query.sort, query.patterns, now


# Detection of skipped locked jobs: whether a take that found nothing should be retried in the next unit.


CLOCKS_APART = timedelta(milliseconds=20)
"""Maximum difference between the clocks of two servers, each aligned with the database. It is 0 for clocks
that move only by command: they do not differ, and a job due in the next milliseconds would never become
due."""


class SkippedLocked:
    """Detects due jobs that other units have locked."""

    def __init__(self, takes: Takes, clock: Clock) -> None:
        """Use ``takes`` to find what is due by ``clock``."""
        self._takes = takes
        self._clock = clock
        self._apart = timedelta(0) if isinstance(clock, ManualClock) else CLOCKS_APART
        self._present = ""

    def forget(self) -> None:
        """Begin another unit."""
        self._present = ""

    def is_locked_elsewhere(self, request: TakeRequest, now: str) -> bool:
        """Return whether another unit has locked a due job, or one that became due since this unit began.

        Other units may take jobs that were due when this unit began, and requeue them with a later nextRun.
        """
        if not self._present:
            self._present = max(now, timestamp_ms(self._clock.now() + self._apart))
        return self._takes.skipped_locked(request, self._present)
