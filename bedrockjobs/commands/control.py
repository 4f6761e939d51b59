"""The commands of people: pause, resume, trigger, look ahead, look back, and ask why."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import DURATION_S_MAX, NAME_CHARS_MAX, REASON_CHARS_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import Shape
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
from bedrockjobs.commands.take import Pattern

PausePattern = Annotated[
    Pattern,
    Field(min_length=1, max_length=NAME_CHARS_MAX),
    Shape(lambda: {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": LINE}),
]


class PauseJobs(Command[Empty]):
    """Let no job be taken whose name matches; runs in progress go on, and nextRun stays as it is."""

    scoping = Scoping(patterns=("name",))
    group = "schedules"
    role = "operate"
    repeatable = True
    example = Example({"name": "mail/*", "reason": "the mail server is down"})
    refusals = [
        Refusal(402, "Malformed until", "`until` has passed."),
        Refusal(429, "Too many pauses", "1,000 patterns are paused already."),
    ]

    name: PausePattern = Field(default="*", description="GLOB pattern of the names; all if left out.")
    reason: Paragraphs = Field(
        default="", max_length=REASON_CHARS_MAX, description="Why, for others to read."
    )
    until: Timestamp | None = Field(default=None, description="When they go on by themselves.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ResumeReply(Reply):
    """Patterns whose pauses ended."""

    resumed: list[str]


class ResumeJobs(Command[ResumeReply]):
    """End the pause of one pattern, or with `all` every pause; ticks that passed meanwhile are skipped."""

    scoping = Scoping(patterns=("name",))
    group = "schedules"
    role = "operate"
    example = Example({"name": "mail/*"}, {"resumed": ["mail/*"]})
    refusals = [
        Refusal(402, "Malformed all", "`all` together with a `name`."),
        Refusal(404, "Not paused", "This pattern is not paused, although names that it matches may be."),
    ]

    name: PausePattern = Field(
        default="*", description="The pattern as it was paused: `*` ends the pause of `*` and no other."
    )
    all: Boolean = Field(default=False, description="End every pause, whoever made it, instead.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ReleaseReply(Reply):
    """The hold that was taken back."""

    since: str
    reason: str


class ReleaseHold(Command[ReleaseReply]):
    """Let a queue go on that was restored from a backup: its jobs, its schedules, its messages.

    Ticks that passed meanwhile are skipped; other jobs that are due are taken at once.
    """

    group = "schedules"
    role = "operate"
    example = Example(
        {"by": "ada"}, {"since": "2026-11-21 03:29:56", "reason": "restored from jobs-2026-11-20.db"}
    )
    refusals = [Refusal(404, "Not held", "The queue was not restored, or somebody released it already.")]

    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class TriggerReply(Reply):
    """The job that runs now, or once more at the end of its present run."""

    job_id: int
    pending: bool = Field(description="Whether it runs at the moment, so that the new run comes at its end.")


class TriggerJob(Command[TriggerReply]):
    """Run a job now, also a paused one; its own next run is kept and comes afterwards."""

    scoping = Scoping(jobs=("job_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("jobID", "name"))
    group = "schedules"
    role = "operate"
    example = Example({"jobID": 1}, {"jobID": 1, "pending": False})
    refusals = [
        Refusal(402, "Missing jobID", "Neither `jobID` nor `name` is given."),
        NO_JOB,
        Refusal(404, "No job with this name", "There is no job of this name."),
        Refusal(405, "Several jobs have this name", "More than one job has it."),
        Refusal(405, "Can only trigger QUEUED and running jobs", "The job is in another state."),
    ]

    job_id: JobID | None = Field(default=None, description="Job to run.")
    name: Name | None = Field(default=None, description="Or its name, where only one job has it.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class RunAgain(Command[TriggerReply]):
    """Run again what a run was given: a schedule is triggered, of any other job a new one is made."""

    scoping = Scoping(runs=("run_id",))
    group = "runs"
    role = "operate"
    example = Example({"runID": 1}, {"jobID": 2, "pending": False})
    refusals = [
        NO_RUN,
        Refusal(405, "Run has no data", "It began under an older version, which kept nothing of it."),
    ]

    run_id: JobID = Field(description="Run to do again; a worker with a name took it.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class EventReply(Reply):
    """One thing that happened."""

    seq: int
    at: str
    kind: str
    name: str
    job_id: int
    run_id: int
    by: str
    detail: str


class EventsReply(Reply):
    """Events in order."""

    events: list[EventReply]


class Events(Command[EventsReply]):
    """Tell what happened; with `Connection: wait` it is answered as soon as something does."""

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
        default=0, ge=-1, description="Only events with a higher number; -1: only what comes from now on."
    )
    kind: OneLine | None = Field(default=None, max_length=100, description="Only of this kind.")
    name: Pattern | None = Field(default=None, description="Only where the name matches this GLOB pattern.")
    limit: Limit = Field(default=100, description="How many at the most.")


class WaitsReply(Reply):
    """One thing that a job waits for."""

    reason: str
    detail: str


class ExplainReply(Reply):
    """Why a job does not run: what it waits for, the most decisive first."""

    job_id: int
    state: str
    name: str
    waits_for: list[WaitsReply]


class ExplainJob(Command[ExplainReply]):
    """Say what a job is waiting for."""

    scoping = Scoping()
    where = "reader"
    example = Example(
        {"jobID": 1},
        {
            "jobID": 1,
            "state": "QUEUED",
            "name": "mail/welcome",
            "waitsFor": [{"reason": "paused", "detail": "mail/* is paused: the mail server is down"}],
        },
    )
    refusals = [NO_JOB, SLOW, BUSY]

    job_id: JobID = Field(description="Job to explain.")


class AdvanceReply(Reply):
    """The time it is now."""

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

    seconds: Whole | None = Field(default=None, ge=0, le=DURATION_S_MAX, description="By how much.")
    to: Timestamp | None = Field(
        default=None, description="Or to when; a moment that has passed changes nothing."
    )


# The commands of schedules whose work is done elsewhere, and that hear of it by pings.


PING_OUTPUT_CHARS_MAX = 100_000
"""Characters of output that one ping may bring along: the end of a log, which tells why it failed."""

PingEvent = Literal["start", "success", "fail"]

_NOT_EXPECTED = Refusal(405, "No pings are expected", "The job is no schedule with `expect: ping`.")
_MISSING = Refusal(402, "Missing jobID", "Neither `jobID` nor `name`.")
_NO_NAME = Refusal(404, "No job with this name", "There is none.")
_SEVERAL = Refusal(405, "Several jobs have this name", "Give the jobID.")
_BROKEN = Refusal(405, "Its repeat can not be evaluated", "The schedule has FAILED for that reason.")


class PingReply(Reply):
    """The run that a ping began or ended."""

    job_id: int
    run_id: int


class PingSchedule(Command[PingReply]):
    """Tell how the work of a schedule with `expect: ping` goes, which is done elsewhere."""

    scoping = Scoping(jobs=("job_id",), lookups=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("jobID", "name"))
    group = "schedules"
    role = "work"
    example = Example({"name": "backup/nas", "event": "success"}, {"jobID": 7, "runID": 31})
    refusals = [_MISSING, NO_JOB, _NO_NAME, _SEVERAL, _NOT_EXPECTED, _BROKEN]

    job_id: JobID | None = Field(default=None, description="jobID of the schedule.")
    name: Name | None = Field(default=None, description="Its name, instead of the jobID.")
    event: PingEvent = Field(
        default="success", description="start: it has begun; success and fail: it has ended, begun or not."
    )
    exit_code: Whole | None = Field(
        default=None, ge=0, le=255, description="Exit status; other than 0 it is fail."
    )
    output: Printed = Field(
        default="", max_length=PING_OUTPUT_CHARS_MAX, description="What it printed; kept as the run's output."
    )
    host: OneLine = Field(default="", max_length=255, description="Where it was done.")


class PingSecretReply(Reply):
    """What a ping is sent with."""

    job_id: int
    secret: str
    path: str = Field(description="Where to POST it to, below the address of the server.")


class GetPingSecret(Command[PingSecretReply]):
    """Tell the secret with which a machine without a token pings a schedule: `POST /ping/<secret>`."""

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
