"""What a server looks at when it has connected: where it is, and what is promised there.

A standby that was promoted has a higher timeline. It may not know of the last commits of the primary before
it, so numbers are left out: none that was told to anybody is given out twice.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from bedrockjobs.base.config import TIMELINE_STEP
from bedrockjobs.store.faults import StoreAway
from bedrockjobs.store.postgresql.pipeline import Row, Statement
from bedrockjobs.store.postgresql.session import BEGIN, Guard, Session
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.terms import Terms

log = logging.getLogger(__name__)

STRENGTH = ("off", "local", "remote_write", "on", "remote_apply")
"""The values of ``synchronous_commit``, each of which promises more than the one before."""


class Unfit(StoreAway):
    """A database answers that must not be used as it is."""


class StandbyAway(StoreAway):
    """There is no synchronous standby."""

    reason = "Standby away"
    detail = "nothing was done; no synchronous standby is connected, try again"


class Place(NamedTuple):
    """A database, and which of its histories this is."""

    system: int
    timeline: int


class Arrival:
    """What one server knows of where its database is."""

    def __init__(self, terms: Terms) -> None:
        """Know of none yet, and demand ``terms``."""
        self._terms = terms
        self._seen: Place | None = None

    def look(self, session: Session) -> None:
        """Look around on a new connection.

        Raises Unfit or StandbyAway where the database is not to be used, StoreError where it cannot be.
        """
        ((read_only, system, timeline, fsync, commits, sees_standbys),) = session.run([(SQL["where"], ())])[0]
        if read_only:
            raise Unfit("the database can only be read: it is a standby, or was made read-only")
        place = Place(system, timeline)
        if self._seen is not None and place.system != self._seen.system:
            raise Unfit("another database answers than before; start the server anew if that is meant")
        if self._seen is not None and place.timeline < self._seen.timeline:
            raise Unfit(
                f"an old primary answers: its timeline is {place.timeline}, that of another was"
                f" {self._seen.timeline}; it must not be written"
            )
        self._demand(session, fsync, commits, sees_standbys=sees_standbys)
        if session.pooled:
            session.guards.append(Guard((SQL["where"], ()), lambda rows: _is_still(place, rows)))
        if self._terms.durability == "replicated":
            session.guards.append(Guard((SQL["standby"], ()), _has_standby))
            _has_standby(session.run([(SQL["standby"], ())])[0])  # else to note the place would wait for one
        _note(session, place)
        self._seen = place

    def _demand(self, session: Session, fsync: str, commits: str, *, sees_standbys: bool) -> None:
        """Refuse a database that does not keep what is to be promised, or let it promise that."""
        durability = self._terms.durability
        if durability == "relaxed":
            return
        if fsync != "on":
            raise Unfit(
                f"durability {durability}: fsync is off in this PostgreSQL, so it may lose what it has"
                " confirmed. Set fsync = on, or start with --durability relaxed"
            )
        if durability == "replicated" and not sees_standbys:
            raise Unfit(
                "durability replicated: this role may not see the standbys. Let an administrator do:"
                " GRANT pg_monitor TO the role"
            )
        if STRENGTH.index(commits) >= STRENGTH.index("on"):
            return
        if session.pooled:
            session.parameters["synchronous_commit"] = "on"
        else:
            session.script("SET synchronous_commit = on")


def _note(session: Session, place: Place) -> None:
    """Note a place that is new: numbers are left out there, and each run in progress gets a new lease."""
    (known,) = session.run([(SQL["control"], ())])[0]
    if not _is_new(place, known):
        return
    (known,) = session.run([(BEGIN, ()), (SQL["control_locked"], ())])[1]
    statements: list[Statement] = [(SQL["commit"], ())]
    if _is_new(place, known):
        noted: list[Statement] = [(SQL["note_place"], (str(place.system), place.timeline))]
        if known[1]:  # not the first time of all
            log.warning("the database has changed to %s from timeline %s", place, known[1])
            noted += [(SQL[name], (TIMELINE_STEP,)) for name in ("raise_numbers", "raise_far")]
            noted.append((SQL["renew_leases"], (None,)))
        statements[:0] = noted
    session.commit(statements)


def _is_new(place: Place, known: Row) -> bool:
    """Tell whether numbers may be missing here; raises Unfit for a past of what is known."""
    system, timeline = known
    if str(place.system) == system and place.timeline < timeline:
        raise Unfit(f"the timeline of this database is {place.timeline}, but it was {timeline} before")
    return (str(place.system), place.timeline) != (system, timeline)


def _is_still(place: Place, rows: list[Row]) -> None:
    if rows[0][1:3] != place:
        raise StoreAway("the pooler leads to another database than before")


def _has_standby(rows: list[Row]) -> None:
    if not rows[0][0]:
        raise StandbyAway("no synchronous standby is connected, which durability replicated needs")
