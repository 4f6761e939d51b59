"""The log compactor: packs the output of runs in the background, which saves most of its space.

Output that was not packed before a shutdown stays unpacked until its run prints more; it remains readable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.events import OutputChanged, RunEnded
from bedrockjobs.engine.handlers.serving import PackOutput
from bedrockjobs.engine.submission import Outcome, Submission, outcome_of
from bedrockjobs.store.chunks import OUTPUT_CHUNK_BYTES, OUTPUT_PACKED_BYTES_MIN, Chunk, joined, neighbours

log = logging.getLogger(__name__)

Submit = Callable[[PackOutput, Callable[[Outcome], bool]], Submission]


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
