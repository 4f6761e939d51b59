"""The test clock of a database, by which all of its servers go, or none does.

Its date stands in ``control``, and each unit reads it with its first lock. A server that starts where no
other lives sets it to its own date or, without ``--test-clock``, takes it away.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedrockjobs.base.clock import Clock, StandingClock
from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.base.wire import moment_of, stamp_ms
from bedrockjobs.store.faults import StoreConflict
from bedrockjobs.store.postgresql.arrival import Unfit
from bedrockjobs.store.postgresql.session import BEGIN, Session
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.schema import SchemaError

MOVES_MAX = 10
"""How often a unit begins anew as the test clock was moved: who moves it does units of its own in between."""


class ClockMoved(StoreConflict):
    """A unit began at another date than that of the test clock."""

    def __init__(self, date: str) -> None:
        """Hold the date of the database; empty: it has no test clock."""
        super().__init__("the test clock was moved")
        self.date = date


class SharedDate:
    """What one server knows of the test clock of its database."""

    def __init__(self, clock: Clock) -> None:
        """Go by ``clock``, which is to stand where the database has a test clock."""
        self._clock = clock
        self._standing = clock if isinstance(clock, StandingClock) else None

    @property
    def shown(self) -> str:
        """Return the date that the database is to have; empty: no test clock."""
        return "" if self._standing is None else stamp_ms(self._standing.now())

    def agree(self, session: Session, control: int) -> None:
        """Go by the test clock of the servers that live, or set it as no other lives.

        ``control`` is the key of the lock that all units share. Raises SchemaError where others go by another
        kind of date.
        """
        living = (SQL["clock_and_servers"], (SERVER_GONE_S,))
        ((date, servers),) = session.run([living])[0]
        if not servers and date != self.shown:
            ((date, servers),) = session.run([(BEGIN, ()), (SQL["lock_alone"], (control,)), living])[2]
            date = date if servers else self.shown
            session.commit([(SQL["set_clock"], (date,)), (SQL["commit"], ())])
        if bool(date) != (self._standing is not None):
            raise SchemaError(_words(date, servers))
        self._go_to(date)

    def meet(self, session: Session) -> None:
        """Be at the date of a database that was away; raises Unfit where it has another kind of date."""
        ((date,),) = session.run([(SQL["clock"], ())])[0]
        self.follow(date)

    def follow(self, date: str) -> None:
        """Be at the date that the database has; raises Unfit where that is of another kind."""
        if bool(date) != (self._standing is not None):
            raise Unfit(_words(date))
        self._go_to(date)

    def _go_to(self, date: str) -> None:
        if self._standing is not None:
            self._standing.move_to(moment_of(date))


def _words(date: str, names: Sequence[str] = ()) -> str:
    """Return why a server cannot go together with others, whose test clock shows ``date``; empty: none."""
    named = f" ({', '.join(names)})" if names else ""
    others = f"other servers of this database{named}"
    if date:
        return f"{others} have a test clock, which shows {date[:19]}: start this one with --test-clock too"
    return f"{others} have no test clock: stop them first, or give tests a database of their own"
