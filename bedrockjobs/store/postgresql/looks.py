"""What the database is asked for the next jobs: one statement for all requests that differ in names alone.

No statement is sent here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from bedrockjobs.base.config import NAMES_KEPT_MAX, WALKED_EACH, WALKED_MAX
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE, OWN_COMMANDS, Lane, found_in
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.postgresql.floors import ANY, Floor, Floors
from bedrockjobs.store.postgresql.heads import Head, Key
from bedrockjobs.store.postgresql.pipeline import Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

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


class Sort(NamedTuple):
    """What decides, beside names, which jobs a request finds."""

    mocked: bool
    priority: int | None
    worker: str | None
    """Who asks, where jobs are queued that nobody else may take."""
    accepts: tuple[str, ...]


class Look(NamedTuple):
    """One statement: how many of each name, or how many of all that match."""

    sort: Sort
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
        floors: Floors,
        known: Sequence[int] = (),
        closed: Sequence[str] = (),
        *,
        claimed: str = "",
        seen: bool = False,
    ) -> Statement:
        """Return what locks the next jobs, without those that are ``known`` or whose lock is ``closed``.

        It begins to look at the ``floors``. With ``claimed``, a stamp, those that are plain are marked as
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

    def in_open_lane(self, now: str, floors: Floors, *, claimed: str) -> Statement:
        """Return what ``statement`` does for names, where nothing is queued outside of the open lane."""
        names, wanted = list(self.wanted), list(self.wanted.values())
        asked = now, self.sort.priority, names, wanted, *_by_class(map(floors.of, names))
        if claimed:
            return SQL["claim_in_open_lane"], (*asked, claimed)
        return SQL["take_in_open_lane"], asked

    def with_lock(
        self, now: str, known: Sequence[int] = (), closed: Sequence[str] = (), *, seen: bool = False,
        tried: int = 0,
    ) -> Statement:  # fmt: skip
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


def key_of(sort: Sort, names: Names) -> Key:
    """Return under which key the heads of patterns are remembered."""
    return lanes_open_to(sort), names


def heads_of(key: Key, asked: Sequence[Head]) -> Statement:
    """Return what reads some heads, due or not, each given as it is known: none comes before it."""
    downs, next_runs, job_ids, names = map(list, zip(*asked, strict=True))
    return SQL["heads_of_names"], (list(key[0]), names, [-down for down in downs], next_runs, job_ids)


def floors_of(floors: Mapping[str, Floor]) -> Statement:
    """Return what reads the nextRun of the first job in each class, of some names, not before some floors."""
    return SQL["floors_of_names"], (list(floors), *_by_class(floors.values()))


def _by_class(floors: Iterable[Floor]) -> list[list[str]]:
    return [list(each) for each in zip(*floors, strict=True)]


def sort_of(request: TakeRequest, with_own_jobs: Collection[str] = ()) -> Sort:
    """Return of which sort a request is; all workers count alike but those ``with_own_jobs``."""
    worker = request.worker if request.worker in with_own_jobs else None
    return Sort(request.mocked, request.priority, worker, request.accepts)


def planned_looks(requests: Iterable[TakeRequest]) -> list[Look]:
    """Return what is to be looked for, with the number of jobs that all requests may take.

    Patterns may find jobs that another request of the unit takes before them, and look so far ahead. Of jobs
    that only one worker may take nothing is planned.
    """
    requests = list(requests)
    by_workers = any(request.worker for request in requests)
    names: dict[Sort, dict[str, int]] = {}
    patterns: dict[tuple[Sort, Names], int] = {}
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
    looks = [Look(sort, wanted, by_workers=by_workers) for sort, wanted in names.items()]
    if len(patterns) + len(looks) > 1:
        patterns = dict.fromkeys(patterns, total)
    return looks + [Look(sort, {}, asked, limit, by_workers) for (sort, asked), limit in patterns.items()]


def may_claim(looks: Sequence[Look]) -> bool:
    """Tell whether what a look finds is as good as taken: by who has no runs, where nobody asks otherwise."""
    return len(looks) == 1 and not looks[0].by_workers


@lru_cache(maxsize=NAMES_KEPT_MAX)
def lanes_open_to(sort: Sort) -> tuple[str, ...]:
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
