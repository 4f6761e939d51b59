"""The worker: takes jobs from a server and runs commands or Python functions for them."""

from bedrock_worker.enqueuing import AsyncHandle, AsyncJobFunction, Handle, JobFunction
from bedrock_worker.functions import CurrentRun, Fail, Job, Retry, Snooze, cron, current_run, job

__all__ = [
    "AsyncHandle",
    "AsyncJobFunction",
    "CurrentRun",
    "Fail",
    "Handle",
    "Job",
    "JobFunction",
    "Retry",
    "Snooze",
    "cron",
    "current_run",
    "job",
]
