"""The engine of one PostgreSQL database: one writing session, one unit at a time.

It opens and ends units, and finds out whether a commit succeeded if its answer was lost.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

from bedrockjobs.base.clock import Clock, SystemClock, after_seconds, timestamp_ms
from bedrockjobs.base.config import DATABASE_RETRY_S, OUTCOME_S_MAX
from bedrockjobs.store.base import AccessPlan, StoreAway, StoreBroken, StoreConflict, StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.connect_checks import ConnectChecks, StandbyAway, UnfitDatabase
from bedrockjobs.store.postgresql.peers import MOVES_MAX, ClockMoved, SharedTestClock
from bedrockjobs.store.postgresql.session import (
    BEGIN,
    DatabaseSession,
    OutcomeUnknown,
    SessionRequirements,
    fault_of,
    pause,
)
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.unit import PostgreSQLRowReader, PostgreSQLUnit, WorkflowsUnlocked

log = logging.getLogger(__name__)

SCHEMA = "bedrockjobs"
"""Default PostgreSQL schema of the tables, so that they can share a database with other tables."""


class PostgreSQLEngine:
    """One database, open for writing, shared with other servers."""

    tight = False
    """Always false: PostgreSQL itself refuses writes if its disk is full."""
    shared = True
    waits_for_disk = True
    lost_commit: StoreError | None = None
    fault = staticmethod(fault_of)

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        name: str = SCHEMA,
        terms: SessionRequirements | None = None,
    ) -> None:
        """Connect to ``url`` and create the tables in the schema ``name`` if they do not exist.

        Raises StoreError if the database cannot be reached or does not meet ``terms``, SchemaError if it
        cannot be used. If only a synchronous standby is missing, the first unit raises StandbyAway instead,
        and the server waits as in an outage.
        """
        schema.check_name(name)
        self._clock = clock or SystemClock()
        self._seconds = SystemClock()
        self.id = secrets.token_hex(8)
        """An ID of this server, unique among the servers of the database."""
        self._units = 0
        terms = terms or SessionRequirements()
        self._arrival = ConnectChecks(terms)
        self._always = (AccessPlan(everything=True),) if terms.serial else ()
        """Access plans added to every unit; serial isolation locks everything, so that only one unit is
        open."""
        self._date = SharedTestClock(self._clock)
        self.session = DatabaseSession(url, name, terms)
        """The writing connection."""
        try:
            self._keys = schema.prepare(self.session, name)
            self._salt = schema.salt_of(self.session)
            with suppress(StandbyAway):
                self._arrival.check_connection(self.session)
            self._date.agree_with_servers(self.session, self._keys.key_of("control"))
        except BaseException:
            self.session.close()
            raise
        self.unit = PostgreSQLUnit(self.session, self._keys, self.id, self._clock, serial=terms.serial)
        """The open unit, or the last one."""
        self.row_reader = PostgreSQLRowReader(
            lambda: DatabaseSession(url, name, terms, at_once=False), self._arrival, self._keys, self._clock
        )

    # --- the connection ----------------------------------------------------------------------------------

    def reach(self) -> None:
        """Connect if necessary and run all checks; raises StoreAway if the database is unusable."""
        if not self.session.is_open:
            try:
                self.unit.remembered.forget()  # a promoted standby may lack the last units
                self.session.connect_again()
                self._arrival.check_connection(self.session)
                self._date.follow(self._value("clock") or "")
                self._check_salt()
            except BaseException:
                self.session.close()
                raise
        if self.session.guards:
            try:
                self.session.run_statements([(BEGIN, ())])
            finally:
                self._roll_back()

    def _check_salt(self) -> None:
        """Raise UnfitDatabase if the lock salt changed, as on a promoted standby that lacks the migration."""
        if schema.salt_of(self.session) != self._salt:
            raise UnfitDatabase("the tables have changed; restart the server")

    # --- units -------------------------------------------------------------------------------------------

    def begin(self, plans: Iterable[AccessPlan] = ()) -> PostgreSQLUnit:
        """Open a unit; lock and read all rows that the plans name.

        Raises StoreAway if the database is unreachable, StoreConflict if rows stay locked.
        """
        every = [*plans, *self._always]
        if not self.session.is_open:
            self.reach()
        if self._always:
            self.unit.remembered.forget()  # notifications arrive after the other server's commit
        for _ in range(MOVES_MAX):
            try:
                self.unit.open(self._clock.now(), every, self._date.database_time)
            except ClockMoved as moved:
                self.rollback()
                self._follow(moved)
            except WorkflowsUnlocked:  # once in the life of a server
                self.rollback()
            except StoreError:
                self.rollback()
                raise
            else:
                return self.unit
        raise StoreConflict("the test clock was moved too often in the meantime")

    def _follow(self, moved: ClockMoved) -> None:
        """Move to the new time of the test clock; if that fails, disconnect and raise UnfitDatabase."""
        try:
            self._date.follow(moved.date)
        except StoreAway:
            self.session.close()
            raise

    def commit(self) -> None:
        """Write and commit the open unit; raises StoreError, or OutcomeUnknown if it may be committed."""
        self._units += 1
        try:
            self.unit.commit(
                (SQL["lock_alone"], (self._keys.key_of("events"),)),
                (SQL["note_unit"], (self._row, self._units, timestamp_ms(self.unit.moment))),
            )
        except StoreAway as error:
            if not self._was_committed(error):
                raise
            self.unit.committed()
            self.unit.forget()

    @property
    def _row(self) -> str:
        """Return the key of the row in ``sessions`` for the present unit."""
        # Rows of ``sessions`` per server, used in turn for the number of the last unit. An old snapshot
        # keeps all versions of a row, and each update walks past them; several rows share that cost.
        return f"{self.id}/{self._units % 64}"

    def _was_committed(self, error: StoreAway) -> bool:
        """Return whether a commit whose answer was lost succeeded; raises OutcomeUnknown.

        The database is asked again for ``OUTCOME_S_MAX``, since a standby may have to be promoted first.
        """
        self.lost_commit = error
        try:
            return self._look_up_outcome(error)
        finally:
            self.lost_commit = None

    def _look_up_outcome(self, error: StoreAway) -> bool:
        until = self._seconds.monotonic() + OUTCOME_S_MAX
        while True:
            try:
                done = self._is_committed()
            except StoreBroken:
                raise
            except StoreError as second:
                if self._seconds.monotonic() >= until:
                    raise OutcomeUnknown(f"{error}; then {second}") from error
                pause(DATABASE_RETRY_S * random.uniform(0.5, 1.5))  # noqa: S311
            else:
                break
        log.warning("the connection broke at a commit, which was %sdone", "" if done else "not ")
        self._units += not done  # the check has used this number
        return done

    def _is_committed(self) -> bool:
        """Return whether the last unit was committed on the present primary; if not, it never will be.

        The query waits for a transaction that is still committing and, because it writes, for the synchronous
        standby. A COMMIT that PostgreSQL receives later fails.
        """
        try:
            self.reach()
            ((done,),) = self.session.run_statements(
                [(BEGIN, ()), (SQL["ask_for_unit"], (self._row, self._units))]
            )[1]
            self.session.commit([(SQL["commit"], ())])
        except StoreError:
            self._roll_back()
            raise
        return bool(done)

    def confirm(self) -> None:
        """Do nothing: an acknowledged commit is durable."""

    def rollback(self) -> None:
        """Roll back the unit if it is open, and its changes in memory."""
        self._roll_back()
        self.unit.roll_back()

    def _roll_back(self) -> None:
        with suppress(StoreError):  # a lost connection has undone it
            if self.session.is_open and self.session.in_transaction:
                self.session.script(SQL["rollback"])

    def free_reserve(self) -> None:
        """Do nothing: PostgreSQL manages its own disk."""

    def reserve_space(self) -> None:
        """Do nothing: PostgreSQL manages its own disk."""

    def on_queued(self, due: Mapping[str, str] | None) -> None:
        """Record the jobs that other servers queued: earliest nextRun by name; None if names are unknown."""
        self.unit.remembered.on_queued(due)

    def changed_outside(self) -> bool:
        """Return False: each unit reads everything it needs."""
        return False

    def close(self) -> None:
        """Roll back an open unit, delete this server's rows of ``sessions``, and disconnect."""
        self.rollback()
        with suppress(StoreError):
            if self.session.is_open:
                # Kept longer than the server may ask for the outcome of its last transaction
                old = after_seconds(timestamp_ms(self._clock.now()), -86_400)
                self.session.run_statements([(SQL["close_session"], (self.id, old))])
        self.session.end()
        self.row_reader.close()

    # --- time --------------------------------------------------------------------------------------------

    def _value(self, statement: str, *parameters: object) -> str | None:
        found = self.session.run_statements([(SQL[statement], parameters)])[0]
        return found[0][0] if found else None

    def seen(self) -> str:
        """Return the last heartbeat of any server of this database; empty if there was none."""
        return self._value("get_meta", "seen") or ""

    def next_moment(self) -> str | None:
        """Return when the next job expires or the next pause ends, whichever is first; None if neither."""
        ends = [pause.until for pause in self.unit.records.pauses() if pause.until]
        expiry = self._value("next_expiry")
        return min(ends if expiry is None else [*ends, expiry], default=None)

    def planned(self) -> object:
        """Return a new object each time, as other servers may change what is planned."""
        return object()

    def next_on_all_hosts(self) -> str | None:
        """Return when the next broadcast schedule is due, or None."""
        return self.unit.next_on_all_hosts()

    def search_in_s(self) -> float:
        """Return the seconds until ``Unit.search`` may continue."""
        return self.unit.remembered.search_in_s()

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due after ``now``, or None."""
        return self._value("soonest_of_all", now)
