"""What parents and children do to each other: no job may wait for something that cannot happen."""

from __future__ import annotations

from bedrockjobs.base.errors import WrongState
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job import lifecycle
from bedrockjobs.job.lifecycle import Event
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


def resume_parent(context: Context, job_id: int) -> None:
    """Queue a PAUSED parent again if none of its children is pending any more."""
    parent = context.unit.job(job_id) if job_id else None
    if parent is None or parent.state != "PAUSED" or context.unit.has_pending_children(job_id):
        return
    context.save(placed(lifecycle.move(parent, "children end"))._replace(expires=""))


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


def fail_for_good(context: Context, job: Job, event: Event) -> None:
    """Write a job that has failed, by ``event``, and tell its family.

    One of a schedule on all hosts, or whose schedule was removed, leaves only its run.

    Differs from Bedrock: a FAILED child counts as ended, so its parent goes on.
    """
    memory = job.memory
    if memory.bound_to or memory.removed:
        context.save(lifecycle.move(job, event, "leaves only its run"))
    else:
        context.save(lifecycle.move(job, event))
    cancel_unstarted_children(context, job)
    resume_parent(context, job.parent_job_id)
