"""Packs what runs print, a chunk at a time, beside the event loop: a log takes a fraction of the room.

What was not packed when a server ended stays as it is until its run prints more; it can be read all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.events import OutputChanged, RunEnded
from bedrockjobs.engine.handlers.serving import PackOutput
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.store.chunks import OUTPUT_CHUNK_BYTES, OUTPUT_PACKED_BYTES_MIN, Chunk, joined, neighbours

log = logging.getLogger(__name__)

RUNS_COUNTED_MAX = 10_000
"""Runs of which it is counted what they have printed since; beyond, all are counted from zero again."""

Submit = Callable[[PackOutput, Callable[[Outcome], bool]], Submission]


class OutputCompactor:
    """Packs the output of runs, one after another; belongs to the event loop."""

    def __init__(self, submit: Submit) -> None:
        """Read and write by ``submit``, which is the dispatcher's."""
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
            loose = OUTPUT_PACKED_BYTES_MIN  # something may be left of it, which is packed at the end
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
        done = await self._done(PackOutput(run_id=run_id, loose=[]))
        while some := _next(done.loose, ended=ended):
            packed = await asyncio.to_thread(joined, some)
            done = await self._done(PackOutput(run_id=run_id, chunk=packed, loose=[]))

    async def _done(self, command: PackOutput) -> PackOutput:
        """Let the writer do a command; return it with what was found."""
        done = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            if not done.done():
                done.set_result(outcome)
            return True

        self._submit(command, deliver)
        outcome = await done
        if isinstance(outcome, CommandError):
            raise outcome
        return command


def _next(loose: Sequence[Chunk], *, ended: bool) -> list[Chunk]:
    """Return what is packed next, of chunks in their order: neighbours, until they are large enough.

    Those before a stretch that was left out are packed however little they are.
    """
    found: list[Chunk] = []
    size = 0
    beside = neighbours(loose)
    for chunk in beside:
        found.append(chunk)
        size += chunk.size
        if size >= OUTPUT_CHUNK_BYTES:
            return found
    return found if ended or len(beside) < len(loose) else []
