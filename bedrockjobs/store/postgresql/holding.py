"""Holds a queue on PostgreSQL that was restored, before a server may see it."""

from __future__ import annotations

from contextlib import closing

from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.hold import HOLD_PATTERN
from bedrockjobs.store.holding import HASTY, calmed, hold_row
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.moving import Database, own_queue, refuse_none
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

_PAUSE = (
    'INSERT INTO pauses (pattern, "by", reason, since, "until", regex) VALUES ($1, $2, $3, $4, $5, $6)'
    ' ON CONFLICT (pattern) DO UPDATE SET "by" = $2, reason = $3, since = $4'
)
_EVENT = "INSERT INTO events (at, kind, name, \"by\", detail) VALUES ($1, 'held', '*', $2, $3)"
_CALM = "UPDATE jobs SET nextRun = $1, expires = $2, lane = $3, memory = $4 WHERE jobID = $5::bigint"


def hold_queue(database: Database, by: str, reason: str, now: str) -> None:
    """Hold everything in a queue without live servers, in one transaction.

    Raises TransferError if there is no queue or servers use it, SchemaError for another version, StoreError.
    """
    with closing(database.open()) as session, session.transaction("READ COMMITTED"):
        refuse_none(session, database)
        own_queue(session, database)
        schema.check_tables(session)
        (rows,) = session.run([(HASTY, ())])
        row = hold_row(by, reason, now)
        session.run(
            [
                (_PAUSE, (*row, anchored_regex([HOLD_PATTERN]))),
                (_EVENT, (now, by, reason)),
                *(
                    (_CALM, (job.next_run, job.expires, job.lane, job.memory_json, job.job_id))
                    for job in calmed(rows)
                ),
                (SQL["raise_epoch"], ()),
            ]
        )
        session.commit([("COMMIT", ())])
