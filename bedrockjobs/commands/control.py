"""Commands of operators: pause, resume, trigger, explain, events, the test clock and pings."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import DURATION_S_MAX, NAME_CHARS_MAX, REASON_CHARS_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import LINE, Boolean, JobID, Name, OneLine, Paragraphs, Printed, Timestamp, Whole
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
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import HELD_UNTIL, HIDDEN, Pattern

PausePattern = Annotated[
    Pattern,
    Field(min_length=1, max_length=NAME_CHARS_MAX),
    SchemaType(lambda: {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": LINE}),
]


class PauseJobs(Command[Empty]):
    """Pause a name pattern: matching jobs are not taken. Current runs continue; nextRun does not change."""

    scoping = Scoping(patterns=("name",))
    group = "schedules"
    role = "operate"
    repeatable = True
    example = Example({"name": "mail/*", "reason": "the mail server is down"})
    refusals = [
        Refusal(402, "Malformed until", "`until` is in the past."),
        Refusal(429, "Too many pauses", "1,000 patterns are already paused."),
    ]

    name: PausePattern = Field(default="*", description="GLOB pattern of names; all if left out.")
    reason: Paragraphs = Field(
        default="", max_length=REASON_CHARS_MAX, description="The reason, for other people."
    )
    until: Timestamp | None = Field(default=None, description="When the pause ends by itself.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class ResumeReply(Reply):
    """Patterns whose pauses ended."""

    resumed: list[str]


class ResumeJobs(Command[ResumeReply]):
    """End the pause of one pattern, or with `all` every pause; ticks missed in between are skipped."""

    scoping = Scoping(patterns=("name",))
    group = "schedules"
    role = "operate"
    example = Example({"name": "mail/*"}, {"resumed": ["mail/*"]})
    refusals = [
        Refusal(402, "Malformed all", "`all` is given together with a `name`."),
        Refusal(404, "Not paused", "This pattern is not paused, although names that it matches may be."),
    ]

    name: PausePattern = Field(
        default="*", description="The pattern exactly as it was paused: `*` ends only the pause of `*`."
    )
    all: Boolean = Field(default=False, description="End every pause instead.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class ReleaseReply(Reply):
    """The hold that was released."""

    since: str
    reason: str


class ReleaseHold(Command[ReleaseReply]):
    """Release a queue that was restored from a backup: its jobs, schedules and messages.

    Ticks missed in between are skipped; other jobs that are due are taken at once.
    """

    group = "schedules"
    role = "operate"
    example = Example(
        {"by": "ada"}, {"since": "2026-11-21 03:29:56", "reason": "restored from jobs-2026-11-20.db"}
    )
    refusals = [Refusal(404, "Not held", "The queue was not restored, or is already released.")]

    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class TriggerReply(Reply):
    """The job that runs now, or again after its current run."""

    job_id: int
    pending: bool = Field(
        description="Whether it is running, so that the new run follows after the current one."
    )


class TriggerJob(Command[TriggerReply]):
    """Run a job now, even if it is paused; its regular next run stays planned."""

    scoping = Scoping(jobs=("job_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("jobID", "name"))
    group = "schedules"
    role = "operate"
    example = Example({"jobID": 1}, {"jobID": 1, "pending": False})
    refusals = [
        Refusal(402, "Missing jobID", "Neither `jobID` nor `name` is given."),
        NO_JOB,
        Refusal(404, "No job with this name", "No job has this name."),
        Refusal(405, "Several jobs have this name", "More than one job has it."),
        Refusal(405, "Can only trigger QUEUED and running jobs", "The job is in another state."),
    ]

    job_id: JobID | None = Field(default=None, description="Job to run.")
    name: Name | None = Field(default=None, description="Or its name, if only one job has it.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class RunAgain(Command[TriggerReply]):
    """Run again with the input of an earlier run: trigger its schedule, or create a new job otherwise."""

    scoping = Scoping(runs=("run_id",))
    group = "runs"
    role = "operate"
    example = Example({"runID": 1}, {"jobID": 2, "pending": False})
    refusals = [
        NO_RUN,
        Refusal(
            405, "Run has no data", "The run began under an older version, which did not store its input."
        ),
    ]

    run_id: JobID = Field(description="Run to repeat; it must have been taken by a named worker.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class EventReply(Reply):
    """One event."""

    seq: int
    at: str
    kind: str
    name: str
    job_id: int
    run_id: int
    by: str
    detail: str


class EventsReply(Reply):
    """Events, oldest first."""

    events: list[EventReply]


class Events(Command[EventsReply]):
    """List events; with `Connection: wait` reply as soon as there is one."""

    scoping = Scoping()
    group = "schedules"
    where = "reader"
    waits = True
    paging = Paging("events", "seq", "after")
    example = Example(
        {"after": 0, "limit": 10},
        {
            "events": [
                {
                    "seq": 1,
                    "at": "2026-11-21 03:29:56.332",
                    "kind": "pause",
                    "name": "mail/*",
                    "jobID": 0,
                    "runID": 0,
                    "by": "ada",
                    "detail": "the mail server is down",
                }
            ]
        },
    )
    refusals = [SLOW, BUSY]

    after: Whole = Field(
        default=0, ge=-1, description="Only events with a higher number; -1: only future events."
    )
    kind: OneLine | None = Field(default=None, max_length=100, description="Only of this kind.")
    name: Pattern | None = Field(default=None, description="Only if the name matches this GLOB pattern.")
    limit: Limit = Field(default=100, description="How many at most.")


class WaitsReply(Reply):
    """One thing that a job waits for."""

    reason: str
    detail: str


class ExplainReply(Reply):
    """Why a job does not run: what it waits for, the most decisive reason first."""

    job_id: int
    state: str
    name: str
    waits_for: list[WaitsReply]
    unique_key: str | None = Field(
        default=None,
        description="The `uniqueKey` that the job holds: a CreateJob with it is answered with this job, see"
        " `onConflict`.",
    )
    unique_until: str | None = Field(default=None, description=HELD_UNTIL)
    hidden: list[str] | None = Field(default=None, description=HIDDEN)


class ExplainJob(Command[ExplainReply]):
    """Explain what a job is waiting for."""

    scoping = Scoping()
    where = "reader"
    example = Example(
        {"jobID": 1},
        {
            "jobID": 1,
            "state": "QUEUED",
            "name": "mail/welcome",
            "waitsFor": [
                {
                    "reason": "paused",
                    "detail": "mail/* has been paused since 2026-11-21 09:00:00: the mail server is down",
                }
            ],
        },
    )
    refusals = [NO_JOB, SLOW, BUSY]

    job_id: JobID = Field(description="Job to explain.")


class AdvanceReply(Reply):
    """The current time."""

    now: str


class AdvanceClock(Command[AdvanceReply]):
    """Move the clock of a server that was started with --test-clock."""

    model_config = ConfigDict(json_schema_extra=json_schemas.not_together("seconds", "to"))
    group = "server"
    where = "presence"
    role = "admin"
    example = Example({"seconds": 3600}, {"now": "2026-11-21 04:29:56"})
    refusals = [
        Refusal(402, "Malformed to", "`to` together with `seconds`."),
        Refusal(405, "Not a test clock", "The server was started without `--test-clock`."),
    ]

    seconds: Whole | None = Field(default=None, ge=0, le=DURATION_S_MAX, description="Seconds to advance.")
    to: Timestamp | None = Field(
        default=None, description="Or the time to move to; a time in the past changes nothing."
    )


# Schedules whose work is done elsewhere, which reports by pings.


PING_OUTPUT_CHARS_MAX = 100_000
"""Maximum length of the output in one ping, in characters: the end of a log shows why the work failed."""

PingEvent = Literal["start", "success", "fail"]

_NOT_EXPECTED = Refusal(405, "No pings are expected", "The job is not a schedule with `expect: ping`.")
_MISSING = Refusal(402, "Missing jobID", "Neither `jobID` nor `name` is given.")
_NO_NAME = Refusal(404, "No job with this name", "No job has this name.")
_SEVERAL = Refusal(405, "Several jobs have this name", "More than one job has it; give the jobID.")
_BROKEN = Refusal(
    405, "Its repeat can not be evaluated", "The schedule is FAILED, since its repeat cannot be evaluated."
)


class PingReply(Reply):
    """The run that a ping started or ended."""

    job_id: int
    run_id: int


class PingSchedule(Command[PingReply]):
    """Report the start, success or failure of work done elsewhere, for a schedule with `expect: ping`."""

    scoping = Scoping(jobs=("job_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("jobID", "name"))
    group = "schedules"
    role = "work"
    example = Example({"name": "backup/nas", "event": "success"}, {"jobID": 7, "runID": 31})
    refusals = [_MISSING, NO_JOB, _NO_NAME, _SEVERAL, _NOT_EXPECTED, _BROKEN]

    job_id: JobID | None = Field(default=None, description="jobID of the schedule.")
    name: Name | None = Field(default=None, description="Its name, instead of the jobID.")
    event: PingEvent = Field(
        default="success",
        description="start: the work has begun; success or fail: it has ended, with or without a start.",
    )
    exit_code: Whole | None = Field(
        default=None, ge=0, le=255, description="Exit status; any other than 0 means fail."
    )
    output: Printed = Field(
        default="",
        max_length=PING_OUTPUT_CHARS_MAX,
        description="What it printed; stored as the run's output.",
    )
    host: OneLine = Field(default="", max_length=255, description="Host on which the work was done.")


class PingSecretReply(Reply):
    """The secret and the path for pings of a schedule."""

    job_id: int
    secret: str
    path: str = Field(description="Path to POST to, relative to the server's address.")


class GetPingSecret(Command[PingSecretReply]):
    """Show the secret with which a machine without a token pings a schedule: `POST /ping/<secret>`."""

    scoping = Scoping(jobs=("job_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("jobID", "name"))
    group = "schedules"
    role = "operate"
    repeatable = True
    example = Example(
        {"name": "backup/nas"},
        {
            "jobID": 7,
            "secret": "bjp_7_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE",
            "path": "/ping/bjp_7_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE",
        },
    )
    refusals = [_MISSING, NO_JOB, _NO_NAME, _SEVERAL, _NOT_EXPECTED]

    job_id: JobID | None = Field(default=None, description="jobID of the schedule.")
    name: Name | None = Field(default=None, description="Its name, instead of the jobID.")
