"""The life cycle of a job: its states and the transitions between them. Pure functions.

``ARROWS`` is the complete life cycle, and nothing else sets a state: ``move`` selects the arrow by event and
facts, and raises NotAnArrow if there is none. The diagram in the documentation is generated from ``ARROWS``,
and the randomized tests check every change of state in the database against it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from bedrockjobs.base.jsontext import quoted
from bedrockjobs.commands.create import UNIQUE_KEY_PREFIX, UNIQUE_UNTIL
from bedrockjobs.job.rows import Job

State = Literal["QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"]
STATES: tuple[State, ...] = get_args(State)

GONE = "(deleted)"
"""The state before a job is created and after its row is deleted."""

WORKING = frozenset({"RUNNING", "RUNQUEUED"})
"""States of a job that a worker has. A RUNQUEUED job is handed out again unless it ends within retryAfter."""

KEPT: State = "FINISHED"
"""The displayed state of a successful job whose row is deleted and which is kept as a run."""

PENDING = frozenset({"QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"})
"""States of a child that keep its parent waiting."""

ENDED = frozenset({"FINISHED", "CANCELLED"})
"""States of a child that is reported to its parent, and deleted when the parent is next finished or
retried."""

Transition = Literal[
    "create",
    "take",
    "return",
    "finish",
    "finish mocked",
    "retry",
    "retry mocked",
    "revive",
    "mend",
    "fail",
    "lose",
    "crash",
    "break",
    "expire",
    "cancel",
    "cancel any",
    "stop",
    "delete",
    "remove",
    "requeue",
    "parent pauses",
    "parent ends",
    "children end",
    "child failed",
    "report",
    "its turn",
    "one before fails",
    "workflow retries",
]

Fact = Literal[
    "parent works",
    "has retryAfter",
    "was lost",
    "children pending",
    "runs again",
    "has parent",
    "leaves only its run",
    "waits for others",
    "of a workflow",
]
"""Conditions of a job that decide which arrow an event follows."""


class Arrow(NamedTuple):
    """A transition; if an event has several in a state, the first one whose ``when`` holds is followed."""

    to: str
    when: Fact | None = None


_FAILS = (Arrow("QUEUED", "runs again"), Arrow(GONE, "leaves only its run"), Arrow("FAILED"))
_FINISHES = (
    Arrow("PAUSED", "children pending"),
    Arrow("QUEUED", "runs again"),
    Arrow("FINISHED", "has parent"),
    Arrow(GONE),
)
_CRASHES = (Arrow(GONE, "leaves only its run"), Arrow("FAILED"))
_STOPS = (
    Arrow("QUEUED", "runs again"),
    Arrow("CANCELLED", "has parent"),
    Arrow("CANCELLED", "of a workflow"),
    Arrow(GONE),
)
_CANCELS = (Arrow("QUEUED", "runs again"), Arrow(GONE, "leaves only its run"), Arrow("CANCELLED"))
_QUEUED, _GONE, _CANCELLED = (Arrow("QUEUED"),), (Arrow(GONE),), (Arrow("CANCELLED"),)

ARROWS: dict[Transition, dict[str, tuple[Arrow, ...]]] = {
    # A child of a running parent waits until the parent pauses, a job of a workflow for those before it.
    "create": {GONE: (Arrow("PAUSED", "parent works"), Arrow("PAUSED", "waits for others"), Arrow("QUEUED"))},
    "take": {
        "QUEUED": (Arrow("RUNQUEUED", "has retryAfter"), Arrow("RUNNING")),
        "RUNQUEUED": (Arrow("RUNQUEUED"),),
    },
    # The reply was not delivered, or its worker returned the job.
    "return": {"RUNNING": _QUEUED, "RUNQUEUED": (Arrow("RUNQUEUED", "was lost"), Arrow("QUEUED"))},
    "finish": {"RUNNING": _FINISHES, "RUNQUEUED": _FINISHES},
    # A mocked job can be finished in any state.
    "finish mocked": dict.fromkeys(STATES, _FINISHES),
    "retry": {"RUNNING": _QUEUED, "RUNQUEUED": _QUEUED},
    # A mocked job can be retried in any state.
    "retry mocked": dict.fromkeys(("QUEUED", "PAUSED", "FINISHED", "CANCELLED"), _QUEUED),
    "revive": {"FAILED": _QUEUED},
    # Its repeat, which could not be evaluated, has been changed.
    "mend": {"FAILED": _QUEUED},
    # It runs again if retries are left or if it is a schedule.
    "fail": {"RUNNING": _FAILS, "RUNQUEUED": _FAILS},
    # Its worker was silent, or its run exceeded its time.
    "lose": {"RUNNING": _FAILS, "RUNQUEUED": _FAILS},
    # A take found that it was lost too often, or is on the crash list.
    "crash": {"QUEUED": _CRASHES, "RUNQUEUED": _CRASHES},
    # Its repeat can no longer be evaluated, or its data was damaged in the file.
    "break": dict.fromkeys(("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"), (Arrow("FAILED"),)),
    # It was not taken in time.
    "expire": {"QUEUED": (Arrow("CANCELLED", "of a workflow"), Arrow(GONE))},
    "cancel": {"QUEUED": _CANCELLED, "RUNQUEUED": _CANCELLED, "FAILED": _CANCELLED},
    # It is no child, or is not waiting for a worker.
    "cancel any": dict.fromkeys(("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"), _CANCELS),
    # Its run ended after it was cancelled.
    "stop": {"RUNNING": _STOPS, "RUNQUEUED": _STOPS},
    "delete": dict.fromkeys(("QUEUED", "RUNQUEUED", "FINISHED", "FAILED", "CANCELLED"), _GONE),
    # Its source no longer defines it.
    "remove": dict.fromkeys(("QUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"), _GONE),
    "requeue": dict.fromkeys(STATES, _QUEUED),
    "parent pauses": {"PAUSED": _QUEUED},
    "parent ends": {"QUEUED": _CANCELLED, "PAUSED": _CANCELLED},
    "children end": {"PAUSED": _QUEUED},
    # All its children have ended, one has failed, and its onChildFailure is fail.
    "child failed": {"PAUSED": _FAILS},
    # Its end has been reported to its parent.
    "report": {"FINISHED": _GONE, "CANCELLED": _GONE},
    # All jobs before it in its workflow have ended.
    "its turn": {"PAUSED": _QUEUED},
    # A job before it in its workflow failed or was cancelled.
    "one before fails": {"PAUSED": _CANCELLED},
    # RetryWorkflow starts it again.
    "workflow retries": dict.fromkeys(
        ("FAILED", "CANCELLED"), (Arrow("PAUSED", "waits for others"), Arrow("QUEUED"))
    ),
}


class NotAnArrow(RuntimeError):
    """The life cycle has no such transition: a fault of the server, never of a request."""


def allows(event: Transition, state: str) -> bool:
    """Return whether an event is allowed in a state."""
    return state in ARROWS[event]


def target(event: Transition, state: str, *facts: Fact) -> str:
    """Return the state that an event leads to; raises NotAnArrow."""
    for arrow in ARROWS[event].get(state, ()):
        if arrow.when is None or arrow.when in facts:
            return arrow.to
    raise NotAnArrow(f"{event} of a job that is {state}")


def move(job: Job, event: Transition, *facts: Fact, **changes: Any) -> Job:
    """Return a job after an event, with other ``changes`` to its row, and without a current run.

    Its state is ``GONE`` if its row is to be deleted. Raises NotAnArrow.
    """
    return job._replace(state=target(event, job.state, *facts), run_id=0, **changes)


def waits_to_start(job: Job) -> bool:
    """Return whether a job waits for a worker, or, if it is a child, for its parent."""
    return job.state == "QUEUED" or (job.state == "PAUSED" and job.parent_job_id != 0)


# Fast paths for plain jobs (``rows.is_plain``): the statements of these transitions do not consult
# ``ARROWS``. A test checks that they write the same rows.

QUICK_CREATE: tuple[Transition, str, str] = ("create", GONE, "QUEUED")
"""``Unit.insert`` binds fewer columns for a plain job: the others have their defaults."""

QUICK_TAKE: tuple[Transition, str, str] = ("take", "QUEUED", "RUNNING")
"""``Unit.claim`` writes only lastRun, attempt and runID; its statement contains RUNNING. A job handed
directly to a waiter is created and taken in one step: it is inserted as RUNNING (``handlers/create.py``)."""

QUICK_FINISH: tuple[Transition, str, str] = ("finish", "RUNNING", GONE)
"""``Unit.delete_plain`` deletes the row in one statement, which checks for RUNNING itself."""


def after_take(job: Job, now: str, run_id: int) -> Job:
    """Return a job after a take, before the effects of its retryAfter and options.

    All fields are listed, since ``_replace`` takes as long as an SQL statement and every take calls this.
    """
    state = target("take", job.state, "has retryAfter") if job.retry_after else "RUNNING"
    return Job(
        job.created,
        job.job_id,
        state,
        job.name,
        job.next_run,
        now,
        job.repeat,
        job.data,
        job.priority,
        job.parent_job_id,
        job.retry_after,
        job.attempt + 1,
        run_id,
        job.expires,
        job.lane,
        job.options_json,
        job.memory_json,
    )


def arrows() -> set[tuple[Transition, str, str]]:
    """Return every arrow as event, state before and state after."""
    return {
        (event, before, arrow.to)
        for event, moves in ARROWS.items()
        for before, found in moves.items()
        for arrow in found
    }


def diagram() -> str:
    """Return the life cycle as a Mermaid state diagram, with one arrow for each pair of states."""
    events_by_pair: dict[str, dict[str, None]] = {}
    for event, moves in ARROWS.items():
        if event in ("requeue", "finish mocked", "retry mocked"):
            continue  # they start from every state: an arrow each would hide the rest
        for before, found in moves.items():
            for arrow in found:
                start, end = ("[*]" if state == GONE else state for state in (before, arrow.to))
                events_by_pair.setdefault(f"{start} --> {end}", {})[event] = None
    lines = [f"    {pair}: {', '.join(events)}" for pair, events in events_by_pair.items()]
    return "\n".join(["stateDiagram-v2", *lines])


# Unique keys: how they are stored, whether a job holds one, and until when, which depends on its state.


class HeldKey(NamedTuple):
    """A unique key that a job holds."""

    name: str
    """The name of the jobs among which it is unique."""
    key: str
    until: str
    """``finished`` or ``started``, or the timestamp until which it is held."""

    @property
    def until_text(self) -> str:
        """Return a phrase for people that says until when the key is held."""
        if self.until in UNIQUE_UNTIL:
            return "until the job has ended" if self.until == "finished" else "until the job starts"
        return f"until {self.until[:19]}"

    @property
    def until_utc(self) -> str:
        """Return ``until_text`` for error messages: a timestamp is marked as UTC."""
        return self.until_text if self.until in UNIQUE_UNTIL else f"{self.until_text} UTC"

    def after_end(self, job_id: int) -> str:
        """Return the detail of an error about the deleted job ``job_id``, which still holds the key."""
        return f"jobID: there is no job {job_id}; it has ended, and holds its unique key {self.until_utc}"

    @property
    def members(self) -> dict[str, str]:
        """Return the members of a reply about its job, as JSON texts."""
        return {"uniqueKey": quoted(self.key), "uniqueUntil": quoted(self.until)}


def is_held(holds: str, job: Job | None, now: str) -> bool:
    """Return whether a job still holds a key; ``job`` is None if it is gone or has another name.

    Whether it does is computed on demand, not stored at each transition.
    """
    if holds not in UNIQUE_UNTIL:
        return holds > now
    if job is None:
        return False
    return waits_to_start(job) if holds == "started" else job.state in PENDING


def split_holds(stored: str) -> tuple[str, str]:
    """Return the columns ``key`` and ``holds`` of a row in ``keys``, given ``holds`` followed by ``key``."""
    at = stored.index(UNIQUE_KEY_PREFIX)
    return stored[at:], stored[:at]


def held_key(row: tuple[str, str] | None, job: Job | None, now: str) -> HeldKey | None:
    """Return the key that a job holds, given the columns ``key`` and ``holds`` of its row in ``keys``.

    ``job`` is None if it is gone.
    """
    if row is None:
        return None
    stored, holds = row
    _, _, name, key, *_ = stored.split("\x1f")
    there = job if job is not None and job.name == name else None
    return HeldKey(name, key, holds) if is_held(holds, there, now) else None
