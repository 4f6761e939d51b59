"""Commands for runs (heartbeats, output, stopping, deletion) and for workers."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import (
    DELETED_TEXT_CHARS_MAX,
    LIST_MAX,
    NAME_CHARS_MAX,
    OUTPUT_LINES_PER_APPEND_MAX,
    REASON_CHARS_MAX,
    RUNS_DELETED_AT_ONCE_MAX,
    RUNS_PER_HEARTBEAT_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.vocabulary import AskedStatus
from bedrockjobs.base.wire import (
    Boolean,
    ErrorType,
    JobID,
    JobIDs,
    Name,
    OneLine,
    Paragraphs,
    Timestamp,
    Whole,
    listed,
    storable,
)
from bedrockjobs.commands.base import (
    BUSY,
    NO_JOB,
    NO_RUN,
    SLOW,
    Command,
    Empty,
    Example,
    Paging,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.take import HIDDEN, Pattern, Patterns

Limit = Annotated[Whole, Field(ge=1, le=LIST_MAX)]

RUN = {
    "runID": 1,
    "jobID": 1,
    "name": "mail/welcome",
    "attempt": 1,
    "cause": "schedule",
    "scheduledFor": "2026-11-21 03:29:56",
    "started": "2026-11-21 03:29:56.332",
    "ended": "2026-11-21 03:29:57.100",
    "worker": "worker-1",
    "host": "box",
    "pid": 4711,
    "status": "fail",
    "exitCode": 1,
    "error": "no such mailbox",
    "output": ["first line", "second line"],
    "stop": "",
}
"""A run as the examples of commands show it."""


class StopReply(Reply):
    """A run that must stop: TERM and KILL are signals; LOST means that it no longer belongs to the worker."""

    run_id: int
    signal: Literal["TERM", "KILL", "LOST"]


class HeartbeatReply(Reply):
    """Instructions for the worker."""

    stop: list[StopReply]
    quiet: bool = Field(default=False, description="Take no more jobs: the worker is being drained.")


class Heartbeat(Command[HeartbeatReply]):
    """Renew the leases of runs; with `Connection: wait` reply when one must stop, or at the timeout."""

    scoping = Scoping()
    group = "runs"
    where = "presence"
    role = "work"
    repeatable = True
    waits = True
    example = Example({"worker": "worker-1", "runIDs": [1]}, {"stop": [], "quiet": False})

    worker: OneLine = Field(min_length=1, max_length=WORKER_CHARS_MAX, description="Name of the worker.")
    run_ids: Annotated[
        JobIDs,
        Field(max_length=RUNS_PER_HEARTBEAT_MAX),
        SchemaType(lambda: json_schemas.job_ids(0, RUNS_PER_HEARTBEAT_MAX)),
    ] = Field(default=[], description="Runs in progress.")
    host: OneLine = Field(default="", max_length=NAME_CHARS_MAX, description="Host of the worker.")
    pid: Whole = Field(default=0, description="Process id of the worker.")
    version: OneLine = Field(
        default="", max_length=100, description="Version of the worker, and of its code."
    )
    names: Patterns | None = Field(default=None, description="Name patterns that the worker asks for.")
    slots: Whole = Field(default=0, ge=0, description="Jobs that it runs at the same time.")
    quiet: Boolean = Field(default=False, description="It currently takes no more jobs.")
    leaving: Boolean = Field(default=False, description="It is exiting: this is its last heartbeat.")


def _lines(value: Any) -> Any:
    lines = listed(value, "a JSON array of lines", between="\n")
    for at, line in enumerate(lines):
        if isinstance(line, str):
            lines[at] = storable(line)
            continue
        if not isinstance(line, dict) or not isinstance(line.get("line"), str):
            raise PydanticCustomError("expected", 'lines as strings, or as {"line": "...", "stream": "err"}')
        if line.get("stream", "out") not in ("out", "err"):
            raise PydanticCustomError("expected", "a stream that is out or err")
        line["line"] = storable(line["line"])
    return lines


def _lines_shape() -> dict[str, Any]:
    stream = {"type": "string", "enum": ["out", "err"]}
    line = {
        "type": "object",
        "properties": {"line": {"type": "string"}, "stream": stream},
        "required": ["line"],
    }
    items = {"anyOf": [{"type": "string"}, line]}
    return {
        "anyOf": [
            {"type": "array", "items": items, "maxItems": OUTPUT_LINES_PER_APPEND_MAX},
            json_schemas.text_of(r"[^\[\s][^\n]*"),
        ]
    }


class AppendReply(Reply):
    """The number of the last stored line."""

    seq: int


class AppendOutput(Command[AppendReply]):
    """Append lines of output to a run; lines that were sent before are ignored."""

    scoping = Scoping(runs=("run_id",))
    group = "runs"
    role = "work"
    repeatable = True
    example = Example({"runID": 1, "seq": 1, "lines": ["first line", "second line"]}, {"seq": 2})
    refusals = [
        NO_RUN,
        Refusal(405, "Run is over", "The run has ended."),
        Refusal(
            405, "Gap in output", "Lines before `seq` are missing; the detail gives the expected number."
        ),
    ]

    run_id: JobID = Field(description="Run that printed them; refused with 405 after its end.")
    seq: Whole = Field(ge=1, description="Number of the first of the lines, counting from 1.")
    lines: Annotated[
        list[Any],
        Field(max_length=OUTPUT_LINES_PER_APPEND_MAX),
        BeforeValidator(_lines),
        WithJsonSchema({"type": "array", "items": {}}),
        SchemaType(_lines_shape),
    ] = Field(description='Lines: strings, or objects like {"line": "...", "stream": "err"}.')


class OutputLine(Reply):
    """One line of output."""

    seq: int
    at: str
    stream: str
    line: str


class OutputReply(Reply):
    """Lines, and whether more may follow."""

    lines: list[OutputLine]
    status: str
    ended: bool


class ReadOutput(Command[OutputReply]):
    """Read a run's output; with `Connection: wait` reply when there is a line or the run has ended."""

    scoping = Scoping()
    group = "runs"
    where = "reader"
    waits = True
    paging = Paging("lines", "seq", "after")
    example = Example(
        {"runID": 1},
        {
            "lines": [{"seq": 1, "at": "2026-11-21 03:29:56.332", "stream": "out", "line": "first line"}],
            "status": "running",
            "ended": False,
        },
    )
    refusals = [NO_RUN, BUSY]

    run_id: JobID = Field(description="Run to read.")
    after: Whole = Field(default=0, ge=0, description="Only lines with a higher number.")
    limit: Limit = Field(default=LIST_MAX, description="How many lines at most.")


ERROR_TYPE = "Type of the exception that the error states, such as `ValueError`; left out if it states none."


class RunReply(Reply):
    """One run."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str = Field(
        description="Why it was taken: `schedule` (a repeating job was due), `queue` (a job was queued),"
        " `manual` (a person triggered it), `retry` or `lost` (the previous run failed, or was lost)."
    )
    scheduled_for: str
    started: str
    ended: str
    worker: str
    host: str
    pid: int
    status: str
    exit_code: int | None = None
    error: str
    result: dict[str, Any] | None = None
    progress: Any = None
    output: list[str] = []
    stop: str
    data: dict[str, Any] | None = None
    error_type: str | None = Field(default=None, description=ERROR_TYPE)
    hidden: list[str] | None = Field(default=None, description=HIDDEN)


class RunsReply(Reply):
    """A page of runs, newest first; ``before`` of the next page is the last runID."""

    runs: list[RunReply]


class ListRuns(Command[RunsReply]):
    """List runs, newest first."""

    scoping = Scoping()
    group = "runs"
    where = "reader"
    paging = Paging("runs", "runID", "before")
    example = Example({"name": "mail/*", "status": "failed"}, {"runs": [RUN]})
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(
        default=None, description="Only of jobs whose name matches this GLOB pattern."
    )
    job_id: JobID | None = Field(default=None, description="Only of this job.")
    status: AskedStatus | None = Field(
        default=None, description="Only with this status; `failed` includes fail, timeout and frozen."
    )
    worker: OneLine | None = Field(
        default=None, max_length=WORKER_CHARS_MAX, description="Only by this worker."
    )
    error_type: ErrorType | None = Field(
        default=None,
        description="Only with an error that is, or was caused by, an exception of this type: a line of the"
        " error begins with it.",
    )
    before: JobID | None = Field(
        default=None, description="Only older ones: the last runID of the previous page."
    )
    limit: Limit = Field(default=100, description="How many at most.")


class QueryRun(Command[RunReply]):
    """Show a run."""

    scoping = Scoping()
    group = "runs"
    where = "reader"
    example = Example({"runID": 1}, RUN)
    refusals = [NO_RUN, BUSY]

    run_id: JobID = Field(description="Run to show.")


class StopRun(Command[Empty]):
    """Parameters of the commands that stop a run."""

    scoping = Scoping(jobs=("job_id",), runs=("run_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("runID", "jobID", "name"))
    abstract = True
    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"runID": 1})
    refusals = [
        Refusal(402, "Missing runID", "None of `runID`, `jobID` and `name` is given."),
        NO_RUN,
        NO_JOB,
        Refusal(
            404, "No run in progress", "The job has no run opened by a worker, or no job has the `name`."
        ),
        Refusal(405, "Run is over", "The run given by `runID` has ended."),
    ]

    run_id: JobID | None = Field(default=None, description="Run to stop.")
    job_id: JobID | None = Field(default=None, description="Or the job whose run to stop.")
    name: Name | None = Field(default=None, description="Or the name of the jobs whose runs to stop.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")
    reason: Paragraphs = Field(default="", max_length=REASON_CHARS_MAX, description="The reason.")


class TerminateRun(StopRun):
    """Stop a run: its worker sends SIGTERM to the whole process group."""


class KillRun(StopRun):
    """Kill a run: its worker sends SIGKILL to the whole process group."""


class DeletedRun(Reply):
    """A run that was deleted, or would be."""

    run_id: int
    job_id: int
    name: str
    status: str
    ended: str


class DeletedRunsReply(Reply):
    """The runs that were deleted, or with ``dryRun`` would be."""

    runs: list[DeletedRun]
    running: int = Field(description="How many other matching runs have not ended.")
    events: int = Field(description="How many events lost their detail.")
    before: int | None = Field(description="`before` of the next request; null if all runs were searched.")


class DeleteRuns(Command[DeletedRunsReply]):
    """Delete ended runs with their data, results, errors and output, such as to remove a leaked secret.

    At least one of `runIDs`, `name`, `text` and `endedBefore` selects them; several are combined with and.
    Each request searches some runs, newest first; `before` in the reply is where the next one continues. The
    detail of events of these runs, and of events that contain the text, is removed.
    """

    scoping = Scoping(runs=("run_ids",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("runIDs", "name", "text", "endedBefore"))
    group = "runs"
    role = "operate"
    repeatable = True
    example = Example(
        {"runIDs": [1]},
        {
            "runs": [
                {
                    "runID": 1,
                    "jobID": 1,
                    "name": "mail/welcome",
                    "status": "fail",
                    "ended": "2026-11-21 03:29:57.100",
                }
            ],
            "running": 0,
            "events": 1,
            "before": None,
        },
    )
    refusals = [
        Refusal(402, "Missing runIDs", "None of `runIDs`, `name`, `text` and `endedBefore` is given."),
        Refusal(405, "Run is running", "One of `runIDs` has not ended; nothing is deleted."),
    ]

    run_ids: Annotated[
        JobIDs,
        Field(min_length=1, max_length=RUNS_DELETED_AT_ONCE_MAX),
        SchemaType(lambda: json_schemas.job_ids(1, RUNS_DELETED_AT_ONCE_MAX)),
    ] = Field(default=[], description="Only these runs; nonexistent ones are ignored.")
    name: Pattern | None = Field(
        default=None, description="Only runs of jobs whose name matches this GLOB pattern."
    )
    text: Paragraphs | None = Field(
        default=None,
        min_length=1,
        max_length=DELETED_TEXT_CHARS_MAX,
        description="Only runs with this text in their data, result, error or output.",
    )
    ended_before: Timestamp | None = Field(default=None, description="Only runs that ended before this time.")
    before: JobID | None = Field(
        default=None, description="Only runs with a lower runID: where the previous request stopped."
    )
    dry_run: Boolean = Field(default=False, description="Only show which runs would be deleted.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class WorkerReply(Reply):
    """One worker."""

    name: str
    host: str
    pid: int
    version: str
    names: list[str]
    accepts: list[str]
    slots: int
    joined: str
    heartbeat: str
    status: Literal["active", "quiet", "draining", "drained"]
    run_ids: list[int]


class WorkersReply(Reply):
    """The live workers, by name."""

    workers: list[WorkerReply]


class ListWorkers(Command[WorkersReply]):
    """List the live workers, by name."""

    group = "runs"
    where = "presence"
    paging = Paging("workers", "name", "after")
    reads = True
    example = Example(
        {},
        {
            "workers": [
                {
                    "name": "worker-1",
                    "host": "box",
                    "pid": 4711,
                    "version": "1.0.0",
                    "names": ["mail/*"],
                    "accepts": [],
                    "slots": 4,
                    "joined": "2026-11-21 03:00:00",
                    "heartbeat": "2026-11-21 03:29:56",
                    "status": "active",
                    "runIDs": [1],
                }
            ]
        },
    )

    name: Pattern | None = Field(default=None, description="Only names that match this GLOB pattern.")
    after: Annotated[OneLine, Field(max_length=WORKER_CHARS_MAX)] = Field(
        default="", description="Only names after this one: the last of the previous page."
    )
    limit: Limit = Field(default=LIST_MAX, description="How many at most.")


class DrainWorker(Command[Empty]):
    """Drain a worker: it finishes its runs and takes no more jobs; with `undo` it takes jobs again."""

    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"worker": "worker-1"})
    refusals = [Refusal(404, "No such worker", "No live worker has this name.")]

    worker: OneLine = Field(min_length=1, max_length=WORKER_CHARS_MAX, description="Name of the worker.")
    undo: Boolean = Field(default=False, description="Let it take jobs again.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")
