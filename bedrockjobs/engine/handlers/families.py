"""What parents and children do to each other: no job may wait for something that cannot happen."""

from __future__ import annotations

from bedrockjobs.base.errors import WrongState
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import has_any, placed
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import Job


def live_parent(context: Context, row: Job) -> Job | None:
    """Return the parent that a child reports to when it ends; None if it has none or ends alone.

    Raises WrongState (405) while the parent is not PAUSED, as Bedrock does.
    """
    parent = context.tx.job(row.parent_job_id) if row.parent_job_id else None
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
    parent = context.tx.job(job_id) if job_id else None
    if parent is not None and parent.state == "PAUSED" and not context.tx.has_pending_children(job_id):
        context.tx.save(placed(parent._replace(state="QUEUED"))._replace(expires=""))


def cancel_unstarted_children(context: Context, row: Job) -> None:
    """Cancel the children that wait for a parent which is over; running ones end alone.

    Differs from Bedrock: there they stay PAUSED for ever.
    """
    for child in context.tx.children(row.job_id):
        if lifecycle.allows("parent ends", child.state):
            context.tx.save(child._replace(state="CANCELLED"))


def delete_ended_children(context: Context, row: Job) -> None:
    """Delete the children whose end the parent has been told of."""
    for child in context.tx.children(row.job_id):
        if child.state in lifecycle.ENDED:
            context.tx.delete(child.job_id)


def fail_for_good(context: Context, row: Job) -> None:
    """Write a job that has failed, and tell its family.

    One of a schedule on all hosts, or whose schedule was removed, leaves only its run.

    Differs from Bedrock: a FAILED child counts as ended, so its parent goes on.
    """
    if has_any(row, ("boundTo", "removed")):
        context.tx.delete(row.job_id)
    else:
        context.tx.save(row._replace(state="FAILED", run_id=0))
    cancel_unstarted_children(context, row)
    resume_parent(context, row.parent_job_id)
