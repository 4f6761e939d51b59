"""Statements in one round trip, over libpq: all are sent, then all answers are read.

psycopg's own pipeline looks at the socket for each statement, and builds a cursor for it. A unit sends ten or
twenty: that took longer than PostgreSQL needed to do them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Transformer
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown
from psycopg.waiting import Ready, Wait

from bedrockjobs.base.wire import storable

Statement = tuple[str, Sequence[Any]]
"""A statement with its parameters: text, numbers, booleans, None, and lists of these."""

Row = tuple[Any, ...]

_DONE = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})


class Refused(Exception):
    """PostgreSQL could not do a statement: its words and its code, such as 23505."""

    def __init__(self, words: str, state: str) -> None:
        """Hold both."""
        super().__init__(words)
        self.state = state


class Answer(NamedTuple):
    """What came of one statement."""

    rows: list[Row]
    tag: bytes
    """What PostgreSQL says that it has done, such as ``COMMIT``."""


class Pipeline:
    """Sends statements over one connection; each is prepared when it is first sent."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool = True) -> None:
        """Send over ``connection``, which nothing else uses meanwhile.

        ``prepares`` is false where nothing stays prepared, as each transaction goes to another PostgreSQL.
        """
        self._prepares = prepares
        self._pgconn = connection.pgconn
        self._loaders = Transformer(connection)
        self._names: dict[str, bytes] = {}
        """The names of those that are prepared: PostgreSQL keeps them until the connection ends."""
        self._prepared = 0

    def exchange(self, statements: Iterable[Statement]) -> PQGen[list[Answer]]:
        """Send statements, and return the answers; raises Refused for the first that was not done.

        A generator, as psycopg has them: it yields what it waits for, and is sent what is ready.
        """
        given = [(sql, [*map(encoded, parameters)]) for sql, parameters in statements]
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        asked = self._send(given)
        while pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                pgconn.consume_input()
        found: list[pq.abc.PGresult] = []
        while True:
            if pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
            elif (answer := pgconn.get_result()) is not None:  # None stands behind each but the last
                if answer.status == pq.ExecStatus.PIPELINE_SYNC:
                    break
                found.append(answer)
        pgconn.exit_pipeline_mode()
        return self._answers(asked, found)

    def _send(self, statements: list[tuple[str, list[bytes | None]]]) -> list[str | None]:
        """Queue statements; return what was asked: to prepare a statement, or (None) to do one."""
        pgconn, names = self._pgconn, self._names
        asked: list[str | None] = []
        for sql, parameters in statements:
            if not self._prepares:
                pgconn.send_query_params(sql.encode(), parameters)
                asked.append(None)
                continue
            name = names.get(sql)
            if name is None:
                self._prepared += 1
                name = names[sql] = b"s%d" % self._prepared
                pgconn.send_prepare(name, sql.encode())
                asked.append(sql)
            pgconn.send_query_prepared(name, parameters)
            asked.append(None)
        pgconn.pipeline_sync()
        return asked

    def _answers(self, asked: list[str | None], found: list[pq.abc.PGresult]) -> list[Answer]:
        answers = []
        refused = None
        for sql, answer in zip(asked, found, strict=True):
            if answer.status not in _DONE:
                refused = refused or answer
                if sql is not None:
                    del self._names[sql]
            elif sql is None:
                answers.append(Answer(self._rows(answer), answer.command_status or b""))
        if refused is not None:
            state = refused.error_field(pq.DiagnosticField.SQLSTATE) or b""
            raise Refused(refused.error_message.decode("utf-8", "replace").strip(), state.decode())
        return answers

    def _rows(self, answer: pq.abc.PGresult) -> list[Row]:
        if not answer.ntuples:
            return []
        self._loaders.set_pgresult(answer)
        return self._loaders.load_rows(0, answer.ntuples, tuple)


def columns(rows: list[Row]) -> list[list[object]]:
    """Return the columns of some rows, each as one array: the parameters of a statement that writes a set."""
    return [list(column) for column in zip(*rows, strict=True)]


def encoded(value: Any) -> bytes | None:
    """Return a parameter as PostgreSQL reads it; the statement decides on its type."""
    if value is None:
        return None
    if isinstance(value, list):
        text = _array(value)
    elif isinstance(value, bool):
        text = "t" if value else "f"
    elif isinstance(value, bytes):
        text = rf"\x{value.hex()}"
    else:
        text = str(value)
    return _bytes(text)


def _bytes(text: str) -> bytes:
    if "\0" not in text:
        try:
            return text.encode()
        except UnicodeEncodeError:  # of a lone surrogate
            pass
    return storable(text).encode()


class TextDumper(StrDumperUnknown):
    """Passes a text to psycopg's own statements, in the same way as ``encoded``."""

    def dump(self, obj: str) -> Buffer | None:
        """Return the bytes of a text."""
        return _bytes(obj)


def adapt(connection: psycopg.AsyncConnection[Any]) -> None:
    """Let a connection of psycopg pass parameters as ``Pipeline`` does: any text, and numbers of 64 bits."""
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(str, TextDumper)


def _array(values: list[Any]) -> str:
    """Return a list as an array of PostgreSQL."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds != {str}:
        return "{" + ",".join(map(_element, values)) + "}"
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * len(values) - 2:
        joined = '","'.join([value.replace("\\", "\\\\").replace('"', '\\"') for value in values])
    return f'{{"{joined}"}}'


def _element(value: Any) -> str:
    """Return one element among others of several types."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return rf'"\\x{value.hex()}"'
    return str(value) if isinstance(value, int) else _array([value])[1:-1]
