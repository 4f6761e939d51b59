"""The words of the wire: run statuses and event kinds, with their display names; detection of typos."""

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
"""Values of a status filter: a status, or ``failed`` for all failures."""


PING_WORKER: Final = "ping"
"""The worker name of runs that a ping starts."""


def statuses_of(status: str | None) -> Sequence[str]:
    """Return the statuses that match a filter; empty if the filter is empty or None, which matches all."""
    if status == ANY_FAILURE:
        return FAILED_STATUSES
    return (status,) if status else ()


# Kinds of events. A notification rule for any other kind is refused.


OVER = " over"
"""Suffix of the name of the event that says that a condition has ended."""

CONDITIONS = frozenset({"late", "no worker", "backlog", "disk low"})
"""Events that report a condition whose threshold is in the notification rule; each has a second event for its
end."""

CLOCK_SET = "clock set"
"""The kind of the event that reports a change of the system clock."""

EVENT_KINDS = frozenset(
    {
        *("failed", "retried", "recovered", "timeout", "lost", "expired", "missed", "damaged"),
        *("handed back", "triggered", "stop", "cancelled", "deleted", "runs deleted"),
        *("synced", "undeclared", "replanned", "changed"),
        *("workflow finished", "workflow failed", "workflow cancelled"),
        *("paused", "resumed", "held", "released", "drained", "undrained"),
        *("limited", "limit set", "limit removed", "retention set", "retention removed"),
        *("muted", "unmuted"),
        *("worker joined", "worker left", "server started", "server joined", "server left"),
        *(CLOCK_SET, "maintenance failed", "message lost"),
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


CALLED = {"frozen": "lost", "PAUSED": "waiting for other jobs", "fired": "ran"}
"""Display names of those values on the wire that people see under another name."""

_MEANT = {words: word for word, words in CALLED.items()}


def called(word: str) -> str:
    """Return the display name of a state, a status or an outcome."""
    return CALLED.get(word, word)


def meant(name: str) -> str:
    """Return the value on the wire for a display name."""
    return _MEANT.get(name.lower(), name)


def differ_by_typo(name: str, known: str) -> bool:
    """Return whether two names differ by one typo: a character added, missing, replaced, or swapped."""
    if abs(len(name) - len(known)) > 1 or len(set(name) ^ set(known)) > 2:
        return False
    start = _common(name, known)
    end = _common(name[start:][::-1], known[start:][::-1])
    left, right = name[start : len(name) - end], known[start : len(known) - end]
    return max(len(left), len(right)) <= 1 or (len(left) == 2 and left == right[::-1])


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    both = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(both) if left != right), min(len(one), len(other)))
