"""Background tasks that submit commands of the server itself: packing output, and taking in the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.config import INBOX_AGAIN_S_MIN
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.events import OutputChanged, RunEnded
from bedrockjobs.engine.handlers.create import TakeIn
from bedrockjobs.engine.handlers.serving import PackOutput
from bedrockjobs.engine.submission import Outcome, Submission, outcome_of
from bedrockjobs.job.rows import InboxRow
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.chunks import OUTPUT_CHUNK_BYTES, OUTPUT_PACKED_BYTES_MIN, Chunk, joined, neighbours

log = logging.getLogger(__name__)

Submit = Callable[[Any, Callable[[Outcome], bool]], Submission]


# The log compactor packs the output of runs, which saves most of its space.
#
# Output that was not packed before a shutdown stays unpacked until its run prints more; it remains readable.


class OutputCompactor(BackgroundTask):
    """Packs the output of one run after another; used on the event loop only."""

    def __init__(self, submit: Submit) -> None:
        """Read and write with ``submit`` of the dispatcher."""
        self._submit = submit
        self._unpacked: dict[int, int] = {}
        """Bytes of unpacked output of each open run."""
        self._due: dict[int, bool] = {}
        """Runs to pack, in order, each with whether the run has ended."""

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {OutputChanged: self._printed, RunEnded: self._ended}

    def _printed(self, event: OutputChanged) -> None:
        if not event.size:  # only its progress changed
            return
        # Maximum number of runs whose unpacked output is counted; when it is reached, all counts start again
        # from zero
        if len(self._unpacked) >= 10_000:
            self._unpacked.clear()
        loose = self._unpacked.get(event.run_id, 0) + event.size
        if loose >= OUTPUT_CHUNK_BYTES:
            self._request(event.run_id, ended=False)
            loose = OUTPUT_PACKED_BYTES_MIN  # a rest may remain, which is packed at the end
        self._unpacked[event.run_id] = loose

    def _ended(self, event: RunEnded) -> None:
        if self._unpacked.pop(event.run_id, 0) >= OUTPUT_PACKED_BYTES_MIN:
            self._request(event.run_id, ended=True)

    def _request(self, run_id: int, *, ended: bool) -> None:
        self._due[run_id] = ended or self._due.get(run_id, False)
        self.start()

    async def close(self) -> None:
        """Stop packing."""
        self._due.clear()
        await self.stop()

    async def _run(self) -> None:
        while self._due:
            run_id = next(iter(self._due))
            ended = self._due.pop(run_id)
            try:
                await self._pack(run_id, ended=ended)
            except (CommandError, ValueError) as error:
                log.warning("the output of run %d could not be packed: %s", run_id, error)

    async def _pack(self, run_id: int, *, ended: bool) -> None:
        """Pack the output of a run; unless it has ended, a rest below the size of a chunk stays unpacked."""
        done = await self._done(PackOutput(run_id=run_id, loose=[]))
        while some := _next_chunks(done.loose, ended=ended):
            packed = await asyncio.to_thread(joined, some)
            done = await self._done(PackOutput(run_id=run_id, chunk=packed, loose=[]))

    async def _done(self, command: PackOutput) -> PackOutput:
        """Execute a command in the dispatcher; return the command with its result."""
        outcome = await outcome_of(lambda deliver: self._submit(command, deliver))
        if isinstance(outcome, CommandError):
            raise outcome
        return command


def _next_chunks(loose: Sequence[Chunk], *, ended: bool) -> list[Chunk]:
    """Return the chunks to pack next: adjacent ones in order, until they are large enough.

    Chunks before a gap are packed even if they are small.
    """
    found: list[Chunk] = []
    size = 0
    adjacent = neighbours(loose)
    for chunk in adjacent:
        found.append(chunk)
        size += chunk.size
        if size >= OUTPUT_CHUNK_BYTES:
            return found
    return found if ended or len(adjacent) < len(loose) else []


# The inbox has the jobs that applications created in transactions of their own; they are taken in soon after
# the commit.


class Inbox(BackgroundTask):
    """Reads the inbox of a database, and has its jobs created until the inbox is empty.

    All servers of a database do this at the same time; each skips the rows that another one has locked.
    """

    def __init__(self, read: Callable[[], Awaitable[Sequence[InboxRow]]], submit: Submit) -> None:
        """Get the next rows from ``read``, and pass commands to ``submit``."""
        self._read, self._submit = read, submit
        self._wanted, self._closed = False, True
        self._later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to read the inbox."""
        self._closed = False
        self.soon()

    def soon(self) -> None:
        """Read the inbox soon; do nothing before ``start`` and after ``close``."""
        self._wanted = not self._closed
        if self._wanted:
            super().start()

    async def close(self) -> None:
        """Stop; rows that are left in the inbox are taken in by another server, or after the next start."""
        self._closed, self._wanted = True, False
        if self._later is not None:
            self._later.cancel()
        await self.stop()

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                rows = await self._read()
                if rows and await self._take_in(rows):
                    self._wanted = not self._closed
            except StoreError as error:  # the next exchange with the other servers looks again
                log.warning("the inbox cannot be read: %s", error)
            except CommandError as error:  # stopping, or full
                log.warning("jobs wait in the inbox: %s", error)

    async def _take_in(self, rows: Sequence[InboxRow]) -> bool:
        """Take in all rows together; if that fails, one by one, so that one row does not hold up the others.

        Return whether to read the inbox again immediately.
        """
        if await self._done(TakeIn(rows=list(rows), postponed=[])) is None:
            return True
        for row in rows:
            refused = await self._done(TakeIn(rows=[row], postponed=[]))
            if refused is None:
                continue
            log.error("job %d (%s) waits in the inbox: %s", row.job_id, row.name, refused)
            if await self._done(TakeIn(rows=[row], postpone=True, postponed=[])) is not None:
                return False  # the database is away
        return True

    async def _done(self, command: TakeIn) -> CommandError | None:
        """Execute a command; return the error that it was refused with, if any."""
        outcome = await outcome_of(lambda deliver: self._submit(command, deliver))
        if command.postponed and self._later is None and not self._closed:
            self._later = asyncio.get_running_loop().call_later(INBOX_AGAIN_S_MIN, self._look_again)
        return outcome if isinstance(outcome, CommandError) else None

    def _look_again(self) -> None:
        self._later = None
        self.soon()
