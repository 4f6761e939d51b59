"""The hold on a queue that was restored: nothing is taken and no message is sent until somebody releases it.

A hold is a pause of every name, under a pattern that nobody can ask for. So takes, waits, ticks and
explanations treat it as any pause, on each engine, and a queue without one pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import Job, PauseRow

HOLD_PATTERN = "***"
"""The pattern of the pause that is a hold: PauseJobs and ResumeJobs read it as ``*``."""

RELEASE = "`bedrockjobs restore --release` lets it go on"
"""What to do about a hold."""


def plain_pattern(pattern: str) -> str:
    """Return a pattern as people may pause it: that of a hold is ``*``."""
    return "*" if pattern == HOLD_PATTERN else pattern


def hold_of(pauses: Iterable[PauseRow]) -> PauseRow | None:
    """Return the hold among pauses, None where there is none."""
    return next((pause for pause in pauses if pause.pattern == HOLD_PATTERN), None)


def hold_words(hold: PauseRow) -> str:
    """Return what a person reads of a hold, without what is to be done about it."""
    by = f" by {hold.by}" if hold.by else ""
    return f"everything is held{by} since {hold.since[:19]}" + (f": {hold.reason}" if hold.reason else "")


def without_haste(job: Job) -> Job:
    """Return a queued job that somebody had triggered as it was before: it would pass the hold.

    A schedule goes back to its own next run; any other job stays due.
    """
    memory = job.memory
    if memory.trigger is None:
        return placed(job.noting(cause="retry" if memory.cause == "manual" else memory.cause))
    own = memory.trigger or job.next_run
    return placed(job.noting(trigger=None)._replace(next_run=own))
