"""The commands about runs: kept alive, listened to, looked at and ended. And the workers that do them."""

from __future__ import annotations

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
from bedrockjobs.base.json_schemas import Shape
from bedrockjobs.base.vocabulary import AskedStatus
from bedrockjobs.base.wire import (
    Boolean,
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
from bedrockjobs.commands.take import Pattern, Patterns

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
"""A run as examples show it."""


class StopReply(Reply):
    """A run that must stop: TERM and KILL are signals; LOST means that it is no longer the worker's run."""

    run_id: int
    signal: Literal["TERM", "KILL", "LOST"]


class HeartbeatReply(Reply):
    """What the worker has to do."""

    stop: list[StopReply]
    quiet: bool = Field(default=False, description="Take no more jobs: the worker is drained.")


class Heartbeat(Command[HeartbeatReply]):
    """Keep runs alive; with `Connection: wait` it is answered when one must stop, or when it runs out."""

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
        Shape(lambda: json_schemas.job_ids(0, RUNS_PER_HEARTBEAT_MAX)),
    ] = Field(default=[], description="Runs it is busy with.")
    host: OneLine = Field(default="", max_length=NAME_CHARS_MAX, description="Machine it is on.")
    pid: Whole = Field(default=0, description="Its process.")
    version: OneLine = Field(default="", max_length=100, description="Its version.")
    names: Patterns | None = Field(default=None, description="Name patterns it asks for.")
    slots: Whole = Field(default=0, ge=0, description="Jobs it runs at once.")
    quiet: Boolean = Field(default=False, description="It takes no more jobs for now.")
    leaving: Boolean = Field(default=False, description="It ends: this is its last heartbeat.")


def _lines(value: Any) -> Any:
    found = listed(value, "a JSON array of lines", between="\n")
    for at, line in enumerate(found):
        if isinstance(line, str):
            found[at] = storable(line)
            continue
        if not isinstance(line, dict) or not isinstance(line.get("line"), str):
            raise PydanticCustomError("expected", 'lines as strings, or as {"line": "...", "stream": "err"}')
        if line.get("stream", "out") not in ("out", "err"):
            raise PydanticCustomError("expected", "a stream that is out or err")
        line["line"] = storable(line["line"])
    return found


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
    """The number of the last line that is kept."""

    seq: int


class AppendOutput(Command[AppendReply]):
    """Add lines of output to a run; lines that were sent before are ignored."""

    scoping = Scoping(runs=("run_id",))
    group = "runs"
    role = "work"
    repeatable = True
    example = Example({"runID": 1, "seq": 1, "lines": ["first line", "second line"]}, {"seq": 2})
    refusals = [
        NO_RUN,
        Refusal(405, "Run is over", "The run has ended."),
        Refusal(
            405, "Gap in output", "Lines before `seq` are missing; the detail says which number is expected."
        ),
    ]

    run_id: JobID = Field(description="Run that printed them; refused with 405 once it is over.")
    seq: Whole = Field(ge=1, description="Number of the first of the lines, counting from 1.")
    lines: Annotated[
        list[Any],
        Field(max_length=OUTPUT_LINES_PER_APPEND_MAX),
        BeforeValidator(_lines),
        WithJsonSchema({"type": "array", "items": {}}),
        Shape(_lines_shape),
    ] = Field(description='Lines: strings, or objects like {"line": "...", "stream": "err"}.')


class OutputLine(Reply):
    """One line of output."""

    seq: int
    at: str
    stream: str
    line: str


class OutputReply(Reply):
    """Lines, and whether there can be more."""

    lines: list[OutputLine]
    status: str
    ended: bool


class ReadOutput(Command[OutputReply]):
    """Read a run's output; with `Connection: wait` as soon as there is a line, or the run ended."""

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
    limit: Limit = Field(default=LIST_MAX, description="How many lines at the most.")


class RunReply(Reply):
    """One run."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str = Field(
        description="Why it was taken: `schedule` (a repeating job was due), `queue` (a job was queued),"
        " `manual` (a person triggered it), `retry` or `lost` (the run before failed, or was lost)."
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
    output: list[str]
    stop: str
    data: dict[str, Any] | None = None


class RunsReply(Reply):
    """A page of runs, the newest first; ``before`` of the next page is the last runID."""

    runs: list[RunReply]


class ListRuns(Command[RunsReply]):
    """List runs, the newest first."""

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
        default=None, description="Only with this status; `failed` is each of fail, timeout and frozen."
    )
    worker: OneLine | None = Field(
        default=None, max_length=WORKER_CHARS_MAX, description="Only by this worker."
    )
    before: JobID | None = Field(
        default=None, description="Only older ones: the last runID of the page before."
    )
    limit: Limit = Field(default=100, description="How many at the most.")


class QueryRun(Command[RunReply]):
    """Show a run."""

    scoping = Scoping()
    group = "runs"
    where = "reader"
    example = Example({"runID": 1}, RUN)
    refusals = [NO_RUN, BUSY]

    run_id: JobID = Field(description="Run to show.")


class StopRun(Command[Empty]):
    """What the commands that stop a run have in common."""

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
            404, "No run in progress", "The job has no run that a worker opened, or no job has the `name`."
        ),
        Refusal(405, "Run is over", "The run given by `runID` has ended."),
    ]

    run_id: JobID | None = Field(default=None, description="Run to stop.")
    job_id: JobID | None = Field(default=None, description="Or the job whose run is to stop.")
    name: Name | None = Field(default=None, description="Or the name of the jobs whose runs are to stop.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")
    reason: Paragraphs = Field(default="", max_length=REASON_CHARS_MAX, description="Why.")


class TerminateRun(StopRun):
    """Let a run's worker send SIGTERM to the whole process group."""


class KillRun(StopRun):
    """Let a run's worker send SIGKILL to the whole process group."""


class DeletedRun(Reply):
    """A run that was deleted, or that would be."""

    run_id: int
    job_id: int
    name: str
    status: str
    ended: str


class DeletedRunsReply(Reply):
    """Which runs were deleted; with ``dryRun`` which would be."""

    runs: list[DeletedRun]
    running: int = Field(description="How many others match, but have not ended.")
    events: int = Field(description="How many events lost their detail.")
    before: int | None = Field(
        description="`before` of the next request; null if all runs have been looked at."
    )


class DeleteRuns(Command[DeletedRunsReply]):
    """Delete runs that have ended, with their data, results, errors and output: to remove a leaked secret.

    At least one of `runIDs`, `name`, `text` and `endedBefore` chooses them; of several, all hold. Each
    request looks at some of them, the newest first, and says with `before` where the next one goes on. The
    detail of the events of these runs, and of those that hold the text, is removed.
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
        Shape(lambda: json_schemas.job_ids(1, RUNS_DELETED_AT_ONCE_MAX)),
    ] = Field(default=[], description="Only these runs; those that do not exist are left out.")
    name: Pattern | None = Field(
        default=None, description="Only runs of jobs whose name matches this GLOB pattern."
    )
    text: Paragraphs | None = Field(
        default=None,
        min_length=1,
        max_length=DELETED_TEXT_CHARS_MAX,
        description="Only runs with this text in what they were given, gave back or printed.",
    )
    ended_before: Timestamp | None = Field(
        default=None, description="Only runs that ended before this moment."
    )
    before: JobID | None = Field(
        default=None, description="Only runs with a lower runID: where the request before stopped."
    )
    dry_run: Boolean = Field(default=False, description="Only tell which runs would be deleted.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


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
    """List the workers that are alive, by name."""

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
        default="", description="Only names behind this one: the last one of the page before."
    )
    limit: Limit = Field(default=LIST_MAX, description="How many at the most.")


class DrainWorker(Command[Empty]):
    """Let a worker end its runs and take no more jobs; with `undo` it takes jobs again."""

    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"worker": "worker-1"})
    refusals = [Refusal(404, "No such worker", "No live worker has this name.")]

    worker: OneLine = Field(min_length=1, max_length=WORKER_CHARS_MAX, description="Name of the worker.")
    undo: Boolean = Field(default=False, description="Let it take jobs again.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")
