"""What happens inside one transaction: commands in order, and those who wait served by what they free.

All of it is synchronous and in memory or in the open transaction, so that it can be undone as a whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import WAIT_MS_DEFAULT, WAIT_MS_MAX, Settings
from bedrockjobs.base.errors import CommandError, Unavailable
from bedrockjobs.base.wire import moment_of
from bedrockjobs.commands import Command, CreateJob, CreateJobs, FailJob, FinishJob, FinishJobs, RetryJob
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer, Context, Taken, TakeRequest
from bedrockjobs.engine.handlers.dispatch import perform
from bedrockjobs.engine.maintenance import Maintenance
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.submission import CancelWait, Outcome, ReturnJobs, Submission
from bedrockjobs.engine.waiting import Waiter, Waiting
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.sqlite import SQLiteStore

log = logging.getLogger(__name__)

SERVED_AT_ONCE_MAX = 200
"""Waiters that one transaction serves because time has passed: the loop must not stand still for long."""


class Batch:
    """Runs the commands of one transaction after another."""

    def __init__(
        self,
        store: SQLiteStore,
        waiting: Waiting,
        clock: Clock,
        settings: Settings,
        presence: WorkerRegistry,
        notifier: Notifier,
        stats: Stats,
    ) -> None:
        """Work on ``store`` and ``waiting``, at the time of ``clock``."""
        self.maintenance = Maintenance(store, presence, stats, clock)
        self._stats = stats
        self._presence = presence
        self._notifier = notifier
        self._turn: Context | None = None
        self._store = store
        self._waiting = waiting
        self._clock = clock
        self._settings = settings
        self._seq = 0
        self._outcomes: list[tuple[Submission, Outcome]] = []
        self._parked: list[Waiter] = []
        self._served: list[Waiter] = []
        self._done: list[Command[Any]] = []
        self._takes: list[Sequence[Taken]] = []
        """What is counted once it is on disk: noted here, as it is far from the processor's hand by then."""
        self._known: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """The workers that are drained, and those for which jobs of their own are queued."""
        self.may_wait = True
        """Whether a GetJob may begin to wait; not while the server stops."""

    def run(self, submissions: list[Submission]) -> list[tuple[Submission, Outcome]]:
        """Do commands in the open transaction; return the outcomes that follow its commit."""
        self._outcomes = []
        self._parked = []
        self._served = []
        self._done, self._takes = [], []
        store, ready = self._store, self._store.ready
        self._turn = context = Context(
            store,
            self._clock.now(),
            self._settings.compatibility,
            presence=self._presence,
            measurements=self._stats.measurements,
            since=self.maintenance.since,
            seen=self.maintenance.seen,
        )
        if self.maintenance.due():
            self.maintenance.act(context)
            self._serve_freed(context)
        for submission in submissions:
            if submission.command is None:
                self._internal(context, submission)
            elif store.tight and isinstance(submission.command, (CreateJob, CreateJobs)):
                self._outcomes.append(
                    (submission, Unavailable("Disk full", "runs can be ended, not created"))
                )
            else:
                outcome = perform(context, submission.command)
                if isinstance(outcome, Answer):
                    self._done.append(submission.command)
                    if outcome.taken:
                        self._takes.append(outcome.taken)
                if isinstance(outcome, Answer) and outcome.waits_for is not None:
                    self._park(context, submission, outcome.waits_for)
                else:
                    self._outcomes.append((submission, outcome))
            if ready.newly_ready or ready.wake_all:
                self._serve_freed(context)
        if self._waiting:
            self._sort_out()
            self._serve_due(context)
        if store.changed:
            self.maintenance.note_alive(context)
        return self._outcomes

    def _serve_freed(self, context: Context) -> None:
        ready = self._store.ready
        if self._waiting:
            self._sort_out()
            if ready.wake_all:
                self._waiting.note_all_due()
            if ready.newly_ready:
                self._serve(context)
        ready.wake_all = False
        ready.newly_ready.clear()

    def _sort_out(self) -> None:
        """Tell those who wait whom no job may go to, and for whom there are jobs of their own."""
        known = (self._store.records.drains(), self._store.ready.bound)
        if known != self._known:
            self._known = known
            self._waiting.sort_out(*known)

    def accept(self) -> int:
        """The last run is committed: forget how to undo it; return how many commands began to wait in it."""
        if self._turn is not None:
            acts: list[Callable[[], object]] = [*self._turn.after, partial(self._count, self._turn)]
            acts += [partial(self._notifier.notify, topic) for topic in self._turn.topics]
            for act in acts:
                try:
                    act()
                except Exception:  # it is on disk: whoever asked gets the answer whatever happens here
                    log.exception("what follows a commit could not be done")
            self._turn = None
        parked = len(self._parked)
        self._parked = []
        self._served = []
        return parked

    def _count(self, context: Context) -> None:
        """Count what was done, and how long the job of one take had been due."""
        minute = self._stats.open
        minute.lost += context.lost
        minute.retried += context.retried
        kinds = Counter(map(type, self._done))
        minute.created += kinds.get(CreateJob, 0)
        minute.finished += kinds.get(FinishJob, 0)
        minute.retried += kinds.get(RetryJob, 0)
        minute.failed += kinds.get(FailJob, 0)
        if CreateJobs in kinds or FinishJobs in kinds:
            lists = [command for command in self._done if isinstance(command, (CreateJobs, FinishJobs))]
            minute.created += sum(len(command.jobs) for command in lists if isinstance(command, CreateJobs))
            minute.finished += sum(len(command.jobs) for command in lists if isinstance(command, FinishJobs))
        takes = self._takes
        if takes:
            minute.taken += sum(map(len, takes))
            minute.waits += 1
            due = moment_of(takes[0][0].before.next_run)
            minute.wait_ms += max(int((context.moment - due).total_seconds() * 1_000), 0)

    def undo(self) -> None:
        """Let those wait again who were served, and those no longer who began to wait."""
        for waiter in self._parked:
            self._waiting.remove(waiter)
            waiter.submission.waiter = None
        parked = set(self._parked)
        self._waiting.restore([waiter for waiter in self._served if waiter not in parked])
        self._turn = None
        self._parked = []
        self._served = []

    def _internal(self, context: Context, submission: Submission) -> None:
        if isinstance(submission, ReturnJobs):
            take.put_back(context, submission.taken)
        elif isinstance(submission, CancelWait):
            waiter = submission.left.waiter
            if waiter is not None and self._waiting.remove(waiter):
                self._served.append(waiter)
                self._outcomes.append((waiter.submission, empty(waiter.request)))

    def _park(self, context: Context, submission: Submission, request: TakeRequest) -> None:
        """Let a command wait for a job, or answer it at once where it may not."""
        assert submission.command is not None
        wait_ms = submission.command.timeout if submission.command.timeout is not None else WAIT_MS_DEFAULT
        if submission.gone or wait_ms <= 0 or not self.may_wait:
            self._outcomes.append((submission, empty(request)))
            return
        self._seq += 1
        deadline = self._clock.monotonic() + min(wait_ms, WAIT_MS_MAX) / 1000
        submission.waiter = waiter = Waiter(submission, request, self._seq, deadline)
        group = self._waiting.add(waiter)
        self._parked.append(waiter)
        if len(group.waiters) == 1:
            soonest = self._soonest(context, request)
            if soonest is not None:
                self._waiting.note_due(group, soonest)

    @staticmethod
    def _soonest(context: Context, request: TakeRequest) -> str | None:
        return context.tx.soonest(
            request.names,
            context.now_ms,
            mocked=request.mocked,
            accepts=request.accepts,
            worker=request.worker,
        )

    def _serve(self, context: Context) -> None:
        """Hand jobs that became ready to those who have waited longest for them."""
        for row in self._store.ready.newly_ready:  # grows: a taken retryAfter job will be ready again
            groups = self._waiting.groups_for(row)
            if row.next_run > context.now_ms:
                for group in groups:
                    self._waiting.note_due(group, row.next_run)
                continue
            while groups:
                waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
                answer = take.take(context, waiter.request)
                if answer is None:
                    break
                self._hand_over(waiter, answer)
                if any(taken.before.job_id == row.job_id for taken in answer.taken):
                    break
                groups = [group for group in groups if group.waiters]

    def _serve_due(self, context: Context) -> None:
        """Hand out jobs that have become due since the last transaction."""
        groups = self._waiting.due_groups(context.now_ms)
        served = 0
        while groups:
            if served >= SERVED_AT_ONCE_MAX:  # the rest in the next transaction, which follows at once
                for later in groups:
                    self._waiting.note_due(later, "")
                break
            waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
            answer = take.take(context, waiter.request)
            if answer is not None:
                self._hand_over(waiter, answer)
                served += 1
                groups = [group for group in groups if group.waiters]
                continue
            group = waiter.group
            assert group is not None
            groups.remove(group)
            soonest = self._soonest(context, group.request)
            if soonest is not None:
                self._waiting.note_due(group, soonest)
        for row in self._store.ready.newly_ready:
            for group in self._waiting.groups_for(row):
                self._waiting.note_due(group, row.next_run)
        self._store.ready.newly_ready.clear()

    def _hand_over(self, waiter: Waiter, answer: Answer) -> None:
        self._waiting.remove(waiter)
        self._served.append(waiter)
        self._takes.append(answer.taken)
        self._outcomes.append((waiter.submission, answer))


def empty(request: TakeRequest) -> Outcome:
    """Return what a request is told for which there is no job."""
    try:
        return take.nothing(request)
    except CommandError as error:
        return error
