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

__all__ = [
    "AsyncHandle",
    "AsyncJobFunction",
    "CurrentRun",
    "Fail",
    "Handle",
    "Job",
    "JobFunction",
    "Progress",
    "Retry",
    "Snooze",
    "as_completed",
    "as_completed_async",
    "cron",
    "current_run",
    "job",
    "lifespan",
    "middleware",
    "wait_all",
    "wait_all_async",
]
