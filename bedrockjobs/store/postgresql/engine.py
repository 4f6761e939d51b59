"""The engine of one PostgreSQL database: one session that writes, one unit at a time.

It opens and ends units, and finds out what became of a commit whose answer was lost. It knows nothing of
commands.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.store.base import Plan
from bedrockjobs.store.faults import StoreError
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.session import OutcomeUnknown, Session, StoreAway, fault_of
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.unit import PostgreSQLUnit

log = logging.getLogger(__name__)

SCHEMA = "bedrockjobs"
"""Where the tables are, beside whatever else the database holds."""


class PostgreSQLEngine:
    """One database, open for writing, beside other servers."""

    tight = False
    """A full disk is the database's own affair; what it refuses is refused."""
    shared = True
    waits_for_disk = True

    def __init__(self, url: str, clock: Clock | None = None, *, name: str = SCHEMA) -> None:
        """Connect to ``url`` and make the tables in the schema ``name``, unless they are there.

        Raises StoreError where the database cannot be reached, SchemaError where it cannot be used.
        """
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
            raise ValueError(f"schema: expected up to 63 small letters, digits and underscores, not {name!r}")
        self._clock = clock or SystemClock()
        self._keys = AdvisoryKeys(name)
        self.id = secrets.token_hex(8)
        """What no other server of the database has."""
        self._units = 0
        self.session = Session(url, name)
        """The connection that writes."""
        try:
            schema.prepare(self.session, name, self._keys)
            self.session.run([(SQL["open_session"], (self.id,))])
        except BaseException:
            self.session.close()
            raise
        self.unit = PostgreSQLUnit(self.session, self._keys, self.id)
        """What is open, or was open last."""

    # --- units -------------------------------------------------------------------------------------------

    def begin(self, plans: Iterable[Plan] = ()) -> PostgreSQLUnit:
        """Open a unit, with all rows locked and read that the plans name.

        Raises StoreAway where the database cannot be reached, StoreConflict where rows stay locked.
        """
        every = list(plans)
        if not self.session.alive:
            self.session.connect_again()
        self.unit.open(self._clock.now(), every)
        return self.unit

    def commit(self) -> None:
        """Write the open unit and commit it; raises StoreError, OutcomeUnknown where nobody knows."""
        self._units += 1
        try:
            self.unit.commit(
                (SQL["lock_alone"], (self._keys.of("events"),)), (SQL["note_unit"], (self.id, self._units))
            )
        except StoreAway as error:
            if not self._was_committed(error):
                raise
            self.unit.forget()

    def _was_committed(self, error: StoreAway) -> bool:
        """Find out whether the commit was done whose answer did not come; raises OutcomeUnknown.

        The row is locked: that waits for a transaction that is still on its way.
        """
        try:
            self.session.connect_again()
            ((unit,),) = self.session.run([(SQL["committed_unit"], (self.id,))])[0]
        except (StoreError, ValueError) as second:
            raise OutcomeUnknown(f"{error}; then {second}") from error
        done = bool(unit == self._units)
        log.warning("the connection broke at a commit, which was %sdone", "" if done else "not ")
        return done

    def confirm(self) -> None:
        """Do nothing: a commit that was answered is found again."""

    def rollback(self) -> None:
        """Undo the unit, if it is still open, and forget what it did in memory."""
        with suppress(StoreError):  # a lost connection has undone it
            if self.session.alive and self.session.in_transaction:
                self.session.script(SQL["rollback"])
        self.unit.roll_back()

    def fault(self, error: Exception) -> StoreError | None:
        """Return the fault that an error of psycopg means."""
        return fault_of(error)

    def make_room(self) -> None:
        """Do nothing: room is the database's own affair."""

    def look_for_room(self) -> None:
        """Do nothing: room is the database's own affair."""

    def changed_outside(self) -> bool:
        """Tell that nothing has to be read anew: each unit reads all it needs."""
        return False

    def close(self) -> None:
        """Close the connection; an open unit is rolled back."""
        self.rollback()
        with suppress(StoreError):
            if self.session.alive:
                self.session.run([(SQL["close_session"], (self.id,))])
        self.session.close()

    # --- time --------------------------------------------------------------------------------------------

    def _value(self, statement: str, *parameters: object) -> str | None:
        found = self.session.run([(SQL[statement], parameters)])[0]
        return found[0][0] if found else None

    def seen(self) -> str:
        """Return when a server of this database was last known to be alive; empty for a new one."""
        return self._value("get_meta", "seen") or ""

    def next_moment(self) -> str | None:
        """Return the next stamp at which a job's time is over or a pause ends."""
        ends = [pause.until for pause in self.unit.records.pauses() if pause.until]
        expiry = self._value("next_expiry")
        return min(ends if expiry is None else [*ends, expiry], default=None)

    def next_on_all_hosts(self) -> str | None:
        """Return when the next schedule on all hosts is due."""
        return self.unit.next_on_all_hosts()

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due."""
        return self._value("soonest_of_all", now)
