"""What becomes of a job whose run ended badly: it is tried again, goes on to its next tick, or has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import (
    BACKOFF_S_DEFAULT,
    BACKOFF_S_MAX_DEFAULT,
    GRACE_S_DEFAULT,
    LOST_RUNS_MAX,
    TAKE_BACK_S,
)
from bedrockjobs.base.errors import DamagedData
from bedrockjobs.base.fingerprints import line_of, shortened
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.commands import MarkSeen
from bedrockjobs.engine.events import JOB_LOST, JOB_RETRIED, RunForgotten
from bedrockjobs.engine.handlers import families, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.runs import given
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, next_run_of
from bedrockjobs.engine.handlers.trigger import after_asked_run
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import ping_grace_s, placed
from bedrockjobs.job.lifecycle import Transition
from bedrockjobs.job.rows import RETRY_AFTER_KEYS, Job
from bedrockjobs.store.base import AccessPlan, RowDamaged

log = logging.getLogger(__name__)

JITTER = 0.25
"""The most that is added to a retry's delay, as a part of it: jobs that failed together come back apart."""


def after_failure(
    context: Context, job: Job, *, final: bool, delay_s: int | None = None, retries: int | None = None
) -> None:
    """Write a job whose run failed: it is tried again, goes on to its next tick, or has failed for good.

    The next try comes after ``delay_s``, or its backoff; ``retries`` are those of a job that has no number.
    """
    memory = job.memory
    count = memory.failures + 1
    if final or count > given(job.options.retries, retries or 0) or memory.removed:
        over(context, job, "fail")
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
    context.emit(JOB_RETRIED)
    _note(context, "retried", job, memory.error or "")


def backoff_s(job: Job, count: int) -> float:
    """Return the seconds before a retry: doubled each time, within its limit, a little apart from others."""
    first = given(job.options.backoff, BACKOFF_S_DEFAULT)
    longest = given(job.options.max_backoff, max(BACKOFF_S_MAX_DEFAULT, first))
    seconds = min(first * 2.0 ** min(count - 1, 40), longest)
    return float(seconds * (1 + JITTER * (crc32(f"{job.job_id} {count}".encode()) % 1_000) / 1_000))


def over(context: Context, job: Job, event: Transition) -> None:
    """Write a job that failed for good by ``event``: a schedule goes on, another one is FAILED."""
    failed = job.noting(failed=True)
    try:
        following = _following(context, failed)
    except CannotEvaluate as error:
        break_off(context, failed, error)
        return
    if following is None:
        fail_for_good(context, job, event)
        return
    families.cancel_unstarted_children(context, job)
    families.delete_reported_children(context, job)
    context.save(lifecycle.move(following, event, "runs again"))
    _note(context, "failed", job, job.memory.error or "")


def fail_for_good(context: Context, job: Job, event: Transition, words: str = "") -> None:
    """Write a job that is FAILED by ``event``, and tell its family; ``words`` say why if its error does not.

    One of a schedule on all hosts, or whose schedule was removed, leaves only its run.

    Differs from Bedrock: a FAILED child counts as ended, so its parent goes on.
    """
    failed = job.noting(failed=True)
    if job.memory.bound_to or job.memory.removed:
        context.save(lifecycle.move(failed, event, "leaves only its run"))
    else:
        context.save(lifecycle.move(failed, event))
    _note(context, "failed", job, words or job.memory.error or "")
    families.cancel_unstarted_children(context, job)
    resume_parent(context, job.parent_job_id)


def resume_parent(context: Context, job_id: int) -> None:
    """Let a PAUSED parent go on of whose children none is pending any more: it is queued again, or it has
    failed with a child where its ``onChildFailure`` says so.
    """
    parent = context.unit.job(job_id) if job_id else None
    if parent is None or parent.state != "PAUSED" or context.unit.has_pending_children(job_id):
        return
    failed = families.failed_children(context, parent) if parent.options.on_child_failure == "fail" else []
    if failed:
        first = failed[0]
        words = (
            f"Child job {first.job_id} ({first.name}) failed:"
            f" {line_of(first.memory.error or '') or 'no error was given'}"
        )
        words += f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        over(context, parent.noting(error=shortened(words))._replace(expires=""), "child failed")
    else:
        context.save(placed(lifecycle.move(parent, "children end"))._replace(expires=""))


def _note(context: Context, kind: str, job: Job, detail: str) -> None:
    """Tell people what became of a job's run."""
    context.note(kind, name=job.name, job_id=job.job_id, run_id=job.run_id, detail=detail)


def _following(context: Context, job: Job) -> Job | None:
    """Return a job planned for what comes after its failed run; None where nothing does."""
    memory = job.memory
    if memory.asked_for and (following := after_asked_run(context, job)) is not None:
        return following
    if ticks.is_schedule(job):  # a failed run does not end a schedule
        return ticks.after_run(context, job.remembering(memory.after_end()))
    return None


def stopped(context: Context, job: Job) -> None:
    """Write a job that was cancelled while it ran, and whose run is closed: it repeats, or it is over."""
    ended = job.remembering(job.memory.after_run().after_end())._replace(expires="")
    try:
        following = _following(context, ended) or next_run_of(context, ended)
    except CannotEvaluate as error:
        break_off(context, ended, error)
        return
    families.cancel_unstarted_children(context, job)
    if following is not None:
        if job.retry_after:
            data = jsontext.with_members(following.data, dict.fromkeys(RETRY_AFTER_KEYS))
            following = following._replace(data=data)
        context.save(lifecycle.move(following, "stop", "runs again"))
    elif job.parent_job_id:
        context.save(lifecycle.move(ended, "stop", "has parent"))
        resume_parent(context, job.parent_job_id)
    else:
        families.delete_reported_children(context, job)
        context.save(lifecycle.move(ended, "stop"))


def break_off(context: Context, job: Job, error: CannotEvaluate) -> None:
    """Write a schedule that can be evaluated no more as FAILED; UpdateJob or RetryJob mends it."""
    words = shortened(f"Its repeat can not be evaluated: {error}")
    notes = job.memory.after_end()._replace(
        error=words, broken=True, failed=True, trigger=None, pending=False, before=None
    )
    context.save(lifecycle.move(job.remembering(notes), "break", expires=""))
    families.cancel_unstarted_children(context, job)
    _note(context, "failed", job, words)


def mended(context: Context, job: Job) -> Job:
    """Return a schedule that could not be evaluated, queued again for its new repeat; any other as it is."""
    if not job.memory.broken or job.state != "FAILED":
        return job
    context.unit.records.delete_seen("job", job.job_id)
    return lifecycle.move(job.remembering(job.memory._replace(broken=False, error=None)), "mend")


def set_aside(context: Context, damaged: Job) -> DamagedData:
    """Write a job whose data was damaged in the file as FAILED, and return what to tell who needed it.

    What was found of its data is kept, marked as damaged. UpdateJob with other data and RetryJob with
    ``revive`` bring it back. One that has ended, or failed before, stays in its state.
    """
    words = f"The data of job {damaged.job_id} was damaged in the file: it is not what was stored."
    log.error("%s", words)
    job = Job._make(damaged)
    if lifecycle.allows("break", job.state):
        runs.close(context, job, "fail", error=words)
        notes = job.memory.after_end()._replace(error=words, trigger=None, pending=False, before=None)
        context.save(lifecycle.move(job.remembering(notes), "break", expires=""))
        with suppress(RowDamaged):  # one of its family, which is set aside when it is needed itself
            families.cancel_unstarted_children(context, job)
            resume_parent(context, job.parent_job_id)
    else:
        context.save(job)
    _note(context, "damaged", job, words)
    return DamagedData(detail=f"{words} It is kept as FAILED: give it other data, and revive it.")


def unless_broken(context: Context, job: Job, act: Callable[[], None]) -> None:
    """Do something for which a queued schedule has to be evaluated; one that cannot be is FAILED."""
    try:
        act()
    except CannotEvaluate as error:
        break_off(context, job, error)


def lost(context: Context, job: Job, status: str, words: str) -> None:
    """Write a job whose run was taken away from its worker, which is closed already."""
    if job.memory.cancelled:
        stopped(context, job)
        return
    context.emit(JOB_LOST)
    memory = job.memory._replace(error=words, overtime=0)
    losses = memory.losses + 1
    if (
        status in ("terminated", "killed")
        or ticks.is_schedule(job)
        or memory.removed
        or job.options.on_lost == "fail"
        or losses >= LOST_RUNS_MAX
    ):
        over(context, job.remembering(memory), "lose")
        return
    again = job.remembering(memory._replace(losses=losses, cause="lost"))
    context.save(placed(lifecycle.move(again, "lose", "runs again", next_run=context.now_ms)))


def lease_over(context: Context, run_id: int) -> None:
    """Take the job of a silent worker away from it."""
    run = context.unit.records.run(run_id)
    job = None if run is None or run.status != "running" else context.unit.job(run.job_id)
    if run is None or job is None or job.run_id != run_id:  # it is not there, and must not be asked for again
        context.emit(RunForgotten(run_id))
        return
    words = f"Run lost: worker {run.worker} was silent for {run.lease} s"
    status = runs.close(context, job, "frozen", error=words)
    context.note("lost", name=job.name, job_id=job.job_id, run_id=run_id, by=run.worker, detail=words)
    lost(context, job, status, words)


def time_over(context: Context, job: Job) -> None:
    """Deal with a job whose ``expires`` has passed."""
    if job.state == "QUEUED":
        _not_started(context, job)
    elif job.state in lifecycle.WORKING:
        _takes_too_long(context, job)
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
    context.save(lifecycle.move(job, "expire"))
    families.cancel_unstarted_children(context, job)
    resume_parent(context, job.parent_job_id)


def _no_ping(context: Context, job: Job) -> None:
    """Move a schedule on for whose tick no ping came; it has failed, unless none could come."""
    waiting, by = job._replace(expires=""), job.expires
    if context.unit.records.pause_of(job.name) is not None:
        ticks.skip_one(context, waiting, "paused")
    elif context.since and context.seen <= by < context.since:
        ticks.skip_one(context, waiting, "server down")
    else:
        words = f"No ping came by {by[:19]}, for {ticks.tick_of(job)}"
        ticks.skip_one(context, waiting.noting(failed=True, error=words), ticks.NO_PING)
        _note(context, "missed", job, words)


def _takes_too_long(context: Context, job: Job) -> None:
    """TERM, then KILL, then the job is taken back whatever its worker says."""
    stage = job.memory.overtime if job.run_id and not job.options.expect else 2
    if stage < 2:
        run = context.unit.records.run(job.run_id)
        signal = ("TERM", "KILL")[stage]
        if run is not None and run.stop not in ("", "TERM" + runs.TIMED_OUT):
            runs.stop(context, job.run_id, "KILL" if stage else run.stop)
        else:
            runs.stop(context, job.run_id, signal + runs.TIMED_OUT)
        wait = TAKE_BACK_S if stage else given(job.options.grace, GRACE_S_DEFAULT)
        later = job.noting(overtime=stage + 1)
        context.save(later._replace(expires=after_seconds(context.now_ms, wait)))
        return
    if job.memory.cancelled:
        status, words = "fail", "Run did not end after its job was cancelled"
    else:
        limit = job.options.run_timeout or (ping_grace_s(job) if job.options.expect else 0)
        status, words = "timeout", f"Run over its time: {limit} s"
        _note(context, "timeout", job, words)
    status = runs.close(context, job, status, error=words)
    lost(context, job._replace(expires=""), status, words)


# MarkSeen: somebody has looked at failures. A job that leaves FAILED is forgotten where it does so.


@handles(MarkSeen, plan=lambda command: AccessPlan(jobs=tuple(command.job_ids), runs=tuple(command.run_ids)))
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
        ("run", [*(run.run_id for run in runs), *of_jobs]),  # a job and its run are one failure
    ):
        for number in numbers:
            if command.seen:
                records.put_seen(kind, number, command.by, context.now)
            else:
                records.delete_seen(kind, number)
        if numbers and command.seen:
            records.trim_seen(kind)
    return Answer(jsontext.dump({"jobs": len(jobs), "runs": len(runs)}))
