"""What one run has to say to the server while it goes on: its output and its progress."""

from __future__ import annotations

from bedrock_worker.pull.job import Job
from bedrock_worker.pull.server_status import ServerStatus
from bedrock_worker.report.output import OutputSender
from bedrock_worker.report.progress import PROGRESS, ProgressSender
from bedrockjobs.client import AsyncClient


class Channel:
    """The way from one run to the server, beside its report."""

    def __init__(self, client: AsyncClient, server: ServerStatus, job: Job) -> None:
        """Belong to a run."""
        self._client, self._server, self._job = client, server, job
        self._senders: tuple[ProgressSender, OutputSender] | None = None
        self._over = False

    def hear(self, stream: str, line: str) -> bool:
        """Take a line, and tell whether it is output: progress is not."""
        if self._senders is None:  # most runs say nothing
            self._senders = (
                ProgressSender(self._client, self._server, self._job),
                OutputSender(self._client, self._server, self._job.run_id),
            )
            if self._over:
                self.abandon()
        progress, output = self._senders
        if stream == PROGRESS or (stream == "out" and progress.heard(line)):
            if stream == PROGRESS:
                progress.told(line)
            return False
        output.add(stream, line)
        return True

    async def end(self) -> None:
        """Wait until the server has all of it or wants no more, or until ``abandon`` is called."""
        for sender in self._senders or ():
            await sender.end()

    def abandon(self) -> None:
        """Send nothing more."""
        self._over = True
        for sender in self._senders or ():
            sender.abandon()
