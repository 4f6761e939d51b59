"""Schedules with ``hosts: all``: a tick makes one job for each worker that is there and asks for the name.

Such a job is bound to its worker. It belongs to no family, is gone when it has ended well or badly, and is
dropped where its worker does not take it before the next tick.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.glob import glob
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import moment_of
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import ENDED, has_any, has_option, placed, with_options, word
from bedrockjobs.engine.handlers.trigger import after_trigger
from bedrockjobs.engine.workers import Worker
from bedrockjobs.job import lifecycle
from bedrockjobs.job.lanes import OWN_COMMANDS, parse_lane
from bedrockjobs.job.rows import Job

PASSED_ON = OPTIONS - {"hosts", "catchup", "overlap", "maxLate", "jitter", "expireAfter"}
"""The options of a schedule that its jobs have too."""


def asks_for(worker: Worker, name: str) -> bool:
    """Tell whether a worker asks for jobs of a name."""
    return any(glob(name, pattern) for pattern in worker.names)


def workers_for(context: Context, row: Job) -> list[Worker]:
    """Return the workers that are there, take jobs, and may run a schedule, by name."""
    own = next((key for key in OWN_COMMANDS if has_option(row, key)), "")
    drains = context.tx.records.drains()
    found = [
        worker
        for worker in context.presence.workers.values()
        if worker.name not in drains
        and not worker.quiet
        and asks_for(worker, row.name)
        and (not own or own in worker.accepts)
    ]
    return sorted(found, key=lambda worker: worker.name)


def fire(context: Context, row: Job) -> None:
    """Make the jobs of a due schedule, and move it on to its next tick."""
    manual = has_option(row, "trigger")
    if has_any(row, ENDED):  # it was tried again when it became one of these
        row = with_options(row, ENDED)
    due = row if manual else ticks.fire(context, row)
    if due is None:
        return
    workers = workers_for(context, due)
    tick = context.now if manual else ticks.tick_of(due)
    if not workers and not manual:
        ticks.skip(context, due, tick, tick, "no worker")
    elif not manual:
        ticks.fired(context, due, 0)
    following = ticks.next_after(due, context.now_ms)
    busy = _busy(context, due) if word(due, "overlap", "skip") == "skip" else frozenset()
    for worker in workers:
        if worker.name not in busy:
            context.tx.insert(_job_for(context, due, worker.name, tick, following, manual=manual))
    ran = due._replace(last_run=context.now, attempt=due.attempt + 1)
    again = after_trigger(context, ran) if manual else ticks.with_tick(ran, following)
    assert again is not None
    context.tx.save(again)


def _busy(context: Context, row: Job) -> frozenset[str]:
    """Return the workers whose job of an earlier tick has not ended."""
    jobs = context.tx.bound_of_name(row.name)
    return frozenset(parse_lane(job.lane).worker for job in jobs if job.state in lifecycle.PENDING)


def _job_for(context: Context, row: Job, worker: str, tick: str, following: str, *, manual: bool) -> Job:
    options = {key: text for key, text in jsontext.members(row.options).items() if key in PASSED_ON}
    options["boundTo"] = quoted(worker)
    if manual:
        options["cause"] = '"manual"'
    left = (moment_of(following) - moment_of(tick)).total_seconds()
    options["expireAfter"] = str(max(int(left) - 1, 1))
    return placed(
        Job(
            context.now,
            context.tx.new_job_id(),
            "QUEUED",
            row.name,
            tick,
            "",
            "",
            row.data,
            row.priority,
            options=jsontext.join(options),
        )
    )
