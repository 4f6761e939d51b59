"""ExplainJob: what stands between a job and its next run, the most decisive first."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.commands import ExplainJob
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.end import existing
from bedrockjobs.engine.handlers.hosts import asks_for, workers_for
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.job import lifecycle
from bedrockjobs.job.lanes import EVERY_LANE, parse_lane
from bedrockjobs.job.rows import Job
from bedrockjobs.store.base import Plan

AHEAD_MAX = 1_000
"""Jobs ahead that are counted."""


@handles(ExplainJob, plan=lambda command: Plan(jobs=(command.job_id,)))
def explain_job(context: Context, command: ExplainJob) -> Answer:
    """Answer the list of what a job waits for; nothing stands in the way of one whose list is empty."""
    row = existing(context, command.job_id)
    waits = [{"reason": reason, "detail": detail} for reason, detail in _reasons(context, row)]
    return Answer(
        jsontext.dump({"jobID": row.job_id, "state": row.state, "name": row.name, "waitsFor": waits})
    )


def _reasons(context: Context, row: Job) -> list[tuple[str, str]]:
    if row.state == "PAUSED":
        if row.parent_job_id:
            return [("children", f"its parent, job {row.parent_job_id}, has to finish its own work first")]
        pending = [child for child in context.unit.children(row.job_id) if child.state in lifecycle.PENDING]
        return [("children", f"{len(pending)} children have not ended")]
    if row.state != "QUEUED":
        return [("state", _state(row))]
    found = []
    pause = context.unit.records.pause_of(row.name)
    asked_for = row.memory.trigger is not None if row.lane == EVERY_LANE else parse_lane(row.lane).now
    if pause is not None and not asked_for:
        by = f" by {pause.by}" if pause.by else ""
        until = f" until {pause.until}" if pause.until else ""
        why = f": {pause.reason}" if pause.reason else ""
        found.append(("paused", f"{pause.pattern} is paused{by} since {pause.since}{until}{why}"))
    if row.next_run > context.now_ms:
        found.append(("nextRun", f"it is due at {row.next_run}"))
    if row.lane == EVERY_LANE:
        there = [worker.name for worker in workers_for(context, row)]
        return found if there else [*found, ("no worker", f"no worker that is there may run {row.name}")]
    if row.mocked:
        return [*found, ("mocked", "it is a mocked job: only a GetJob with getMockedJobs takes it")]
    lane = parse_lane(row.lane)
    holder = context.unit.lock_holder(lane.lock) if lane.lock else None
    if holder is not None:
        found.append(("lock", f"job {holder} holds the lock {lane.lock}"))
    drains = context.unit.records.drains()
    workers = [
        worker
        for worker in context.presence.workers.values()
        if worker.name not in drains and lane.worker in ("", worker.name)
    ]
    asking = [worker for worker in workers if asks_for(worker, row.name)]
    if lane.own and not any(lane.own in worker.accepts for worker in asking):
        found.append(("own command", f"no worker that asks for it accepts jobs with {lane.own}"))
    if not asking:
        which = f"worker {lane.worker}, for which it is, is not there, or" if lane.worker else ""
        who = f"none of {len(workers)} workers that are there asks for {row.name}"
        found.append(("no worker", f"{which} {who}".strip()))
    if row.next_run <= context.now_ms:
        ahead = context.unit.count_ahead(row, context.now_ms, AHEAD_MAX)
        if ahead:
            more = " or more" if ahead >= AHEAD_MAX else ""
            found.append(("ahead", f"{ahead}{more} jobs of its name come first"))
    return found


def _state(row: Job) -> str:
    if row.state == "RUNNING":
        return f"it runs since {row.last_run}" + (f", run {row.run_id}" if row.run_id else "")
    if row.state == "RUNQUEUED":
        return f"it runs since {row.last_run}, and is given out again at {row.next_run} unless it ends"
    if row.state == "FAILED":
        return "it has failed; RetryJob with revive queues it again"
    return f"it is {row.state}; it does not run again"
