"""Maps the end of a command to a report. All rules for exit statuses are here.

0 finishes the job; 75 requeues it after its ``backoff``; 100 fails it permanently; 101 snoozes it by the
delay in the result, which does not count as a failure; 102 fails it and requests a retry, after the delay in
the result if there is one; 103 returns the job for a worker with another version of the code. Any other
status, or an invalid result, fails the job.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bedrock_worker.functions import DONE, FAIL_PERMANENTLY, RETRY, SNOOZE, TRY_AGAIN, UNFIT
from bedrock_worker.pull.job import TakenJob
from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DATA_BYTES_MAX, DELAY_S_MAX
from bedrockjobs.base.errors import shortened
from bedrockjobs.commands import FailJob, FinishJob, RetryJob

TIMED_OUT = 124
"""Exit status of a request to a ``url`` that timed out."""

TRY_AGAIN_S = 10
"""Delay in seconds for a job without ``backoff`` whose command exits with 75 or could not be started."""

RETRIES_ASKED = 3
"""Retries of a job that exits with 102 and sets no ``retries`` itself."""

Report = FinishJob | RetryJob | FailJob


@dataclass(frozen=True)
class CompletedCommand:
    """How a command ended."""

    status: int
    """Exit status, negative for a signal."""
    tail: Iterable[str] = ()
    """The last lines of its output."""
    timed_out_s: float | None = None
    """The timeout in seconds that the command exceeded, or None."""
    result: str | None = None
    """The JSON object that a process for functions reported as result; None: look for a result file."""
    failure: str | None = None
    """Error and traceback of a failed function, or None if its process reported none."""

    @property
    def exit_code(self) -> int:
        """Return the status as a shell shows it: 128 + n for signal n."""
        return self.status if self.status >= 0 else 128 - self.status

    @property
    def words(self) -> str:
        """Describe the end: ``exit status 3``, ``SIGKILL``, ``timed out after 5 s``."""
        how = f"exit status {self.status}" if self.status >= 0 else _signal_name(-self.status)
        return how if self.timed_out_s is None else f"timed out after {self.timed_out_s:g} s ({how})"

    @property
    def last_line(self) -> str | None:
        """Return the cause of the failure in one line, or None if there was no output."""
        if self.failure is not None:
            return self.failure.partition("\n")[0]
        return next((line for line in reversed(list(self.tail)) if line.strip()), None)

    @property
    def error(self) -> str:
        """Return the error for the report of a failure."""
        if self.failure is not None and self.timed_out_s is None and self.status > 0:
            return shortened(self.failure)
        return shortened("\n".join([self.words, *self.tail]))


def report_of(job: TakenJob, ended: CompletedCommand, result_file: str | Path | None) -> Report:
    """Return the report of an ended command; ``result_file`` None means that there can be no such file."""
    if ended.timed_out_s is not None or (ended.status == TIMED_OUT and job.reply.url is not None):
        return _failed(job, ended, ended.error, timed_out=True)
    try:
        result = _result_of(ended, result_file)
        delay = _delay_of(result, ended.status)
        if ended.status == SNOOZE:
            return RetryJob(
                job_id=job.job_id,
                run_id=job.run_id,
                delay=delay,
                ignore_repeat=True,
                snoozed=True,
                exit_code=SNOOZE,
            )
    except ValueError as error:
        return _failed(job, ended, "\n".join([f"{error} ({ended.words})", *ended.tail]))
    if ended.status == DONE:
        return FinishJob(job_id=job.job_id, run_id=job.run_id, exit_code=0, data=result)
    if ended.status == TRY_AGAIN:
        return try_again(job, result, TRY_AGAIN)
    if ended.status == UNFIT:
        return RetryJob(
            job_id=job.job_id, run_id=job.run_id, returned=True, unfit=ended.error, exit_code=UNFIT
        )
    if ended.status == RETRY:
        return FailJob(
            job_id=job.job_id,
            run_id=job.run_id,
            exit_code=RETRY,
            error=ended.error,
            delay=delay,
            retries=RETRIES_ASKED,
        )
    return _failed(job, ended, ended.error, result)


def try_again(job: TakenJob, data: str | None = None, exit_code: int | None = None) -> RetryJob:
    """Return the report that requeues a job after its ``backoff``, even if it has a ``repeat``."""
    delay = TRY_AGAIN_S if job.reply.backoff is None else min(job.reply.backoff, DELAY_S_MAX)
    return RetryJob(
        job_id=job.job_id, run_id=job.run_id, delay=delay, ignore_repeat=True, data=data, exit_code=exit_code
    )


def failure_of(path: str | Path) -> str | None:
    """Return the error and traceback that a function's process wrote to a file, or None."""
    try:
        result = json.loads(result_of(path) or "{}")
        error, text = str(result["error"]), str(result["traceback"])
    except (ValueError, LookupError, RecursionError):
        return None
    return f"{error}\n{text}" if text else error


def requeued(job: TakenJob) -> RetryJob:
    """Return the report that returns a job to the queue as if it had not been taken."""
    return RetryJob(job_id=job.job_id, run_id=job.run_id, returned=True)


def stopped(job: TakenJob, number: int) -> FailJob:
    """Return the report of a job that was stopped by a signal before it began."""
    return FailJob(
        job_id=job.job_id,
        run_id=job.run_id,
        exit_code=128 + number,
        error=f"stopped before it began ({_signal_name(number)})",
    )


def refused(job: TakenJob, error: Exception) -> FailJob:
    """Return the report that fails a job which this worker may never run."""
    return FailJob(job_id=job.job_id, run_id=job.run_id, error=shortened(str(error)), final=True)


def could_not_start(job: TakenJob, error: str) -> FailJob:
    """Return the report that fails a job whose command does not exist or cannot get its input."""
    return FailJob(job_id=job.job_id, run_id=job.run_id, error=shortened(error))


def result_of(path: str | Path) -> str | None:
    """Return the JSON object in a result file as text, or None if there is no file.

    Raises ValueError for anything but a regular file: a pipe would block, and a link could lead anywhere.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"the result file cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("the result file is not a regular file")
    with os.fdopen(handle, "rb") as file:
        content = file.read(DATA_BYTES_MAX + 1)
    if len(content) > DATA_BYTES_MAX:
        raise ValueError(f"the result file is larger than {DATA_BYTES_MAX} bytes")
    try:
        text = content.decode()
        jsontext.check_object(text)
    except ValueError as error:
        raise ValueError(f"the result file holds no JSON object: {error}") from None
    return text


def _result_of(ended: CompletedCommand, result_file: str | Path | None) -> str | None:
    if ended.result is None:
        return None if result_file is None else result_of(result_file)
    try:
        jsontext.check_object(ended.result)
    except ValueError as error:
        raise ValueError(f"the result is no JSON object: {error}") from None
    return ended.result


def _delay_of(result: str | None, status: int) -> int | None:
    """Return the delay in seconds that a command requests, or None."""
    if status not in (SNOOZE, RETRY):
        return None
    delay = json.loads(result).get("delay") if result else None
    if delay is None and status == RETRY:
        return None
    if not isinstance(delay, int) or isinstance(delay, bool) or not 0 <= delay <= DELAY_S_MAX:
        expected = f'{{"delay": seconds}} in the result, 0 to {DELAY_S_MAX}'
        raise ValueError(f"exit status {status} without a delay: expected {expected}")
    return delay


def _failed(
    job: TakenJob, ended: CompletedCommand, error: str, data: str | None = None, *, timed_out: bool = False
) -> FailJob:
    how = {"timed_out": True} if timed_out else {"final": True} if ended.status == FAIL_PERMANENTLY else {}
    return FailJob(
        job_id=job.job_id,
        run_id=job.run_id,
        exit_code=ended.exit_code,
        error=shortened(error),
        data=data,
        **how,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
