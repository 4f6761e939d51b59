"""One run of a job: its folder, environment, command, time limits and lease."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from bedrock_worker.current import PROGRESS_VARIABLE
from bedrock_worker.log import LOG, event, printable
from bedrock_worker.options import WorkerOptions
from bedrock_worker.policy.program import JobRefused, Program, ProgramSelector
from bedrock_worker.pull import TakenJob
from bedrock_worker.report import reporter
from bedrock_worker.run.guard import DATA_FILE
from bedrock_worker.run.kernel import NEVER
from bedrock_worker.run.loop_client import FOLDER_BYTES, EndedForAnother, LoopProcesses, LoopRun
from bedrock_worker.run.pipes import Mask
from bedrock_worker.run.process import CannotStart, ChildProcess, Warm, pooled_run
from bedrock_worker.run.run_function import ERROR_FILE
from bedrock_worker.run.watchdog_client import NeverBegan, PooledRun, WatchdogClient
from bedrockjobs.base.clock import SystemClock, timestamp_ms
from bedrockjobs.base.config import GRACE_S_DEFAULT, HEARTBEAT_S, LEASE_S_DEFAULT
from bedrockjobs.client import RUN_TOKEN_VARIABLE
from bedrockjobs.commands import FailJob, RetryJob

# The lease: how long a run is certainly ours, from the time when the last acknowledged heartbeat was sent.
#
# The command gets TERM and then KILL before the lease expires, so that the server never gives away a job that
# still runs here.


BEATS_PER_LEASE = LEASE_S_DEFAULT / HEARTBEAT_S
"""Minimum heartbeats per lease: in a short lease they follow each other faster than every ``HEARTBEAT_S``."""

End = Callable[[signal.Signals], None]


class Lease:
    """The lease of one run."""

    def __init__(self, seconds: int | None, end: End) -> None:
        """Create a lease (45 s if None or 0); before it expires, call ``end`` with TERM, then KILL."""
        self.seconds = float(seconds or LEASE_S_DEFAULT)
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    @property
    def beat_s(self) -> float:
        """Return the interval of heartbeats, in seconds, that keeps the lease."""
        return min(float(HEARTBEAT_S), self.seconds / BEATS_PER_LEASE)

    @property
    def kill_s(self) -> float:
        """Return the seconds from a renewal until the command is killed."""
        return self.seconds - min(5.0, self.seconds / 6)

    def renew(self, sent_at: float) -> None:
        """Restart the lease at ``sent_at``, a time of the event loop's clock."""
        self.suspend()
        term_at = sent_at + self.seconds - min(10.0, self.seconds / 3)
        self._timer = asyncio.get_running_loop().call_at(term_at, self._term, sent_at + self.kill_s)

    def suspend(self) -> None:
        """Stop the lease from expiring: the run is over, or its server does not use leases."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _term(self, kill_at: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(kill_at, self._end, signal.SIGKILL)
        self._end(signal.SIGTERM)


RESULT_FILE = "result.json"

OnLine = Callable[[str, str], bool]
"""Called with a stream's name and a line; returns whether the line is output, not progress."""


class JobRun:
    """The command of one job, from start to report."""

    def __init__(
        self,
        job: TakenJob,
        options: WorkerOptions,
        selector: ProgramSelector,
        *,
        watchdog: WatchdogClient,
        on_line: OnLine,
        loops: LoopProcesses | None = None,
    ) -> None:
        """Prepare the run of a job; nothing is started yet.

        ``loops`` has the process that async functions share; without it, each run gets a process of its own.
        """
        self.job = job
        self._options, self._selector, self._watchdog, self._on_line = options, selector, watchdog, on_line
        self._loops = loops
        self._child: ChildProcess | PooledRun | LoopRun | None = None
        self._folder = ""
        self._handing_back = False
        self._unwanted = False
        """True if the worker stops, so that the command must not be started any more."""
        self._lost = False
        self._turn: asyncio.Future[bool] | None = None
        """The future of ``hold``, whose result says whether the run may begin; None before ``hold``."""
        self._stops: set[signal.Signals] = set()
        self._lease = Lease(job.reply.lease, self._on_lease_expired)
        self._kill_at = NEVER
        self._term_at = NEVER
        self._mask = Mask()
        self._tail: deque[str] = deque(maxlen=10)  # last output lines that a failed job stores with its error

    def hold(self) -> asyncio.Future[bool]:
        """Make the run wait for a slot; the future's result says whether the run may begin."""
        self._turn = asyncio.get_running_loop().create_future()
        return self._turn

    def begin(self) -> bool:
        """Let the run begin; return False if it does not wait (any more)."""
        return self._take_turn(True)

    def withdraw(self) -> bool:
        """Forbid the run to begin; return False if it does not wait (any more)."""
        return self._take_turn(False)

    def _take_turn(self, begins: bool) -> bool:
        if self._turn is None or self._turn.done():
            return False
        self._turn.set_result(begins)
        return True

    def not_begun(self) -> reporter.Report | None:
        """Return the report of a run that did not begin, or None if the run is no longer ours."""
        if self._lost:
            return None
        return reporter.stopped(self.job, min(self._stops)) if self._stops else reporter.requeued(self.job)

    async def perform(self) -> reporter.Report | None:
        """Run the command and return the report, or None if the run is no longer ours.

        A command that cannot be started at the moment is retried later; one that can never be started fails.
        """
        job = self.job
        try:
            ended = await self._run_job()
            left = self._child is None or self._child.folder_left
            if left and ended.status and self._folder:
                failure = reporter.failure_of(f"{self._folder}/{ERROR_FILE}")
                ended = replace(ended, failure=None if failure is None else self._shown(failure))
            report = reporter.report_of(job, ended, f"{self._folder}/{RESULT_FILE}" if left else None)
        except (NeverBegan, EndedForAnother):
            return None if self._lost else reporter.requeued(job)
        except JobRefused as error:
            event(logging.ERROR, "refused", job=job.job_id, run=job.run_id, error=error)
            return reporter.refused(job, error)
        except OSError as error:
            event(logging.ERROR, "not started", job=job.job_id, run=job.run_id, error=error)
            return reporter.try_again(job)
        except CannotStart as error:
            event(logging.ERROR, "not started", job=job.job_id, run=job.run_id, error=error)
            return reporter.could_not_start(job, str(error))
        except ValueError as error:
            event(logging.ERROR, "not started", job=job.job_id, run=job.run_id, error=error)
            return reporter.could_not_start(job, f"cannot start the command: {error}")
        finally:
            if self._child is not None:
                if self._child.folder_left:
                    _remove(self._folder)
                self._child.release()
        assert self._child is not None
        self._log_end(ended, report)
        # The machine may have slept past the lease: then the guard killed the command without a report.
        asleep = ended.status == -signal.SIGKILL and asyncio.get_running_loop().time() >= self._kill_at
        if self._lost or asleep:
            return None
        if self._child.survivors:
            event(
                logging.ERROR,
                "processes not ended",
                job=job.job_id,
                run=job.run_id,
                left=self._child.survivors,
            )
        if self._handing_back and self._child.was_signalled and ended.timed_out_s is None:
            return reporter.requeued(job)
        masked = None if report.data is None else self._mask(report.data)
        return report if masked == report.data else report.model_copy(update={"data": masked})

    def _shown(self, text: str) -> str:
        """Return a text with secrets masked and control characters escaped, line by line."""
        return "\n".join(printable(self._mask(line)) for line in text.split("\n"))

    def _log_end(self, ended: reporter.CompletedCommand, report: reporter.Report) -> None:
        """Log how the command ended, and the last line of its output if it failed."""
        job, level, error = self.job, logging.INFO, None
        if self._lost or self._handing_back:
            pass
        elif isinstance(report, FailJob):
            retries = job.reply.retries if job.reply.retries is not None else report.retries
            retried = not report.final and (job.reply.attempt or 1) <= (retries or 0)
            level = logging.WARNING if retried else logging.ERROR
            error = ended.last_line
        elif isinstance(report, RetryJob) and not report.snoozed:
            level, error = logging.WARNING, ended.last_line
        event(level, "ended", job=job.job_id, run=job.run_id, how=ended.words, error=error)

    def end(self, number: signal.Signals) -> None:
        """Signal the command's group; if the command was running, its job is requeued however it ends."""
        self._unwanted = True
        if self._signal(number):
            self._handing_back = True

    def stop(self, number: signal.Signals) -> None:
        """Signal the command's group on the server's request, once per signal."""
        # Window before the timeout in which a stop request is ignored: the server counts from the take, so
        # it asks earlier.
        if number == signal.SIGTERM and asyncio.get_running_loop().time() > self._term_at - 1.0:
            return  # the run ends, and is reported, because of its own timeout
        if number not in self._stops and (self.withdraw() or self._signal(number)):
            self._stops.add(number)
            event(logging.WARNING, "stop", job=self.job.job_id, run=self.job.run_id, signal=number.name)

    def abandon_run(self) -> None:
        """Kill the command's group and report nothing: the server says that the run is over."""
        if not self._lost and (self.withdraw() or self._child is not None):
            self._lost = True
            if self._signal(signal.SIGKILL):
                event(logging.WARNING, "lost", job=self.job.job_id, run=self.job.run_id)

    @property
    def leased_id(self) -> int | None:
        """Return the runID whose lease is to be renewed, or None after the run was given up."""
        return None if self._lost else self.job.run_id

    @property
    def beat_s(self) -> float:
        """Return the interval of heartbeats that keeps the lease."""
        return self._lease.beat_s

    def renew(self, sent_at: float) -> None:
        """Restart the lease at ``sent_at``, a time of the event loop's monotonic clock."""
        if not self._lost:
            self._lease.renew(sent_at)
            self._live_until(sent_at + self._lease.kill_s)

    def suspend(self) -> None:
        """Stop the lease from expiring."""
        self._lease.suspend()
        self._live_until(NEVER)

    def _on_lease_expired(self, number: signal.Signals) -> None:
        """Give up and signal the run: it must end before the server gives its job to another worker."""
        if self.withdraw() or self._signal(number):
            self._lost = True
            event(logging.ERROR, "lease over", job=self.job.job_id, run=self.job.run_id, signal=number.name)

    def _live_until(self, moment: float) -> None:
        self._kill_at = moment
        if self._child is not None and self._child.running:
            self._child.until(moment)

    def _signal(self, number: signal.Signals) -> bool:
        """Signal the command's group; return whether the command was running."""
        if self._child is None or not self._child.running:
            return False
        self._child.signal(number)
        return True

    async def _run_job(self) -> reporter.CompletedCommand:
        job = self.job
        program = self._selector.program_for(job)
        token = job.reply.run_token
        self._mask = Mask(program.secrets if token is None else (*program.secrets, token))
        term_s, kill_s = self._limits(program)
        try:
            return await self._ended(program, term_s, kill_s)
        except NeverBegan:  # its process was killed while idle
            assert self._child is not None
            if self._lost or self._unwanted:
                raise
            _remove(self._folder)
            self._child.release()
            self._child = None
            return await self._ended(program, term_s, kill_s, pooled=False)

    async def _ended(
        self, program: Program, term_s: float | None, kill_s: float | None, *, pooled: bool = True
    ) -> reporter.CompletedCommand:
        """Run the command and wait for its end; raises NeverBegan only if ``pooled``."""
        job = self.job
        self._child = child = self._start_command(program, term_s, pooled=pooled)
        if term_s is not None:
            self._term_at = asyncio.get_running_loop().time() + term_s  # set again once the start is reported
        pid = await child.started()
        event(
            logging.INFO,
            "started",
            job=job.job_id,
            run=job.run_id,
            attempt=job.reply.attempt,
            name=job.reply.name,
            pid=pid,
        )
        if term_s is None or kill_s is None:
            return self._completed(await child.wait())
        end = asyncio.ensure_future(child.wait())
        timed_out_s = None
        self._term_at = asyncio.get_running_loop().time() + term_s
        if not await _within(end, term_s):
            timed_out_s = term_s
            child.signal(signal.SIGTERM)
            if not await _within(end, kill_s - term_s):
                child.signal(signal.SIGKILL)
        return self._completed(await end, timed_out_s)

    def _completed(self, status: int, timed_out_s: float | None = None) -> reporter.CompletedCommand:
        child = self._child
        assert child is not None
        failure = child.failure if isinstance(child, LoopRun) else None
        shown = None if failure is None else self._shown(failure)
        return reporter.CompletedCommand(status, self._tail, timed_out_s, child.result, shown)

    def _start_command(
        self, program: Program, term_s: float | None, *, pooled: bool
    ) -> ChildProcess | PooledRun | LoopRun:
        """Start the run, on the event loop of async functions or in a reusable process if possible."""
        job, own = self.job, self._own_environment(term_s)
        privileges = self._options.new_privileges
        if self._loops is not None and program.on_loop and program.function is not None:
            run = self._loops.begin_run(
                program.function.loop,
                env={**self._options.base_environment, **program.env},
                cwd=program.cwd,
                new_privileges=privileges,
                name=f"{job.run_id} of {job.reply.name}",
                function=(program.function.module, program.function.name),
                own=own,
                data=job.text,
                listener=self._handle_line,
            )
            run.until(self._kill_at)
            return run
        warm = self._warm(program, own)
        if warm is not None and pooled:
            pooled_one = pooled_run(
                warm,
                self._watchdog,
                cwd=program.cwd,
                data=job.text,
                listener=self._handle_line,
                until=self._kill_at,
                new_privileges=privileges,
                before=job.before,
            )
            if pooled_one is not None:
                self._folder = pooled_one.folder
                return pooled_one
        self._folder = f"{tempfile.gettempdir()}/bedrock-job-{job.job_id}-{os.urandom(FOLDER_BYTES).hex()}"
        env = self._environment(self._folder, program)
        told = {PROGRESS_VARIABLE: "3"} if program.tells_progress else {}
        return ChildProcess(
            program.argv,
            env=env if warm is not None else {**env, **own, **told},
            cwd=program.cwd,
            folder=self._folder,
            data=job.text,
            listener=self._handle_line,
            watchdog=self._watchdog,
            until=self._kill_at,
            limits=program.limits,
            new_privileges=privileges,
            warm=warm,
            progress=program.tells_progress,
            before=job.before,
        )

    def _warm(self, program: Program, own: Mapping[str, str]) -> Warm | None:
        """Return how to fork a process for the function; None if each run starts an interpreter."""
        function = program.function
        if function is None:
            return None
        return Warm(
            function.template,
            env={**self._options.base_environment, **program.env},
            function=(function.module, function.name),
            own=own,
            runs_max=1 if program.is_single else self._options.process_jobs_max,
        )

    def _limits(self, program: Program) -> tuple[float | None, float | None]:
        """Return the seconds until TERM and until KILL, by the smallest of all limits; None without any."""
        options, reply = self._options, self.job.reply
        limits = [(limit, options.grace_s) for limit in (options.timeout_s, program.timeout_s) if limit]
        if reply.run_timeout:
            grace = GRACE_S_DEFAULT if reply.grace is None else reply.grace
            limits.append((float(reply.run_timeout), float(grace)))
        if not limits:
            return None, None
        return min(limit for limit, _ in limits), min(limit + grace for limit, grace in limits)

    def _environment(self, folder: str, program: Program) -> dict[str, str]:
        """Return the variables that are common to all runs of the program."""
        return {
            "TMPDIR": folder,
            **self._options.base_environment,
            **program.env,
            "BEDROCK_DATA_FILE": f"{folder}/{DATA_FILE}",
            "BEDROCK_RESULT": f"{folder}/{RESULT_FILE}",
        }

    def _own_environment(self, term_s: float | None) -> dict[str, str]:
        """Return the variables that belong to this run only."""
        reply = self.job.reply
        own = {
            "BEDROCK_JOB_ID": str(reply.job_id),
            "BEDROCK_NAME": reply.name,
            "BEDROCK_SCHEDULED_FOR": reply.next_run,
        }
        if reply.run_id is not None:
            own["BEDROCK_RUN_ID"] = str(reply.run_id)
        if reply.run_token is not None:
            own[RUN_TOKEN_VARIABLE] = reply.run_token
        if reply.attempt is not None:
            own["BEDROCK_ATTEMPT"] = str(reply.attempt)
        if reply.traceparent is not None:
            own["TRACEPARENT"] = reply.traceparent
        if term_s is not None:
            own["BEDROCK_DEADLINE"] = timestamp_ms(SystemClock().now() + timedelta(seconds=term_s))
        return own

    def _handle_line(self, stream: str, line: str) -> None:
        line = self._mask(line)
        if self._on_line(stream, line):
            shown = printable(line)
            if self._options.echo:
                LOG.info("job=%d run=%s %s: %s", self.job.job_id, self.job.run_id, stream, shown)
            # Maximum characters of a line: ten such lines and a first one fit into the error of a job.
            self._tail.append(shown[:800])


def _remove(folder: str) -> None:
    """Remove the folder of a run; if the worker dies, the guard removes it."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        event(logging.WARNING, "folder not removed", folder=folder)


async def _within(end: asyncio.Future[int], seconds: float) -> bool:
    done, _ = await asyncio.wait((end,), timeout=seconds)
    return bool(done)
