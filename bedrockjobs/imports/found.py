"""Imported definitions, and when they fire in the other system and here."""

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
"""Locations of one name shown in a message."""

QUOTED_CHARS_MAX = 40
"""Characters of a file shown in a message."""


class Unreadable(ValueError):
    """A text cannot be parsed; the message has the location and what was expected."""


class ImportedSchedule(NamedTuple):
    """A definition of another system and its equivalent here."""

    name: str
    place: str
    """Its location: ``line 3``, ``job noop``."""
    said: str
    """Its original schedule."""
    expression: str = ""
    """Its cron expression here; empty if it is refused or repeats after the end of a run."""
    zone: str = "UTC"
    old: Schedule | None = None
    """The original schedule, parsed, in ``zone``; None if it has no ticks."""
    repeat_after: str = ""
    """Instead of ``expression``: a repeat after the end of a run, ``FINISHED, +10 SECONDS``."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Job options, by their names in a definitions file."""
    paused: bool = False
    warnings: tuple[str, ...] = ()
    refused: str = ""
    """Why it cannot be imported; empty if it can."""

    @property
    def repeat(self) -> str:
        """Return the ``repeat`` for CreateJob; empty if refused."""
        if not self.expression or self.refused:
            return "" if self.refused else self.repeat_after
        return f"CRON {self.expression}" if self.zone == "UTC" else f"CRON TZ={self.zone} {self.expression}"

    @property
    def differs(self) -> bool:
        """Tell whether it fires at different times here."""
        if self.old is None or not self.expression or self.refused:
            return False
        return not same_schedule(self.old, cron.parse(self.expression))

    def old_times(self, after: datetime, count: int) -> list[datetime]:
        """Return its next ticks in the other system, in UTC."""
        return _times(self.old, self.zone, after, count)

    def our_times(self, after: datetime, count: int) -> list[datetime]:
        """Return its next ticks here, in UTC."""
        if not self.expression or self.refused:
            return []
        return _times(cron.parse(self.expression), self.zone, after, count)

    def with_reading(self, old: Schedule, expression: str, notes: Iterable[str]) -> ImportedSchedule:
        """Return it with both schedules, and a warning for each note."""
        found = self._replace(old=old, expression=expression)
        return found.with_warning(*(f"{note}; written so" for note in notes))

    def with_warning(self, *warnings: str) -> ImportedSchedule:
        """Return it with additional warnings."""
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
    """Raise Unreadable if a text is too long."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise Unreadable(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")


def check_count(found: Sequence[object], place: str) -> None:
    """Raise Unreadable if there are more definitions than one source may have."""
    if len(found) > SCHEDULES_PER_SYNC_MAX:
        raise Unreadable(f"{place}: expected at most {SCHEDULES_PER_SYNC_MAX} schedules")


def shortened(text: str) -> str:
    """Return a part of a file for a message: quoted, and truncated if it is long."""
    return repr(text if len(text) <= QUOTED_CHARS_MAX else f"{text[:QUOTED_CHARS_MAX]}...")


def once(found: list[ImportedSchedule]) -> list[ImportedSchedule]:
    """Refuse definitions with the same name, listing their locations."""
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
    """Make names unique by appending ``-2``, ``-3``, ... to duplicates."""
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
