"""What becomes of a job whose run ended badly: it is tried again, goes on to its next tick, or has failed."""

from __future__ import annotations

from zlib import crc32

from bedrockjobs.base.config import (
    BACKOFF_S_DEFAULT,
    BACKOFF_S_MAX_DEFAULT,
    GRACE_S_DEFAULT,
    LOST_RUNS_MAX,
    TAKE_BACK_S,
)
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.engine.handlers import families, runs, ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import (
    ENDED,
    after_seconds,
    has_option,
    option,
    placed,
    with_options,
    word,
)
from bedrockjobs.engine.handlers.trigger import after_trigger, has_more
from bedrockjobs.job.rows import Job

JITTER = 0.25
"""The most that is added to a retry's delay, as a part of it: jobs that failed together come back apart."""


def after_failure(context: Context, row: Job, *, final: bool) -> None:
    """Write a job whose run failed: retries are left, or a schedule goes on, or it has failed for good."""
    count = option(row, "failures", 0) + 1
    if not final and count <= option(row, "retries", 0) and not has_option(row, "removed"):
        again = with_options(
            row, {"failures": str(count), "cause": '"retry"', "overtime": None, **_tick(row)}
        )
        again = again._replace(
            state="QUEUED", run_id=0, next_run=after_seconds(context.now_ms, backoff_s(row, count))
        )
        families.delete_ended_children(context, row)
        context.tx.save(placed(again))
        context.retried += 1
        return
    over(context, row)


def _tick(row: Job) -> dict[str, str | None]:
    """Return the change that lets a schedule remember which tick it is trying."""
    return {"tick": quoted(ticks.tick_of(row))} if ticks.is_schedule(row) else {}


def backoff_s(row: Job, count: int) -> float:
    """Return the seconds before a retry: doubled each time, within its limit, a little apart from others."""
    first = option(row, "backoff", BACKOFF_S_DEFAULT)
    longest = option(row, "maxBackoff", max(BACKOFF_S_MAX_DEFAULT, first))
    seconds = min(first * 2.0 ** min(count - 1, 40), longest)
    return float(seconds * (1 + JITTER * (crc32(f"{row.job_id} {count}".encode()) % 1_000) / 1_000))


def over(context: Context, row: Job) -> None:
    """Write a job that is not tried again: a schedule goes on, another one has FAILED."""
    more = after_trigger(context, row) if has_more(row) else None
    if more is not None:
        families.cancel_unstarted_children(context, row)
        context.tx.save(more)
    elif ticks.is_schedule(row):  # a failed run does not end a schedule
        families.cancel_unstarted_children(context, row)
        context.tx.save(ticks.after_run(context, with_options(row, ENDED)))
    else:
        families.fail_for_good(context, row)
        context.note(
            "failed", name=row.name, job_id=row.job_id, run_id=row.run_id, detail=word(row, "error", "")
        )


def lost(context: Context, row: Job, status: str, words: str) -> None:
    """Write a job whose run was taken away from its worker, which is closed already."""
    context.lost += 1
    row = with_options(row, {"error": quoted(words), "overtime": None})
    losses = option(row, "losses", 0) + 1
    if (
        status in ("terminated", "killed")
        or ticks.is_schedule(row)
        or has_option(row, "removed")
        or word(row, "onLost", "retry") == "fail"
        or losses >= LOST_RUNS_MAX
    ):
        over(context, row)
        return
    again = with_options(row, {"losses": str(losses), "cause": '"lost"'})
    context.tx.save(placed(again._replace(state="QUEUED", run_id=0, next_run=context.now_ms)))


def lease_over(context: Context, run_id: int) -> None:
    """Take the job of a silent worker away from it."""
    run = context.tx.records.run(run_id)
    if run is None or run.status != "running":
        context.after.append(lambda: context.presence.closed(run_id))
        return
    row = context.tx.job(run.job_id)
    if row is None or row.run_id != run_id:  # it cannot be, and must not be asked for again
        context.after.append(lambda: context.presence.closed(run_id))
        return
    words = f"Run lost: worker {run.worker} was silent for {run.lease} s"
    status = runs.close(context, row, "frozen", error=words)
    context.note("lost", name=row.name, job_id=row.job_id, run_id=run_id, by=run.worker, detail=words)
    lost(context, row, status, words)


def time_over(context: Context, row: Job) -> None:
    """Deal with a job whose ``expires`` has passed."""
    if row.state == "QUEUED":
        _not_started(context, row)
    elif row.state in ("RUNNING", "RUNQUEUED"):
        _takes_too_long(context, row)
    else:
        context.tx.save(row._replace(expires=""))


def _not_started(context: Context, row: Job) -> None:
    context.note("expired", name=row.name, job_id=row.job_id, detail=f"not started, due at {row.next_run}")
    if ticks.is_schedule(row):
        context.tx.save(row._replace(expires=""))
        ticks.skip_overdue(context, row, "too late")
        return
    context.tx.delete(row.job_id)
    families.cancel_unstarted_children(context, row)
    families.resume_parent(context, row.parent_job_id)


def _takes_too_long(context: Context, row: Job) -> None:
    """TERM, then KILL, then the job is taken back whatever its worker says."""
    stage = option(row, "overtime", 0) if row.run_id else 2
    if stage < 2:
        run = context.tx.records.run(row.run_id)
        signal = ("TERM", "KILL")[stage]
        if run is not None and run.stop not in ("", "TERM" + runs.TIMED_OUT):
            runs.stop(context, row.run_id, "KILL" if stage else run.stop)
        else:
            runs.stop(context, row.run_id, signal + runs.TIMED_OUT)
        wait = TAKE_BACK_S if stage else option(row, "grace", GRACE_S_DEFAULT)
        later = with_options(row, {"overtime": str(stage + 1)})
        context.tx.save(later._replace(expires=after_seconds(context.now_ms, wait)))
        return
    words = f"Run over its time: {option(row, 'runTimeout', 0)} s"
    status = runs.close(context, row, "timeout", error=words)
    context.note("timeout", name=row.name, job_id=row.job_id, run_id=row.run_id, detail=words)
    lost(context, row._replace(expires=""), status, words)
