"""Commands for workflows: jobs of which some start after others have ended."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import REF_CHARS_MAX, WORKER_CHARS_MAX, WORKFLOW_EDGES_MAX, WORKFLOW_JOBS_MAX
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import (
    LINE,
    Boolean,
    JobID,
    Key,
    Name,
    OneLine,
    Spliced,
    json_list,
    listed,
    one_line,
)
from bedrockjobs.commands.base import (
    BAD_LIST,
    BUSY,
    RUN_OVER,
    SLOW,
    Command,
    Example,
    Paging,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.create import RUN_ID, JobSpec, OwnKey, empty_for_no_list
from bedrockjobs.commands.options import Duration
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern

WORKFLOW_STATES = ("RUNNING", "FINISHED", "FAILED", "CANCELLED")
NO_WORKFLOW = Refusal(404, "No workflow with this workflowID", "There is no workflow with this workflowID.")

NOT_IN_WORKFLOWS = (
    "repeat",
    "parent_job_id",
    "unique",
    "unique_key",
    "unique_for",
    "on_conflict",
    "idempotency_key",
    "hosts",
    "expect",
)
"""Attributes of CreateJob that a job of a workflow must not have."""


def _refs(value: Any) -> list[str]:
    refs = listed(value, "a JSON array of refs")
    if not all(isinstance(ref, str) and len(ref) <= REF_CHARS_MAX for ref in refs):
        raise PydanticCustomError("expected", f"a JSON array of refs of at most {REF_CHARS_MAX} characters")
    typed = isinstance(value, str) and not value.strip().startswith("[")
    return [one_line(ref) for ref in refs if ref or not typed]


def _refs_shape() -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "pattern": LINE}, "maxItems": 1_000},
            {"type": "string", "pattern": r"^[^,\[\s\u0000-\u001F\u007F]{1,50}$"},
        ]
    }


Refs = Annotated[
    list[str],
    Field(max_length=WORKFLOW_JOBS_MAX),
    BeforeValidator(_refs),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
    SchemaType(_refs_shape),
]


class WorkflowJob(JobSpec):
    """One job of a workflow: the attributes of CreateJob, and its place."""

    ref: OneLine = Field(
        min_length=1, max_length=REF_CHARS_MAX, description="Its name within the workflow, which is unique."
    )
    after: Refs = Field(default=[], description="refs of the jobs that have to end before it starts.")
    on_failure: Literal["cancel", "continue", "ignore"] = Field(
        default="cancel",
        description="If it does not finish: `cancel` cancels all that follows from it, `continue` starts the"
        " jobs after it, `ignore` too, and the workflow does not fail by it.",
    )


def _jobs(value: Any) -> list[dict[str, Any]]:
    return [WorkflowJob.parameters_in(text) for text in json_list(value, WORKFLOW_JOBS_MAX)]


Jobs = Annotated[
    list[WorkflowJob],
    Spliced(),
    Field(
        min_length=1,
        max_length=WORKFLOW_JOBS_MAX,
        description="For each job its `ref`, what it comes `after`, its `onFailure`, and parameters of"
        " CreateJob.",
    ),
    BeforeValidator(_jobs),
]

_GRAPH = (
    BAD_LIST,
    Refusal(402, "Malformed ref", "Two jobs have the same `ref`."),
    Refusal(
        402,
        "Malformed after",
        f"`after` names no job of the workflow, the jobs wait for each other in a circle, or there are more"
        f" than {WORKFLOW_EDGES_MAX:,} edges.",
    ),
    Refusal(402, "Malformed {…}", "A job has an attribute that is not possible in a workflow."),
)


class WorkflowIDReply(Reply):
    """The workflow that was created or found, and the jobIDs of its jobs by `ref`."""

    workflow_id: int
    job_ids: dict[str, int]


class AddedReply(Reply):
    """The jobIDs of the jobs that were added, by `ref`."""

    job_ids: dict[str, int]


class CreateWorkflow(Command[WorkflowIDReply]):
    """Create jobs of which some start after others have ended, all or none."""

    scoping = Scoping(names=("name", "jobs.name"))
    group = "workflows"
    role = "produce"
    all_or_nothing = True
    headers = MappingProxyType({"Idempotency-Key": "idempotencyKey"})
    example = Example(
        {
            "name": "nightly",
            "jobs": [
                {"ref": "export", "name": "orders/export"},
                {"ref": "report", "name": "orders/report", "after": ["export"]},
            ],
        },
        {"workflowID": 1, "jobIDs": {"export": 2, "report": 3}},
    )
    refusals = [
        *_GRAPH,
        Refusal(405, "Key is used", "`idempotencyKey` was used for something else."),
        *JobSpec.all_refusals(),
    ]

    name: Name = Field(description="Name of the workflow, 1 to 255 characters.")
    jobs: Jobs
    keep: Duration | None = Field(
        default=None,
        description="How long it is kept after its end; a day if left out, or the server's keep_finished if"
        " that is longer. A FAILED one is kept until it is retried or cancelled.",
    )
    idempotency_key: Key | None = Field(
        default=None,
        description="A repeated key of the same token returns the first workflow for a day (default).",
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")

    _no_list = model_validator(mode="before")(empty_for_no_list)

    @property
    def own_key(self) -> OwnKey:
        """Return the idempotency key with its owner; the workflow must have such a key."""
        return OwnKey.of(self.idempotency_key)


class AddToWorkflow(Command[AddedReply]):
    """Add jobs to a running workflow, all or none; a job that runs may add to its own."""

    scoping = Scoping(names=("jobs.name",), jobs=("job_id",))
    group = "workflows"
    role = "produce"
    all_or_nothing = True
    example = Example(
        {"workflowID": 1, "jobs": [{"ref": "mail", "name": "orders/mail", "after": ["report"]}]},
        {"jobIDs": {"mail": 4}},
    )
    refusals = [
        NO_WORKFLOW,
        *_GRAPH,
        RUN_OVER,
        Refusal(402, "Missing workflowID", "Neither `workflowID` nor `jobID` is given."),
        Refusal(404, "No job with this jobID", "There is no job with this jobID, or it is in no workflow."),
        Refusal(405, "Workflow has ended", "It is not RUNNING; see RetryWorkflow."),
        *JobSpec.all_refusals(),
    ]

    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("workflowID", "jobID"))

    workflow_id: JobID | None = Field(default=None, description="Workflow to add to.")
    job_id: JobID | None = Field(default=None, description="A job of it, instead of the workflowID.")
    run_id: JobID | None = Field(default=None, description=f"With `jobID`: {RUN_ID[0].lower()}{RUN_ID[1:]}")
    jobs: Jobs
    existing: Literal["refuse", "keep"] = Field(
        default="refuse",
        description="What to do with jobs whose `ref` is there already: `keep` leaves them and returns their"
        " jobIDs, so that a job that is retried may add its jobs again.",
    )

    _no_list = model_validator(mode="before")(empty_for_no_list)


class WorkflowJobReply(Reply):
    """A job of a workflow."""

    job_id: int
    ref: str
    name: str
    state: str = Field(description="State of the job; FINISHED, FAILED or CANCELLED after its end.")
    waits: int = Field(description="Number of jobs that it waits for.")
    on_failure: str
    started: str = Field(description="When it was taken last; empty if it was not.")
    ended: str = Field(description="When it ended; empty if it has not.")
    reason: str = Field(description="Why it failed or was cancelled.")
    after: list[str] = Field(description="refs of the jobs before it.")
    result: dict[str, Any] | None = Field(
        default=None, description="What it reported when it finished; only with `results`."
    )


class WorkflowStatus(Reply):
    """A workflow without its jobs."""

    workflow_id: int
    name: str
    state: str = Field(description=f"One of {', '.join(WORKFLOW_STATES)}.")
    created: str
    ended: str = Field(description="When it ended; empty if it has not.")
    kept: str = Field(description="Until when it is kept; empty while it runs or is FAILED.")
    open: int = Field(description="Number of jobs that have not ended.")
    failed: int = Field(description="Number of jobs that did not finish and count for its state.")


class WorkflowReply(WorkflowStatus):
    """A workflow."""

    jobs: int = Field(description="Number of its jobs.")


class WholeWorkflowReply(WorkflowStatus):
    """A workflow with a page of its jobs, by jobID."""

    jobs: list[WorkflowJobReply]


_SHOWN = {
    "workflowID": 1,
    "name": "nightly",
    "state": "RUNNING",
    "created": "2026-11-21 03:29:56.332",
    "ended": "",
    "kept": "",
    "open": 2,
    "failed": 0,
}


class QueryWorkflow(Command[WholeWorkflowReply]):
    """Show a workflow with the states of its jobs."""

    scoping = Scoping()
    group = "workflows"
    where = "reader"
    waits = True
    paging = Paging("jobs", "jobID", "after")
    example = Example(
        {"workflowID": 1},
        {
            **_SHOWN,
            "jobs": [
                {
                    "jobID": 2,
                    "ref": "export",
                    "name": "orders/export",
                    "state": "RUNNING",
                    "waits": 0,
                    "onFailure": "cancel",
                    "started": "2026-11-21 03:29:57",
                    "ended": "",
                    "reason": "",
                    "after": [],
                },
                {
                    "jobID": 3,
                    "ref": "report",
                    "name": "orders/report",
                    "state": "PAUSED",
                    "waits": 1,
                    "onFailure": "cancel",
                    "started": "",
                    "ended": "",
                    "reason": "",
                    "after": ["export"],
                },
            ],
        },
    )
    refusals = [NO_WORKFLOW, SLOW, BUSY]

    workflow_id: JobID = Field(description="Workflow to show; with `Connection: wait` once it has ended.")
    results: Boolean = Field(default=False, description="Also show what the jobs reported.")
    after: JobID = Field(
        default=0, description="Only jobs with a higher jobID: the last one of the previous page."
    )
    limit: Limit = Field(default=1_000, description="How many at most.")


class WorkflowsReply(Reply):
    """A page of workflows, newest first."""

    workflows: list[WorkflowReply]


class ListWorkflows(Command[WorkflowsReply]):
    """List workflows, newest first."""

    scoping = Scoping()
    group = "workflows"
    where = "reader"
    paging = Paging("workflows", "workflowID", "before")
    example = Example({"state": "RUNNING"}, {"workflows": [{**_SHOWN, "jobs": 2}]})
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(default=None, description="Only those whose name matches this GLOB pattern.")
    state: Literal["RUNNING", "FINISHED", "FAILED", "CANCELLED"] | None = Field(
        default=None, description="Only those in this state."
    )
    before: JobID | None = Field(
        default=None, description="Only those with a lower workflowID: the last one of the previous page."
    )
    limit: Limit = Field(default=100, description="How many at most.")


class CancelledReply(Reply):
    """What became of the workflow."""

    state: str = Field(description="Its state now: RUNNING until workers have stopped the runs in progress.")
    stopping: int = Field(description="Number of runs that workers were asked to stop.")


_OUTSIDE = Refusal(
    404, "Outside of the token's names", "It has jobs that the token may not see, and those would change."
)


class CancelWorkflow(Command[CancelledReply]):
    """Cancel all jobs of a workflow that have not ended; one that has FAILED is given up."""

    scoping = Scoping()
    group = "workflows"
    role = "produce"
    repeatable = True
    example = Example({"workflowID": 1}, {"state": "CANCELLED", "stopping": 0})
    refusals = [NO_WORKFLOW, _OUTSIDE]

    workflow_id: JobID = Field(description="Workflow to cancel.")


class RetriedReply(Reply):
    """How many jobs start or wait again."""

    retried: int


class RetryWorkflow(Command[RetriedReply]):
    """Start the failed and cancelled jobs of a workflow again; finished jobs keep their results."""

    scoping = Scoping()
    group = "workflows"
    role = "produce"
    example = Example({"workflowID": 1}, {"retried": 2})
    refusals = [
        NO_WORKFLOW,
        _OUTSIDE,
        Refusal(405, "Nothing to retry", "None of its jobs has failed or was cancelled and can run again."),
    ]

    workflow_id: JobID = Field(description="Workflow to continue.")
