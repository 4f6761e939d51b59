"""Cached heads: which names have the next jobs that match a pattern, for very many names.

Querying each of 10,000 names takes a tenth of a second. So the nextRun of the first job (the head) of each
name and priority is cached. It is a lower bound: every queued job is covered, but a job that is gone may
still have a head, which the next query of its name corrects.

A new pattern begins with a scan of the names, one slice per unit: a take that needs more raises
StillSearching, and ``search`` continues. Patterns that need the same names share a scan. A pause drops
nothing: heads of paused names are set aside when they come up, and return when the pause ends. A pattern with
too many names is wide: it scans the queue in order and caches the position up to which nothing matches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Never

from bedrockjobs.base.config import PRIORITIES, SEARCHED_AT_ONCE, SEARCHED_PER_S_MAX
from bedrockjobs.base.glob import PatternSet, anchored_regex
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.job.rows import Job, PauseRow, found_in, parse_lane
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.pattern_index import EARLY_MAX, UNINDEXED_MAX, Budget
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import NOWHERE, Order

# Low-water marks: for each name and priority, a timestamp before which no job of the open lane is queued.
#
# Dead index entries of finished jobs remain until no old snapshot needs them. A take that starts at the
# beginning of the index would walk past all of them.


RETRIED_AT_ONCE = 100
"""Max names returned by one ``search`` because their search was dropped."""

FLOORS_KEPT_MAX = 10_000
"""Max names with cached marks, about 8 MB; beyond it, all are dropped."""

RAISED_EVERY_S = 1
"""Min interval between two reads of the marks of a name; a take walks past the dead entries of that time."""

BEHIND_S = 2
"""How far the marks stay behind the clock, so that a new job is found even without a notification: its
nextRun is the timestamp of its unit, which may have begun a little earlier."""

ANY = ""
"""Key for all names."""

LowWaterMark = tuple[str, ...]
"""For each priority, highest first, a timestamp before which no job is queued; empty if unknown."""

_NONE: LowWaterMark = ("",) * len(PRIORITIES)


class LowWaterMarks(NamedTuple):
    """The low-water marks by name; those of the whole queue have the key ``ANY``."""

    known: dict[str, LowWaterMark]
    load: dict[str, str]
    """When the marks of a name were last read, or first requested."""

    def marks_of(self, name: str) -> LowWaterMark:
        """Return the marks of a name."""
        return self.known.get(name, _NONE)

    def to_raise(self, names: Iterable[str], now: str) -> list[str]:
        """Return the names to read: those requested before and not read for a while."""
        old = after_seconds(now, -RAISED_EVERY_S)
        found = []
        for name in names:
            read = self.load.setdefault(name, now)
            if read <= old or read > now:
                found.append(name)
        return found

    def raised(self, firsts: Mapping[str, Sequence[str | None]], now: str) -> None:
        """Store the nextRun of the first job of each priority, by name; None if there is none."""
        if len(self.load) > FLOORS_KEPT_MAX:
            self.forget()
        highest = after_seconds(now, -BEHIND_S)
        for name, timestamps in firsts.items():
            self.known[name] = tuple(min(timestamp or highest, highest) for timestamp in timestamps)
            self.load[name] = now

    def lower(self, name: str, next_run: str, priority: int | None = None) -> None:
        """Lower the marks for a queued job; without ``priority``, those of every priority."""
        for key in (name, ANY):
            floor = self.known.get(key)
            if floor is not None and next_run < max(floor):
                self.known[key] = tuple(
                    min(timestamp, next_run) if priority in (None, one) else timestamp
                    for timestamp, one in zip(floor, PRIORITIES, strict=True)
                )

    def forget(self) -> None:
        """Drop all marks."""
        self.known.clear()
        self.load.clear()


HEADS_KEPT_MAX = 50_000
"""Max heads cached by one server, about 15 MB. Patterns with more are wide."""

PATTERNS_KEPT_MAX = 10_000
"""Max patterns with cached heads, counting each one of a list."""

NAMES_MATCHED_MAX = 50_000
"""Max names in the cache of matching patterns; it is cleared when it is full."""

KEPT_S = 60
"""Cache lifetime: manual changes of rows send no notification."""

ROWS_UNIT_MAX = 2 * SEARCHED_AT_ONCE
"""Max rows that scans read for the takes of one unit: about 10 ms."""

ROWS_OF_READ = 50
"""Min cost of a query in rows, since an empty one takes 0.3 ms. It is also the first slice of a wide pattern,
in which most takes find a job."""

ROWS_OF_SEEK = 30
"""Cost of one index seek, in rows of a scan."""

TRIES_MAX = 10
"""How often the limit of a scan may be doubled: to a million rows, if other servers lock all jobs before."""

ASIDE_AT_ONCE = 1_000
"""Max heads of paused names that one take sets aside, which takes 2 ms."""

SETTLED_S = 2
"""How far the position of a wide pattern stays behind the clock, as open units may still add jobs there."""

Head = tuple[int, str, int, str]
"""Negated priority, nextRun, jobID and name of the first job of a name and priority. Heads sort in the order
of takes."""

BEGINNING: Head = (*NOWHERE, "")
"""Sorts before every head."""

HeadKey = tuple[tuple[str, ...], Names]
"""Lanes, and the patterns searched in them."""

Read = Callable[[Statement], list[Row]]
"""Runs one statement in the open unit."""

PauseOf = Callable[[str], PauseRow | None]
"""Returns a pause that covers a name."""


class WantedHeads(NamedTuple):
    """Parameters of a search for the next heads."""

    after: Head
    now: str
    priority: int | None
    limit: int
    pauses: Sequence[PauseRow] = ()
    pause_of: PauseOf = lambda _: None


class MatchingHeads:
    """The cached heads of one set of patterns."""

    def __init__(self, key: HeadKey, found: Iterable[Head] = (), by: str = "") -> None:
        """Begin with some heads; the scan is charged to ``by``, the token that requested it first."""
        self.key = key
        self.by = by
        self._order = sorted(found)
        self._at = {(head[0], head[3]): head for head in self._order}
        self._aside: dict[str, dict[tuple[int, str], Head]] = {}
        """Heads of paused names, by the pattern of the pause."""
        self._always: set[tuple[int, str]] = set()
        """Negated priorities and names that may have a job exempt from pauses."""
        self.used: dict[tuple[int, str], None] = {}
        """Negated priorities and names that were queried since their heads were read: those jobs are probably
        taken by now."""
        self.often: dict[str, int] = {}
        """Names with many of the next jobs, and how often the number of jobs requested from each is
        doubled."""
        self.share = 1.0
        """Names that had any of the next jobs, per requested job, in the last query."""
        self.walk: Walk | None = None
        """The unfinished scan for the heads."""
        self.wide = False
        """Whether there are too many heads to cache; only those before ``places`` are kept then."""
        self.places: dict[int, tuple[str, int]] = {}
        """For a wide pattern, by negated priority: nextRun and jobID up to which no other job matches."""
        self.pauses: Sequence[PauseRow] = ()
        """The pauses for which the positions were found."""
        self.tries = 0
        """How often in a row a scan of the queue made no progress; each time doubles the limit of the next
        one."""
        self.looked = 0
        """Rows read to find the heads."""
        self.since = ""
        """When the scan ended; empty while it is unfinished."""

    def __len__(self) -> int:
        """Return the number of cached heads."""
        return len(self._order) + sum(map(len, self._aside.values()))

    def next_due(
        self,
        after: Head,
        now: str,
        priority: int | None,
        limit: int,
        pauses: Sequence[PauseRow] = (),
        pause_of: PauseOf = lambda _: None,
    ) -> list[Head]:
        """Return the next heads that are due and not paused, in the order of takes; raises StillSearching."""
        self._return(pauses)
        found: list[Head] = []
        aside = 0
        for down in (-each for each in PRIORITIES if priority in (None, each)):
            begin = bisect_right(self._order, max((down, "", 0, ""), after))
            end = bisect_left(self._order, (down, f"{now}\0", 0, ""))
            if not pauses:
                found += self._order[begin:end][: limit - len(found)]
                continue
            kept: list[Head] = []
            at = begin
            while at < end and len(found) + len(kept) < limit and aside < ASIDE_AT_ONCE:
                head = self._order[at]
                at += 1
                if (down, head[3]) not in self._always and (pause := pause_of(head[3])):
                    self._put_aside(pause.pattern, head)
                    aside += 1
                else:
                    kept.append(head)
            self._order[begin:at] = kept
            found += kept
            if aside >= ASIDE_AT_ONCE:
                raise StillSearching
        return found

    def _put_aside(self, pattern: str, head: Head) -> None:
        of_pause = self._aside.setdefault(pattern, {})
        place = head[0], head[3]
        del self._at[place]
        of_pause[place] = min(head, of_pause.get(place, head))

    def _return(self, pauses: Sequence[PauseRow]) -> None:
        """Restore the heads set aside for pauses that have ended."""
        if not self._aside:
            return
        patterns = {pause.pattern for pause in pauses}
        ended = [pattern for pattern in self._aside if pattern not in patterns]
        for place, head in chain.from_iterable(self._aside.pop(pattern).items() for pattern in ended):
            self._at[place] = min(head, self._at.get(place, head))
        if ended:
            self._order = sorted(self._at.values())

    def lower(
        self, name: str, next_run: str, job_id: int = 0, priority: int | None = None, *, always: bool = True
    ) -> None:
        """Record a queued job; ``always``: it may be exempt from pauses.

        If ``priority`` is unknown, the bound of every priority is lowered; the next query of the name
        verifies it.
        """
        for down in (-each for each in PRIORITIES if priority in (None, each)):
            if self.wide and (next_run, job_id) > self.places.get(down, ("", 0)):
                continue
            known = self._at.get((down, name))
            if known is None or (next_run, job_id) < known[1:3]:
                self._put(down, name, (down, next_run, job_id, name))
            if always:
                self._always.add((down, name))
            if priority is None:
                self.used[down, name] = None
        if self.wide and len(self) > EARLY_MAX:
            self.clear()

    def note_asked(self, found: Iterable[Head]) -> None:
        """Record the queried heads; they are read again with the commit."""
        self.used.update((head[0::3], None) for head in found if not self.wide or head[0::3] in self._at)

    def cached_heads(self, asked: Iterable[tuple[int, str]]) -> list[Head]:
        """Return the cached heads by negated priority and name; a missing one gets the lowest bound."""
        return [self._at.get((down, name), (down, "", 0, name)) for down, name in asked]

    def replace(self, asked: Iterable[tuple[int, str]], found: Iterable[Row]) -> None:
        """Replace the heads of some negated priorities and names by those that were read."""
        for down, name in asked:
            self.used.pop((down, name), None)
            self._always.discard((down, name))
            self._put(down, name, None)
        for down, next_run, job_id, name, always in found:
            self._put(down, name, (down, next_run, job_id, name))
            if always:
                self._always.add((down, name))

    def _put(self, down: int, name: str, head: Head | None) -> None:
        known = self._at.pop((down, name), None)
        if known is not None:
            del self._order[bisect_left(self._order, known)]
        if head is not None:
            self._at[down, name] = head
            insort(self._order, head)

    def use_positions(self) -> None:
        """Cache positions instead of all heads."""
        self.wide = True
        self.clear()

    def clear(self) -> None:
        """Drop the heads and positions."""
        self._order, self._at, self._aside = [], {}, {}
        self._always, self.used, self.places, self.looked = set(), {}, {}, 0


class Walk:
    """A scan of the names with one prefix in some lanes, shared by all patterns that need it."""

    def __init__(self, lanes: tuple[str, ...], prefix: str) -> None:
        """Begin without patterns."""
        self.lanes, self.prefix = lanes, prefix
        self.patterns: dict[MatchingHeads, None] = {}
        """Patterns that started with this round."""
        self.next_round: dict[MatchingHeads, None] = {}
        """Patterns that joined during the round and need the next one."""
        self.places: dict[str, tuple[str, int]] = {}
        """The name and priority after which the scan continues, for each unfinished lane."""
        self.looked = 0
        self._crowded = False
        """Whether the names have many jobs each, so that one seek per name is faster."""
        self._matching: PatternSet[MatchingHeads] = PatternSet()

    def begin_round(self) -> None:
        """Begin a round for the patterns that joined."""
        self.patterns, self.next_round, self.looked = self.next_round, {}, 0
        self.places = dict.fromkeys(self.lanes, (self.prefix, max(PRIORITIES) + 1))
        self._matching = PatternSet()
        for heads in self.patterns:
            for text in heads.key[1].patterns:
                self._matching.add(text, heads)

    def go_on(self, read: Read) -> int:
        """Read one slice; return its cost in rows."""
        limit = -(-SEARCHED_AT_ONCE // len(self.places) // (ROWS_OF_SEEK if self._crowded else 1))
        names, classes = map(list, zip(*self.places.values(), strict=True))
        statement = SQL["heads_by_seeks" if self._crowded else "heads_behind"]
        rows = read((statement, (list(self.places), names, classes, self.prefix, limit)))
        left: dict[str, tuple[str, int]] = {}
        for lane, name, priority, next_run, job_id, number in rows:
            for heads in self._matching.matching(name):
                if heads in self.patterns and not heads.wide:
                    heads.lower(name, next_run, job_id, priority, always=lane.startswith("now"))
            if number == limit:
                left[lane] = name, priority
        self.places = left
        looked = len(rows) * ROWS_OF_SEEK if self._crowded else max(len(rows), limit * len(left))
        self._crowded = not self._crowded and bool(left) and len(rows) * ROWS_OF_SEEK < looked
        self.looked += looked
        return looked


class HeadIndex:
    """An LRU cache of patterns with their heads."""

    def __init__(self, monotonic: Callable[[], float], *, whole: bool = False) -> None:
        """Begin empty. With ``whole``, scans run to the end at once, as nothing is cached between units."""
        self._budget = Budget(monotonic)
        self._whole = whole
        self.now = ""
        """The timestamp of the open unit."""
        self._rows = ROWS_UNIT_MAX
        self._places: dict[MatchingHeads, dict[int, tuple[str, int]]] = {}
        """Wide patterns searched in the open unit, with their positions before it."""
        self._walked: dict[Walk, dict[str, tuple[str, int]]] = {}
        """Scans continued in the open unit, with their positions before it."""
        self._ended: list[MatchingHeads] = []
        """Patterns whose scan ended in the open unit."""
        self._clear()

    def _clear(self) -> None:
        self._known: dict[HeadKey, MatchingHeads] = {}
        self._sets: dict[tuple[str, ...], PatternSet[MatchingHeads]] = {}
        """Patterns by their lanes."""
        self._walks: dict[tuple[tuple[str, ...], str], Walk] = {}
        self._pending: dict[Names, MatchingHeads] = {}
        """Patterns with a postponed take, and the heads that it needs."""
        self._matching: dict[tuple[str, str], list[MatchingHeads]] = {}
        self._globs = self._lowered = 0

    # --- one unit ----------------------------------------------------------------------------------------

    def begin_unit(self, now: str) -> None:
        """Begin a unit: keep what the last one read, and reset the row limit."""
        self.now, self._rows = now, ROWS_UNIT_MAX
        self._places, self._walked, self._ended = {}, {}, []

    def undone(self) -> None:
        """Restore the state before the unit: what it read since may include writes that are now undone."""
        for heads in self._ended:
            self._drop_pattern(heads)
        for walk, places in self._walked.items():
            walk.places = places
        for heads, before in self._places.items():
            if heads.wide:
                both = before.keys() & heads.places.keys()
                heads.places = {down: min(before[down], heads.places[down]) for down in both}
        self._places, self._walked, self._ended = {}, {}, []

    def forget(self) -> None:
        """Drop all patterns."""
        self._clear()
        self._places, self._walked, self._ended = {}, {}, []

    # --- what is known -----------------------------------------------------------------------------------

    def heads_of(self, key: HeadKey) -> MatchingHeads | None:
        """Return the heads of patterns, or None if they are incomplete or too many."""
        heads = self._known.pop(key, None)
        if heads is None:
            return None
        self._known[key] = heads  # now the most recently used
        if heads.walk is None and self._is_old(heads):
            if not heads.wide:
                self._drop_pattern(heads)
                return None
            heads.clear()
            heads.since = self.now
        return None if heads.walk is not None or heads.wide else heads

    def _is_old(self, heads: MatchingHeads) -> bool:
        # Rows per second of additional cache lifetime: an expensive scan is repeated less often, as it only
        # finds manual changes.
        kept_s = KEPT_S + heads.looked // 2_000
        return not heads.since <= self.now < after_seconds(heads.since, kept_s)

    def lower(self, job: Job) -> None:
        """Record a queued job."""
        if not self._known:
            return
        key = found_in(job.lane), job.name
        matching = self._matching.get(key)
        if matching is None:
            if len(self._matching) >= NAMES_MATCHED_MAX:
                self._matching.clear()
            matching = self._matching[key] = self._that_match(job.name, key[0])
        always = bool(job.lane) and parse_lane(job.lane).now
        for heads in matching:
            heads.lower(job.name, job.next_run, job.job_id, job.priority, always=always)
        self._note_lowered(len(matching))

    def on_queued(self, name: str, next_run: str) -> None:
        """Record a job queued by another server, in any lane and with any priority."""
        matching = self._that_match(name)
        for heads in matching:
            heads.lower(name, next_run)
        self._note_lowered(len(matching) * len(PRIORITIES))

    def _note_lowered(self, count: int) -> None:
        self._lowered += count
        if self._lowered > SEARCHED_AT_ONCE:
            self._make_room(None)

    def _that_match(self, name: str, lane: str | None = None) -> list[MatchingHeads]:
        found: list[MatchingHeads] = []
        for lanes, patterns in self._sets.items():
            if lane is None or lane in lanes:
                found += patterns.matching(name)
        return found

    # --- searches ----------------------------------------------------------------------------------------

    def ready(self, key: HeadKey, by: str, read: Read) -> MatchingHeads:
        """Return the heads of patterns, complete or wide; raises StillSearching."""
        self.heads_of(key)
        heads = self._known.get(key)
        if heads is None:
            heads = self._begin_pattern(key, by)
        while heads.walk is not None:
            walk = heads.walk
            alone = len(self._walks) == 1 and self._rows > 0 and self._payer(walk) is not None
            if not (alone or self._whole):
                self.put_off(heads)
            self._go_on(walk, read)
        return heads

    def put_off(self, heads: MatchingHeads) -> Never:
        """Postpone a take until the scan has continued; raises StillSearching."""
        self._pending[heads.key[1]] = heads
        raise StillSearching

    def next_due(self, heads: MatchingHeads, wanted: WantedHeads) -> list[Head]:
        """Return ``MatchingHeads.next_due``; if that raises StillSearching, the take is postponed."""
        while True:
            try:
                return heads.next_due(*wanted)
            except StillSearching:
                if not self._whole:
                    self.put_off(heads)

    def scan(
        self, heads: MatchingHeads, wanted: WantedHeads, seen: Collection[str], read: Read
    ) -> tuple[list[Head], Order | None]:
        """Return the next due heads of a wide pattern except names ``seen``, and how far they are complete.

        The position is None if they are complete up to the last one. Raises StillSearching if the scan
        reached its limit without finding any.
        """
        if heads.pauses != wanted.pauses:
            heads.clear()
            heads.pauses = wanted.pauses
        found = {*self.next_due(heads, wanted)}
        new: dict[str, Head] = {}
        room, before = self._rows + ROWS_UNIT_MAX * ((1 << heads.tries) - 1), dict(heads.places)
        for down in (-each for each in PRIORITIES if wanted.priority in (None, each)):
            if len(new) >= wanted.limit or down < wanted.after[0]:
                continue
            room, end = self._look_in_class(heads, down, wanted, seen, new, read, room)
            if end is not None:
                if not new:
                    heads.tries = min(heads.tries + 1, TRIES_MAX) if heads.places == before else 0
                    self.put_off(heads)
                return sorted(head for head in found.union(new.values()) if head[:3] <= end), end
        heads.tries = 0
        return sorted(found.union(new.values()))[: wanted.limit], None

    def _look_in_class(
        self,
        heads: MatchingHeads,
        down: int,
        wanted: WantedHeads,
        seen: Collection[str],
        new: dict[str, Head],
        read: Read,
        room: int,
    ) -> tuple[int, Order | None]:
        """Scan the queue for more names of one priority, and advance its position up to the first match.

        Return how many rows may still be read, and the position at which the limit was reached, if it was.
        """
        (lanes, names), now = heads.key, wanted.now
        start = place = heads.places.get(down, ("", 0))
        if down == wanted.after[0]:
            place = max(place, wanted.after[1:3])
        matched, last = place > start, False
        size = ROWS_OF_READ
        while not last and len(new) < wanted.limit:
            if room <= 0 and not self._whole:
                return room, (down, *place)
            asked = now, list(lanes), anchored_regex(names.patterns), -down, *place, size
            last = True
            rows = read((SQL["jobs_behind"], asked))
            looked = rows[-1][-1] if rows else 0
            heads.looked += 0 if matched else looked
            room -= max(looked, ROWS_OF_READ)
            self._rows -= max(looked, ROWS_OF_READ)
            for next_run, job_id, name, matches, number in rows:
                if matches and not matched:
                    matched = True
                    self._pass(heads, down, (next_run, job_id - 1), now)
                if matches and name not in seen and len(new) < wanted.limit:
                    new.setdefault(name, (down, next_run, job_id, name))
                if number == size:
                    place, last = (next_run, job_id), False
            size = min(size * 5, SEARCHED_AT_ONCE)
            if not matched:
                self._pass(heads, down, (now, 0) if last else place, now)
        return room, None

    def _pass(self, heads: MatchingHeads, down: int, place: tuple[str, int], now: str) -> None:
        """Record that up to a position of a priority no jobs match except those cached."""
        place = min(place, (after_seconds(now, -SETTLED_S), 0))
        if place > heads.places.get(down, ("", 0)):
            self._places.setdefault(heads, dict(heads.places))
            heads.places[down] = place

    def _begin_pattern(self, key: HeadKey, by: str) -> MatchingHeads:
        lanes, names = key
        heads = self._known[key] = MatchingHeads(key, by=by)
        self._globs += len(names.patterns)
        patterns = self._sets.setdefault(lanes, PatternSet())
        for text in names.patterns:
            patterns.add(text, heads)
        self._matching.clear()
        if names.everything:
            heads.use_positions()
            heads.since = self.now
        else:
            prefix = names.prefix()
            walk = self._walks.setdefault((lanes, prefix), Walk(lanes, prefix))
            walk.next_round[heads] = None
            heads.walk = walk
            if not walk.patterns:
                walk.begin_round()
        self._make_room(heads)
        return heads

    def _go_on(self, walk: Walk, read: Read) -> None:
        """Continue a scan for one slice."""
        self._walked.setdefault(walk, walk.places)
        by = self._payer(walk) or ""
        looked = walk.go_on(read)
        self._rows -= max(looked, ROWS_OF_READ)
        self._budget.spend(by, looked)
        if not walk.places:
            for heads in walk.patterns:
                heads.walk, heads.since, heads.looked = None, self.now, walk.looked
                self._pending.pop(heads.key[1], None)
                self._ended.append(heads)
            walk.patterns = {}
            self._end_round(walk)
        self._make_room(None)

    def _end_round(self, walk: Walk) -> None:
        self._walked.pop(walk, None)
        if walk.next_round:
            walk.begin_round()
        else:
            self._walks.pop((walk.lanes, walk.prefix), None)

    def _leave_walk(self, heads: MatchingHeads) -> None:
        walk, heads.walk = heads.walk, None
        if walk is not None:
            walk.patterns.pop(heads, None)
            walk.next_round.pop(heads, None)
            if not walk.patterns:
                self._end_round(walk)

    def _drop_pattern(self, heads: MatchingHeads) -> None:
        if self._known.pop(heads.key, None) is None:
            return
        lanes, names = heads.key
        self._globs -= len(names.patterns)
        for text in names.patterns:
            self._sets[lanes].discard(text, heads)
        self._leave_walk(heads)
        self._matching.clear()

    def _make_room(self, newest: MatchingHeads | None) -> None:
        """Evict the least used patterns, but neither the newest nor those being searched.

        Patterns with the most heads become wide first, since a new scan at each take costs more.
        """
        self._lowered = 0
        total = sum(map(len, self._known.values()))
        unindexed = sum(patterns.unindexed for patterns in self._sets.values())
        if total <= HEADS_KEPT_MAX and self._globs <= PATTERNS_KEPT_MAX and unindexed <= UNINDEXED_MAX:
            return
        for heads in sorted(self._known.values(), key=len, reverse=True) if total > HEADS_KEPT_MAX else ():
            if total <= HEADS_KEPT_MAX:
                break
            total -= len(heads)
            self._leave_walk(heads)
            heads.use_positions()
            heads.since = self.now
        for heads in [*self._known.values()]:
            lanes, names = heads.key
            rare = unindexed <= UNINDEXED_MAX or all(map(self._sets[lanes].indexes, names.patterns))
            if self._globs <= PATTERNS_KEPT_MAX and rare:
                continue
            if heads is not newest and heads.walk is None and names not in self._pending:
                self._drop_pattern(heads)
                unindexed = sum(patterns.unindexed for patterns in self._sets.values())

    def _payer(self, walk: Walk) -> str | None:
        return self._budget.payer(heads.by for heads in (*walk.patterns, *walk.next_round))

    def search_in_s(self) -> float:
        """Return the seconds until ``search`` may continue."""
        if not self._walks or any(heads.walk is None for heads in self._pending.values()):
            return 0.0
        if any(self._payer(walk) is not None for walk in self._walks.values()):
            return 0.0
        return SEARCHED_AT_ONCE / SEARCHED_PER_S_MAX

    def search(self, wanted: Collection[Names], read: Read) -> Sequence[Names]:
        """Continue one scan for one slice; see ``store.base.Unit``."""
        for names in [names for names in self._pending if names not in wanted]:
            heads = self._pending.pop(names)
            if heads.walk is not None:
                self._drop_pattern(heads)
        lost = [names for names in wanted if names not in self._pending]
        if lost:
            return lost[:RETRIED_AT_ONCE]
        payers = [(by, walk) for walk in self._walks.values() if (by := self._payer(walk)) is not None]
        if payers and self._rows > 0:
            self._go_on(min(payers, key=lambda payer: self._budget.spent(payer[0]))[1], read)
        ready = next((names for names, heads in self._pending.items() if heads.walk is None), None)
        if ready is None:
            return [names for names in wanted if names not in self._pending][:RETRIED_AT_ONCE]
        del self._pending[ready]
        return (ready,)
