"""What parents and children do to each other: no job may wait for something that cannot happen."""

from __future__ import annotations

from bedrockjobs.base.errors import WrongState
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job import lifecycle
from bedrockjobs.job.placement import placed
from bedrockjobs.job.rows import Job


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
