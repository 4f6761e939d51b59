"""The commands of people: pause, resume, trigger, look ahead, look back, and ask why."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from bedrockjobs.base.config import (
    DURATION_S_MAX,
    NAME_CHARS_MAX,
    REASON_CHARS_MAX,
    REPEAT_CHARS_MAX,
    SCHEDULES_PER_SYNC_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.wire import Boolean, JobID, Name, Spliced, Timestamp, Whole, json_list
from bedrockjobs.commands.base import Command, Reply, Where
from bedrockjobs.commands.jobs import JobSpec
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern


class PauseJobs(Command[Reply]):
    """Let no job be taken whose name matches; runs in progress go on, and nextRun stays as it is."""

    repeatable: ClassVar[bool] = True
    name: Annotated[Pattern, Field(min_length=1, max_length=NAME_CHARS_MAX)] = Field(
        "*", description="GLOB pattern of the names; all if left out."
    )
    reason: str = Field("", max_length=REASON_CHARS_MAX, description="Why, for others to read.")
    until: Timestamp | None = Field(None, description="When they go on by themselves.")
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ResumeReply(Reply):
    """Patterns that are paused no more."""

    resumed: list[str]


class ResumeJobs(Command[ResumeReply]):
    """Take back what PauseJobs said of this pattern; ticks that passed meanwhile are skipped."""

    reply: ClassVar[type[Reply]] = ResumeReply
    name: Annotated[Pattern, Field(min_length=1, max_length=NAME_CHARS_MAX)] = Field(
        "*", description="The pattern as it was paused; `*` resumes everything."
    )
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class TriggerReply(Reply):
    """The job that runs now, or once more at the end of its present run."""

    job_id: int
    pending: bool = Field(description="Whether it runs at the moment, so that the new run comes at its end.")


class TriggerJob(Command[TriggerReply]):
    """Run a job now, also a paused one; its own next run is kept and comes afterwards."""

    reply: ClassVar[type[Reply]] = TriggerReply
    job_id: JobID | None = Field(None, description="Job to run.")
    name: Name | None = Field(None, description="Or its name, where only one job has it.")
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ValidateReply(Reply):
    """What a schedule means, or what is wrong with it."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    words: str
    next: list[str]


class ValidateSchedule(Command[ValidateReply]):
    """Say what a schedule means: errors, warnings, plain words and the next five ticks."""

    reply: ClassVar[type[Reply]] = ValidateReply
    where: ClassVar[Where] = "at once"
    repeatable: ClassVar[bool] = True
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

    reply: ClassVar[type[Reply]] = SchedulesReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    name: Pattern | None = Field(None, description="Only jobs whose name matches this GLOB pattern.")
    source: str | None = Field(None, max_length=NAME_CHARS_MAX, description="Only those of this source.")
    after: JobID = Field(0, description="Only jobs with a higher jobID: the last one of the page before.")
    limit: Limit = Field(100, description="How many at the most.")


class TickReply(Reply):
    """Ticks with one outcome: ``tick`` is the first of them, ``until`` the last."""

    tick: str
    until: str
    count: int
    outcome: str
    reason: str
    late: int
    run_id: int


class TicksReply(Reply):
    """A page of the ledger, the newest first."""

    ticks: list[TickReply]


class ListTicks(Command[TicksReply]):
    """Show what became of each tick of a schedule, the newest first."""

    reply: ClassVar[type[Reply]] = TicksReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    job_id: JobID = Field(description="Schedule to show.")
    before: Timestamp | None = Field(None, description="Only older ones: the last tick of the page before.")
    limit: Limit = Field(100, description="How many rows at the most.")


class SyncReply(Reply):
    """Names of the schedules that were added, changed, removed, and left alone."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]


class SyncSchedules(Command[SyncReply]):
    """Make a source's schedules what they should be: adds, changes and removes in one commit."""

    reply: ClassVar[type[Reply]] = SyncReply
    source: str = Field(min_length=1, max_length=NAME_CHARS_MAX, description="Whose schedules these are.")
    schedules: Annotated[
        list[JobSpec],
        Spliced(),
        Field(max_length=SCHEDULES_PER_SYNC_MAX, description="Parameters of CreateJob for each schedule."),
        BeforeValidator(
            lambda value: [JobSpec.given(text, strict=True) for text in json_list(value, empty=True)]
        ),
    ]
    dry_run: Boolean = Field(False, description="Only tell the difference.")
    by: str = Field("", max_length=WORKER_CHARS_MAX, description="Who wants it.")


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

    reply: ClassVar[type[Reply]] = EventsReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    after: Whole = Field(
        0, ge=-1, description="Only events with a higher number; -1: only what comes from now on."
    )
    kind: str | None = Field(None, max_length=100, description="Only of this kind.")
    name: Pattern | None = Field(None, description="Only where the name matches this GLOB pattern.")
    limit: Limit = Field(100, description="How many at the most.")


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

    reply: ClassVar[type[Reply]] = ExplainReply
    where: ClassVar[Where] = "reader"
    repeatable: ClassVar[bool] = True
    job_id: JobID = Field(description="Job to explain.")


class AdvanceReply(Reply):
    """The time it is now."""

    now: str


class AdvanceClock(Command[AdvanceReply]):
    """Move the clock of a server that was started with --test-clock."""

    reply: ClassVar[type[Reply]] = AdvanceReply
    where: ClassVar[Where] = "presence"
    seconds: Whole | None = Field(None, ge=0, le=DURATION_S_MAX, description="By how much.")
    to: Timestamp | None = Field(None, description="Or to when; a moment that has passed changes nothing.")
