"""What the end of a command means for its job. The rules of exit statuses are here and nowhere else.

0 finishes the job; 75 queues it again after its ``backoff``; 100 fails it for good; 101 puts it off by the
delay in the result, which is no failure; 102 fails it and asks for another try, after the delay in the
result if there is one; 103 gives it back for a worker with other code; anything else fails it, and so does a
result that cannot be used.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bedrock_worker.pull.job import Job
from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DATA_BYTES_MAX, DELAY_S_MAX
from bedrockjobs.base.failure_text import shortened
from bedrockjobs.commands import FailJob, FinishJob, RetryJob

FINISH, TRY_AGAIN, FAIL_FOR_GOOD, SNOOZE, RETRY, UNFIT = 0, 75, 100, 101, 102, 103
"""The exit statuses that mean something of their own; 75 is EX_TEMPFAIL of sysexits.h."""

ASKED_RETRIES = 3
"""Retries of a job without a number of them whose command asks for another try: it must end at some time."""

TIMED_OUT = 124
"""With this a request to a ``url`` ends that was not answered in its time."""

TRY_AGAIN_S = 10
"""Delay of a job without ``backoff`` whose command asked to be tried again, or could not start just now."""

Report = FinishJob | RetryJob | FailJob


@dataclass(frozen=True)
class CompletedCommand:
    """How a command ended."""

    status: int
    """Exit status, negative for the signal that ended it."""
    tail: Iterable[str] = ()
    """The last lines of its output."""
    timed_out_s: float | None = None
    """The timeout that it ran into."""
    result: str | None = None
    """The JSON object that it told as its result; None where one may be in its file."""
    failure: str | None = None
    """Why a function failed: its error, then its traceback; None if it did not say."""

    @property
    def exit_code(self) -> int:
        """Return the status as a shell gives it: 128 + n for signal n."""
        return self.status if self.status >= 0 else 128 - self.status

    @property
    def words(self) -> str:
        """Say how it ended: ``exit status 3``, ``SIGKILL``, ``timed out after 5 s``."""
        how = f"exit status {self.status}" if self.status >= 0 else _signal_name(-self.status)
        return how if self.timed_out_s is None else f"timed out after {self.timed_out_s:g} s ({how})"

    @property
    def last_words(self) -> str | None:
        """Return in one line why it failed; None if it said nothing."""
        if self.failure is not None:
            return self.failure.partition("\n")[0]
        return next((line for line in reversed(list(self.tail)) if line.strip()), None)

    @property
    def error(self) -> str:
        """Return what a failed job keeps as its error."""
        if self.failure is not None and self.timed_out_s is None and self.status > 0:
            return shortened(self.failure)
        return shortened("\n".join([self.words, *self.tail]))


def report_of(job: Job, ended: CompletedCommand, result_file: str | Path | None) -> Report:
    """Return what the server is to be told; there is no result where there is no file for one."""
    if ended.timed_out_s is not None or (ended.status == TIMED_OUT and job.reply.url is not None):
        return _failed(job, ended, ended.error, timed_out=True)
    try:
        result = _result_of(ended, result_file)
        delay = _delay_of(result, ended.status)
        if ended.status == SNOOZE:
            return RetryJob(
                job_id=job.job_id, run_id=job.run_id, delay=delay, ignore_repeat=True,
                snoozed=True, exit_code=SNOOZE,
            )  # fmt: skip
    except ValueError as error:
        return _failed(job, ended, "\n".join([f"{error} ({ended.words})", *ended.tail]))
    if ended.status == FINISH:
        return FinishJob(job_id=job.job_id, run_id=job.run_id, exit_code=0, data=result)
    if ended.status == TRY_AGAIN:
        return try_again(job, result, TRY_AGAIN)
    if ended.status == UNFIT:
        return RetryJob(
            job_id=job.job_id, run_id=job.run_id, returned=True, unfit=ended.error, exit_code=UNFIT
        )  # fmt: skip
    if ended.status == RETRY:
        return FailJob(
            job_id=job.job_id, run_id=job.run_id, exit_code=RETRY, error=ended.error, delay=delay,
            retries=ASKED_RETRIES,
        )  # fmt: skip
    return _failed(job, ended, ended.error, result)


def try_again(job: Job, data: str | None = None, exit_code: int | None = None) -> RetryJob:
    """Return the report that queues a job again after its ``backoff``, whatever its repeat."""
    delay = TRY_AGAIN_S if job.reply.backoff is None else min(job.reply.backoff, DELAY_S_MAX)
    return RetryJob(
        job_id=job.job_id, run_id=job.run_id, delay=delay, ignore_repeat=True, data=data, exit_code=exit_code
    )


def failure_of(path: str | Path) -> str | None:
    """Return why a function failed, as its process left it in a file; None if there is no such file."""
    try:
        found = json.loads(result_of(path) or "{}")
        error, text = str(found["error"]), str(found["traceback"])
    except (ValueError, LookupError, RecursionError):
        return None
    return f"{error}\n{text}" if text else error


def hand_back(job: Job) -> RetryJob:
    """Return the report that gives a job back, to be taken as if it had not been."""
    return RetryJob(job_id=job.job_id, run_id=job.run_id, returned=True)


def refused(job: Job, error: Exception) -> FailJob:
    """Return the report of a job that this worker must not run, however often it is tried."""
    return FailJob(job_id=job.job_id, run_id=job.run_id, error=shortened(str(error)), final=True)


def could_not_start(job: Job, error: str) -> FailJob:
    """Return the report of a job whose command does not exist, or cannot be given what it needs."""
    return FailJob(job_id=job.job_id, run_id=job.run_id, error=shortened(error))


def result_of(path: str | Path) -> str | None:
    """Return the JSON object in a result file as text, None where there is no file.

    Raises ValueError, with the reason, for anything else that lies there: a pipe would hang us, a link would
    lead elsewhere.
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
    """Return the delay that a command asks for; None if it asks for none, where it need not."""
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
    job: Job, ended: CompletedCommand, error: str, data: str | None = None, *, timed_out: bool = False
) -> FailJob:
    how = {"timed_out": True} if timed_out else {"final": True} if ended.status == FAIL_FOR_GOOD else {}
    return FailJob(
        job_id=job.job_id, run_id=job.run_id, exit_code=ended.exit_code,
        error=shortened(error), data=data, **how,
    )  # fmt: skip


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
