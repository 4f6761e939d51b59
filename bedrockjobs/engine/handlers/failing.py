"""Failed runs: retry with backoff, the next tick of a schedule, or the state FAILED."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds, retry_after_s
from bedrockjobs.base.config import GRACE_S_DEFAULT, LOST_RUNS_MAX, MUTED_RELEASES_MAX, MUTES_MAX, TAKE_BACK_S
from bedrockjobs.base.errors import BadArguments, DamagedData, NotFound, TooMany, line_of, shortened
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import MarkSeen, MuteFailures
from bedrockjobs.engine.events import JobLost, JobRetried, RunForgotten
from bedrockjobs.engine.handlers import families, graph, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.runs import value_or
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, after_triggered_run, next_run_of
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import ping_grace_s, placed, plain_pattern
from bedrockjobs.job.lifecycle import Transition
from bedrockjobs.job.limits import Mute
from bedrockjobs.job.rows import RETRY_AFTER_KEYS, Job
from bedrockjobs.store.base import AccessPlan, RowDamaged

log = logging.getLogger(__name__)


def after_failure(
    context: Context, job: Job, *, final: bool, delay_s: int | None = None, retries: int | None = None
) -> None:
    """Store a job whose run failed: retry it, continue its schedule, or make it FAILED.

    The retry comes after ``delay_s`` or the backoff; ``retries`` applies if the job has no such option.
    """
    memory = job.memory
    count = memory.failures + 1
    if final or count > value_or(job.options.retries, retries or 0) or memory.removed:
        fail_permanently(context, job, "fail")
        return
    notes = memory._replace(failures=count, cause="retry", overtime=0)
    if ticks.is_schedule(job):
        notes = notes._replace(tick=ticks.tick_of(job))
    families.delete_reported_children(context, job)
    again = lifecycle.move(
        job.remembering(notes),
        "fail",
        "runs again",
        next_run=after_seconds(context.now_ms, backoff_s(job, count) if delay_s is None else delay_s),
    )
    context.save(placed(again))
    context.emit(JobRetried(job.name))
    _record(context, "retried", job, memory.error or "")


def backoff_s(job: Job, count: int) -> float:
    """Return the backoff before a retry: doubled each time up to a limit, with jitter."""
    seconds = retry_after_s(job.options.backoff, job.options.max_backoff, count)
    # Maximum share added to a backoff, so that jobs that failed together are not retried together.
    return float(seconds * (1 + 0.25 * (crc32(f"{job.job_id} {count}".encode()) % 1_000) / 1_000))


def fail_permanently(context: Context, job: Job, event: Transition) -> None:
    """Store a job that failed permanently by ``event``: continue a schedule, make any other job FAILED."""
    failed = job.noting(failed=True)
    try:
        following = _following(context, failed)
    except CannotEvaluate as error:
        stop_schedule(context, failed, error)
        return
    if following is None:
        make_failed(context, job, event)
        return
    families.cancel_unstarted_children(context, job)
    families.delete_reported_children(context, job)
    context.save(lifecycle.move(following, event, "runs again"))
    _record(context, "failed", job, job.memory.error or "")


def make_failed(context: Context, job: Job, event: Transition, error: str = "") -> None:
    """Make a job FAILED by ``event``, and update its family; ``error``, if given, is recorded as the reason.

    A broadcast job, or one whose schedule was removed, is deleted and leaves only its run.

    Differs from Bedrock: a FAILED child counts as ended, so its parent continues.
    """
    failed = job.noting(failed=True)
    if job.memory.bound_to or job.memory.removed:
        context.save(lifecycle.move(failed, event, "leaves only its run"))
    else:
        context.save(lifecycle.move(failed, event))
    _record(context, "failed", job, error or job.memory.error or "")
    families.cancel_unstarted_children(context, job)
    resume_parent(context, job.parent_job_id)


def resume_parent(context: Context, job_id: int) -> None:
    """Queue a PAUSED parent again if no child is pending, or fail it if ``onChildFailure`` says so."""
    parent = context.unit.job(job_id) if job_id else None
    if parent is None or parent.state != "PAUSED" or context.unit.has_pending_children(job_id):
        return
    if graph.waits(context, parent):
        return
    failed = families.failed_children(context, parent) if parent.options.on_child_failure == "fail" else []
    if failed:
        first = failed[0]
        error = (
            f"Child job {first.job_id} ({first.name}) failed:"
            f" {line_of(first.memory.error or '') or 'no error was given'}"
        )
        error += f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        fail_permanently(context, parent.noting(error=shortened(error))._replace(expires=""), "child failed")
    else:
        context.save(placed(lifecycle.move(parent, "children end"))._replace(expires=""))


def _record(context: Context, kind: str, job: Job, detail: str) -> None:
    """Record an event about a job's run."""
    context.note(kind, name=job.name, job_id=job.job_id, run_id=job.run_id, detail=detail)


def _following(context: Context, job: Job) -> Job | None:
    """Return a job planned for its next run after a failure, or None if there is no next run."""
    memory = job.memory
    if memory.has_triggered_run and (following := after_triggered_run(context, job)) is not None:
        return following
    if ticks.is_schedule(job):  # a failed run does not end a schedule
        return ticks.after_run(context, job.remembering(memory.after_end()))
    return None


def stopped(context: Context, job: Job, event: Transition = "stop") -> None:
    """Store a job that was cancelled during a run, now closed: plan the job's next run, or end the job."""
    ended = job.remembering(job.memory.after_run().after_end())._replace(expires="")
    try:
        following = _following(context, ended) or next_run_of(context, ended)
    except CannotEvaluate as error:
        stop_schedule(context, ended, error)
        return
    families.cancel_unstarted_children(context, job, kept=following is None)
    if following is not None:
        if job.retry_after:
            data = jsontext.with_members(following.data, dict.fromkeys(RETRY_AFTER_KEYS))
            following = following._replace(data=data)
        context.save(lifecycle.move(following, event, "runs again"))
        return
    ended = ended._replace(expires=families.record_until(context, ended))
    if job.parent_job_id:
        context.save(lifecycle.move(ended, event, "has parent"))
        resume_parent(context, job.parent_job_id)
    else:
        families.delete_reported_children(context, job)
        context.save(lifecycle.move(ended, event, *families.of_workflow(job)))


def stop_schedule(context: Context, job: Job, error: CannotEvaluate) -> None:
    """Make a schedule FAILED because its repeat cannot be evaluated; UpdateJob or RetryJob repairs it."""
    message = shortened(f"Its repeat can not be evaluated: {error}")
    notes = job.memory.after_end()._replace(
        error=message, broken=True, failed=True, trigger=None, pending=False, before=None
    )
    context.save(lifecycle.move(job.remembering(notes), "break", expires=""))
    families.cancel_unstarted_children(context, job)
    _record(context, "failed", job, message)


def repaired(context: Context, job: Job) -> Job:
    """Return a job; a FAILED schedule whose repeat could not be evaluated is returned as queued again."""
    if not job.memory.broken or job.state != "FAILED":
        return job
    context.unit.records.delete_seen("job", job.job_id)
    return lifecycle.move(job.remembering(job.memory._replace(broken=False, error=None)), "mend")


def set_aside(context: Context, damaged: Job) -> DamagedData:
    """Make a job FAILED whose data is damaged in the file, and return the error for the command.

    Its remaining data is kept and marked as damaged. UpdateJob with new data and RetryJob with ``revive``
    repair it. A job that had already ended or failed keeps its state.
    """
    text = f"The data of job {damaged.job_id} was damaged in the file: it is not what was stored."
    log.error("%s", text)
    job = Job._make(damaged)
    if lifecycle.allows("break", job.state):
        runs.close(context, job, "fail", error=text)
        notes = job.memory.after_end()._replace(error=text, trigger=None, pending=False, before=None)
        context.save(lifecycle.move(job.remembering(notes), "break", expires=""))
        with suppress(RowDamaged):  # a damaged child or parent is set aside when it is itself needed
            families.cancel_unstarted_children(context, job)
            resume_parent(context, job.parent_job_id)
    else:
        context.save(job)
    _record(context, "damaged", job, text)
    return DamagedData(detail=f"{text} It is kept as FAILED: give it other data, and revive it.")


def unless_broken(context: Context, job: Job, act: Callable[[], None]) -> None:
    """Call ``act`` for a queued schedule; make the schedule FAILED if it cannot be evaluated."""
    try:
        act()
    except CannotEvaluate as error:
        stop_schedule(context, job, error)


def lose_run(context: Context, job: Job, status: str, error: str) -> None:
    """Store a job whose run was lost and is already closed: retry it, continue its schedule or fail it."""
    if job.memory.cancelled:
        stopped(context, job)
        return
    context.emit(JobLost(job.name))
    memory = job.memory._replace(error=error, overtime=0)
    losses = memory.losses + 1
    if (
        status in ("terminated", "killed")
        or ticks.is_schedule(job)
        or memory.removed
        or job.options.on_lost == "fail"
        or losses >= LOST_RUNS_MAX
    ):
        fail_permanently(context, job.remembering(memory), "lose")
        return
    again = job.remembering(memory._replace(losses=losses, cause="lost"))
    context.save(placed(lifecycle.move(again, "lose", "runs again", next_run=context.now_ms)))


def lease_over(context: Context, run_id: int) -> None:
    """Mark the run of a silent worker as lost."""
    run = context.unit.records.read_run(run_id)
    job = None if run is None or run.status != "running" else context.unit.job(run.job_id)
    if run is None or job is None or job.run_id != run_id:  # the run is missing: stop counting its lease
        context.emit(RunForgotten(run_id))
        return
    error = f"Run lost: worker {run.worker} was silent for {run.lease} s"
    status = runs.close(context, job, "frozen", error=error)
    context.note("lost", name=job.name, job_id=job.job_id, run_id=run_id, by=run.worker, detail=error)
    lose_run(context, job, status, error)


def time_over(context: Context, job: Job) -> None:
    """Handle a job whose ``expires`` has passed."""
    if job.state == "QUEUED":
        _not_started(context, job)
    elif job.state in lifecycle.WORKING:
        _takes_too_long(context, job)
    elif job.state == "CANCELLED":  # its record has been kept for long enough
        context.save(lifecycle.move(job, "delete"))
    else:
        context.save(job._replace(expires=""))


def _not_started(context: Context, job: Job) -> None:
    if job.options.expect and ticks.is_schedule(job):
        unless_broken(context, job, lambda: _no_ping(context, job))
        return
    detail = f"not started, due at {job.next_run}"
    context.note("expired", name=job.name, job_id=job.job_id, detail=detail)
    if ticks.is_schedule(job):
        waiting = job._replace(expires="")
        context.save(waiting)
        held = context.unit.lock_held(job.lane)
        reason = "too late" if held is None or held.until else "lock held"
        unless_broken(context, waiting, lambda: ticks.skip_overdue(context, waiting, reason))
        return
    error = "It was not started in time" if job.memory.workflow else job.memory.error
    context.save(lifecycle.move(job.noting(error=error), "expire", *families.of_workflow(job), expires=""))
    families.cancel_unstarted_children(context, job)
    resume_parent(context, job.parent_job_id)


def _no_ping(context: Context, job: Job) -> None:
    """Skip a tick for which no ping came; the schedule counts as failed unless no ping could have arrived."""
    waiting, by = job._replace(expires=""), job.expires
    if context.unit.records.pause_of(job.name) is not None:
        ticks.skip_one(context, waiting, "paused")
    elif context.since and context.seen <= by < context.since:
        ticks.skip_one(context, waiting, "server down")
    else:
        error = f"No ping came by {by[:19]}, for {ticks.tick_of(job)}"
        ticks.skip_one(context, waiting.noting(failed=True, error=error), ticks.NO_PING)
        _record(context, "missed", job, error)


def _takes_too_long(context: Context, job: Job) -> None:
    """Send TERM, then KILL, then mark the run as timed out without waiting for the worker."""
    stage = job.memory.overtime if job.run_id and not job.options.expect else 2
    if stage < 2:
        run = context.unit.records.read_run(job.run_id)
        signal = ("TERM", "KILL")[stage]
        if run is not None and run.stop not in ("", "TERM" + runs.TIMED_OUT):
            runs.stop(context, job.run_id, "KILL" if stage else run.stop)
        else:
            runs.stop(context, job.run_id, signal + runs.TIMED_OUT)
        wait = TAKE_BACK_S if stage else value_or(job.options.grace, GRACE_S_DEFAULT)
        later = job.noting(overtime=stage + 1)
        context.save(later._replace(expires=after_seconds(context.now_ms, wait)))
        return
    if job.memory.cancelled:
        status, error = "fail", "Run did not end after its job was cancelled"
    else:
        limit = job.options.run_timeout or (ping_grace_s(job) if job.options.expect else 0)
        status, error = "timeout", f"Run over its time: {limit} s"
        _record(context, "timeout", job, error)
    status = runs.close(context, job, status, error=error)
    lose_run(context, job._replace(expires=""), status, error)


# MarkSeen acknowledges failures. Leaving the state FAILED removes the acknowledgement.


@handles(MarkSeen, plan=lambda command: AccessPlan(jobs=tuple(command.job_ids), runs=tuple(command.run_ids)))
def mark_seen(context: Context, command: MarkSeen) -> Answer:
    """Acknowledge failures, or undo that; reply with the number of jobs and of runs."""
    unit, records = context.unit, context.unit.records
    jobs = [job for job in map(unit.job, dict.fromkeys(command.job_ids)) if job and job.state == "FAILED"]
    runs = [
        run
        for run in map(records.read_run, dict.fromkeys(command.run_ids))
        if run and run.status in FAILED_STATUSES
    ]
    of_jobs = filter(None, map(records.last_failed_run, (job.job_id for job in jobs)))
    for kind, numbers in (
        ("job", [job.job_id for job in jobs]),
        ("run", [*(run.run_id for run in runs), *of_jobs]),  # a job and its last run are one failure
    ):
        for number in numbers:
            if command.seen:
                records.put_seen(kind, number, command.by, context.now)
            else:
                records.delete_seen(kind, number)
        if numbers and command.seen:
            records.trim_seen(kind)
    return Answer(jsontext.dump({"jobs": len(jobs), "runs": len(runs)}))


# MuteFailures acknowledges failures before they happen.


@handles(MuteFailures, plan=lambda _: AccessPlan(control=True))
def mute_failures(context: Context, command: MuteFailures) -> Answer:
    """Mute a fingerprint for matching names, or undo that; expired mutes are deleted."""
    records = context.unit.records
    pattern = plain_pattern(command.name)
    mine = command.fingerprint, pattern
    others = [mute for mute in records.mutes() if (mute.fingerprint, mute.pattern) != mine]
    if command.undo:
        if len(others) == len(records.mutes()):
            raise NotFound("Not muted", f"fingerprint: {command.fingerprint} is not muted for {pattern}")
        records.set_mutes(tuple(others))
        context.note("unmuted", name=pattern, by=command.by, detail=command.fingerprint)
        return Answer()
    others = [mute for mute in others if not mute.until or context.now_ms < mute.until]
    if len(others) >= MUTES_MAX:
        raise TooMany("Too many mutes", f"fingerprint: expected at most {MUTES_MAX} in all")
    until = stamped(command.until, context.now_ms)
    if command.until is not None and until <= context.now_ms:
        raise BadArguments("Malformed until", "until: expected a time in the future")
    releases = (
        () if until else tuple(sorted({worker.version for worker in context.presence.workers.values()}))
    )
    if len(releases) > MUTED_RELEASES_MAX:
        raise TooMany(
            "Too many releases", f"until: expected, as workers have over {MUTED_RELEASES_MAX} versions"
        )
    mute = Mute(*mine, command.by, command.reason, context.now, until, releases)
    records.set_mutes((*others, mute))
    records.see_alike(mute)
    detail = ": ".join(filter(None, (command.fingerprint, command.reason)))
    context.note("muted", name=pattern, by=command.by, detail=detail)
    return Answer()
