"""The worker: takes jobs from a server and runs commands or Python functions for them."""

from bedrock_worker.enqueuing import (
    AsyncHandle,
    AsyncJobFunction,
    Handle,
    JobFunction,
    Progress,
    as_completed,
    as_completed_async,
    wait_all,
    wait_all_async,
)
from bedrock_worker.functions import CurrentRun, Fail, Job, Retry, Snooze, cron, current_run, job
from bedrock_worker.hooks import lifespan, middleware
from bedrock_worker.workflows import (
    AsyncWorkflowHandle,
    PartialSignature,
    Signature,
    Workflow,
    WorkflowHandle,
    chain,
    chord,
    group,
)

__all__ = [
    "AsyncHandle",
    "AsyncJobFunction",
    "AsyncWorkflowHandle",
    "CurrentRun",
    "Fail",
    "Handle",
    "Job",
    "JobFunction",
    "PartialSignature",
    "Progress",
    "Retry",
    "Signature",
    "Snooze",
    "Workflow",
    "WorkflowHandle",
    "as_completed",
    "as_completed_async",
    "chain",
    "chord",
    "cron",
    "current_run",
    "group",
    "job",
    "lifespan",
    "middleware",
    "wait_all",
    "wait_all_async",
]
