"""Where takes begin to look: for each name and class a stamp before which no job of the open lane is queued.

Rows that were taken and ended stay in the index for as long as anybody looks at an old state of the database.
A take that began at the index's first entry would walk past all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.wire import after_seconds

FLOORS_KEPT_MAX = 10_000
"""Names of which floors are remembered, in some 8 MB; beyond, all are forgotten."""

RAISED_EVERY_S = 1
"""Time between two reads of where the jobs of a name begin: ended jobs of that time are walked past."""

BEHIND_S = 2
"""How far floors stay behind the clock. A job that is created is so not missed, also where nobody told of it:
its nextRun is the moment of its unit, which is younger, or somewhat older where that unit took long."""

ANY = ""
"""What stands for all names."""

Floor = tuple[str, ...]
"""For each class, the highest first, a stamp before which no job is queued; empty where that is not known."""

_NONE: Floor = ("",) * len(PRIORITIES)


class Floors(NamedTuple):
    """What is known of some names, and of all (``ANY``)."""

    known: dict[str, Floor]
    read: dict[str, str]
    """When each was read last, or asked for first."""

    def of(self, name: str) -> Floor:
        """Return the floors of a name."""
        return self.known.get(name, _NONE)

    def to_raise(self, names: Iterable[str], now: str) -> list[str]:
        """Return the names that are worth a read: they were asked for before, and not read for a while."""
        old = after_seconds(now, -RAISED_EVERY_S)
        found = []
        for name in names:
            read = self.read.setdefault(name, now)
            if read <= old or read > now:
                found.append(name)
        return found

    def raised(self, firsts: Mapping[str, Sequence[str | None]], now: str) -> None:
        """Note the nextRun of the first job in each class of some names, None where there is none."""
        if len(self.read) > FLOORS_KEPT_MAX:
            self.forget()
        highest = after_seconds(now, -BEHIND_S)
        for name, stamps in firsts.items():
            self.known[name] = tuple(min(stamp or highest, highest) for stamp in stamps)
            self.read[name] = now

    def lower(self, name: str, next_run: str, priority: int | None = None) -> None:
        """Note a job that is queued; without a ``priority``, one of any class."""
        for key in (name, ANY):
            floor = self.known.get(key)
            if floor is not None and next_run < max(floor):
                self.known[key] = tuple(
                    min(stamp, next_run) if priority in (None, one) else stamp
                    for stamp, one in zip(floor, PRIORITIES, strict=True)
                )

    def forget(self) -> None:
        """Know nothing."""
        self.known.clear()
        self.read.clear()
