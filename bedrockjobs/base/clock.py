"""The clock, which is the only source of time, and the text forms of timestamps and durations.

No other module asks the operating system for the time. Times are aware UTC datetimes; the database and the
wire carry them as text (``timestamp``).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from bedrockjobs.base.config import BACKOFF_S_DEFAULT, BACKOFF_S_MAX_DEFAULT


class Clock(Protocol):
    """The time functions that the server needs."""

    def now(self) -> datetime:
        """Return the current time in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for measuring durations."""

    def ahead_s(self) -> float:
        """Return wall-clock seconds minus monotonic seconds; the value changes if the clock is set."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Return monotonic seconds. The attribute is ``time.monotonic`` itself, not a method that calls it,
    because each commit calls it six times."""

    def thread_cpu(self) -> Callable[[], float]:
        """Return a function that reports, from any thread, the CPU seconds used by the calling thread.

        It raises OSError once this thread has ended.
        """
        return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))

    def ahead_s(self) -> float:
        """Return wall-clock seconds minus monotonic seconds."""
        return time.time() - time.monotonic()


class AlignedClock(SystemClock):
    """A clock that shows another machine's date; its monotonic seconds are those of the local machine.

    Servers that share a database use it to agree on the date, whatever their own clocks show.
    """

    def __init__(self) -> None:
        """Start with the local date."""
        self._ahead_s = super().ahead_s()

    def now(self) -> datetime:
        """Return the current time of the other machine's clock, in UTC."""
        return datetime.fromtimestamp(time.monotonic() + self._ahead_s, UTC)

    def ahead_s(self) -> float:
        """Return the other machine's wall-clock seconds minus the local monotonic seconds."""
        return self._ahead_s

    def align(self, moment: datetime, asked: float, answered: float) -> None:
        """Follow a clock that showed ``moment`` between ``asked`` and ``answered``, in monotonic seconds.

        A difference that may be due to the uncertainty of this measurement leaves the clock unchanged.
        """
        ahead_s = moment.timestamp() - (asked + answered) / 2
        if abs(ahead_s - self._ahead_s) > (answered - asked) / 2:
            self._ahead_s = ahead_s


class ManualClock:
    """A clock that advances only when a test moves it."""

    def __init__(self, start: datetime) -> None:
        """Start at an aware datetime."""
        self._start = self._now = start
        self._ahead_s = 0.0

    def now(self) -> datetime:
        """Return the time that the clock was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds by which the clock has advanced since its start."""
        return (self._now - self._start).total_seconds()

    def ahead_s(self) -> float:
        """Return the seconds by which ``set_to`` has set the clock ahead."""
        return self._ahead_s

    def set_to(self, moment: datetime) -> None:
        """Set the clock, as an operator may set a machine's: the date changes, monotonic seconds do not."""
        self._ahead_s += (moment - self._now).total_seconds()
        self._start += moment - self._now
        self._now = moment

    def move_to(self, moment: datetime) -> None:
        """Move the clock to a time."""
        self._now = moment

    def advance(self, seconds: float) -> None:
        """Advance the clock; a negative number moves it back, as can happen on a machine."""
        self._now += timedelta(seconds=seconds)


class StandingClock(ManualClock):
    """The clock of ``serve --test-clock``: only commands move its date, monotonic seconds run on."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()


# Durations as people type them: ``90s``, ``5m``, ``1h30m``, ``2d``, ``+90 SECONDS``, ``90``.


WORDS = "a duration like 90s, 5m, 1h30m or +90 SECONDS, or a number of seconds"

_SHORT = re.compile(
    r"(?=.*[0-9])(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,6})?)s?)?",
    re.ASCII,
)
_LONG = re.compile(r"\+ ?(\d{1,9}) (second|minute|hour|day)s?", re.ASCII)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


DAY_S = 86_400


# Timestamps.


SECONDS = len("2026-11-21 03:29:56")
"""Length of a timestamp without a fraction of a second, in characters."""


def timestamp(moment: datetime) -> str:
    """Return the timestamp of a datetime, as in the database and on the wire: ``2026-11-21 03:29:56``."""
    return moment.isoformat(" ", "seconds")[:SECONDS]


def timestamp_ms(moment: datetime) -> str:
    """Return the timestamp of a datetime with milliseconds: ``2026-11-21 03:29:56.332``."""
    return moment.isoformat(" ", "milliseconds")[:23]


def after_seconds(moment: str, seconds: float) -> str:
    """Return the timestamp ``seconds`` after ``moment``, limited to the years 1 to 9999."""
    try:
        return timestamp_ms(moment_of(moment) + timedelta(seconds=seconds)).removesuffix(".000")
    except OverflowError:
        return "9999-12-31 23:59:59" if seconds > 0 else "0001-01-01 00:00:00"


def retry_after_s(backoff_s: int | None, max_backoff_s: int | None, count: int) -> int:
    """Return the seconds before retry number ``count``, from 1: ``backoff_s``, doubled each time to a limit.

    A server adds a random part, so that jobs that failed together are not retried together.
    """
    first = BACKOFF_S_DEFAULT if backoff_s is None else backoff_s
    longest = max(BACKOFF_S_MAX_DEFAULT, first) if max_backoff_s is None else max_backoff_s
    return int(min(first * 2 ** min(count - 1, 40), longest))


def moment_of(text: str) -> datetime:
    """Return the aware UTC datetime of a stored timestamp."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Durations.


def days_text(seconds: float) -> str:
    """Return a duration in days (``30d``) if it is a whole number of days, else as ``duration_text`` does."""
    return f"{seconds // DAY_S:.0f}d" if seconds and seconds % DAY_S == 0 else duration_text(seconds)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration, or None if the text is not a duration."""
    text = " ".join(text.lower().split())
    if long := _LONG.fullmatch(text):
        return float(int(long[1]) * _SECONDS[long[2][0]])
    match = _SHORT.fullmatch(text)
    if match is None:
        return None
    return sum(float(number) * _SECONDS[unit] for unit, number in match.groupdict().items() if number)


def offset_seconds_of(text: str) -> float | None:
    """Return the seconds of an offset from now (``5m``, ``+5 MINUTES``, ``-24h``); None for any other text.

    A number without a sign needs a unit, since it may be meant as a date.
    """
    text = " ".join(text.split())
    signed = text[:1] in ("+", "-")
    length = text[1:].lstrip() if signed else text
    if not signed and length.replace(".", "").isdigit():
        return None
    seconds = seconds_of(f"+{length}" if " " in length else length)
    return -seconds if seconds is not None and text.startswith("-") else seconds


def span(seconds: float) -> str:
    """Return a duration as people read it, in at most two units: ``1 h 5 min``, ``12 ms``."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    remaining, parts = round(seconds), []
    for size, unit in _UNITS:
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def duration_text(seconds: float) -> str:
    """Return a duration as it is typed, such as ``1h30m`` or ``2.5s``."""
    whole, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"
