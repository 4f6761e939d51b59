"""The worker's log: one line per event, with fixed keys, on stderr. Knows nothing of jobs.

Whatever a job or a command says is escaped, so that it can neither forge a line nor steer a terminal.
"""

from __future__ import annotations

import json
import logging
import re

LOG = logging.getLogger("bedrock_worker")

_PLAIN = re.compile(r"[^\s\"=]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def begin() -> None:
    """Write the log to stderr from now on."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # no line says them
    logging._srcfile = None  # nor where in the code it is from
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


class LogFormatter(logging.Formatter):
    """Lines that begin with the time and the level; what is the same within a second is made once."""

    def __init__(self) -> None:
        """Format as ``%(asctime)s %(levelname)s %(message)s`` would."""
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    _second = -1
    _stamp = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what is more than one goes the usual way."""
        if record.args is None and record.exc_info is None:
            return f"{self.formatTime(record)} {record.levelname} {record.msg}"
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the local time with its milliseconds, as any formatter gives it."""
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._stamp = super().formatTime(record, datefmt).partition(",")[0]
        return f"{self._stamp},{int(record.msecs):03}"


def printable(text: str) -> str:
    """Return a text with its control characters escaped; the tab stays."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def event(level: int, what: str, **keys: object) -> None:
    """Log one event: what happened, then ``key=value`` for each key whose value is not None."""
    if LOG.isEnabledFor(level):
        parts = [f"{key}={_value(value)}" for key, value in keys.items() if value is not None]
        text = " ".join([what, *parts])
        # Without arguments a text is taken as it is; nobody asks for the place in the code.
        LOG.handle(logging.LogRecord(LOG.name, level, "", 0, text, None, None))


def _value(value: object) -> str:
    if isinstance(value, int) or (isinstance(value, str) and value.isalnum()):
        return str(value)
    text = printable(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
