"""RunAgain: what a run was given is done once more."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.commands import RunAgain
from bedrockjobs.engine.events import JOB_CREATED
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.create import is_mock_data
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.handlers.trigger import triggered
from bedrockjobs.job import lifecycle
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE
from bedrockjobs.job.placement import placed
from bedrockjobs.job.rows import Job, RunGiven, RunRow
from bedrockjobs.store.base import Plan

OF_A_SCHEDULE = ("source", "catchup", "overlap", "maxLate", "jitter", "hosts")
"""Options that say nothing of a single run."""


@handles(RunAgain, plan=lambda command: Plan(runs=(command.run_id,), new_jobs=1))
def run_again(context: Context, command: RunAgain) -> Answer:
    """Trigger the schedule of a run, or make a job of what the run was given; answers which job runs."""
    run = context.unit.records.run(command.run_id)
    if run is None:
        raise NotFound("No run with this runID", f"runID: there is no run {command.run_id}")
    job = context.unit.job(run.job_id)
    pending = False
    if job is not None and _can_be_triggered(job):
        pending = job.state in lifecycle.WORKING
        if pending:
            context.save(job.noting(pending=True))
        elif job.memory.trigger is None or job.memory.cause:
            context.save(triggered(context, job))
    else:
        job = _made_anew(context, run, context.unit.records.given_to(run.run_id))
        context.unit.insert(job)
        context.emit(JOB_CREATED)
    detail = f"run {run.run_id} again"
    context.note("triggered", name=job.name, job_id=job.job_id, by=command.by, detail=detail)
    return Answer(jsontext.dump({"jobID": job.job_id, "pending": pending}))


def _can_be_triggered(job: Job) -> bool:
    """Tell whether a job is a schedule that is there: two runs of it are never at work at once."""
    return ticks.is_schedule(job) and not job.memory.removed and job.state in ("QUEUED", *lifecycle.WORKING)


def _made_anew(context: Context, run: RunRow, given: RunGiven) -> Job:
    """Return a job that runs once, of what a run was given."""
    if not given.data:
        raise WrongState("Run has no data", f"runID: what run {run.run_id} was given was not kept")
    options = jsontext.with_members(given.options_json, dict.fromkeys(OF_A_SCHEDULE))
    return placed(
        Job(
            context.now, context.unit.new_job_id(), lifecycle.QUICK_CREATE[2], run.name, context.now_ms,
            data=given.data, priority=given.priority, options_json=options,
            lane=MOCK_LANE if is_mock_data(given.data) else OPEN_LANE,
        )
    )  # fmt: skip
