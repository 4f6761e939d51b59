"""How parents and children affect each other, so that none waits in vain; limits of runs and starts."""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import RESULT_KEPT_S
from bedrockjobs.base.errors import WrongState
from bedrockjobs.base.glob import glob
from bedrockjobs.engine.events import Event, RoomForRuns
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.lifecycle import Fact
from bedrockjobs.job.limits import (
    AT_LIMIT,
    NEXT_START,
    Limit,
    after_start,
    microseconds_of,
    most_paced,
    next_start,
    paced_key,
)
from bedrockjobs.job.rows import Job, PauseRow, parse_lane


def live_parent(context: Context, job: Job) -> Job | None:
    """Return the parent to which an ending child reports; None if it has none or the parent has ended.

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


def cancel_unstarted_children(context: Context, job: Job, *, kept: bool = False) -> None:
    """Cancel the children that wait for an ended parent; running children end without reporting.

    With ``kept``, the cancelled children stay as records until their retention ends, since no parent reports
    them.

    Differs from Bedrock: in Bedrock, such children stay PAUSED forever.
    """
    for child in context.unit.children(job.job_id):
        if lifecycle.allows("parent ends", child.state):
            expires = _record_expiry(context, child) if kept else ""
            context.save(lifecycle.move(child, "parent ends", expires=expires))


def record_until(context: Context, job: Job) -> str:
    """Return when the record of a cancelled job is deleted; empty if its parent will report and delete it."""
    parent = context.unit.job(job.parent_job_id) if job.parent_job_id else None
    if parent is not None and parent.state in lifecycle.PENDING:
        return ""
    return _record_expiry(context, job)


def of_workflow(job: Job) -> tuple[Fact, ...]:
    """Return the fact ``of a workflow`` for ``lifecycle.move`` if the job belongs to one, else nothing."""
    return ("of a workflow",) if job.memory.workflow else ()


def _record_expiry(context: Context, job: Job) -> str:
    if job.memory.workflow and context.unit.records.workflow_job(job.job_id) is not None:
        return ""  # its record goes with the workflow
    default = context.unit.records.keep_finished_s or RESULT_KEPT_S
    return after_seconds(context.now_ms, default if job.options.keep is None else job.options.keep)


def delete_reported_children(context: Context, job: Job) -> None:
    """Delete the ended children of a job that one of its runs has already received."""
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


# Limits of runs and of starts: when one is reached, its pattern is paused until a run ends, or until the next
# start. The runs are counted in the table before each take to which a limit applies; the table ``paced`` has
# one number for the starts of each pattern. The pause only saves takes a search in vain; it expires by itself
# and is renewed while the limit is reached. The store applies limits per key, whose jobs takes skip.


def pause_at_limit(context: Context, job: Job, *, named: bool) -> bool:
    """Pause the pattern of a limit that prevents a job from starting; return True if there is such a limit.

    Jobs triggered by hand do not wait. A limit of runs applies only to takes by workers with a name
    (``named``), a limit of starts to all takes.
    """
    if parse_lane(job.lane).now:
        return False
    for limit in context.unit.records.limits():
        limits = limit.starts_together or (named and limit.together)
        if limits and glob(job.name, limit.pattern) and _pause_if_full(context, limit, named=named):
            return True
    return False


def _pause_if_full(context: Context, limit: Limit, *, named: bool) -> bool:
    records = context.unit.records
    if named and limit.together and records.running(limit.pattern) >= limit.together:
        reason = f"{limit.running} {'run' if limit.running == 1 else 'runs'} in progress, the limit"
        # A run may end at the same time at another server, which then does not see the pause
        until = after_seconds(context.now_ms, 2.0)
    elif limit.starts_together and (start := start_of(context, limit)) > context.now_ms:
        reason, until = f"{NEXT_START} {limit.starts}", start
    else:
        return False
    records.put_pause(PauseRow(limit.pattern, AT_LIMIT, reason, context.now, until))
    return True


def start_of(context: Context, limit: Limit) -> str:
    """Return the earliest time of the next start by the rate of all keys together, as a timestamp."""
    return next_start(limit, context.unit.records.paced(limit.pattern))


def note_start(context: Context, job: Job) -> None:
    """Count the start of a job by the rates that apply to it."""
    records = context.unit.records
    for limit in records.limits():
        if limit.starts and glob(job.name, limit.pattern):
            key = paced_key(job) if limit.per_key else ""
            if key or not limit.per_key:
                paced = records.paced(limit.pattern, key)
                now = microseconds_of(context.moment)
                records.set_paced(limit.pattern, key, after_start(limit, paced, now))


def recheck_after_clock_change(context: Context) -> None:
    """Check all limits again after the clock was set back."""
    records = context.unit.records
    for limit in records.limits():
        if limit.starts:
            records.lower_paced(limit.pattern, most_paced(limit, microseconds_of(context.moment)))
        if limit.starts_by_key:
            context.unit.slots_changed()
    for pause in context.unit.records.pauses():
        if pause.by == AT_LIMIT:
            recheck_limit(context, pause)


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
    limits = context.unit.records.limits()
    return any(_pause_if_full(context, limit, named=True) for limit in limits if limit.pattern == pattern)


def freed_limits(events: Iterable[Event]) -> list[str]:
    """Return the patterns whose limits have free slots again, without repeats."""
    found = [event.pattern for event in events if type(event) is RoomForRuns]
    return list(dict.fromkeys(found)) if found else found


def has_room_left(context: Context) -> bool:
    """Return True if a limit was reached before this transaction and no longer is."""
    full = {pause.pattern for pause in context.unit.records.pauses() if pause.by == AT_LIMIT}
    return not full.issuperset(freed_limits(context.events))
