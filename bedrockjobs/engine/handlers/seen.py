"""MarkSeen: somebody has looked at failures. A job that leaves FAILED is forgotten where it does so."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.statuses import FAILED_STATUSES
from bedrockjobs.commands import MarkSeen
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.store.base import Plan


@handles(MarkSeen, plan=lambda command: Plan(jobs=tuple(command.job_ids), runs=tuple(command.run_ids)))
def mark_seen(context: Context, command: MarkSeen) -> Answer:
    """Mark failures as seen, or take that back; answers how many."""
    unit, records = context.unit, context.unit.records
    jobs = [job for job in map(unit.job, dict.fromkeys(command.job_ids)) if job and job.state == "FAILED"]
    runs = [
        run
        for run in map(records.run, dict.fromkeys(command.run_ids))
        if run and run.status in FAILED_STATUSES
    ]
    of_jobs = filter(None, map(records.last_failed_run, (job.job_id for job in jobs)))
    for kind, numbers in (
        ("job", [job.job_id for job in jobs]),
        (
            "run",
            [*(run.run_id for run in runs), *of_jobs],
        ),  # a job and its run are one failure
    ):
        for number in numbers:
            if command.seen:
                records.put_seen(kind, number, command.by, context.now)
            else:
                records.delete_seen(kind, number)
        if numbers and command.seen:
            records.trim_seen(kind)
    return Answer(jsontext.dump({"jobs": len(jobs), "runs": len(runs)}))
