"""What the end of a job does to its workflow: it starts or cancels the jobs after it, and may end it.

All of it happens under the lock of the workflow, in the commit that ends the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import BEFORE_BYTES_MAX, SLICE
from bedrockjobs.base.errors import line_of, shortened
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import CANCELLED_THERE, WORKFLOW_RUNS, Job, WorkflowJobRow, WorkflowRow

if TYPE_CHECKING:
    from bedrockjobs.engine.handlers.context import Context
    from bedrockjobs.store.records import Records

_ENDS = {lifecycle.GONE: "CANCELLED", "FINISHED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "CANCELLED"}
"""The state that a workflow records for a job that ended, by the job's own state.

A job that is deleted before it finished counts as cancelled."""


class Place(NamedTuple):
    """The place of a new job in a workflow."""

    workflow_id: int
    ref: str
    waits: int
    """How many jobs it waits for."""


def waits(context: Context, job: Job) -> bool:
    """Return whether a job still waits for other jobs of its workflow."""
    if job.state != "PAUSED" or not job.memory.workflow:
        return False
    its = context.unit.records.workflow_job(job.job_id)
    return its is not None and not its.state and its.waits > 0


def moved(context: Context, job: Job, result: str | None) -> None:
    """Update the workflow of a job after a change of the job; ``result`` is its result if it has finished."""
    records = context.unit.records
    its = records.workflow_job(job.job_id)
    if its is None:
        return
    state = "FINISHED" if result is not None else _ENDS.get(job.state, "")
    if state == its.state:
        if job.name != its.name:
            records.rename_workflow_job(job.job_id, job.name)
        return
    workflow = records.lock_workflow(its.workflow_id)
    if workflow is None:
        return
    if not state:
        _reopen(context, workflow, its, job)
        return
    ended = its._replace(
        name=job.name,
        state=state,
        waits=0,
        started=job.last_run,
        ended=context.now_ms,
        reason="" if state == "FINISHED" else shortened(_reason(job)),
    )
    records.end_workflow_jobs([ended], result or "")
    if its.state:  # it had failed or was cancelled, and is deleted or finishes now
        failed = workflow.failed - its.counts_as_failed + ended.counts_as_failed
        save(context, workflow._replace(failed=failed))
        return
    workflow = workflow._replace(open=workflow.open - 1, failed=workflow.failed + ended.counts_as_failed)
    if ended.lets_pass:
        _start_after(context, ended.job_id)
    else:
        behind = records.waiting_behind(ended.job_id)
        reason = _reason_behind(ended)
        cancel_waiting(context, behind, reason)
        workflow = workflow._replace(open=workflow.open - len(behind), failed=workflow.failed + len(behind))
    save(context, workflow)


def _reason(job: Job) -> str:
    if job.state == lifecycle.GONE:
        return "The job was deleted"
    default = "The job was cancelled" if job.state == "CANCELLED" else "no error was given"
    return job.memory.error or default


def _reason_behind(ended: WorkflowJobRow) -> str:
    """Return the reason why the jobs after an ``ended`` one are cancelled."""
    how = "failed" if ended.state == "FAILED" else "was cancelled"
    why = line_of(ended.reason) if ended.state == "FAILED" else ""
    return shortened(
        f"{beginning_behind(ended.job_id)}{ended.ref}) before it {how}" + (f": {why}" if why else "")
    )


def beginning_behind(job_id: int) -> str:
    """Return how the reason of jobs cancelled after this one begins; its rest may quote this job's error."""
    return f"Job {job_id} ("


def _start_after(context: Context, job_id: int) -> None:
    """Count a job as ended for the jobs after it, and queue those of them that wait for no other job."""
    after = context.unit.records.waiting_after(job_id)
    context.unit.records.wait_in_workflow([(each, count - 1) for each, count in after])
    start(context, [each for each, count in after if count == 1])


def start(context: Context, job_ids: Sequence[int]) -> None:
    """Queue waiting jobs."""
    for job in _jobs(context, job_ids):
        if lifecycle.allows("its turn", job.state):
            due = max(job.next_run, context.now_ms)
            context.unit.save(placed(lifecycle.move(job, "its turn", next_run=due), context.now_ms))


def _jobs(context: Context, job_ids: Sequence[int]) -> Iterable[Job]:
    for first in range(0, len(job_ids), SLICE):
        yield from in_slices(context.unit.several(job_ids[first : first + SLICE]))


def cancel_waiting(context: Context, jobs: Sequence[WorkflowJobRow], reason: str) -> None:
    """Cancel waiting jobs of a workflow; the caller updates the counts of the workflow."""
    ended = [row._replace(state=CANCELLED_THERE, ended=context.now_ms, reason=reason) for row in jobs]
    for job in _jobs(context, [row.job_id for row in jobs]):
        if lifecycle.allows("one before fails", job.state):
            changed = lifecycle.move(job.noting(error=reason), "one before fails", expires="")
            context.unit.save(changed)
    context.unit.records.end_workflow_jobs(ended)


def cancel_with_those_behind(
    context: Context, workflow: WorkflowRow, its: WorkflowJobRow, before: WorkflowJobRow
) -> WorkflowRow:
    """Cancel a waiting job, and all jobs that wait for it directly or indirectly.

    The reason is that the job ``before``, for which it waits, failed or was cancelled. Return the workflow
    with its new counts.
    """
    rows = [its, *context.unit.records.waiting_behind(its.job_id)]
    cancel_waiting(context, rows, before.reason if before.waits else _reason_behind(before))
    return workflow._replace(open=workflow.open - len(rows), failed=workflow.failed + len(rows))


def _reopen(context: Context, workflow: WorkflowRow, its: WorkflowJobRow, job: Job) -> None:
    """Count an ended job that is queued again as open; the jobs after it that still wait, wait for it."""
    records = context.unit.records
    records.end_workflow_jobs(
        [its._replace(name=job.name, state="", waits=0, started="", ended="", reason="")]
    )
    records.wait_in_workflow([(each, count + 1) for each, count in records.waiting_after(its.job_id)])
    if workflow.kept:
        _keep_records(context, records.jobs_of_workflow(workflow.workflow_id), "")
    save(
        context,
        workflow._replace(
            state=WORKFLOW_RUNS,
            ended="",
            kept="",
            open=workflow.open + 1,
            failed=workflow.failed - its.counts_as_failed,
            cancelled=0 if workflow.ended else workflow.cancelled,
        ),
    )


def _keep_records(context: Context, rows: Sequence[WorkflowJobRow], until: str) -> None:
    """Keep the records of cancelled jobs until a timestamp, or as long as their workflow if it is empty."""
    for job in _jobs(context, [row.job_id for row in rows if row.state == CANCELLED_THERE]):
        if job.state == "CANCELLED":
            context.unit.save(job._replace(expires=until))


def save(context: Context, workflow: WorkflowRow) -> None:
    """Store a workflow; end it if none of its jobs is open."""
    if workflow.open or workflow.ended:
        context.unit.records.save_workflow(workflow)
        return
    state = "CANCELLED" if workflow.cancelled else "FAILED" if workflow.failed else "FINISHED"
    kept = "" if state == "FAILED" else after_seconds(context.now_ms, workflow.keep)
    context.unit.records.save_workflow(workflow._replace(state=state, ended=context.now_ms, kept=kept))
    jobs = context.unit.records.jobs_of_workflow(workflow.workflow_id) if kept or workflow.failed else []
    bad = [row for row in jobs if row.state not in ("", "FINISHED")]
    if kept:
        _keep_records(context, bad, kept)
    failed = [row.ref for row in bad if row.state == "FAILED"]
    # Maximum number of refs that an event names.
    detail = ", ".join(failed[:5]) + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")
    context.note(
        f"workflow {state.lower()}",
        name=workflow.name,
        job_id=workflow.workflow_id,
        detail=f"failed: {detail}" if detail and state == "FAILED" else "",
    )


def of_workflow(records: Records, job: Job) -> dict[str, str]:
    """Return the members of a reply about a job of a workflow, as JSON texts."""
    if job.memory_json == "{}" or not job.memory.workflow:
        return {}
    shown = {"workflowID": str(job.memory.workflow), "ref": quoted(job.memory.ref)}
    size = 0
    before: dict[str, str] = {}
    left_out = []
    for ref, result in records.results_before(job.job_id):
        size += len(result)
        if size > BEFORE_BYTES_MAX:
            left_out.append(ref)
        else:
            before[ref] = result or "null"
    shown["before"] = f"{{{','.join(f'{quoted(ref)}:{text}' for ref, text in before.items())}}}"
    if left_out:
        shown["beforeLeftOut"] = jsontext.dump(left_out)
    return shown
