"""The agent: pulls jobs into free slots, runs and reports them, and shuts down gracefully.

One waiting GetJobs requests jobs for all free slots. A report requests the next job of its slot and, while
runs are short, prefetches further jobs, which wait for a slot (``Slots``).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from bedrock_worker.log import LOG, event
from bedrock_worker.options import WorkerOptions
from bedrock_worker.policy.program import ProgramSelector
from bedrock_worker.policy.python_module import PythonModule
from bedrock_worker.pull import Heartbeats, Puller, ServerLink, TakenJob, ThenGet, Throttle, VersionWatch
from bedrock_worker.report.output import LiveOutput
from bedrock_worker.report.reporter import Report, Reporter, ReportOutbox, requeued, try_again
from bedrock_worker.run.job_run import JobRun
from bedrock_worker.run.loop_client import LoopProcesses
from bedrock_worker.run.watchdog_client import WatchdogClient
from bedrockjobs.base.config import JOBS_PER_GET_MAX, RUNS_PER_HEARTBEAT_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands.schedules import SyncReply

if TYPE_CHECKING:
    from bedrock_worker.run.job_run import JobRun

OK, REFUSED, UNAVAILABLE = 0, 1, 69
"""Exit statuses: a normal end, refused schedules, no server in time (EX_UNAVAILABLE of sysexits.h)."""

TERM_TO_KILL_S = 3.0
"""Seconds from TERM to KILL at shutdown: with the grace period before it, less than the usual 30 s of
supervisors."""

LAST_REPORTS_S = 5.0
"""Maximum seconds for the last reports at shutdown. They are part of the grace period if it is longer."""

LAST_OUTPUT_S = 1.0
"""Minimum seconds at shutdown to send the last output lines; after that, only reports are sent."""

LATER_MAX = 100
"""Maximum reports that are retried while their slots serve other jobs; any further report keeps its slot."""

SYNC_COUNTS = ("added", "changed", "removed", "unchanged", "kept", "undeclared")
"""The lists in a reply to SyncSchedules whose lengths are logged."""

FILE_POLL_S = 5.0
"""Seconds between checks of the file of ``--version-watch``."""


def _some(names: list[str]) -> str:
    """Return the first 20 names for the log, and how many further names there are, as text."""
    return ", ".join(names[:20]) + (f" and {len(names[20:])} more" if names[20:] else "")


class Agent:
    """A running worker."""

    def __init__(
        self, options: WorkerOptions, selector: ProgramSelector | None = None, *, alone: bool = False
    ) -> None:
        """Configure the worker without connecting. Raises ValueError for bad rules or a bad module.

        With ``alone``, this process is a worker and nothing else: all its children belong to the worker.
        """
        self._options = options
        self._selector = ProgramSelector(options) if selector is None else selector
        # The client makes single attempts: the loops here retry while the server is down, and log that once.
        self._client = options.client()
        self._server = ServerLink(self._client)
        outbox = ReportOutbox(options.spool, options.worker, options.servers)
        self._reporter = Reporter(self._server, outbox)
        self._changed = asyncio.Event()
        loop_slots = options.async_slots if self._selector.has_loop else 0
        self._slots_total = options.concurrency + loop_slots
        self._file = None if options.version_watch is None else VersionWatch(options.version_watch)
        self._heartbeats = Heartbeats(
            self._server,
            options,
            names=lambda: self._selector.names,
            on_quiet=self._set_drained,
            on_left=self._changed.set,  # cuts short a request that waits at the silent server
            slots=self._slots_total,
            release="" if self._file is None else self._file.release,
        )
        self._puller = Puller(self._server, options, changed=self._changed)
        self._watchdog = WatchdogClient(daemons=options.daemons, adopts=alone)
        self._loops = LoopProcesses(self._watchdog)
        self._throttle = Throttle(options.concurrency, options.load_max) if options.load_max else None
        ahead_max = max(0, min(AHEAD_MAX, (RUNS_PER_HEARTBEAT_MAX - self._slots_total) // 2))
        self._places = Slots(self._slots, ahead_max), Slots(lambda: options.async_slots, ahead_max)
        """The slots of runs in processes of their own, and the slots of async functions on the event loop."""
        self._runs: set[JobRun] = set()
        self._outputs: set[LiveOutput] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_loop: set[asyncio.Task[None]] = set()
        """The part of ``_tasks`` that runs async functions, which have slots of their own."""
        self._later: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._taken = 0
        self._thens: set[ThenGet] = set()
        self._ahead: ThenGet | None = None
        """The last request that prefetches jobs; only one FinishJobs is in flight at a time."""
        self._pulling = (0, 0)
        """How many jobs the waiting request asks for: for processes of their own, and for the event loop."""
        self._pulled_names: tuple[str, ...] = ()
        """The name patterns that the waiting request asks for."""
        self._signals = 0
        self._winding_down = False
        self._quiet = False
        self._undelivered = False
        self._drained = False
        self._outdated = False
        self._synced: dict[str, int] = {}
        """The counts that the next sync of schedules returns if nothing changes until then."""

    async def run_until_stopped(self) -> int:
        """Work until a signal arrives, a burst ends or ``jobs_max`` jobs are done; return the exit status."""
        options = self._options
        event(
            logging.INFO,
            "worker ready",
            worker=options.worker,
            names=",".join(self._selector.names),
            server=",".join(map(str, options.servers)),
            slots=options.concurrency,
            async_slots=options.async_slots if self._selector.has_loop else None,
        )
        self._heartbeats.start_sending()
        tasks = [asyncio.ensure_future(self._reporter.deliver_kept())]
        if self._file is not None:
            tasks.append(asyncio.ensure_future(self._watch_version(self._file)))
        try:
            status = await self._sync(tasks) or await self._pull_all()
            return await self._wind_down() or status
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._reporter.stop_sending()
            await self._heartbeats.send_last()
            await self._client.close()
            await self._loops.close()
            self._watchdog.stop_guards()
            event(logging.INFO, "worker ended", taken=self._taken)

    def stop(self) -> None:
        """Take no more jobs and exit: gracefully after the first call, immediately after the second."""
        self._signals += 1
        self._stopping.set()
        for places in self._places:
            places.close()
        event(logging.INFO, "stopping" if self._signals == 1 else "stopping at once", running=len(self._runs))
        self._changed.set()

    def stop_taking(self) -> None:
        """Take no more jobs for now; running jobs continue."""
        event(logging.INFO, "quiet")
        self._set_quiet(True)

    def resume(self) -> None:
        """Take jobs again after ``stop_taking``."""
        if self._quiet:
            event(logging.INFO, "resumed")
        self._set_quiet(False)

    def reload(self) -> None:
        """Reload rules, token and certificates; if one of them is bad, keep the old ones."""
        try:
            self._client.renew()
            self._selector.read_rules()
        except ValueError as error:
            event(logging.ERROR, "not reloaded", error=error)
        else:
            event(logging.INFO, "reloaded", names=",".join(self._selector.names))
            self._heartbeats.send_soon()
            self._changed.set()

    def _set_quiet(self, quiet: bool) -> None:
        self._quiet = self._heartbeats.quiet = quiet
        self._heartbeats.send_soon()
        self._changed.set()

    def _set_drained(self, drained: bool) -> None:
        """Take no more jobs while the server drains this worker."""
        if drained != self._drained:
            event(logging.INFO, "drained" if drained else "no longer drained")
            self._drained = drained
            self._changed.set()

    async def _watch_version(self, file: VersionWatch) -> None:
        """Shut down gracefully once the file has changed."""
        while not file.changed():  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(FILE_POLL_S)
        event(logging.INFO, "version changed", file=self._options.version_watch)
        self._outdated = True
        self._changed.set()

    async def _sync(self, tasks: list[asyncio.Task[None]]) -> int:
        """Apply the module's schedules to the server, if there is a module; return the exit status so far.

        Adds the task that applies them periodically to ``tasks``.
        """
        module = self._selector.module
        if module is None or self._options.no_sync:
            return OK
        sync = asyncio.ensure_future(self._server.send_until_answered(module.sync(self._options.worker)))
        sync.add_done_callback(lambda _: self._changed.set())
        await self._until(lambda: sync.done() or self._signals > 0)
        if not sync.done():
            sync.cancel()
            await asyncio.gather(sync, return_exceptions=True)
            return OK
        try:
            reply = sync.result()
        except CommandError as error:
            event(logging.ERROR, "schedules refused", module=module.name, error=error)
            return REFUSED
        self._log_sync(module.source, reply)
        if reply.again:
            tasks.append(asyncio.ensure_future(self._redeclare(module, reply.again)))
        return OK

    async def _redeclare(self, module: PythonModule, seconds: float) -> None:
        """Apply the module's schedules periodically, so that missing ones are restored."""
        refused = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                reply = await self._server.send_until_answered(module.sync(self._options.worker))
            except CommandError as error:
                if str(error) != refused:
                    event(logging.ERROR, "schedules refused", module=module.name, error=error)
                refused = str(error)
                continue
            refused, seconds = "", reply.again or seconds
            self._log_sync(module.source, reply)

    def _log_sync(self, source: str, reply: SyncReply) -> None:
        """Log the result of a sync, unless nothing has changed since the last one."""
        counts = {name: len(getattr(reply, name) or ()) for name in SYNC_COUNTS}
        if counts == self._synced:
            return
        self._synced = {**counts, "added": 0, "changed": 0, "removed": 0}
        self._synced["unchanged"] += counts["added"] + counts["changed"]
        event(logging.INFO, "schedules synced", source=source, **counts)
        if reply.kept:
            reason = "a live worker with another version of the module declares them otherwise"
            event(logging.WARNING, "schedules kept", reason=reason, names=_some(reply.kept))
        if reply.undeclared:
            reason = "no live worker declares them; they will be removed"
            event(logging.WARNING, "schedules undeclared", reason=reason, names=_some(reply.undeclared))
        if reply.removed:
            reason = "no live worker has declared them for a while"
            event(logging.WARNING, "schedules removed", reason=reason, names=_some(reply.removed))

    async def _pull_all(self) -> int:
        """Take jobs until the worker has to stop; return the exit status so far."""
        burst = self._options.burst
        while not self._signals and not self._outdated:
            self._changed.clear()
            left = self._takes_left()
            if left <= 0:
                break
            pulling, names = self._requestable(left - self._prefetched())
            if burst and self._drained and not self._tasks:
                break
            if self._quiet or self._drained or max(pulling) <= 0:
                seconds = None if self._throttle is None else self._throttle.next_s()
                await self._until(self._changed.is_set, seconds)
                continue
            # read before the request: a run that ends while it waits may make a job ready
            idle = not self._tasks
            self._pulling, self._pulled_names = pulling, names
            jobs = await self._puller.pull(max(pulling), names)
            self._pulling, self._pulled_names = (0, 0), ()
            taken_at = asyncio.get_running_loop().time()
            for job in jobs:
                self._start_run(job, taken_at)
            if burst and not jobs:
                if idle and not self._puller.failures:
                    break
                # Maximum failed requests in a row, within about three seconds, until a burst gives up.
                if idle and self._puller.failures >= 6:
                    return UNAVAILABLE
                if self._tasks and not self._puller.failures:
                    await self._changed.wait()
        return OK

    def _takes_left(self) -> int:
        """Return how many jobs may still be taken until ``jobs_max`` is reached."""
        taken_max = self._options.jobs_max
        return sys.maxsize if taken_max is None else taken_max - self._taken

    def _requestable(self, left: int) -> tuple[tuple[int, int], tuple[str, ...]]:
        """Return how many jobs of each kind to request now, at most ``left``, and by which name patterns.

        Two kinds have separate slots: async functions on the event loop (True, the second number) and all
        other programs (False, the first). A pattern that may match jobs of both kinds is requested only if
        a slot of each kind is free.
        """
        own = self._slots() - (len(self._tasks) - len(self._on_loop))
        slots = (own, self._options.async_slots - len(self._on_loop))
        kinds_of = self._selector.kinds_of
        names = tuple(
            name for name in self._selector.names if all(slots[kind] > 0 for kind in kinds_of(name))
        )
        asked = {kind for name in names for kind in kinds_of(name)}
        free = min([left, JOBS_PER_GET_MAX, *(slots[kind] for kind in asked)])
        return (free * (False in asked), free * (True in asked)), names

    def _wants_another(self, on_loop: bool) -> bool:
        """Return whether the report of an ended job should request another job of the same kind."""
        # The job that has ended still counts as running, and so does that of each other report.
        return self._wanted(on_loop) >= 0 and self._left() > 0

    def _wanted_ahead(self, then: ThenGet) -> int:
        """Return how many jobs a report should prefetch, and remember the report's request."""
        if not self._places[then.on_loop].ahead():  # a waiting request asks for free slots
            return 0
        self._ahead = then
        return max(0, min(self._wanted(then.on_loop), self._left()))

    def _wanted(self, on_loop: bool) -> int:
        """Return how many more jobs of a kind the worker could use; negative if it has too many."""
        if self._signals or self._outdated or self._quiet or self._drained:
            return -1
        running = len(self._on_loop) if on_loop else len(self._tasks) - len(self._on_loop)
        ahead = 0 if self._ahead is None or self._ahead.on_loop != on_loop else self._ahead.requested_ahead
        slots = self._options.async_slots if on_loop else self._slots()
        return slots + self._places[on_loop].ahead() - running - self._pulling[on_loop] - ahead

    def _left(self) -> int:
        """Return how many jobs may still be requested until ``jobs_max`` is reached."""
        return self._takes_left() - max(self._pulling) - self._prefetched()

    def _prefetched(self) -> int:
        """Return how many jobs are requested by reports and have not started; 0 without ``jobs_max``."""
        return 0 if self._options.jobs_max is None else sum(then.expects for then in self._thens)

    def _slots(self) -> int:
        """Return how many jobs may currently run at a time in processes of their own."""
        return self._options.concurrency if self._throttle is None else self._throttle.slots()

    def _start_run(self, job: TakenJob, taken_at: float) -> None:
        self._taken += 1
        on_loop = self._selector.is_on_loop(job)
        task = asyncio.get_running_loop().create_task(self._work(job, taken_at, on_loop))
        self._tasks.add(task)
        if on_loop:
            self._on_loop.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._on_loop.discard(task)
        # A waiting request that asks for the right jobs goes on: to end it early costs its connection.
        now = self._requestable(self._takes_left() - self._prefetched())
        if not self._pulled_names or now != (self._pulling, self._pulled_names):
            self._changed.set()

    async def _work(self, job: TakenJob, taken_at: float, on_loop: bool) -> None:
        """Run a job, and then, one after the other, the jobs that arrive with the replies to its reports."""
        following: TakenJob | None = job
        while following is not None:
            following = await self._run_and_report(following, taken_at, on_loop)
            self._taken += following is not None
            taken_at = asyncio.get_running_loop().time()

    async def _run_and_report(self, job: TakenJob, taken_at: float, on_loop: bool) -> TakenJob | None:
        """Run and report one job; return the next job if the reply contains one."""
        if self._signals:  # the job came with the last reply before the shutdown
            await self._reporter.deliver(requeued(job))
            return None
        output = LiveOutput(self._server, job)
        then = ThenGet(
            self._options,
            lambda: self._selector.names_of(on_loop),
            lambda: self._wants_another(on_loop),
            on_loop,
            self._wanted_ahead,
            lambda job: self._start_run(job, asyncio.get_running_loop().time()),
        )
        self._outputs.add(output)
        self._thens.add(then)
        put_off = False
        run = JobRun(
            job, self._options, self._selector, watchdog=self._watchdog, on_line=output.add, loops=self._loops
        )
        self._heartbeats.add(run, taken_at)
        try:
            report = await self._performed(run, self._places[on_loop])
            if report is None:
                output.abandon()
            left = None if report is None else await self._reporter.deliver(report, then, after=output.finish)
            put_off = left is not None and await self._retry_later(left, run)
        finally:
            output.abandon()
            self._outputs.discard(output)
            self._thens.discard(then)
            if not put_off:
                self._heartbeats.discard(run)
        return then.job

    async def _retry_later(self, report: Report, run: JobRun) -> bool:
        """Retry in the background a report at which the server fails: its slot is free, its lease is renewed.

        If ``LATER_MAX`` reports are retried already, waits until this one is delivered, and returns False.
        """
        later = self._deliver_later(report, run)
        if len(self._later) >= LATER_MAX:
            await later
            return False
        task = asyncio.get_running_loop().create_task(later)
        self._later.add(task)
        task.add_done_callback(self._delivered_later)
        return True

    async def _deliver_later(self, report: Report, run: JobRun) -> None:
        try:
            delivered = await self._reporter.deliver_later(report, self._stopping)
            self._undelivered = self._undelivered or not delivered
        finally:
            self._heartbeats.discard(run)

    def _delivered_later(self, task: asyncio.Task[None]) -> None:
        self._later.discard(task)
        self._changed.set()

    async def _performed(self, run: JobRun, places: Slots) -> Report | None:
        """Run the command of a job, once there is a slot for it."""
        if not await places.enter(run):
            return run.not_begun()
        self._runs.add(run)
        try:
            return await run.perform()
        except Exception:  # an internal error in one run must not affect other runs or lose the job
            LOG.exception("job=%d run=%s failed inside the worker", run.job.job_id, run.job.run_id)
            return try_again(run.job)
        finally:
            places.leave(run)
            self._runs.discard(run)
            if self._winding_down:
                self._changed.set()

    async def _wind_down(self) -> int:
        """Wait for running jobs and their reports; return the exit status.

        After a signal, this takes at most the grace period and some seconds, even if no server accepts a
        report.
        """
        self._winding_down = True
        await self._until(lambda: not self._tasks or self._signals > 0)
        loop = asyncio.get_running_loop()
        last_reports_at = loop.time() + self._options.grace_s - LAST_REPORTS_S
        if self._runs:
            await self._until(lambda: not self._runs or self._signals > 1, self._options.grace_s)
            if self._signals == 1:
                self._end_runs(signal.SIGTERM)
                await self._until(lambda: not self._runs or self._signals > 1, TERM_TO_KILL_S)
            self._end_runs(signal.SIGKILL)
        left_s = max(last_reports_at - loop.time(), LAST_OUTPUT_S)
        await self._until(lambda: not self._tasks or self._signals > 1, left_s)
        if self._signals > 1:
            await self._until(lambda: not self._tasks, LAST_OUTPUT_S)
        for output in self._outputs:  # reports must not wait for output that the server does not accept
            output.abandon()
        self._stopping.set()
        await self._until(lambda: not self._tasks and not self._later, LAST_REPORTS_S)
        undelivered = [*self._tasks, *self._later]
        for task in undelivered:
            task.cancel()
        await asyncio.gather(*undelivered, return_exceptions=True)
        return UNAVAILABLE if undelivered or self._undelivered else OK

    def _end_runs(self, number: signal.Signals) -> None:
        for run in self._runs:
            run.end(number)

    async def _until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until a condition holds, checked at every change, or until ``seconds`` have passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()


# --- slots: which runs may begin now, and how many jobs are prefetched -----------------------------------
#
# A short run ends sooner than the next job can be fetched. So a worker prefetches as many jobs as its slots
# are likely to begin within ``AHEAD_S``, judging by the duration of recent runs; while runs are long, none.
# Prefetched jobs wait for a slot, the highest priority first. A job that waits too long (``HELD_S_MAX``),
# since the runs before it take longer than expected, is handed back, so that other workers can take it.

AHEAD_S = 0.05
"""Maximum expected seconds until a prefetched job begins: time to fetch dozens of short runs together."""

AHEAD_MAX = 100
"""Maximum prefetched jobs for one kind of run: as many as one FinishJobs can end."""

HELD_S_MAX = 0.2
"""Maximum seconds that a job waits for a slot; it is handed back after 50 to 100 % of this time."""

RUN_S_FIRST = 1.0
"""Mean seconds of a run assumed at the start: so long that only dozens of short runs lead to prefetching."""

WEIGHT = 1 / 8
"""Weight of the last run in the mean duration: some dozens of short runs outweigh a long one."""


class Slots:
    """The slots for one kind of run."""

    def __init__(self, count: Callable[[], int], ahead_max: int = AHEAD_MAX) -> None:
        """Let ``count()`` runs go on at a time (it may change); prefetch up to ``ahead_max`` jobs."""
        self._count, self._ahead_max = count, ahead_max
        self._mean_s = RUN_S_FIRST
        self._began: dict[JobRun, float] = {}
        """When each run that has a slot began, by the event loop's clock; the oldest comes first."""
        self._waiting: list[tuple[int, int, JobRun]] = []
        """A heap of (priority, arrival, run) for waiting runs; a withdrawn run stays in it until its turn."""
        self._number = 0
        self._closed = False
        self._check: asyncio.TimerHandle | None = None

    def ahead(self) -> int:
        """Return how many jobs may be prefetched beyond the slots: as many as will probably begin soon."""
        now = asyncio.get_running_loop().time()
        quick = self._count()
        for began in self._began.values():
            if now - began <= AHEAD_S:
                break
            quick -= 1
        return min(self._ahead_max, max(0, int(quick * AHEAD_S / self._mean_s)))

    async def enter(self, run: JobRun) -> bool:
        """Wait for a slot; return False if the run must not begin (it was withdrawn, or waited too long)."""
        if self._closed:
            return False
        turn = run.hold()
        self._number += 1
        heapq.heappush(self._waiting, (-run.job.reply.priority, self._number, run))
        self._begin_waiting()
        if self._waiting and self._check is None:
            self._check = asyncio.get_running_loop().call_later(HELD_S_MAX / 2, self._hand_back, 0)
        try:
            return await turn
        except asyncio.CancelledError:
            self.leave(run)  # which may have got a slot in the meantime
            raise

    def leave(self, run: JobRun) -> None:
        """Free the slot of a run, if it has one, and let waiting runs begin."""
        began = self._began.pop(run, None)
        if began is not None:
            self._mean_s += (asyncio.get_running_loop().time() - began - self._mean_s) * WEIGHT
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Let waiting runs begin while slots are free, the highest priority first."""
        while self._waiting and len(self._began) < self._count():
            _, _, following = heapq.heappop(self._waiting)
            if following.begin():
                self._began[following] = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Prevent further runs from starting."""
        self._closed = True
        for _, _, run in self._waiting:
            run.withdraw()
        self._waiting = []

    def _hand_back(self, seen: int) -> None:
        """Hand back the runs that waited at the last check already: those with numbers up to ``seen``.

        First, runs begin in the slots that were added since (``--max-load``). A run is never handed back at
        its first check: after a stall of this process, the check may come before the ends of other runs are
        read.
        """
        self._check = None
        self._begin_waiting()
        late = [run for _, number, run in self._waiting if number <= seen]
        self._waiting = [each for each in self._waiting if each[1] > seen]
        heapq.heapify(self._waiting)
        for run in late:
            run.withdraw()
        if self._waiting:
            again = asyncio.get_running_loop().call_later
            self._check = again(HELD_S_MAX / 2, self._hand_back, self._number)
