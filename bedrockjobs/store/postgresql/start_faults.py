"""What keeps a server from starting on a PostgreSQL, in a sentence that says what to do.

PostgreSQL tells in its own language why it lets nobody in, and no code comes with it: where the words are not
known, they are passed on.
"""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.store.faults import StoreAway, StoreError, StoreFull
from bedrockjobs.store.postgresql.arrival import Unfit
from bedrockjobs.store.postgresql.session import BadURL
from bedrockjobs.store.schema import SchemaError

UNAVAILABLE, CONFIG = 69, 78
"""Exit statuses: it may be different in a moment; somebody has to change something."""


class StartFault(NamedTuple):
    """Why a server cannot start, and its exit status."""

    sentence: str
    status: int


_LET_IN = (
    ("too many clients", "Raise max_connections, or let fewer servers connect.", UNAVAILABLE),
    ("remaining connection slots", "Raise max_connections, or let fewer servers connect.", UNAVAILABLE),
    ("too many connections", "Raise the connection limit of the role or the database.", UNAVAILABLE),
    ("password authentication failed", "Look at user and password.", CONFIG),
    ("no password supplied", "Give a password in the URL, in PGPASSWORD or in a password file.", CONFIG),
    ("pg_hba.conf", "Let an administrator allow this host, user and database in pg_hba.conf.", CONFIG),
    ('role "', "Make the role, or name another user in the URL.", CONFIG),
    ('database "', "Make it with CREATE DATABASE, or name another one in the URL.", CONFIG),
    ("session is read-only", "Only standbys answered: name the primary in the URL too.", UNAVAILABLE),
    ("starting up", "Try again in a moment.", UNAVAILABLE),
    ("shutting down", "Try again in a moment.", UNAVAILABLE),
)
"""Words of PostgreSQL and libpq, what to do about them, and the exit status."""

_STATES = (
    ("(42501)", "The role lacks rights: GRANT CREATE ON DATABASE, or let the owner make the schema.", CONFIG),
    ("(57014)", "A statement took too long: look for who keeps the tables locked.", UNAVAILABLE),
    ("(55P03)", "Somebody keeps the tables locked: look into pg_locks.", UNAVAILABLE),
)


def start_fault(error: StoreError | SchemaError) -> StartFault:
    """Return what an error means for a server that starts."""
    words = str(error).strip()
    if isinstance(error, SchemaError):
        return StartFault(f"database: {words}", CONFIG)
    if isinstance(error, BadURL):
        return StartFault(
            f"database: the URL cannot be read: {words}. Expected postgresql://user@host:port/database.",
            CONFIG,
        )
    if isinstance(error, Unfit):
        return StartFault(f"database: {words}.", CONFIG)
    if isinstance(error, StoreFull):
        return StartFault(f"database: its disk is full: {words}. Make room there.", UNAVAILABLE)
    known = _LET_IN if isinstance(error, StoreAway) else _STATES
    for part, advice, status in known:
        if part in words:
            return StartFault(f"database: {words} {advice}", status)
    if isinstance(error, StoreAway):
        return StartFault(f"database: {words} Look at host and port, and whether it runs.", UNAVAILABLE)
    return StartFault(f"database: {words}", UNAVAILABLE)
