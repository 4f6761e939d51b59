"""Tells the server how runs ended: a result is not lost while there is a disk.

While no server answers, a report is sent again for as long as it takes. A server that answers and fails at it
is asked a few times, then seldom, and at last no more; the report stays in its file (``kept``).
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
from bedrock_worker.report.ends import Ends
from bedrock_worker.report.kept import Kept, KeptReports
from bedrock_worker.report.outcome import Report
from bedrockjobs.base.config import ERROR_CHARS_MAX
from bedrockjobs.base.errors import CommandError, Forbidden, NotFound, WrongState
from bedrockjobs.client import AsyncClient, ConnectionLost, backoff_s
from bedrockjobs.commands import FailJob, QueryRun

RESULT_SHOWN_CHARS = 4_096
"""How much of a result that could not be delivered the log keeps."""

LATER_FIRST_S, LATER_MAX_S = 5.0, 60.0
"""Pauses before the tries that take no slot: the first, doubled up to the longest."""

LATER_TRIES_MAX = 30
"""Tries that take no slot: about half an hour, in which somebody can mend the server."""


class StillFailing(Exception):
    """The server fails at a report, as often as it is asked at once."""


class Reporter:
    """Delivers reports."""

    def __init__(self, client: AsyncClient, server: ServerStatus, kept: KeptReports) -> None:
        """Report through a client, and keep what it does not take at once."""
        self._client, self._server, self._kept = client, server, kept
        self._ends = Ends(client)

    def close(self) -> None:
        """Send nothing more."""
        self._ends.close()

    async def deliver(
        self,
        report: Report,
        then: ThenGet | None = None,
        *,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> Report | None:
        """Send a report, once ``after`` is over, until the server has it; its runID makes that safe.

        With ``then`` it asks for the next job, which ``then`` has afterwards. A report that the server
        refuses for good becomes a failure of the run that says why. Return what is left for
        ``deliver_later`` where the server fails at it, else None. Where this is cancelled, the log keeps what
        was not delivered.
        """
        try:
            if after is not None:
                await after()
            return await self._judged(report, FAULTS_MAX, then)
        except asyncio.CancelledError:
            self._not_delivered(report)
            raise

    async def deliver_later(self, report: Report, stopping: asyncio.Event) -> bool:
        """Go on with a report that the server fails at, with growing pauses; tell whether it was taken.

        Once ``stopping`` is set there is one more try, at once.
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
        """Deliver what earlier workers kept for these servers, where the run is still theirs."""
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
        """Tell whether the server knows the run as it was: another database counts from 1 as well."""
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
        """Send a report, and what comes in its place if it is refused; return what the server fails at."""
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
        """Send a report, again and again while the server is away; return why it was refused, if it was.

        Raises StillFailing after so many answers in a row that the server failed at it.
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
        """Send a report once, and take the job that comes with the answer."""
        try:
            await self._ends.send(report, then)
        except ValueError as error:  # the report is done; the job goes to another when its lease is over
            _log(logging.ERROR, "no job can be read", report, error=error)


def failure_instead(report: Report, refusal: CommandError) -> FailJob:
    """Return what is reported in place of a report that the server refused for good.

    Where it was refused with a result, the job has failed for good: the same run would leave the same result.
    A report of a failure stays what it is, without the result.
    """
    verb, detail = type(report).__name__, refusal.detail
    if detail.startswith("data:"):  # who wrote the command knows its result, not the parameters of our report
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
