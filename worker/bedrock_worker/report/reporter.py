"""Tells the server how runs go and how they ended, for as long as it takes: a result is never lost."""

from __future__ import annotations

import asyncio
import logging

from bedrock_worker.log import event
from bedrock_worker.pull.server_status import TRY_LATER, ServerStatus
from bedrock_worker.report.outcome import Report
from bedrockjobs.base.errors import CommandError, NotFound, WrongState
from bedrockjobs.client import AsyncClient, ConnectionLost, backoff_s
from bedrockjobs.commands import FailJob, FinishJob


class Reporter:
    """Delivers reports."""

    def __init__(self, client: AsyncClient, server: ServerStatus) -> None:
        """Report through a client."""
        self._client = client
        self._server = server

    async def deliver(self, report: Report) -> None:
        """Send a report until the server has it. Its runID makes it safe to send twice."""
        try:
            while True:
                refusal = await self._sent(report)
                if refusal is None:
                    return
                verb = type(report).__name__
                _log(logging.ERROR, "report refused", report, error=refusal)
                if isinstance(report, FailJob) and report.data is None:
                    return
                words = f"{verb} was refused: {refusal}"
                if isinstance(report, FailJob):
                    words = f"{report.error}\n{words}"
                report = FailJob(job_id=report.job_id, run_id=report.run_id, error=words)
        except asyncio.CancelledError:
            _log(logging.ERROR, "report not delivered", report)
            raise

    async def _sent(self, report: Report) -> CommandError | None:
        """Send a report, again and again while the server is away; return why it was refused, if it was."""
        failures, perhaps_done = 0, False
        while True:
            try:
                await self._client.exchange(report)
            except (ConnectionError, *TRY_LATER) as error:
                perhaps_done = perhaps_done or isinstance(error, ConnectionLost)
                failures += 1
                self._server.down(error)
                await asyncio.sleep(backoff_s(failures))
                continue
            except (NotFound, WrongState) as error:
                # Either an earlier try had arrived, or the run is no longer ours: nothing is left to say.
                level = logging.INFO if perhaps_done else logging.WARNING
                _log(level, "run already over", report, answer=error)
            except CommandError as error:
                self._server.up()
                return error
            else:
                _log(logging.INFO, "reported", report)
            self._server.up()
            return None


def _log(level: int, what: str, report: Report, **keys: object) -> None:
    code = None if not isinstance(report, (FinishJob, FailJob)) else report.exit_code
    verb = type(report).__name__
    event(level, what, job=report.job_id, run=report.run_id, report=verb, exit=code, **keys)
