"""Parents and children, so that no job waits for an event that cannot occur; and concurrency limits."""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.base.errors import WrongState
from bedrockjobs.base.glob import glob
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.engine.events import Event, RoomForRuns
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.limits import AT_LIMIT, Limit
from bedrockjobs.job.rows import Job, PauseRow, parse_lane


def live_parent(context: Context, job: Job) -> Job | None:
    """Return the parent to which an ending child reports; None if it has none or the parent is over.

    Raises WrongState (405) while the parent is not PAUSED, as Bedrock does.
    """
    parent = context.unit.job(job.parent_job_id) if job.parent_job_id else None
    if parent is None or parent.state not in lifecycle.PENDING:
        return None
    if parent.state != "PAUSED":
        raise WrongState(
            "Can only retry/finish child job when parent is PAUSED",
            f"the parent, job {parent.job_id}, is {parent.state}",
        )
    return parent


def start_children(context: Context, job: Job) -> None:
    """Queue the waiting children of a parent that is now PAUSED."""
    for child in context.unit.children(job.job_id):
        if lifecycle.allows("parent pauses", child.state):
            context.save(placed(lifecycle.move(child, "parent pauses"), context.now_ms))


def cancel_unstarted_children(context: Context, job: Job) -> None:
    """Cancel the children that wait for an ended parent; running ones end without reporting.

    Differs from Bedrock: there, they stay PAUSED forever.
    """
    for child in context.unit.children(job.job_id):
        if lifecycle.allows("parent ends", child.state):
            context.save(lifecycle.move(child, "parent ends"))


def delete_reported_children(context: Context, job: Job) -> None:
    """Delete the ended children that the parent has already seen."""
    for child in context.unit.children(job.job_id):
        if child.state in lifecycle.ENDED:
            context.save(lifecycle.move(child, "report"))


def failed_children(context: Context, parent: Job) -> list[Job]:
    """Return the failed children of the parent's current run, by jobID.

    Failed children of earlier runs stay in the table, but were reported then.
    """
    if not parent.attempt:  # its next run starts from scratch
        return []
    children = context.unit.children(parent.job_id)
    return [child for child in children if child.state == "FAILED" and child.created >= parent.last_run[:19]]


# Concurrency limits: when the limit of runs is reached, its pattern is paused until a run ends. The runs are
# counted in the table before each take to which a limit applies. The pause only saves takes a search in vain;
# it expires by itself and is renewed while the limit is reached.


RECHECKED_S = 2.0
"""Seconds until a reached limit is checked again, because a run may end at the same time at another server,
which then does not see the pause."""


def pause_at_limit(context: Context, job: Job) -> bool:
    """Pause the pattern of a limit that prevents a job from starting; return True if there is one.

    Jobs triggered by hand do not wait.
    """
    records = context.unit.records
    for limit in records.limits():
        if not limit.running or not glob(job.name, limit.pattern) or parse_lane(job.lane).now:
            continue
        if records.running(limit.pattern) >= limit.running:
            _pause_at_limit(context, limit)
            return True
    return False


def _pause_at_limit(context: Context, limit: Limit) -> None:
    reason = f"{limit.running} {'run' if limit.running == 1 else 'runs'} in progress, the limit"
    until = after_seconds(context.now_ms, RECHECKED_S)
    context.unit.records.put_pause(PauseRow(limit.pattern, AT_LIMIT, reason, context.now, until))


def recheck_limits(context: Context, name: str) -> None:
    """Check the limits of a name again, because one of its runs has ended."""
    for pause in context.unit.records.pauses():
        if pause.by == AT_LIMIT and glob(name, pause.pattern):
            recheck_limit(context, pause)


def recheck_limit(context: Context, pause: PauseRow) -> None:
    """End the pause of a limit that is no longer reached, or renew it."""
    if not pause_if_full(context, pause.pattern):
        context.unit.records.delete_pause(pause.pattern)
        context.unit.pauses_changed(wake=False)
        context.emit(RoomForRuns(pause.pattern))


def pause_if_full(context: Context, pattern: str) -> bool:
    """Pause a pattern whose limit is reached; return True if it is."""
    records = context.unit.records
    for limit in records.limits():
        if limit.pattern == pattern and limit.running and records.running(pattern) >= limit.running:
            _pause_at_limit(context, limit)
            return True
    return False


def freed_limits(events: Iterable[Event]) -> list[str]:
    """Return the patterns whose limits have free slots again, without repeats."""
    found = [event.pattern for event in events if type(event) is RoomForRuns]
    return list(dict.fromkeys(found)) if found else found


def has_room_left(context: Context) -> bool:
    """Return True if a limit was reached before this transaction and no longer is."""
    full = {pause.pattern for pause in context.unit.records.pauses() if pause.by == AT_LIMIT}
    return not full.issuperset(freed_limits(context.events))
