"""What a reader found in another system's definitions, and when that would fire there and here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from bedrockjobs.base.config import SCHEDULE_FILE_CHARS_MAX, SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports.rewrite import same_schedule
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import Schedule
from bedrockjobs.schedule.cron.zones import find_zone, next_moment

PLACES_SHOWN_MAX = 5
"""Places of one name that a message shows."""

QUOTED_CHARS_MAX = 40
"""Characters of a file that a message shows."""


class Unreadable(ValueError):
    """The whole text cannot be read; the message says where and what was expected."""


class Found(NamedTuple):
    """One definition of another system and what it becomes here."""

    name: str
    place: str
    """Where it stands: ``line 3``, ``job noop``."""
    said: str
    """Its schedule as the other system has it."""
    expression: str = ""
    """Its schedule in our words; empty where it is refused or follows the end of its last run."""
    zone: str = "UTC"
    old: Schedule | None = None
    """Its schedule as the other system understands it, in ``zone``; None where it has no ticks there."""
    repeat_after: str = ""
    """In place of ``expression``: a repeat that counts from the end of a run, ``FINISHED, +10 SECONDS``."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of ours by their names in a definitions file."""
    paused: bool = False
    warnings: tuple[str, ...] = ()
    refused: str = ""
    """Why it cannot be a schedule of ours; empty where it can."""

    @property
    def repeat(self) -> str:
        """Return what CreateJob takes as ``repeat``; empty where it is refused."""
        if not self.expression or self.refused:
            return "" if self.refused else self.repeat_after
        return f"CRON {self.expression}" if self.zone == "UTC" else f"CRON TZ={self.zone} {self.expression}"

    @property
    def differs(self) -> bool:
        """Tell whether it fires here at other times than there."""
        if self.old is None or not self.expression or self.refused:
            return False
        return not same_schedule(self.old, cron.parse(self.expression))

    def old_times(self, after: datetime, count: int) -> list[datetime]:
        """Return its next times in the other system, after an aware moment, in UTC."""
        return _times(self.old, self.zone, after, count)

    def our_times(self, after: datetime, count: int) -> list[datetime]:
        """Return its next times here, in UTC."""
        if not self.expression or self.refused:
            return []
        return _times(cron.parse(self.expression), self.zone, after, count)

    def with_reading(self, old: Schedule, expression: str, notes: Iterable[str]) -> Found:
        """Return it with its schedule there, its expression here, and a warning for each note."""
        found = self._replace(old=old, expression=expression)
        return found.with_warning(*(f"{note}; written so" for note in notes))

    def with_warning(self, *warnings: str) -> Found:
        """Return it with more warnings."""
        return self._replace(warnings=(*self.warnings, *warnings))


def _times(schedule: Schedule | None, zone: str, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    if schedule is None:
        return found
    clock = find_zone(schedule.zone or zone)
    at: datetime | None = after
    while len(found) < count and at is not None:
        at = next_moment(schedule, at, clock)
        if at is not None:
            found.append(at)
    return found


def check_size(text: str) -> None:
    """Raise Unreadable for a text that is too long to be read."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise Unreadable(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")


def check_count(found: Sequence[object], place: str) -> None:
    """Raise Unreadable where there are more definitions than one source can have."""
    if len(found) > SCHEDULES_PER_SYNC_MAX:
        raise Unreadable(f"{place}: expected at most {SCHEDULES_PER_SYNC_MAX} schedules")


def shortened(text: str) -> str:
    """Return a part of the file as a message shows it: quoted, and not longer than is good to read."""
    return repr(text if len(text) <= QUOTED_CHARS_MAX else f"{text[:QUOTED_CHARS_MAX]}...")


def once(found: list[Found]) -> list[Found]:
    """Refuse all that share a name, with the places of each: nobody can tell which of them was meant."""
    places: dict[str, list[str]] = {}
    for entry in found:
        places.setdefault(entry.name, []).append(entry.place)
    return [
        entry if len(places[entry.name]) == 1 else entry._replace(refused=_twice(places[entry.name]))
        for entry in found
    ]


def _twice(places: list[str]) -> str:
    more = len(places) - PLACES_SHOWN_MAX
    shown = [*places[:PLACES_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])]
    return f"{', '.join(shown[:-1])} and {shown[-1]} have one name: expected a name once"


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names with ``-2``, ``-3``, ... behind those that came before."""
    found: list[str] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        free = name
        while free in taken:
            number = numbers.get(name, 2)
            free, numbers[name] = f"{name}-{number}", number + 1
        taken.add(free)
        found.append(free)
    return found
