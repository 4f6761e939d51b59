"""PingSchedule and GetPingSecret: runs on remote machines, reported by pings.

A tick waits in a lane (partition of the queue) from which nothing is taken. Pings open and end the run of the
tick, in one command or two; a ping long before the tick makes a triggered run. If no ping arrives,
``failing.time_over`` records the tick as missed.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds, moment_of
from bedrockjobs.base.config import OUTPUT_LINES_PER_APPEND_MAX
from bedrockjobs.base.errors import Unavailable, WrongState
from bedrockjobs.base.vocabulary import PING_WORKER
from bedrockjobs.commands import AppendOutput, FailJob, FinishJob, GetPingSecret, PingSchedule
from bedrockjobs.engine.handlers import runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles, plan_by_name
from bedrockjobs.engine.handlers.control import append_output, one_job
from bedrockjobs.engine.handlers.end import fail_job, finish_job
from bedrockjobs.engine.handlers.failing import stop_schedule
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, triggered
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import ping_grace_s
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.base import AccessPlan

PING_EARLY_S = 10
"""Maximum seconds that a ping may come before a tick and still belong to it: clocks of machines differ."""


def _plan(command: PingSchedule) -> AccessPlan:
    plan = plan_by_name(command)
    plan.new_runs = 1
    return plan


@handles(GetPingSecret, plan=plan_by_name)
def get_ping_secret(context: Context, command: GetPingSecret) -> Answer:
    """Reply with the secret of a schedule that expects pings."""
    job = _expecting(one_job(context, command))
    secret = context.presence.ping_secret(job.job_id)
    if not secret:
        raise Unavailable(detail="the first server of this database is starting: try again in a moment")
    return Answer(jsontext.dump({"jobID": job.job_id, "secret": secret, "path": f"/ping/{secret}"}))


@handles(PingSchedule, plan=_plan)
def ping_schedule(context: Context, command: PingSchedule) -> Answer:
    """Begin or end a remote run; a repeated start changes nothing."""
    job = _expecting(one_job(context, command))
    if job.state == "QUEUED":
        job = _begun(context, job, command.host)
    elif job.state != "RUNNING":
        error = job.memory.error or ""
        raise WrongState("Its repeat can not be evaluated", f"jobID: the job is {job.state}: {error}")
    run_id = job.run_id
    _keep_output(context, run_id, command.output)
    ended = command.event != "start"
    if ended:
        _end(_not_before(context, job), job, command)
    return Answer(f'{{"jobID":{job.job_id},"runID":{run_id}}}')


def _expecting(job: Job) -> Job:
    if not job.options.expect or not ticks.is_schedule(job):
        raise WrongState("No pings are expected", "jobID: expected a schedule with expect: ping")
    return job


def _begun(context: Context, job: Job, host: str) -> Job:
    """Return a queued schedule with the run that a ping begins, for its tick or as a triggered run."""
    tick = ticks.tick_of(job)
    if job.memory.trigger is None and tick > context.now:
        if after_seconds(tick, -PING_EARLY_S) > context.now:
            job = triggered(context, job)
        else:  # from a machine whose clock is ahead
            context = _at(context, tick)
    try:
        due = ticks.fire(context, job)
    except CannotEvaluate as error:
        stop_schedule(context, job, error)
        raise WrongState("Its repeat can not be evaluated", f"repeat: {error}") from None
    assert due is not None, "no maxLate goes together with expect"
    job, caught_up = due
    after = lifecycle.after_take(job, context.now, context.unit.new_run_id())
    limit = job.options.run_timeout or ping_grace_s(job)
    after = after._replace(expires=after_seconds(context.now_ms, limit))
    context.unit.save(after)
    names = names_from(job.name, None)
    assert names is not None
    runs.open_run(context, after, TakeRequest(names, worker=PING_WORKER, host=host), job.data)
    ticks.enter_fired(context, after, after.run_id, caught_up=caught_up)
    context.taken.append((job.name, ""))
    return after


def _not_before(context: Context, job: Job) -> Context:
    """Return a context whose time is not before the start of the job's run."""
    return _at(context, job.last_run) if job.last_run > context.now else context


def _at(context: Context, moment: str) -> Context:
    """Return a context for the same transaction with another time; both share their events."""
    other = Context(
        context.unit,
        context.compatibility,
        context.presence,
        moment=moment_of(moment),
        since=context.since,
        seen=context.seen,
        parts=context.parts,
    )
    other.caller, other.events, other.emit = context.caller, context.events, context.emit
    return other


def _keep_output(context: Context, run_id: int, text: str) -> None:
    lines = text.splitlines()[-OUTPUT_LINES_PER_APPEND_MAX:]
    if lines:
        first = context.unit.records.end_of_output(run_id)[0] + 1
        append_output(context, AppendOutput(run_id=run_id, seq=first, lines=lines))


def _end(context: Context, job: Job, command: PingSchedule) -> None:
    run: dict[str, int | None] = {"job_id": job.job_id, "run_id": job.run_id, "exit_code": command.exit_code}
    if command.event == "success" and not command.exit_code:
        finish_job(context, FinishJob.model_validate(run))
        return
    code = command.exit_code
    error = "A ping reported a failure" if code is None else f"Exit status {code}"
    fail_job(context, FailJob.model_validate({**run, "error": error, "final": True}))
