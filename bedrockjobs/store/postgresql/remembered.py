"""What one server remembers between units of where the queued jobs begin, so that takes need not walk there.

All of it are lower bounds, read from what is committed. They are lowered by what this server writes and by
what others hint at, and forgotten where either may have been missed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from bedrockjobs.base.wire import after_seconds
from bedrockjobs.job.lanes import OPEN_LANE
from bedrockjobs.job.rows import Job, PauseRow
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.postgresql.candidates import Order
from bedrockjobs.store.postgresql.floors import ANY, Floors
from bedrockjobs.store.postgresql.heads import (
    KEPT_S,
    Head,
    Heads,
    Key,
    PauseOf,
    Read,
    RememberedHeads,
    Wanted,
)
from bedrockjobs.store.postgresql.looks import Look, floors_of, heads_of, key_of
from bedrockjobs.store.postgresql.pipeline import Row, Statement


class Remembered:
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
        self.floors = Floors({}, {})
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

    def heads_for(self, look: Look) -> Heads | None:
        """Return the heads of what a look asks for, None where that are names, or they are not known."""
        return None if look.patterns is None else self.heads(key_of(look.sort, look.patterns))

    def heads(self, key: Key) -> Heads | None:
        """Return the heads of patterns; None if they are not all known, or too many."""
        return self._heads.of(key)

    def next(self, heads: Heads, after: Head, now: str, priority: int | None, limit: int) -> list[Head]:
        """Return the next heads that are due and not paused; raises StillSearching.

        It does so as well if pauses are not known without a read.
        """
        pauses = self._pauses()
        if pauses is None:
            raise StillSearching
        wanted = Wanted(after, now, priority, limit, pauses, self._pause_of)
        return self._heads.next(heads, wanted)

    def find(
        self, key: Key, by: str, wanted: Wanted, seen: Collection[str], read: Read
    ) -> tuple[Heads, list[Head], Order | None]:
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
