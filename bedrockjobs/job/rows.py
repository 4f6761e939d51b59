"""The rows of the tables. No SQL here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DECODED_ROWS_MAX, PRIORITY_DEFAULT
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.options import JobOptions

# Lanes: which takes a queued job is open to. A lane is text in the column ``lane``; no SQL here.
#
# ``''`` is open to all, ``mock`` to who asks for mocked jobs. The others are put together of words: ``now``
# (somebody triggered it: a pause does not hold it), one of ``cmd``, ``argv``, ``url`` (the job brings its
# own command, which the take must accept), and ``lock NAME`` (nobody else with this lock may be running) or
# ``for WORKER`` (nobody else may take it). ``every`` is the lane of schedules that run on all hosts: nobody
# takes them, the server makes jobs of them. ``ping`` is that of schedules whose work is done elsewhere:
# nobody takes them, a ping ends their ticks.


OPEN_LANE = ""
"""Jobs that any worker may take."""

MOCK_LANE = "mock"
"""Mocked jobs, which only ``getMockedJobs`` takes."""

OWN_COMMANDS = ("cmd", "argv", "url")
"""The options that are a job's own command."""

EVERY_LANE = "every"
"""Schedules that run on all hosts."""

PING_LANE = "ping"
"""Schedules that run nowhere here: each tick waits for a ping."""

UNTAKEN = (EVERY_LANE, PING_LANE)
"""Lanes that no take is open to."""

_WORDS = re.compile(r"(now)? ?(cmd|argv|url)? ?(?:lock (.+)|for (.+))?", re.DOTALL)


class Lane(NamedTuple):
    """A lane taken apart."""

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
    """Take a lane apart; the open lane has nothing in it."""
    found = _WORDS.fullmatch(text)
    if found is None:
        return Lane(False, "", "")
    return Lane(bool(found[1]), found[2] or "", found[3] or "", found[4] or "")


@lru_cache(maxsize=4096)
def found_in(lane: str) -> str:
    """Return the lane in which jobs of a lane are looked for: all locks share one."""
    parts = parse_lane(lane)
    return f"{parts._replace(lock='')} lock".strip() if parts.lock else lane


def is_narrow(lane: str) -> bool:
    """Tell whether a lane is one of very many with few jobs each, of which nothing is remembered."""
    parts = parse_lane(lane)
    return bool(parts.lock or parts.worker)


def workers_of(lanes: Iterable[str]) -> frozenset[str]:
    """Return the workers for which jobs in some lanes are, and for nobody else."""
    return frozenset(parse_lane(lane).worker for lane in lanes) - {""}


# What the server notes about a job, in the column ``memory``: one JSON object, typed here key by key.
#
# Users give ``options`` and never see or set what stands here, but for the last error and exit code, which
# answers show. A key is written only where it differs from its default, so most jobs have ``{}``.


RETRY_AFTER_KEYS = ("retryAfterCount", "originalNextRun")
"""What a take writes into the data of a job with retryAfter."""


class BeforeTake(NamedTuple):
    """How a take found the job, where the row itself no longer tells; a returned job goes back to it."""

    next_run: str
    last_run: str
    data_keys: tuple[tuple[str, str], ...] = ()
    """Those of ``RETRY_AFTER_KEYS`` that its data had, with their JSON texts."""


class Memory(NamedTuple):
    """The notes about one job; the names in JSON are in ``_KEYS``."""

    error: str | None = None
    """What its last end that failed said."""
    exit_code: int | None = None
    """The exit status that its last end gave."""
    failures: int = 0
    """Failed tries since its last success, its last tick or its revival; ``retries`` limits them."""
    losses: int = 0
    """Runs that were lost since then; ``LOST_RUNS_MAX`` limits them."""
    unfit: int = 0
    """How often workers gave it back since then as their code does not suit it, up to ``UNFIT_MAX``."""
    cause: str = ""
    """Why its next or present run is not an ordinary one: retry, lost, manual, or schedule (the rest of a
    run that waited for its children)."""
    overtime: int = 0
    """How often its run was told to stop for being over its time: 1 after TERM, 2 after KILL."""
    before: BeforeTake | None = None
    """How its take found it; kept while it runs, where the row does not tell."""
    tick: str = ""
    """The tick that a schedule's nextRun or run stands for, where that is not nextRun itself."""
    trigger: str | None = None
    """Set while it waits for or does a run that somebody asked for: its own nextRun, which comes afterwards;
    empty where it has none."""
    pending: bool = False
    """Whether somebody asked for a run to follow the present one."""
    bound_to: str = ""
    """The worker that alone may take it: it was made by a tick of a schedule on all hosts."""
    removed: bool = False
    """Whether its source removed it while it ran: it is deleted at its end."""
    defined: str = ""
    """The data that its source defined it with, as JSON text; its own data may have changed since."""
    broken: bool = False
    """Whether it is FAILED because its repeat cannot be evaluated, not because a run failed."""
    cancelled: bool = False
    """Whether somebody cancelled it while it ran: its run is told to stop, and nothing tries it again."""
    failed: bool = False
    """Whether it failed for good the last time: its next end that is none is a recovery."""
    offset: int | None = None
    """Seconds east of UTC that a schedule's zone had at its tick by the rules of when that was planned; none
    in UTC, and if somebody set its nextRun."""
    formers: tuple[tuple[str, str], ...] = ()
    """Earlier repeats of a schedule, oldest first, each with the timestamp up to which its ticks count.
    They are kept while the schedule still waits or runs for a tick of that time."""

    @property
    def asked_for(self) -> bool:
        """Tell whether a run that somebody asked for is over, or one is to follow."""
        return self.trigger is not None or self.pending

    def after_end(self) -> Memory:
        """Return what is still worth knowing when a run is over for good."""
        return self._replace(failures=0, losses=0, unfit=0, cause="", overtime=0, cancelled=False)

    def after_run(self, *, error: str | None = None, exit_code: int | None = None) -> Memory:
        """Return the notes when a run ends: how it was before its take is forgotten, its end is noted."""
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
    "formers": "formers",
    "unfit": "unfit",
}
MEMORY_KEYS = frozenset(_KEYS.values())
"""All keys, as they are spelled in the column."""

_FIELDS = {key: field for field, key in _KEYS.items()}


def encode_memory(memory: Memory) -> str:
    """Return the notes as the column holds them."""
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
    """Read the column; what is not the server's own, as a person may write, counts as not there."""
    found: dict[str, object] = {}
    try:
        parts = jsontext.members(text)
        for key, part in parts.items():
            field = _FIELDS.get(key)
            if field == "before":
                found[field] = _before(part)
            elif field == "defined":
                found[field] = part
            elif field == "formers":
                found[field] = tuple((str(repeat), str(until)) for repeat, until in jsontext.parse(part))
            elif field is not None:
                value = jsontext.parse(part)
                if isinstance(value, _TYPES[field]):
                    found[field] = value
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return NO_MEMORY
    return NO_MEMORY._replace(**found)  # type: ignore[arg-type]


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
}


def _before(text: str) -> BeforeTake:
    parts = jsontext.members(text)
    keys = tuple((key, parts[key]) for key in RETRY_AFTER_KEYS if key in parts)
    return BeforeTake(str(jsontext.parse(parts["nextRun"])), str(jsontext.parse(parts["lastRun"])), keys)


# What a user gave with a job, in the column ``options``: a JSON object, typed as ``JobOptions`` has it.
#
# The text is kept and sent as it came; the typed form is what the server itself looks at.


class Options(JobOptions):
    """The options of a stored job."""

    source: str = ""
    """Whose definition made it (SyncSchedules), empty where nobody's did."""

    @property
    def own_command(self) -> str:
        """Return which option is the job's own command: cmd, argv or url; empty without any."""
        return next((name for name in OWN_COMMANDS if getattr(self, name) is not None), "")


NO_OPTIONS = Options()


@lru_cache(maxsize=DECODED_ROWS_MAX)
def decode_options(text: str) -> Options:
    """Read the column; members that no option can be, as a person may write by hand, count as left out."""
    try:
        given = {name: jsontext.parse(part) for name, part in jsontext.members(text).items()}
    except (ValueError, IndexError, AttributeError):
        return NO_OPTIONS
    try:
        return Options.model_validate(given)
    except ValidationError:
        return Options.model_validate({name: value for name, value in given.items() if _is_good(name, value)})


def _is_good(name: str, value: Any) -> bool:
    try:
        Options.model_validate({name: value})
    except ValidationError:
        return False
    return True


OPTION_NAMES = frozenset(wire_name(field) for field in Options.model_fields)
"""The names that the column may hold, as they are spelled there."""


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
    """A timestamp; empty while it runs."""


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
    """As it was then; empty for a unique key, and if a server before version 6 of the schema wrote it."""
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


def is_mock_data(data: str) -> bool:
    """Tell whether data carries a mocked job's mark: a member ``mockRequest``, not null and not false."""
    if '"mockRequest"' not in data:
        return False
    return jsontext.members(data).get("mockRequest", "null") not in ("null", "false")


def mark_mocked(data: str) -> str:
    """Return data with the mark of a mocked job."""
    return data if is_mock_data(data) else jsontext.with_members(data, {"mockRequest": "true"})


def keep_mark(data: str, row: Job) -> str:
    """Return new data for a job with the job's own mark, whatever the new data says."""
    if row.mocked:
        return mark_mocked(data)
    if '"mockRequest"' in data and "mockRequest" in jsontext.members(data):
        return jsontext.with_members(data, {"mockRequest": None})
    return data
