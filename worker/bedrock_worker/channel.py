"""What one run has to say to the server while it goes on: its output and its progress."""

from __future__ import annotations

from bedrock_worker.output import Output
from bedrock_worker.progress import Progress
from bedrock_worker.report import Link
from bedrock_worker.taken import Job
from bedrockjobs.client import AsyncClient


class Channel:
    """The way from one run to the server, beside its report."""

    def __init__(self, client: AsyncClient, link: Link, job: Job) -> None:
        """Belong to a run."""
        self._output = Output(client, link, job.run_id)
        self._progress = Progress(client, link, job)

    def hear(self, stream: str, line: str) -> bool:
        """Take a line, and tell whether it is output: progress is not."""
        if stream == "out" and self._progress.heard(line):
            return False
        self._output.add(stream, line)
        return True

    async def end(self) -> None:
        """Wait until the server has all of it, or wants no more."""
        await self._progress.end()
        await self._output.end()

    def abandon(self) -> None:
        """Send nothing more."""
        self._progress.abandon()
        self._output.abandon()
