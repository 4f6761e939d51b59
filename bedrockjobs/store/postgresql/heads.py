"""Cached heads: finds which of very many names have the next jobs that match a pattern.

Querying each of 10,000 names takes a tenth of a second. So the nextRun of the first job (the head) of each
name and priority is cached. It is a lower bound: every queued job is covered, but a job that is gone may
still have a head, which the next query of its name corrects.

A new pattern begins with a scan of the names, one slice per unit: a take that needs more raises
StillSearching, and ``search`` continues. Patterns that need the same names share a scan, and lists of
patterns share the heads of each pattern. A pause removes no heads: heads of paused names are set aside when a
take reaches them, and return in slices when the pause ends. A pattern with too many names is wide: it scans
the queue in order and caches the position up to which nothing matches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import PRIORITIES, SEARCHED_AT_ONCE, SEARCHED_PER_S_MAX
from bedrockjobs.base.glob import PatternSet, anchored_regex
from bedrockjobs.job.rows import Job, PauseRow, found_in, parse_lane
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.pattern_index import (
    EARLY_MAX,
    EVICTIONS_TRIED_MAX,
    NAMES_MATCHED_MAX,
    UNINDEXED_MAX,
    Budget,
    Turns,
    Walk,
)
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import NOWHERE, Order

# Low-water marks: for each name and priority, a timestamp before which no job of the open lane is queued.
#
# Dead index entries of finished jobs remain until no old snapshot needs them. A take that starts at the
# beginning of the index would walk past all of them.


FLOORS_KEPT_MAX = 10_000
"""Maximum number of names with cached marks, about 8 MB; if there are more, all marks are dropped."""

RAISED_EVERY_S = 1
"""Minimum seconds between two reads of the low-water marks of a name. A take walks past the dead index
entries that have accumulated since the last read."""

BEHIND_S = 2
"""Seconds by which the marks stay behind the clock, so that a new job is found even without a notification:
its nextRun is the timestamp of its unit, which may have begun a little earlier."""

ANY = ""
"""Key of the marks of the whole queue."""

LowWaterMark = tuple[str, ...]
"""For each priority, highest first, a timestamp before which no job is queued; empty if unknown."""

_NONE: LowWaterMark = ("",) * len(PRIORITIES)


class LowWaterMarks(NamedTuple):
    """The low-water marks by name; the marks of the whole queue have the key ``ANY``."""

    known: dict[str, LowWaterMark]
    load: dict[str, str]
    """For each name, the timestamp at which its low-water marks were last read, or else first requested."""

    def marks_of(self, name: str) -> LowWaterMark:
        """Return the marks of a name."""
        return self.known.get(name, _NONE)

    def to_raise(self, names: Iterable[str], now: str) -> list[str]:
        """Return the names whose marks should be read: requested before, not read for ``RAISED_EVERY_S``."""
        old = after_seconds(now, -RAISED_EVERY_S)
        bounds = []
        for name in names:
            read = self.load.setdefault(name, now)
            if read <= old or read > now:
                bounds.append(name)
        return bounds

    def raised(self, firsts: Mapping[str, Sequence[str | None]], now: str) -> None:
        """Store the nextRun of the first job of each priority, by name; None if there is none."""
        if len(self.load) > FLOORS_KEPT_MAX:
            self.forget()
        highest = after_seconds(now, -BEHIND_S)
        for name, timestamps in firsts.items():
            self.known[name] = tuple(min(timestamp or highest, highest) for timestamp in timestamps)
            self.load[name] = now

    def lower(self, name: str, next_run: str, priority: int | None = None) -> None:
        """Lower the marks for a queued job; without ``priority``, the marks of all priorities."""
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
"""Maximum number of heads cached by one server, about 15 MB. If there are more, the pattern with the most
heads becomes wide."""

PATTERNS_KEPT_MAX = 10_000
"""Maximum number of patterns with cached heads, counting each pattern of a list."""

KEPT_S = 60
"""Seconds for which heads are cached: without a notification, a change of rows by hand is noticed then."""

ROWS_UNIT_MAX = SEARCHED_AT_ONCE
"""Maximum number of rows that scans read for the takes of one unit: about 5 ms."""

ROWS_OF_READ = 50
"""Cost of a query that finds nothing, 0.3 ms, as a number of rows of a scan. It is also the size of the first
slice of a wide pattern, in which most takes find a job."""

ROWS_OF_SEEK = 30
"""Cost of one index seek, as a number of rows of a scan."""

ASIDE_AT_ONCE = 250
"""Maximum number of heads of paused names that one take sets aside or returns: 1 to 4 ms of the event
loop."""

BLOCK_HEADS = 500
"""Number of heads in a new block. An insert moves all later heads of the block, so a block with twice as many
heads is split."""

Head = tuple[int, str, int, str]
"""Negated priority, nextRun, jobID and name of the first job of a name and priority. Heads sort in the order
of takes."""

BEGINNING: Head = (*NOWHERE, "")
"""A position that sorts before every head."""

HeadKey = tuple[tuple[str, ...], Names]
"""The lanes that are searched, and the names or patterns."""

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


class SortedHeads:
    """Heads in the order of takes."""

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        """Start with ``heads``."""
        ordered = sorted(heads)
        self._blocks = [ordered[at : at + BLOCK_HEADS] for at in range(0, len(ordered), BLOCK_HEADS)] or [[]]
        self._lasts = [block[-1] for block in self._blocks if block]
        """The last head of each block that is not empty; a block is empty only if there is no head at all."""

    def add(self, head: Head) -> None:
        """Add a head."""
        at = min(bisect_left(self._lasts, head), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, head)
        self._lasts[at : at + 1] = [block[-1]]
        if len(block) > 2 * BLOCK_HEADS:
            self._blocks[at : at + 1] = block[:BLOCK_HEADS], block[BLOCK_HEADS:]
            self._lasts[at : at + 1] = block[BLOCK_HEADS - 1], block[-1]

    def remove(self, head: Head) -> None:
        """Remove a head that was added before."""
        at = bisect_left(self._lasts, head)
        block = self._blocks[at]
        del block[bisect_left(block, head)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._lasts[at]
            if len(self._blocks) > 1:
                del self._blocks[at]

    def between(self, after: Head, before: Head) -> Iterator[Head]:
        """Yield the heads between two positions; the heads must not change during the iteration."""
        for at in range(bisect_right(self._lasts, after), len(self._lasts)):
            block = self._blocks[at]
            yield from block[bisect_right(block, after) : bisect_left(block, before)]
            if block[-1] >= before:
                break


class MatchingHeads:
    """The cached heads of one pattern."""

    def __init__(self, key: HeadKey, heads: Iterable[Head] = (), by: str = "") -> None:
        """Start with ``heads``; the scan is charged to ``by``, the token that requested the pattern first."""
        self.key = key
        self.names = key[1]
        self.by = by
        self._at = {(head[0], head[3]): head for head in heads}
        self._order = SortedHeads(self._at.values())
        self._aside: dict[str, dict[tuple[int, str], Head]] = {}
        """Heads of paused names, by the pattern of the pause."""
        self._returning: list[Head] = []
        """Heads whose pause has ended; they are added to ``_order`` before any head is used."""
        self._always: set[tuple[int, str]] = set()
        """Negated priorities and names that may have a job exempt from pauses."""
        self.used: dict[tuple[int, str], None] = {}
        """Negated priorities and names that were queried since their heads were read: the jobs of these heads
        are probably taken by now."""
        self.counted = 0
        """Number of heads of this pattern that the total of the index includes."""
        self.walk: LanesWalk | None = None
        """The unfinished scan for the heads."""
        self.wide = False
        """Whether there are too many heads to cache; then only heads before ``places`` are kept."""
        self.places: dict[int, tuple[str, int]] = {}
        """For a wide pattern, by negated priority: nextRun and jobID up to which only the kept heads
        match."""
        self.pauses: Sequence[PauseRow] = ()
        """The pauses that were active when ``places`` were found."""
        self.tries = 0
        """Number of consecutive scans of the queue without progress; each doubles the next scan's limit."""
        self.looked = 0
        """Number of rows read to find the heads."""
        self.since = ""
        """When the scan ended; empty while it is unfinished."""

    def __len__(self) -> int:
        """Return the number of cached heads."""
        return len(self._at) + len(self._returning) + sum(map(len, self._aside.values()))

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
        due: list[Head] = []
        aside: list[tuple[str, Head]] = []
        for down in (-each for each in PRIORITIES if priority in (None, each)):
            if len(due) >= limit or len(aside) >= ASIDE_AT_ONCE:
                break
            begin, end = max((down, "", 0, ""), after), (down, f"{now}\0", 0, "")
            for head in self._order.between(begin, end):
                if pauses and (down, head[3]) not in self._always and (pause := pause_of(head[3])):
                    aside.append((pause.pattern, head))
                else:
                    due.append(head)
                if len(due) >= limit or len(aside) >= ASIDE_AT_ONCE:
                    break
        for pattern, head in aside:
            self._put_aside(pattern, head)
        if len(aside) >= ASIDE_AT_ONCE:
            raise StillSearching
        return due

    def _put_aside(self, pattern: str, head: Head) -> None:
        of_pause = self._aside.setdefault(pattern, {})
        place = head[0], head[3]
        self._put(*place, None)
        of_pause[place] = min(head, of_pause.get(place, head))

    def _return(self, pauses: Sequence[PauseRow]) -> None:
        """Put back heads whose pause has ended; raises StillSearching if over ``ASIDE_AT_ONCE`` wait."""
        if self._aside:
            patterns = {pause.pattern for pause in pauses}
            for ended in [pattern for pattern in self._aside if pattern not in patterns]:
                self._returning += self._aside.pop(ended).values()
        if self._returning:
            some = self._returning[-ASIDE_AT_ONCE:]
            del self._returning[-ASIDE_AT_ONCE:]
            for head in some:
                self._put(head[0], head[3], min(head, self._at.get((head[0], head[3]), head)))
            if self._returning:
                raise StillSearching

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

    def note_used(self, places: Iterable[tuple[int, str]]) -> None:
        """Record the negated priorities and names of a query; their heads are read again with the commit."""
        self.used.update((place, None) for place in places if place in self._at)

    def cached_heads(self, keys: Iterable[tuple[int, str]]) -> list[Head]:
        """Return the cached heads by negated priority and name; a missing head gets the lowest bound."""
        return [self._at.get((down, name), (down, "", 0, name)) for down, name in keys]

    def replace(self, keys: Iterable[tuple[int, str]], rows: Iterable[Row]) -> None:
        """Replace the heads of some negated priorities and names by the heads in ``rows``."""
        for down, name in keys:
            self.used.pop((down, name), None)
            self._always.discard((down, name))
            self._put(down, name, None)
        for down, next_run, job_id, name, always in rows:
            self._put(down, name, (down, next_run, job_id, name))
            if always:
                self._always.add((down, name))

    def _put(self, down: int, name: str, head: Head | None) -> None:
        known = self._at.pop((down, name), None)
        if known is not None:
            self._order.remove(known)
        if head is not None:
            self._at[down, name] = head
            self._order.add(head)

    def use_positions(self) -> None:
        """Cache positions instead of all heads."""
        self.wide = True
        self.clear()

    def clear(self) -> None:
        """Drop the heads and positions."""
        self._order, self._at, self._aside, self._returning = SortedHeads(), {}, {}, []
        self._always, self.used, self.places, self.looked = set(), {}, {}, 0


class HeadsOfNames:
    """The cached heads of one pattern, or of each pattern in a short list."""

    def __init__(self, key: HeadKey, parts: Sequence[MatchingHeads]) -> None:
        """Use the heads of each pattern: ``parts``."""
        self.key = key
        self.parts = parts
        self.often: dict[str, int] = {}
        """By name with several of the next jobs, how often the number of jobs to request is doubled."""
        self.share = 1.0
        """In the last query, the number of names with any of the next jobs, divided by the number of
        requested jobs."""

    def next_due(self, wanted: WantedHeads) -> list[Head]:
        """Return the next heads that are due and not paused, in the order of takes; raises StillSearching."""
        if len(self.parts) == 1:
            return self.parts[0].next_due(*wanted)
        return merged((part.next_due(*wanted) for part in self.parts), wanted.limit)

    def note_used(self, places: Iterable[tuple[int, str]]) -> None:
        """Record the negated priorities and names that were queried; their heads are read again."""
        places = dict.fromkeys(places)
        for part in self.parts:
            part.note_used(places)


def merged(lists: Iterable[Iterable[Head]], limit: int) -> list[Head]:
    """Return the first heads of some lists, and for each name and priority only the lowest head."""
    found: dict[tuple[int, str], Head] = {}
    for head in sorted(chain.from_iterable(lists)):
        if found.setdefault((head[0], head[3]), head) is head and len(found) == limit:
            break
    return [*found.values()]


class LanesWalk(Walk[MatchingHeads]):
    """A scan of the names with one prefix in some lanes."""

    def __init__(self, lanes: tuple[str, ...], prefix: str) -> None:
        super().__init__(prefix)
        self.lanes = lanes
        self.places: dict[str, tuple[str, int]] = {}
        """For each lane that is not finished, the name and priority after which the scan continues."""
        self.looked = 0
        self._crowded = False
        """Whether the names have many jobs each, so that one seek per name is faster."""

    def begin_round(self) -> None:
        """Begin a round for the patterns that joined."""
        super().begin_round()
        self.looked = 0
        self.places = dict.fromkeys(self.lanes, (self.prefix, max(PRIORITIES) + 1))

    def read_slice(self, read: Read) -> int:
        """Read one slice; return its cost in rows."""
        limit = -(-SEARCHED_AT_ONCE // len(self.places) // (ROWS_OF_SEEK if self._crowded else 1))
        names, classes = map(list, zip(*self.places.values(), strict=True))
        statement = SQL["heads_by_seeks" if self._crowded else "heads_behind"]
        rows = read((statement, (list(self.places), names, classes, self.prefix, limit)))
        counts: Counter[str] = Counter()
        ends: dict[str, tuple[str, int]] = {}
        before, found = ("", "", 0, "", 0), 0
        for row in rows:
            lane, name, priority, next_run, job_id = row
            counts[lane] += 1
            ends[lane] = max(ends.get(lane, ("", 0)), (name, -priority))
            if row[:3] == before[:3] and row[3:] > before[3:]:
                continue  # not the head
            before, found = row, found + 1
            for heads in self.matching(name):
                if not heads.wide:
                    heads.lower(name, next_run, job_id, priority, always=lane.startswith("now"))
        self.places = {
            lane: (ends[lane][0], -ends[lane][1]) for lane, count in counts.items() if count == limit
        }
        looked = found * ROWS_OF_SEEK if self._crowded else max(len(rows), limit * len(self.places))
        self._crowded = not self._crowded and bool(self.places) and found * ROWS_OF_SEEK < looked
        self.looked += looked
        return looked


class HeadIndex:
    """An LRU cache of patterns with their heads."""

    def __init__(self, monotonic: Callable[[], float], *, whole: bool = False) -> None:
        """Begin empty. With ``whole``, nothing is cached between units, so scans run to their end."""
        self._budget = Budget(monotonic)
        self._whole = whole
        self.now = ""
        """The timestamp of the open unit."""
        self._rows = ROWS_UNIT_MAX
        self._places: dict[MatchingHeads, dict[int, tuple[str, int]]] = {}
        """Wide patterns searched in the open unit, with their positions before it."""
        self._walked: dict[LanesWalk, dict[str, tuple[str, int]]] = {}
        """Scans continued in the open unit, with their positions before it."""
        self._ended: list[MatchingHeads] = []
        """Patterns whose scan ended in the open unit."""
        self._clear()

    def _clear(self) -> None:
        self._known: OrderedDict[HeadKey, MatchingHeads] = OrderedDict()
        self._compared: OrderedDict[MatchingHeads, None] = OrderedDict()
        """The patterns that are compared with every name, least recently used first."""
        self._of_names: dict[HeadKey, HeadsOfNames] = {}
        self._sets: dict[tuple[str, ...], PatternSet[MatchingHeads]] = {}
        """Patterns by their lanes."""
        self._walks: dict[tuple[tuple[str, ...], str], LanesWalk] = {}
        self._pending: dict[Names, Sequence[MatchingHeads]] = {}
        """Names with a postponed take, and the heads that it needs."""
        self._turns = Turns()
        self._matching: dict[tuple[str, str], list[MatchingHeads]] = {}
        self._globs = self._heads = 0

    # --- one unit ----------------------------------------------------------------------------------------

    def begin_unit(self, now: str) -> None:
        """Begin a unit: keep what the last unit read, and reset the row limit."""
        self.now, self._rows = now, ROWS_UNIT_MAX
        self._places, self._walked, self._ended = {}, {}, []

    def undone(self) -> None:
        """Restore the state before the unit: its reads may include writes that are rolled back now."""
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

    def heads_of(self, key: HeadKey) -> HeadsOfNames | None:
        """Return the heads of patterns; None if they are unknown, incomplete or too many for any pattern."""
        keys = _keys_of(key)
        parts = [part for one in keys if (part := self._usable(one)) is not None]
        if len(parts) < len(keys) or any(part.walk is not None or part.wide for part in parts):
            return None
        return None if len(keys) < len(key[1].parts) else self._joined(key, parts)

    def _usable(self, key: HeadKey) -> MatchingHeads | None:
        """Return the heads of a pattern and mark them as used last; None if they are unknown or too old."""
        heads = self._known.get(key)
        if heads is None:
            return None
        self._known.move_to_end(key)
        if heads in self._compared:
            self._compared.move_to_end(heads)
        if heads.walk is None and self._is_old(heads):
            if not heads.wide:
                self._drop_pattern(heads)
                return None
            heads.clear()
            heads.since = self.now
        return heads

    def _joined(self, key: HeadKey, parts: Sequence[MatchingHeads]) -> HeadsOfNames:
        found = self._of_names.get(key)
        if found is None or [*found.parts] != [*parts]:
            if len(self._of_names) >= PATTERNS_KEPT_MAX:
                self._of_names.clear()
            found = self._of_names[key] = HeadsOfNames(key, parts)
        return found

    def _is_old(self, heads: MatchingHeads) -> bool:
        # Rows per second of additional cache lifetime: an expensive scan is repeated less often, as it only
        # finds manual changes.
        kept_s = KEPT_S + heads.looked // 2_000
        return not heads.since <= self.now < after_seconds(heads.since, kept_s)

    def lower(self, job: Job) -> None:
        """Record a job that has just been queued, which may be the new head of its name."""
        if not self._known:
            return
        key = found_in(job.lane), job.name
        matching = self._matching.get(key)
        if matching is None:
            if len(self._matching) >= NAMES_MATCHED_MAX:
                self._matching.clear()
            matching = self._matching[key] = self._heads_matching(job.name, key[0])
        always = bool(job.lane) and parse_lane(job.lane).now
        for heads in matching:
            heads.lower(job.name, job.next_run, job.job_id, job.priority, always=always)
            self._count(heads)
        self._make_room()

    def on_queued(self, name: str, next_run: str) -> None:
        """Record a job queued by another server, in any lane and with any priority."""
        for heads in self._heads_matching(name):
            heads.lower(name, next_run)
            self._count(heads)
        self._make_room()

    def _count(self, heads: MatchingHeads) -> None:
        """Correct the total for the present number of heads of a pattern."""
        count = len(heads)
        self._heads += count - heads.counted
        heads.counted = count

    def _heads_matching(self, name: str, lane: str | None = None) -> list[MatchingHeads]:
        matching: list[MatchingHeads] = []
        for lanes, patterns in self._sets.items():
            if lane is None or lane in lanes:
                matching += patterns.matching(name)
        return matching

    # --- searches ----------------------------------------------------------------------------------------

    def admit(self, key: HeadKey, by: str) -> bool:
        """Return whether the heads of all patterns are cached, so that no scan is needed.

        Raises StillSearching if this unit may not begin a scan for the token ``by``.
        """
        parts = [self._usable(one) for one in _keys_of(key)]
        if all(part is not None and part.walk is None for part in parts):
            return True
        if not (self._whole or key[1].everything):
            if not self._turns.admits(key[1], by, has_room=self._rows > 0):
                raise StillSearching
            self._rows -= 3 * ROWS_OF_READ  # a take by a new pattern makes three queries besides its scan
        return False

    def find(
        self, key: HeadKey, by: str, wanted: WantedHeads, seen: Collection[str], read: Read
    ) -> tuple[HeadsOfNames, list[Head], Order | None]:
        """Return the heads of patterns, the next due heads, and the position up to which these are complete.

        The position is None if the due heads are complete up to the last of them. For wide patterns, names in
        ``seen`` are left out. Scans are charged to the token ``by``. Raises StillSearching.
        """
        parts: list[MatchingHeads] = []
        unknown = False
        keys = _keys_of(key)
        if any(one not in self._known for one in keys):
            self.admit(key, by)
        for one in keys:
            known = self._usable(one)
            parts.append(self._begin_pattern(one, by) if known is None else known)
        for part in parts:  # all of them, so that their scans continue together
            unknown |= not self._make_ready(part, read)
        ends: list[Order] = []
        found: list[list[Head]] = []
        for part in () if unknown else parts:
            try:
                heads, end = (
                    self._scan(part, wanted, seen, read) if part.wide else (self._due(part, wanted), None)
                )
            except StillSearching:
                unknown = True
                continue
            found.append(heads)
            ends += () if end is None else (end,)
        if unknown:
            self._pending[key[1]] = parts
            raise StillSearching
        joined = self._joined(key, parts)
        if len(parts) == 1:
            return joined, found[0], ends[0] if ends else None
        end = min(ends, default=None)
        together = merged(found, wanted.limit)
        return joined, [head for head in together if end is None or head[:3] <= end], end

    def _make_ready(self, heads: MatchingHeads, read: Read) -> bool:
        """Continue the scan of a pattern while the unit has time for it; return whether it is complete."""
        while heads.walk is not None:
            if not self._whole and (self._rows <= 0 or heads.walk.payer(self._budget) is None):
                return False
            self._go_on(heads.walk, read)
        return True

    def _due(self, heads: MatchingHeads, wanted: WantedHeads) -> list[Head]:
        while True:
            try:
                return heads.next_due(*wanted)
            except StillSearching:
                if not self._whole:
                    raise

    def _scan(
        self, heads: MatchingHeads, wanted: WantedHeads, seen: Collection[str], read: Read
    ) -> tuple[list[Head], Order | None]:
        """Return the next due heads of a wide pattern, and up to which position they are complete.

        Raises StillSearching if the scan reached its limit without finding a head.
        """
        if heads.pauses != wanted.pauses:
            heads.clear()
            heads.pauses = wanted.pauses
        found = {*self._due(heads, wanted)}
        new: dict[str, Head] = {}
        room, before = self._rows + ROWS_UNIT_MAX * ((1 << heads.tries) - 1), dict(heads.places)
        for down in (-each for each in PRIORITIES if wanted.priority in (None, each)):
            if len(new) >= wanted.limit or down < wanted.after[0]:
                continue
            room, end = self._scan_priority(heads, down, wanted, seen, new, read, room)
            if end is not None:
                if not new:
                    # Up to a million rows, if other servers have locked all jobs that come first
                    heads.tries = min(heads.tries + 1, 10) if heads.places == before else 0
                    raise StillSearching
                return sorted(head for head in found.union(new.values()) if head[:3] <= end), end
        heads.tries = 0
        return sorted(found.union(new.values()))[: wanted.limit], None

    def _scan_priority(
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

        Return how many rows may still be read, and the position at which the limit was reached, or None.
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
            parameters = now, list(lanes), anchored_regex(names.patterns), -down, *place, size
            last = True
            rows = read((SQL["jobs_behind"], parameters))
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
        """Record that up to a position only the kept heads of a priority match."""
        # Open units may still add jobs with an earlier nextRun
        place = min(place, (after_seconds(now, -2), 0))
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
        if not all(map(patterns.indexes, names.patterns)):
            self._compared[heads] = None
        self._matching.clear()
        if names.everything:
            heads.use_positions()
            heads.since = self.now
        else:
            prefix = names.prefix()
            walk = self._walks.setdefault((lanes, prefix), LanesWalk(lanes, prefix))
            walk.join(heads)
            heads.walk = walk
            if not walk.patterns:
                walk.begin_round()
        self._make_room(heads)
        return heads

    def _go_on(self, walk: LanesWalk, read: Read) -> None:
        """Continue a scan for one slice."""
        self._walked.setdefault(walk, walk.places)
        by = walk.payer(self._budget) or ""
        looked = walk.read_slice(read)
        self._rows -= max(looked, ROWS_OF_READ)
        self._budget.spend(by, looked)
        for heads in walk.patterns:
            self._count(heads)
        if not walk.places:
            for heads in walk.patterns:
                heads.walk, heads.since, heads.looked = None, self.now, walk.looked
                self._ended.append(heads)
            walk.patterns = {}
            self._end_round(walk)
        self._make_room()

    def _end_round(self, walk: LanesWalk) -> None:
        self._walked.pop(walk, None)
        if walk.next_round:
            walk.begin_round()
        else:
            self._walks.pop((walk.lanes, walk.prefix), None)

    def _leave_walk(self, heads: MatchingHeads) -> None:
        walk, heads.walk = heads.walk, None
        if walk is not None:
            walk.leave(heads)
            if not walk.patterns:
                self._end_round(walk)

    def _drop_pattern(self, heads: MatchingHeads) -> None:
        if self._known.pop(heads.key, None) is None:
            return
        lanes, names = heads.key
        self._compared.pop(heads, None)
        self._of_names.pop(heads.key, None)
        self._globs -= len(names.patterns)
        self._heads -= heads.counted
        for text in names.patterns:
            self._sets[lanes].discard(text, heads)
        self._leave_walk(heads)
        self._matching.clear()

    def _make_room(self, newest: MatchingHeads | None = None) -> None:
        """Evict the least used patterns, but neither ``newest`` nor patterns that are being searched.

        Patterns with the most heads become wide instead, since a new scan at each take costs more.
        """
        while self._heads > HEADS_KEPT_MAX:
            heads = max(self._known.values(), key=attrgetter("counted"))
            self._leave_walk(heads)
            heads.use_positions()
            heads.since = self.now
            self._count(heads)
        while len(self._compared) > UNINDEXED_MAX and self._evict(
            (heads.key for heads in self._compared), newest
        ):
            pass
        while self._globs > PATTERNS_KEPT_MAX and self._evict(self._known, newest):
            pass

    def _evict(self, keys: Iterable[HeadKey], newest: MatchingHeads | None) -> bool:
        """Drop the first pattern that is not in use, among the first few; return whether there was one."""
        needed = {heads for parts in self._pending.values() for heads in parts}
        for key in islice(keys, EVICTIONS_TRIED_MAX):
            heads = self._known[key]
            if heads is not newest and heads.walk is None and heads not in needed:
                self._drop_pattern(heads)
                return True
        return False

    def search_in_s(self) -> float:
        """Return the seconds until the budgets allow ``search`` to continue."""
        if not self._walks or any(map(_is_ready, self._pending.values())):
            return 0.0
        if any(walk.payer(self._budget) is not None for walk in self._walks.values()):
            return 0.0
        return SEARCHED_AT_ONCE / SEARCHED_PER_S_MAX

    def search(self, wanted: Collection[Names], read: Read) -> Sequence[Names]:
        """Continue scans for one slice; see ``store.base.Unit``."""
        for names in [names for names in self._pending if names not in wanted]:
            self._give_up(self._pending.pop(names))
        payers = [(by, walk) for walk in self._walks.values() if (by := walk.payer(self._budget)) is not None]
        for _, walk in sorted(payers, key=lambda payer: self._budget.spent(payer[0])):
            if self._rows <= 0:
                break
            if (walk.lanes, walk.prefix) in self._walks:
                self._go_on(walk, read)
        # Few takes continue in one unit when their scans are complete, since each queries some names
        ready = [names for names, parts in self._pending.items() if _is_ready(parts)][:8]
        lost = [names for names in wanted if names not in self._pending]
        found = self._turns.next_of(lost)
        for names in ready:
            del self._pending[names]
        return [*found, *ready]

    def _give_up(self, parts: Sequence[MatchingHeads]) -> None:
        """Drop the scans of patterns that no longer have waiters."""
        needed = {heads for others in self._pending.values() for heads in others}
        for heads in parts:
            if heads.walk is not None and heads not in needed:
                self._drop_pattern(heads)


def _keys_of(key: HeadKey) -> list[HeadKey]:
    """Return a key for each pattern of a short list, or the given key if the names are not a list."""
    lanes, names = key
    return [(lanes, part) for part in names.parts if part.single is None] or [key]


def _is_ready(parts: Sequence[MatchingHeads]) -> bool:
    """Return whether a postponed take no longer needs a scan of names."""
    return all(heads.walk is None for heads in parts)
