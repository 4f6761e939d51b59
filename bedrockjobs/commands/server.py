"""The commands about the server, and the read-only views of the table."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from bedrockjobs.base.config import JOBS_PER_GET_MAX, QUERY_CHARS_MAX
from bedrockjobs.base.wire import JobID, Whole
from bedrockjobs.commands.base import Command, Reply, Where
from bedrockjobs.commands.take import JobsReply, Pattern, Patterns

State = Literal["QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"]


class Ping(Command[Reply]):
    """Answer at once."""

    where: ClassVar[Where] = "at once"
    repeatable: ClassVar[bool] = True


class StatusReply(Reply):
    """What the server says of itself."""

    version: str
    state: str
    durability: str
    compatibility: str
    database: str
    pid: int
    started: str
    now: str
    connections: int
    waiting: int
    commits: int
    commands: int


class Status(Command[StatusReply]):
    """Tell what the server is and how it is."""

    reply: ClassVar[type[Reply]] = StatusReply
    where: ClassVar[Where] = "at once"
    repeatable: ClassVar[bool] = True


class HelpReply(Reply):
    """Each command with its sentence."""

    commands: dict[str, str]


class Help(Command[HelpReply]):
    """List the commands."""

    reply: ClassVar[type[Reply]] = HelpReply
    where: ClassVar[Where] = "at once"
    repeatable: ClassVar[bool] = True


class QueryReply(Reply):
    """Rows: an array of arrays, or with `format: json` an object with headers and rows."""

    headers: list[str] = []
    rows: list[list[Any]] = []


class Query(Command[QueryReply]):
    """Run one SELECT on a read-only connection, with a limit of time and of rows."""

    reply: ClassVar[type[Reply]] = QueryReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    query: str = Field(min_length=1, max_length=QUERY_CHARS_MAX, description="One SELECT that ends in `;`.")
    format: Literal["json", "text", "rows"] | None = Field(
        None, description="rows: arrays of columns; json: headers and rows; text: columns as text."
    )


class ListJobs(Command[JobsReply]):
    """List jobs by jobID, page by page."""

    reply: ClassVar[type[Reply]] = JobsReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    name: Pattern | None = Field(None, description="Only jobs whose name matches this GLOB pattern.")
    state: State | None = Field(None, description="Only jobs in this state.")
    after: JobID = Field(0, description="Only jobs with a higher jobID: the last one of the page before.")
    limit: Whole = Field(100, ge=1, le=JOBS_PER_GET_MAX, description="How many at the most.")


class CrashBedrockJob(Command[Reply]):
    """Fail, instead of giving out, every job whose name matches one of these patterns."""

    repeatable: ClassVar[bool] = True
    names: Patterns = Field(description="GLOB patterns, as a JSON array or a comma list.")


class ClearCrashedBedrockJobs(Command[Reply]):
    """Forget the patterns of CrashBedrockJob."""

    repeatable: ClassVar[bool] = True
    names: Patterns | None = Field(None, description="The patterns to forget; all if left out.")
