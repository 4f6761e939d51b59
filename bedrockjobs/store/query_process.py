"""A separate process that runs the SQL of Query, so that it can be killed whatever the SQL does.

It reads a line with its limits from stdin, then one line for each Query. It answers a Query on stdout with a
line of JSON, followed by the rows as text. A timer kills the process when a Query takes too long, and the
process exits at the end of stdin. It runs in an isolated interpreter, and imports only the standard library
and modules of this package that need nothing else. The pool of processes is in ``queries``.
"""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import sys
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

from bedrockjobs.base.errors import BadQuery, CommandError
from bedrockjobs.base.priority import give_way
from bedrockjobs.store.sandbox import SandboxedConnection, is_damage, refusal

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
