"""Progress on its way to the server.

A command tells it on stdout, ``::progress 40 message::``; a function by a pipe of its own, ``40 message``.

Only the latest counts: what is overtaken before it could be sent is not sent.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress

from bedrock_worker.log import event, printable
from bedrock_worker.pull.job import Job
from bedrock_worker.pull.server_status import ServerStatus, send_until_answered
from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import UpdateJob

PAUSE_S = 1.0
"""Time between two reports of progress: nobody reads faster, and each is a commit."""

PERCENT_MAX = 100

PROGRESS = "progress"
"""The name of the stream for progress alone, beside ``out`` and ``err``."""

_PROGRESS = re.compile(
    r"::progress[ \t]+([0-9]{1,3}(?:\.[0-9]{1,6})?)(?:[ \t]+(.*?))?[ \t]*::[ \t]*", re.ASCII
)


def progress_of(line: str) -> str | None:
    """Return the progress in a line as a JSON object, None where it is an ordinary line.

    Its message is one of the run's facts and not of its output: control characters are escaped.
    """
    found = _PROGRESS.fullmatch(line)
    if found is None or float(found[1]) > PERCENT_MAX:
        return None
    return _as_json(float(found[1]), found[2] or "")


def _as_json(percent: float, message: str) -> str:
    number = int(percent) if percent.is_integer() else percent
    return jsontext.dump({"percent": number, "message": printable(message)})


class ProgressSender:
    """The progress of one run."""

    def __init__(self, client: AsyncClient, server: ServerStatus, job: Job) -> None:
        """Send through a client; without a run nothing is sent."""
        self._client, self._server, self._job = client, server, job
        self._latest: str | None = None
        self._ending = asyncio.Event()
        self._over = job.run_id is None
        self._task: asyncio.Task[None] | None = None

    def heard(self, line: str) -> bool:
        """Take a line if it is progress, and tell whether it was."""
        progress = progress_of(line)
        if progress is None:
            return False
        self._tell(progress)
        return True

    def told(self, line: str) -> None:
        """Take what came by the pipe for progress; what is none is nobody's."""
        percent, _, message = line.partition(" ")
        if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,6})?", percent, re.ASCII) and float(percent) <= PERCENT_MAX:
            self._tell(_as_json(float(percent), message))

    def _tell(self, progress: str) -> None:
        self._latest = progress
        if not self._over and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send_latest())

    async def end(self) -> None:
        """Wait until the server has the latest or wants no more, or until ``abandon`` is called."""
        self._ending.set()
        if self._task is not None:
            await asyncio.wait((self._task,))  # however it ends: the report comes after it

    def abandon(self) -> None:
        """Send nothing more."""
        self._over = True
        if self._task is not None:
            self._task.cancel()

    async def _send_latest(self) -> None:
        """Send until there is nothing newer."""
        while self._latest is not None and not self._over:
            latest, self._latest = self._latest, None
            job = self._job
            try:
                command = UpdateJob(job_id=job.job_id, run_id=job.run_id, progress=latest)
                await send_until_answered(self._client, self._server, command)
            except CommandError as error:
                self._over = True
                event(logging.INFO, "progress not sent", job=job.job_id, run=job.run_id, answer=error)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await self._ending.wait()
