"""The statuses of runs and the kinds of events."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, Literal, get_args

RunStatus = Literal[
    "running", "success", "fail", "timeout", "frozen", "terminated", "killed", "returned", "snoozed"
]

STATUSES: Final = get_args(RunStatus)
"""The statuses, in the order in which pages and help list them."""

FAILED_STATUSES = ("fail", "timeout", "frozen")
"""Statuses that need attention; terminated and killed runs were stopped on purpose."""

ANY_FAILURE: Final = "failed"
"""The filter word for all failures."""

AskedStatus = Literal[RunStatus, "failed"]
"""Values of a status filter: a status, or the word for all failures."""


PING_WORKER: Final = "ping"
"""The worker name of runs that a ping begins."""


def statuses_of(status: str | None) -> Sequence[str]:
    """Return the statuses that match a filter; empty for any."""
    if status == ANY_FAILURE:
        return FAILED_STATUSES
    return (status,) if status else ()


# Kinds of events, so that a rule for a kind that never occurs can be refused.


OVER = " over"
"""Suffix of the event that a condition has ended."""

CONDITIONS = frozenset({"late", "no worker", "backlog", "disk low"})
"""Events of conditions with a threshold in the rule; each has a second event when it ends."""

EVENT_KINDS = frozenset(
    {
        *("failed", "retried", "recovered", "timeout", "lost", "expired", "missed", "damaged"),
        *("handed back", "triggered", "stop", "cancelled", "deleted", "runs deleted"),
        *("synced", "undeclared", "replanned"),
        *("workflow finished", "workflow failed", "workflow cancelled"),
        *("paused", "resumed", "held", "released", "drained", "undrained"),
        *("limited", "limit set", "limit removed", "retention set", "retention removed"),
        *("worker joined", "worker left", "server started", "server joined", "server left"),
        *("clock set", "maintenance failed", "message lost"),
        *("token created", "token revoked", "token rotated", "new address", "wrong token"),
        *CONDITIONS,
        *(f"{kind}{OVER}" for kind in CONDITIONS),
    }
)
"""All kinds of events."""


def unknown_kind(kinds: list[str]) -> str:
    """Return a message about the first unknown kind, with the closest known one; empty if all are known."""
    for kind in kinds:
        if kind not in EVENT_KINDS:
            near = get_close_matches(kind, sorted(EVENT_KINDS), 1)
            return f"{kind[:40]} is unknown{f', did you mean {near[0]}?' if near else ''}"
    return ""
