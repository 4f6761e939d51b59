"""The agent: pulls jobs into free slots, runs them, reports them, and ends in good order.

One waiting GetJobs asks for all free slots; nothing is prefetched. Knows no command line.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

from bedrock_worker.job import Job, jobs_of
from bedrock_worker.log import LOG, event
from bedrock_worker.options import Options
from bedrock_worker.outcome import hand_back, try_again
from bedrock_worker.report import Link, Reporter
from bedrock_worker.run import Run
from bedrockjobs.client import AsyncClient, backoff_s
from bedrockjobs.errors import CommandError, NotFound

OK, UNAVAILABLE = 0, 69
"""Exit statuses; 69 is EX_UNAVAILABLE of sysexits.h."""

BURST_TRIES_MAX = 6
"""Questions in a row without an answer after which a burst gives up: about three seconds."""

TERM_TO_KILL_S = 3.0
"""Time between TERM and KILL at the end; with the grace before it, under the 30 s of usual supervisors."""

LAST_REPORTS_S = 5.0
"""Time for the reports that are left once a second signal wants the end at once."""

EARLY_S = 1.0
"""A wait that ends empty within this did not wait; the next question then comes after a pause."""


class Agent:
    """A worker at work."""

    def __init__(self, options: Options) -> None:
        """Work as the options say; nothing is connected yet."""
        self._options = options
        # One try each: the loops here go on for as long as the server is away, and say so once.
        self._client = AsyncClient([str(address) for address in options.servers], tries=1)
        self._link = Link()
        self._reporter = Reporter(self._client, self._link)
        self._runs: set[Run] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = 0
        self._failures = 0
        self._signals = 0
        self._quiet = False
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Work until a signal, the end of a burst or the last of ``jobs_max``; return the exit status."""
        options = self._options
        event(
            logging.INFO, "worker ready", worker=options.worker, names=",".join(options.names),
            server=",".join(map(str, options.servers)), slots=options.concurrency,
        )  # fmt: skip
        try:
            status = await self._pull_all()
            return await self._wind_down() or status
        finally:
            await self._client.close()
            event(logging.INFO, "worker ended", taken=self._taken)

    def stop(self) -> None:
        """Take no more and end: in good order at the first call, at once at the second."""
        self._signals += 1
        event(logging.INFO, "stopping" if self._signals == 1 else "stopping at once", running=len(self._runs))
        self._changed.set()

    def quiet(self) -> None:
        """Take no more for now; what runs goes on."""
        event(logging.INFO, "quiet")
        self._quiet = True
        self._changed.set()

    def resume(self) -> None:
        """Take jobs again."""
        if self._quiet:
            event(logging.INFO, "resumed")
        self._quiet = False
        self._changed.set()

    async def _pull_all(self) -> int:
        """Take jobs for as long as there is reason to; return the exit status so far."""
        burst = self._options.burst
        while not self._signals:
            self._changed.clear()
            left = self._options.jobs_max
            left = self._options.concurrency if left is None else left - self._taken
            if left <= 0:
                break
            free = min(left, self._options.concurrency - len(self._tasks))
            if self._quiet or free <= 0:
                await self._changed.wait()
                continue
            idle = not self._tasks  # before the question: a run that ends meanwhile may make a job ready
            jobs = await self._pull(free)
            for job in jobs:
                self._begin(job)
            if burst and not jobs:
                if idle and not self._failures:
                    break
                if idle and self._failures >= BURST_TRIES_MAX:
                    return UNAVAILABLE
                if self._tasks and not self._failures:
                    await self._changed.wait()
        return OK

    async def _pull(self, free: int) -> list[Job]:
        """Ask for jobs; where there are none, or no answer, return none after a fitting wait."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            answer = await self._client.exchange(self._options.take(free), hurry=self._changed)
            jobs = jobs_of(answer.body)
        except NotFound:
            self._link.up()
            self._failures = 0
            if not self._options.burst and loop.time() - asked_at < EARLY_S:
                await self._pause(EARLY_S)
            return []
        except (CommandError, ConnectionError, ValueError) as error:
            self._link.down(error)
            self._failures += 1
            await self._pause(backoff_s(self._failures))
            return []
        self._link.up()
        self._failures = 0
        return jobs

    async def _pause(self, seconds: float) -> None:
        await self._until(self._changed.is_set, seconds)

    def _begin(self, job: Job) -> None:
        self._taken += 1
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _work(self, job: Job) -> None:
        """See one job through."""
        if self._signals:  # it came with the answer that ended the last wait
            await self._reporter.deliver(hand_back(job))
            return
        run = Run(job, self._options)
        self._runs.add(run)
        try:
            report = await run.perform()
        except Exception:  # a fault of ours in one run must not end the others, nor lose the job
            LOG.exception("job=%d run=%s failed inside the worker", job.job_id, job.run_id)
            report = try_again(job)
        finally:
            self._runs.discard(run)
            self._changed.set()
        await self._reporter.deliver(report)

    async def _wind_down(self) -> int:
        """Wait for what runs; after a signal no longer than the grace. Return the exit status."""
        await self._until(lambda: not self._tasks or self._signals > 0)
        if self._runs:
            await self._until(lambda: not self._runs or self._signals > 1, self._options.grace_s)
            if self._signals == 1:
                self._end_runs(signal.SIGTERM)
                await self._until(lambda: not self._runs or self._signals > 1, TERM_TO_KILL_S)
            self._end_runs(signal.SIGKILL)
        await self._until(lambda: not self._tasks or self._signals > 1)
        await self._until(lambda: not self._tasks, LAST_REPORTS_S)
        undelivered = list(self._tasks)
        for task in undelivered:
            task.cancel()
        await asyncio.gather(*undelivered, return_exceptions=True)
        return UNAVAILABLE if undelivered else OK

    def _end_runs(self, number: signal.Signals) -> None:
        for run in self._runs:
            run.end(number)

    async def _until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something holds, looking whenever something changed, no longer than some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
