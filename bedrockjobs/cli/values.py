"""How the values of options are typed: durations, moments, words, and text that may come from a file.

Nothing here knows a command; what a value means is decided by the command's class.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import sys
from collections.abc import Callable
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from bedrockjobs.base import clock
from bedrockjobs.base.clock import seconds_of
from bedrockjobs.base.config import DURATION_S_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.wire import timestamp

F = TypeVar("F", bound=Callable[..., Any])

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Size of a file given as a value: a server's default limit of a whole request."""

_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)


class Duration(click.ParamType[float]):
    """A duration, given as seconds to the command."""

    name = "duration"

    def __init__(self, *, whole: bool = False) -> None:
        """With ``whole`` refuse parts of a second."""
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds of what was typed."""
        seconds = value if isinstance(value, (int, float)) else seconds_of(str(value))
        if seconds is None:
            self.fail(f"expected {clock.WORDS}, got {value!r}", param, ctx)
        if self.whole and seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """A number of bytes, as such or in thousands, millions, ...: 1000000000, 10M, 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes of what was typed."""
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"expected bytes, such as 500000, 500k, 10M or 1G, got {value!r}", param, ctx)
        return int(found[1]) * int(1_000 ** " kmgt".index(found[2].lower() or " "))


class Modifier(click.ParamType[str]):
    """A time span in SQLite's words (``+5 MINUTES``), or a duration that is turned into them."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the span in SQLite's words; what is no duration is left for the server to judge."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None or text.lstrip().startswith("+"):
            return text
        if seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return f"+{int(seconds)} SECONDS"


class Moment(click.ParamType["str | timedelta"]):
    """A moment as the server reads it, or a duration from now: whose now is for the command to say."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | timedelta:
        """Return a duration as such; what is none is left for the command's class to judge."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None:
            return text
        if seconds > DURATION_S_MAX:
            self.fail(f"expected at most {DURATION_S_MAX} seconds from now, got {value!r}", param, ctx)
        return timedelta(seconds=seconds)


class Words(click.ParamType[str]):
    """A program with its arguments: quoted as for a shell, or a JSON array. No shell sees them."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the words as a JSON array; nothing where there are none."""
        text = str(value)
        if not text.strip() or text.lstrip().startswith("["):
            return text.strip()
        try:
            return json.dumps(shlex.split(text), ensure_ascii=False)
        except ValueError as error:
            self.fail(f"expected words quoted as for a shell, or a JSON array: {error}", param, ctx)


class TextOrFile(click.ParamType[str]):
    """Text as typed, ``@file`` for what a file holds, ``-`` for what comes on stdin."""

    name = "text|@file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text itself."""
        text = str(value)
        if text != "-" and not text.startswith("@"):
            return text
        try:
            return read_source("-" if text == "-" else text[1:])
        except ValueError as error:
            self.fail(str(error), param, ctx)


def current_user() -> str:
    """Return the name of who runs this; empty where the system knows none."""
    try:
        return getpass.getuser()[:WORKER_CHARS_MAX]
    except (OSError, KeyError):
        return ""


def read_source(name: str) -> str:
    """Return the text of a file, or of stdin for ``-``, without its last line end.

    Raises ValueError with a sentence where it cannot be read, is too large or is not UTF-8.
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
"""Words for the beginning of a day."""

SINCE_WORDS = "yesterday, today, a time ago like 2h, or a day like 2026-11-22"

Given = timedelta | datetime | str
"""A time ago, a moment (without a zone: by this machine's clock), or a word of ``DAYS_AGO``."""


class Since(click.ParamType[Given]):
    """A moment in the past."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Given:
        """Return what was meant; the moment itself needs a server's clock (``since_timestamp``)."""
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
            self.fail(f"expected {SINCE_WORDS}, got {value!r}", param, ctx)


def since_timestamp(given: Given, now: datetime, option: str = "--since") -> str:
    """Return a moment as the server stores them; days begin by this machine's clock.

    Raises click.UsageError for what lies before the years there are.
    """
    try:
        if isinstance(given, timedelta):
            return timestamp(now - given)
        if isinstance(given, str):
            day = now.astimezone().date() - timedelta(days=DAYS_AGO[given])
            given = datetime.combine(day, time())
        return timestamp(given.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"{option}: expected {SINCE_WORDS}") from None


def since_option(what: str, name: str = "since", **more: Any) -> Callable[[F], F]:
    """Return --since; ``what`` begins its help: ``Only runs that began since``."""
    return click.option(
        "--since", name, type=Since(), metavar="WHEN", help=f"{what} then: {SINCE_WORDS}.", **more
    )
