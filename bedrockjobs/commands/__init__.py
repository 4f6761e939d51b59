"""Every command of the protocol, declared once."""

from __future__ import annotations

from typing import Any

from bedrockjobs.base.errors import UnknownCommand
from bedrockjobs.commands.base import Command, Empty, Parameters, Reply
from bedrockjobs.commands.control import (
    AdvanceClock,
    Events,
    ExplainJob,
    ListSchedules,
    ListTicks,
    PauseJobs,
    ResumeJobs,
    SyncSchedules,
    TriggerJob,
    ValidateSchedule,
)
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
from bedrockjobs.commands.overview import ListPauses, ListQueues, Overview
from bedrockjobs.commands.runs import (
    AppendOutput,
    DrainWorker,
    Heartbeat,
    KillRun,
    ListRuns,
    ListWorkers,
    QueryRun,
    ReadOutput,
    TerminateRun,
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

ALL: tuple[type[Command[Any]], ...] = (
    CreateJob, CreateJobs, GetJob, GetJobs, QueryJob, UpdateJob, FinishJob, FinishJobs, RetryJob, FailJob,
    CancelJob, DeleteJob, RequeueJobs, ListJobs, ExplainJob,
    Overview, ListQueues,
    PauseJobs, ResumeJobs, ListPauses, TriggerJob, ValidateSchedule, ListSchedules, ListTicks, SyncSchedules,
    Heartbeat, AppendOutput, ReadOutput, ListRuns, QueryRun, TerminateRun, KillRun, ListWorkers, DrainWorker,
    Events, Query, CrashBedrockJob, ClearCrashedBedrockJobs, AdvanceClock,
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
    "ALL", "COMMANDS", "AdvanceClock", "AppendOutput", "CancelJob", "ChildReply", "ClearCrashedBedrockJobs",
    "Command", "CrashBedrockJob", "CreateJob", "CreateJobs", "DeleteJob", "DrainWorker", "Empty", "Events",
    "ExplainJob", "FailJob", "FinishJob", "FinishJobs", "FinishResult", "FinishResults", "FinishSpec",
    "GetJob", "GetJobs", "Heartbeat", "Help", "HelpReply", "JobIDReply", "JobIDsReply", "JobReply",
    "JobSpec", "JobsReply", "KillRun", "ListJobs", "ListPauses", "ListQueues", "ListRuns", "ListSchedules",
    "ListTicks", "ListWorkers", "Overview", "Parameters", "PauseJobs", "Ping", "Query", "QueryJob",
    "QueryReply", "QueryRun", "ReadOutput", "Reply", "RequeueJobs", "ResumeJobs", "RetryJob", "Status",
    "StatusReply", "SyncSchedules", "TerminateRun", "ThenReply", "TriggerJob", "UpdateJob",
    "ValidateSchedule", "command_named",
]  # fmt: skip
