"""Commands about the server, and read-only access to the table of jobs."""

from typing import Any, Literal

from pydantic import Field

from bedrockjobs.base.config import JOBS_PER_GET_MAX, QUERY_CHARS_MAX
from bedrockjobs.base.wire import JobID, Whole
from bedrockjobs.commands.base import BUSY, SLOW, Command, Empty, Example, Paging, Refusal, Reply, Scoping
from bedrockjobs.commands.take import JOB, Pattern, Patterns, ShownJobsReply

State = Literal["QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"]


class Ping(Command[Empty]):
    """Answer at once."""

    scoping = Scoping()
    group = "server"
    where = "at once"
    open = True


class StatusReply(Reply):
    """The state of the server."""

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
    """Show the server's version, configuration and counters."""

    scoping = Scoping()
    group = "server"
    where = "at once"
    example = Example(
        {},
        {
            "version": "1.0.0",
            "state": "serving",
            "durability": "full",
            "compatibility": "current",
            "database": "jobs.db",
            "pid": 4711,
            "started": "2026-11-21 03:00:00",
            "now": "2026-11-21 03:29:56",
            "connections": 1,
            "waiting": 0,
            "commits": 12,
            "commands": 34,
        },
    )


class ServerReply(Reply):
    """One server."""

    name: str
    address: str
    started: str
    pulse: str
    version: str
    workers: int
    state: Literal["starting", "serving", "stopping", "silent"]


class ServersReply(Reply):
    """The live servers of the database, by name."""

    servers: list[ServerReply]


class ListServers(Command[ServersReply]):
    """List the live servers that share the database, by name: a single one for SQLite."""

    group = "server"
    where = "at once"
    example = Example(
        {},
        {
            "servers": [
                {
                    "name": "box-4711",
                    "address": "127.0.0.1:4000",
                    "started": "2026-11-21 03:00:00.000",
                    "pulse": "2026-11-21 03:29:56.000",
                    "version": "1.0.0",
                    "workers": 3,
                    "state": "serving",
                }
            ]
        },
    )


class HelpReply(Reply):
    """Each command with its sentence."""

    commands: dict[str, str]


class Help(Command[HelpReply]):
    """List the commands."""

    scoping = Scoping()
    group = "server"
    where = "at once"
    example = Example({}, {"commands": {"Ping": "Answer at once."}})


class QueryReply(Reply):
    """Rows: an array of arrays, or with `format: json` an object with headers and rows."""

    headers: list[str] = []
    rows: list[list[Any]] = []


class Query(Command[QueryReply]):
    """Run one SELECT, read-only, in a separate process with limits on time, memory, rows and bytes."""

    group = "server"
    where = "reader"
    role = "admin"
    example = Example({"query": "select state, name from jobs limit 10;"}, [["QUEUED", "mail/welcome"]])
    refusals = [
        Refusal(402, "Bad query", "The SQL cannot be parsed."),
        Refusal(502, "Query Missing Semicolon", "The statement does not end in `;`."),
        Refusal(
            502, "Query aborted", "It is not a SELECT, or uses something forbidden or too much of something."
        ),
        Refusal(502, "Too many rows", "More rows than `query_rows_max`."),
        Refusal(502, "Answer too large", "More bytes than `query_bytes_max`."),
        Refusal(555, "Timeout", "It ran longer than `query_s`."),
        Refusal(429, "Too many queries", "More than `query_waiting_max` run or wait."),
        Refusal(503, "No process for Query", "No process can be started; the log has the reason."),
    ]

    query: str = Field(min_length=1, max_length=QUERY_CHARS_MAX, description="One SELECT that ends in `;`.")
    format: Literal["json", "text", "rows"] | None = Field(
        default=None, description="rows: arrays of columns; json: headers and rows; text: columns as text."
    )


class ListJobs(Command[ShownJobsReply]):
    """List jobs by jobID, page by page."""

    scoping = Scoping()
    where = "reader"
    paging = Paging("jobs", "jobID", "after")
    example = Example(
        {"state": "FAILED", "limit": 10}, {"jobs": [{**JOB, "state": "FAILED", "error": "no such mailbox"}]}
    )
    refusals = [SLOW, Refusal(429, "Too many queries", "More than `query_waiting_max` run or wait.")]

    name: Pattern | None = Field(default=None, description="Only jobs whose name matches this GLOB pattern.")
    state: State | None = Field(default=None, description="Only jobs in this state.")
    after: JobID = Field(
        default=0, description="Only jobs with a higher jobID: the last one of the previous page."
    )
    limit: Whole = Field(default=100, ge=1, le=JOBS_PER_GET_MAX, description="How many at most.")


class ListChildren(Command[ShownJobsReply]):
    """List the children of a job by jobID, page by page; empty if the job does not exist."""

    scoping = Scoping()
    where = "reader"
    paging = Paging("jobs", "jobID", "after")
    example = Example(
        {"jobID": 1},
        {"jobs": [{**JOB, "jobID": 2, "parentJobID": 1, "name": "mail/send", "state": "QUEUED"}]},
    )
    refusals = [BUSY]

    job_id: JobID = Field(description="Parent of the jobs to list.")
    after: JobID = Field(
        default=0, description="Only jobs with a higher jobID: the last one of the previous page."
    )
    limit: Whole = Field(default=100, ge=1, le=JOBS_PER_GET_MAX, description="How many at most.")


class CrashBedrockJob(Command[Empty]):
    """Fail every job whose name matches one of these patterns instead of handing it out."""

    scoping = Scoping(patterns=("names",))
    group = "server"
    role = "operate"
    repeatable = True
    example = Example({"names": ["mail/*"]})
    refusals = [Refusal(429, "Too many patterns", "The list would hold more than 1,000 patterns.")]

    names: Patterns = Field(description="GLOB patterns, as a JSON array or a comma list.")


class ClearCrashedBedrockJobs(Command[Empty]):
    """Remove patterns from CrashBedrockJob's list."""

    scoping = Scoping(patterns=("names",))
    group = "server"
    role = "operate"
    repeatable = True

    names: Patterns | None = Field(default=None, description="The patterns to remove; all if left out.")
