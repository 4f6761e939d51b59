"""Import the jobs of an original Bedrock database with their jobIDs.

Every row is validated before the first is written. The old file is never changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import JobID, JSONObject, Name, Priority, command_error, date
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, Job, checksum_of
from bedrockjobs.schedule.repeat import parse_repeat, parse_retry_after
from bedrockjobs.store import schema
from bedrockjobs.store.statements import STATEMENTS
from bedrockjobs.store.transfer import SQLiteRows, TransferError, open_for_writing, open_read_only

COLUMNS = (
    "created",
    "jobID",
    "state",
    "name",
    "nextRun",
    "lastRun",
    "repeat",
    "data",
    "priority",
    "parentJobID",
    "retryAfter",
)
"""Bedrock's columns in its order, which is also the order of ``Job``."""

_DATE: TypeAdapter[Any] = TypeAdapter(Annotated[str, BeforeValidator(date)])
_TYPES: dict[str, TypeAdapter[Any]] = {
    "created": _DATE,
    "jobID": TypeAdapter(JobID),
    "name": TypeAdapter(Name),
    "nextRun": _DATE,
    "lastRun": _DATE,
    "data": TypeAdapter(JSONObject),
    "priority": TypeAdapter(Priority),
    "parentJobID": TypeAdapter(JobID),
}
_MAY_BE_EMPTY = {"lastRun": "", "parentJobID": 0}


class BadRow(ValueError):
    """A row that cannot be imported; the message names the value and what was expected."""


@dataclass
class Findings:
    """The result of validating an old database."""

    good: set[int] = field(default_factory=set)
    """jobIDs of the rows that can be imported."""
    bad: dict[Any, str] = field(default_factory=dict)
    """The complaint about each row that cannot be imported, by jobID."""
    running: int = 0
    """Number of good rows in state RUNNING: no worker takes these jobs again."""


def examine(old: Path) -> Findings:
    """Validate every row of an old database.

    Raises TransferError if it is not a Bedrock database, sqlite3.Error if it cannot be read.
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
    """Import the good rows in one transaction; return their number.

    Creates the database if it does not exist. Raises TransferError if the database has a job with one of the
    jobIDs, and ``schema.SchemaError`` if it is not a database of bedrockjobs.
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


def _insert_all(source: sqlite3.Connection, target: sqlite3.Connection, findings: Findings) -> int:
    count = 0
    for values in _rows(source):
        if values[1] not in findings.good:
            continue
        try:
            row = _job_row(values)
            target.execute(STATEMENTS["insert_job"], (*row, checksum_of(row.data)))
        except BadRow as complaint:
            raise TransferError(f"job {values[1]} was changed in the meantime: {complaint}") from None
        except sqlite3.IntegrityError:
            raise TransferError(
                f"jobID {values[1]} is taken in the database already; nothing was imported"
            ) from None
        count += 1
    target.execute(STATEMENTS["set_meta"], ("nextJobID", SQLiteRows(target).next_number("nextJobID")))
    return count


def _open_old(old: Path) -> sqlite3.Connection:
    """Open a snapshot of the old database."""
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
        # Bytes 18 and 19 of a file in WAL2 mode, which only Bedrock's own SQLite can read.
        if 3 in file.read(20)[18:20]:
            raise TransferError(
                f"{old} is in WAL2 mode, which only Bedrock's own SQLite reads;"
                " stop Bedrock and set PRAGMA journal_mode = DELETE with its sqlite3 first"
            )


def _check_columns(old: Path, present: set[str]) -> None:
    if "runid" in present:
        raise TransferError(f"{old} is a database of bedrockjobs, not of Bedrock")
    missing = [column for column in COLUMNS if column.lower() not in present]
    if missing:
        what = f"its table jobs lacks {', '.join(missing)}" if present else "it has no table jobs"
        raise TransferError(f"{old} is not a Bedrock database: {what}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    # A text that is not UTF-8 is a complaint about its row; it must not abort the import.
    connection.text_factory = _text
    yield from connection.execute(f"SELECT {', '.join(COLUMNS)} FROM jobs ORDER BY jobID")  # noqa: S608


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _job_row(values: tuple[Any, ...]) -> Job:
    """Convert a row of the old table; raises BadRow."""
    values_by_column = dict(zip(COLUMNS, values, strict=True))
    checked = {key: _checked(key, values_by_column[key]) for key in _TYPES}
    if values_by_column["state"] not in STATES:
        raise BadRow(f"state: expected one of {', '.join(STATES)}, got {values_by_column['state']!r}")
    if checked["jobID"] == 0:
        raise BadRow("jobID: expected a number above 0")
    return Job(
        created=checked["created"],
        job_id=checked["jobID"],
        state=values_by_column["state"],
        name=checked["name"],
        next_run=checked["nextRun"],
        last_run=checked["lastRun"],
        repeat=_expression("repeat", values_by_column["repeat"]),
        data=checked["data"],
        priority=checked["priority"],
        parent_job_id=checked["parentJobID"],
        retry_after=_expression("retryAfter", values_by_column["retryAfter"]),
        lane=MOCK_LANE if "mockRequest" in jsontext.members(checked["data"]) else OPEN_LANE,
    )


def _checked(key: str, value: Any) -> Any:
    if key in _MAY_BE_EMPTY and value in (None, "", 0):
        return _MAY_BE_EMPTY[key]
    if isinstance(value, bytes):
        raise BadRow(f"{key}: expected UTF-8 text")
    try:
        return _TYPES[key].validate_python(value)
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
