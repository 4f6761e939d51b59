"""How the values of options are typed: durations, moments, words, and text that may come from a file.

Nothing here knows a command; what a value means is decided by the command's class.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import sys
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import click

from bedrockjobs.base import duration
from bedrockjobs.base.command_line import WholeNumber
from bedrockjobs.base.config import DURATION_S_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.duration import duration_text, seconds_of

__all__ = [
    "FILE_BYTES_MAX", "Duration", "Modifier", "Moment", "Size", "TextOrFile", "WholeNumber", "Words",
    "current_user", "duration_text", "read_source",
]  # fmt: skip

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
            self.fail(f"expected {duration.WORDS}, got {value!r}", param, ctx)
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
