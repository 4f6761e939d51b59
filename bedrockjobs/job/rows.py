"""The rows of the tables. No SQL here."""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

from bedrockjobs.base.config import PRIORITY_DEFAULT
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE
from bedrockjobs.job.memory import NO_MEMORY, Memory, decode_memory, encode_memory
from bedrockjobs.job.options import NO_OPTIONS, Options, decode_options


class Job(NamedTuple):
    """One job, field by field as in ``schema.sql``; stamps and JSON are text."""

    created: str
    job_id: int
    state: str
    name: str
    next_run: str
    last_run: str = ""
    repeat: str = ""
    data: str = "{}"
    priority: int = PRIORITY_DEFAULT
    parent_job_id: int = 0
    retry_after: str = ""
    attempt: int = 0
    run_id: int = 0
    expires: str = ""
    lane: str = OPEN_LANE
    options_json: str = "{}"
    memory_json: str = "{}"

    @property
    def options(self) -> Options:
        """Return what a user gave with the job."""
        return NO_OPTIONS if self.options_json == "{}" else decode_options(self.options_json)

    @property
    def memory(self) -> Memory:
        """Return what the server notes about the job."""
        return NO_MEMORY if self.memory_json == "{}" else decode_memory(self.memory_json)

    def remembering(self, notes: Memory) -> Job:
        """Return the job with other notes."""
        return self._replace(memory_json=encode_memory(notes))

    def noting(self, **changes: Any) -> Job:
        """Return the job with some of its notes changed."""
        return self.remembering(self.memory._replace(**changes))

    @property
    def mocked(self) -> bool:
        """Tell whether the job is a mocked one."""
        return self.lane == MOCK_LANE

    @property
    def queued(self) -> bool:
        """Tell whether a GetJob may find it, now or when it is due."""
        return self.state == "QUEUED" or self.state == "RUNQUEUED"


class DamagedJob(Job):
    """A job whose data is not what was stored; it holds what was found, marked as that: ``damagedData``."""

    __slots__ = ()


_WIDTH, _DATA = len(Job._fields), Job._fields.index("data")


_REST = Job._fields.index("priority") + 1
_PLAIN = Job("", 0, "", "", "")[_REST:]
"""What follows the priority in the row of a job of which nothing special was asked."""


def is_plain(job: Job) -> bool:
    """Tell whether a job was never taken, and nothing special was asked of it."""
    return job[_REST:] == _PLAIN and not (job.last_run or job.repeat)


def checksum_of(data: str) -> int:
    """Return the checksum that is stored beside a job's data."""
    return crc32(data.encode())


def job_from(row: tuple[Any, ...]) -> Job:
    """Return a stored row, its checksum behind it, as a job; a DamagedJob where the two do not agree.

    A row without a checksum was written by hand.
    """
    check = row[_WIDTH]
    if check is None or crc32(row[_DATA].encode()) == check:
        return tuple.__new__(Job, row[:_WIDTH])  # as Job._make does; each take comes through here
    return damaged(row)


def damaged(row: tuple[Any, ...]) -> DamagedJob:
    """Return a stored row of which it is known that it is damaged."""
    return DamagedJob._make(row[:_WIDTH])._replace(data=f'{{"damagedData":{quoted(row[_DATA])}}}')


class RunRow(NamedTuple):
    """One run, field by field as in ``schema.sql``."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str
    scheduled_for: str
    started: str
    lease: int
    """Seconds it may be without a heartbeat; 0: as long as it likes."""
    ended: str
    worker: str
    host: str
    pid: int
    stop: str
    """TERM or KILL, with `` timeout`` behind it where no person asked for it; empty while it may go on."""
    status: str
    exit_code: int | None
    error: str
    result: str
    progress: str
    output: str
    kept: str = ""
    """Until when it stays whatever else is kept; empty: it is one of the last of its name."""
    created: str = ""
    """When its job was made, of a run with ``kept``."""


class RunGiven(NamedTuple):
    """What a run was given, by which it can be done again."""

    data: str = ""
    """The job's data, as the run had it; empty where that is not known."""
    options_json: str = "{}"
    priority: int = PRIORITY_DEFAULT


class RunHead(NamedTuple):
    """What tells a run from others, without what it was given and printed."""

    run_id: int
    job_id: int
    name: str
    status: str
    ended: str
    """A stamp; empty while it runs."""


class TickRow(NamedTuple):
    """Neighbouring ticks of a schedule with one outcome."""

    job_id: int
    tick: str
    until: str
    count: int  # type: ignore[assignment]
    outcome: str
    reason: str
    late: int
    run_id: int


class JobOfKey(NamedTuple):
    """The job that an idempotency key was used for, or that holds a unique key."""

    job_id: int
    name: str
    """As it was then; empty if a server before version 6 of the schema wrote it."""
    holds: str = ""
    """How long a unique key is held: until its job is ``finished`` or ``started``, or until a timestamp.

    Empty for an idempotency key.
    """


class PauseRow(NamedTuple):
    """A name pattern that is paused."""

    pattern: str
    by: str
    reason: str
    since: str
    until: str


class RuleRow(NamedTuple):
    """Who is told of what; ``job.rules`` reads what is in it."""

    name: str
    rule: str
    by: str
    created: str
    cursor: int
    state: str


class EventRow(NamedTuple):
    """Something that people follow, without its number and its time."""

    kind: str
    name: str = ""
    """A job's, a worker's or a pattern."""
    job_id: int = 0
    run_id: int = 0
    by: str = ""
    detail: str = ""


class TokenRow(NamedTuple):
    """A token, field by field as in ``schema.sql``; of the secret only its SHA-256 is kept."""

    name: str
    digest: str
    role: str
    names: str
    """A JSON array of GLOB patterns; an empty one: all names."""
    no_data: int
    by: str
    created: str
    expires: str
    last_used: str
    revoked: str
    addresses: str
    """A JSON array of those it was used from, the newest last."""


class LoginRow(NamedTuple):
    """A session of the pages; of its secret only the SHA-256 is kept."""

    digest: str
    token: str
    created: str
    expires: str


class AuditRow(NamedTuple):
    """Something that an operator changed, without its number."""

    at: str
    by: str
    address: str
    command: str
    name: str
    job_id: int
    detail: str
    """The parameters of the command, a JSON object."""
    before: str
    """A schedule as it was, a JSON object; empty where there was none."""
    after: str
