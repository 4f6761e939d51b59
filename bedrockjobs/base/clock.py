"""The one source of time. Nothing else in the project asks the operating system what time it is.

A moment is an aware UTC datetime; the database and the wire carry it as text (``wire.timestamp``).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """What the server needs to know of time."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow, for measuring how long something took or may take."""
        ...

    def ahead_s(self) -> float:
        """Return how far the date is ahead of the monotonic seconds: it changes where the clock is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Return the machine's monotonic seconds, without a function around it: a commit asks six times."""

    def thread_cpu(self) -> Callable[[], float]:
        """Return what tells, in any thread, the seconds of processor time that this thread has used.

        It raises OSError once this thread has ended.
        """
        return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))

    def ahead_s(self) -> float:
        """Return how far the machine's date is ahead of its monotonic seconds."""
        return time.time() - time.monotonic()


class AlignedClock(SystemClock):
    """A clock that follows one elsewhere: the date is that one's, the seconds are the machine's own.

    Servers of one database so agree on the date, whatever their machines say.
    """

    def __init__(self) -> None:
        """Begin with the machine's date."""
        self._ahead_s = super().ahead_s()

    def now(self) -> datetime:
        """Return the present moment of the clock that is followed, in UTC."""
        return datetime.fromtimestamp(time.monotonic() + self._ahead_s, UTC)

    def ahead_s(self) -> float:
        """Return how far that date is ahead of the machine's monotonic seconds."""
        return self._ahead_s

    def align(self, moment: datetime, asked: float, answered: float) -> None:
        """Follow a clock that showed ``moment`` at some time between two of ``monotonic``.

        What is no further off than that could be by chance leaves the clock as it is.
        """
        ahead_s = moment.timestamp() - (asked + answered) / 2
        if abs(ahead_s - self._ahead_s) > (answered - asked) / 2:
            self._ahead_s = ahead_s


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime) -> None:
        """Start at ``start``, an aware datetime."""
        self._start = self._now = start
        self._ahead_s = 0.0

    def now(self) -> datetime:
        """Return the moment the clock was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds the clock was moved since its start."""
        return (self._now - self._start).total_seconds()

    def ahead_s(self) -> float:
        """Return by how much the clock was set."""
        return self._ahead_s

    def set_to(self, moment: datetime) -> None:
        """Set the clock, as somebody may set a machine's: the date changes, the monotonic seconds do not."""
        self._ahead_s += (moment - self._now).total_seconds()
        self._start += moment - self._now
        self._now = moment

    def move_to(self, moment: datetime) -> None:
        """Move the clock to a moment."""
        self._now = moment

    def advance(self, seconds: float) -> None:
        """Move the clock; a negative number moves it back, as a machine's clock may."""
        self._now += timedelta(seconds=seconds)


class StandingClock(ManualClock):
    """The clock of ``serve --test-clock``: its date stands still until it is moved, waits pass as ever."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()


# Lengths of time as people type them: ``90s``, ``5m``, ``1h30m``, ``2d``, ``+90 SECONDS``, ``90``.


WORDS = "a duration like 90s, 5m, 1h30m or +90 SECONDS, or a number of seconds"

_SHORT = re.compile(
    r"(?=.*[0-9])(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,6})?)s?)?",
    re.ASCII,
)
_LONG = re.compile(r"\+ ?(\d{1,9}) (second|minute|hour|day)s?", re.ASCII)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


DAY_S = 86_400


def days_text(seconds: float) -> str:
    """Return seconds as a person types a long duration: ``30d`` where they are whole days, else ``1h30m``."""
    return f"{seconds // DAY_S:.0f}d" if seconds and seconds % DAY_S == 0 else duration_text(seconds)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration, or None where it is none."""
    text = " ".join(text.lower().split())
    if long := _LONG.fullmatch(text):
        return float(int(long[1]) * _SECONDS[long[2][0]])
    found = _SHORT.fullmatch(text)
    if found is None:
        return None
    return sum(float(number) * _SECONDS[unit] for unit, number in found.groupdict().items() if number)


def duration_text(seconds: float) -> str:
    """Return seconds as a duration is typed: ``1h30m``, ``2.5s``."""
    whole, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"
