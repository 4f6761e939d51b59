"""Where a queued job stands: its lane, and when it expires. Both follow from its options and its memory."""

from __future__ import annotations

from bedrockjobs.base.wire import after_seconds
from bedrockjobs.job.lanes import EVERY_LANE, MOCK_LANE, OPEN_LANE, PING_LANE, Lane
from bedrockjobs.job.rows import Job

PING_GRACE_S_DEFAULT = 300
"""Seconds that a ping from outside may be late: what a nightly line of a crontab usually takes."""


def placed(job: Job, now: str = "") -> Job:
    """Return a job that is or will be queued, with the lane and the time its options ask for.

    It may wait from its nextRun on, or from ``now`` where that is later.
    """
    plain = job.options_json == "{}" and job.memory_json == "{}"
    if plain and not job.expires and job.lane in (OPEN_LANE, MOCK_LANE):
        return job
    expires, limit = "", job.options.expire_after
    if job.options.expect:
        limit = ping_grace_s(job)
    if limit is not None and job.memory.trigger is None:
        expires = after_seconds(max(job.next_run, now), limit)
    return job._replace(lane=job.lane if job.mocked else lane_of(job), expires=expires)


def placed_if_waiting(before: Job, changed: Job) -> Job:
    """Return a job that somebody changed: one that waits in its new place, one at work until its old time."""
    there = placed(changed)
    waits = changed.state in ("QUEUED", "PAUSED")
    return there if waits else changed._replace(lane=there.lane, expires=before.expires)


def lane_of(job: Job) -> str:
    """Return the lane of a job that is not mocked."""
    options, memory = job.options, job.memory
    if options.hosts:
        return EVERY_LANE
    if options.expect:
        return PING_LANE
    # Another try no longer passes a pause; a job bound to its worker has no trigger, only the cause.
    now = not memory.cause if memory.trigger is not None else memory.cause == "manual"
    lock = job.name if options.lock is True else options.lock or ""
    return str(Lane(now, options.own_command, lock, memory.bound_to))


def ping_grace_s(job: Job) -> int:
    """Return the seconds that a ping may be late, or that what began with a ping may take."""
    grace = job.options.ping_grace
    return PING_GRACE_S_DEFAULT if grace is None else grace
