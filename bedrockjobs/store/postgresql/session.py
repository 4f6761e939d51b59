"""One connection to PostgreSQL: statements in round trips, and what its errors mean.

Nothing here knows of jobs. No exception of psycopg leaves this module: each becomes a StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg

from bedrockjobs.base.config import LOCK_WAIT_S_MAX, PG_CONNECT_S_MAX, UNIT_IDLE_S_MAX
from bedrockjobs.store.faults import (
    StoreBroken,
    StoreBusy,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from bedrockjobs.store.postgresql.patience import PatientConnection
from bedrockjobs.store.postgresql.pipeline import Answer, Pipeline, Refused, Row, Statement


def columns(rows: list[Row]) -> list[list[object]]:
    """Return the columns of some rows, each as one array: the parameters of a statement that writes a set."""
    return [list(column) for column in zip(*rows, strict=True)]


class StoreAway(StoreBusy):
    """The connection is lost, or there is none: what was not committed is undone."""

    reason = "Database away"
    detail = "nothing was done; the database cannot be reached"


class OutcomeUnknown(StoreBroken):
    """The connection broke at a commit, and the database could not be asked whether it was done."""


_PARAMETERS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": f"{LOCK_WAIT_S_MAX}s",
    "idle_in_transaction_session_timeout": f"{UNIT_IDLE_S_MAX}s",
}
"""Statistics are always behind a queue: plans follow the indexes alone, and are made once."""

_MEANING: dict[str, type[StoreError]] = {
    "40001": StoreConflict,  # could not serialize
    "40P01": StoreConflict,  # deadlock
    "55P03": StoreConflict,  # lock not available
    "25006": StoreBusy,  # read only: not the primary any more
    "57014": StoreBusy,  # cancelled, or over its time
    "XX001": StoreDamaged,  # data corrupted
    "XX002": StoreDamaged,  # index corrupted
}
_MEANING_OF_CLASS: dict[str, type[StoreError]] = {
    "53": StoreBusy,  # too many connections, out of memory
    "57": StoreAway,  # shut down, starting up
    "08": StoreAway,  # connection lost
}


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

    def __init__(self, url: str, schema: str) -> None:
        """Connect to ``url``, to tables in ``schema``; raises StoreError where that fails."""
        self._url = url
        self._schema = schema
        self.round_trips = 0
        """How often something was sent and waited for."""
        self._connection = self._connect()

    def _connect(self) -> PatientConnection:
        options = " ".join(f"-c {name}={value}" for name, value in _PARAMETERS.items())
        try:
            connection = PatientConnection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                client_encoding="UTF8",
                connect_timeout=PG_CONNECT_S_MAX,
                options=f'{options} -c search_path="{self._schema}"',
            )
        except psycopg.Error as error:
            raise fault_of(error) or error from error
        self._pipeline = Pipeline(connection)
        return connection

    @property
    def alive(self) -> bool:
        """Tell whether the connection is usable, as far as is known."""
        return not self._connection.closed

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

    def connect_again(self) -> None:
        """Give up the connection for a new one; raises StoreError where there is none."""
        self._connection.close()
        self._connection = self._connect()

    def run(self, statements: Iterable[Statement]) -> list[list[Row]]:
        """Do statements in one round trip; return the rows of each. Raises StoreError."""
        return [answer.rows for answer in self._sent(statements)]

    def commit(self, statements: Sequence[Statement]) -> None:
        """Do statements, the last of which commits, in one round trip; raises StoreError.

        PostgreSQL answers a COMMIT behind a failure, which undoes everything, without an error.
        """
        *_, committed = self._sent(statements)
        if committed.tag != b"COMMIT":
            self.script("ROLLBACK")
            raise StoreError("the transaction had failed before it was to be committed, and was undone")

    def _sent(self, statements: Iterable[Statement]) -> list[Answer]:
        self.round_trips += 1
        try:
            return self._connection.wait(self._pipeline.exchange(statements))
        except (psycopg.Error, Refused) as error:
            if not self.alive:  # whatever was the last that it said
                raise StoreAway(str(error).strip()) from error
            raise fault_of(error) or error from error

    def script(self, text: str) -> None:
        """Do several statements without parameters, in the open transaction or in one of their own."""
        try:
            self._connection.execute(text)
        except psycopg.Error as error:
            raise fault_of(error) or error from error

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._connection.close()
