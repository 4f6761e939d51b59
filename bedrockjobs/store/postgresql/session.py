"""One connection to PostgreSQL: statements in round trips, and what its errors mean.

Nothing here knows of jobs. No exception of psycopg leaves this module: each becomes a StoreError.
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

from bedrockjobs.base.background import may_give_turn, yield_to_loop
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

# What a server demands of its PostgreSQL, and the parameters that each of its transactions has.


@dataclass(frozen=True, slots=True)
class SessionRequirements:
    """What a server demands, and how long it waits."""

    durability: Durability = "full"
    unit_s: float = 5.0
    """Time that PostgreSQL leaves a transaction open of which it hears nothing."""
    answer_s: float = PG_ANSWER_S_MAX
    """Time in which PostgreSQL answers what is sent together; 0: whenever it does."""
    serial: bool = False
    """Whether one unit is done after the other, of all servers that demand it."""
    pooled: bool = False
    """Whether it is known that a pooler gives each transaction another connection; else it is found out."""

    @classmethod
    def of(cls, settings: Settings) -> SessionRequirements:
        """Return the terms that an operator has set."""
        return cls(
            settings.durability,
            settings.unit_s_max,
            serial=settings.isolation == "serial",
            pooled=bool(settings.database_direct),
        )

    def parameters(self, schema: str) -> dict[str, str]:
        """Return the parameters of PostgreSQL by their names.

        Statistics are always behind a queue: plans follow the indexes alone, and are made once. After a look
        at an empty queue it seems cheap to sort all jobs of a name instead of reading an index in its order.
        """
        found = {
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
            found["synchronous_commit"] = "off"
        return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


# Waiting that lets the event loop serve others: for an answer of PostgreSQL, a connection, a moment.
#
# A unit runs within work that may be stopped (``base/background.py``): there, who waits gives the turn away.
# Elsewhere, in a thread or a test, the call simply waits. Nothing waits without a limit.


T = TypeVar("T")


class PatientConnection(psycopg.Connection[Any]):
    """A connection of psycopg, of which only the waiting is different."""

    answer_s: float = PG_ANSWER_S_MAX
    """Time in which something is heard; 0: whenever it is."""

    def wait(self, gen: PQGen[T], *given: Any, **named: Any) -> T:
        """Do what the generator asks for until it returns; other work has its turn while it waits.

        The connection is closed where nothing is heard for ``answer_s``; raises OperationalError.
        """
        until_ready = _give_turn_until_ready if may_give_turn() else _wait_until_ready
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
            found: T = done.value
            return found


def _wait_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Wait until a socket can be read or written; return which, NONE where it takes too long."""
    poll = select.poll()
    poll.register(
        fileno, (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
    )
    found = poll.poll(limit_s and limit_s * 1000)
    if not found:
        return Ready.NONE
    ((_, events),) = found
    readable = Ready.R if events & ~select.POLLOUT else Ready.NONE  # a hang-up is found out by reading
    return Ready(readable | (Ready.W if events & select.POLLOUT else Ready.NONE))


def _give_turn_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Give the turn away until then; return the same."""
    loop = asyncio.get_running_loop()
    found: list[Ready] = []

    def until(go_on: Callable[[], object]) -> None:
        def ready(which: Ready) -> None:
            if late is not None:
                late.cancel()
            loop.remove_reader(fileno)
            loop.remove_writer(fileno)
            found.append(which)
            go_on()

        late = None if limit_s is None else loop.call_later(limit_s, ready, Ready.NONE)
        if wanted & Wait.R:
            loop.add_reader(fileno, partial(ready, Ready.R))
        if wanted & Wait.W:
            loop.add_writer(fileno, partial(ready, Ready.W))

    yield_to_loop(until)
    return found[0]


@contextmanager
def heard_within(connection: psycopg.AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Break a connection of the loop that has not answered in time; raises TimeoutError then.

    Who waits is not cancelled: psycopg would tell that over the network, and wait for ten seconds more.
    """
    late = False

    def break_off() -> None:
        nonlocal late
        late = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(seconds, break_off)
    try:
        yield
    except psycopg.Error as error:
        if late:
            raise TimeoutError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


def done_beside(work: Callable[[], T], drop: Callable[[T], object]) -> T:
    """Do work that keeps its thread in one of its own, and give the turn away until it is done.

    Returns its result, or raises what it raises. Where no turn can be given away, it is done here. A result
    that nobody waits for any more, as the loop has ended, is given to ``drop``.
    """
    if not may_give_turn():
        return work()
    loop = asyncio.get_running_loop()
    done: Future[T] = Future()

    def until(go_on: Callable[[], object]) -> None:
        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
            try:
                loop.call_soon_threadsafe(go_on)
            except RuntimeError:  # the loop has ended meanwhile
                if done.exception() is None:
                    drop(done.result())

        threading.Thread(target=do, name="connect", daemon=True).start()

    yield_to_loop(until)
    return done.result()


def pause(seconds: float) -> None:
    """Let some time pass, and give the turn away meanwhile."""
    if may_give_turn():
        loop = asyncio.get_running_loop()
        yield_to_loop(partial(loop.call_later, seconds))
    else:
        threading.Event().wait(seconds)


# A new connection: to the first host of the URL that can be written, straight or through a pooler.
#
# A pooler in transaction mode gives each transaction another connection of PostgreSQL. Parameters then have
# to be set in each transaction, and nothing stays prepared. It is known by the operator's word, by its
# refusal of parameters, or by what became of them.


logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it warns of is raised as well

REFUSED_BY_POOLER = "unsupported startup parameter"
"""How a pooler refuses parameters."""

PLANS = "SELECT current_setting('plan_cache_mode') = 'force_generic_plan'"


def connect(url: str, schema: str, terms: SessionRequirements) -> tuple[PatientConnection, bool]:
    """Return a connection, and whether there is a pooler in between; raises psycopg.Error.

    What takes long is done in a thread where the caller may give its turn away.
    """
    return done_beside(lambda: _connect(url, schema, terms), lambda made: made[0].close())


def _connect(url: str, schema: str, terms: SessionRequirements) -> tuple[PatientConnection, bool]:
    given = conninfo_to_dict(url)
    defaults = {
        "target_session_attrs": "read-write",
        "tcp_user_timeout": PG_CONNECT_S_MAX * 1000,
        "application_name": "bedrockjobs",
    }
    named: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
    named |= {"connect_timeout": PG_CONNECT_S_MAX, "client_encoding": "UTF8"}
    ours = " ".join(f"-c {name}={value}" for name, value in terms.parameters(schema).items())
    options = f"{given.get('options') or ''} {ours}".strip()
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
            except psycopg.Error:
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


# Statements in one round trip, over libpq: all are sent, then all answers are read.
#
# psycopg's own pipeline looks at the socket for each statement, and builds a cursor for it. A unit sends
# ten or twenty: that took longer than PostgreSQL needed to do them.


Statement = tuple[str, Sequence[Any]]
"""A statement with its parameters: text, numbers, booleans, None, and lists of these."""

Row = tuple[Any, ...]

_DONE = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})


class StatementError(Exception):
    """PostgreSQL could not do a statement: its words and its code, such as 23505."""

    def __init__(self, words: str, state: str) -> None:
        """Hold both."""
        super().__init__(words)
        self.state = state


class StatementResult(NamedTuple):
    """What came of one statement."""

    rows: list[Row]
    tag: bytes
    """What PostgreSQL says that it has done, such as ``COMMIT``."""


class StatementPipeline:
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

    def exchange(self, statements: Iterable[Statement]) -> PQGen[list[StatementResult]]:
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

    def _answers(self, asked: list[str | None], found: list[pq.abc.PGresult]) -> list[StatementResult]:
        answers = []
        refused = None
        for sql, answer in zip(asked, found, strict=True):
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


BEGIN = "BEGIN"


class OutcomeUnknown(StoreBroken):
    """The connection broke at a commit, and the database could not be asked whether it was done."""


class BadURL(StoreError):
    """The URL cannot be read."""


class TransactionCheck(NamedTuple):
    """Something that has to hold in each transaction."""

    statement: Statement
    judge: Callable[[list[Row]], None]
    """Given what the statement found; raises StoreAway where it does not hold."""


_MEANING: dict[str, type[StoreError]] = {
    "40001": StoreConflict,  # could not serialize
    "40P01": StoreConflict,  # deadlock
    "55P03": StoreConflict,  # lock not available
    "25006": StoreAway,  # read only: not the primary any more
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
"""Warnings of a commit that did not wait for its standby: it was cancelled, or the backend told to end. What
they say is in the language of the database; whatever else would warn at a commit is taken for the same."""


def fault_of(error: Exception) -> StoreError | None:
    """Return the fault that an error of psycopg means; None for any other exception."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, StatementError):
        state = error.state
    elif isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
    else:
        return None
    words = f"{str(error).strip()} ({state or 'no connection'})"
    if state == "53100":
        return StoreFull(words)
    if not state and isinstance(error, psycopg.OperationalError):
        return StoreAway(words)
    return (_MEANING.get(state) or _MEANING_OF_CLASS.get(state[:2]) or StoreError)(words)


class DatabaseSession:
    """A connection that sends some statements at a time and comes back with all their rows."""

    def __init__(self, url: str, schema: str, terms: SessionRequirements | None = None) -> None:
        """Connect to ``url``, to tables in ``schema``; raises StoreError where that fails."""
        self._url = url
        self._schema = schema
        self._terms = terms or SessionRequirements()
        self._busy = False
        self._ended = False
        self.round_trips = 0
        """How often something was sent and waited for."""
        self.guards: list[TransactionCheck] = []
        """What has to hold in each transaction, asked for behind its BEGIN and behind its COMMIT."""
        self.parameters: dict[str, str] = {}
        """Parameters of PostgreSQL that each transaction has to set: all of ours behind a pooler."""
        self._unconfirmed: list[str] = []
        self._connect()

    # --- the connection ----------------------------------------------------------------------------------

    def connect_again(self) -> None:
        """Give up the connection, if there is one, for a new one; raises StoreError where there is none."""
        self.close()
        self._connect()

    def _connect(self) -> None:
        try:
            self._connection, self.pooled = connect(self._url, self._schema, self._terms)
        except psycopg.ProgrammingError as error:
            raise BadURL(str(error).strip()) from error
        except psycopg.Error as error:
            raise fault_of(error) or error from error
        if self._ended:  # while another thread was connecting
            self._connection.close()
            raise StoreAway("the session has ended")
        self._pipeline = StatementPipeline(self._connection, prepares=not self.pooled)
        self._connection.add_notice_handler(self._noticed)
        self.parameters = self._terms.parameters(self._schema) if self.pooled else {}
        self.guards = []

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        if self.alive:
            self._connection.close()

    def end(self) -> None:
        """Close the connection for good, also one that is being made."""
        self._ended = True
        self.close()

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in UNCONFIRMED:
            self._unconfirmed.append(notice.message_primary or "")

    @property
    def alive(self) -> bool:
        """Tell whether the connection is usable, as far as is known."""
        return hasattr(self, "_connection") and not self._connection.closed

    @property
    def in_transaction(self) -> bool:
        """Tell whether a transaction is open, sound or failed."""
        return self._connection.info.transaction_status in (
            psycopg.pq.TransactionStatus.INTRANS,
            psycopg.pq.TransactionStatus.INERROR,
        )

    @property
    def server_version(self) -> int:
        """Return the version of PostgreSQL: 150003 for 15.3."""
        return self._connection.info.server_version

    @property
    def server_encoding(self) -> str:
        """Return the encoding of the database."""
        return self._connection.info.parameter_status("server_encoding") or ""

    # --- statements --------------------------------------------------------------------------------------

    def run(self, statements: Iterable[Statement]) -> list[list[Row]]:
        """Do statements in one round trip; return the rows of each. Raises StoreError."""
        every = list(statements)
        begins = bool(every) and every[0][0].startswith(BEGIN)
        guards = self.guards if begins else []
        ahead = [guard.statement for guard in guards]
        if self.parameters and (begins or not self.in_transaction):
            ahead.insert(0, _local(self.parameters))
        every[begins:begins] = ahead
        found = [answer.rows for answer in self._sent(every)]
        self._judge(guards, found[begins + len(ahead) - len(guards) :])
        del found[begins : begins + len(ahead)]
        return found

    def _judge(self, guards: Sequence[TransactionCheck], found: Sequence[list[Row]]) -> None:
        """Close the connection where something does not hold: behind a commit it then has to be found out."""
        try:
            for guard, rows in zip(guards, found, strict=False):
                guard.judge(rows)
        except StoreAway:
            self.close()
            raise

    def commit(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Do statements, the last of which commits, in one round trip; return their rows. Raises StoreError.

        PostgreSQL answers a COMMIT behind a failure, which undoes everything, without an error. One that did
        not wait for its standby is answered with a warning: that counts as a connection that broke.
        """
        self._unconfirmed.clear()
        sent = self._sent([*statements, *(guard.statement for guard in self.guards)])
        if sent[len(statements) - 1].tag != b"COMMIT":
            self.script("ROLLBACK")
            raise StoreError("the transaction had failed before it was to be committed, and was undone")
        if self._unconfirmed:
            self.close()
            raise StoreAway(f"a commit was not confirmed: {self._unconfirmed[0]}")
        self._judge(self.guards, [answer.rows for answer in sent[len(statements) :]])
        return [answer.rows for answer in sent[: len(statements)]]

    def _sent(self, statements: Iterable[Statement]) -> list[StatementResult]:
        if self._busy:  # what is under way gave its turn away, and comes back for its answers
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
            self.close()  # also where it could go on: only another server helps
        elif not self.alive:  # whatever was the last that it said
            return StoreAway(str(error).strip())
        return fault

    def script(self, text: str) -> None:
        """Do several statements without parameters, in the open transaction or in one of their own."""
        try:
            self._connection.execute(text)
        except psycopg.Error as error:
            raise self._fault(error) from error


def _local(parameters: dict[str, str]) -> Statement:
    """Return the statement that sets parameters for the transaction that is open."""
    return (
        "SELECT count(set_config(name, value, true)) FROM unnest($1::text[], $2::text[]) AS p (name, value)",
        (list(parameters), list(parameters.values())),
    )
