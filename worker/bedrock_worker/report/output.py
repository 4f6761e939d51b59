"""Sends what a run prints to the server while it prints it: batches of lines, in order, each line once.

Lines wait in the ``spool`` while the server is away. Knows nothing of commands.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import Any

from bedrock_worker.log import event
from bedrock_worker.pull.server_status import ServerStatus, send_until_answered
from bedrock_worker.report.line_splitter import CUT
from bedrock_worker.report.spool import Line, Spool
from bedrockjobs.base.config import OUTPUT_LINE_CHARS_MAX, OUTPUT_LINES_PER_APPEND_MAX
from bedrockjobs.base.errors import CommandError, NotFound, UnknownCommand, WrongState
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import AppendOutput

GATHER_S = 0.5
"""How long lines are gathered for one batch: with the time on the way they are at most 1 s behind."""

BATCH_BYTES_MAX = 512 * 1024
"""Size of one batch: it stays in memory until the server has it."""


class OutputSender:
    """The output of one run on its way to the server."""

    def __init__(self, client: AsyncClient, server: ServerStatus, run_id: int | None) -> None:
        """Send through a client. Without a run there is nobody to send to, and nothing is kept."""
        self._client, self._server, self._run_id = client, server, run_id
        self._spool = Spool()
        self._next = 1
        self._more = asyncio.Event()
        self._ending = asyncio.Event()
        self._over = run_id is None
        self._task: asyncio.Task[None] | None = None

    def add(self, stream: str, text: str) -> None:
        """Take a line of ``out`` or ``err``."""
        if self._over:
            return
        if len(text) > OUTPUT_LINE_CHARS_MAX:
            text = text[: OUTPUT_LINE_CHARS_MAX - len(CUT)] + CUT
        self._spool.add(Line(stream, text))
        self._more.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def end(self) -> None:
        """Wait until the server has every line or wants no more, or until ``abandon`` is called."""
        self._spool.end()
        self._more.set()
        self._ending.set()
        if self._task is not None:
            await asyncio.wait((self._task,))  # however it ends: the report comes after it

    def abandon(self) -> None:
        """Send nothing more; nobody would read it."""
        self._over = True
        if self._task is not None:
            self._task.cancel()
        self._spool.close()

    async def _send_all(self) -> None:
        try:
            full = False
            while not self._over:
                if not self._spool:
                    if self._ending.is_set():
                        break
                    self._more.clear()
                    await self._more.wait()
                if not full:
                    await self._gather()
                batch = self._spool.take(OUTPUT_LINES_PER_APPEND_MAX, BATCH_BYTES_MAX)
                full = len(self._spool) > 0
                if batch:
                    await self._send(batch)
        finally:
            self._spool.close()

    async def _gather(self) -> None:
        """Wait for more lines, unless none can come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_S):
                await self._ending.wait()

    async def _send(self, batch: list[Line]) -> None:
        lines = [
            line.text if line.stream == "out" else {"line": line.text, "stream": "err"} for line in batch
        ]
        try:
            try:
                seq = await self._append(lines)
            except WrongState as error:
                expected = _expected(error)
                if expected is None:
                    raise
                # The server lost lines that it had confirmed. They are gone; the others need not be.
                event(logging.WARNING, "output lost by the server", run=self._run_id, error=error)
                self._next = expected
                seq = await self._append(lines)
        except CommandError as error:
            self._stop(error)
            return
        self._next += len(batch)
        if seq < self._next - 1:
            self._stop("full")

    async def _append(self, lines: list[Any]) -> int:
        assert self._run_id is not None
        command = AppendOutput(run_id=self._run_id, seq=self._next, lines=lines)
        return (await send_until_answered(self._client, self._server, command)).seq

    def _stop(self, answer: CommandError | str) -> None:
        """Send nothing more: the run is over, the server knows no output, or wants no more of it."""
        self._over = True
        if isinstance(answer, UnknownCommand):
            level = logging.DEBUG  # an older server
        else:
            level = logging.INFO if isinstance(answer, (NotFound, WrongState)) else logging.ERROR
        event(level, "output not sent", run=self._run_id, answer=answer)


def _expected(error: WrongState) -> int | None:
    """Return the number that the server expects, if the error is a gap."""
    found = re.search(r"[0-9]+", error.detail) if error.reason == "Gap in output" else None
    return None if found is None else int(found[0])
