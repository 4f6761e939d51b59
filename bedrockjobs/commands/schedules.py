"""Commands for schedules: validate, list, tick history, and sync from a file."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import (
    NAME_CHARS_MAX,
    REPEAT_CHARS_MAX,
    SCHEDULE_GRACE_S,
    SCHEDULES_PER_SYNC_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.wire import Boolean, JobID, OneLine, Spliced, Timestamp, json_list
from bedrockjobs.commands.base import (
    BAD_DATA,
    BAD_OPTION,
    BAD_PRIORITY,
    BAD_REPEAT,
    BUSY,
    NO_JOB,
    SLOW,
    Command,
    Example,
    Paging,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.create import JobSpec
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern


class ValidateReply(Reply):
    """The meaning of a schedule, or its errors."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    words: str
    next: list[str]


class ValidateSchedule(Command[ValidateReply]):
    """Explain a schedule: errors, warnings, a description in words and the next five ticks."""

    scoping = Scoping()
    group = "schedules"
    where = "at once"
    example = Example(
        {"repeat": "CRON TZ=Europe/Berlin 0 9 * * 1-5"},
        {
            "valid": True,
            "errors": [],
            "warnings": [],
            "words": "at 09:00 from Monday to Friday, Europe/Berlin",
            "next": ["2026-11-23 08:00:00", "2026-11-24 08:00:00"],
        },
    )

    repeat: str = Field(
        min_length=1,
        max_length=REPEAT_CHARS_MAX,
        description="A repeat, or the bare expression of a schedule: `0 9 * * 1-5`.",
    )
    after: Timestamp | None = Field(default=None, description="The ticks after this time; now if left out.")


class ScheduleReply(Reply):
    """One schedule."""

    job_id: int
    name: str
    state: str
    repeat: str
    words: str
    next_run: str
    last_run: str
    last_status: str
    run_id: int
    paused: str
    source: str


class SchedulesReply(Reply):
    """A page of schedules by jobID."""

    schedules: list[ScheduleReply]


class ListSchedules(Command[SchedulesReply]):
    """List the jobs whose repeat begins with CRON, by jobID."""

    scoping = Scoping()
    group = "schedules"
    where = "reader"
    paging = Paging("schedules", "jobID", "after")
    example = Example(
        {"name": "report/*"},
        {
            "schedules": [
                {
                    "jobID": 3,
                    "name": "report/day",
                    "state": "QUEUED",
                    "repeat": "CRON 0 6 * * *",
                    "words": "at 06:00 every day",
                    "nextRun": "2026-11-22 06:00:00",
                    "lastRun": "2026-11-21 06:00:00",
                    "lastStatus": "success",
                    "runID": 7,
                    "paused": "",
                    "source": "reports",
                }
            ]
        },
    )
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(default=None, description="Only jobs whose name matches this GLOB pattern.")
    source: OneLine | None = Field(
        default=None, max_length=NAME_CHARS_MAX, description="Only those of this source."
    )
    after: JobID = Field(
        default=0, description="Only jobs with a higher jobID: the last one of the previous page."
    )
    limit: Limit = Field(default=100, description="How many at most.")


class TickReply(Reply):
    """Consecutive ticks with the same outcome: ``tick`` is the first of them, ``until`` the last."""

    tick: str
    until: str
    count: int
    outcome: str
    reason: str = Field(
        description="Why ticks were skipped; of a tick that ran, what a clock change did to it, else empty."
    )
    late: int
    run_id: int
    status: str | None = Field(
        default=None,
        description="How the last of their runs ended, or `running`; left out if it is not stored.",
    )
    failed: int | None = Field(
        default=None, description="How many of these ticks failed, by the stored runs; left out if none."
    )


class TicksReply(Reply):
    """A page of the tick history, newest first, and since when the schedule is failing."""

    ticks: list[TickReply]
    failing_since: str | None = Field(
        default=None,
        description="If its last run failed: the planned time of the first failed run since the last stored"
        " success.",
    )
    never_succeeded: bool | None = Field(
        default=None, description="True if it is failing and no stored run ever succeeded."
    )


class ListTicks(Command[TicksReply]):
    """Show the outcome of each tick of a schedule, newest first."""

    scoping = Scoping()
    group = "schedules"
    where = "reader"
    paging = Paging("ticks", "tick", "before")
    example = Example(
        {"jobID": 1},
        {
            "ticks": [
                {
                    "tick": "2026-11-21 06:00:00",
                    "until": "2026-11-21 06:00:00",
                    "count": 1,
                    "outcome": "fired",
                    "reason": "",
                    "late": 0,
                    "runID": 7,
                    "status": "success",
                }
            ]
        },
    )
    refusals = [NO_JOB, BUSY]

    job_id: JobID = Field(description="Schedule to show.")
    before: Timestamp | None = Field(
        default=None, description="Only older ones: the last tick of the previous page."
    )
    limit: Limit = Field(default=100, description="How many rows at most.")


class SchedulesShape:
    """Describes a schedule as a job that repeats by CRON, without attributes of other jobs."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; for replies, pydantic's own."""
        schema = handler(core)
        if handler.mode == "validation":
            spec = handler.resolve_ref_schema(schema["items"])
            others = (
                "unique",
                "overwrite",
                "parentJobID",
                "mockRequest",
                "retryAfter",
                "idempotencyKey",
                "uniqueKey",
                "uniqueFor",
                "onConflict",
            )
            own = {name: value for name, value in spec["properties"].items() if name not in others}
            schema |= {
                "items": {
                    **spec,
                    "properties": {**own, "repeat": json_schemas.cron()},
                    "required": ["name", "repeat"],
                    "additionalProperties": False,
                    json_schemas.NAMED: "Schedule",
                },
                "uniqueItems": True,
            }
        return schema


class SyncProblem(Reply):
    """Why one of the schedules or rules would be refused."""

    place: int = Field(description="Index in the request, from 0.")
    name: str
    reason: str
    detail: str


class SyncWarning(Reply):
    """A warning about one of the schedules or rules, which is accepted anyway."""

    place: int = Field(description="Index in the request, from 0.")
    name: str
    detail: str


class SyncReply(Reply):
    """Names of the schedules or rules that were added, changed, removed, and unchanged."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    kept: list[str] | None = Field(
        default=None, description="Left unchanged, if any: a live worker declares them differently."
    )
    undeclared: list[str] | None = Field(
        default=None,
        description=f"With `worker`, if any: no live worker declares them; they are removed"
        f" {SCHEDULE_GRACE_S // 60} minutes after this was noticed.",
    )
    again: int | None = Field(
        default=None, description="With `worker`: seconds until it should declare its schedules again."
    )
    problems: list[SyncProblem] | None = Field(
        default=None, description="With `dryRun`, if any: reasons for which the request would be refused."
    )
    warnings: list[SyncWarning] | None = Field(
        default=None, description="If any: for example, schedules whose last tick is in the past."
    )


SYNC_PROBLEMS_MAX = 100
"""Maximum number of problems that one dry run of a sync reports: more than people fix before they try
again."""

DRY_RUN = f"Only report the difference, and up to {SYNC_PROBLEMS_MAX} problems at once."


def _wanted(value: Any) -> list[dict[str, Any]]:
    schedules = json_list(value, SCHEDULES_PER_SYNC_MAX, empty=True)
    return [JobSpec.parameters_in(text, strict=True) for text in schedules]


class SyncSchedules(Command[SyncReply]):
    """Make a source's schedules equal to these: add, change and remove schedules in one commit."""

    scoping = Scoping(names=("schedules.name",))
    group = "schedules"
    role = "operate"
    all_or_nothing = True
    example = Example(
        {"source": "reports", "schedules": [{"name": "report/day", "repeat": "CRON 0 6 * * *"}]},
        {"added": ["report/day"], "changed": [], "removed": [], "unchanged": []},
    )
    refusals = [
        Refusal(
            402,
            "Malformed schedules",
            "A name occurs twice, or a schedule has an attribute that is not allowed.",
        ),
        BAD_REPEAT,
        BAD_PRIORITY,
        BAD_DATA,
        BAD_OPTION,
        Refusal(402, "Malformed hosts", "`hosts` is given together with `lock`."),
        Refusal(405, "Name is taken", "A job of this name exists that does not belong to this source."),
    ]

    source: OneLine = Field(
        min_length=1, max_length=NAME_CHARS_MAX, description="Source that owns these schedules."
    )
    take_over: Boolean = Field(
        default=False,
        description="Take over schedules of these names that belong to another source or were created by"
        " hand.",
    )
    schedules: Annotated[
        list[JobSpec],
        Spliced(),
        Field(max_length=SCHEDULES_PER_SYNC_MAX, description="Parameters of CreateJob for each schedule."),
        BeforeValidator(_wanted),
        SchedulesShape(),
    ]
    prune: Boolean = Field(default=True, description="Remove schedules of the source that are not listed.")
    dry_run: Boolean = Field(default=False, description=DRY_RUN)
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")
    worker: OneLine = Field(
        default="",
        max_length=WORKER_CHARS_MAX,
        description="Name of the live worker that declares them. Schedules declared by other workers then"
        " stay, and undeclared ones are removed later.",
    )
