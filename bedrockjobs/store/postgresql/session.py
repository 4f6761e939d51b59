"""One connection to PostgreSQL: its parameters, waiting, pipelined statements, and error translation.

Nothing here depends on jobs. No exception of psycopg leaves ``DatabaseSession``: each becomes a StoreError.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown
from psycopg.waiting import Ready, Wait

from bedrockjobs.base.background import can_pause, yield_to_loop
from bedrockjobs.base.config import LOCK_WAIT_S_MAX, PG_ANSWER_S_MAX, PG_CONNECT_S_MAX
from bedrockjobs.base.settings import Durability, Settings
from bedrockjobs.base.wire import storable
from bedrockjobs.store.base import (
    StoreAway,
    StoreBroken,
    StoreBusy,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreFull,
)

# Requirements for a session, and the PostgreSQL parameters of its transactions.


@dataclass(frozen=True, slots=True)
class SessionRequirements:
    """Durability, timeouts and isolation of a session."""

    durability: Durability = "full"
    unit_s: float = 5.0
    """Timeout in seconds for a transaction that is idle."""
    answer_s: float = PG_ANSWER_S_MAX
    """Timeout in seconds for the answer to one round trip; 0: none."""
    serial: bool = False
    """Whether the units of all servers with this requirement run one at a time."""
    pooled: bool = False
    """Whether the settings say that a pooler in transaction mode is in between; if False, a pooler is still
    detected."""

    @classmethod
    def from_settings(cls, settings: Settings) -> SessionRequirements:
        """Return the requirements of the settings."""
        return cls(
            settings.durability,
            settings.unit_s_max,
            serial=settings.isolation == "serial",
            pooled=bool(settings.database_direct),
        )

    def parameters(self, schema: str) -> dict[str, str]:
        """Return the PostgreSQL parameters by name.

        Statistics always lag behind a queue, so plans use the indexes only and are made once. Sorting is
        disabled because, after a query of an empty queue, sorting all jobs of a name seems cheaper than an
        index scan.
        """
        settings = {
            "search_path": f'"{schema}"',
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_sort": "off",
            "jit": "off",
            "plan_cache_mode": "force_generic_plan",
            "lock_timeout": _ms(LOCK_WAIT_S_MAX),
            "statement_timeout": _ms(self.answer_s),
            "idle_in_transaction_session_timeout": _ms(self.unit_s),
        }
        if self.durability == "relaxed":
            settings["synchronous_commit"] = "off"
        return settings


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


# Waiting for an answer, a connection or a timeout without blocking the event loop.
#
# Inside a cooperative slice (``base/background.py``) the wait yields to the event loop. In a thread or a test
# the call blocks. Every wait has a timeout.


T = TypeVar("T")


class PatientConnection(psycopg.Connection[Any]):
    """A psycopg connection that yields to the event loop while it waits."""

    answer_s: float = PG_ANSWER_S_MAX
    """Timeout in seconds for an answer; 0: none."""

    def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        """Run a psycopg generator to its end and return its result, yielding while it waits.

        If there is no answer within ``answer_s``, the connection is closed and OperationalError is raised.
        """
        until_ready = _yield_until_ready if can_pause() else _wait_until_ready
        fileno = self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                ready = until_ready(fileno, wanted, self.answer_s or None)
                if not ready:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.answer_s} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value


def _wait_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Block until a socket is readable or writable; return which, or NONE on timeout."""
    poll = select.poll()
    poll.register(
        fileno, (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
    )
    ready = poll.poll(limit_s and limit_s * 1000)
    if not ready:
        return Ready.NONE
    ((_, events),) = ready
    readable = Ready.R if events & ~select.POLLOUT else Ready.NONE  # reading detects a hang-up
    return Ready(readable | (Ready.W if events & select.POLLOUT else Ready.NONE))


def _yield_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Yield to the event loop until a socket is readable or writable; return which, or NONE on timeout."""
    loop = asyncio.get_running_loop()
    events: list[Ready] = []

    def until(resume: Callable[[], object]) -> None:
        def ready(which: Ready) -> None:
            if late is not None:
                late.cancel()
            loop.remove_reader(fileno)
            loop.remove_writer(fileno)
            events.append(which)
            resume()

        late = None if limit_s is None else loop.call_later(limit_s, ready, Ready.NONE)
        if wanted & Wait.R:
            loop.add_reader(fileno, partial(ready, Ready.R))
        if wanted & Wait.W:
            loop.add_writer(fileno, partial(ready, Ready.W))

    yield_to_loop(until)
    return events[0]


@contextmanager
def answered_within(connection: psycopg.AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Shut down an asyncio connection that has not answered within ``seconds``, and raise TimeoutError.

    The task is not cancelled, since psycopg would then send a cancel request and wait for ten more seconds.
    """
    late = False

    def shut_down() -> None:
        nonlocal late
        late = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(seconds, shut_down)
    try:
        yield
    except psycopg.Error as error:
        if late:
            raise TimeoutError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


CONNECTING = "connect"
"""Name of the threads that connect."""


def run_in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread, yielding to the event loop until it is done; return its result.

    Without a loop to yield to, the work runs in the calling thread. If a server that stops abandons the
    caller, the work still runs to its end.
    """
    if not can_pause():
        return work()
    loop = asyncio.get_running_loop()
    done: Future[T] = Future()

    def until(resume: Callable[[], object]) -> None:
        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(resume)

        threading.Thread(target=do, name=CONNECTING, daemon=True).start()

    yield_to_loop(until)
    return done.result()


def pause(seconds: float) -> None:
    """Sleep, yielding to the event loop if possible."""
    if can_pause():
        loop = asyncio.get_running_loop()
        yield_to_loop(partial(loop.call_later, seconds))
    else:
        threading.Event().wait(seconds)


# Connecting to the first writable host of the URL, directly or through a pooler.
#
# A pooler in transaction mode assigns a server connection to each transaction. Then parameters must be set in
# each transaction, and prepared statements are lost. A pooler is known from the settings, or detected because
# it refuses startup parameters or drops them.


logging.getLogger("psycopg").setLevel(logging.ERROR)  # its warnings are raised as errors too

REFUSED_BY_POOLER = "unsupported startup parameter"
"""The message with which a pooler refuses startup parameters."""

PLANS = "SELECT current_setting('plan_cache_mode') = 'force_generic_plan'"


def connect(url: str, schema: str, terms: SessionRequirements) -> tuple[PatientConnection, bool]:
    """Return a connection, and whether a pooler is in between; raises psycopg.Error."""
    parameters = conninfo_to_dict(url)
    defaults = {
        "target_session_attrs": "read-write",
        "tcp_user_timeout": PG_CONNECT_S_MAX * 1000,
        "application_name": "bedrockjobs",
    }
    named: dict[str, Any] = {name: value for name, value in defaults.items() if name not in parameters}
    named |= {"connect_timeout": PG_CONNECT_S_MAX, "client_encoding": "UTF8"}
    ours = " ".join(f"-c {name}={value}" for name, value in terms.parameters(schema).items())
    options = f"{parameters.get('options') or ''} {ours}".strip()
    pooled = terms.pooled
    if not pooled:
        try:
            connection = _opened(url, options=options, **named)
        except psycopg.OperationalError as error:
            if REFUSED_BY_POOLER not in str(error):
                raise
            pooled = True
        else:
            try:
                pooled = not connection.execute(PLANS).fetchone()[0]  # type: ignore[index]
            except BaseException:
                connection.close()
                raise
            if pooled:
                connection.close()
    if pooled:
        connection = _opened(url, **named)
    connection.answer_s = terms.answer_s
    return connection, pooled


def _opened(url: str, **named: Any) -> PatientConnection:
    return PatientConnection.connect(url, autocommit=True, prepare_threshold=None, **named)


# Pipelined statements over libpq: all are sent, then all results are read.
#
# psycopg's own pipeline polls the socket and creates a cursor for each statement. With the ten or twenty
# statements of a unit, this took longer than their execution in PostgreSQL.


Statement = tuple[str, Sequence[Any]]
"""SQL with its parameters: text, numbers, booleans, bytes, None, and lists of these."""

Row = tuple[Any, ...]

_DONE = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})


class StatementError(Exception):
    """PostgreSQL refused a statement; it holds the message and the SQLSTATE, such as 23505."""

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state


class StatementResult(NamedTuple):
    """The result of one statement."""

    rows: list[Row]
    tag: bytes
    """The command tag, such as ``COMMIT``."""


class StatementPipeline:
    """Sends statements over one connection; each is prepared at first use."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool = True) -> None:
        """Use ``connection`` exclusively.

        ``prepares`` is false behind a pooler, where prepared statements are lost.
        """
        self._prepares = prepares
        self._pgconn = connection.pgconn
        self._loaders = Transformer(connection)
        self._names: dict[str, bytes] = {}
        """Names of the prepared statements, which last as long as the connection."""
        self._prepared = 0

    def exchange(self, statements: Iterable[Statement]) -> PQGen[list[StatementResult]]:
        """Send statements and return their results; raises StatementError for the first one that failed.

        This is a psycopg generator: it yields whether it waits to read or to write, and receives which of the
        two is possible.
        """
        encoded_statements = [(sql, [*map(encoded, parameters)]) for sql, parameters in statements]
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        asked = self._send(encoded_statements)
        while pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                pgconn.consume_input()
        results: list[pq.abc.PGresult] = []
        while True:
            if pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
            elif (answer := pgconn.get_result()) is not None:  # None separates the results
                if answer.status == pq.ExecStatus.PIPELINE_SYNC:
                    break
                results.append(answer)
        pgconn.exit_pipeline_mode()
        return self._answers(asked, results)

    def _send(self, statements: list[tuple[str, list[bytes | None]]]) -> list[str | None]:
        """Queue statements; return for each request the SQL that it prepares, or None if it executes SQL."""
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

    def _answers(self, asked: list[str | None], results: list[pq.abc.PGresult]) -> list[StatementResult]:
        answers = []
        refused = None
        for sql, answer in zip(asked, results, strict=True):
            if answer.status not in _DONE:
                refused = refused or answer
                if sql is not None:
                    del self._names[sql]
            elif sql is None:
                answers.append(StatementResult(self._rows(answer), answer.command_status or b""))
        if refused is not None:
            state = refused.error_field(pq.DiagnosticField.SQLSTATE) or b""
            raise StatementError(refused.error_message.decode("utf-8", "replace").strip(), state.decode())
        return answers

    def _rows(self, answer: pq.abc.PGresult) -> list[Row]:
        if not answer.ntuples:
            return []
        self._loaders.set_pgresult(answer)
        return self._loaders.load_rows(0, answer.ntuples, tuple)


def columns(rows: list[Row]) -> list[list[object]]:
    """Transpose rows into one array per column, the parameters of a statement that writes many rows."""
    return [list(column) for column in zip(*rows, strict=True)]


def encoded(value: Any) -> bytes | None:
    """Encode a parameter as text for PostgreSQL; the statement determines its type."""
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
        except UnicodeEncodeError:  # a lone surrogate
            pass
    return storable(text).encode()


class TextDumper(StrDumperUnknown):
    """Encodes text parameters of psycopg statements in the same way as ``encoded``."""

    def dump(self, obj: str) -> Buffer | None:
        """Return the encoded text."""
        return _bytes(obj)


def adapt(connection: psycopg.AsyncConnection[Any]) -> None:
    """Let a psycopg connection encode parameters as ``StatementPipeline`` does: any text, 64-bit integers."""
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(str, TextDumper)


def _array(values: list[Any]) -> str:
    """Return a list as a PostgreSQL array literal."""
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
    """Return one element of an array with mixed types."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return rf'"\\x{value.hex()}"'
    return str(value) if isinstance(value, int) else _array([value])[1:-1]


BEGIN = "BEGIN"


class OutcomeUnknown(StoreBroken):
    """The connection broke during a commit, and its outcome could not be determined."""


class BadURL(StoreError):
    """The URL is invalid."""


class TransactionCheck(NamedTuple):
    """A condition that must hold in each transaction."""

    statement: Statement
    judge: Callable[[list[Row]], None]
    """Called with the rows of the statement; raises StoreAway if the condition does not hold."""


_MEANING: dict[str, type[StoreError]] = {
    "40001": StoreConflict,  # could not serialize
    "40P01": StoreConflict,  # deadlock
    "55P03": StoreConflict,  # lock not available
    "25006": StoreAway,  # read only: no longer the primary
    "57014": StoreBusy,  # cancelled, or over its time
    "XX001": StoreDamaged,  # data corrupted
    "XX002": StoreDamaged,  # index corrupted
}
_MEANING_OF_CLASS: dict[str, type[StoreError]] = {
    "53": StoreBusy,  # too many connections, out of memory
    "57": StoreAway,  # shut down, starting up
    "08": StoreAway,  # connection lost
}
UNCONFIRMED = ("01000", "57P01")
"""SQLSTATEs of warnings from a commit that did not wait for its standby, because it was cancelled or its
backend terminated. The messages are localized, so any such warning during a commit is treated the same."""


def fault_of(error: Exception) -> StoreError | None:
    """Translate an exception of psycopg; return None for any other exception."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, StatementError):
        state = error.state
    elif isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
    else:
        return None
    message = f"{str(error).strip()} ({state or 'no connection'})"
    if state == "53100":
        return StoreFull(message)
    if not state and isinstance(error, psycopg.OperationalError):
        return StoreAway(message)
    return (_MEANING.get(state) or _MEANING_OF_CLASS.get(state[:2]) or StoreError)(message)


class DatabaseSession:
    """A connection that runs several statements per round trip and returns all their rows."""

    def __init__(
        self, url: str, schema: str, terms: SessionRequirements | None = None, *, at_once: bool = True
    ) -> None:
        """Connect to ``url``, using the tables in ``schema``; raises StoreError.

        If ``at_once`` is False, the session is not connected until ``connect_again`` is called.
        """
        self._url = url
        self._schema = schema
        self._terms = terms or SessionRequirements()
        self._busy = False
        self._ended = False
        self._latest: PatientConnection | None = None
        """The last connection, even if it was made by a thread for which no caller waits any longer."""
        self.round_trips = 0
        """Number of round trips so far."""
        self.guards: list[TransactionCheck] = []
        """Conditions checked after BEGIN and after COMMIT of each transaction."""
        self.parameters: dict[str, str] = {}
        """PostgreSQL parameters to set in each transaction: behind a pooler, those of the requirements."""
        self._unconfirmed: list[str] = []
        if at_once:
            self._connect()

    # --- the connection ----------------------------------------------------------------------------------

    def connect_again(self) -> None:
        """Replace the connection; raises StoreError if that fails."""
        self.close()
        self._connect()

    def _connect(self) -> None:
        def made() -> tuple[PatientConnection, bool]:
            self._latest, pooled = connect(self._url, self._schema, self._terms)
            if self._ended:  # in the meantime: ``end`` has not seen this connection
                self._latest.close()
            return self._latest, pooled

        try:
            self._connection, self.pooled = run_in_thread(made)
        except psycopg.ProgrammingError as error:
            raise BadURL(str(error).strip()) from error
        except psycopg.Error as error:
            raise fault_of(error) or error from error
        if self._ended:
            raise StoreAway("the session has ended")
        self._pipeline = StatementPipeline(self._connection, prepares=not self.pooled)
        self._connection.add_notice_handler(self._noticed)
        self.parameters = self._terms.parameters(self._schema) if self.pooled else {}
        self.guards = []

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        if self.is_open:
            self._connection.close()

    def end(self) -> None:
        """Close the connection permanently, even one that is still being established."""
        self._ended = True
        if self._latest is not None:
            self._latest.close()

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in UNCONFIRMED:
            self._unconfirmed.append(notice.message_primary or "")

    @property
    def is_open(self) -> bool:
        """Return whether the connection is open, as far as is known."""
        return hasattr(self, "_connection") and not self._connection.closed

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction is open, even a failed one."""
        return self._connection.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    @property
    def server_version(self) -> int:
        """Return the version of PostgreSQL, such as 150003 for 15.3."""
        return self._connection.info.server_version

    @property
    def server_encoding(self) -> str:
        """Return the encoding of the database."""
        return self._connection.info.parameter_status("server_encoding") or ""

    # --- statements --------------------------------------------------------------------------------------

    def run_statements(self, statements: Iterable[Statement]) -> list[list[Row]]:
        """Run statements in one round trip; return the rows of each. Raises StoreError."""
        every = list(statements)
        begins = bool(every) and every[0][0].startswith(BEGIN)
        guards = self.guards if begins else []
        ahead = [guard.statement for guard in guards]
        if self.parameters and (begins or not self.in_transaction):
            ahead.insert(0, _local(self.parameters))
        every[begins:begins] = ahead
        row_sets = [answer.rows for answer in self._sent(every)]
        self._check_guards(guards, row_sets[begins + len(ahead) - len(guards) :])
        del row_sets[begins : begins + len(ahead)]
        return row_sets

    def _check_guards(self, guards: Sequence[TransactionCheck], row_sets: Sequence[list[Row]]) -> None:
        """Close the connection if a condition fails; the outcome of a commit must then be determined."""
        try:
            for guard, rows in zip(guards, row_sets, strict=False):
                guard.judge(rows)
        except StoreAway:
            self.close()
            raise

    def commit(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements, the last of which commits, in one round trip; return their rows. Raises StoreError.

        A COMMIT after a failure rolls back without an error; the command tag shows it. A commit that did not
        wait for its standby raises a warning, which is treated as a lost connection.
        """
        self._unconfirmed.clear()
        sent = self._sent([*statements, *(guard.statement for guard in self.guards)])
        if sent[len(statements) - 1].tag != b"COMMIT":
            self.script("ROLLBACK")
            raise StoreError("the transaction had failed before it was to be committed, and was undone")
        if self._unconfirmed:
            self.close()
            raise StoreAway(f"a commit was not confirmed: {self._unconfirmed[0]}")
        self._check_guards(self.guards, [answer.rows for answer in sent[len(statements) :]])
        return [answer.rows for answer in sent[: len(statements)]]

    def _sent(self, statements: Iterable[Statement]) -> list[StatementResult]:
        if self._busy:  # a unit that yielded still waits for its results
            raise StoreError("the connection is in use")
        self.round_trips += 1
        self._busy = True
        try:
            return self._connection.wait(self._pipeline.exchange(statements))
        except (psycopg.Error, StatementError) as error:
            raise self._fault(error) from error
        finally:
            self._busy = False

    def _fault(self, error: Exception) -> Exception:
        fault = fault_of(error) or error
        if isinstance(fault, StoreAway):
            self.close()  # even if it still works: only another host can help
        elif not self.is_open:  # whatever its last message was
            return StoreAway(str(error).strip())
        return fault

    def script(self, text: str) -> None:
        """Run several statements without parameters, in the open transaction or one of their own."""
        try:
            self._connection.execute(text)
        except psycopg.Error as error:
            raise self._fault(error) from error


def _local(parameters: dict[str, str]) -> Statement:
    """Return the statement that sets parameters for the open transaction."""
    return (
        "SELECT count(set_config(name, value, true)) FROM unnest($1::text[], $2::text[]) AS p (name, value)",
        (list(parameters), list(parameters.values())),
    )
