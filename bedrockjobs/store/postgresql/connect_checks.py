"""Check a PostgreSQL database on each new connection, and explain why a server cannot start on it.

The checks compare the cluster and its timeline with those of the last connection, and verify the required
durability. A promoted standby has a higher timeline and may lack the last commits of its primary. A range of
IDs is then skipped, so that no ID that a client has seen is used twice.
"""

from __future__ import annotations

import logging
from functools import partial
from os import EX_CONFIG, EX_UNAVAILABLE
from typing import NamedTuple

from bedrockjobs.store.base import StoreAway, StoreError, StoreFull
from bedrockjobs.store.postgresql.session import (
    BEGIN,
    BadURL,
    DatabaseSession,
    Row,
    SessionRequirements,
    Statement,
    TransactionCheck,
)
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.schema import SchemaError

log = logging.getLogger(__name__)

STRENGTH = ("off", "local", "remote_write", "on", "remote_apply")
"""Values of ``synchronous_commit``, weakest first."""


class UnfitDatabase(StoreAway):
    """The database answers but must not be used in its present state."""


class ReadOnlyDatabase(UnfitDatabase):
    """The database is read-only, as a standby before its promotion."""


class StandbyAway(StoreAway):
    """No synchronous standby is connected."""

    reason = "Standby away"
    detail = "nothing was done; no synchronous standby is connected, try again"


class Timeline(NamedTuple):
    """The identity of a database: its cluster and its timeline."""

    system: int
    timeline: int


class ConnectChecks:
    """The checks of one server, and the timeline that it saw last."""

    def __init__(self, terms: SessionRequirements) -> None:
        """Check against the requirements ``terms``."""
        self._terms = terms
        self.seen: Timeline | None = None
        """The timeline of the last connection that passed ``check_connection``."""

    def check_reader(self, session: DatabaseSession) -> None:
        """Check a new connection that only reads: its server must be the one that is written to.

        Raises StoreAway, for example for an old primary that still runs.
        """
        assert self.seen is not None
        check = TransactionCheck((SQL["where"], ()), partial(_is_still, self.seen))
        check.judge(session.run_statements([check.statement])[0])
        if session.pooled:
            session.guards.append(check)

    def check_connection(self, session: DatabaseSession) -> None:
        """Check a new connection and set it up.

        Raises UnfitDatabase or StandbyAway if the database must not be used, StoreError if a statement fails.
        """
        ((read_only, system, timeline, fsync, commits, sees_standbys),) = session.run_statements(
            [(SQL["where"], ())]
        )[0]
        if read_only:
            raise ReadOnlyDatabase("the database is read-only: it is a standby, or was set to read-only")
        place = Timeline(system, timeline)
        if self.seen is not None and place.system != self.seen.system:
            raise UnfitDatabase(
                "a different database answers than before; restart the server if this is intended"
            )
        if self.seen is not None and place.timeline < self.seen.timeline:
            raise UnfitDatabase(
                f"an old primary answers: its timeline is {place.timeline}, but another had"
                f" {self.seen.timeline}; it must not be written"
            )
        self._demand(session, fsync, commits, sees_standbys=sees_standbys)
        if session.pooled:
            session.guards.append(TransactionCheck((SQL["where"], ()), partial(_is_still, place)))
        if self._terms.durability == "replicated":
            session.guards.append(TransactionCheck((SQL["standby"], ()), _has_standby))
            _has_standby(
                session.run_statements([(SQL["standby"], ())])[0]
            )  # first: a commit would wait for it
        _record_timeline(session, place)
        self.seen = place

    def _demand(self, session: DatabaseSession, fsync: str, commits: str, *, sees_standbys: bool) -> None:
        """Enforce the required durability: set ``synchronous_commit``, or raise UnfitDatabase."""
        durability = self._terms.durability
        if durability == "relaxed":
            return
        if fsync != "on":
            raise UnfitDatabase(
                f"durability {durability}: fsync is off in this PostgreSQL, so it may lose what it has"
                " confirmed. Set fsync = on, or start with --durability relaxed"
            )
        if durability == "replicated" and not sees_standbys:
            raise UnfitDatabase(
                "durability replicated: this role may not see the standbys. Ask an administrator to run:"
                " GRANT pg_monitor TO the role"
            )
        if STRENGTH.index(commits) >= STRENGTH.index("on"):
            return
        if session.pooled:
            session.parameters["synchronous_commit"] = "on"
        else:
            session.script("SET synchronous_commit = on")


def _record_timeline(session: DatabaseSession, place: Timeline) -> None:
    """Record a new timeline: skip a range of IDs, and renew the leases of all runs in progress."""
    (known,) = session.run_statements([(SQL["control"], ())])[0]
    if not _is_new(place, known):
        return
    (known,) = session.run_statements([(BEGIN, ()), (SQL["control_locked"], ())])[1]
    statements: list[Statement] = [(SQL["commit"], ())]
    if _is_new(place, known):
        noted: list[Statement] = [(SQL["note_place"], (str(place.system), place.timeline))]
        if known[1]:  # not the first start on this database
            log.warning("the database changed to %s from timeline %s", place, known[1])
            # Skip more IDs than a primary assigns before it has replicated them
            noted += [(SQL[name], (1_000_000,)) for name in ("raise_numbers", "raise_far")]
            noted.append((SQL["renew_leases"], (None,)))
        statements[:0] = noted
    session.commit(statements)


def _is_new(place: Timeline, known: Row) -> bool:
    """Return whether the timeline is new, so IDs may be missing; raises UnfitDatabase for an older one."""
    system, timeline = known
    if str(place.system) == system and place.timeline < timeline:
        raise UnfitDatabase(
            f"the timeline of this database is {place.timeline}, but it was {timeline} before"
        )
    return (str(place.system), place.timeline) != (system, timeline)


def _is_still(place: Timeline, rows: list[Row]) -> None:
    if rows[0][1:3] != place:
        raise StoreAway("another database answers than before")


def _has_standby(rows: list[Row]) -> None:
    if not rows[0][0]:
        raise StandbyAway("no synchronous standby is connected, which durability replicated needs")


class StartFault(NamedTuple):
    """Why a server cannot start, and its exit status."""

    sentence: str
    status: int
    """``EX_UNAVAILABLE`` for problems that may pass, ``EX_CONFIG`` for problems that a person has to fix."""
    passes: bool = False
    """Whether the fault may pass by itself: a server that starts then waits, as a running server does."""


_LET_IN = (
    ("too many clients", "Raise max_connections, or let fewer servers connect.", EX_UNAVAILABLE),
    ("remaining connection slots", "Raise max_connections, or let fewer servers connect.", EX_UNAVAILABLE),
    ("too many connections", "Raise the connection limit of the role or the database.", EX_UNAVAILABLE),
    ("password authentication failed", "Check user and password.", EX_CONFIG),
    ("no password supplied", "Give a password in the URL, in PGPASSWORD or in a password file.", EX_CONFIG),
    ("pg_hba.conf", "Ask an administrator to allow this host, user and database in pg_hba.conf.", EX_CONFIG),
    ("does not support SSL", "Check sslmode in the URL.", EX_CONFIG),
    ("certificate", "Check sslmode and the certificates in the URL.", EX_CONFIG),
    ('role "', "Create the role, or name another user in the URL.", EX_CONFIG),
    ('database "', "Create it with CREATE DATABASE, or name another one in the URL.", EX_CONFIG),
    ("session is read-only", "Only standbys answered: name the primary in the URL too.", EX_UNAVAILABLE),
    ("starting up", "Try again in a moment.", EX_UNAVAILABLE),
    ("shutting down", "Try again in a moment.", EX_UNAVAILABLE),
)
"""Parts of the messages of connection errors, with advice and exit status. Such errors have no SQLSTATE, and
their language depends on the database; an error with none of these parts is passed on unchanged."""

_STATES = (
    (
        "(42501)",
        "The role lacks rights: GRANT CREATE ON DATABASE, or let the owner create the schema.",
        EX_CONFIG,
    ),
    ("(57014)", "A statement took too long: find the session that locks the tables.", EX_UNAVAILABLE),
    ("(55P03)", "The tables are locked by another session: see pg_locks.", EX_UNAVAILABLE),
)


def start_fault(error: StoreError | SchemaError) -> StartFault:
    """Return the message and exit status for an error at the start of a server."""
    text = str(error).strip()
    if isinstance(error, SchemaError):
        return StartFault(f"database: {text}", EX_CONFIG)
    if isinstance(error, BadURL):
        return StartFault(
            f"database: the URL cannot be read: {text}. Expected postgresql://user@host:port/database.",
            EX_CONFIG,
        )
    if isinstance(error, ReadOnlyDatabase):
        return StartFault(f"database: {text}.", EX_UNAVAILABLE, passes=True)
    if isinstance(error, UnfitDatabase):
        return StartFault(f"database: {text}.", EX_CONFIG)
    if isinstance(error, StoreFull):
        return StartFault(
            f"database: its disk is full: {text}. Free space there.", EX_UNAVAILABLE, passes=True
        )
    known = _LET_IN if isinstance(error, StoreAway) else _STATES
    for part, advice, status in known:
        if part in text:
            return StartFault(f"database: {text} {advice}", status, passes=status == EX_UNAVAILABLE)
    if isinstance(error, StoreAway):
        advice = "Check host and port, and whether it runs."
        return StartFault(f"database: {text} {advice}", EX_UNAVAILABLE, passes=True)
    return StartFault(f"database: {text}", EX_UNAVAILABLE)
