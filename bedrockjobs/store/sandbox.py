"""A sandboxed read-only connection with a deadline, and the process that runs the SQL of Query with it.

An authorizer allows only SELECT, and time and size are limited. The module imports only the lowest layer of
the package, so that Query processes start quickly.
"""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import sys
from contextlib import closing
from itertools import islice
from math import inf
from typing import Any, BinaryIO, NamedTuple

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, TimedOut, Unavailable
from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS, give_way, rest

CLOCK = SystemClock()
"""The clock of deadlines."""

WORDS_MAX = 500
"""Maximum number of characters of a database's error message, which may quote a name as long as the query."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

_ABOUT_THE_DISK = ("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_PROTOCOL")
"""Prefixes of the names of errors that are caused by the disk or another process, not by the query."""


class _BoundedCursor(sqlite3.Cursor):
    """A cursor that stops fetching when the rows exceed ``SandboxedConnection.bytes_max``."""

    connection: SandboxedConnection

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        rows: list[Any] = []
        left = self.connection.bytes_max
        for row in islice(self, size):
            rows.append(row)
            left -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if left < 0:
                self.connection.cut = True
                break
        return rows


class SandboxedConnection(sqlite3.Connection):
    """A read-only connection with a deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Open with the arguments of ``sqlite3.connect``, in the thread that will run the statements."""
        super().__init__(*args, **kwargs)
        self._cpu = CLOCK.thread_cpu()
        self._cpu_max = self._deadline = inf
        self.bytes_max = 0
        """Bytes of text and blobs in the rows of a statement beyond which no further row is fetched."""
        self.cut = False
        """Whether rows of the last statement were not fetched because of ``bytes_max``."""
        self.execute("PRAGMA query_only = ON")
        self.execute("PRAGMA temp_store = MEMORY")
        # Maximum size of a value in SQL: above that of the largest data, or of a few of them joined.
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.execute("SELECT 1 FROM json_each('[]')").close()  # its first use writes to the schema
        self.set_authorizer(_authorize)
        self.set_progress_handler(self._late, STEPS_BETWEEN_RESTS)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute a statement; its cursor stops fetching when the rows exceed ``bytes_max``."""
        return self.cursor(_BoundedCursor).execute(sql, parameters)

    def limit(self, cpu_s: float, wall_s: float, bytes_max: int) -> None:
        """Limit the next statement: its CPU time and elapsed time in seconds, and the size of its rows."""
        self._cpu_max = self._cpu() + cpu_s
        self._deadline = CLOCK.monotonic() + wall_s
        self.bytes_max = bytes_max
        self.cut = False

    def unlimit(self) -> None:
        """Remove the limits of time."""
        self._cpu_max = self._deadline = inf

    def _late(self) -> int:
        rest()
        return int(self._cpu() > self._cpu_max or CLOCK.monotonic() > self._deadline)


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if two in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the file is damaged or not a database.

    Errors of virtual tables do not count, since a query can cause them.
    """
    name = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_NOTADB" or (name.startswith("SQLITE_CORRUPT") and name != "SQLITE_CORRUPT_VTAB")


def in_one_line(message: str) -> str:
    """Return the error message of a database in one line, cut after ``WORDS_MAX`` characters."""
    text = " ".join(message.split())
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}…"


def refusal(error: Exception) -> CommandError:
    """Return the error reply for a failed statement."""
    name = getattr(error, "sqlite_errorname", "")
    text = in_one_line(str(error))
    if name == "SQLITE_INTERRUPT":
        return TimedOut("Timeout", "query: it took too long")
    if is_damage(error) or name.startswith(_ABOUT_THE_DISK):
        return Unavailable("Disk error", f"the database cannot be read: {text} ({name})")
    if isinstance(error, MemoryError):
        return BadQuery("Query aborted", "query: expected a SELECT that takes less memory")
    if name in ("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_TOOBIG", "SQLITE_NOMEM") or "prohibited" in text:
        return BadQuery("Query aborted", f"query: expected a SELECT within the limits: {text}")
    return BadArguments("Bad query", text)


# The process, which can be killed whatever the SQL does.
#
# It reads a line with its limits from stdin, then one line for each Query. It answers a Query on stdout with
# a line of JSON, followed by the rows as text. A timer kills the process when a Query takes too long, and the
# process exits at the end of stdin. It runs in an isolated interpreter. The pool is in ``queries``.


IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a supervisor sends to all processes of a service; only the server handles them."""

READY: dict[str, Any] = {"ready": True}
"""The first answer: the database is open."""

_JSON_COLUMNS = frozenset({"data", "memory", "options"})
"""Columns with JSON objects, which are embedded verbatim."""


class Limits(NamedTuple):
    """The database, and the limits of each Query."""

    database: str
    """The database as a URI."""
    seconds: float
    """Seconds after which SQLite is interrupted."""
    seconds_max: float
    """Seconds after which the process is killed."""
    memory_bytes: int
    """Maximum address space of the process."""
    rows: int
    """Maximum number of rows of an answer."""
    bytes: int
    """Maximum size of an answer."""
    levels: int
    """Maximum nesting depth of a JSON object that is embedded in an answer verbatim."""


def serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer Queries until the end of the input."""
    limits = Limits(**json.loads(asked.readline()))
    give_way()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    with closing(
        sqlite3.connect(limits.database, uri=True, factory=SandboxedConnection, isolation_level=None)
    ) as found:
        _say(answers, READY)
        for line in asked:
            sql, form = json.loads(line)
            signal.setitimer(signal.ITIMER_REAL, limits.seconds_max)
            head, body = _answered(found, limits, sql, form)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _say(answers, head, body)
            if head.get("leaves"):
                return


def _say(answers: BinaryIO, head: dict[str, Any], body: bytes = b"") -> None:
    answers.write(json.dumps({**head, "bytes": len(body)}).encode() + b"\n" + body)
    answers.flush()


def _answered(
    connection: SandboxedConnection, limits: Limits, sql: str, form: str
) -> tuple[dict[str, Any], bytes]:
    try:
        return {}, _rows(connection, limits, sql, form).encode(errors="replace")
    except CommandError as error:
        refused = error
    except MemoryError as error:  # the process exits to free its memory
        return {**_head(refusal(error)), "leaves": True}, b""
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        refused = refusal(error)
        if is_damage(error):
            return {**_head(refused), "damage": refused.detail}, b""
    return _head(refused), b""


def _head(error: CommandError) -> dict[str, Any]:
    return {"refused": (error.code, error.reason, error.detail)}


def _rows(connection: SandboxedConnection, limits: Limits, sql: str, form: str) -> str:
    """Run one SELECT and return its rows as text; raises CommandError, and the errors of SQLite."""
    connection.limit(limits.seconds, limits.seconds, limits.bytes)
    with closing(connection.execute(sql)) as cursor:
        rows = cursor.fetchmany(limits.rows + 1)
        names = [column[0] for column in cursor.description or ()]
    if not names:
        raise BadQuery("Query aborted", "query: expected a SELECT")
    if len(rows) > limits.rows:
        raise BadQuery("Too many rows", f"query: expected at most {limits.rows} rows; use LIMIT")
    body = "" if connection.cut else rendered(names, rows, form, limits.levels)
    if connection.cut or len(body.encode(errors="replace")) > limits.bytes:
        raise BadQuery("Answer too large", f"query: expected at most {limits.bytes} bytes; use LIMIT")
    return body


# --- rows as text ----------------------------------------------------------------------------------------


def rendered(names: list[str], rows: list[tuple[Any, ...]], form: str, levels: int) -> str:
    """Return rows as text: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines.

    A JSON object in a data column is embedded verbatim if it nests at most ``levels`` deep.
    """
    if form == "text":
        lines = ["|".join(names), *("|".join(_plain(value) for value in row) for row in rows)]
        return "\n".join(lines) + "\n"
    embedded = [levels if name in _JSON_COLUMNS else 0 for name in names]
    arrays = ",".join(
        f"[{','.join(_json(value, most) for value, most in zip(row, embedded, strict=True))}]" for row in rows
    )
    return f"[{arrays}]" if form == "rows" else f'{{"headers":{_dump(names)},"rows":[{arrays}]}}'


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json(value: Any, levels: int) -> str:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "null"
    if levels and isinstance(value, str) and value.startswith("{") and _is_object(value, levels):
        return value
    return _dump(value)


def _is_object(text: str, levels: int) -> bool:
    try:
        return _levels(json.loads(text, parse_constant=_no_number)) <= levels
    except (ValueError, RecursionError):
        return False


def _no_number(word: str) -> None:
    raise ValueError(word)


def _levels(value: Any) -> int:
    """Return the nesting depth of a value."""
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value.hex() if isinstance(value, bytes) else str(value)


def main() -> None:
    """Serve on stdin and stdout."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    serve(sys.stdin.buffer, sys.stdout.buffer)
