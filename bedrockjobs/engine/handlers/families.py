"""What parents and children do to each other: no job may wait for something that cannot happen."""

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
    """Return the parent that a child reports to when it ends; None if it has none or ends alone.

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
    """Let the children of a parent run that is PAUSED now."""
    for child in context.unit.children(job.job_id):
        if lifecycle.allows("parent pauses", child.state):
            context.save(placed(lifecycle.move(child, "parent pauses"), context.now_ms))


def cancel_unstarted_children(context: Context, job: Job) -> None:
    """Cancel the children that wait for a parent which is over; running ones end alone.

    Differs from Bedrock: there they stay PAUSED for ever.
    """
    for child in context.unit.children(job.job_id):
        if lifecycle.allows("parent ends", child.state):
            context.save(lifecycle.move(child, "parent ends"))


def delete_reported_children(context: Context, job: Job) -> None:
    """Delete the children whose end the parent has been told of."""
    for child in context.unit.children(job.job_id):
        if child.state in lifecycle.ENDED:
            context.save(lifecycle.move(child, "report"))


def failed_children(context: Context, parent: Job) -> list[Job]:
    """Return the children of a parent's present run that have failed, by jobID.

    Those of a run before stay as well: it was told of them then.
    """
    if not parent.attempt:  # its run begins anew
        return []
    children = context.unit.children(parent.job_id)
    return [child for child in children if child.state == "FAILED" and child.created >= parent.last_run[:19]]


# Limits of runs at once: what has as many runs as it may have is paused, and goes on when one of them ends.
#
# The runs are counted in the table before each take that a limit is about; the pause only keeps those who
# ask from looking for nothing. It ends by itself, and is written anew as long as its limit is reached.


LOOKED_AGAIN_S = 2.0
"""Time after which a limit that is reached is looked at again: the end of a run at another server may
have come at the same moment, and not have seen that."""


def hold_back(context: Context, job: Job) -> bool:
    """Pause the names of a limit that keeps a job waiting for the end of a run; tell whether one does.

    Jobs that somebody has triggered do not wait.
    """
    records = context.unit.records
    for limit in records.limits():
        if not limit.running or not glob(job.name, limit.pattern) or parse_lane(job.lane).now:
            continue
        if records.running(limit.pattern) >= limit.running:
            _hold(context, limit)
            return True
    return False


def _hold(context: Context, limit: Limit) -> None:
    reason = f"{limit.running} {'runs' if limit.running == 1 else 'run'}, as many as may at once"
    until = after_seconds(context.now_ms, LOOKED_AGAIN_S)
    context.unit.records.put_pause(PauseRow(limit.pattern, AT_LIMIT, reason, context.now, until))


def went_on(context: Context, name: str) -> None:
    """Let those of a name be taken that waited for the end of a run, as one has ended."""
    for pause in context.unit.records.pauses():
        if pause.by == AT_LIMIT and glob(name, pause.pattern):
            look_again(context, pause)


def look_again(context: Context, pause: PauseRow) -> None:
    """End a pause of a limit that is not reached any more, or write it anew."""
    if not hold_if_full(context, pause.pattern):
        context.unit.records.delete_pause(pause.pattern)
        context.unit.pauses_changed(wake=False)
        context.emit(RoomForRuns(pause.pattern))


def hold_if_full(context: Context, pattern: str) -> bool:
    """Pause the names of a pattern whose limit is reached; tell whether it is."""
    records = context.unit.records
    for limit in records.limits():
        if limit.pattern == pattern and limit.running and records.running(pattern) >= limit.running:
            _hold(context, limit)
            return True
    return False


def rooms(events: Iterable[Event]) -> list[str]:
    """Return the patterns whose limits have room again, each once."""
    found = [event.pattern for event in events if type(event) is RoomForRuns]
    return list(dict.fromkeys(found)) if found else found


def has_room_left(context: Context) -> bool:
    """Tell whether some limit was reached before this transaction, and is not any more."""
    full = {pause.pattern for pause in context.unit.records.pauses() if pause.by == AT_LIMIT}
    return not full.issuperset(rooms(context.events))
