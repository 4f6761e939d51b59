"""The dispatcher: it queues commands, executes them in batches, and replies after each commit.

The event loop executes the statements, which take microseconds and stay in memory. On a slow disk, a thread
does the commit while the loop reads the requests of the next batch. This module contains no SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from bedrockjobs.base.background import Step, WorkSteps, resolve
from bedrockjobs.base.clock import Clock, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.config import (
    NAMES_AT_ONCE,
    NAMES_PER_COMMIT_MAX,
    NAMES_PER_SHARED_COMMIT_MAX,
    SLEEP_S_MAX,
)
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.principal import TokenShares, token_share
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command
from bedrockjobs.engine.batch import Batch, PendingCommit, unanswered
from bedrockjobs.engine.committer import CommitExecutor, GroupCommitWindow, LoopTimer, ManyNames
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.lookups import Lookups
from bedrockjobs.engine.maintenance import Minutes, maintenance_of
from bedrockjobs.engine.outage import Health, Outage
from bedrockjobs.engine.submission import (
    CallbackSubmission,
    CancelWait,
    DelayedTakes,
    Deliver,
    RequeueUndelivered,
    Submission,
    refusal_of,
)
from bedrockjobs.engine.unit import Outcome
from bedrockjobs.engine.waiters import WAKE_LATE_S, Waiter, Waiting
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.base import (
    Engine,
    RowDamaged,
    StoreAway,
    StoreBroken,
    StoreBusy,
    StoreError,
    StoreFull,
)

# Graceful shutdown: wait until idle, with a timeout on PostgreSQL.


log = logging.getLogger(__name__)

UNIT_DRAINED_S = 2.5
"""Seconds a stopping server gives its last transaction on PostgreSQL, which may wait two seconds for a lock.
After that the database may never respond, so the clients are disconnected without a known outcome."""


class Shutdown:
    """Waits for a dispatcher to become idle, and records the time of the shutdown."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Limit the time only if the database is shared: a database on another machine may never respond."""
        self._engine = engine
        self._clock = clock
        self._limit_s = UNIT_DRAINED_S if engine.shared else None
        self._idle = asyncio.Event()

    async def until_idle(self, busy: Callable[[], object]) -> None:
        """Wait until ``busy`` returns a false value, without a time limit."""
        while busy():
            self._idle.clear()
            await self._idle.wait()

    def idle(self) -> None:
        """Wake the waiting shutdown to check whether the dispatcher is idle."""
        self._idle.set()

    async def last_units(self, busy: Callable[[], object]) -> bool:
        """Wait until ``busy`` returns a false value; return False if that takes too long."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self.until_idle(busy)
        except TimeoutError:
            log.warning("the database does not answer: the outcome of the last commands is unknown")
            return False
        return True

    async def record_shutdown(self, do: Callable[[Callable[[], Step]], object]) -> None:
        """Record the time of shutdown, since ticks between the last write and it would else count as missed.

        ``do`` runs a function that may yield to the event loop, then calls the function that it returns.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def work() -> Step:
            with suppress(StoreError):
                self._engine.begin().record_shutdown(timestamp(self._clock.now()))
                self._engine.commit()
            return partial(resolve, done)

        do(work)
        await asyncio.wait({done}, timeout=self._limit_s)


class Dispatcher:
    """Queues and executes the commands of one database, and keeps its waiters."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        settings: Settings,
        on_failure: Callable[[Exception], None],
        *,
        workers: WorkerRegistry,
        minutes: Minutes,
        listeners: Listeners,
        on_commit: Callable[[float, int], object] = lambda seconds, commands: None,
    ) -> None:
        """Serve ``engine``; ``listeners`` get the events after each commit, ``minutes`` has the counters.

        ``on_failure`` is called when the database can no longer be trusted to keep its data. ``on_commit`` is
        called after each commit with the seconds that it took and the number of commands in it.
        """
        workers.on_events = self.poke
        self._engine, self._clock, self._settings = engine, clock, settings
        self._on_failure, self._on_commit = on_failure, on_commit
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._maintenance = maintenance_of(engine, workers, minutes, clock)
        self._batch = Batch(engine, self._waiting, clock, settings, workers, listeners, self._maintenance)
        self._gathered: deque[Submission] = deque()
        self._many = ManyNames(NAMES_PER_SHARED_COMMIT_MAX if engine.shared else NAMES_PER_COMMIT_MAX)
        self._again = deque[list[Submission]]()  # failed transactions, to be retried command by command
        self._open = self._scheduled = self._draining = self._broken = False
        # Whether the client of some queued command may be gone; whether one may ask for many names.
        self._some_gone = self._some_many = False
        self._rested = False  # whether nothing was due when the alarm was set last
        self._look_outside = False  # whether to check if another process changed the database
        self._ending = Shutdown(engine, clock)
        self._busy_since: float | None = None
        self._later, self._alarm = DelayedTakes(self.send), LoopTimer(self._loop, self._wake)
        self._lookups = Lookups(
            engine.row_reader,
            clock,
            settings,
            workers,
            answer=self._looked_up,
            refer=self._refer,
            idle=self._ending.idle,
        )
        self._commits = CommitExecutor(self._loop, clock, waits_for_disk=engine.waits_for_disk)
        self._slices, self._group = WorkSteps(), GroupCommitWindow(settings, clock.monotonic)
        self.health = Health(engine, clock)  # whether the database can be written
        listeners.add(self.health)
        self._outage = Outage(
            engine,
            clock,
            settings.command_s,
            gathered=self._gathered,
            health=self.health,
            refuse=self._refuse,
            tick=self._answer_overdue,
            over=self._wake,
        )
        self.pending = 0  # unanswered commands, without those that wait for a job
        self._shares, self._counted_at = TokenShares("Too many commands are waiting"), -1
        self.cut_off = False  # whether it stopped without answering some commands
        self._more = partial(self._group.more, self._arrived)
        self.commands = self.commits = 0  # since the start; only commits of transactions with commands count

    def start(self) -> None:
        """Start the commit thread and the first transaction."""
        self._commits.start()
        self._schedule()

    @property
    def waiting(self) -> int:
        """Return the number of waiters."""
        return len(self._waiting)

    @property
    def begins(self) -> bool:
        """Return True if a transaction is about to begin or is collecting commands for its commit."""
        return bool(self._gathered) if self._scheduled else self._group.probing

    def submit(self, command: Command[Any], deliver: Deliver) -> Submission:
        """Queue a command of the server; raise Unavailable if the queue is full or the server is stopping."""
        submission = CallbackSubmission(command, deliver)
        self.put(submission)
        return submission

    def put(self, submission: Submission) -> None:
        """Queue a submission with a command; raise Unavailable if the queue is full or the server stops."""
        if self._draining:
            raise Unavailable("Server is stopping", "try again in a moment")
        if self.pending >= self._settings.pending_max:
            raise Unavailable("Too many commands are waiting", "try again in a moment")
        if submission.by and self.pending >= token_share(self._settings.pending_max):
            self._check_share(submission.by)
        prepared, command = submission.prepared, submission.template
        simple = prepared is not None and prepared.simple
        if not simple and command.asks and (many := command.names_asked) > NAMES_AT_ONCE:
            if self._many.full:
                raise Unavailable("Too many commands are waiting", "names: too many are asked for now")
            self._many.check_share(submission.by)
            submission.many = many
            self._some_many = True
        self.pending += 1
        if not simple and command.by_id and self._would_wait() and self._lookups.accept(submission):
            return
        self._gathered.append(submission)
        if not (self._open or self._scheduled):
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _check_share(self, token: str) -> None:
        """Raise TooMany if a token has queued its share of commands, which are counted once per commit."""
        if self._counted_at != self.commands:
            self._counted_at = self.commands
            self._shares.clear()
            for queued in self._gathered:
                self._shares.add(queued.by)
        self._shares.check(token, self._settings.pending_max)
        self._shares.add(token)

    def _would_wait(self) -> bool:
        """Return whether a lookup would wait for the writer, which else answers fastest, from its caches."""
        if self._gathered and not self._open:
            before = self._gathered[-1]
            return before.internal or not before.template.by_id
        busy = self._open or self._again or self._many.waiting or self._waiting.searched()
        return bool(busy) and not self._outage.is_active

    def _looked_up(self, outcomes: list[tuple[Submission, Outcome]]) -> None:
        """Deliver the outcomes of lookups that were read in parallel to the writer."""
        self.commands += len(outcomes)
        self._deliver(outcomes)

    def _refer(self, submissions: list[Submission]) -> None:
        """Queue lookups that only the writer can execute, or whose clients are gone."""
        self._gathered += submissions
        self._some_gone = True
        if not self._open and not self._scheduled:
            self._schedule()

    def leave_all(self) -> None:
        """Cancel the wait of every waiter, as ``leave`` does."""
        for waiter in self._waiting.everyone():
            self.leave(waiter.submission)

    def leave(self, submission: Submission) -> None:
        """Cancel the wait of a GetJob, which is answered with 404 unless it is already getting a job."""
        submission.gone = self._some_gone = True
        self.send(CancelWait(submission))

    def poke(self) -> None:
        """Check the clock and the worker registry again, because something changed there."""
        self._wake()

    def note_ready(self, due: Mapping[str, str] | None) -> None:
        """Note jobs that other servers made ready, as nextRun by name; None means that any job may be due."""
        if not self._waiting:
            return
        if due is None:
            self._waiting.note_all_due()
        else:
            for name, next_run in due.items():
                self._waiting.note_name_due(name, next_run)
        if not self._open:
            self._schedule()

    async def next_moment(self) -> datetime | None:
        """Return the next time at which a job or a maintenance task becomes due."""
        await self._ending.until_idle(self._busy_with)  # the query must not run during a transaction
        due = self._engine.soonest_of_all(timestamp_ms(self._clock.now()))
        soonest = (self._waiting.next_due(), self._maintenance.next_timestamp(), due)
        found = [timestamp for timestamp in soonest if timestamp]
        return moment_of(min(found)) if found else None

    async def settle(self) -> bool:
        """Execute everything that is due or queued; return False if another server still has work to do."""
        self._wake()
        await self._ending.until_idle(self._busy_with)
        return not self._maintenance.is_behind()

    async def drain(self) -> None:
        """Refuse new commands, execute the queued ones, and answer the waiters."""
        self._draining, self._batch.may_wait = True, False
        self._later.end_pauses()
        self._outage.give_up()
        if not await self._ending.last_units(self._busy_with):
            self.cut_off = self._broken = True
        self._answer(self._waiting.everyone())

    async def end(self) -> None:
        """Requeue jobs whose replies could not be delivered, stop the commit thread, and record the shutdown.

        Call it after ``drain``, when the connections are closed: only then it is known which replies were not
        sent.
        """
        await self._ending.last_units(self._busy_with)
        self._alarm.cancel()
        await self._commits.end()
        if not (self._broken or self._outage.is_active):
            await self._ending.record_shutdown(self._slices.run)

    def _busy_with(self) -> object:
        """Return a true value if any work is open or queued and can still be done."""
        queued = self._gathered or self._many.waiting or self._again
        left = self._open or queued or self._later or self._lookups
        return left and not (self._broken or self._outage.is_final)

    # --- one transaction after another -------------------------------------------------------------------

    def send(self, submission: Submission) -> None:
        """Queue an internal submission: an internal command, a requeue or the cancellation of a wait."""
        self._gathered.append(submission)
        self._some_many |= submission.many > 0
        if not self._open:
            self._schedule()

    def _schedule(self) -> None:
        """Begin a transaction in the next loop iteration, so that requests read until then share it."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin a transaction with the queued submissions, unless one is open."""
        self._scheduled = False
        if self._open or self._outage.is_active or self._broken:
            return
        careful = bool(self._again)
        submissions = self._again.popleft() if careful else self._arrived(self._settings.batch_max)
        if self._many.waiting and not careful:
            submissions += self._many.some(len(submissions))
        if not (submissions or careful) and (due_s := self._due_in_s()) > 0:
            self._rest(due_s)
            return
        self._open = True
        self._slices.run(partial(self._transaction, submissions, careful=careful))

    def _arrived(self, room: int) -> list[Submission]:
        """Return at most ``room`` queued submissions in order, skipping reads of disconnected clients.

        Takes that ask for many names are moved to their own queue.
        """
        gathered = self._gathered
        if len(gathered) <= room:
            arrived = [*gathered]
            gathered.clear()
        else:
            arrived = [gathered.popleft() for _ in range(room)]
        if self._some_gone:
            left = [one for one in arrived if not one.gone or one.matters]
            self.pending -= len(arrived) - len(left)
            arrived, self._some_gone = left, bool(gathered)
        if self._some_many:
            arrived = self._many.put_aside(arrived)
            self._some_many = bool(gathered)
        return arrived

    def _put_back(self, submissions: Sequence[Submission]) -> None:
        """Queue submissions again, before the submissions that have arrived since."""
        self._gathered.extendleft(reversed(submissions))
        self._some_gone = self._some_many = True

    def _transaction(self, submissions: list[Submission], *, careful: bool) -> Step:
        """Execute a transaction up to its commit; return the step that commits or ends it."""
        try:
            try:
                unit = self._engine.begin(self._batch.plans(submissions) if self._engine.shared else ())
            except StoreBusy as error:
                return partial(self._busy, submissions, error, careful=careful)
            self._busy_since = None
            self._group.probes = 0
            more = None if careful or self._engine.shared else self._more
            work = self._batch.run(unit, submissions, careful=careful, more=more)
            if work.left:
                self._put_back(work.left)
            if work.again:
                self._later.add(work.again)
            if work.wrote:
                ended = partial(self._ended, submissions, work)
                if self._engine.shared:  # the engine yields to the loop while it waits for the database
                    return partial(ended, *self._commits.timed(self._engine.commit))
                return partial(self._commits.do, self._engine.commit, ended)
            self._engine.commit()  # nothing to write, so no sync is needed
        except Exception as error:
            return partial(self._failed, submissions, error, careful=careful)
        return partial(self._committed, submissions, work, None)

    def _busy(self, submissions: list[Submission], error: StoreBusy, *, careful: bool) -> None:
        """Try again later because another process holds the database lock."""
        now = self._clock.monotonic()
        self._busy_since = now if self._busy_since is None else self._busy_since
        self._open = False
        if now - self._busy_since >= self._settings.busy_s:
            self._busy_since = None
            self.health.failed(error)
            self._refuse(submissions, error)
        elif careful:
            self._again.appendleft(submissions)
        else:
            self._put_back(submissions)
        self._scheduled = True
        self._loop.call_later(0.02, self._next)  # seconds until the next attempt to get the lock

    def _ended(
        self, submissions: list[Submission], work: PendingCommit, took_s: float, failure: Exception | None
    ) -> None:
        if failure is None:
            try:
                self._engine.confirm()
            except Exception as error:
                failure = error
        if failure is None:
            self._committed(submissions, work, took_s)
        else:  # the commit itself failed, so retrying the commands one by one cannot help
            self._failed(submissions, failure, careful=True)

    def _committed(self, submissions: list[Submission], work: PendingCommit, took_s: float | None) -> None:
        """Finish after a commit; ``took_s`` is how long it took, None if there was nothing to write."""
        if took_s is not None:
            self._on_commit(took_s, len(submissions))
            self._group.committed(len(submissions))
        self.commits += bool(submissions)
        self.commands += len(submissions)
        self.health.committed(wrote=took_s is not None)
        self.pending -= self._batch.accept(work)
        self._open = False
        self._deliver(work.outcomes)
        waiting = self._waiting
        if not (self._gathered or self._many.waiting or self._again):
            if (
                (self._rested and self._alarm.is_set)
                and not (waiting.sooner or self._look_outside or self._draining)
                and self._maintenance.as_before()
            ):
                return  # the alarm is set to the right time
            waiting.sooner = self._rested = False
            due_s = self._due_in_s()
            if due_s > 0:
                self._rest(due_s)
                return
        if waiting.sooner or not self._alarm.is_set:  # a busy server never rests
            self._answer_overdue()
        self._schedule()  # in a later iteration, so that the replies go out first

    def _deliver(self, outcomes: list[tuple[Submission, Outcome]]) -> None:
        for submission, outcome in outcomes:
            if not submission.internal and submission.waiter is None:
                self.pending -= 1
            try:
                delivered = submission.deliver(outcome)
            except Exception:
                log.exception("an answer may not have been delivered")
                delivered = True  # the client may have it; if not, the lease of the run expires
            submission.waiter = None  # break the reference cycle
            if not delivered and isinstance(outcome, Answer) and outcome.taken:
                self.send(RequeueUndelivered(outcome.taken))

    def _failed(self, submissions: list[Submission], error: Exception, *, careful: bool) -> None:
        """Roll back a transaction, and retry its commands singly so that one cannot fail the others."""
        fault = self._engine.fault(error)
        if isinstance(fault, StoreBroken):
            # After a failed sync the state on disk is unknown; recovery at the next start determines it.
            self._give_up(fault)
            return
        if fault is not None and not isinstance(fault, StoreAway):
            log.error("the database refused: %s", fault)
            self.health.failed(fault)
        elif not isinstance(error, RowDamaged | StoreAway):  # logged elsewhere
            log.error("a transaction failed", exc_info=error)
        try:
            self._batch.undo()
            self._engine.rollback()
            if isinstance(fault, StoreFull):
                self._engine.free_reserve()
        except Exception as second:
            self._give_up(second)
            return
        self._open = False
        if isinstance(fault, StoreAway):
            left = (submissions, *self._again, self._many.all())
            self._put_back([one for some in left for one in some])
            self._again.clear()
            self._outage.start(fault)
            self._ending.idle()
            return
        if len(submissions) > 1:
            self._again.extendleft([submission] for submission in reversed(submissions))
        elif fault is None and not careful:
            self._again.appendleft(submissions)
        else:
            self._refuse(submissions, fault or error)
        if submissions or self._gathered or self._many.waiting or self._again:
            self._schedule()
        else:  # a maintenance task failed: wait before the retry
            self._alarm.set(self._settings.busy_s)

    def _refuse(self, submissions: list[Submission], error: Exception) -> None:
        """Answer each submission with the error; a requeue is tried again later."""
        for submission in submissions:
            if isinstance(submission, RequeueUndelivered) and submission.may_try_again():
                self._loop.call_later(self._settings.busy_s, self.send, submission)
        self._deliver([(submission, refusal_of(error)) for submission in submissions])

    def _give_up(self, error: Exception) -> None:
        """Stop working: the transaction stays open and its clients get no reply."""
        self._draining = self._broken = True
        self._ending.idle()
        self._on_failure(error)

    # --- time --------------------------------------------------------------------------------------------

    def _rest(self, due_s: float) -> None:
        """Answer overdue waiters and sleep until the next deadline, at most ``due_s`` seconds."""
        self._rested = True
        self._ending.idle()
        self._answer_overdue()
        deadline = self._waiting.next_deadline()
        if deadline is not None:
            due_s = min(due_s, deadline - self._clock.monotonic())
        self._alarm.set(max(due_s, 0.0))

    def _wake(self) -> None:
        self._maintenance.recheck()
        self._look_outside = True
        if not self._open:  # a rollback of the open transaction would also undo its new waits
            self._answer_overdue()
            self.health.check_disk()
        self._next()

    def _answer_overdue(self) -> None:
        """Answer waiters whose time is up; also called after each commit, since a busy server never rests."""
        if self._waiting:
            self._answer(self._waiting.overdue(self._clock.monotonic()))

    def _answer(self, waiters: list[Waiter]) -> None:
        gone = [waiter for waiter in waiters if self._waiting.remove(waiter)]
        self._waiting.committed()  # no open transaction could roll this back
        self._deliver(
            [
                (one.submission, unanswered(one.request) if one.once else take.nothing(one.request))
                for one in gone
            ]
        )

    def _due_in_s(self) -> float:
        """Return the seconds until a transaction is due without a command; 0 means now."""
        sleep_s = SLEEP_S_MAX
        due = self._waiting.next_due()
        if due is not None:
            until = (moment_of(due) - self._clock.now()).total_seconds() if due else 0.0
            if until <= 0:
                return 0.0
            sleep_s = min(sleep_s, until + WAKE_LATE_S)
        if self._waiting.searched():
            sleep_s = min(sleep_s, self._engine.search_in_s())
            if sleep_s <= 0:
                return 0.0
        if self._draining:
            return sleep_s
        try:
            if self._look_outside:
                self._look_outside = self._engine.changed_outside()
            asked_s = 0.0 if self._look_outside else self._maintenance.sleep_s()
        except Exception as error:
            if self._engine.fault(error) is None:
                raise
            return 0.0  # the next transaction meets the same fault and handles it
        return min(sleep_s, asked_s + WAKE_LATE_S) if asked_s > 0 else 0.0
