"""Every command of the protocol, declared once."""

from __future__ import annotations

from typing import Any

from bedrockjobs.commands.base import Command, Empty, Parameters, Reply
from bedrockjobs.commands.jobs import (
    CancelJob,
    CreateJob,
    CreateJobs,
    DeleteJob,
    FailJob,
    FinishJob,
    FinishJobs,
    FinishResult,
    FinishResults,
    FinishSpec,
    JobIDReply,
    JobIDsReply,
    JobSpec,
    RequeueJobs,
    RetryJob,
    ThenReply,
    UpdateJob,
)
from bedrockjobs.commands.server import (
    ClearCrashedBedrockJobs,
    CrashBedrockJob,
    Help,
    HelpReply,
    ListJobs,
    Ping,
    Query,
    QueryReply,
    Status,
    StatusReply,
)
from bedrockjobs.commands.take import ChildReply, GetJob, GetJobs, JobReply, JobsReply, QueryJob
from bedrockjobs.errors import UnknownCommand

ALL: tuple[type[Command[Any]], ...] = (
    CreateJob, CreateJobs, GetJob, GetJobs, QueryJob, UpdateJob, FinishJob, FinishJobs, RetryJob, FailJob,
    CancelJob, DeleteJob, RequeueJobs, ListJobs, Query, CrashBedrockJob, ClearCrashedBedrockJobs,
    Ping, Status, Help,
)  # fmt: skip
"""The registry, in the order in which the commands are shown."""

COMMANDS: dict[str, type[Command[Any]]] = {kind.__name__: kind for kind in ALL}
_BY_LOWER_NAME = {name.lower(): kind for name, kind in COMMANDS.items()}


def command_named(verb: str) -> type[Command[Any]]:
    """Return the command of a raw verb, whatever its case; raises UnknownCommand."""
    kind = _BY_LOWER_NAME.get(verb.lower())
    if kind is None:
        raise UnknownCommand(detail="Help lists the commands")
    return kind


__all__ = [
    "ALL", "COMMANDS", "CancelJob", "ChildReply", "ClearCrashedBedrockJobs", "Command", "CrashBedrockJob",
    "CreateJob", "CreateJobs", "DeleteJob", "Empty", "FailJob", "FinishJob", "FinishJobs", "FinishResult",
    "FinishResults", "FinishSpec", "GetJob", "GetJobs", "Help", "HelpReply", "JobIDReply", "JobIDsReply",
    "JobReply", "JobSpec", "JobsReply", "ListJobs", "Parameters", "Ping", "Query", "QueryJob", "QueryReply",
    "Reply", "RequeueJobs", "RetryJob", "Status", "StatusReply", "ThenReply", "UpdateJob", "command_named",
]  # fmt: skip
