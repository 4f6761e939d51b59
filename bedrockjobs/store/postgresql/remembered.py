"""What one server remembers between units of where the queued jobs begin, so that takes need not walk there.

All of it are lower bounds, read from what is committed. They are lowered by what this server writes and by
what others hint at, and forgotten where either may have been missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bedrockjobs.base.wire import after_seconds
from bedrockjobs.job.lanes import OPEN_LANE
from bedrockjobs.job.rows import Job
from bedrockjobs.store.postgresql.floors import ANY, Floors
from bedrockjobs.store.postgresql.heads import Head, Heads, Key, RememberedHeads
from bedrockjobs.store.postgresql.looks import Look, floors_of, heads_of, key_of
from bedrockjobs.store.postgresql.pipeline import Row, Statement

KEPT_S = 60
"""Time after which all is read anew: somebody may have changed rows by hand, which no server hears of."""


class Remembered:
    """The bounds of one server."""

    def __init__(self) -> None:
        """Remember nothing."""
        self.floors = Floors({}, {})
        """Of names that are asked for exactly, and of all names."""
        self._heads = RememberedHeads()
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
        self._used: list[Heads] = []
        self._asked: list[tuple[Heads, list[tuple[int, str]]]] = []

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

    def begin(self, looks: Sequence[Look], now: str) -> list[Statement]:
        """Return what is worth reading before a unit does these looks, as nothing is written yet."""
        if self._unsure or not (self._since and self._since <= now < after_seconds(self._since, KEPT_S)):
            self.forget()
            self._since, self._unsure = now, False
        self._heard.clear()
        self._heads.begin()
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
            self.floors.raised({name: stamps for name, *stamps in next(found)}, now)
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

    def knows(self, key: Key) -> bool:
        """Tell whether the heads of patterns, or their being too many, are known."""
        return self._heads.knows(key)

    def heads_for(self, look: Look) -> Heads | None:
        """Return the heads of what a look asks for, None where that are names, or they are not known."""
        return None if look.patterns is None else self.heads(key_of(look.sort, look.patterns))

    def heads(self, key: Key) -> Heads | None:
        """Return the heads of patterns, None where they are not known or too many."""
        return self._heads.of(key) if self._heads.knows(key) else None

    def remember(self, key: Key, found: Sequence[Head]) -> None:
        """Note all heads of some patterns, as the open unit has them."""
        self._heads.remember(key, found)
        heads = self._heads.of(key) if self._heads.knows(key) else None
        if heads is not None:
            self._used.append(heads)
        self._lower(self._heard)
