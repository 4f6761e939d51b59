"""bedrockjobs: a durable job queue in one SQLite file.

The public names: the clients, one class per command with its reply, and the errors. They are loaded when
they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bedrockjobs.base.errors import (
        BadArguments,
        BadJSON,
        BadQuery,
        BadRequest,
        CommandError,
        Forbidden,
        NotFound,
        ServerFault,
        TimedOut,
        TooLarge,
        TooMany,
        Unavailable,
        UnexpectedAnswer,
        UnknownCommand,
        WrongState,
    )
    from bedrockjobs.client import AsyncClient, Client, ConnectionLost, ServerUnreachable, UnreadableAnswer
    from bedrockjobs.commands import (
        CancelJob,
        ChildReply,
        ClearCrashedBedrockJobs,
        Command,
        CrashBedrockJob,
        CreateJob,
        CreateJobs,
        DeleteJob,
        Empty,
        FailJob,
        FinishJob,
        FinishJobs,
        FinishResult,
        FinishResults,
        FinishSpec,
        GetJob,
        GetJobs,
        Help,
        HelpReply,
        JobIDReply,
        JobIDsReply,
        JobReply,
        JobSpec,
        JobsReply,
        ListJobs,
        Ping,
        Query,
        QueryJob,
        QueryReply,
        Reply,
        RequeueJobs,
        RetryJob,
        Status,
        StatusReply,
        ThenReply,
        UpdateJob,
    )

__all__ = [
    "AsyncClient", "BadArguments", "BadJSON", "BadQuery", "BadRequest", "CancelJob", "ChildReply",
    "ClearCrashedBedrockJobs", "Client", "Command", "CommandError", "ConnectionLost", "CrashBedrockJob",
    "CreateJob", "CreateJobs", "DeleteJob", "Empty", "FailJob", "FinishJob", "FinishJobs", "FinishResult",
    "FinishResults", "FinishSpec", "Forbidden", "GetJob", "GetJobs", "Help", "HelpReply", "JobIDReply",
    "JobIDsReply", "JobReply", "JobSpec", "JobsReply", "ListJobs", "MockMismatch", "NotFound", "Ping",
    "Query", "QueryJob", "QueryReply", "Reply", "RequeueJobs", "RetryJob", "ServerFault",
    "ServerUnreachable", "Status", "StatusReply", "ThenReply", "TimedOut", "TooLarge", "TooMany",
    "Unavailable", "UnexpectedAnswer", "UnknownCommand", "UnreadableAnswer", "UpdateJob", "WrongState",
]  # fmt: skip

_HOMES = ("bedrockjobs.base.errors", "bedrockjobs.commands", "bedrockjobs.client")
"""Where the names are looked for, the cheapest module first."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in __all__:
        for home in _HOMES:
            found = getattr(import_module(home), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*globals(), *__all__])
