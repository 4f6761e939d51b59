"""What becomes of a job whose run ended badly: it is tried again, goes on to its next tick, or has failed."""

from __future__ import annotations

from zlib import crc32

from bedrockjobs.config import (
    BACKOFF_S_DEFAULT,
    BACKOFF_S_MAX_DEFAULT,
    GRACE_S_DEFAULT,
    LOST_RUNS_MAX,
    TAKE_BACK_S,
)
from bedrockjobs.handlers import families, runs, ticks
from bedrockjobs.handlers.again import after_trigger, has_more
from bedrockjobs.handlers.placing import ENDED, after_seconds, has_option, option, placed, with_options, word
from bedrockjobs.handlers.turn import Turn
from bedrockjobs.jsontext import quoted
from bedrockjobs.store.rows import JobRow

JITTER = 0.25
"""The most that is added to a retry's delay, as a part of it: jobs that failed together come back apart."""


def after_failure(turn: Turn, row: JobRow, *, final: bool) -> None:
    """Write a job whose run failed: retries are left, or a schedule goes on, or it has failed for good."""
    count = option(row, "failures", 0) + 1
    if not final and count <= option(row, "retries", 0) and not has_option(row, "removed"):
        again = with_options(
            row, {"failures": str(count), "cause": '"retry"', "overtime": None, **_tick(row)}
        )
        again = again._replace(
            state="QUEUED", run_id=0, next_run=after_seconds(turn.now_ms, backoff_s(row, count))
        )
        families.delete_ended_children(turn, row)
        turn.tx.save(placed(again))
        turn.retried += 1
        return
    over(turn, row)


def _tick(row: JobRow) -> dict[str, str | None]:
    """Return the change that lets a schedule remember which tick it is trying."""
    return {"tick": quoted(ticks.tick_of(row))} if ticks.is_schedule(row) else {}


def backoff_s(row: JobRow, count: int) -> float:
    """Return the seconds before a retry: doubled each time, within its limit, a little apart from others."""
    first = option(row, "backoff", BACKOFF_S_DEFAULT)
    longest = option(row, "maxBackoff", max(BACKOFF_S_MAX_DEFAULT, first))
    seconds = min(first * 2.0 ** min(count - 1, 40), longest)
    return float(seconds * (1 + JITTER * (crc32(f"{row.job_id} {count}".encode()) % 1_000) / 1_000))


def over(turn: Turn, row: JobRow) -> None:
    """Write a job that is not tried again: a schedule goes on, another one has FAILED."""
    more = after_trigger(turn, row) if has_more(row) else None
    if more is not None:
        families.cancel_unstarted_children(turn, row)
        turn.tx.save(more)
    elif ticks.is_schedule(row):  # a failed run does not end a schedule
        families.cancel_unstarted_children(turn, row)
        turn.tx.save(ticks.after_run(turn, with_options(row, ENDED)))
    else:
        families.fail_for_good(turn, row)
        turn.note(
            "failed", name=row.name, job_id=row.job_id, run_id=row.run_id, detail=word(row, "error", "")
        )


def lost(turn: Turn, row: JobRow, status: str, words: str) -> None:
    """Write a job whose run was taken away from its worker, which is closed already."""
    turn.lost += 1
    row = with_options(row, {"error": quoted(words), "overtime": None})
    losses = option(row, "losses", 0) + 1
    if (
        status in ("terminated", "killed")
        or ticks.is_schedule(row)
        or has_option(row, "removed")
        or word(row, "onLost", "retry") == "fail"
        or losses >= LOST_RUNS_MAX
    ):
        over(turn, row)
        return
    again = with_options(row, {"losses": str(losses), "cause": '"lost"'})
    turn.tx.save(placed(again._replace(state="QUEUED", run_id=0, next_run=turn.now_ms)))


def lease_over(turn: Turn, run_id: int) -> None:
    """Take the job of a silent worker away from it."""
    run = turn.tx.records.run(run_id)
    if run is None or run.status != "running":
        turn.after.append(lambda: turn.desk.closed(run_id))
        return
    row = turn.tx.job(run.job_id)
    if row is None or row.run_id != run_id:  # it cannot be, and must not be asked for again
        turn.after.append(lambda: turn.desk.closed(run_id))
        return
    words = f"Run lost: worker {run.worker} was silent for {run.lease} s"
    status = runs.close(turn, row, "frozen", error=words)
    turn.note("lost", name=row.name, job_id=row.job_id, run_id=run_id, by=run.worker, detail=words)
    lost(turn, row, status, words)


def time_over(turn: Turn, row: JobRow) -> None:
    """Deal with a job whose ``expires`` has passed."""
    if row.state == "QUEUED":
        _not_started(turn, row)
    elif row.state in ("RUNNING", "RUNQUEUED"):
        _takes_too_long(turn, row)
    else:
        turn.tx.save(row._replace(expires=""))


def _not_started(turn: Turn, row: JobRow) -> None:
    turn.note("expired", name=row.name, job_id=row.job_id, detail=f"not started, due at {row.next_run}")
    if ticks.is_schedule(row):
        turn.tx.save(row._replace(expires=""))
        ticks.skip_overdue(turn, row, "too late")
        return
    turn.tx.delete(row.job_id)
    families.cancel_unstarted_children(turn, row)
    families.resume_parent(turn, row.parent_job_id)


def _takes_too_long(turn: Turn, row: JobRow) -> None:
    """TERM, then KILL, then the job is taken back whatever its worker says."""
    stage = option(row, "overtime", 0) if row.run_id else 2
    if stage < 2:
        run = turn.tx.records.run(row.run_id)
        signal = ("TERM", "KILL")[stage]
        if run is not None and run.stop not in ("", "TERM" + runs.TIMED_OUT):
            runs.stop(turn, row.run_id, "KILL" if stage else run.stop)
        else:
            runs.stop(turn, row.run_id, signal + runs.TIMED_OUT)
        wait = TAKE_BACK_S if stage else option(row, "grace", GRACE_S_DEFAULT)
        later = with_options(row, {"overtime": str(stage + 1)})
        turn.tx.save(later._replace(expires=after_seconds(turn.now_ms, wait)))
        return
    words = f"Run over its time: {option(row, 'runTimeout', 0)} s"
    status = runs.close(turn, row, "timeout", error=words)
    turn.note("timeout", name=row.name, job_id=row.job_id, run_id=row.run_id, detail=words)
    lost(turn, row._replace(expires=""), status, words)
