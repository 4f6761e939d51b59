"""The log on stderr: lines for people, or one JSON object an event for programs.

A line says what happened to the server. No job's data is in it: of an error that nobody expected, JSON shows
where it came from and of which kind it is, not its words, which may quote what a client sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]

KEYS = ("ts", "level", "source", "event", "error", "stack")
"""The keys of a JSON line, all of them in each, in this order; empty where there is nothing to say."""

FRAMES_MAX = 20
"""Innermost calls that a line shows of an error."""


class TextLines(logging.Formatter):
    """Lines that begin with the moment and the level, for the server and the worker.

    Moments are in UTC and say so: a user's module may set the time zone of its process, as Django does, and
    people compare several machines. What is the same within a second is made once.
    """

    def __init__(self) -> None:
        """Format as ``%(asctime)s %(levelname)s %(message)s`` does, but in UTC."""
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    _second = -1
    _timestamp = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; one that needs more goes the usual way."""
        if record.args is None and record.exc_info is None:
            return f"{self.formatTime(record)} {record.levelname} {record.msg}"
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the moment as RFC 3339 has it, in UTC with milliseconds."""
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._timestamp = datetime.fromtimestamp(self._second, UTC).isoformat()[:19]
        return f"{self._timestamp}.{int(record.msecs):03}Z"


class JSONLines(logging.Formatter):
    """Each event as a JSON object on one line.

    ``ts`` is RFC 3339 in UTC with milliseconds, ``level`` as in ``info``, ``source`` the module, ``event``
    the sentence, ``error`` the class of an error, ``stack`` its calls, the outermost first, as
    ``file:line function``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        error = record.exc_info[1] if record.exc_info else None
        values = (
            moment.replace("+00:00", "Z"),
            record.levelname.lower(),
            record.name,
            record.getMessage(),
            "" if error is None else _kind(error),
            [] if error is None else _stack(error),
        )
        return json.dumps(dict(zip(KEYS, values, strict=True)), separators=(",", ":"))


def sentence(form: LogFormat, source: str, words: str) -> str:
    """Return a line for stdout that says ``words``: alone, or in JSON as the log says them.

    Many collectors merge stdout and stderr, and would stumble over a line that is no JSON.
    """
    if form == "text":
        return words
    return JSONLines().format(logging.LogRecord(source, logging.INFO, "", 0, words, None, None))


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _stack(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def configure(form: LogFormat, stream: TextIO | None = None) -> None:
    """Write what the process logs to ``stream``, stderr if left out; replaces what was configured before."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JSONLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
