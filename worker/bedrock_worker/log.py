"""The worker's log: one line per event, with fixed keys, on stderr.

Texts of jobs and commands are escaped, so that they can neither forge a line nor control a terminal.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TextIO

from bedrockjobs.observe.logs import TextLines

LOG = logging.getLogger("bedrock_worker")

_PLAIN = re.compile(r"[^\s\"=]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def start_logging(form: str = "text") -> None:
    """Start logging to stderr, as lines of text or as ``json``."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # unused by the formats
    logging._srcfile = None  # unused by the formats
    handler = _Lines()
    handler.setFormatter(WorkerJSONRenderer() if form == "json" else TextLines())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to stderr with less overhead than its base class, since every job logs three lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the log line of a record."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            self.stream.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)


class WorkerJSONRenderer(logging.Formatter):
    """Formats events as JSON objects: ``ts``, ``level``, ``source``, ``event``, then the event's own keys."""

    def __init__(self) -> None:
        """Create the formatter; it formats timestamps as the text log does."""
        super().__init__()
        self._moments = TextLines()

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line of a record."""
        keys = {
            key: value if isinstance(value, (int, float)) else str(value)
            for key, value in getattr(record, "keys", {}).items()
            if value is not None
        }
        if record.exc_info:
            keys["stack"] = self.formatException(record.exc_info)
        what = getattr(record, "what", None) or record.getMessage()
        line = {
            "ts": self._moments.formatTime(record),
            "level": record.levelname.lower(),
            "source": record.name,
            "event": what,
            **keys,
        }
        return json.dumps(line, separators=(",", ":"))


def printable(text: str) -> str:
    """Return a text with control characters escaped, except tabs."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def event(level: int, title: str, **keys: object) -> None:
    """Log an event: its name, then ``key=value`` for each key whose value is not None."""
    if LOG.isEnabledFor(level):
        parts = [f"{key}={_value(value)}" for key, value in keys.items() if value is not None]
        text = " ".join([title, *parts])
        # Without arguments, ``%`` in the text has no effect; the log shows no code locations.
        record = logging.LogRecord(LOG.name, level, "", 0, text, None, None)
        record.__dict__.update(what=title, keys=keys)  # only used by the JSON format
        LOG.handle(record)


def _value(value: object) -> str:
    if isinstance(value, int) or (isinstance(value, str) and value.isalnum()):
        return str(value)
    text = printable(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
