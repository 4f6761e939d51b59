"""The states of a job and what moves it from one to another. Pure: no rows are read, no clock, no SQL.

``ARROWS`` is the life cycle. Nothing else sets a state: ``move`` picks the arrow by what happened and by what
is true of the job, and refuses what the table does not have. The diagram in the documentation is drawn from
it, and the random histories of the tests check it against every change of state in the database.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from bedrockjobs.job.rows import Job

State = Literal["QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"]
STATES: tuple[State, ...] = get_args(State)

GONE = "(deleted)"
"""The state before a job is created and after its row is deleted."""

WORKING = frozenset({"RUNNING", "RUNQUEUED"})
"""Somebody has the job in hand; RUNQUEUED is given out again unless it ends before its retryAfter."""

KEPT: State = "FINISHED"
"""What a job is shown as that ended well, is gone, and is kept as a run."""

PENDING = frozenset({"QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"})
"""A child in one of these keeps its parent waiting."""

ENDED = frozenset({"FINISHED", "CANCELLED"})
"""Children in these are reported to the parent and deleted at its next Finish or Retry."""

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
    "stop",
    "delete",
    "remove",
    "requeue",
    "parent pauses",
    "parent ends",
    "children end",
    "child failed",
    "report",
]

Fact = Literal[
    "parent works",
    "has retryAfter",
    "was lost",
    "children pending",
    "runs again",
    "has parent",
    "leaves only its run",
]
"""What may be true of a job when something happens, and decides where it goes."""


class Arrow(NamedTuple):
    """Where a job goes; the first arrow whose ``when`` is true is taken, one without ``when`` always."""

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
_STOPS = (Arrow("QUEUED", "runs again"), Arrow("CANCELLED", "has parent"), Arrow(GONE))
_QUEUED, _GONE, _CANCELLED = (Arrow("QUEUED"),), (Arrow(GONE),), (Arrow("CANCELLED"),)

ARROWS: dict[Transition, dict[str, tuple[Arrow, ...]]] = {
    # A child of a parent at work waits until the parent pauses.
    "create": {GONE: (Arrow("PAUSED", "parent works"), Arrow("QUEUED"))},
    "take": {
        "QUEUED": (Arrow("RUNQUEUED", "has retryAfter"), Arrow("RUNNING")),
        "RUNQUEUED": (Arrow("RUNQUEUED"),),
    },
    # Its answer reached nobody, or its worker handed it back.
    "return": {"RUNNING": _QUEUED, "RUNQUEUED": (Arrow("RUNQUEUED", "was lost"), Arrow("QUEUED"))},
    "finish": {"RUNNING": _FINISHES, "RUNQUEUED": _FINISHES},
    # A mocked job can be finished in any state.
    "finish mocked": dict.fromkeys(STATES, _FINISHES),
    "retry": {"RUNNING": _QUEUED, "RUNQUEUED": _QUEUED},
    # A mocked job can be retried in any state.
    "retry mocked": dict.fromkeys(("QUEUED", "PAUSED", "FINISHED", "CANCELLED"), _QUEUED),
    "revive": {"FAILED": _QUEUED},
    # Its repeat could not be evaluated, and has been changed.
    "mend": {"FAILED": _QUEUED},
    # It runs again where retries are left, or where it is a schedule.
    "fail": {"RUNNING": _FAILS, "RUNQUEUED": _FAILS},
    # Its worker was silent, or its run was over its time.
    "lose": {"RUNNING": _FAILS, "RUNQUEUED": _FAILS},
    # It was to be taken, but was lost too often or its name is on the crash list.
    "crash": {"QUEUED": _CRASHES, "RUNQUEUED": _CRASHES},
    # Its repeat cannot be evaluated any more, or its data was damaged in the file.
    "break": dict.fromkeys(("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED"), (Arrow("FAILED"),)),
    # It was not taken in time.
    "expire": {"QUEUED": _GONE},
    "cancel": {"QUEUED": _CANCELLED, "RUNQUEUED": _CANCELLED, "FAILED": _CANCELLED},
    # Its run has ended after it was cancelled.
    "stop": {"RUNNING": _STOPS, "RUNQUEUED": _STOPS},
    "delete": dict.fromkeys(("QUEUED", "RUNQUEUED", "FINISHED", "FAILED", "CANCELLED"), _GONE),
    # Its source defines it no more.
    "remove": dict.fromkeys(("QUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED"), _GONE),
    "requeue": dict.fromkeys(STATES, _QUEUED),
    "parent pauses": {"PAUSED": _QUEUED},
    "parent ends": {"QUEUED": _CANCELLED, "PAUSED": _CANCELLED},
    "children end": {"PAUSED": _QUEUED},
    # The last of its children has ended, one has failed, and its onChildFailure is fail.
    "child failed": {"PAUSED": _FAILS},
    # Its parent has been told of its end.
    "report": {"FINISHED": _GONE, "CANCELLED": _GONE},
}


class NotAnArrow(RuntimeError):
    """The life cycle has no such change of state: a fault of the server, never of a request."""


def allows(event: Transition, state: str) -> bool:
    """Tell whether a job in ``state`` may go through ``event``."""
    return state in ARROWS[event]


def target(event: Transition, state: str, *facts: Fact) -> str:
    """Return the state that an event leads to; raises NotAnArrow."""
    for arrow in ARROWS[event].get(state, ()):
        if arrow.when is None or arrow.when in facts:
            return arrow.to
    raise NotAnArrow(f"{event} of a job that is {state}")


def move(job: Job, event: Transition, *facts: Fact, **changes: Any) -> Job:
    """Return a job after an event, with other ``changes`` to its row; its present run is over.

    Its state is ``GONE`` where its row is to be deleted. Raises NotAnArrow.
    """
    return job._replace(state=target(event, job.state, *facts), run_id=0, **changes)


def waits_to_start(job: Job) -> bool:
    """Return whether a job waits for a worker, or, if it is a child, for its parent."""
    return job.state == "QUEUED" or (job.state == "PAUSED" and job.parent_job_id != 0)


# --- Quick ways ------------------------------------------------------------------------------------------
# Most jobs are plain. These do for them what the arrows say, in the least time; a test compares the rows.

QUICK_CREATE: tuple[Transition, str, str] = ("create", GONE, "QUEUED")
"""``Unit.insert`` of a job of which nothing special was asked binds fewer columns."""

QUICK_TAKE: tuple[Transition, str, str] = ("take", "QUEUED", "RUNNING")
"""``Unit.claim`` writes lastRun, attempt and runID alone; its statement says RUNNING. A job for which
somebody waits goes through both of these at once, and is stored as it is then (``handlers/create.py``)."""

QUICK_FINISH: tuple[Transition, str, str] = ("finish", "RUNNING", GONE)
"""``Unit.delete_plain`` deletes the row in one statement, which looks for RUNNING itself."""


def after_take(job: Job, now: str, run_id: int) -> Job:
    """Return a job as its take leaves it, before anything that its retryAfter or its options ask for.

    Written out, as ``_replace`` takes as long as a statement and every take comes through here.
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
    """Return every arrow: what happens, from which state, to which."""
    return {
        (event, before, arrow.to)
        for event, moves in ARROWS.items()
        for before, found in moves.items()
        for arrow in found
    }


def diagram() -> str:
    """Return the life cycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for event, moves in ARROWS.items():
        if event in ("requeue", "finish mocked", "retry mocked"):
            continue  # from every state: an arrow each would hide the rest
        for before, found in moves.items():
            for arrow in found:
                start, end = ("[*]" if state == GONE else state for state in (before, arrow.to))
                lines.append(f"    {start} --> {end}: {event}")
    return "\n".join(lines)
