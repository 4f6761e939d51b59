"""Delivers reports to the server; a result is not lost as long as there is a disk.

While the server is unreachable, a report is retried indefinitely. If the server fails at it, it is retried a
few times, then rarely, and finally given up; it stays in its file (``kept``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bedrock_worker.log import event
from bedrock_worker.pull.server_status import (
    FAULTS_MAX,
    ServerStatus,
    is_fault,
    is_final,
    send_until_answered,
)
from bedrock_worker.pull.then_get import ThenGet
from bedrock_worker.report.ends import CompletionBatcher
from bedrock_worker.report.kept import Kept, Outbox
from bedrock_worker.report.outcome import Report
from bedrockjobs.base.config import ERROR_CHARS_MAX
from bedrockjobs.base.errors import CommandError, Forbidden, NotFound, WrongState
from bedrockjobs.client import AsyncClient, ConnectionLost, backoff_s
from bedrockjobs.commands import FailJob, QueryRun

RESULT_SHOWN_CHARS = 4_096
"""Length of an undelivered result in the log."""

LATER_FIRST_S, LATER_MAX_S = 5.0, 60.0
"""Pauses before retries without a slot: the first, doubled up to the maximum."""

LATER_TRIES_MAX = 30
"""Max retries without a slot: about half an hour, in which the server can be repaired."""


class StillFailing(Exception):
    """The server keeps failing at a report."""


class Reporter:
    """Delivers reports."""

    def __init__(self, client: AsyncClient, server: ServerStatus, kept: Outbox) -> None:
        """Report through a client, and save what is not accepted at once."""
        self._client, self._server, self._kept = client, server, kept
        self._ends = CompletionBatcher(client)

    def close(self) -> None:
        """Stop sending."""
        self._ends.close()

    async def deliver(
        self,
        report: Report,
        then: ThenGet | None = None,
        *,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> Report | None:
        """Wait for ``after``, then send a report until the server has it; its runID makes repetition safe.

        ``then`` requests and receives the next job. A report that is refused permanently is replaced by a
        failure that says why. Returns the report for ``deliver_later`` if the server fails at it, else None.
        If cancelled, logs the undelivered report.
        """
        try:
            if after is not None:
                await after()
            return await self._judged(report, FAULTS_MAX, then)
        except asyncio.CancelledError:
            self._not_delivered(report)
            raise

    async def deliver_later(self, report: Report, stopping: asyncio.Event) -> bool:
        """Retry a report that the server fails at, with growing pauses; return whether it was accepted.

        Once ``stopping`` is set, there is one last attempt, without a pause.
        """
        try:
            for number in range(LATER_TRIES_MAX):
                if stopping.is_set() and number:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(LATER_FIRST_S * 2.0**number, LATER_MAX_S)):
                        await stopping.wait()
                left = await self._judged(report, 1)
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
        for kept in self._kept.earlier():
            try:
                if await self._is_open(kept):
                    event(logging.INFO, "kept report", file=kept.path)
                    await self._judged(kept.report, FAULTS_MAX)
                else:
                    _log(logging.WARNING, "run already over", kept.report)
                    self._kept.forget(kept.report)
            except (CommandError, OSError) as error:
                event(logging.ERROR, "kept report not delivered", file=kept.path, error=error)

    async def _is_open(self, kept: Kept) -> bool:
        """Return whether the server knows the same open run; another database may use the same runID."""
        report = kept.report
        assert report.run_id is not None
        try:
            run = await send_until_answered(self._client, self._server, QueryRun(run_id=report.run_id))
        except NotFound:
            return False
        return (run.job_id, run.worker, run.status) == (report.job_id, kept.worker, "running")

    def _not_delivered(self, report: Report) -> None:
        result = None if report.data is None else report.data[:RESULT_SHOWN_CHARS]
        _log(logging.ERROR, "report not delivered", report, result=result, kept=self._kept.keep(report))

    async def _judged(self, report: Report, faults_max: int, then: ThenGet | None = None) -> Report | None:
        """Send a report, or its replacement if it is refused; return the report if the server fails at it."""
        while True:
            try:
                refusal = await self._sent(report, faults_max, then)
            except StillFailing:
                return report
            if refusal is not None:
                _log(logging.ERROR, "report refused", report, error=refusal)
            if refusal is None or (isinstance(report, FailJob) and report.data is None):
                self._kept.forget(report)
                return None
            report = failure_instead(report, refusal)

    async def _sent(self, report: Report, faults_max: int, then: ThenGet | None) -> CommandError | None:
        """Send a report until it is answered; return the refusal, if there was one.

        Raises StillFailing after ``faults_max`` server errors in a row.
        """
        failures = faults = 0
        perhaps_done = False
        while True:
            try:
                await self._exchange(report, then)
            except (NotFound, WrongState) as error:
                # Either an earlier try had arrived, or the run is no longer ours: nothing is left to say.
                level = logging.INFO if perhaps_done else logging.WARNING
                _log(level, "run already over", report, answer=error)
            except (ConnectionError, CommandError) as error:
                if is_final(error) and not isinstance(error, Forbidden):  # with another token it may be taken
                    self._server.up()
                    return error
                perhaps_done = perhaps_done or isinstance(error, ConnectionLost)
                failures += 1
                if failures == 1:
                    self._kept.keep(report)
                if is_fault(error):
                    faults += 1
                    if faults in (1, faults_max):
                        _log(logging.WARNING, "server fails at report", report, tries=faults, answer=error)
                    if faults >= faults_max:
                        raise StillFailing from error
                else:
                    faults = 0
                    self._server.down(error)
                await asyncio.sleep(backoff_s(failures))
                continue
            else:
                _log(logging.INFO, "reported", report)
            self._server.up()
            return None

    async def _exchange(self, report: Report, then: ThenGet | None) -> None:
        """Send a report once, and receive the next job."""
        try:
            await self._ends.send(report, then)
        except ValueError as error:  # the report is done; the job goes to another when its lease is over
            _log(logging.ERROR, "no job can be read", report, error=error)


def failure_instead(report: Report, refusal: CommandError) -> FailJob:
    """Return the report that replaces a permanently refused one.

    If the refused report had a result, the failure is permanent: the same run would have the same result. The
    report of a failure is sent again without its result.
    """
    verb, detail = type(report).__name__, refusal.detail
    if detail.startswith("data:"):  # the author of the command knows its result, not our parameters
        words = f"result{detail.removeprefix('data')} ({verb} was refused: {refusal.status_line})"
    else:
        words = f"{verb} was refused: {refusal}"
    words = words[:ERROR_CHARS_MAX]
    if isinstance(report, FailJob):
        first = (report.error or "")[: max(0, ERROR_CHARS_MAX - len(words) - 1)]
        return report.model_copy(update={"error": f"{first}\n{words}" if first else words, "data": None})
    final = {"final": True} if report.data is not None else {}
    return FailJob(job_id=report.job_id, run_id=report.run_id, error=words, **final)


def _log(level: int, what: str, report: Report, **keys: object) -> None:
    verb = type(report).__name__
    event(level, what, job=report.job_id, run=report.run_id, report=verb, exit=report.exit_code, **keys)
