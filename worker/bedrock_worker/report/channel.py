"""What one run has to say to the server while it goes on: its output and its progress."""

from __future__ import annotations

from bedrock_worker.pull.job import Job
from bedrock_worker.pull.server_status import ServerStatus
from bedrock_worker.report.output import OutputSender
from bedrock_worker.report.progress import ProgressSender
from bedrockjobs.client import AsyncClient


class Channel:
    """The way from one run to the server, beside its report."""

    def __init__(self, client: AsyncClient, server: ServerStatus, job: Job) -> None:
        """Belong to a run."""
        self._output = OutputSender(client, server, job.run_id)
        self._progress = ProgressSender(client, server, job)

    def hear(self, stream: str, line: str) -> bool:
        """Take a line, and tell whether it is output: progress is not."""
        if stream == "out" and self._progress.heard(line):
            return False
        self._output.add(stream, line)
        return True

    async def end(self) -> None:
        """Wait until the server has all of it or wants no more, or until ``abandon`` is called."""
        await self._progress.end()
        await self._output.end()

    def abandon(self) -> None:
        """Send nothing more."""
        self._progress.abandon()
        self._output.abandon()
