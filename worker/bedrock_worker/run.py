"""One run of a job: its folder, its environment, its command, its time. Knows no server."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from bedrock_worker import outcome
from bedrock_worker.job import Job
from bedrock_worker.log import LOG, event
from bedrock_worker.options import Options, base_environment
from bedrock_worker.process import Child
from bedrockjobs.clock import SystemClock
from bedrockjobs.wire import stamp_ms

TAIL_LINES = 10
"""Last lines of output that a failed job keeps with its error."""

TAIL_LINE_CHARS = 800
"""Length of each of them: together with the first line they fit into the error of a job."""

DATA_FILE, RESULT_FILE = "job.json", "result.json"


class Run:
    """The command of one job, from its start to what the server is told."""

    def __init__(self, job: Job, options: Options) -> None:
        """Belong to a job; nothing is started yet."""
        self.job = job
        self._options = options
        self._child: Child | None = None
        self._handing_back = False
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    async def perform(self) -> outcome.Report:
        """Run the command and return the report. A command that cannot be started is tried again later."""
        job = self.job
        try:
            with _folder(job) as folder:
                ended = await self._run(folder)
                report = outcome.report_of(job, ended, folder / RESULT_FILE)
        except OSError as error:
            event(logging.ERROR, "not started", job=job.job_id, run=job.run_id, error=error)
            return outcome.try_again(job)
        except ValueError as error:
            event(logging.ERROR, "not started", job=job.job_id, run=job.run_id, error=error)
            return outcome.could_not_start(job, error)
        event(logging.INFO, "ended", job=job.job_id, run=job.run_id, how=ended.words)
        return outcome.hand_back(job) if self._handing_back and ended.timed_out_s is None else report

    def end(self, number: signal.Signals) -> None:
        """Signal the command's group if it runs; the job will be handed back, however the command ends."""
        if self._child is not None and self._child.running:
            self._handing_back = True
            self._child.signal(number)

    async def _run(self, folder: Path) -> outcome.Ended:
        options, job = self._options, self.job
        (folder / DATA_FILE).touch(mode=0o600)
        (folder / DATA_FILE).write_text(job.text, encoding="utf-8")
        self._child = child = Child(
            options.argv,
            env=self._environment(folder),
            cwd=options.cwd,
            stdin=folder / DATA_FILE,
            listener=self._hear,
        )
        event(
            logging.INFO, "started", job=job.job_id, run=job.run_id, attempt=job.reply.attempt,
            name=job.reply.name, pid=child.pid,
        )  # fmt: skip
        end = asyncio.ensure_future(child.wait())
        timed_out_s = None
        if not await _within(end, options.timeout_s):
            timed_out_s = options.timeout_s
            child.signal(signal.SIGTERM)
            if not await _within(end, options.grace_s):
                child.signal(signal.SIGKILL)
        return outcome.Ended(await end, list(self._tail), timed_out_s)

    def _environment(self, folder: Path) -> dict[str, str]:
        options, reply = self._options, self.job.reply
        own = {
            "TMPDIR": str(folder),
            **base_environment(options),
            "BEDROCK_DATA_FILE": str(folder / DATA_FILE),
            "BEDROCK_RESULT": str(folder / RESULT_FILE),
            "BEDROCK_JOB_ID": str(reply.job_id),
            "BEDROCK_NAME": reply.name,
            "BEDROCK_SCHEDULED_FOR": reply.next_run,
            "BEDROCK_SERVER": ",".join(map(str, options.servers)),
        }
        if reply.run_id is not None:
            own["BEDROCK_RUN_ID"] = str(reply.run_id)
        if reply.attempt is not None:
            own["BEDROCK_ATTEMPT"] = str(reply.attempt)
        if options.timeout_s is not None:
            own["BEDROCK_DEADLINE"] = stamp_ms(SystemClock().now() + timedelta(seconds=options.timeout_s))
        return own

    def _hear(self, stream: str, line: str) -> None:
        LOG.info("job=%d run=%s %s: %s", self.job.job_id, self.job.run_id, stream, line)
        self._tail.append(line[:TAIL_LINE_CHARS])


@contextmanager
def _folder(job: Job) -> Iterator[Path]:
    """Make the run's own folder, and remove it with all that the command left there."""
    folder = Path(tempfile.mkdtemp(prefix=f"bedrock-job-{job.job_id}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, onerror=lambda *_: None)
        if os.path.lexists(folder):
            event(logging.WARNING, "folder not removed", job=job.job_id, folder=folder)


async def _within(end: asyncio.Future[int], seconds: float | None) -> bool:
    done, _ = await asyncio.wait((end,), timeout=seconds)
    return bool(done)
