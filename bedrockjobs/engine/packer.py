"""Packs what runs print, a chunk at a time, beside the event loop: a log takes a fraction of the room.

What was not packed when a server ended stays as it is until its run prints more; it can be read all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bedrockjobs.base.config import OUTPUT_CHUNK_BYTES, OUTPUT_PACKED_BYTES_MIN
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.events import OutputChanged, RunEnded
from bedrockjobs.engine.handlers.packing import PackOutput
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.store.base import Reader
from bedrockjobs.store.chunks import Chunk, joined, neighbours

log = logging.getLogger(__name__)

RUNS_COUNTED_MAX = 10_000
"""Runs of which it is counted what they have printed since; beyond, all are counted from zero again."""

CHUNKS_AT_ONCE = 1_000
"""Chunks that one look reads: a run that prints a line at a time has as many."""

READ_BYTES_MAX = 4 * OUTPUT_CHUNK_BYTES
"""Size from which on one look reads no more."""

Submit = Callable[[PackOutput, Callable[[Outcome], bool]], Submission]


class OutputPacker:
    """Packs the output of runs, one after another; belongs to the event loop."""

    def __init__(self, reader: Reader, submit: Submit) -> None:
        """Read by ``reader``, and write by ``submit``, which is the dispatcher's."""
        self._reader = reader
        self._submit = submit
        self._loose: dict[int, int] = {}
        """Bytes of the runs in progress that were not packed yet."""
        self._due: dict[int, bool] = {}
        """Runs whose output is to be packed, in their order, and whether they have ended."""
        self._task: asyncio.Task[None] | None = None

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what it does with each event that it hears of."""
        return {OutputChanged: self._printed, RunEnded: self._ended}

    def _printed(self, event: OutputChanged) -> None:
        if not event.size:  # its progress
            return
        if len(self._loose) >= RUNS_COUNTED_MAX:
            self._loose.clear()
        loose = self._loose.get(event.run_id, 0) + event.size
        if loose >= OUTPUT_CHUNK_BYTES:
            self._want(event.run_id, ended=False)
            loose = 0
        self._loose[event.run_id] = loose

    def _ended(self, event: RunEnded) -> None:
        if self._loose.pop(event.run_id, 0) >= OUTPUT_PACKED_BYTES_MIN:
            self._want(event.run_id, ended=True)

    def _want(self, run_id: int, *, ended: bool) -> None:
        self._due[run_id] = ended or self._due.get(run_id, False)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    @property
    def busy(self) -> bool:
        """Tell whether there is something to pack."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Pack nothing more."""
        self._due.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        while self._due:
            run_id = next(iter(self._due))
            ended = self._due.pop(run_id)
            try:
                await self._pack(run_id, ended=ended)
            except (CommandError, ValueError) as error:
                log.warning("the output of run %d could not be packed: %s", run_id, error)

    async def _pack(self, run_id: int, *, ended: bool) -> None:
        """Pack what a run has printed; of one that goes on the rest that is less than a chunk is left."""
        more = True
        while more:
            given = {"runID": run_id}
            page = await self._reader.view(
                "loose_output", given, CHUNKS_AT_ONCE, again=True, bytes_max=READ_BYTES_MAX
            )
            found = groups([Chunk._make(row) for row in page.rows])
            more = page.more and len(found) > 1
            if not ended or more:
                found = [some for some in found if _size(some) >= OUTPUT_CHUNK_BYTES] or found[: int(more)]
            for some in found:
                await self._write(await asyncio.to_thread(joined, some))

    async def _write(self, chunk: Chunk) -> None:
        done = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            if not done.done():
                done.set_result(outcome)
            return True

        self._submit(PackOutput(chunk=chunk), deliver)
        outcome = await done
        if isinstance(outcome, CommandError):
            raise outcome


def groups(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Return chunks in groups that are packed together: neighbours, until they are large enough."""
    found: list[list[Chunk]] = []
    rest = list(chunks)
    while rest:
        some: list[Chunk] = []
        for chunk in neighbours(rest):
            some.append(chunk)
            if _size(some) >= OUTPUT_CHUNK_BYTES:
                break
        found.append(some)
        rest = rest[len(some) :]
    return found


def _size(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.size for chunk in chunks)
