"""Which job a take gets: the first of those that the unit knows, where it is known that none comes before it.

Of each name or pattern it is remembered up to where the database was looked at. What the unit knows and what
it locks is one: a job that was found for one command and not taken serves the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from heapq import nsmallest
from itertools import count
from typing import NamedTuple

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import NAMES_KEPT_MAX, TAKEN_AT_ONCE, WALKED_EACH, WALKED_MAX
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.base.wire import after_seconds, timestamp_ms
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, OWN_COMMANDS, Job, Lane, PauseRow, found_in, parse_lane
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.postgresql.heads import (
    ANY,
    BEGINNING,
    KEPT_S,
    Head,
    HeadKey,
    LowWaterMark,
    LowWaterMarks,
    MatchingHeads,
    PauseOf,
    Read,
    RememberedHeads,
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

# What the database is asked for the next jobs: one statement for all requests that differ in names alone.
#
# No statement is sent here.


PASSED_MAX = 100
"""Jobs of a name and class that a take walks past, as their locks are held, before it looks lock by lock."""

LOCKS_MAX = 300
"""Locks that it looks at then, in milliseconds; where there are more, it begins anew and goes further."""

JOBS_FURTHER, LOCKS_FURTHER = 100, 10
"""How many times as many jobs it walks past then, and how many times as many locks it looks at: a lock takes
as long as some five jobs."""

_OF_LOCKS = {found_in(str(Lane(now, own, "L"))) for now in (False, True) for own in ("", *OWN_COMMANDS)}


def is_of_locks(lane: str) -> bool:
    """Tell whether the jobs of a lane have locks, as the column ``found`` has it."""
    return lane in _OF_LOCKS


class QueryShape(NamedTuple):
    """What decides, beside names, which jobs a request finds."""

    mocked: bool
    priority: int | None
    worker: str | None
    """Who asks, where jobs are queued that nobody else may take."""
    accepts: tuple[str, ...]


class CandidateQuery(NamedTuple):
    """One statement: how many of each name, or how many of all that match."""

    sort: QueryShape
    wanted: dict[str, int]
    """Names with their numbers; empty where patterns are asked for."""
    patterns: Names | None = None
    limit: int = 0
    """How many jobs that match the patterns."""
    by_workers: bool = False
    """Whether a worker asks, whose takes are runs."""

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
        """Return what locks the next jobs, without those that are ``known`` or whose lock is ``closed``.

        It begins to look at the ``floors``. With ``claimed``, a timestamp, those that are plain are marked as
        taken then. With ``seen`` they are not locked, and those are found, too, that other units have.
        """
        if self.patterns is not None:
            left_out = (self.sort.priority, list(known), list(closed))
            lanes = list(lanes_open_to(self.sort))
            matching = (now, lanes, _regex(self.patterns), self.limit, *left_out)
            walked = (*floors.of(ANY), walked_max(self.limit))
            return SQL["see_in_order" if seen else "take_in_order"], (*matching, *walked)
        asked = (*self._asked(now, known, locks=False), *_by_class(map(floors.of, self.wanted)))
        if claimed:
            return SQL["claim_by_name"], (*asked, claimed)
        return SQL["see_by_name" if seen else "take_by_name"], asked

    def in_open_lane(self, now: str, floors: LowWaterMarks, *, claimed: str) -> Statement:
        """Return what ``statement`` does for names, where nothing is queued outside of the open lane."""
        names, wanted = list(self.wanted), list(self.wanted.values())
        asked = now, self.sort.priority, names, wanted, *_by_class(map(floors.of, names))
        if claimed:
            return SQL["claim_in_open_lane"], (*asked, claimed)
        return SQL["take_in_open_lane"], asked

    def with_lock(
        self,
        now: str,
        known: Sequence[int] = (),
        closed: Sequence[str] = (),
        *,
        seen: bool = False,
        tried: int = 0,
    ) -> Statement:
        """Return the same for jobs of the names that have a lock, which ``statement`` does not find.

        It goes the further, the more often it was ``tried`` and told that there is more to look at.
        """
        asked = self._asked(now, known, locks=True)
        passed = max(PASSED_MAX, tried) * JOBS_FURTHER**tried
        locks = max(LOCKS_MAX, tried) * LOCKS_FURTHER**tried
        return SQL["see_with_lock" if seen else "take_with_lock"], (*asked, list(closed), passed, locks)

    def _asked(self, now: str, known: Sequence[int], *, locks: bool) -> tuple[object, ...]:
        lanes = [lane for lane in lanes_open_to(self.sort) if is_of_locks(lane) == locks]
        names, wanted = list(self.wanted), list(self.wanted.values())
        return now, lanes, names, wanted, self.sort.priority, list(known)


def walked_max(limit: int) -> int:
    """Return how many jobs of a class are looked at for so many that are wanted."""
    return max(WALKED_MAX, WALKED_EACH * limit)


def key_of(sort: QueryShape, names: Names) -> HeadKey:
    """Return under which key the heads of patterns are remembered."""
    return lanes_open_to(sort), names


def heads_of(key: HeadKey, asked: Sequence[Head]) -> Statement:
    """Return what reads some heads, due or not, each given as it is known: none comes before it."""
    downs, next_runs, job_ids, names = map(list, zip(*asked, strict=True))
    return SQL["heads_of_names"], (list(key[0]), names, [-down for down in downs], next_runs, job_ids)


def floors_of(floors: Mapping[str, LowWaterMark]) -> Statement:
    """Return what reads the nextRun of the first job in each class, of some names, not before some floors."""
    return SQL["floors_of_names"], (list(floors), *_by_class(floors.values()))


def _by_class(floors: Iterable[LowWaterMark]) -> list[list[str]]:
    return [list(each) for each in zip(*floors, strict=True)]


def sort_of(request: TakeRequest, with_own_jobs: Collection[str] = ()) -> QueryShape:
    """Return of which sort a request is; all workers count alike but those ``with_own_jobs``."""
    worker = request.worker if request.worker in with_own_jobs else None
    return QueryShape(request.mocked, request.priority, worker, request.accepts)


def planned_looks(requests: Iterable[TakeRequest]) -> list[CandidateQuery]:
    """Return what is to be looked for, with the number of jobs that all requests may take.

    Patterns may find jobs that another request of the unit takes before them, and look so far ahead. Of jobs
    that only one worker may take nothing is planned.
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
    """Tell whether what a look finds is as good as taken: by who has no runs, where nobody asks otherwise."""
    return len(looks) == 1 and not looks[0].by_workers


@lru_cache(maxsize=NAMES_KEPT_MAX)
def lanes_open_to(sort: QueryShape) -> tuple[str, ...]:
    """Return the lanes that a take looks into, as the column ``found`` has them."""
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


# What one server remembers between units of where the queued jobs begin, so that takes need not walk there.
#
# All of it are lower bounds, read from what is committed. They are lowered by what this server writes and
# by what others hint at, and forgotten where either may have been missed.


class CachedBounds:
    """The bounds of one server."""

    def __init__(
        self,
        monotonic: Callable[[], float] = lambda: 0.0,
        pauses: Callable[[], Sequence[PauseRow] | None] = lambda: (),
        pause_of: PauseOf = lambda _: None,
        *,
        whole: bool = False,
    ) -> None:
        """Remember nothing.

        ``pauses`` returns them if they are known without a read. ``whole``: all is forgotten after each unit.
        """
        self._pauses, self._pause_of = pauses, pause_of
        self.floors = LowWaterMarks({}, {})
        """Of names that are asked for exactly, and of all names."""
        self._heads = RememberedHeads(monotonic, whole=whole)
        """Of patterns."""
        self.lanes = True
        """Whether any job was queued outside of the open lane when the open unit began, or is since."""
        self.locks = False
        """Whether any job with a lock was queued when the open unit began."""
        self._since = ""
        """When this began."""
        self._heard: list[tuple[str, str]] = []
        """What others hinted at since the open unit began: what it reads may be older than that."""
        self._unsure = False
        """Whether anything may have been missed; the next unit then begins with nothing."""
        self._names: list[str] = []
        self._used: list[MatchingHeads] = []
        self._asked: list[tuple[MatchingHeads, list[tuple[int, str]]]] = []

    def forget(self) -> None:
        """Know nothing: what may be taken, or what is there, is not what it was."""
        self.floors.forget()
        self._heads.forget()

    def lower(self, job: Job) -> None:
        """Note a job that is queued."""
        if job.lane == OPEN_LANE:
            self.floors.lower(job.name, job.next_run, job.priority)
        else:
            self.lanes = True
        self._heads.lower(job)

    def heard(self, due: Mapping[str, str] | None) -> None:
        """Note what other servers left queued: names, each with a nextRun; None: it may be anything."""
        if due is None:
            self._unsure = True
        else:
            self._heard += due.items()
            self._lower(due.items())

    def _lower(self, heard: Iterable[tuple[str, str]]) -> None:
        for name, next_run in heard:
            self.floors.lower(name, next_run)
            self._heads.heard(name, next_run)

    # --- one unit ----------------------------------------------------------------------------------------

    def begin(self, looks: Sequence[CandidateQuery], now: str) -> list[Statement]:
        """Return what is worth reading before a unit does these looks, as nothing is written yet."""
        if self._unsure or not (self._since and self._since <= now < after_seconds(self._since, KEPT_S)):
            self.floors.forget()
            if self._unsure:
                self._heads.forget()
            self._since, self._unsure = now, False
        self._heard.clear()
        self._heads.begin(now)
        self._used = []
        names: dict[str, None] = {}
        for look in looks:
            names.update(dict.fromkeys(look.wanted if look.patterns is None else [ANY]))
            heads = self.heads_for(look)
            if heads is not None:
                self._used.append(heads)
        self._names = self.floors.to_raise(names, now)
        statements = [floors_of({name: self.floors.of(name) for name in self._names})] if self._names else []
        return statements + self._heads_anew()

    def _heads_anew(self) -> list[Statement]:
        """Return what reads the heads anew that were asked for since they were read."""
        self._asked = [(heads, list(heads.asked)) for heads in self._used if heads.asked]
        return [heads_of(heads.key, heads.known(asked)) for heads, asked in self._asked]

    def _read_heads(self, found: Iterator[list[Row]]) -> None:
        for heads, asked in self._asked:
            heads.replace(asked, next(found))
        self._asked = []
        self._lower(self._heard)

    def read(self, found: Iterator[list[Row]], now: str) -> None:
        """Note what that has found."""
        if self._names:
            self.floors.raised({name: timestamps for name, *timestamps in next(found)}, now)
        self._read_heads(found)

    def end(self) -> list[Statement]:
        """Return what is read with the commit, so that the next unit knows what this one has left."""
        return self._heads_anew()

    def committed(self, found: Iterable[list[Row]]) -> None:
        """Note what that has found, as it is committed now."""
        self._read_heads(iter(found))

    def undone(self) -> None:
        """Forget what was read together with writes that are undone."""
        self._heads.undone()

    # --- patterns ----------------------------------------------------------------------------------------

    def heads_for(self, look: CandidateQuery) -> MatchingHeads | None:
        """Return the heads of what a look asks for, None where that are names, or they are not known."""
        return None if look.patterns is None else self.heads(key_of(look.sort, look.patterns))

    def heads(self, key: HeadKey) -> MatchingHeads | None:
        """Return the heads of patterns; None if they are not all known, or too many."""
        return self._heads.of(key)

    def next(
        self, heads: MatchingHeads, after: Head, now: str, priority: int | None, limit: int
    ) -> list[Head]:
        """Return the next heads that are due and not paused; raises StillSearching.

        It does so as well if pauses are not known without a read.
        """
        pauses = self._pauses()
        if pauses is None:
            raise StillSearching
        wanted = WantedHeads(after, now, priority, limit, pauses, self._pause_of)
        return self._heads.next(heads, wanted)

    def find(
        self, key: HeadKey, by: str, wanted: WantedHeads, seen: Collection[str], read: Read
    ) -> tuple[MatchingHeads, list[Head], Order | None]:
        """Return the next names of patterns, and up to where these are all; raises StillSearching.

        That is None if they are all up to the last one. Of patterns with very many names, those that were
        ``seen`` are left out. ``by`` is the token that asks: walks for it count against its budget.
        """
        heads = self._heads.ready(key, by, read)
        if heads not in self._used:
            self._used.append(heads)
        if heads.wide:
            return heads, *self._heads.look(heads, wanted._replace(pause_of=self._pause_of), seen, read)
        return heads, self._heads.next(heads, wanted._replace(pause_of=self._pause_of)), None

    def search(self, wanted: Collection[Names], read: Read) -> Sequence[Names]:
        """Go on with a walk; see ``store.base.Unit``."""
        return self._heads.search(wanted, read)

    def search_in_s(self) -> float:
        """Return the seconds until ``search`` can go on."""
        return self._heads.search_in_s()


# What a unit looks for in its first round trip for patterns of which it is remembered which names have
# jobs.
#
# The names with the next jobs are asked for as many as they had last time. What comes back is exact up to
# some place, which follows from what was asked for. No statement is sent here.


HEADS_MORE = 8
"""Names that are asked for beside a quarter more than had any of the next jobs last time."""

_BEHIND = -4
"""Where in a row what stands behind the columns of a job begins: class, nextRun, jobID and name."""


class BehindHeads(NamedTuple):
    """One statement for some patterns."""

    look: CandidateQuery
    known: MatchingHeads
    heads: list[Head]
    """Those that are asked, in order."""
    wanted: list[int]
    """How many jobs of each."""
    end: Order
    """Up to where no other head comes."""
    claimed: str
    """When plain jobs are marked as taken, if all are in the open lane; otherwise empty."""

    def statement(self, now: str) -> Statement:
        """Return what locks the next jobs."""
        downs, next_runs, job_ids, names = map(list, zip(*self.heads, strict=True))
        asked = names, [-down for down in downs], next_runs, job_ids, self.wanted, self.look.limit
        if self.claimed:
            return SQL["claim_behind_heads"], (now, *asked, self.claimed)
        return SQL["take_behind_heads"], (now, list(self.known.key[0]), *asked)

    def found(self, rows: Sequence[Row]) -> Order:
        """Return up to where all jobs are known, and note what that says about the next unit."""
        orders = [_order(row) for row in rows]
        ends = [self.end, *orders[self.look.limit - 1 :]]
        of_head: dict[tuple[int, str], list[Order]] = {}
        for order, row in zip(orders, rows, strict=True):
            of_head.setdefault((order[0], row[-1]), []).append(order)
        often = self.known.often
        for (down, _, _, name), wanted in zip(self.heads, self.wanted, strict=True):
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
        self.known.asked.update(dict.fromkeys([*of_head, *gone]))
        self.known.share = len(of_head) / self.look.limit
        return end


def behind_heads(
    look: CandidateQuery, known: MatchingHeads, now: str, claimed: str, remembered: CachedBounds
) -> BehindHeads | None:
    """Return what to ask for a look at patterns whose heads are known; None if none is due or it takes long.

    Plain jobs are marked as taken at ``claimed``, unless that is empty. The third name is asked for
    a third of all: it has no more of them, if those before it have as many.
    """
    count = min(look.limit, int(1.25 * known.share * look.limit) + HEADS_MORE)
    try:
        heads = remembered.next(known, BEGINNING, now, look.sort.priority, count + 1)
    except StillSearching:
        return None
    if not heads:
        return None
    end = EVERYTHING
    if len(heads) > count:
        down, next_run, job_id, _ = heads.pop()
        end = down, next_run, job_id - 1
    wanted = [
        min(-(-look.limit // place) + 1 << known.often.get(name, 0), look.limit + 1)
        for place, (*_, name) in enumerate(heads, 1)
    ]
    return BehindHeads(look, known, heads, wanted, end, claimed)


def _order(row: Row) -> Order:
    priority, next_run, job_id = row[_BEHIND:-1]
    return -priority, next_run, job_id


TakeKey = tuple[QueryShape, str | Names, str]
"""A name or patterns of a sort, and the moment."""

NAMES_ASKED_AT_ONCE = 16
"""Names of patterns that one statement asks for more jobs: those of which fewest are known, in order."""

LOCKS_LOOKED_AT = 20
"""Jobs with a lock of a name and class of which it is looked whether any may be taken, for who waits."""

LATELY_MAX = 1_000
"""Jobs of a class that became due lately, whose names are told to who waits: half a millisecond."""


class NextNames:
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
        rows: UnitRows,
        locks: JobLocks,
        is_paused: Callable[[str], bool],
        remembered: CachedBounds,
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
        self._looked: dict[TakeKey, Order] = {}
        """Up to where all jobs are known that a request finds in the database."""
        self._asked: dict[TakeKey, NextNames] = {}
        """The names that were asked for patterns of which a walk did not find enough."""
        self._behind_heads: dict[TakeKey, CandidateQuery] = {}
        """What was asked for in the first round trip for patterns of which heads are remembered."""
        self._seen: dict[TakeKey, bool] = {}
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

    def ask(self, looks: Iterable[CandidateQuery], now: str) -> None:
        """Ask names for what some patterns look for, as is done where a walk stopped at the beginning."""
        for look in looks:
            self._looked[_key(look, now)] = NOWHERE
            self._asked[_key(look, now)] = NextNames(max(look.limit, TAKEN_AT_ONCE))

    def looked(
        self,
        look: CandidateQuery,
        now: str,
        found: list[Row],
        locked: list[Row] | None,
        complete: bool = True,
        claimed: str = "",
    ) -> None:
        """Note what the statement of a look has found, at which timestamp it has claimed plain ones.

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

    def _walked(self, look: CandidateQuery, names: Names, now: str, found: list[Row]) -> None:
        """Note what a walk has found; where it had to stop, each name is asked for what lies behind."""
        jobs = [row for row in found if row[1] is not None]
        self._rows.read(jobs)
        key = look.sort, names, now
        if len(jobs) < len(found):
            stop = next(row for row in found if row[1] is None)
            self._looked[key] = -stop[8], stop[4], stop[12]
            self._asked.setdefault(key, NextNames(max(look.limit, TAKEN_AT_ONCE)))
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
                self._look(CandidateQuery(sort, unknown), now)
            elif names.exact or _covers(self._end(sort, names, now), best):
                return best
            elif asked is not None:
                self._ask(asked, sort, request, now)
            elif (more := self._behind_heads.pop((sort, names, now), None)) is not None:
                self.ask([more], now)
            else:
                self._look(CandidateQuery(sort, {}, names, limit), now)

    def _sort_of(self, request: TakeRequest) -> QueryShape:
        return sort_of(request, self._own_jobs() if request.worker else ())

    def _found(
        self, look: CandidateQuery, now: str, *, seen: bool = False
    ) -> tuple[list[Row], list[Row] | None]:
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

    def _look(self, look: CandidateQuery, now: str) -> None:
        self.looked(look, now, *self._found(look, now))

    def _ask(self, asked: NextNames, sort: QueryShape, request: TakeRequest, now: str) -> None:
        """Find the names with the next due jobs, behind those that were found before."""
        names = request.names
        wanted = WantedHeads(asked.last, now, sort.priority, asked.limit + 1, self._pauses())
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

    def _end(self, sort: QueryShape, asked: str | Names, now: str) -> Order:
        """Return up to where all jobs are known."""
        return self._looked.get((sort, asked, now), NOWHERE)

    def _names_to_ask(self, asked: NextNames, sort: QueryShape, now: str, best: Job | None) -> list[str]:
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
                look = (
                    CandidateQuery(sort, {asked: 1})
                    if isinstance(asked, str)
                    else CandidateQuery(sort, {}, names, 1)
                )
                found, locked = self._found(look, now, seen=True)
                self._seen[key] = any(row[1] is not None for row in (*found, *(locked or ())))
            if self._seen[key]:
                return True
        return False

    def soonest(self, request: TakeRequest, now: str) -> str | None:
        """Return a timestamp before which no further job becomes due that a request asks for."""
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


def _key(look: CandidateQuery, now: str) -> TakeKey:
    """Return under which key it is noted what a look at patterns has found."""
    assert look.patterns is not None
    return look.sort, look.patterns, now


# Whether a take that found nothing is worth another look, in the next unit: others may have been faster.


CLOCKS_APART = timedelta(milliseconds=20)
"""How far the clocks of two servers may be apart, each of which follows the database's."""


class SkippedLocked:
    """What one unit knows of that."""

    def __init__(self, takes: Takes, clock: Clock) -> None:
        """Look with ``takes`` for what is due by ``clock``."""
        self._takes = takes
        self._clock = clock
        self._present = ""

    def forget(self) -> None:
        """Another unit begins."""
        self._present = ""

    def tell(self, request: TakeRequest, now: str) -> bool:
        """Tell whether a job is due that another unit has, or that became due since this one began.

        What was due at its moment may be taken by others; what they left instead is stamped later than that.
        """
        if not self._present:
            self._present = max(now, timestamp_ms(self._clock.now() + CLOCKS_APART))
        return self._takes.passed_over(request, self._present)
