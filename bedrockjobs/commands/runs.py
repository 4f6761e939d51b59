"""The commands about runs: kept alive, listened to, looked at and ended. And the workers that do them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import (
    LIST_MAX,
    NAME_CHARS_MAX,
    OUTPUT_LINES_PER_APPEND_MAX,
    REASON_CHARS_MAX,
    RUNS_PER_HEARTBEAT_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.wire import Boolean, JobID, JobIDs, Name, Whole
from bedrockjobs.commands.base import Command, Reply, Where
from bedrockjobs.commands.take import Pattern, Patterns

RunStatus = Literal["running", "success", "fail", "timeout", "frozen", "terminated", "killed"]

Limit = Annotated[Whole, Field(ge=1, le=LIST_MAX)]


class StopReply(Reply):
    """A run that must stop: TERM and KILL are signals; LOST means that it is no longer the worker's run."""

    run_id: int
    signal: Literal["TERM", "KILL", "LOST"]


class HeartbeatReply(Reply):
    """What the worker has to do."""

    stop: list[StopReply]
    quiet: bool = Field(False, description="Take no more jobs: the worker is drained.")


class Heartbeat(Command[HeartbeatReply]):
    """Keep runs alive; with `Connection: wait` it is answered when one must stop, or when it runs out."""

    reply: ClassVar[type[Reply]] = HeartbeatReply
    where: ClassVar[Where] = "presence"
    repeatable: ClassVar[bool] = True
    worker: str = Field(min_length=1, max_length=WORKER_CHARS_MAX, description="Name of the worker.")
    run_ids: Annotated[JobIDs, Field(max_length=RUNS_PER_HEARTBEAT_MAX)] = Field(
        [], description="Runs it is busy with."
    )
    host: str = Field("", max_length=NAME_CHARS_MAX, description="Machine it is on.")
    pid: Whole = Field(0, description="Its process.")
    version: str = Field("", max_length=100, description="Its version.")
    names: Patterns | None = Field(None, description="Name patterns it asks for.")
    slots: Whole = Field(0, ge=0, description="Jobs it runs at once.")
    quiet: Boolean = Field(False, description="It takes no more jobs for now.")
    leaving: Boolean = Field(False, description="It ends: this is its last heartbeat.")


def _lines(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            return value.split("\n")
        try:
            value = jsontext.parse(text)
        except ValueError:
            raise PydanticCustomError("expected", "a JSON array of lines") from None
    if not isinstance(value, (list, tuple)):
        raise PydanticCustomError("expected", "a JSON array of lines")
    for line in value:
        if isinstance(line, str):
            continue
        if not isinstance(line, dict) or not isinstance(line.get("line"), str):
            raise PydanticCustomError("expected", 'lines as strings, or as {"line": "...", "stream": "err"}')
        if line.get("stream", "out") not in ("out", "err"):
            raise PydanticCustomError("expected", "a stream that is out or err")
    return list(value)


class AppendReply(Reply):
    """The number of the last line that is kept."""

    seq: int


class AppendOutput(Command[AppendReply]):
    """Add lines of output to a run; lines that were sent before are ignored."""

    reply: ClassVar[type[Reply]] = AppendReply
    repeatable: ClassVar[bool] = True
    run_id: JobID = Field(description="Run that printed them; refused with 405 once it is over.")
    seq: Whole = Field(ge=1, description="Number of the first of the lines, counting from 1.")
    lines: Annotated[
        list[Any],
        Field(max_length=OUTPUT_LINES_PER_APPEND_MAX),
        BeforeValidator(_lines),
        WithJsonSchema({"type": "array", "items": {}}),
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

    reply: ClassVar[type[Reply]] = OutputReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    run_id: JobID = Field(description="Run to read.")
    after: Whole = Field(0, ge=0, description="Only lines with a higher number.")
    limit: Limit = Field(LIST_MAX, description="How many lines at the most.")


class RunReply(Reply):
    """One run."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str
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


class RunsReply(Reply):
    """A page of runs, the newest first; ``before`` of the next page is the last runID."""

    runs: list[RunReply]


class ListRuns(Command[RunsReply]):
    """List runs, the newest first."""

    reply: ClassVar[type[Reply]] = RunsReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    name: Pattern | None = Field(None, description="Only of jobs whose name matches this GLOB pattern.")
    job_id: JobID | None = Field(None, description="Only of this job.")
    status: RunStatus | None = Field(None, description="Only with this status.")
    worker: str | None = Field(None, max_length=WORKER_CHARS_MAX, description="Only by this worker.")
    before: JobID | None = Field(None, description="Only older ones: the last runID of the page before.")
    limit: Limit = Field(100, description="How many at the most.")


class QueryRun(Command[RunReply]):
    """Show a run."""

    reply: ClassVar[type[Reply]] = RunReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    run_id: JobID = Field(description="Run to show.")


class StopRun(Command[Reply]):
    """What the commands that stop a run have in common."""

    repeatable: ClassVar[bool] = True
    run_id: JobID | None = Field(None, description="Run to stop.")
    job_id: JobID | None = Field(None, description="Or the job whose run is to stop.")
    name: Name | None = Field(None, description="Or the name of the jobs whose runs are to stop.")
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")
    reason: str = Field("", max_length=REASON_CHARS_MAX, description="Why.")


class TerminateRun(StopRun):
    """Let a run's worker send SIGTERM to the whole process group."""


class KillRun(StopRun):
    """Let a run's worker send SIGKILL to the whole process group."""


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
    """List the workers that are alive."""

    reply: ClassVar[type[Reply]] = WorkersReply
    where: ClassVar[Where] = "presence"
    repeatable: ClassVar[bool] = True


class DrainWorker(Command[Reply]):
    """Let a worker end its runs and take no more jobs; with `undo` it takes jobs again."""

    repeatable: ClassVar[bool] = True
    worker: str = Field(min_length=1, max_length=WORKER_CHARS_MAX, description="Name of the worker.")
    undo: Boolean = Field(False, description="Let it take jobs again.")
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")
