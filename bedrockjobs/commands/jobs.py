"""Commands that finish, fail, retry, cancel, requeue and delete jobs."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import DELAY_S_MAX, ERROR_CHARS_MAX, JOBS_PER_CREATE_MAX, RETRIES_MAX, UNFIT_MAX
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import (
    Boolean,
    JobID,
    JobIDs,
    JSONObject,
    Name,
    Printed,
    Priority,
    Spliced,
    Timestamp,
    Whole,
    json_list,
    refused,
)
from bedrockjobs.commands.base import (
    BAD_DATA,
    BAD_LIST,
    BAD_PRIORITY,
    NO_JOB,
    RUN_OVER,
    Command,
    Empty,
    Example,
    Parameters,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.create import RUN_ID, empty_for_no_list
from bedrockjobs.commands.take import HowMany, JobReply, TakeOptions, ThenGet

NOT_RUNNING = (
    Refusal(405, "Can only retry/finish RUNNING and RUNQUEUED jobs", "The job is in another state."),
    Refusal(
        405,
        "Can only retry/finish child job when parent is PAUSED",
        "A child cannot end while its parent is running.",
    ),
)
OTHER_MARK = Refusal(
    500, "Mock Mismatch", "`data` is marked with `mockRequest` and the job is not, or the reverse."
)


def _delay(value: int) -> int:
    if value < 0:
        raise refused("Must specify a non-negative delay when retrying", f"0 to {DELAY_S_MAX} seconds")
    return value


Delay = Annotated[
    Whole,
    Field(le=DELAY_S_MAX),
    AfterValidator(_delay),
    SchemaType(lambda: json_schemas.whole(0, DELAY_S_MAX)),
]


BAD_THEN_GET = Refusal(402, "Malformed thenGet", "`thenGet` is empty.")


class ThenReply(Reply):
    """Empty; with `thenGet`, the next job, or null if there is none."""

    job: JobReply | None = None


class RunEnd(TakeOptions, Command[ThenReply]):
    """Parameters of the commands that end a run."""

    scoping = Scoping(jobs=("job_id",), runs=("run_id",))
    abstract = True
    role = "work"
    example = Example({"jobID": 1})
    refusals = [NO_JOB, RUN_OVER, BAD_DATA, BAD_THEN_GET]

    job_id: JobID = Field(description="Job whose run ends.")
    data: JSONObject | None = Field(default=None, description="New data, for the next run or for readers.")
    run_id: JobID | None = Field(default=None, description=RUN_ID)
    then_get: ThenGet | None = Field(
        default=None,
        description="Take the next job with this name pattern in the same commit; returned in `job`.",
    )


class FinishJob(RunEnd):
    """End a run successfully: the job repeats, waits for its children, or is completed and deleted."""

    refusals = [*NOT_RUNNING, OTHER_MARK]

    exit_code: Whole | None = Field(default=None, description="Exit status of the command.")
    job_priority: Priority | None = Field(
        default=None, description="With thenGet: only jobs of this priority."
    )


class RetryJob(RunEnd):
    """Queue a running job again."""

    scoping = Scoping(names=("name",), jobs=("job_id",), runs=("run_id",))
    example = Example({"jobID": 1, "delay": 60})
    refusals = [
        *NOT_RUNNING,
        OTHER_MARK,
        Refusal(402, "Must specify a non-negative delay when retrying", "`delay` is below 0."),
        BAD_PRIORITY,
    ]

    delay: Delay | None = Field(default=None, description="Seconds to wait, 0 if left out.")
    next_run: Timestamp | None = Field(
        default=None, description="Time of the next run; takes precedence over delay."
    )
    name: Name | None = Field(default=None, description="New name.")
    job_priority: Priority | None = Field(default=None, description="New priority.")
    ignore_repeat: Boolean = Field(default=False, description="Use nextRun or delay even if the job repeats.")
    returned: Boolean = Field(default=False, description="Requeue it as if it had never been taken.")
    revive: Boolean = Field(default=False, description="Also queue a FAILED job again.")
    snoozed: Boolean = Field(
        default=False,
        description="The job was postponed, not failed: its run ends as snoozed, and no attempt is counted.",
    )
    unfit: Printed | None = Field(
        default=None,
        description="Requeue it as `returned` does because this worker cannot run it but another may, such as"
        " one with newer code; the text says why. The delay grows each time, and the job fails after"
        f" {UNFIT_MAX} times.",
    )
    exit_code: Whole | None = Field(default=None, description="Exit status of the command.")

    @property
    def is_requeued(self) -> bool:
        """Return whether the job is requeued as if it had never been taken."""
        return self.returned or self.unfit is not None


class FailJob(RunEnd):
    """End a run as failed: the job is retried if it has retries left, else it becomes FAILED."""

    example = Example({"jobID": 1, "error": "no such mailbox"})
    refusals = [Refusal(405, "Can only fail RUNNING or RUNQUEUED jobs", "The job is in another state.")]

    error: Printed | None = Field(
        default=None, description=f"What went wrong; {ERROR_CHARS_MAX} characters are kept."
    )
    exit_code: Whole | None = Field(default=None, description="Exit status of the command.")
    final: Boolean = Field(default=False, description="Fail permanently even if retries are left.")
    delay: Delay | None = Field(
        default=None,
        description="Seconds to the next attempt if retries are left; the job's backoff if left out.",
    )
    retries: Whole | None = Field(
        default=None, ge=0, le=RETRIES_MAX, description="Retries for a job without a number of its own."
    )
    timed_out: Boolean = Field(
        default=False, description="The run exceeded a time limit set by its worker: it ends as timeout."
    )
    job_priority: Priority | None = Field(
        default=None, description="With thenGet: only jobs of this priority."
    )


class FinishSpec(Parameters):
    """One job to finish."""

    job_id: JobID = Field(description="Job whose run ends.")
    data: JSONObject | None = Field(default=None, description="New data.")
    run_id: JobID | None = Field(default=None, description=RUN_ID)
    exit_code: Whole | None = Field(default=None, description="Exit status of the command.")


class FinishResult(Reply):
    """The result of one job of FinishJobs."""

    job_id: int
    code: int
    reason: str


class FinishResults(Reply):
    """The result of each job, in the order of the request; with `thenGet` also the next jobs, if any."""

    results: list[FinishResult]
    jobs: list[JobReply] | None = None


def _ends(value: Any) -> list[dict[str, Any]]:
    return [FinishSpec.parameters_in(text) for text in json_list(value, JOBS_PER_CREATE_MAX)]


class FinishJobs(TakeOptions, Command[FinishResults]):
    """Finish several jobs independently: refusing one does not affect the others."""

    scoping = Scoping(jobs=("jobs.job_id",))
    role = "work"
    example = Example(
        {"jobs": [{"jobID": 1}, {"jobID": 2}]},
        {
            "results": [
                {"jobID": 1, "code": 200, "reason": "OK"},
                {"jobID": 2, "code": 404, "reason": "No job with this jobID"},
            ]
        },
    )
    refusals = [BAD_LIST, BAD_THEN_GET, BAD_PRIORITY]

    jobs: Annotated[
        list[FinishSpec],
        Spliced(),
        Field(
            min_length=1,
            max_length=JOBS_PER_CREATE_MAX,
            description="jobID, data, runID and exitCode of each job.",
        ),
        BeforeValidator(_ends),
    ]
    then_get: ThenGet | None = Field(
        default=None,
        description="Take the next jobs with this name pattern in the same commit; returned in `jobs`,"
        " empty if there are none.",
    )
    num_results: HowMany = Field(
        default=1, description="With thenGet: how many at most; below 1 counts as 1."
    )
    job_priority: Priority | None = Field(
        default=None, description="With thenGet: only jobs of this priority."
    )

    _no_list = model_validator(mode="before")(empty_for_no_list)


class CancelReply(Reply):
    """Empty, or the run that is being stopped; with `any`, whether there was anything to cancel."""

    run_id: int | None = None
    cancelled: bool | None = Field(
        default=None,
        description="With `any`, unless a run is being stopped: false if the job had ended, or repeats and no"
        " run of it is due.",
    )


class CancelJob(Command[CancelReply]):
    """Cancel a child job that has not run, or stop the run of a job whose worker sends heartbeats.

    With `any`, cancel any job.
    """

    scoping = Scoping(jobs=("job_id",))
    role = "produce"
    example = Example({"jobID": 2})
    refusals = [
        NO_JOB,
        Refusal(
            404,
            "Invalid jobID - Cannot cancel a job without a parent",
            "It is not a child, and no worker with heartbeats runs it: see `any`.",
        ),
        Refusal(404, "Invalid jobID - Cannot cancel a job with children", "It is a parent: see `any`."),
        Refusal(
            404,
            "Outside of the token's names",
            "With `any`: it has a child whose name the token does not cover.",
        ),
    ]

    job_id: JobID = Field(
        description="Job to cancel. A running one is stopped (TERM, then KILL after its `grace`);"
        " afterwards a child is CANCELLED, a job that repeats is queued for its next run, any other is"
        " deleted."
    )
    any: Boolean = Field(
        default=False,
        description="Cancel the job whatever it is, and its children with it. Unless a worker with"
        " heartbeats runs it, it becomes CANCELLED at once, and is kept for its `keep`. Of a job that"
        " repeats, the run that is due is cancelled; later ones stay. A job that has ended stays as it is.",
    )


class DeleteJob(Command[Empty]):
    """Delete a job that is neither RUNNING nor PAUSED."""

    scoping = Scoping(jobs=("job_id",))
    role = "operate"
    example = Example({"jobID": 1})
    refusals = [
        NO_JOB,
        Refusal(405, "Can't delete a RUNNING job", "A worker is running it."),
        Refusal(405, "Can't delete a parent jobs with children running", "The job is PAUSED."),
    ]

    job_id: JobID = Field(description="Job to delete.")


class RequeueJobs(Command[Empty]):
    """Requeue jobs that were taken but never delivered; their nextRun becomes their creation time."""

    scoping = Scoping(names=("name",), jobs=("job_ids",))
    role = "work"
    all_or_nothing = True
    example = Example({"jobIDs": [1, 2]})

    job_ids: Annotated[
        JobIDs,
        Field(min_length=1, max_length=JOBS_PER_CREATE_MAX, description="Jobs; unknown ones are ignored."),
        SchemaType(lambda: json_schemas.job_ids(1, JOBS_PER_CREATE_MAX)),
    ]
    name: Name | None = Field(default=None, description="New name for all of them.")
    decrement_failures: Boolean = Field(
        default=False, description="Decrement their count of lost deliveries."
    )
