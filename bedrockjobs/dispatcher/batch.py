"""What happens inside one transaction: commands in order, and those who wait served by what they free.

All of it is synchronous and in memory or in the open transaction, so that it can be undone as a whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bedrockjobs.bells import Bells
from bedrockjobs.clock import Clock
from bedrockjobs.commands import Command, CreateJob, CreateJobs, FailJob, FinishJob, FinishJobs, RetryJob
from bedrockjobs.config import WAIT_MS_DEFAULT, WAIT_MS_MAX, Settings
from bedrockjobs.desk import Desk
from bedrockjobs.dispatcher.entry import Entry, Leave, Outcome, PutBack
from bedrockjobs.dispatcher.keeper import Keeper
from bedrockjobs.dispatcher.waiting import Waiter, Waiting
from bedrockjobs.errors import CommandError, Unavailable
from bedrockjobs.handlers import take
from bedrockjobs.handlers.dispatch import perform
from bedrockjobs.handlers.turn import Answer, Taken, TakeRequest, Turn
from bedrockjobs.store.sqlite import SQLiteStore
from bedrockjobs.tally import Tally
from bedrockjobs.wire import moment_of

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
        desk: Desk,
        bells: Bells,
        tally: Tally,
    ) -> None:
        """Work on ``store`` and ``waiting``, at the time of ``clock``."""
        self.keeper = Keeper(store, desk, tally, clock)
        self._tally = tally
        self._desk = desk
        self._bells = bells
        self._turn: Turn | None = None
        self._store = store
        self._waiting = waiting
        self._clock = clock
        self._settings = settings
        self._seq = 0
        self._outcomes: list[tuple[Entry, Outcome]] = []
        self._parked: list[Waiter] = []
        self._served: list[Waiter] = []
        self._done: list[Command[Any]] = []
        self._takes: list[Sequence[Taken]] = []
        """What is counted once it is on disk: noted here, as it is far from the processor's hand by then."""
        self._known: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """The workers that are drained, and those for which jobs of their own are queued."""
        self.may_wait = True
        """Whether a GetJob may begin to wait; not while the server stops."""

    def run(self, entries: list[Entry]) -> list[tuple[Entry, Outcome]]:
        """Do commands in the open transaction; return the outcomes that follow its commit."""
        self._outcomes = []
        self._parked = []
        self._served = []
        self._done, self._takes = [], []
        store, ready = self._store, self._store.ready
        self._turn = turn = Turn(
            store,
            self._clock.now(),
            self._settings.compatibility,
            desk=self._desk,
            meters=self._tally.meters,
            since=self.keeper.since,
            seen=self.keeper.seen,
        )
        if self.keeper.due():
            self.keeper.act(turn)
            self._serve_freed(turn)
        for entry in entries:
            if entry.command is None:
                self._internal(turn, entry)
            elif store.tight and isinstance(entry.command, (CreateJob, CreateJobs)):
                self._outcomes.append((entry, Unavailable("Disk full", "runs can be ended, not created")))
            else:
                outcome = perform(turn, entry.command)
                if isinstance(outcome, Answer):
                    self._done.append(entry.command)
                    if outcome.taken:
                        self._takes.append(outcome.taken)
                if isinstance(outcome, Answer) and outcome.waits_for is not None:
                    self._park(turn, entry, outcome.waits_for)
                else:
                    self._outcomes.append((entry, outcome))
            if ready.freed or ready.reopened:
                self._serve_freed(turn)
        if self._waiting:
            self._sort_out()
            self._serve_due(turn)
        if store.changed:
            self.keeper.note_alive(turn)
        return self._outcomes

    def _serve_freed(self, turn: Turn) -> None:
        ready = self._store.ready
        if self._waiting:
            self._sort_out()
            if ready.reopened:
                self._waiting.note_all_due()
            if ready.freed:
                self._serve(turn)
        ready.reopened = False
        ready.freed.clear()

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
            acts += [partial(self._bells.ring, topic) for topic in self._turn.rings]
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

    def _count(self, turn: Turn) -> None:
        """Count what was done, and how long the job of one take had been due."""
        minute = self._tally.open
        minute.lost += turn.lost
        minute.retried += turn.retried
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
            minute.wait_ms += max(int((turn.moment - due).total_seconds() * 1_000), 0)

    def undo(self) -> None:
        """Let those wait again who were served, and those no longer who began to wait."""
        for waiter in self._parked:
            self._waiting.remove(waiter)
            waiter.entry.waiter = None
        parked = set(self._parked)
        self._waiting.restore([waiter for waiter in self._served if waiter not in parked])
        self._turn = None
        self._parked = []
        self._served = []

    def _internal(self, turn: Turn, entry: Entry) -> None:
        if isinstance(entry, PutBack):
            take.put_back(turn, entry.taken)
        elif isinstance(entry, Leave):
            waiter = entry.left.waiter
            if waiter is not None and self._waiting.remove(waiter):
                self._served.append(waiter)
                self._outcomes.append((waiter.entry, empty(waiter.request)))

    def _park(self, turn: Turn, entry: Entry, request: TakeRequest) -> None:
        """Let a command wait for a job, or answer it at once where it may not."""
        assert entry.command is not None
        wait_ms = entry.command.timeout if entry.command.timeout is not None else WAIT_MS_DEFAULT
        if entry.gone or wait_ms <= 0 or not self.may_wait:
            self._outcomes.append((entry, empty(request)))
            return
        self._seq += 1
        deadline = self._clock.monotonic() + min(wait_ms, WAIT_MS_MAX) / 1000
        entry.waiter = waiter = Waiter(entry, request, self._seq, deadline)
        group = self._waiting.add(waiter)
        self._parked.append(waiter)
        if len(group.waiters) == 1:
            soonest = self._soonest(turn, request)
            if soonest is not None:
                self._waiting.note_due(group, soonest)

    @staticmethod
    def _soonest(turn: Turn, request: TakeRequest) -> str | None:
        return turn.tx.soonest(
            request.names,
            turn.now_ms,
            mocked=request.mocked,
            accepts=request.accepts,
            worker=request.worker,
        )

    def _serve(self, turn: Turn) -> None:
        """Hand jobs that became ready to those who have waited longest for them."""
        for row in self._store.ready.freed:  # grows: a taken retryAfter job will be ready again
            groups = self._waiting.groups_for(row)
            if row.next_run > turn.now_ms:
                for group in groups:
                    self._waiting.note_due(group, row.next_run)
                continue
            while groups:
                waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
                answer = take.take(turn, waiter.request)
                if answer is None:
                    break
                self._hand_over(waiter, answer)
                if any(taken.before.job_id == row.job_id for taken in answer.taken):
                    break
                groups = [group for group in groups if group.waiters]

    def _serve_due(self, turn: Turn) -> None:
        """Hand out jobs that have become due since the last transaction."""
        groups = self._waiting.due_groups(turn.now_ms)
        served = 0
        while groups:
            if served >= SERVED_AT_ONCE_MAX:  # the rest in the next transaction, which follows at once
                for later in groups:
                    self._waiting.note_due(later, "")
                break
            waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
            answer = take.take(turn, waiter.request)
            if answer is not None:
                self._hand_over(waiter, answer)
                served += 1
                groups = [group for group in groups if group.waiters]
                continue
            group = waiter.group
            assert group is not None
            groups.remove(group)
            soonest = self._soonest(turn, group.request)
            if soonest is not None:
                self._waiting.note_due(group, soonest)
        for row in self._store.ready.freed:
            for group in self._waiting.groups_for(row):
                self._waiting.note_due(group, row.next_run)
        self._store.ready.freed.clear()

    def _hand_over(self, waiter: Waiter, answer: Answer) -> None:
        self._waiting.remove(waiter)
        self._served.append(waiter)
        self._takes.append(answer.taken)
        self._outcomes.append((waiter.entry, answer))


def empty(request: TakeRequest) -> Outcome:
    """Return what a request is told for which there is no job."""
    try:
        return take.nothing(request)
    except CommandError as error:
        return error
