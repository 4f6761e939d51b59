"""The rows of the tables as typed values: jobs with their lane, memory and options, runs, events and more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DECODED_ROWS_MAX, PRIORITY_DEFAULT
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.options import JobOptions

# Lanes: partitions of queued jobs by the conditions for taking them, as text in the column ``lane``.
#
# ``''`` is open to every take, ``mock`` only to takes that ask for mocked jobs. ``every`` is the lane of
# schedules on all hosts: no take gets them, the server creates jobs from them. ``ping`` is the lane of
# schedules whose work is done elsewhere: no take gets them, pings end their ticks. Any other lane consists of
# words: ``now`` (triggered: pauses do not apply), one of ``cmd``, ``argv``, ``url`` (the job has its own
# command, which the take must accept), and ``lock NAME`` (no other job with this lock may be running) or
# ``for WORKER`` (no other worker may take the job).


OPEN_LANE = ""
"""Jobs that any worker may take."""

MOCK_LANE = "mock"
"""Mocked jobs, which only ``getMockedJobs`` takes."""

OWN_COMMANDS = ("cmd", "argv", "url")
"""The options that define a job's own command."""

EVERY_LANE = "every"
"""Schedules that run on all hosts."""

PING_LANE = "ping"
"""Schedules whose work is done elsewhere: each tick waits for a ping."""

UNTAKEN = (EVERY_LANE, PING_LANE)
"""Lanes that no take gets."""

_WORDS = re.compile(r"(now)? ?(cmd|argv|url)? ?(?:lock (.+)|for (.+))?", re.DOTALL)


class Lane(NamedTuple):
    """The conditions for taking a queued job, parsed from the column ``lane``."""

    now: bool
    own: str
    lock: str
    worker: str = ""

    def __str__(self) -> str:
        """Return the text of the lane."""
        last = f"for {self.worker}" if self.worker else f"lock {self.lock}" if self.lock else ""
        words = ("now" if self.now else "", self.own, last)
        return " ".join(word for word in words if word)


@lru_cache(maxsize=4096)
def parse_lane(text: str) -> Lane:
    """Parse a lane; the open lane has no parts."""
    match = _WORDS.fullmatch(text)
    if match is None:
        return Lane(False, "", "")
    return Lane(bool(match[1]), match[2] or "", match[3] or "", match[4] or "")


@lru_cache(maxsize=4096)
def found_in(lane: str) -> str:
    """Return the lane under which the jobs of ``lane`` are indexed, which leaves out the name of a lock."""
    parts = parse_lane(lane)
    return f"{parts._replace(lock='')} lock".strip() if parts.lock else lane


def is_narrow(lane: str) -> bool:
    """Return whether a lane belongs to one lock or worker: there are many such lanes, with few jobs each."""
    parts = parse_lane(lane)
    return bool(parts.lock or parts.worker)


def workers_of(lanes: Iterable[str]) -> frozenset[str]:
    """Return the workers to which the jobs of ``lanes`` are bound."""
    return frozenset(parse_lane(lane).worker for lane in lanes) - {""}


# The server's notes about a job: a JSON object in the column ``memory``, typed here key by key.
#
# Users cannot set them, and see only the last error and exit code, which replies show. A key is written only
# if it differs from its default, so that most jobs have ``{}``.


RETRY_AFTER_KEYS = ("retryAfterCount", "originalNextRun")
"""Members that a take writes into the data of a job with retryAfter."""


class BeforeTake(NamedTuple):
    """Fields of a job before its take that its row no longer has; a returned job gets these values back."""

    next_run: str
    last_run: str
    data_keys: tuple[tuple[str, str], ...] = ()
    """The members of ``RETRY_AFTER_KEYS`` that the data had, each with its value as JSON text."""


class Memory(NamedTuple):
    """The notes about one job; their JSON names are in ``_KEYS``."""

    error: str | None = None
    """The error of its last failure."""
    exit_code: int | None = None
    """The exit status of its last run."""
    failures: int = 0
    """Failed attempts since its last success, tick or revival; limited by ``retries``."""
    losses: int = 0
    """Lost runs since its last success, tick or revival; limited by ``LOST_RUNS_MAX``."""
    unfit: int = 0
    """Times since its last success, tick or revival that workers returned it because their code version was
    unsuitable; limited by ``UNFIT_MAX``."""
    cause: str = ""
    """Why its next or current run is not an ordinary one: retry, lost, manual, or schedule (the rest of a run
    that waited for its children)."""
    overtime: int = 0
    """How often a stop of its run was requested because it exceeded its time: 1 after TERM, 2 after KILL."""
    before: BeforeTake | None = None
    """Fields from before the take that its row no longer has; kept while it runs."""
    tick: str = ""
    """The tick to which a schedule's nextRun or run belongs, if that differs from nextRun."""
    trigger: str | None = None
    """Set while a triggered run waits or is in progress: the job's regular nextRun, which follows afterwards;
    empty if it has none."""
    pending: bool = False
    """Whether another run was triggered to follow the current one."""
    bound_to: str = ""
    """The only worker that may take it: the job comes from a tick of a schedule on all hosts."""
    removed: bool = False
    """Whether its source removed it while it ran: it is deleted at its end."""
    defined: str = ""
    """The data with which its source defined it, as JSON text; its current data may differ."""
    broken: bool = False
    """Whether it is FAILED because its repeat cannot be evaluated, not because a run failed."""
    cancelled: bool = False
    """Whether it was cancelled while it ran: its run is stopped, and it is not retried."""
    failed: bool = False
    """True if its last run failed permanently; the next success then counts as a recovery."""
    offset: int | None = None
    """UTC offset of a schedule's zone at its tick, in seconds, by the time zone rules in force when the tick
    was planned; None in UTC, and if its nextRun was set by hand."""
    takes: int = 0
    """Counter of takes without a run: it tells a take from an earlier one if all other columns are equal."""
    workflow: int = 0
    """The workflow to which it belongs, 0 if none."""
    ref: str = ""
    """Its name within the workflow."""
    formers: tuple[tuple[str, str], ...] = ()
    """Earlier repeats of a schedule, oldest first, each with the timestamp up to which its ticks count. They
    are kept while the schedule still waits or runs for one of these ticks."""

    @property
    def has_triggered_run(self) -> bool:
        """Return whether it has a triggered run, in progress or to follow."""
        return self.trigger is not None or self.pending

    def after_end(self) -> Memory:
        """Return the notes to keep if no retry follows: without the counts and causes of attempts."""
        return self._replace(failures=0, losses=0, unfit=0, cause="", overtime=0, cancelled=False)

    def after_run(self, *, error: str | None = None, exit_code: int | None = None) -> Memory:
        """Return the notes after a run: with its error and exit status, without the notes about its take."""
        return self._replace(before=None, overtime=0, cancelled=False, error=error, exit_code=exit_code)


NO_MEMORY = Memory()

_KEYS = {
    "error": "error",
    "exit_code": "exitCode",
    "failures": "failures",
    "losses": "losses",
    "cause": "cause",
    "overtime": "overtime",
    "before": "before",
    "tick": "tick",
    "trigger": "trigger",
    "pending": "pending",
    "bound_to": "boundTo",
    "removed": "removed",
    "defined": "defined",
    "broken": "broken",
    "cancelled": "cancelled",
    "failed": "failed",
    "offset": "offset",
    "takes": "takes",
    "formers": "formers",
    "unfit": "unfit",
    "workflow": "workflow",
    "ref": "ref",
}
MEMORY_KEYS = frozenset(_KEYS.values())
"""All keys that the column ``memory`` may have."""

_FIELDS = {key: field for field, key in _KEYS.items()}


def encode_memory(memory: Memory) -> str:
    """Return the notes as they are stored in the column ``memory``."""
    if memory == NO_MEMORY:
        return "{}"
    parts: dict[str, str] = {}
    for field, value, default in zip(Memory._fields, memory, NO_MEMORY, strict=True):
        if value == default:
            continue
        if isinstance(value, BeforeTake):
            before = {"nextRun": jsontext.quoted(value.next_run), "lastRun": jsontext.quoted(value.last_run)}
            parts["before"] = jsontext.join({**before, **dict(value.data_keys)})
        else:
            parts[_KEYS[field]] = str(value) if field == "defined" else jsontext.dump(value)
    return jsontext.join(parts)


@lru_cache(maxsize=DECODED_ROWS_MAX)
def decode_memory(text: str) -> Memory:
    """Parse the column ``memory``; values that the server did not write are ignored."""
    fields: dict[str, object] = {}
    try:
        parts = jsontext.members(text)
        for key, part in parts.items():
            field = _FIELDS.get(key)
            if field == "before":
                fields[field] = _before(part)
            elif field == "defined":
                fields[field] = part
            elif field == "formers":
                fields[field] = tuple((str(repeat), str(until)) for repeat, until in jsontext.parse(part))
            elif field is not None:
                value = jsontext.parse(part)
                if isinstance(value, _TYPES[field]):
                    fields[field] = value
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return NO_MEMORY
    return NO_MEMORY._replace(**fields)  # type: ignore[arg-type]


_TYPES: dict[str, type] = {
    "error": str,
    "exit_code": int,
    "failures": int,
    "losses": int,
    "cause": str,
    "overtime": int,
    "tick": str,
    "trigger": str,
    "pending": bool,
    "bound_to": str,
    "removed": bool,
    "broken": bool,
    "cancelled": bool,
    "failed": bool,
    "unfit": int,
    "offset": int,
    "takes": int,
    "workflow": int,
    "ref": str,
}


def _before(text: str) -> BeforeTake:
    parts = jsontext.members(text)
    keys = tuple((key, parts[key]) for key in RETRY_AFTER_KEYS if key in parts)
    return BeforeTake(str(jsontext.parse(parts["nextRun"])), str(jsontext.parse(parts["lastRun"])), keys)


# The options given by users: a JSON object in the column ``options``, typed as in ``JobOptions``.
#
# The text is stored and sent as it was received; the server itself uses the typed form.


class Options(JobOptions):
    """The options of a stored job."""

    source: str = ""
    """The source that defined it (SyncSchedules); empty if there is none."""

    @property
    def own_command(self) -> str:
        """Return which option is the job's own command: cmd, argv or url; empty if it has none."""
        return next((name for name in OWN_COMMANDS if getattr(self, name) is not None), "")


NO_OPTIONS = Options()


@lru_cache(maxsize=DECODED_ROWS_MAX)
def decode_options(text: str) -> Options:
    """Parse the column ``options``; members that are not valid options, such as manual edits, are ignored."""
    try:
        values = {name: jsontext.parse(part) for name, part in jsontext.members(text).items()}
    except (ValueError, IndexError, AttributeError):
        return NO_OPTIONS
    try:
        return Options.model_validate(values)
    except ValidationError:
        return Options.model_validate(
            {name: value for name, value in values.items() if _is_good(name, value)}
        )


def _is_good(name: str, value: Any) -> bool:
    try:
        Options.model_validate({name: value})
    except ValidationError:
        return False
    return True


OPTION_NAMES = frozenset(wire_name(field) for field in Options.model_fields)
"""All keys that the column ``options`` may have."""


class Job(NamedTuple):
    """One job, field by field as in ``schema.sql``; timestamps and JSON are text."""

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
        """Return the user's options of the job."""
        return NO_OPTIONS if self.options_json == "{}" else decode_options(self.options_json)

    @property
    def memory(self) -> Memory:
        """Return the server's notes about the job."""
        return NO_MEMORY if self.memory_json == "{}" else decode_memory(self.memory_json)

    def remembering(self, notes: Memory) -> Job:
        """Return the job with other notes."""
        return self._replace(memory_json=encode_memory(notes))

    def noting(self, **changes: Any) -> Job:
        """Return the job with some of its notes changed."""
        return self.remembering(self.memory._replace(**changes))

    @property
    def mocked(self) -> bool:
        """Return whether the job is mocked."""
        return self.lane == MOCK_LANE

    @property
    def queued(self) -> bool:
        """Return whether a GetJob may find the job, now or when it is due."""
        return self.state == "QUEUED" or self.state == "RUNQUEUED"


saved_columns = attrgetter(
    *(f for f in Job._fields if f not in ("created", "job_id", "data", "parent_job_id"))
)
"""Return the columns of a job that can change, except the data."""


class DamagedJob(Job):
    """A job whose stored data is damaged; ``data`` has the damaged text as ``damagedData``."""

    __slots__ = ()


_WIDTH, _DATA = len(Job._fields), Job._fields.index("data")


_REST = Job._fields.index("priority") + 1
_PLAIN = Job("", 0, "", "", "")[_REST:]
"""The fields after the priority in the row of a job without options: their defaults."""


def is_plain(job: Job) -> bool:
    """Return whether a job is plain: sound, never taken, with only name, data, priority and nextRun set."""
    return job[_REST:] == _PLAIN and not (job.last_run or job.repeat) and type(job) is Job


def checksum_of(data: str) -> int:
    """Return the checksum that is stored with a job's data."""
    return crc32(data.encode())


def job_from(row: tuple[Any, ...]) -> Job:
    """Return a job from a stored row that ends in its checksum; a DamagedJob if the checksum is wrong.

    A row without a checksum (None) was written by hand, and is trusted.
    """
    check = row[_WIDTH]
    if check is None or crc32(row[_DATA].encode()) == check:
        return tuple.__new__(Job, row[:_WIDTH])  # as Job._make does, but faster; every take calls it
    return damaged(row)


def damaged(row: tuple[Any, ...]) -> DamagedJob:
    """Return the job of a row that is known to be damaged."""
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
    """Seconds without a heartbeat after which it is lost; 0: never."""
    ended: str = ""
    worker: str = ""
    host: str = ""
    pid: int = 0
    stop: str = ""
    """The signal that the worker was asked to send, TERM or KILL; empty if the run is not being stopped. The
    suffix `` timeout`` says that the run took too long, and that no client had asked to stop it before."""
    status: str = "running"
    exit_code: int | None = None
    error: str = ""
    result: str = ""
    progress: str = ""
    output: str = "[]"
    kept: str = ""
    """Until when the run is kept regardless of the history limits; if empty, it counts towards them."""
    created: str = ""
    """When its job was created, for a run with ``kept``."""

    @property
    def begin_columns(self) -> tuple[str | int, ...]:
        """Return the columns that are known when the run begins, as the statements insert them."""
        return (*self[:7], self.worker, self.host, self.pid, self.lease)

    @property
    def end_columns(self) -> tuple[str | int | None, ...]:
        """Return the columns that are known when the run has ended."""
        ended = (self.status, self.ended, self.exit_code, self.error, self.result)
        return (*ended, self.output, self.kept, self.created)


class RunGiven(NamedTuple):
    """The input of a run, for running it again."""

    data: str = ""
    """The job's data as the run received it; empty if unknown."""
    options_json: str = "{}"
    priority: int = PRIORITY_DEFAULT


class RunHead(NamedTuple):
    """The identity and status of a run, without its input and output."""

    run_id: int
    job_id: int
    name: str
    status: str
    ended: str
    """A timestamp; empty while it runs."""


class TickRow(NamedTuple):
    """Consecutive ticks of a schedule with the same outcome."""

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
    """The job's name when the key was used; empty for a unique key, and in rows from before schema 6."""
    holds: str = ""
    """How long a unique key is held: until its job is ``finished`` or ``started``, or until a timestamp.

    Empty for an idempotency key."""


class InboxRow(NamedTuple):
    """A job that an application created in a transaction of its own, until a server takes it in."""

    job_id: int
    """The jobID that it will have."""
    at: str
    """When it was written."""
    name: str
    data: str
    options_json: str
    """The other attributes of CreateJob by wire name."""
    by: str
    """The role of the application."""
    again: str = ""
    """When it is tried again after a limit refused it; empty before that."""


class PauseRow(NamedTuple):
    """A paused name pattern."""

    pattern: str
    by: str
    reason: str
    since: str
    until: str


class RuleRow(NamedTuple):
    """A notification rule: its definition ``rule`` and the ``state`` of its deliveries are JSON text."""

    name: str
    rule: str
    by: str
    created: str
    cursor: int
    state: str


class EventRow(NamedTuple):
    """An event, without its number and time."""

    kind: str
    name: str = ""
    """The name of a job or worker, or a pattern."""
    job_id: int = 0
    run_id: int = 0
    by: str = ""
    detail: str = ""


class TokenRow(NamedTuple):
    """A token, field by field as in ``schema.sql``; only the SHA-256 of the secret is stored."""

    name: str
    digest: str
    role: str
    names: str
    """A JSON array of GLOB patterns; an empty array stands for all names."""
    no_data: int
    by: str
    created: str
    expires: str
    last_used: str
    revoked: str
    addresses: str
    """A JSON array of the addresses that used it, the newest last."""


class LoginRow(NamedTuple):
    """A session of the pages; only the SHA-256 of its secret is stored."""

    digest: str
    token: str
    created: str
    expires: str


class AuditRow(NamedTuple):
    """A change by an operator, without its number."""

    at: str
    by: str
    address: str
    command: str
    name: str
    job_id: int
    detail: str
    """The parameters of the command, a JSON object."""
    before: str
    """The schedule before the change, a JSON object; empty if there was none."""
    after: str


def is_mock_data(data: str) -> bool:
    """Return whether data has a mocked job's mark: a member ``mockRequest`` other than null or false."""
    if '"mockRequest"' not in data:
        return False
    return jsontext.members(data).get("mockRequest", "null") not in ("null", "false")


def mark_mocked(data: str) -> str:
    """Return data with the mark of a mocked job."""
    return data if is_mock_data(data) else jsontext.with_members(data, {"mockRequest": "true"})


def keep_mark(data: str, row: Job) -> str:
    """Return new data for a job, with the mark of a mocked job if the job is mocked, else without it."""
    if row.mocked:
        return mark_mocked(data)
    if '"mockRequest"' in data and "mockRequest" in jsontext.members(data):
        return jsontext.with_members(data, {"mockRequest": None})
    return data


WORKFLOW_RUNS = "RUNNING"
"""The state of a workflow of which some jobs have not ended."""

CANCELLED_THERE = "CANCELLED"
"""The state that a workflow records for a job that ended but neither finished nor failed."""


class WorkflowRow(NamedTuple):
    """One workflow, field by field as in ``schema.sql``."""

    workflow_id: int
    name: str
    state: str
    created: str
    ended: str = ""
    keep: int = 0
    kept: str = ""
    open: int = 0
    failed: int = 0
    cancelled: int = 0
    by: str = ""

    @property
    def changing(self) -> tuple[object, ...]:
        """Return the columns that can change: state, ended, kept, open, failed and cancelled."""
        return self.state, self.ended, self.kept, self.open, self.failed, self.cancelled


class WorkflowJobRow(NamedTuple):
    """One job of a workflow, field by field as in ``schema.sql``, without its result."""

    job_id: int
    workflow_id: int
    ref: str
    name: str
    on_failure: str
    waits: int = 0
    state: str = ""
    started: str = ""
    ended: str = ""
    reason: str = ""

    @property
    def new(self) -> tuple[object, ...]:
        """Return the columns that are written when the job is added: jobID to ``waits``."""
        return self[:6]

    @property
    def ending(self) -> tuple[object, ...]:
        """Return the columns that its end changes: name, state, waits, started, ended and reason."""
        return self.name, self.state, self.waits, self.started, self.ended, self.reason

    @property
    def lets_pass(self) -> bool:
        """Return whether the jobs after this one may start, now that it has ended.

        If it ended while it waited for other jobs, the jobs after it are cancelled too.
        """
        return self.state == "FINISHED" or (self.on_failure != "cancel" and not self.waits)

    @property
    def counts_as_failed(self) -> bool:
        """Return whether its end makes the workflow fail."""
        return self.state not in ("", "FINISHED") and (self.on_failure != "ignore" or self.waits > 0)
