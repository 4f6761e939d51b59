"""Executes the commands of one transaction in order, and gives waiters the jobs that become ready.

All of it is synchronous and changes only memory and the open transaction, so it can be undone as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import cast

from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import (
    BATCH_ANSWER_BYTES_MAX,
    LOCK_WAIT_S_MAX,
    SEARCH_S_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
)
from bedrockjobs.base.errors import CommandError, ServerFault, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import CreateJob, CreateJobs
from bedrockjobs.engine.events import DrainsChanged, Event, HoldChanged, LeftReady, Listeners, WaitLeft
from bedrockjobs.engine.handlers import families, take
from bedrockjobs.engine.handlers.access import tokens_changed
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.handlers.failing import set_aside
from bedrockjobs.engine.maintenance import Done, Maintenance
from bedrockjobs.engine.rate_limits import RateLimiter
from bedrockjobs.engine.row_access import perform_for
from bedrockjobs.engine.submission import (
    CancelWait,
    InternalCommand,
    Outcome,
    RequeueUndelivered,
    Submission,
    refusal_of,
)
from bedrockjobs.engine.unit import perform, unit
from bedrockjobs.engine.waiters import Waiter, WaiterGroup, Waiting, oldest_of, poll
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.eligibility import hold_of
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import AccessPlan, Engine, RowDamaged, SharedUnit, StoreConflict, StoreError, Unit

log = logging.getLogger(__name__)

SERVED_AT_ONCE_MAX = 200
"""Maximum number of waiters served in one transaction because jobs became due, so that the event loop is not
blocked."""


def unanswered(request: TakeRequest) -> Outcome:
    """Return the reply to a take whose search of very many names did not finish in time."""
    if request.after_end:
        return take.nothing(request)
    return Unavailable("Still searching", "name: very many names have to be searched; try again")


class PendingCommit:
    """The outcomes and events of one transaction until it is committed or rolled back."""

    answer_bytes = 0
    """Total size of the replies, which is limited per transaction."""
    again: Sequence[Submission] = ()
    """Takes that found only locked rows and should be retried."""
    left: Sequence[Submission] = ()
    """Commands that have to go into the next transaction."""
    wrote = False
    """Whether the transaction has anything to write to the disk."""
    heard = 0
    """The number of events that ``new_events`` has returned."""

    def __init__(self, context: Context, *, careful: bool) -> None:
        """Start empty; in ``careful`` work each command has a savepoint and fails alone."""
        self.context = context
        self.careful = careful
        self.outcomes: list[tuple[Submission, Outcome]] = context.outcomes
        """The replies to send after the commit."""
        self.done = Done()

    def new_events(self) -> Sequence[Event]:
        """Return the events raised since the last call."""
        events = self.context.events
        if len(events) == self.heard:
            return ()
        found, self.heard = events[self.heard :], len(events)
        return found


class Batch:
    """Executes the commands of one transaction after another."""

    def __init__(
        self,
        engine: Engine,
        waiting: Waiting,
        clock: Clock,
        settings: Settings,
        workers: WorkerRegistry,
        listeners: Listeners,
        maintenance: Maintenance,
    ) -> None:
        """Execute commands on ``engine`` and keep their waiters in ``waiting``."""
        self._engine = engine
        self._waiting = waiting
        self._clock = clock
        self._settings = settings
        self._workers = workers
        self._listeners = listeners
        self._maintenance = maintenance
        self._seq = 0
        self._gates = RateLimiter(clock, shared=engine.shared)
        self.may_wait = True
        """Whether a GetJob may wait; false while the server stops."""

    def plans(self, submissions: Iterable[Submission]) -> Iterable[AccessPlan]:
        """Return the access plans of the commands, and one for the waiters that their new jobs may serve."""
        plans = (plan_of(one.command) for one in submissions if one.command is not None)
        if not (self._engine.shared and self._waiting.count):
            return plans
        every = list(plans)
        return [*every, self._waiting.plan(chain.from_iterable(plan.creates for plan in every))]

    def run(
        self,
        open_unit: Unit,
        submissions: list[Submission],
        *,
        careful: bool,
        more: Callable[[int], list[Submission]] | None = None,
    ) -> PendingCommit:
        """Execute commands in the open transaction; raise if the whole transaction must be rolled back.

        If the commands wrote something, ``more`` is called with their number, and returns further commands
        for the same commit, which are added to ``submissions``. This is repeated until ``more`` returns none.
        Commands that have to go into a later transaction are removed from ``submissions``: takes to be
        retried, and all commands after the replies have reached their size limit.
        """
        maintenance = self._maintenance
        context = Context(
            open_unit,
            self._settings.compatibility,
            self._workers,
            since=maintenance.since,
            seen=maintenance.seen,
            parts=(self._waiting,),
            gates=self._gates,
        )
        work = PendingCommit(context, careful=careful)
        if open_unit.caches_dropped:
            context.emit(DrainsChanged(open_unit.records.drains()))
            context.emit(tokens_changed(context)._replace(elsewhere=True))
            context.emit(HoldChanged(hold_of(open_unit.records.pauses())))
        waiting = self._waiting
        if maintenance.due():
            maintenance.act(context, work.done)
            if self._engine.shared:
                poll(context, waiting)
        if waiting.count:
            self._regroup(open_unit)
            self._serve_ready(work)
        self._do_all(work, submissions)
        room = BATCH_ANSWER_BYTES_MAX
        while more is not None and open_unit.changed and work.answer_bytes <= room:
            arrived = more(len(submissions))
            if not arrived:
                break
            submissions += arrived  # added before execution, so that they are retried if this fails
            self._do_all(work, arrived)
        if waiting.count:
            self._regroup(open_unit)
            self._serve_due(work)
            if wanted := waiting.searched():
                for names in open_unit.search(wanted):
                    waiting.end_search(names)
        elif open_unit.news.jobs or open_unit.news.wakes_all:  # no waiters: discard what became ready
            open_unit.became_ready()
            open_unit.must_wake_all()
        context.emit_counts()
        for pattern, words in self._gates.take_refusals():
            context.note("limited", name=pattern, detail=words)
        work.wrote = open_unit.changed
        if work.wrote:
            maintenance.note_alive(context, work.done)
            if self._engine.shared:
                jobs, anybody = cast(SharedUnit, open_unit).left_ready()
                context.emit(LeftReady(jobs, anybody or families.has_room_left(context)))
        if work.left:
            del submissions[-len(work.left) :]
        for submission in work.again:
            submissions.remove(submission)
        return work

    def _do_all(self, work: PendingCommit, submissions: list[Submission]) -> None:
        """Execute commands in order; when the replies exceed the size limit, leave the remaining commands."""
        waiting, context, outcomes = self._waiting, work.context, work.outcomes
        news, events = context.unit.news, context.events
        special, size = work.careful or self._engine.tight, work.answer_bytes
        for submission in submissions:
            outcome: Outcome | None = None
            prepared = submission.prepared
            if prepared is not None and prepared.act is not None and not (special or submission.caller):
                outcome = prepared.act(context, submission.value)
            if outcome is None:  # not plain
                outcome = self._do(work, submission)
                if waiting.count:
                    self._regroup(context.unit)
            if isinstance(outcome, Answer):
                if outcome.waits_for is None:
                    outcomes.append((submission, outcome))
                    size += len(outcome.body)
                else:
                    self._park(work, submission, outcome.waits_for, searching=outcome.searching)
            elif type(outcome) is take.LockedElsewhere:
                if not self.may_wait:
                    outcomes.append((submission, Unavailable("Server is stopping", "try again in a moment")))
                elif submission.may_retry(self._settings.unit_s_max + LOCK_WAIT_S_MAX):
                    work.again = [*work.again, submission]
                else:  # longer than a server may keep rows locked; 404 would say that there are no jobs
                    outcomes.append((submission, refusal_of(StoreConflict())))
            elif outcome is not None:
                outcomes.append((submission, outcome))
            if waiting.count and (news.jobs or news.wakes_all or len(events) != work.heard):
                self._serve_ready(work)
            if size > BATCH_ANSWER_BYTES_MAX:
                work.left = submissions[submissions.index(submission) + 1 :]
                break
        work.answer_bytes = size

    def accept(self, work: PendingCommit) -> int:
        """Publish what was committed; return how many commands began to wait."""
        self._maintenance.committed(work.done)
        if work.context.events:
            self._listeners.publish(work.context.events)
        return self._waiting.committed()

    def undo(self) -> None:
        """Undo the changes that the last run made to the waiters."""
        self._waiting.forget()

    def _do(self, work: PendingCommit, submission: Submission) -> Outcome | None:
        """Execute a command by its handler; return its outcome, or None for internal work."""
        context, command = work.context, submission.command
        context.by = submission.by
        if command is None:
            self._internal(work, submission)
            return None
        if self._engine.tight and isinstance(command, (CreateJob, CreateJobs)):
            return Unavailable("Disk full", "runs can be ended, not created")
        try:
            if submission.caller is None:
                return perform(context, command, careful=work.careful)
            return perform_for(submission.caller, context, command, careful=work.careful)
        except StoreError:
            raise
        except Exception:
            if not work.careful:
                raise
            log.exception("%s failed", type(command).__name__)
            return ServerFault(detail="nothing was done; see the server's log")

    def _internal(self, work: PendingCommit, submission: Submission) -> None:
        if isinstance(submission, RequeueUndelivered):
            take.put_back(work.context, submission.taken)
        elif isinstance(submission, InternalCommand):
            unit(work.context, partial(submission.act, work.context))
            work.outcomes.append((submission, Answer()))
        elif isinstance(submission, CancelWait):
            waiter = submission.left.waiter
            if waiter is not None and self._waiting.remove(waiter):
                work.outcomes.append((waiter.submission, take.nothing(waiter.request)))
                worker = waiter.request.worker
                if worker is not None and not self._waiting.waits_of(worker, waiter.token):
                    work.context.emit(WaitLeft(worker, waiter.token))

    def _park(
        self, work: PendingCommit, submission: Submission, request: TakeRequest, *, searching: bool
    ) -> None:
        """Add a waiter for a command, or answer it now if it may not wait.

        While the store is still ``searching``, a command that does not wait for new jobs becomes a waiter
        too.
        """
        command = submission.template
        timeout = command.timeout
        once = not command.waiting
        wait_ms = WAIT_MS_DEFAULT if timeout is None or once else timeout
        if submission.gone or wait_ms <= 0 or not self.may_wait:
            worker, by = request.worker, submission.by
            if submission.gone and worker is not None and not self._waiting.waits_of(worker, by):
                work.context.emit(WaitLeft(worker, by))
            work.outcomes.append((submission, unanswered(request) if searching else take.nothing(request)))
            return
        self._seq += 1
        wait_s = SEARCH_S_MAX if once else min(wait_ms, WAIT_MS_MAX) / 1000
        deadline = self._clock.monotonic() + wait_s
        waiter = Waiter(submission, request, self._seq, deadline, once=once, token=submission.by)
        try:
            group = self._waiting.add(waiter, self._settings.patterns_waiting_max)
        except CommandError as refused:
            work.outcomes.append((submission, take.nothing(request) if request.after_end else refused))
            return
        submission.waiter = waiter
        if searching:
            self._waiting.begin_search(group)
        elif len(group.waiters) == 1:
            self._note_soonest(work, group)

    # --- serving waiters ---------------------------------------------------------------------------------

    def _regroup(self, open_unit: Unit) -> None:
        """Update the groups of waiters by which workers are drained, and which have jobs bound to them."""
        self._waiting.regroup(open_unit.records.drains(), open_unit.workers_with_own_jobs())

    def _serve_ready(self, work: PendingCommit) -> None:
        """Give jobs that became ready to their longest-waiting waiters."""
        open_unit = work.context.unit
        ready, wake_all = open_unit.became_ready(), open_unit.must_wake_all()
        events = work.new_events()
        freed = families.freed_limits(events) if events else ()
        if not (ready or wake_all or freed):
            return
        if wake_all:
            self._waiting.note_all_due()
        for pattern in freed:
            if not families.pause_if_full(work.context, pattern):
                self._serve_groups(work, self._waiting.groups_of_pattern(pattern), freed=pattern)
        while ready:
            if len(ready) == 1:
                self._serve_job(work, ready[0], alone=True)
            else:
                for job in in_slices(ready):
                    self._serve_job(work, job, alone=False)
            ready = open_unit.became_ready()  # a taken job with retryAfter becomes ready again

    def _serve_job(self, work: PendingCommit, job: Job, *, alone: bool) -> None:
        """Give a job to the longest-waiting waiter that can take it.

        ``alone`` means that no other job became ready at the same time. Then it is usually the only due job
        for its waiters, and is handed to one of them without a search.
        """
        groups = self._waiting.groups_for(job)
        open_unit = work.context.unit
        due = job.next_run
        if job.lane and groups and open_unit.records.limits():
            due = max(due, open_unit.start_by_key(job))
        if due > work.context.now_ms:
            for group in groups:
                self._waiting.note_due(group, due)
            return
        if alone:  # other servers' jobs are unknown; a command before the first waiter may have taken it
            alone = not (self._engine.shared or job.lane or open_unit.records.pauses())
            alone = alone and open_unit.job(job.job_id) is job
        while groups:
            waiter = oldest_of(groups)
            first = waiter.group
            found = alone and first is not None and (first.due is None or first.due > work.context.now_ms)
            answer = self._serve(work, waiter, job if found else None)
            if answer is not None and answer.searching:
                groups = [group for group in groups if group is not first]
                continue
            if found or answer is None or any(taken.before.job_id == job.job_id for taken in answer.taken):
                break
            groups = [group for group in groups if group.waiters]

    def _serve_due(self, work: PendingCommit) -> None:
        """Give waiters the jobs that have become due since the last transaction."""
        self._serve_groups(work, self._waiting.due_groups(work.context.now_ms))
        for job in work.context.unit.became_ready():
            for group in self._waiting.groups_for(job):
                self._waiting.note_due(group, job.next_run)

    def _serve_groups(
        self, work: PendingCommit, groups: Iterable[WaiterGroup], freed: str | None = None
    ) -> None:
        """Serve the longest-waiting waiters of some groups until no group finds a job.

        If the groups are served because a limit has free slots, ``freed`` is the pattern of the limit, and
        serving stops as soon as the slots are used.
        """
        queue = [(group.oldest().seq, group) for group in groups]
        heapify(queue)
        served = asked = 0
        while queue:
            # Maximum number of groups of waiters for which one transaction looks for a job: 10 ms if it finds
            # none at all
            if served >= SERVED_AT_ONCE_MAX or asked >= 500:
                for _, later in queue:  # the next transaction follows at once
                    self._waiting.note_due(later, "")
                break
            _, group = heappop(queue)
            asked += 1
            answer = self._serve(work, group.oldest())
            if answer is not None and answer.searching:
                continue
            if answer is not None:
                served += 1
                if group.waiters:
                    heappush(queue, (group.oldest().seq, group))
                if freed is not None and families.pause_if_full(work.context, freed):
                    break
            elif group.once:
                for waiter in [*group.waiters.values()]:
                    self._waiting.remove(waiter)
                    work.outcomes.append((waiter.submission, take.nothing(waiter.request)))
            elif group.waiters:
                self._note_soonest(work, group)

    def _serve(self, work: PendingCommit, waiter: Waiter, only: Job | None = None) -> Answer | None:
        """Take a job for a waiter; return None if there is none.

        ``only`` is the job to take if it is known to be the only due job.
        """
        outcome: Outcome | None
        try:
            if work.careful:
                outcome = unit(work.context, partial(take.take, work.context, waiter.request, only))
            else:
                outcome = take.take(work.context, waiter.request, only)
        except StoreError:
            raise
        except RowDamaged as error:
            if not work.careful:
                raise
            outcome = unit(work.context, partial(set_aside, work.context, error.job))
        except Exception:
            if not work.careful:
                raise
            log.exception("a waiting command could not be served")
            outcome = ServerFault(detail="nothing was done; see the server's log")
        if outcome is None:
            return None
        if isinstance(outcome, Answer) and outcome.searching:
            assert waiter.group is not None
            self._waiting.begin_search(waiter.group)
            return outcome
        self._waiting.remove(waiter)
        work.outcomes.append((waiter.submission, outcome))
        return outcome if isinstance(outcome, Answer) else None

    def _note_soonest(self, work: PendingCommit, group: WaiterGroup) -> None:
        """Record when the next job may become due for a group."""
        soonest = work.context.unit.soonest(group.request, work.context.now_ms)
        if soonest is not None:
            self._waiting.note_due(group, soonest)
