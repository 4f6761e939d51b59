"""The states of a job and what moves it from one to another. Pure: no rows, no clock, no SQL.

``TRANSITIONS`` is the life cycle; handlers ask it, and the diagram in the documentation is drawn from it.
"""

from __future__ import annotations

from typing import Literal

State = Literal["QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"]
Event = Literal[
    "create", "take", "finish", "retry", "revive", "fail", "lose", "expire", "cancel", "delete", "requeue",
    "parent pauses", "parent ends", "children end",
]  # fmt: skip

GONE = "(deleted)"
"""Where a row ends, and where ``create`` begins."""

STATES: tuple[State, ...] = ("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED")

PENDING = frozenset({"QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"})
"""A child in one of these keeps its parent waiting."""

ENDED = frozenset({"FINISHED", "CANCELLED"})
"""Children in these are reported to the parent and deleted at its next Finish or Retry."""

TRANSITIONS: dict[Event, dict[str, tuple[str, ...]]] = {
    # A child of a RUNNING parent waits as PAUSED until the parent pauses.
    "create": {GONE: ("QUEUED", "PAUSED")},
    # RUNQUEUED where the job has a retryAfter.
    "take": {"QUEUED": ("RUNNING", "RUNQUEUED"), "RUNQUEUED": ("RUNQUEUED",)},
    # QUEUED: it repeats. PAUSED: its children come first. FINISHED: it is a child.
    "finish": {
        "RUNNING": ("QUEUED", "PAUSED", "FINISHED", GONE),
        "RUNQUEUED": ("QUEUED", "PAUSED", "FINISHED", GONE),
    },
    # FAILED: somebody had stopped its run.
    "retry": {"RUNNING": ("QUEUED", "FAILED"), "RUNQUEUED": ("QUEUED", "FAILED")},
    "revive": {"FAILED": ("QUEUED",)},
    # QUEUED: a schedule goes on to its next tick, a job with retries is tried again.
    "fail": {"RUNNING": ("FAILED", "QUEUED"), "RUNQUEUED": ("FAILED", "QUEUED")},
    # Its worker was silent, or it took too long. FAILED: too often, or its name is on the crash list.
    "lose": {
        "QUEUED": ("FAILED",),
        "RUNNING": ("QUEUED", "FAILED"),
        "RUNQUEUED": ("QUEUED", "FAILED"),
    },
    # It was not taken in time.
    "expire": {"QUEUED": (GONE,)},
    "cancel": {"QUEUED": ("CANCELLED",), "RUNQUEUED": ("CANCELLED",), "FAILED": ("CANCELLED",)},
    "delete": {
        "QUEUED": (GONE,),
        "RUNQUEUED": (GONE,),
        "FINISHED": (GONE,),
        "FAILED": (GONE,),
        "CANCELLED": (GONE,),
    },
    "requeue": dict.fromkeys(STATES, ("QUEUED",)),
    "parent pauses": {"PAUSED": ("QUEUED",)},
    "parent ends": {"QUEUED": ("CANCELLED",), "PAUSED": ("CANCELLED",)},
    "children end": {"PAUSED": ("QUEUED",)},
}


def allows(event: Event, state: str) -> bool:
    """Tell whether a job in ``state`` may go through ``event``."""
    return state in TRANSITIONS[event]


def diagram() -> str:
    """Return the life cycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for event, moves in TRANSITIONS.items():
        if event == "requeue":
            continue  # from every state to QUEUED: an arrow each would hide the rest
        for before, afters in moves.items():
            lines += [
                f"    {'[*]' if before == GONE else before} --> {'[*]' if after == GONE else after}: {event}"
                for after in afters
            ]
    return "\n".join(lines)
