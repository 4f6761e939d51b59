"""Where a commit waits for the disk: in the loop where that is quick, else in a thread of its own.

To hand a commit to a thread and its end back costs more than a quick disk takes for it. A slow disk must not
keep the loop, which would read the next requests meanwhile. Nothing is known here of what is committed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import QUICK_COMMIT_S, QUICK_COMMITS

Then = Callable[[float, "Exception | None"], None]
"""What is told, in the loop, how many seconds a commit took, and what it raised."""


class Commits:
    """Does commits one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, waits_for_disk: bool) -> None:
        """Prepare the thread; ``start`` before use.

        The first commits are done by it, so that it is seen how quick the disk is, unless they do not wait
        for one.
        """
        self._loop = loop
        self._clock = clock
        self._given: SimpleQueue[tuple[Callable[[], None], Then] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._usual_s = QUICK_COMMITS * QUICK_COMMIT_S if waits_for_disk else 0.0
        """What a commit has taken of late."""
        self.start = self._thread.start
        """Start the thread."""
        self.is_alive = self._thread.is_alive
        """Tell whether it has not ended."""

    def do(self, commit: Callable[[], None], then: Then) -> None:
        """Commit, and tell ``then``: before this returns where it was done in the loop."""
        if self._usual_s > QUICK_COMMIT_S:
            self._given.put((commit, then))
        else:
            self._end(then, *self.timed(commit))

    async def end(self) -> None:
        """Wait until all that was given is done, and end the thread."""
        self._given.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            commit, then = given
            self._loop.call_soon_threadsafe(self._end, then, *self.timed(commit))

    def timed(self, commit: Callable[[], None]) -> tuple[float, Exception | None]:
        """Do a commit here and now; return how many seconds it took, and what it raised."""
        begun = self._clock.monotonic()
        failure: Exception | None = None
        try:
            commit()
        except Exception as error:
            failure = error
        return self._clock.monotonic() - begun, failure

    def _end(self, then: Then, took_s: float, failure: Exception | None) -> None:
        self._usual_s += (took_s - self._usual_s) / QUICK_COMMITS
        then(took_s, failure)
