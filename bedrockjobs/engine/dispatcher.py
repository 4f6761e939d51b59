"""Commands go in one queue; all that is there goes into one transaction; answers follow its commit.

The event loop does the statements, which take microseconds and stay in memory. A commit on a slow disk is
done by a thread: meanwhile the loop reads the requests of the next one. It knows no SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from bedrockjobs.base.background import TimeSlices
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import (
    NAMES_AT_ONCE,
    NAMES_PER_COMMIT_MAX,
    NAMES_PER_SHARED_COMMIT_MAX,
    SLEEP_S_MAX,
)
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import moment_of, timestamp, timestamp_ms
from bedrockjobs.commands import Command
from bedrockjobs.engine.batch import Batch, PendingCommit, unanswered
from bedrockjobs.engine.committer import CommitExecutor, GroupCommitWindow, LoopTimer, ManyNames, taken_from
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.maintenance import Minutes, maintenance_of
from bedrockjobs.engine.outage import BUSY_LOOK_S, Health, Outage, Step
from bedrockjobs.engine.submission import (
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

# The end of a dispatcher: it waits until nothing is left to do, and for a shared database only so long.
#
# It knows neither handlers nor SQL.


log = logging.getLogger(__name__)

UNIT_DRAINED_S = 2.5
"""Seconds that a stopping server gives its last unit on PostgreSQL: it may wait two for a lock. A database
that does not answer by then may never do; who waits for that unit is cut off, as its outcome is not known."""


class Shutdown:
    """Who waits for a dispatcher to have nothing to do."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        """Prepare to end; a file answers, another machine may never do."""
        self._engine = engine
        self._clock = clock
        self._limit_s = UNIT_DRAINED_S if engine.shared else None
        self._idle = asyncio.Event()

    async def until_idle(self, busy: Callable[[], object]) -> None:
        """Wait until nothing is to be done, however long that takes."""
        while busy():
            self._idle.clear()
            await self._idle.wait()

    def idle(self) -> None:
        """Tell who waits that there may be nothing to do."""
        self._idle.set()

    async def last_units(self, busy: Callable[[], object]) -> bool:
        """Wait until nothing is to be done; return False where the database does not answer in time."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self.until_idle(busy)
        except TimeoutError:
            log.warning("the database does not answer: what became of the last commands is not known")
            return False
        return True

    async def sign_off(self, do: Callable[[Callable[[], Step]], object]) -> None:
        """Write when it was here last; without it, ticks since the last write count as passed unserved.

        ``do`` does work that may give its turn away, and then the step that it returns.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def work() -> Step:
            with suppress(StoreError):
                self._engine.begin().sign_off(timestamp(self._clock.now()))
                self._engine.commit()
            return partial(_resolve, done)

        do(work)
        await asyncio.wait({done}, timeout=self._limit_s)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Dispatcher:
    """The queue, the transactions and the waiters of one database."""

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
        """Serve ``engine``; ``listeners`` hear what is on disk, ``minutes`` counts it.

        ``on_failure`` is called when the disk no longer keeps what it promised, ``on_commit`` with the
        seconds that each commit waited for the disk and the commands that shared it.
        """
        workers.on_news = self.poke
        self._engine, self._clock, self._settings = engine, clock, settings
        self._on_failure, self._on_commit = on_failure, on_commit
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._maintenance = maintenance_of(engine, workers, minutes, clock)
        self._batch = Batch(engine, self._waiting, clock, settings, workers, listeners, self._maintenance)
        self._gathered: deque[Submission] = deque()
        self._many = ManyNames(NAMES_PER_SHARED_COMMIT_MAX if engine.shared else NAMES_PER_COMMIT_MAX)
        self._again = deque[list[Submission]]()  # of transactions that were undone: each is done with care
        self._open = self._scheduled = self._draining = self._broken = False
        self._look_outside = False  # whether it is time to ask if somebody else changed the database
        self._ending = Shutdown(engine, clock)
        self._busy_since: float | None = None
        self._later, self._alarm = DelayedTakes(self.send), LoopTimer(self._loop, self._wake)
        self._commits = CommitExecutor(self._loop, clock, waits_for_disk=engine.waits_for_disk)
        self._slices, self._group = TimeSlices[Step](), GroupCommitWindow(settings.batch_max, clock.monotonic)
        self.health = Health(engine, clock)  # whether the database can be written
        listeners.add(self.health)
        self._absence = Outage(
            engine,
            clock,
            settings.command_s,
            gathered=self._gathered,
            health=self.health,
            refuse=self._refuse,
            tick=self._answer_overdue,
            over=self._wake,
        )
        self.pending = 0  # commands that were not yet answered, without those that wait for a job
        self.cut_off = False  # whether it has stopped, and some commands never get an answer
        self.commands = self.commits = 0  # done since the start, the latter of transactions with commands

    def start(self) -> None:
        """Start to work."""
        self._commits.start()
        self._schedule()

    @property
    def waiting(self) -> int:
        """Return how many GetJobs wait."""
        return len(self._waiting)

    @property
    def begins(self) -> bool:
        """Tell whether a transaction is about to begin, or looks for others that share its commit."""
        return bool(self._gathered) if self._scheduled else self._group.looks_now

    def submit(
        self, command: Command[Any], deliver: Deliver, caller: Principal | None = None, by: str = ""
    ) -> Submission:
        """Queue a command; raises Unavailable when the queue is full or the server stops.

        ``by`` is the name of the token that sends it.
        """
        if self._draining:
            raise Unavailable("Server is stopping", "try again in a moment")
        if self.pending >= self._settings.pending_max:
            raise Unavailable("Too many commands are waiting", "try again in a moment")
        submission = Submission(command, deliver, caller, by)
        if command.asks and (many := command.names_asked) > NAMES_AT_ONCE:
            if self._many.full:
                raise Unavailable("Too many commands are waiting", "names: too many are asked for now")
            submission.many = many
        self.pending += 1
        self._gathered.append(submission)
        if not self._open and not self._scheduled:
            self._schedule()
        return submission

    def leave_all(self) -> None:
        """Let every waiting GetJob end, as ``leave`` does."""
        for waiter in self._waiting.everyone():
            self.leave(waiter.submission)

    def leave(self, submission: Submission) -> None:
        """Let a waiting GetJob end: it is answered at once, with 404 unless a job is on its way to it."""
        submission.gone = True
        self.send(CancelWait(submission))

    def poke(self) -> None:
        """Look at the clock and at the presence: something changed there."""
        self._wake()

    def heard(self, due: Mapping[str, str] | None) -> None:
        """Look for jobs that other servers left: the names, each with a nextRun; None: any may be due."""
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
        """Return the next moment at which a job becomes due or time is over for something."""
        await self._ending.until_idle(self._busy_with)  # the database is asked beside units
        due = self._engine.soonest_of_all(timestamp_ms(self._clock.now()))
        soonest = (self._waiting.next_due(), self._maintenance.next_timestamp(), due)
        found = [timestamp for timestamp in soonest if timestamp]
        return moment_of(min(found)) if found else None

    async def settle(self) -> bool:
        """Do what the clock brings and was asked so far; return whether nothing is left to another server."""
        self._wake()
        await self._ending.until_idle(self._busy_with)
        return not self._maintenance.is_behind()

    async def drain(self) -> None:
        """Refuse new commands, finish what is queued, answer the waiters, and end the thread."""
        self._draining, self._batch.may_wait = True, False
        self._absence.give_up()
        if not await self._ending.last_units(self._busy_with):
            self.cut_off = self._broken = True
        self._answer(self._waiting.everyone())
        await self._ending.until_idle(self._busy_with)  # what these answers could not deliver goes back
        self._alarm.cancel()
        await self._commits.end()
        if not (self._broken or self._absence.lasts):
            await self._ending.sign_off(lambda work: self._follow(self._slices.begin(work)))

    def _busy_with(self) -> object:
        """Return what there is to do, if there is anything that will be done."""
        left = self._open or self._gathered or self._many or self._again or self._later
        return left and not (self._broken or self._absence.stays)

    # --- one transaction after another -------------------------------------------------------------------

    def send(self, submission: Submission) -> None:
        """Queue what is no command: something that is written, or put back, or waits no longer."""
        self._gathered.append(submission)
        if not self._open:
            self._schedule()

    def _schedule(self) -> None:
        """Begin a transaction after this turn of the loop, so that all requests it brings share it."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin a transaction with all that is there, unless one is open."""
        self._scheduled = False
        if self._open or self._absence.lasts or self._broken:
            return
        careful = bool(self._again)
        submissions = self._again.popleft() if careful else self._arrived(self._settings.batch_max)
        if self._many and not careful:
            submissions += self._many.some(len(submissions))
        if not (submissions or careful) and (due_s := self._due_in_s()) > 0:
            self._rest(due_s)
            return
        self._open = True
        self._follow(self._slices.begin(partial(self._transaction, submissions, careful=careful)))

    def _arrived(self, room: int) -> list[Submission]:
        """Return what waits to be done, in order and so many at the most, without looks of who is gone.

        What asks for many names is put aside.
        """
        arrived, gone = taken_from(self._gathered, room)
        self.pending -= gone
        return self._many.put_aside(arrived)

    def _follow(self, step: Step | None) -> None:
        """Do what follows a transaction; one that is long goes on after others have had their turn."""
        if step is None:
            self._slices.call_when_ready(lambda: self._follow(self._slices.go_on()), self._loop.call_soon)
        else:
            step()

    def _transaction(self, submissions: list[Submission], *, careful: bool) -> Step:
        """Do all of a transaction but its commit; return what follows."""
        try:
            try:
                unit = self._engine.begin(self._batch.plans(submissions))
            except StoreBusy as error:
                return partial(self._busy, submissions, error, careful=careful)
            self._busy_since = None
            company = None if careful or self._engine.shared else self._group.begin(self._arrived)
            work = self._batch.run(unit, submissions, careful=careful, company=company)
            self._gathered.extendleft(reversed(work.left))
            self._later.add(work.again)
            if unit.changed:
                ended = partial(self._ended, submissions, work)
                if self._engine.shared:  # who waits for its answer gives others their turn
                    return partial(ended, *self._commits.timed(self._engine.commit))
                return partial(self._commits.do, self._engine.commit, ended)
            self._engine.commit()  # nothing to write: the disk is not asked
        except Exception as error:
            return partial(self._failed, submissions, error, careful=careful)
        return partial(self._committed, submissions, work, None)

    def _busy(self, submissions: list[Submission], error: StoreBusy, *, careful: bool) -> None:
        """Try again later, as another process has the database."""
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
            self._gathered.extendleft(reversed(submissions))
        self._scheduled = True
        self._loop.call_later(BUSY_LOOK_S, self._next)

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
        else:  # no care of single acts helps where the commit itself failed
            self._failed(submissions, failure, careful=True)

    def _committed(self, submissions: list[Submission], work: PendingCommit, took_s: float | None) -> None:
        """Go on after a commit; ``took_s`` is how long it waited for the disk, None where it did not."""
        if took_s is not None:
            self._on_commit(took_s, len(submissions))
            self._group.committed(len(submissions))
        self.commits += bool(submissions)
        self.commands += len(submissions)
        self.health.committed(wrote=took_s is not None)
        self.pending -= self._batch.accept(work)
        self._open = False
        self._deliver(work.outcomes)
        due_s = 0.0 if self._gathered or self._many or self._again else self._due_in_s()
        if due_s > 0:
            self._rest(due_s)
        else:
            self._answer_overdue()
            self._schedule()  # not at once: first the answers go out

    def _deliver(self, outcomes: list[tuple[Submission, Outcome]]) -> None:
        for submission, outcome in outcomes:
            if submission.command is not None and submission.waiter is None:
                self.pending -= 1
            try:
                delivered = submission.deliver(outcome)
            except Exception:
                log.exception("an answer may not have been delivered")
                delivered = True  # its client may know it, so the lease of the run decides
            submission.waiter = None  # the two hold each other
            if not delivered and isinstance(outcome, Answer) and outcome.taken:
                self.send(RequeueUndelivered(outcome.taken))

    def _failed(self, submissions: list[Submission], error: Exception, *, careful: bool) -> None:
        """Undo a transaction, and do each of its commands with care in its own: one hurts nobody else."""
        fault = self._engine.fault(error)
        if isinstance(fault, StoreBroken):
            # After a failed sync nobody knows what is on disk; a new start finds out.
            self._give_up(fault)
            return
        if fault is not None and not isinstance(fault, StoreAway):
            log.error("the database refused: %s", fault)
            self.health.failed(fault)
        elif not isinstance(error, RowDamaged | StoreAway):  # told when a row is set aside, or as it begins
            log.error("a transaction failed", exc_info=error)
        try:
            self._batch.undo()
            self._engine.rollback()
            if isinstance(fault, StoreFull):
                self._engine.make_room()
        except Exception as second:
            self._give_up(second)
            return
        self._open = False
        if isinstance(fault, StoreAway):
            left = (submissions, *self._again, self._many.all())
            self._gathered.extendleft(reversed([one for some in left for one in some]))
            self._again.clear()
            self._absence.begin(fault)
            self._ending.idle()
            return
        if len(submissions) > 1:
            self._again.extendleft([submission] for submission in reversed(submissions))
        elif fault is None and not careful:
            self._again.appendleft(submissions)
        else:
            self._refuse(submissions, fault or error)
        if submissions or self._gathered or self._many or self._again:
            self._schedule()
        else:  # what time asked for failed: not again at once
            self._alarm.set(self._settings.busy_s)

    def _refuse(self, submissions: list[Submission], error: Exception) -> None:
        """Tell who asked that nothing was done; what nobody asked for is tried again later."""
        for submission in submissions:
            if isinstance(submission, RequeueUndelivered) and submission.may_try_again():
                self._loop.call_later(self._settings.busy_s, self.send, submission)
        self._deliver([(submission, refusal_of(error)) for submission in submissions])

    def _give_up(self, error: Exception) -> None:
        """Do nothing any more: the transaction stays open, and what waits stays unanswered."""
        self._draining = self._broken = True
        self._ending.idle()
        self._on_failure(error)

    # --- time --------------------------------------------------------------------------------------------

    def _rest(self, due_s: float) -> None:
        """Nothing is to be done for some seconds: answer whose wait is over, and sleep until then."""
        self._ending.idle()
        self._answer_overdue()
        deadline = self._waiting.next_deadline()
        if deadline is not None:
            due_s = min(due_s, deadline - self._clock.monotonic())
        self._alarm.set(max(due_s, 0.0))

    def _wake(self) -> None:
        self._maintenance.look_anew()
        self._look_outside = True
        if not self._open:  # else its commit may fail, and undo that somebody began to wait
            self._answer_overdue()
            self.health.look()
        self._next()

    def _answer_overdue(self) -> None:
        """Answer those whose wait is over; also asked after each commit, as there may never be a rest."""
        if self._waiting:
            self._answer(self._waiting.overdue(self._clock.monotonic()))

    def _answer(self, waiters: list[Waiter]) -> None:
        gone = [waiter for waiter in waiters if self._waiting.remove(waiter)]
        self._waiting.committed()  # no transaction is open that could undo it
        self._deliver(
            [
                (one.submission, unanswered(one.request) if one.once else take.nothing(one.request))
                for one in gone
            ]
        )

    def _due_in_s(self) -> float:
        """Return the seconds until a transaction is needed that nobody asks for; 0: now."""
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
            return 0.0  # a transaction will meet the same fault, and deal with it
        return min(sleep_s, asked_s + WAKE_LATE_S) if asked_s > 0 else 0.0
