"""Broadcast jobs: each tick of a schedule with ``hosts: all`` creates one job for each live worker.

Such a job is bound to its worker and has no parent or children. It is deleted when it ends, and dropped if
its worker does not take it before the next tick.
"""

from __future__ import annotations

from collections import defaultdict

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import moment_of
from bedrockjobs.base.config import HOSTS_PER_CALLER_MAX
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.ticks import after_triggered_run
from bedrockjobs.engine.workers import Worker
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import OPTION_NAMES, Job, Memory, encode_memory, parse_lane

PASSED_ON = OPTION_NAMES - {"hosts", "catchup", "overlap", "maxLate", "jitter", "expireAfter", "source"}
"""Options that the created jobs inherit from the schedule."""


def workers_for(context: Context, job: Job) -> list[str]:
    """Return the names of the live workers that take jobs and may run a schedule.

    Any token holder may invent workers, so each token gets jobs for a limited number of them. Workers that
    ever got a job come first, then the workers that have been alive the longest.
    """
    own = job.options.own_command
    drains = context.unit.records.drains()
    presence = context.presence
    found: dict[str, Worker] = {}
    for pattern in presence.requested_names.patterns_of(job.name):
        for name in presence.requested_names.workers(pattern):
            worker = presence.workers[name]
            if name not in drains and not worker.quiet and (not own or own in worker.accepts):
                found[name] = worker
    by_token: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in found.values():
        by_token[worker.by or ""].append(worker)
    for token, some in by_token.items():
        if len(some) > HOSTS_PER_CALLER_MAX:
            some.sort(key=lambda worker: (not worker.served, worker.joined, worker.name))
            for worker in some[HOSTS_PER_CALLER_MAX:]:
                del found[worker.name]
            whose = f" of token {token}" if token else ""
            detail = f"{HOSTS_PER_CALLER_MAX:,} of {len(some):,} workers{whose} got a job of this tick"
            context.note("limited", name=job.name, job_id=job.job_id, detail=detail)
    return sorted(found)


def fire_on_all_hosts(context: Context, job: Job) -> None:
    """Create the jobs of a due schedule, and plan its next tick; raise CannotEvaluate."""
    manual = job.memory.trigger is not None
    job = job.remembering(job.memory.after_end())  # it was a retry when it became a broadcast schedule
    due = (job, False) if manual else ticks.fire(context, job)
    if due is None:
        return
    job, caught_up = due
    workers = workers_for(context, job)
    tick = context.now if manual else ticks.tick_of(job)
    following = ticks.next_after(job, context.now_ms)
    if not workers and not manual:
        ticks.skip(context, job, tick, tick, "no worker")
    elif not manual:
        ticks.enter_fired(context, job, 0, caught_up=caught_up)
    busy = frozenset() if job.options.overlap == "queue" else _busy(context, job)
    for worker in in_slices(workers):
        if worker not in busy:
            context.unit.insert(_job_for(context, job, worker, tick, following, manual=manual))
    ran = job._replace(last_run=context.now, attempt=job.attempt + 1)
    again = after_triggered_run(context, ran) if manual else ticks.with_tick(ran, following)
    assert again is not None
    context.save(again)


def _busy(context: Context, job: Job) -> frozenset[str]:
    """Return the workers whose job of an earlier tick is still pending."""
    jobs = context.unit.bound_of_name(job.name)
    return frozenset(parse_lane(one.lane).worker for one in jobs if one.state in lifecycle.PENDING)


def _job_for(context: Context, schedule: Job, worker: str, tick: str, following: str, *, manual: bool) -> Job:
    options = {key: text for key, text in jsontext.members(schedule.options_json).items() if key in PASSED_ON}
    left = (moment_of(following) - moment_of(tick)).total_seconds()
    options["expireAfter"] = str(max(int(left) - 1, 1))
    memory = Memory(bound_to=worker, cause="manual" if manual else "")
    return placed(
        Job(
            context.now,
            context.unit.new_job_id(),
            lifecycle.target("create", lifecycle.GONE),
            schedule.name,
            tick,
            data=schedule.data,
            priority=schedule.priority,
            options_json=jsontext.join(options),
            memory_json=encode_memory(memory),
        )
    )
