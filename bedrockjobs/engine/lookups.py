"""Lookups: commands that only read rows named by ID, answered in parallel to the writer.

While the writer is busy, lookups read committed rows on a connection of their own, and wait neither for the
open transaction nor for its commit. They use the writer's handlers. A lookup that cannot be answered here (a
damaged row, a connection that fails) is executed by the writer, which then replies with the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from bedrockjobs.base.background import Step, WorkSteps
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import BATCH_ANSWER_BYTES_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.row_access import perform_for
from bedrockjobs.engine.submission import Submission
from bedrockjobs.engine.unit import Outcome, perform
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.base import RowReader

log = logging.getLogger(__name__)

Answered = list[tuple[Submission, Outcome]]


class Lookups:
    """Queues lookups; each read executes all that have arrived, up to ``batch_max``."""

    def __init__(
        self,
        rows: RowReader | None,
        clock: Clock,
        settings: Settings,
        workers: WorkerRegistry,
        *,
        answer: Callable[[Answered], object],
        refer: Callable[[list[Submission]], object],
        idle: Callable[[], object],
    ) -> None:
        """Read from ``rows``, which is None if the engine has no connection for lookups.

        ``answer`` receives the outcomes, ``refer`` the submissions that the writer has to execute; ``idle``
        is called when no lookup is left.
        """
        self._rows, self._clock, self._settings, self._workers = rows, clock, settings, workers
        self._answer, self._refer, self._idle = answer, refer, idle
        self._gathered: deque[Submission] = deque()
        self._slices = WorkSteps()
        self._under_way = self._told = False
        self._again_at = 0.0

    def __bool__(self) -> bool:
        """Return whether a lookup is queued or in progress."""
        return self._under_way

    def accept(self, submission: Submission) -> bool:
        """Queue a submission, or return False if the writer has to execute it."""
        if self._rows is None or not submission.alone or self._clock.monotonic() < self._again_at:
            return False
        submission.overtakes = True
        self._gathered.append(submission)
        if not self._under_way:
            self._under_way = True
            self._next()
        return True

    def _next(self) -> None:
        gathered = self._gathered
        if not gathered:
            self._under_way = False
            self._idle()
            return
        some = [gathered.popleft() for _ in range(min(len(gathered), self._settings.batch_max))]
        self._slices.run(partial(self._read, some))

    def _read(self, submissions: list[Submission]) -> Step:
        """Execute lookups; return the step that delivers the outcomes."""
        answered: Answered = []
        referred: list[Submission] = []
        left: list[Submission] = []
        assert self._rows is not None
        try:
            commands = [submission.command for submission in submissions]
            unit = self._rows.begin([plan_of(command) for command in commands if command is not None])
            context = Context(unit, self._settings.compatibility, self._workers)
            size = 0
            for at, submission in enumerate(submissions, 1):
                outcome = None if submission.gone else _outcome(context, submission)
                if outcome is None:
                    referred.append(submission)
                    continue
                answered.append((submission, outcome))
                size += len(outcome.body) if isinstance(outcome, Answer) else 0
                if size > BATCH_ANSWER_BYTES_MAX:
                    left = submissions[at:]
                    break
            self._rows.end()
            self._told = False
        except Exception as error:
            self._again_at = self._clock.monotonic() + 1.0  # so an outage costs one attempt a second
            if not self._told:
                log.warning("reads of single jobs wait for the writer: %s", error)
            self._told = True
            return partial(self._done, [], submissions, [])
        return partial(self._done, answered, referred, left)

    def _done(self, answered: Answered, referred: list[Submission], left: list[Submission]) -> None:
        self._gathered.extendleft(reversed(left))
        # One read in each turn of the event loop: lookups that arrive in the same turn share the next read.
        asyncio.get_running_loop().call_soon(self._next)
        if referred:
            self._refer(referred)
        self._answer(answered)


def _outcome(context: Context, submission: Submission) -> Outcome | None:
    """Execute a lookup; return None if the writer has to execute it."""
    command = submission.command
    assert command is not None
    context.by = submission.by
    try:
        if submission.caller is None:
            return perform(context, command)
        return perform_for(submission.caller, context, command)
    except Exception:  # the writer meets the same error, and handles it
        return None
