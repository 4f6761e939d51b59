"""The commands that make, change and end jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from bedrockjobs.base.config import (
    DELAY_S_MAX,
    ERROR_CHARS_MAX,
    IF_MATCH_CHARS_MAX,
    JOBS_PER_CREATE_MAX,
    KEY_CHARS_MAX,
    PRIORITIES,
    PRIORITY_DEFAULT,
)
from bedrockjobs.base.wire import (
    Boolean,
    JobID,
    JobIDs,
    JSONObject,
    Modifiers,
    Name,
    OnlyTrue,
    Priority,
    Spliced,
    Timestamp,
    Whole,
    checked_priority,
    json_list,
    refused,
)
from bedrockjobs.commands.base import Command, Parameters, Reply
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.commands.take import JobReply, Pattern, TakeOptions

RUN_ID = "Run that sends this; refused with 405 if it is no longer the job's current run."


def _delay(value: int) -> int:
    if value < 0:
        raise refused("Must specify a non-negative delay when retrying", f"0 to {DELAY_S_MAX} seconds")
    return value


Delay = Annotated[Whole, Field(le=DELAY_S_MAX), AfterValidator(_delay)]


class JobSpec(JobOptions):
    """One job to create."""

    name: Name = Field(description="Name of the job, 1 to 255 characters; workers ask for jobs by name.")
    data: JSONObject = Field(
        "{}", description="Anything the job needs, a JSON object, kept as it is spelled."
    )
    first_run: Timestamp | None = Field(None, description="When it may run first; at once if left out.")
    repeat: Modifiers = Field(
        "",
        description="How it repeats: `FINISHED, +1 HOUR`, `DAILY`, `CRON TZ=Europe/Berlin 0 9 * * 1-5`, ...",
    )
    retry_after: Modifiers = Field(
        "", description="Time after which a taken job that nobody ended is given out again: `+5 MINUTES`."
    )
    job_priority: Priority | None = Field(None, description="Higher goes first; 500 if left out.")
    priority: Annotated[Any, WithJsonSchema({"type": "integer", "enum": sorted(PRIORITIES)})] = Field(
        None, description="Another spelling of jobPriority, which wins; not looked at beside it."
    )
    unique: OnlyTrue = Field(False, description="Update the job of this name, if there is one.")
    overwrite: Boolean = Field(True, description="With unique: false leaves the existing job as it is.")
    parent_job_id: JobID = Field(0, description="Parent, which must be RUNNING, RUNQUEUED or PAUSED.")
    mock_request: Boolean = Field(False, description="A job for tests: only getMockedJobs takes it.")
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=KEY_CHARS_MAX,
        description="The same key is answered with the first jobID for 24 h, and nothing is done.",
    )

    @property
    def wanted_priority(self) -> int:
        """Return the priority asked for; raises BadArguments for a generic one that is none of ours."""
        if self.job_priority is not None:
            return self.job_priority
        return PRIORITY_DEFAULT if self.priority is None else checked_priority(self.priority)


def _specs(value: Any) -> list[dict[str, Any]]:
    return [JobSpec.given(text) for text in json_list(value)]


def _empty_for_no_list(given: Any) -> Any:
    """Let a missing ``jobs`` be answered as a list that cannot be read: 401, as the original does."""
    return {"jobs": "", **given} if isinstance(given, dict) else given


class JobIDReply(Reply):
    """The job that was made or found."""

    job_id: int


class JobIDsReply(Reply):
    """The jobs that were made or found, in the order they were given."""

    job_ids: list[int]


class CreateJob(JobSpec, Command[JobIDReply]):
    """Create a job, or with `unique` update the one that has its name."""

    reply: ClassVar[type[Reply]] = JobIDReply
    _empty_counts: ClassVar[frozenset[str]] = frozenset({"data"})


class CreateJobs(Command[JobIDsReply]):
    """Create several jobs, all or none."""

    reply: ClassVar[type[Reply]] = JobIDsReply
    jobs: Annotated[
        list[JobSpec],
        Spliced(),
        Field(max_length=JOBS_PER_CREATE_MAX, description="Parameters of CreateJob for each job."),
        BeforeValidator(_specs),
    ]

    _no_list = model_validator(mode="before")(_empty_for_no_list)


class UpdateJob(JobOptions, Command[Reply]):
    """Change a job in any state."""

    repeatable: ClassVar[bool] = True
    job_id: JobID = Field(description="Job to change.")
    data: JSONObject | None = Field(None, description="New data.")
    repeat: Modifiers | None = Field(None, description="New repeat; the next run follows from it.")
    job_priority: Priority | None = Field(None, description="New priority.")
    next_run: Timestamp | None = Field(None, description="New time of the next run.")
    should_clear_repeat: Boolean = Field(False, description="End the repetition after the next run.")
    progress: JSONObject | None = Field(None, description="How far the present run is: a JSON object.")
    run_id: JobID | None = Field(None, description=RUN_ID)
    if_match: str | None = Field(
        None,
        min_length=1,
        max_length=IF_MATCH_CHARS_MAX,
        description="Entity tags of QueryJob's answer; refused with 412 if the job is not like one of them.",
    )


class ThenReply(Reply):
    """Empty, or with `thenGet` the next job, null where there was none."""

    job: JobReply | None = None


class Ending(TakeOptions, Command[ThenReply]):
    """What the commands that end a run have in common."""

    reply: ClassVar[type[Reply]] = ThenReply
    job_id: JobID = Field(description="Job whose run ends.")
    data: JSONObject | None = Field(None, description="New data, for the next run or for whoever reads it.")
    run_id: JobID | None = Field(None, description=RUN_ID)
    then_get: Pattern | None = Field(
        None, description="Take the next job with this name pattern in the same commit; answered in `job`."
    )


class FinishJob(Ending):
    """End a run well: the job repeats, waits for its children, or is over and deleted."""

    exit_code: Whole | None = Field(None, description="Exit status of the command that ran.")
    job_priority: Priority | None = Field(None, description="With thenGet: only jobs of this priority.")


class RetryJob(Ending):
    """Queue a running job again."""

    delay: Delay | None = Field(None, description="Seconds to wait, 0 if left out.")
    next_run: Timestamp | None = Field(None, description="When to run again; wins over delay.")
    name: Name | None = Field(None, description="New name.")
    job_priority: Priority | None = Field(None, description="New priority.")
    ignore_repeat: Boolean = Field(False, description="Use nextRun or delay although the job repeats.")
    returned: Boolean = Field(False, description="Hand it back as if it had never been taken.")
    revive: Boolean = Field(False, description="Also queue a FAILED job again.")


class FailJob(Ending):
    """End a run badly: the job stays as FAILED, its repetition ends."""

    error: str | None = Field(None, description=f"What went wrong; {ERROR_CHARS_MAX} characters are kept.")
    exit_code: Whole | None = Field(None, description="Exit status of the command that ran.")
    final: Boolean = Field(False, description="Fail for good although retries are left.")
    job_priority: Priority | None = Field(None, description="With thenGet: only jobs of this priority.")


class FinishSpec(Parameters):
    """One job to finish."""

    job_id: JobID = Field(description="Job whose run ends.")
    data: JSONObject | None = Field(None, description="New data.")
    run_id: JobID | None = Field(None, description=RUN_ID)
    exit_code: Whole | None = Field(None, description="Exit status of the command that ran.")


class FinishResult(Reply):
    """What became of one job of FinishJobs."""

    job_id: int
    code: int
    reason: str


class FinishResults(Reply):
    """What became of each job, in the order they were given."""

    results: list[FinishResult]


class FinishJobs(Command[FinishResults]):
    """Finish several jobs, each for itself: one that is refused does not hinder the others."""

    reply: ClassVar[type[Reply]] = FinishResults
    jobs: Annotated[
        list[FinishSpec],
        Spliced(),
        Field(max_length=JOBS_PER_CREATE_MAX, description="jobID, data, runID and exitCode of each job."),
        BeforeValidator(lambda value: [FinishSpec.given(text) for text in json_list(value)]),
    ]

    _no_list = model_validator(mode="before")(_empty_for_no_list)


class CancelJob(Command[Reply]):
    """Cancel a child job that has not run."""

    job_id: JobID = Field(description="Child to cancel.")


class DeleteJob(Command[Reply]):
    """Remove a job that is neither RUNNING nor PAUSED."""

    job_id: JobID = Field(description="Job to remove.")


class RequeueJobs(Command[Reply]):
    """Give back jobs that were taken and never delivered; their nextRun becomes their creation time."""

    job_ids: Annotated[
        JobIDs,
        Field(min_length=1, max_length=JOBS_PER_CREATE_MAX, description="Jobs; unknown ones are ignored."),
    ]
    name: Name | None = Field(None, description="New name for all of them.")
    decrement_failures: Boolean = Field(False, description="Take one off their count of lost deliveries.")
