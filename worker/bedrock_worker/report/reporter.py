"""Tells the server how runs ended, for as long as it takes: a result is never lost while the worker lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bedrock_worker.log import event
from bedrock_worker.pull.server_status import ServerStatus, is_final
from bedrock_worker.report.outcome import Report
from bedrockjobs.base.config import ERROR_CHARS_MAX
from bedrockjobs.base.errors import CommandError, NotFound, WrongState
from bedrockjobs.client import AsyncClient, ConnectionLost, backoff_s
from bedrockjobs.commands import FailJob, FinishJob

RESULT_SHOWN_CHARS = 4_096
"""How much of a result that could not be delivered the log keeps."""


class Reporter:
    """Delivers reports."""

    def __init__(self, client: AsyncClient, server: ServerStatus) -> None:
        """Report through a client."""
        self._client = client
        self._server = server

    async def deliver(self, report: Report, *, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Send a report, once ``after`` is over, until the server has it; its runID makes that safe.

        A report that the server refuses for good becomes a failure of the run that says why. Where this is
        cancelled, the log keeps what was not delivered.
        """
        try:
            if after is not None:
                await after()
            refusal = await self._sent(report)
            while refusal is not None:
                _log(logging.ERROR, "report refused", report, error=refusal)
                if isinstance(report, FailJob) and report.data is None:
                    return
                report = failure_instead(report, refusal)
                refusal = await self._sent(report)
        except asyncio.CancelledError:
            result = None if report.data is None else report.data[:RESULT_SHOWN_CHARS]
            _log(logging.ERROR, "report not delivered", report, result=result)
            raise

    async def _sent(self, report: Report) -> CommandError | None:
        """Send a report, again and again while the server is away; return why it was refused, if it was."""
        failures, perhaps_done = 0, False
        while True:
            try:
                await self._client.exchange(report)
            except (NotFound, WrongState) as error:
                # Either an earlier try had arrived, or the run is no longer ours: nothing is left to say.
                level = logging.INFO if perhaps_done else logging.WARNING
                _log(level, "run already over", report, answer=error)
            except (ConnectionError, CommandError) as error:
                if is_final(error):
                    self._server.up()
                    return error
                perhaps_done = perhaps_done or isinstance(error, ConnectionLost)
                failures += 1
                self._server.down(error)
                await asyncio.sleep(backoff_s(failures))
                continue
            else:
                _log(logging.INFO, "reported", report)
            self._server.up()
            return None


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
    code = None if not isinstance(report, (FinishJob, FailJob)) else report.exit_code
    verb = type(report).__name__
    event(level, what, job=report.job_id, run=report.run_id, report=verb, exit=code, **keys)
