"""Which names have the next jobs, for patterns that have to be looked for among very many names.

To ask each name takes a tenth of a second for 10,000. So the nextRun of the first job of each name and class
is remembered. It is a lower bound: a job that becomes queued is always in it; one that is gone may still be,
which is found out when its name is asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.lanes import found_in
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.postgresql.candidates import NOWHERE

HEADS_KEPT_MAX = 50_000
"""Heads that one server remembers, in some 15 MB. Patterns with more are looked for anew in each unit."""

PATTERNS_KEPT_MAX = 200
"""Patterns of which heads are remembered: a name that is written for the first time is matched with all."""

NAMES_MATCHED_MAX = 50_000
"""Names of which it is remembered which patterns they match; all are forgotten beyond."""

Head = tuple[int, str, int, str]
"""A first job of a name: its class below zero, nextRun, jobID, and the name. Sorts as takes do."""

BEGINNING: Head = (*NOWHERE, "")
"""Before the first head there may be."""

Key = tuple[tuple[str, ...], Names]
"""Lanes, and the patterns that are looked for in them."""


class Heads:
    """The heads that match some patterns."""

    def __init__(self, key: Key, found: Iterable[Head]) -> None:
        """Begin with all that there are."""
        self.key = key
        self._order = sorted(found)
        self._at = {(head[0], head[3]): head for head in self._order}
        self.asked: dict[tuple[int, str], None] = {}
        """Those that were asked for since they were read, by class below zero and name: their jobs are
        probably taken by now."""
        self.often: dict[str, int] = {}
        """Names that have many of the next jobs, each with how often one unit had to ask it again."""
        self.share = 1.0
        """How many names had any of the next jobs, for each job that was wanted, last time."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._order)

    def next(self, after: Head, now: str, priority: int | None, limit: int) -> list[Head]:
        """Return the next heads that are due, in the order of takes."""
        found: list[Head] = []
        for down in (-each for each in PRIORITIES if priority in (None, each)):
            begin = bisect_right(self._order, max((down, "", 0, ""), after))
            end = bisect_left(self._order, (down, f"{now}\0", 0, ""))
            found += self._order[begin:end][: limit - len(found)]
        return found

    def lower(self, name: str, next_run: str, job_id: int = 0, priority: int | None = None) -> None:
        """Note a job that is queued.

        Without ``priority`` it may be any job, of any class: it is looked at when its name is asked for.
        """
        for down in (-each for each in PRIORITIES if priority in (None, each)):
            known = self._at.get((down, name))
            if known is None or (next_run, job_id) < known[1:3]:
                self._put(down, name, (down, next_run, job_id, name))
            if priority is None:
                self.asked[down, name] = None

    def known(self, asked: Iterable[tuple[int, str]]) -> list[Head]:
        """Return the heads of some classes below zero and names, of which none may be known any more."""
        return [self._at.get((down, name), (down, "", 0, name)) for down, name in asked]

    def replace(self, asked: Iterable[tuple[int, str]], found: Iterable[Head]) -> None:
        """Have what was read of some classes below zero and names."""
        for down, name in asked:
            self.asked.pop((down, name), None)
            self._put(down, name, None)
        for head in found:
            self._put(head[0], head[3], head)

    def _put(self, down: int, name: str, head: Head | None) -> None:
        known = self._at.pop((down, name), None)
        if known is not None:
            del self._order[bisect_left(self._order, known)]
        if head is not None:
            self._at[down, name] = head
            insort(self._order, head)


class RememberedHeads:
    """The heads of patterns; those that were looked for longest ago are forgotten first."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._known: dict[Key, Heads | None] = {}
        """None: there are too many."""
        self._new: list[Key] = []
        """Those that were read in the open unit, with what it has written."""
        self._matching: dict[tuple[str, str], list[Heads]] = {}

    def knows(self, key: Key) -> bool:
        """Tell whether anything is known of some patterns in some lanes."""
        return key in self._known

    def of(self, key: Key) -> Heads | None:
        """Return the heads of patterns that are known; None where they are too many."""
        heads = self._known.pop(key, None)
        self._known[key] = heads  # the last one is forgotten last
        return heads

    def remember(self, key: Key, found: Sequence[Head]) -> None:
        """Note all heads of some patterns, or more than there is room for."""
        self._known[key] = Heads(key, found) if len(found) <= HEADS_KEPT_MAX else None
        self._new.append(key)
        while len(self._known) > PATTERNS_KEPT_MAX or self._number > HEADS_KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._matching.clear()

    @property
    def _number(self) -> int:
        return sum(map(len, filter(None, self._known.values())))

    def lower(self, job: Job) -> None:
        """Note a job that is queued."""
        if not self._known:
            return
        key = found_in(job.lane), job.name
        matching = self._matching.get(key)
        if matching is None:
            if len(self._matching) >= NAMES_MATCHED_MAX:
                self._matching.clear()
            matching = self._matching[key] = list(self._that_match(job.name, key[0]))
        for heads in matching:
            heads.lower(job.name, job.next_run, job.job_id, job.priority)

    def heard(self, name: str, next_run: str) -> None:
        """Note a job of another server, of whatever lane and class."""
        for heads in self._that_match(name):
            heads.lower(name, next_run)

    def _that_match(self, name: str, lane: str | None = None) -> Iterable[Heads]:
        for (lanes, names), heads in self._known.items():
            if heads is not None and (lane is None or lane in lanes) and names.match(name):
                yield heads

    def begin(self) -> None:
        """Keep what was read: another unit begins."""
        self._new.clear()

    def undone(self) -> None:
        """Forget what was read in this unit, of which a part is undone."""
        for key in self._new:
            self._known.pop(key, None)
        self._new.clear()
        self._matching.clear()

    def forget(self) -> None:
        """Know nothing."""
        self._known.clear()
        self.undone()
