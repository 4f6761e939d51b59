"""The hold on a restored queue: nothing is taken and no message is sent until it is released.

A hold is a pause of every name, under a pattern that clients cannot use. So takes, waits, ticks and
explanations treat it as any pause on both engines, and a queue without one has no overhead.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import Job, PauseRow

HOLD_PATTERN = "***"
"""The pattern of the hold's pause: PauseJobs and ResumeJobs read it as ``*``."""

RELEASE = "`bedrockjobs restore --release` ends this"
"""How to end a hold."""


def plain_pattern(pattern: str) -> str:
    """Return a pattern in the form that users may pause: the pattern of a hold becomes ``*``."""
    return "*" if pattern == HOLD_PATTERN else pattern


def hold_of(pauses: Iterable[PauseRow]) -> PauseRow | None:
    """Return the hold among the pauses; None if there is none."""
    return next((pause for pause in pauses if pause.pattern == HOLD_PATTERN), None)


def hold_text(hold: PauseRow) -> str:
    """Describe a hold, without advice."""
    by = f" by {hold.by}" if hold.by else ""
    reason = f": {hold.reason}" if hold.reason else ""
    return f"everything has been held{by} since {hold.since[:19]}{reason}"


def without_trigger(job: Job) -> Job:
    """Return a queued job as it was before it was triggered, since a trigger bypasses the hold.

    A schedule gets back its regular next run; any other job stays due.
    """
    memory = job.memory
    if memory.trigger is None:
        return placed(job.noting(cause="retry" if memory.cause == "manual" else memory.cause))
    own = memory.trigger or job.next_run
    return placed(job.noting(trigger=None)._replace(next_run=own))
