"""Tells the server how runs go and how they ended, for as long as it takes: a result is never lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from bedrock_worker.log import event
from bedrock_worker.outcome import Report
from bedrockjobs.base.errors import (
    CommandError,
    NotFound,
    ServerFault,
    TimedOut,
    TooMany,
    Unavailable,
    WrongState,
)
from bedrockjobs.client import AsyncClient, ConnectionLost, backoff_s
from bedrockjobs.commands import Command, FailJob, FinishJob, Reply

TRY_LATER = (ServerFault, Unavailable, TimedOut, TooMany)
"""Refusals that say nothing about the command: the same may succeed later."""

R = TypeVar("R", bound=Reply)


class Link:
    """Whether the server can be reached, logged when it changes."""

    def __init__(self) -> None:
        """Take the server to be there."""
        self._there = True

    def down(self, error: Exception) -> None:
        """Note that the server did not answer."""
        if self._there:
            event(logging.WARNING, "server away", error=error)
        self._there = False

    def up(self) -> None:
        """Note that the server answered."""
        if not self._there:
            event(logging.WARNING, "server back")
        self._there = True


async def insist(client: AsyncClient, link: Link, command: Command[R]) -> R:
    """Send a command that may be done twice until it is answered; raises the CommandError of a refusal."""
    failures = 0
    while True:
        try:
            reply = await client.call(command)
        except (ConnectionError, *TRY_LATER) as error:
            failures += 1
            link.down(error)
            await asyncio.sleep(backoff_s(failures))
        except CommandError:
            link.up()
            raise
        else:
            link.up()
            return reply


class Reporter:
    """Delivers reports."""

    def __init__(self, client: AsyncClient, link: Link) -> None:
        """Report through a client."""
        self._client = client
        self._link = link

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
                self._link.down(error)
                await asyncio.sleep(backoff_s(failures))
                continue
            except (NotFound, WrongState) as error:
                # Either an earlier try had arrived, or the run is no longer ours: nothing is left to say.
                level = logging.INFO if perhaps_done else logging.WARNING
                _log(level, "run already over", report, answer=error)
            except CommandError as error:
                self._link.up()
                return error
            else:
                _log(logging.INFO, "reported", report)
            self._link.up()
            return None


def _log(level: int, what: str, report: Report, **keys: object) -> None:
    code = None if not isinstance(report, (FinishJob, FailJob)) else report.exit_code
    verb = type(report).__name__
    event(level, what, job=report.job_id, run=report.run_id, report=verb, exit=code, **keys)
