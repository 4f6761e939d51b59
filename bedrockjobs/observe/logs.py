"""Logging to stderr: lines for people, or one JSON object per event for programs.

The log contains no job data. Of an unexpected error, JSON has the class and the stack but not the message,
which may quote a client's input.
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
"""The keys of a JSON line. Each line has all of these keys in this order; an unused key has an empty
value."""


class TextLines(logging.Formatter):
    """Log lines that begin with timestamp and level, for the server and the worker.

    Timestamps are in UTC and say so: a user's module may change the time zone of the process, as Django does,
    and people compare the logs of several machines. The text of the current second is cached.
    """

    def __init__(self) -> None:
        """Use the format ``%(asctime)s %(levelname)s %(message)s``, in UTC."""
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    _second = -1
    _timestamp = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; the slower base class formats only records with arguments or errors."""
        if record.args is None and record.exc_info is None:
            return f"{self.formatTime(record)} {record.levelname} {record.msg}"
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the timestamp in RFC 3339, in UTC with milliseconds."""
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._timestamp = datetime.fromtimestamp(self._second, UTC).isoformat()[:19]
        return f"{self._timestamp}.{int(record.msecs):03}Z"


class JSONRenderer(logging.Formatter):
    """Log events as JSON objects, one per line.

    ``ts`` is a timestamp in RFC 3339, in UTC with milliseconds. ``level`` is a word such as ``info``,
    ``source`` the module, ``event`` the message, ``error`` the class of an error, and ``stack`` a list of its
    frames as ``file:line function``, the outermost first.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON line of a record."""
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


def sentence(form: LogFormat, source: str, text: str) -> str:
    """Return a line for stdout: the text itself, or in the JSON format a log event with the text.

    Many collectors merge stdout and stderr, and fail on lines that are not JSON.
    """
    if form == "text":
        return text
    return JSONRenderer().format(logging.LogRecord(source, logging.INFO, "", 0, text, None, None))


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _stack(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-20:]  # the innermost
    return [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def configure(form: LogFormat, stream: TextIO | None = None) -> None:
    """Log to ``stream``, stderr by default; replaces any earlier configuration."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JSONRenderer() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
