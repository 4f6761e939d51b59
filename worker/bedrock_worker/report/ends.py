"""Sends the ends of runs to the server, batched while an earlier request is in flight.

An end is sent at once if no request is in flight; otherwise it joins the next FinishJobs. An end that is
refused in a batch is sent again by itself for its full error. Lost answers are not retried here but by the
reporter.
"""

from __future__ import annotations

import asyncio
import json
from copy import copy
from dataclasses import dataclass
from typing import Any

from bedrock_worker.pull.job import jobs_after
from bedrock_worker.pull.then_get import ThenGet
from bedrock_worker.report.outcome import Report
from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import BedrockjobsError, CommandError, UnknownCommand
from bedrockjobs.client import AsyncClient, UnreadableAnswer
from bedrockjobs.commands import FinishJob, FinishJobs

TOGETHER_MAX = 100
"""Max ends in one FinishJobs: far more than arrive at once, few enough not to block the server."""

DATA_CHARS_MAX = 32_768
"""Longest result of a batched end; larger ones would delay the others."""


OK = 200
"""Result code of an accepted end."""


@dataclass(frozen=True, eq=False)
class _End:
    report: FinishJob
    then: ThenGet | None
    sent: asyncio.Future[bool]
    """True once the server has accepted it; False if it has to be sent by itself."""


class CompletionBatcher:
    """Batches the ends of one worker's runs."""

    def __init__(self, client: AsyncClient) -> None:
        """Send through a client."""
        self._client = client
        self._waiting: list[_End] = []
        self._sending: asyncio.Task[None] | None = None
        self._together = True

    async def send(self, report: Report, then: ThenGet | None) -> None:
        """Send a report once; ``then`` receives the next job if it requested one.

        Raises the server's CommandError, ConnectionError if no answer came, and ValueError if the report was
        accepted but the next job is unreadable.
        """
        if self._goes_together(report):
            assert isinstance(report, FinishJob)
            end = _End(report, then, asyncio.get_running_loop().create_future())
            self._waiting.append(end)
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send_waiting())
            if await end.sent:
                return
        await self._send_alone(report, then)

    def _goes_together(self, report: Report) -> bool:
        return (
            self._together
            and isinstance(report, FinishJob)
            and (report.data is None or len(report.data) <= DATA_CHARS_MAX)
        )

    async def _send_waiting(self) -> None:
        """Send waiting ends until there are none."""
        batch: list[_End] = []
        try:
            while self._waiting:
                batch = [end for end in self._waiting[:TOGETHER_MAX] if not end.sent.done()]
                del self._waiting[:TOGETHER_MAX]
                try:
                    if len(batch) == 1:
                        await self._send_alone(batch[0].report, batch[0].then)
                        _answer(batch[0], True)
                    elif batch:
                        await self._send_together(batch)
                except Exception as error:
                    for end in batch:  # a copy each, since raising extends the traceback
                        _answer(end, copy(error) if isinstance(error, BedrockjobsError) else error)
        finally:
            self._sending = None
            for end in (*batch, *self._waiting):  # only if we are cancelled
                end.sent.cancel()

    def close(self) -> None:
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

    async def _send_together(self, batch: list[_End]) -> None:
        """Send a batch; ends that the server did not accept are left to be sent alone."""
        asking = [end.then for end in batch if end.then is not None and end.then.asks()]
        given: dict[str, Any] = {"jobs": [end.report for end in batch]}
        if asking:
            given |= {**asking[0].question, "num_results": len(asking)}
        command = FinishJobs.model_construct(None, **given)
        try:
            answer = await self._client.exchange(command)
            taken = self._taken(command, answer.body)
            for end in batch:
                if end.report.job_id not in taken:
                    _answer(end, False)
            try:
                for then, job in zip(asking, jobs_after(answer.body) if asking else (), strict=False):
                    then.job = job
            except ValueError as error:  # the ends are done
                for end in batch:
                    if end.then in asking:
                        _answer(end, ValueError(str(error)))
        except CommandError as error:  # of one end or of the whole request
            self._together = self._together and not isinstance(error, UnknownCommand)
            taken = set()
        finally:
            for then in asking:
                then.unanswered()
        for end in batch:
            _answer(end, end.report.job_id in taken)

    def _taken(self, command: FinishJobs, body: bytes) -> set[int]:
        """Return the jobs whose ends the server accepted; raises UnreadableAnswer."""
        try:
            results = json.loads(jsontext.members(body.decode())["results"])
            return {int(each["jobID"]) for each in results if each["code"] == OK}
        except (ValueError, LookupError, TypeError) as error:
            self._together = False
            raise UnreadableAnswer(command, self._client.server, f"results: {error!r}") from error


def _answer(end: _End, found: bool | Exception) -> None:
    if end.sent.done():
        return
    if isinstance(found, Exception):
        end.sent.set_exception(found)
    else:
        end.sent.set_result(found)
