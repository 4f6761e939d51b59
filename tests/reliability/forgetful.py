"""A server with a fault in its schedules: ``python -m tests.reliability.forgetful FAULT serve …``.

These are negative controls of ``accounts``; the product contains none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bedrockjobs.cli import main
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.rows import Job

EVERY = 3
"""Which of the ends of runs has the fault."""


def _after_run(change: Callable[[Job, Job], Job]) -> None:
    after_run, ends = ticks.after_run, 0

    def wrong(turn: Context, row: Job) -> Job:
        nonlocal ends
        ends += 1
        after = after_run(turn, row)
        return after if ends % EVERY else change(row, after)

    ticks.after_run = wrong


def tick_lost() -> None:
    """Sometimes skip a tick."""
    _after_run(lambda _, after: ticks.with_tick(after, ticks.next_after(after, ticks.tick_of(after))))


def tick_twice() -> None:
    """Sometimes run the same tick again."""
    _after_run(lambda row, after: ticks.with_tick(after, ticks.tick_of(row)))


def unwritten() -> None:
    """Do not record fired ticks in the history."""
    ticks.enter_fired = lambda context, job, run_id, caught_up: None


FAULTS = {"tick lost": tick_lost, "tick twice": tick_twice, "unwritten": unwritten}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    main(sys.argv[2:])
