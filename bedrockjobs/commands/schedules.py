"""The commands about schedules: checked, listed, looked back at, and synced from a file."""

from __future__ import annotations

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
    """What a schedule means, or what is wrong with it."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    words: str
    next: list[str]


class ValidateSchedule(Command[ValidateReply]):
    """Say what a schedule means: errors, warnings, plain words and the next five ticks."""

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
        description="A repeat, or only the expression of a schedule: `0 9 * * 1-5`.",
    )


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
        default=0, description="Only jobs with a higher jobID: the last one of the page before."
    )
    limit: Limit = Field(default=100, description="How many at the most.")


class TickReply(Reply):
    """Ticks with one outcome: ``tick`` is the first of them, ``until`` the last."""

    tick: str
    until: str
    count: int
    outcome: str
    reason: str
    late: int
    run_id: int
    status: str | None = Field(
        default=None, description="How the last of their runs ended, or `running`; left out if none is kept."
    )
    failed: int | None = Field(
        default=None,
        description="How many of these ticks failed, by the runs that are kept; left out if none.",
    )


class TicksReply(Reply):
    """A page of the history, the newest first, and since when the schedule fails."""

    ticks: list[TickReply]
    failing_since: str | None = Field(
        default=None,
        description="If its last run failed: for when the first run was meant that failed since the last"
        " success that is kept.",
    )
    never_succeeded: bool | None = Field(
        default=None,
        description="True if it fails and no run of it ever ended well, as far as runs are kept.",
    )


class ListTicks(Command[TicksReply]):
    """Show what became of each tick of a schedule, the newest first."""

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
        default=None, description="Only older ones: the last tick of the page before."
    )
    limit: Limit = Field(default=100, description="How many rows at the most.")


class SchedulesShape:
    """Says that a schedule is a job that repeats by CRON, without what only other jobs have."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; as it is answered it is pydantic's own."""
        found = handler(core)
        if handler.mode == "validation":
            spec = handler.resolve_ref_schema(found["items"])
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
            found |= {
                "items": {
                    **spec,
                    "properties": {**own, "repeat": json_schemas.cron()},
                    "required": ["name", "repeat"],
                    "additionalProperties": False,
                    json_schemas.NAMED: "Schedule",
                },
                "uniqueItems": True,
            }
        return found


class SyncProblem(Reply):
    """Why one of the schedules, or rules, would be refused."""

    place: int = Field(description="Which of those given it is; the first one is 0.")
    name: str
    reason: str
    detail: str


class SyncWarning(Reply):
    """What is doubtful about one of the schedules or rules, which is taken all the same."""

    place: int = Field(description="Which of those given it is; the first one is 0.")
    name: str
    detail: str


class SyncReply(Reply):
    """Names of the schedules, or rules, that were added, changed, removed, and left alone."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    kept: list[str] | None = Field(
        default=None,
        description="Left alone, if there are any: a live worker declares them otherwise than this command.",
    )
    undeclared: list[str] | None = Field(
        default=None,
        description="With `worker`, if there are any: no live worker declares them, so they are removed"
        f" {SCHEDULE_GRACE_S // 60} minutes after that was noticed.",
    )
    again: int | None = Field(
        default=None, description="With `worker`: seconds after which it should declare its schedules again."
    )
    problems: list[SyncProblem] | None = Field(
        default=None, description="With `dryRun`, where there are any: what all would be refused for."
    )
    warnings: list[SyncWarning] | None = Field(
        default=None, description="If there are any: schedules whose last tick has passed, for example."
    )


SYNC_PROBLEMS_MAX = 100
"""Problems that a dry run of a sync tells at once: more than anybody mends before trying again."""

DRY_RUN = f"Only tell the difference, and up to {SYNC_PROBLEMS_MAX} problems at once."


def _wanted(value: Any) -> list[dict[str, Any]]:
    found = json_list(value, SCHEDULES_PER_SYNC_MAX, empty=True)
    return [JobSpec.given(text, strict=True) for text in found]


class SyncSchedules(Command[SyncReply]):
    """Make a source's schedules what they should be: adds, changes and removes in one commit."""

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
            "A name comes twice, or a schedule has an attribute that it cannot have.",
        ),
        BAD_REPEAT,
        BAD_PRIORITY,
        BAD_DATA,
        BAD_OPTION,
        Refusal(402, "Malformed hosts", "`hosts` together with `lock`."),
        Refusal(405, "Name is taken", "A job of this name is there that is not of this source."),
    ]

    source: OneLine = Field(min_length=1, max_length=NAME_CHARS_MAX, description="Whose schedules these are.")
    take_over: Boolean = Field(
        default=False,
        description="Make schedules of these names that another source has, or that were added by hand, this"
        " source's.",
    )
    schedules: Annotated[
        list[JobSpec],
        Spliced(),
        Field(max_length=SCHEDULES_PER_SYNC_MAX, description="Parameters of CreateJob for each schedule."),
        BeforeValidator(_wanted),
        SchedulesShape(),
    ]
    prune: Boolean = Field(
        default=True, description="Remove the source's schedules that are not among these."
    )
    dry_run: Boolean = Field(default=False, description=DRY_RUN)
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")
    worker: OneLine = Field(
        default="",
        max_length=WORKER_CHARS_MAX,
        description="Name of the live worker that declares them. Then what another one declares stays, and"
        " what nobody declares any longer is removed later.",
    )
