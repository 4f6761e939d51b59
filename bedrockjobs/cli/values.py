"""Types of option values: durations, timestamps, sizes, words, and text that may come from a file.

They do not depend on command classes, which validate the values further.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from bedrockjobs.base import clock
from bedrockjobs.base.clock import offset_seconds_of, seconds_of, timestamp
from bedrockjobs.base.config import DURATION_S_MAX, WORKER_CHARS_MAX

F = TypeVar("F", bound=Callable[..., Any])

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of a file whose content is the value of an option: a server's default limit for a request."""

_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)


class Duration(click.ParamType[float]):
    """A duration in seconds."""

    name = "duration"

    def __init__(self, *, whole: bool = False) -> None:
        """Accept a duration; with ``whole``, fractions of a second are refused."""
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds = value if isinstance(value, (int, float)) else seconds_of(str(value))
        if seconds is None:
            self.fail(f"expected {clock.WORDS}, got {value!r}", param, ctx)
        if self.whole and seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """A number of bytes, with or without a decimal unit: 1000000000, 10M, 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"expected bytes, such as 500000, 500k, 10M or 1G, got {value!r}", param, ctx)
        return int(match[1]) * int(1_000 ** " kmgt".index(match[2].lower() or " "))


class Modifier(click.ParamType[str]):
    """A date modifier of SQLite such as ``+5 MINUTES``, or a duration, which becomes such a modifier."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the modifier; a text that is not a duration is left for the server to validate."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None or text.lstrip().startswith("+"):
            return text
        if seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return f"+{int(seconds)} SECONDS"


class Moment(click.ParamType["str | timedelta"]):
    """A timestamp, or a time from now such as ``5m`` or ``-24h``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | timedelta:
        """Return a timedelta for a time from now, or else the text, which the command class validates."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None:
            seconds = offset_seconds_of(text)
        if seconds is None:
            return text
        if abs(seconds) > DURATION_S_MAX:
            self.fail(f"expected at most {DURATION_S_MAX} seconds from now, got {value!r}", param, ctx)
        return timedelta(seconds=seconds)


class CommandLine(click.ParamType[str]):
    """A program with its arguments, quoted as for a shell or as a JSON array; no shell is used."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the program and its arguments as a JSON array; empty if there are none."""
        text = str(value)
        if not text.strip() or text.lstrip().startswith("["):
            return text.strip()
        try:
            return json.dumps(shlex.split(text), ensure_ascii=False)
        except ValueError as error:
            self.fail(f"expected words quoted as for a shell, or a JSON array: {error}", param, ctx)


class TextOrFile(click.ParamType[str]):
    """Text, ``@file`` for the content of a file, or ``-`` for stdin."""

    name = "text|@file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        text = str(value)
        if text != "-" and not text.startswith("@"):
            return text
        try:
            return read_source("-" if text == "-" else text[1:])
        except ValueError as error:
            self.fail(str(error), param, ctx)


def current_user() -> str:
    """Return the name of the current user; empty if it is unknown."""
    try:
        return getpass.getuser()[:WORKER_CHARS_MAX]
    except (OSError, KeyError):
        return ""


def read_source(name: str) -> str:
    """Return the text of a file, or of stdin for ``-``, without its last line break.

    Raises ValueError if the text cannot be read, is too large or is not UTF-8.
    """
    label = "stdin" if name == "-" else name
    try:
        if name == "-":
            content = _read(sys.stdin.buffer, label)
        else:
            with Path(name).open("rb") as file:
                content = _read(file, label)
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"cannot read {label}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{label} is not UTF-8: byte {error.start} cannot be read") from None


def _read(file: IO[bytes], label: str) -> bytes:
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{label} is larger than {FILE_BYTES_MAX} bytes")
    return content


DAYS_AGO = {"today": 0, "yesterday": 1}
"""Words for a day, each with how many days ago it was; a word stands for the beginning of that day."""

DAY_FORMATS = "today, yesterday, or a day like 2026-11-22"


class DayParameter(click.ParamType["str | date"]):
    """A day in local time."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | date:
        """Return a word of ``DAYS_AGO`` or a date, which ``bounds_of`` turns into timestamps."""
        if isinstance(value, date) or value.strip().lower() in DAYS_AGO:
            return value if isinstance(value, date) else str(value.strip().lower())
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"expected {DAY_FORMATS}, got {value!r}", param, ctx)


def bounds_of(day: str | date, now: datetime) -> tuple[str, str]:
    """Return the timestamps at which a local day begins and ends.

    Raises click.UsageError if the day ends after the year 9999.
    """
    if isinstance(day, str):
        day = now.astimezone().date() - timedelta(days=DAYS_AGO[day])
    try:
        begin, end = (datetime.combine(each, time()) for each in (day, day + timedelta(days=1)))
        return timestamp(begin.astimezone(now.tzinfo)), timestamp(end.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"--on: expected {DAY_FORMATS}") from None


SINCE_FORMATS = "yesterday, today, a time ago like 2h, or a day like 2026-11-22"

PastTime = timedelta | datetime | str
"""A timedelta before now, a datetime (in local time unless it has a zone), or a word of ``DAYS_AGO``."""


class Since(click.ParamType[PastTime]):
    """A time in the past."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PastTime:
        """Return the parsed value, which ``since_timestamp`` turns into a timestamp."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # it was converted before
        text = value.strip().lower()
        if text in DAYS_AGO:
            return text
        seconds = seconds_of(text.removesuffix(" ago").removesuffix("ago"))
        if seconds is not None and seconds <= DURATION_S_MAX:
            return timedelta(seconds=seconds)
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"expected {SINCE_FORMATS}, got {value!r}", param, ctx)


def since_timestamp(since: PastTime, now: datetime, option: str = "--since") -> str:
    """Return a time in the past as a timestamp; a day begins at local midnight.

    Raises click.UsageError if the time is before the year 1.
    """
    try:
        if isinstance(since, timedelta):
            return timestamp(now - since)
        if isinstance(since, str):
            day = now.astimezone().date() - timedelta(days=DAYS_AGO[since])
            since = datetime.combine(day, time())
        return timestamp(since.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"{option}: expected {SINCE_FORMATS}") from None


def since_option(what: str, name: str = "since", **more: Any) -> Callable[[F], F]:
    """Return the option --since; its help begins with ``what``, such as ``Only runs that began since``."""
    return click.option(
        "--since", name, type=Since(), metavar="WHEN", help=f"{what} then: {SINCE_FORMATS}.", **more
    )
