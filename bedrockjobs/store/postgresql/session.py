"""One connection to PostgreSQL: statements in round trips, and what its errors mean.

Nothing here knows of jobs. No exception of psycopg leaves this module: each becomes a StoreError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import psycopg

from bedrockjobs.store.faults import (
    StoreAway,
    StoreBroken,
    StoreBusy,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from bedrockjobs.store.postgresql.connecting import connect
from bedrockjobs.store.postgresql.pipeline import Answer, Pipeline, Refused, Row, Statement
from bedrockjobs.store.postgresql.terms import Terms

BEGIN = "BEGIN"


class OutcomeUnknown(StoreBroken):
    """The connection broke at a commit, and the database could not be asked whether it was done."""


class BadURL(StoreError):
    """The URL cannot be read."""


class Guard(NamedTuple):
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
    if isinstance(error, Refused):
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


class Session:
    """A connection that sends some statements at a time and comes back with all their rows."""

    def __init__(self, url: str, schema: str, terms: Terms | None = None) -> None:
        """Connect to ``url``, to tables in ``schema``; raises StoreError where that fails."""
        self._url = url
        self._schema = schema
        self._terms = terms or Terms()
        self._busy = False
        self._ended = False
        self.round_trips = 0
        """How often something was sent and waited for."""
        self.guards: list[Guard] = []
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
        self._pipeline = Pipeline(self._connection, prepares=not self.pooled)
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

    def _judge(self, guards: Sequence[Guard], found: Sequence[list[Row]]) -> None:
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

    def _sent(self, statements: Iterable[Statement]) -> list[Answer]:
        if self._busy:  # what is under way gave its turn away, and comes back for its answers
            raise StoreError("the connection is in use")
        self.round_trips += 1
        self._busy = True
        try:
            return self._connection.wait(self._pipeline.exchange(statements))
        except (psycopg.Error, Refused) as error:
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
