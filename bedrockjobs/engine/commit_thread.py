"""The thread that waits for the disk, one commit after another. It knows nothing of what is committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue


class CommitThread:
    """A thread that does what it is given, in order."""

    def __init__(self) -> None:
        """Prepare the thread; ``start`` before use."""
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self.start = self._thread.start
        """Start the thread."""
        self.is_alive = self._thread.is_alive
        """Tell whether it has not ended."""
        self.put = self._given.put
        """Give it something to do."""

    async def end(self) -> None:
        """Wait until all that was given is done, and end the thread."""
        self._given.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (commit := self._given.get()) is not None:
            commit()
