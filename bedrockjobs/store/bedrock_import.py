"""Copies the jobs of an original Bedrock database into ours, keeping their jobIDs.

Every row is judged before the first is written. It knows no command line and never changes the old file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import JobID, JSONObject, Name, Priority, Timestamp, command_error
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.job.rows import Job, checksum_of
from bedrockjobs.schedule.repeat import parse_repeat, parse_retry_after
from bedrockjobs.store import schema
from bedrockjobs.store.backup import CopyError, open_read_only
from bedrockjobs.store.statements import STATEMENTS

COLUMNS = (
    "created", "jobID", "state", "name", "nextRun", "lastRun", "repeat", "data", "priority", "parentJobID",
    "retryAfter",
)  # fmt: skip
"""Bedrock's columns, in its order, which is also the order of ``Job``."""

COUNTED_ID_MAX = 2**48
"""Below it jobIDs were counted, and ours go on behind them; the original draws them from 63 bits today."""

WAL2_VERSION = 3
"""Bytes 18 and 19 of a file in WAL2 mode, which Bedrock's own SQLite knows and no other."""

_JUDGES: dict[str, TypeAdapter[Any]] = {
    "created": TypeAdapter(Timestamp),
    "jobID": TypeAdapter(JobID),
    "name": TypeAdapter(Name),
    "nextRun": TypeAdapter(Timestamp),
    "lastRun": TypeAdapter(Timestamp),
    "data": TypeAdapter(JSONObject),
    "priority": TypeAdapter(Priority),
    "parentJobID": TypeAdapter(JobID),
}
_MAY_BE_EMPTY = {"lastRun": "", "parentJobID": 0}


class BadRow(ValueError):
    """A row that cannot be a job of ours; the message says which value and what was expected."""


@dataclass
class Findings:
    """What the old database holds."""

    good: set[int] = field(default_factory=set)
    bad: dict[Any, str] = field(default_factory=dict)
    """The complaint about each row that cannot be imported, by its jobID."""
    running: int = 0
    """Good rows that a worker had in hand: nobody will give them out again."""


def examine(old: Path) -> Findings:
    """Judge every row of an old database.

    Raises CopyError where it is no Bedrock database, sqlite3.Error where it cannot be read.
    """
    found = Findings()
    parents: dict[int, int] = {}
    with closing(_open_old(old)) as connection:
        for values in _rows(connection):
            try:
                row = _job_row(values)
            except BadRow as complaint:
                found.bad[values[1]] = str(complaint)
                continue
            found.good.add(row.job_id)
            found.running += row.state == "RUNNING"
            if row.parent_job_id:
                parents[row.job_id] = row.parent_job_id
    for job_id, parent in parents.items():
        if parent not in found.good:
            found.bad[job_id] = f"parentJobID: job {parent} is missing or cannot be imported"
    found.good -= found.bad.keys()
    return found


def import_jobs(old: Path, database: Path, findings: Findings) -> int:
    """Copy the good rows in one transaction; return how many.

    Makes the database where there is none. Raises CopyError where a jobID is taken already, and
    ``schema.SchemaError`` for a database of another make.
    """
    with closing(_open_old(old)) as source, closing(open_for_writing(database)) as target:
        schema.apply(target)
        target.execute("BEGIN IMMEDIATE")
        try:
            count = _insert_all(source, target, findings)
        except BaseException:
            target.execute("ROLLBACK")
            raise
        target.execute("COMMIT")
    return count


def open_for_writing(database: Path) -> sqlite3.Connection:
    """Open our database, made with mode 0600 where there is none."""
    os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
    return sqlite3.connect(database, isolation_level=None)


def _insert_all(source: sqlite3.Connection, target: sqlite3.Connection, findings: Findings) -> int:
    count = highest = 0
    for values in _rows(source):
        if values[1] not in findings.good:
            continue
        try:
            row = _job_row(values)
            target.execute(STATEMENTS["insert_job"], (*row, checksum_of(row.data)))
        except BadRow as complaint:
            raise CopyError(f"job {values[1]} was changed meanwhile: {complaint}") from None
        except sqlite3.IntegrityError:
            raise CopyError(
                f"jobID {values[1]} is taken in the database already; nothing was imported"
            ) from None
        count += 1
        if row.job_id < COUNTED_ID_MAX:
            highest = max(highest, row.job_id)
    next_id = int(target.execute(STATEMENTS["get_meta"], ("nextJobID",)).fetchone()[0])
    target.execute(STATEMENTS["set_meta"], ("nextJobID", max(next_id, highest + 1)))
    return count


def _open_old(old: Path) -> sqlite3.Connection:
    """Open the old database at one snapshot."""
    connection = open_read_only(old)
    try:
        _check_file(old)
        connection.execute("BEGIN")
        _check_columns(old, {str(row[1]).lower() for row in connection.execute("PRAGMA table_info(jobs)")})
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(old: Path) -> None:
    with old.open("rb") as file:
        if WAL2_VERSION in file.read(20)[18:20]:
            raise CopyError(
                f"{old} is in WAL2 mode, which only Bedrock's own SQLite reads;"
                " stop Bedrock and set PRAGMA journal_mode = DELETE with its sqlite3 first"
            )


def _check_columns(old: Path, present: set[str]) -> None:
    if "runid" in present:
        raise CopyError(f"{old} is a database of bedrockjobs, not of Bedrock")
    missing = [column for column in COLUMNS if column.lower() not in present]
    if missing:
        what = f"its table jobs lacks {', '.join(missing)}" if present else "it has no table jobs"
        raise CopyError(f"{old} is not a Bedrock database: {what}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    # A text that is not UTF-8 must be a complaint about its row, not the end of the import.
    connection.text_factory = _text
    yield from connection.execute(f"SELECT {', '.join(COLUMNS)} FROM jobs ORDER BY jobID")  # noqa: S608


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _job_row(values: tuple[Any, ...]) -> Job:
    """Return a row of the old table as one of ours; raises BadRow."""
    given = dict(zip(COLUMNS, values, strict=True))
    judged = {key: _judged(key, given[key]) for key in _JUDGES}
    if given["state"] not in STATES:
        raise BadRow(f"state: expected one of {', '.join(STATES)}, got {given['state']!r}")
    if judged["jobID"] == 0:
        raise BadRow("jobID: expected a number above 0")
    return Job(
        created=judged["created"],
        job_id=judged["jobID"],
        state=given["state"],
        name=judged["name"],
        next_run=judged["nextRun"],
        last_run=judged["lastRun"],
        repeat=_expression("repeat", given["repeat"]),
        data=judged["data"],
        priority=judged["priority"],
        parent_job_id=judged["parentJobID"],
        retry_after=_expression("retryAfter", given["retryAfter"]),
        lane=MOCK_LANE if "mockRequest" in jsontext.members(judged["data"]) else OPEN_LANE,
    )


def _judged(key: str, value: Any) -> Any:
    if key in _MAY_BE_EMPTY and value in (None, "", 0):
        return _MAY_BE_EMPTY[key]
    if isinstance(value, bytes):
        raise BadRow(f"{key}: expected UTF-8 text")
    try:
        return _JUDGES[key].validate_python(value)
    except ValidationError as error:
        raise BadRow(f"{key}: {_words(command_error(error))}, got {str(value)[:60]!r}") from None


def _words(error: CommandError) -> str:
    return error.detail.removeprefix(": ") or error.reason


def _expression(key: str, value: Any) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str):
        raise BadRow(f"{key}: expected text, got {str(value)[:60]!r}")
    try:
        (parse_repeat if key == "repeat" else parse_retry_after)(value)
    except ValueError as error:
        raise BadRow(f"{key}: expected {error}, got {value[:60]!r}") from None
    return value
