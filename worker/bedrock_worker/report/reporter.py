"""Reports of ended runs, and their delivery to the server; a result is not lost while the disk is intact.

While the server is unreachable, a report is retried without end. If the server answers with an internal
error, it is retried a few times, then rarely, and finally given up; its file stays in the outbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedrock_worker.functions import DONE, FAIL_PERMANENTLY, RETRY, SNOOZE, TRY_AGAIN, UNFIT
from bedrock_worker.log import event
from bedrock_worker.pull import (
    FAULTS_MAX,
    ServerLink,
    TakenJob,
    ThenGet,
    is_fault,
    is_final,
    jobs_after,
    pause,
)
from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DATA_BYTES_MAX, DELAY_S_MAX, ERROR_CHARS_MAX
from bedrockjobs.base.errors import (
    BedrockjobsError,
    CommandError,
    Forbidden,
    NotFound,
    UnknownCommand,
    WrongState,
    shortened,
)
from bedrockjobs.client import AsyncClient, ConnectionLost, UnreadableAnswer, backoff_s
from bedrockjobs.commands import FailJob, FinishJob, FinishJobs, QueryRun, RetryJob

# --- the end of a command becomes a report; all rules for exit statuses are here -------------------------
#
# 0 finishes the job; 75 requeues it after its ``backoff``; 100 fails it permanently; 101 snoozes it by the
# delay in the result, which does not count as a failure; 102 fails it and requests a retry, after the delay
# in the result if there is one; 103 returns the job for a worker with another version of the code. Any other
# status, or an invalid result, fails the job.

TIMED_OUT = 124
"""Exit status of a request to a ``url`` that timed out."""

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
    delay = 10 if job.reply.backoff is None else min(job.reply.backoff, DELAY_S_MAX)
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


# The outbox: undelivered reports as files, which outlive the worker; the next worker delivers them.
#
# A report gets a file when its first attempt fails; the file is removed once the server has accepted or
# refused the report.


FILES_MAX = 1_000
"""Maximum reports in a folder: if the server did not accept so many, it will not accept more either."""

FILE_BYTES_MAX = 2 * DATA_BYTES_MAX
"""Maximum bytes of a file that is read; a report with the largest result fits."""

KINDS = {kind.__name__: kind for kind in (FinishJob, RetryJob, FailJob)}


@dataclass(frozen=True)
class Kept:
    """A report saved by an earlier worker."""

    path: Path
    worker: str
    """The name of the worker that performed the run."""
    servers: tuple[str, ...]
    """The servers of that worker; any of them may receive the report."""
    report: Report


class ReportOutbox:
    """Saved reports of this worker, and of earlier workers with at least one server in common."""

    def __init__(self, folder: Path | None, worker: str, servers: Sequence[object]) -> None:
        """Use a folder, which is created on demand; with None, nothing is saved."""
        self._folder, self._worker = folder, worker
        self._servers = tuple(sorted(map(str, servers)))
        self._there: set[Path] | None = None
        self._earlier: dict[int | None, tuple[Path, str]] = {}
        """The path and worker name of each report of an earlier worker, by runID."""
        self._prefix = hashlib.sha256(",".join(self._servers).encode()).hexdigest()[:12]

    def save(self, report: Report) -> Path | None:
        """Save a report and return its path; if that fails, log why and return None."""
        path = self._path(report)
        if path is None:
            return None
        _, worker = self._earlier.get(report.run_id, (path, self._worker))
        text = (
            f'{{"worker":{json.dumps(worker)},"servers":{json.dumps(self._servers)},'
            f'"verb":"{type(report).__name__}","report":{report.wire()}}}'
        )
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in path.parent.iterdir()) >= FILES_MAX:
                event(
                    logging.WARNING, "report not saved", run=report.run_id, error=f"{FILES_MAX} files there"
                )
                return None
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            self._files.add(path)
        except OSError as error:
            event(logging.WARNING, "report not saved", run=report.run_id, error=error)
            return None
        return path

    def remove(self, report: Report) -> None:
        """Remove the file of a report, if there is one."""
        if self._files and (path := self._path(report)) in self._files:
            path.unlink(missing_ok=True)
            self._files.discard(path)
            self._earlier.pop(report.run_id, None)

    def earlier(self) -> list[Kept]:
        """Return the reports that earlier workers saved for any of our servers.

        Files that are no valid reports are skipped.
        """
        if self._folder is None:
            return []
        reports: list[Kept] = []
        self._there = None
        ours = self._files
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json"))[:FILES_MAX]:
                try:
                    report = _read_report(path)
                except (OSError, ValueError, LookupError, CommandError) as error:
                    if path in ours:
                        event(logging.WARNING, "saved report not read", file=path, error=error)
                    continue
                if path in ours or not set(self._servers).isdisjoint(report.servers):
                    ours.add(path)
                    self._earlier[report.report.run_id] = path, report.worker
                    reports.append(report)
        return reports

    @property
    def _files(self) -> set[Path]:
        """Return the existing files of this worker's servers; the folder is listed only once."""
        if self._there is None:
            self._there = set()
            with suppress(OSError):  # the folder does not exist yet, or is not readable
                if self._folder is not None:
                    self._there.update(self._folder.glob(f"{self._prefix}-*.json"))
        return self._there

    def _path(self, report: Report) -> Path | None:
        if self._folder is None or report.run_id is None:  # nothing would fence a late report
            return None
        own = self._folder / f"{self._prefix}-{report.run_id}.json"
        return self._earlier.get(report.run_id, (own, ""))[0]


def _read_report(path: Path) -> Kept:
    """Read one file; raises OSError, ValueError, LookupError or CommandError if it is no valid report."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ValueError("expected a file of our own")
        text = file.read(FILE_BYTES_MAX).decode()
    with suppress(StopIteration):
        parts = jsontext.members(text)
        kind = KINDS[json.loads(parts["verb"])]
        report = kind.read(kind.parameters_in(parts["report"]))
        servers = tuple(map(str, json.loads(parts.get("servers", "[]"))))
        return Kept(path, str(json.loads(parts["worker"])), servers, report)
    raise ValueError("expected a report as JSON")


# The completion batcher: sends the ends of runs, several together while an earlier request is in flight.
#
# An end is sent at once if no request is in flight; otherwise it joins the next FinishJobs. An end that is
# refused in a batch is sent again alone, to get its whole error. After a lost reply the reporter retries, not
# the batcher.


BATCH_MAX = 100
"""Maximum ends of runs in one FinishJobs: more than usually wait, and few enough not to block the server."""

DATA_CHARS_MAX = 32_768
"""Maximum characters of a result in a batch; an end with a larger one is sent alone and delays no other."""


@dataclass(frozen=True, eq=False)
class _End:
    report: FinishJob
    then: ThenGet | None
    sent: asyncio.Future[bool]
    """True once the server has accepted the end; False if the end has to be sent alone."""


class CompletionBatcher:
    """Sends FinishJob reports (ends) of one worker's runs, several in one request if possible."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: list[_End] = []
        self._sending: asyncio.Task[None] | None = None
        self._together = True

    async def send(self, report: Report, then: ThenGet | None) -> None:
        """Send a report once; ``then``, if given, requests and receives the next job.

        Raises the server's CommandError, ConnectionError if no answer came, and ValueError if the report was
        accepted but the next job is unreadable.
        """
        if self._may_be_batched(report):
            assert isinstance(report, FinishJob)
            end = _End(report, then, asyncio.get_running_loop().create_future())
            self._waiting.append(end)
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send_waiting())
            if await end.sent:
                return
        await self._send_alone(report, then)

    def _may_be_batched(self, report: Report) -> bool:
        return (
            self._together
            and isinstance(report, FinishJob)
            and (report.data is None or len(report.data) <= DATA_CHARS_MAX)
        )

    async def _send_waiting(self) -> None:
        """Send the ends of runs in ``_waiting``, up to ``BATCH_MAX`` in a request, until none is left."""
        batch: list[_End] = []
        try:
            while self._waiting:
                batch = [end for end in self._waiting[:BATCH_MAX] if not end.sent.done()]
                del self._waiting[:BATCH_MAX]
                try:
                    first = next((end.then for end in batch if end.then is not None), None)
                    ahead = 0 if first is None else first.fetch_ahead()
                    if len(batch) == 1 and not ahead:
                        await self._send_alone(batch[0].report, batch[0].then)
                        _answer(batch[0], True)
                    elif batch:
                        await self._send_batch(batch, first, ahead)
                except Exception as error:
                    for end in batch:  # a copy each, since raising an exception extends its traceback
                        _answer(end, copy(error) if isinstance(error, BedrockjobsError) else error)
        finally:
            self._sending = None
            for end in (*batch, *self._waiting):  # only if we are cancelled
                end.sent.cancel()

    def stop_sending(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send_alone(self, report: Report, then: ThenGet | None) -> None:
        if then is None:
            await self._client.exchange(report)
            return
        try:
            answer = await self._client.exchange(then.added_to(report))
            then.answered(answer.body)
        finally:
            then.unanswered()

    async def _send_batch(self, batch: list[_End], first: ThenGet | None, ahead: int) -> None:
        """Send a batch; ends that the server did not accept are left to be sent alone.

        With the reply, slots of the same kind as that of ``first`` get their next jobs, and ``first`` gets
        ``ahead`` prefetched jobs.
        """
        asking = [
            end.then
            for end in batch
            if end.then is not None
            and first is not None
            and end.then.on_loop == first.on_loop
            and end.then.should_fetch()
        ]
        parameters: dict[str, Any] = {"jobs": [end.report for end in batch]}
        if first is not None and (asking or ahead):
            parameters |= {**first.question, "num_results": len(asking) + ahead}
        command = FinishJobs.model_construct(None, **parameters)
        fetched_ahead: list[TakenJob] = []
        try:
            answer = await self._client.exchange(command)
            taken = self._taken(command, answer.body)
            for end in batch:
                if end.report.job_id not in taken:
                    _answer(end, False)
            try:
                jobs = jobs_after(answer.body) if asking or ahead else []
                for then, job in zip(asking, jobs, strict=False):
                    then.job = job
                fetched_ahead = jobs[len(asking) :]
            except ValueError as error:  # the ends were accepted
                for end in batch:
                    if end.then in asking:
                        _answer(end, ValueError(str(error)))
        except CommandError as error:  # the error is about one end, or about the whole request
            self._together = self._together and not isinstance(error, UnknownCommand)
            taken = set()
        finally:
            for then in asking if first is None else (first, *asking):
                then.unanswered()
        for end in batch:
            _answer(end, end.report.job_id in taken)
        if first is not None:  # after the jobs of the slots, in the order of the reply
            first.fetched_ahead(fetched_ahead)

    def _taken(self, command: FinishJobs, body: bytes) -> set[int]:
        """Return the jobIDs of the ends that the server accepted; raises UnreadableAnswer."""
        try:
            results = json.loads(jsontext.members(body.decode())["results"])
            return {int(each["jobID"]) for each in results if each["code"] == 200}
        except (ValueError, LookupError, TypeError) as error:
            self._together = False
            raise UnreadableAnswer(command, self._client.server, f"results: {error!r}") from error


def _answer(end: _End, outcome: bool | Exception) -> None:
    if end.sent.done():
        return
    if isinstance(outcome, Exception):
        end.sent.set_exception(outcome)
    else:
        end.sent.set_result(outcome)


LATER_FIRST_S, LATER_MAX_S = 5.0, 60.0
"""Seconds before a retry of a report whose slot is free again: at first, and at most; doubled each time."""

LATER_TRIES_MAX = 30
"""Maximum retries of a report whose slot is free again: for about half an hour, in which the server can be
repaired."""


class Reporter:
    """Delivers the reports of one worker."""

    def __init__(self, server: ServerLink, outbox: ReportOutbox) -> None:
        """Report to a server, and save reports whose first attempt fails in the outbox."""
        self._server, self._kept = server, outbox
        self._ends = CompletionBatcher(server.client)

    def stop_sending(self) -> None:
        """Stop sending."""
        self._ends.stop_sending()

    async def deliver(
        self,
        report: Report,
        then: ThenGet | None = None,
        *,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> Report | None:
        """Wait for ``after``, then send a report until the server has it; its runID makes repetition safe.

        ``then`` requests and receives the next job. A report that is refused permanently is replaced by a
        failure that says why. If the server repeatedly answers with an internal error, returns the report,
        for ``deliver_later``; otherwise None. If cancelled, logs and saves the undelivered report.
        """
        try:
            if after is not None:
                await after()
            return await self._send(report, FAULTS_MAX, then)
        except asyncio.CancelledError:
            self._not_delivered(report)
            raise

    async def deliver_later(self, report: Report, stopping: asyncio.Event) -> bool:
        """Retry, with growing pauses, a report at which the server fails; return whether it was answered.

        Once ``stopping`` is set, the report is sent one last time, without a pause.
        """
        try:
            for number in range(LATER_TRIES_MAX):
                if stopping.is_set() and number:
                    break
                await pause(min(LATER_FIRST_S * 2.0**number, LATER_MAX_S), stopping)
                left = await self._send(report, 1)
                if left is None:
                    return True
                report = left
        except asyncio.CancelledError:
            self._not_delivered(report)
            raise
        self._not_delivered(report)
        return False

    async def deliver_kept(self) -> None:
        """Deliver reports saved by earlier workers, if their runs are still open."""
        for saved in self._kept.earlier():
            try:
                if await self._is_open(saved):
                    event(logging.INFO, "kept report", file=saved.path)
                    await self._send(saved.report, FAULTS_MAX)
                else:
                    _log(logging.WARNING, "run already over", saved.report)
                    self._kept.remove(saved.report)
            except (CommandError, OSError) as error:
                event(logging.ERROR, "saved report not delivered", file=saved.path, error=error)

    async def _is_open(self, saved: Kept) -> bool:
        """Return whether the server still has the same run open: another database may reuse its runID."""
        report = saved.report
        assert report.run_id is not None
        try:
            run = await self._server.send_until_answered(QueryRun(run_id=report.run_id))
        except NotFound:
            return False
        return (run.job_id, run.worker, run.status) == (report.job_id, saved.worker, "running")

    def _not_delivered(self, report: Report) -> None:
        result = None if report.data is None else report.data[:4_096]
        _log(logging.ERROR, "report not delivered", report, result=result, kept=self._kept.save(report))

    async def _send(self, report: Report, faults_max: int, then: ThenGet | None = None) -> Report | None:
        """Send a report until it is answered; if it is refused, send the failure that replaces it.

        Returns the report after ``faults_max`` internal errors of the server in a row, else None.
        """
        failures = faults = 0
        perhaps_done = False
        while True:
            try:
                await self._ends.send(report, then)
            except ValueError as error:  # the job's lease expires, and another worker gets it
                _log(logging.ERROR, "no job can be read", report, error=error)
                _log(logging.INFO, "reported", report)
            except (NotFound, WrongState) as error:
                # An earlier attempt arrived, or the run is no longer ours: nothing is left to report.
                level = logging.INFO if perhaps_done else logging.WARNING
                _log(level, "run already over", report, answer=error)
            except (ConnectionError, CommandError) as error:
                if is_final(error) and not isinstance(error, Forbidden):  # another token may be accepted
                    self._server.up()
                    _log(logging.ERROR, "report refused", report, error=error)
                    if isinstance(report, FailJob) and report.data is None:
                        self._kept.remove(report)
                        return None
                    report = failure_instead(report, error)
                    failures = faults = 0
                    perhaps_done = False
                    continue
                perhaps_done = perhaps_done or isinstance(error, ConnectionLost)
                failures += 1
                if failures == 1:
                    self._kept.save(report)
                if is_fault(error):
                    faults += 1
                    if faults in (1, faults_max):
                        _log(logging.WARNING, "server fails at report", report, tries=faults, answer=error)
                    if faults >= faults_max:
                        return report
                else:
                    faults = 0
                    self._server.down(error)
                await asyncio.sleep(backoff_s(failures))
                continue
            else:
                _log(logging.INFO, "reported", report)
            self._server.up()
            self._kept.remove(report)
            return None


def failure_instead(report: Report, refusal: CommandError) -> FailJob:
    """Return the report that replaces a permanently refused one.

    If a report with a result was refused, the failure is permanent: another run would have the same result.
    A refused FailJob is sent again without its result.
    """
    verb, detail = type(report).__name__, refusal.detail
    if detail.startswith("data:"):  # the command's author knows its result, but not our parameters
        message = f"result{detail.removeprefix('data')} ({verb} was refused: {refusal.status_line})"
    else:
        message = f"{verb} was refused: {refusal}"
    message = message[:ERROR_CHARS_MAX]
    if isinstance(report, FailJob):
        first = (report.error or "")[: max(0, ERROR_CHARS_MAX - len(message) - 1)]
        return report.model_copy(update={"error": f"{first}\n{message}" if first else message, "data": None})
    final = {"final": True} if report.data is not None else {}
    return FailJob(job_id=report.job_id, run_id=report.run_id, error=message, **final)


def _log(level: int, title: str, report: Report, **keys: object) -> None:
    verb = type(report).__name__
    event(level, title, job=report.job_id, run=report.run_id, report=verb, exit=report.exit_code, **keys)
