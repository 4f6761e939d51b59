"""How the values of options are typed: durations, and text that may come from a file.

Nothing here knows a command; what a value means is decided by the command's class.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import IO, Any

import click

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Size of a file given as a value: a server's default limit of a whole request."""

_DURATION = re.compile(
    r"(?=.*[0-9])(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,6})?)s?)?",
    re.ASCII,
)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

DURATION_WORDS = "a duration like 90s, 5m or 1h30m, or a number of seconds"


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration like ``90s``, ``5m``, ``1h30m`` or ``2.5``; None where it is none."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        return None
    return sum(float(number) * _SECONDS[unit] for unit, number in found.groupdict().items() if number)


def duration_text(seconds: float) -> str:
    """Return seconds as a duration is typed: ``1h30m``, ``2.5s``."""
    whole, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"


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
            self.fail(f"expected {DURATION_WORDS}, got {value!r}", param, ctx)
        if self.whole and seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return seconds


class Modifier(click.ParamType[str]):
    """A time span in SQLite's words (``+5 MINUTES``), or a duration that is turned into them."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the span in SQLite's words; what is no duration is left for the server to judge."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None:
            return text
        if seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return f"+{int(seconds)} SECONDS"


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
