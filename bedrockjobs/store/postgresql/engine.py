"""The engine of one PostgreSQL database: one session that writes, one unit at a time.

It opens and ends units, and finds out what became of a commit whose answer was lost. It knows nothing of
commands.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import OUTCOME_S_MAX, PG_LOOK_S, SESSION_KEPT_S
from bedrockjobs.base.wire import after_seconds, timestamp_ms
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
from bedrockjobs.store.postgresql.unit import PostgreSQLUnit

log = logging.getLogger(__name__)

SCHEMA = "bedrockjobs"
"""Where the tables are, beside whatever else the database holds."""


SESSION_ROWS = 64
"""Rows that take turns to have the number of the last unit. While somebody looks at an old state, all that a
row ever was is walked past when it is written again."""


class PostgreSQLEngine:
    """One database, open for writing, beside other servers."""

    tight = False
    """A full disk is the database's own affair; what it refuses is refused."""
    shared = True
    waits_for_disk = True

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        name: str = SCHEMA,
        terms: SessionRequirements | None = None,
    ) -> None:
        """Connect to ``url`` and make the tables in the schema ``name``, unless they are there.

        Raises StoreError if the database cannot be reached or is not as ``terms`` demand, SchemaError if it
        cannot be used. If only a synchronous standby is missing, the first unit finds that out, and the
        server waits for it as one that runs does.
        """
        schema.check_name(name)
        self._clock = clock or SystemClock()
        self._seconds = SystemClock()
        self.id = secrets.token_hex(8)
        """What no other server of the database has."""
        self._units = 0
        terms = terms or SessionRequirements()
        self._arrival = ConnectChecks(terms)
        self._always = (AccessPlan(everything=True),) if terms.serial else ()
        """What is planned in each unit: a serial one lets no other be open."""
        self._date = SharedTestClock(self._clock)
        self.session = DatabaseSession(url, name, terms)
        """The connection that writes."""
        try:
            self._keys = schema.prepare(self.session, name)
            self._salt = schema.salt_of(self.session)
            with suppress(StandbyAway):
                self._arrival.look(self.session)
            self._date.agree(self.session, self._keys.of("control"))
        except BaseException:
            self.session.close()
            raise
        self.unit = PostgreSQLUnit(self.session, self._keys, self.id, self._clock, serial=terms.serial)
        """What is open, or was open last."""

    def _now(self) -> str:
        return timestamp_ms(self._clock.now())

    # --- the connection ----------------------------------------------------------------------------------

    def reach(self) -> None:
        """See to it that there is a connection that may be used; raises StoreAway where there is none."""
        if not self.session.alive:
            try:
                self.unit.remembered.forget()  # a standby that was promoted may not have the last units
                self.session.connect_again()
                self._arrival.look(self.session)
                self._date.meet(self.session)
                self._check_salt()
            except BaseException:
                self.session.close()
                raise
        if self.session.guards:
            try:
                self.session.run([(BEGIN, ())])
            finally:
                self._undo()

    def _check_salt(self) -> None:
        """Raise Unfit if locks have other numbers: on a standby, perhaps, that lacks the last upgrade."""
        if schema.salt_of(self.session) != self._salt:
            raise UnfitDatabase("the tables are not those of before; start the server again")

    # --- units -------------------------------------------------------------------------------------------

    def begin(self, plans: Iterable[AccessPlan] = ()) -> PostgreSQLUnit:
        """Open a unit, with all rows locked and read that the plans name.

        Raises StoreAway where the database cannot be reached, StoreConflict where rows stay locked.
        """
        every = [*plans, *self._always]
        if not self.session.alive:
            self.reach()
        if self._always:
            self.unit.remembered.forget()  # hints of what another server left come later than its commit
        for _ in range(MOVES_MAX):
            try:
                self.unit.open(self._clock.now(), every, self._date.shown)
            except ClockMoved as moved:
                self.rollback()
                self._follow(moved)
            except StoreError:
                self.rollback()
                raise
            else:
                return self.unit
        raise StoreConflict("the test clock was moved again and again")

    def _follow(self, moved: ClockMoved) -> None:
        """Go to the date of the test clock; raises Unfit where this server cannot, and is then away."""
        try:
            self._date.follow(moved.date)
        except StoreAway:
            self.session.close()
            raise

    def commit(self) -> None:
        """Write the open unit and commit it; raises StoreError, OutcomeUnknown where nobody knows."""
        self._units += 1
        try:
            self.unit.commit(
                (SQL["lock_alone"], (self._keys.of("events"),)),
                (SQL["note_unit"], (self._row, self._units, timestamp_ms(self.unit.moment))),
            )
        except StoreAway as error:
            if not self._was_committed(error):
                raise
            self.unit.committed()
            self.unit.forget()

    @property
    def _row(self) -> str:
        """Return which row of ``sessions`` has the number of the last unit."""
        return f"{self.id}/{self._units % SESSION_ROWS}"

    def _was_committed(self, error: StoreAway) -> bool:
        """Find out whether the commit was done whose answer did not come; raises OutcomeUnknown.

        It is tried again and again, as a standby may have to be promoted first.
        """
        until = self._seconds.monotonic() + OUTCOME_S_MAX
        while True:
            try:
                done = self._ask()
            except StoreBroken:
                raise
            except StoreError as second:
                if self._seconds.monotonic() >= until:
                    raise OutcomeUnknown(f"{error}; then {second}") from error
                pause(PG_LOOK_S * random.uniform(0.5, 1.5))  # noqa: S311
            else:
                break
        log.warning("the connection broke at a commit, which was %sdone", "" if done else "not ")
        self._units += not done  # that number is used up
        return done

    def _ask(self) -> bool:
        """Tell whether the last unit is committed, wherever the primary is now; if not, it never will be.

        To ask waits for a transaction that is still on its way, and as it writes, for the standby. What
        PostgreSQL has not even read by then fails when it does.
        """
        try:
            self.reach()
            ((done,),) = self.session.run([(BEGIN, ()), (SQL["ask_for_unit"], (self._row, self._units))])[1]
            self.session.commit([(SQL["commit"], ())])
        except StoreError:
            self._undo()
            raise
        return bool(done)

    def confirm(self) -> None:
        """Do nothing: a commit that was answered is found again."""

    def rollback(self) -> None:
        """Undo the unit, if it is still open, and forget what it did in memory."""
        self._undo()
        self.unit.roll_back()

    def _undo(self) -> None:
        with suppress(StoreError):  # a lost connection has undone it
            if self.session.alive and self.session.in_transaction:
                self.session.script(SQL["rollback"])

    def fault(self, error: Exception) -> StoreError | None:
        """Return the fault that an error of psycopg means."""
        return fault_of(error)

    def make_room(self) -> None:
        """Do nothing: room is the database's own affair."""

    def look_for_room(self) -> None:
        """Do nothing: room is the database's own affair."""

    def heard(self, due: Mapping[str, str] | None) -> None:
        """Note what other servers left queued: names, each with a nextRun; None: it may be anything."""
        self.unit.remembered.heard(due)

    def changed_outside(self) -> bool:
        """Tell that nothing has to be read anew: each unit reads all it needs."""
        return False

    def close(self) -> None:
        """Close the connection; an open unit is rolled back."""
        self.rollback()
        with suppress(StoreError):
            if self.session.alive:
                old = after_seconds(self._now(), -SESSION_KEPT_S)
                self.session.run([(SQL["close_session"], (self.id, old))])
        self.session.end()

    # --- time --------------------------------------------------------------------------------------------

    def _value(self, statement: str, *parameters: object) -> str | None:
        found = self.session.run([(SQL[statement], parameters)])[0]
        return found[0][0] if found else None

    def seen(self) -> str:
        """Return when a server of this database was last known to be alive; empty for a new one."""
        return self._value("get_meta", "seen") or ""

    def next_moment(self) -> str | None:
        """Return the next timestamp at which a job's time is over or a pause ends."""
        ends = [pause.until for pause in self.unit.records.pauses() if pause.until]
        expiry = self._value("next_expiry")
        return min(ends if expiry is None else [*ends, expiry], default=None)

    def next_on_all_hosts(self) -> str | None:
        """Return when the next schedule on all hosts is due."""
        return self.unit.next_on_all_hosts()

    def search_in_s(self) -> float:
        """Return the seconds until ``search`` of a unit can go on."""
        return self.unit.remembered.search_in_s()

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due."""
        return self._value("soonest_of_all", now)
