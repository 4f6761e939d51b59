"""The worker: takes jobs from a server and runs commands or Python functions for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from bedrock_worker.functions import (
    CurrentRun,
    Fail,
    Job,
    Retry,
    Snooze,
    cron,
    current_run,
    job,
    lifespan,
    middleware,
)

if TYPE_CHECKING:
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


if not TYPE_CHECKING:  # hides __getattr__ from type checkers, so that they reject unknown names

    def __getattr__(name: str) -> Any:
        """Load the names of the module ``workflows`` on first use, since most runs use none of them."""
        if name in __all__:
            from bedrock_worker import workflows

            return getattr(workflows, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
