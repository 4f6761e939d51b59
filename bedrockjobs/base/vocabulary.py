"""The statuses of a run, and which of them are failures. It knows nothing of who asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, Literal, get_args

RunStatus = Literal[
    "running", "success", "fail", "timeout", "frozen", "terminated", "killed", "returned", "snoozed"
]

STATUSES: Final = get_args(RunStatus)
"""The statuses, in the order in which a person is offered them."""

FAILED_STATUSES = ("fail", "timeout", "frozen")
"""Statuses of runs that somebody should look at: what was terminated or killed, somebody wanted so."""

ANY_FAILURE: Final = "failed"
"""The word for all of them, wherever runs are asked for by their status."""

AskedStatus = Literal[RunStatus, "failed"]
"""What runs may be asked for by: a status, or the word for all failures."""


def statuses_of(asked: str | None) -> Sequence[str]:
    """Return the statuses that are asked for by one, or by the word for all failures; none for any."""
    if asked == ANY_FAILURE:
        return FAILED_STATUSES
    return (asked,) if asked else ()


# The kinds of events that are written for people, so that a rule about one that never comes is refused.


OVER = " over"
"""What stands behind the kind of a condition where it has ended."""

CONDITIONS = frozenset({"late", "no worker", "backlog", "disk low"})
"""Kinds of events that a rule asks for by limits of its own: they begin, and are over some time."""

EVENT_KINDS = frozenset(
    {
        *("failed", "retried", "recovered", "timeout", "lost", "expired", "missed", "damaged"),
        *("handed back", "triggered", "stop", "deleted", "runs deleted"),
        *("synced", "undeclared", "planned anew"),
        *("paused", "resumed", "held", "released", "drained", "undrained"),
        *("limited", "limit set", "limit removed", "retention set", "retention removed"),
        *("worker joined", "worker left", "server started", "server joined", "server left"),
        *("clock set", "maintenance failed", "message lost"),
        *("token created", "token revoked", "token rotated", "new address", "wrong token"),
        *CONDITIONS,
        *(f"{kind}{OVER}" for kind in CONDITIONS),
    }
)
"""All of them."""


def unknown_kind(kinds: list[str]) -> str:
    """Return words on the first that is no kind of event, with one that is spelled alike; empty: all are."""
    for kind in kinds:
        if kind not in EVENT_KINDS:
            near = get_close_matches(kind, sorted(EVENT_KINDS), 1)
            return f"{kind[:40]} is none{f', is it {near[0]}?' if near else ''}"
    return ""
