"""The commands of schedules whose work is done elsewhere, and that hear of it by pings."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from bedrockjobs.base import shapes
from bedrockjobs.base.wire import JobID, Name, OneLine, Printed, Whole
from bedrockjobs.commands.base import Command, Example, Refusal, Reply, Scoping
from bedrockjobs.commands.refusals import NO_JOB

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
    model_config = ConfigDict(json_schema_extra=shapes.one_of("jobID", "name"))
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
    model_config = ConfigDict(json_schema_extra=shapes.one_of("jobID", "name"))
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
