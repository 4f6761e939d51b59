"""What a running server reads again when it is told to, by SIGHUP: files that may have changed since.

Each part has a name and a function that reads its file and takes it, or leaves all as it was. No part is
known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Read = Callable[[], Awaitable[None] | None]
"""Reads a file and takes what it says; raises ValueError or OSError with the reason and changes nothing."""


class Reloads:
    """The parts of one server that can be read again."""

    def __init__(self) -> None:
        """Begin without any."""
        self._parts: dict[str, Read] = {}
        self._one_by_one = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, what: str, read: Read) -> None:
        """Let ``read`` be called from now on; ``what`` names the part in the log, as in ``certificates``."""
        self._parts[what] = read

    def begin(self) -> None:
        """Read all parts again; to be called by the event loop, which goes on meanwhile."""
        task = asyncio.get_running_loop().create_task(self.run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def run(self) -> None:
        """Read all parts again, and tell of each in the log; one that is bad hurts no other."""
        async with self._one_by_one:
            if not self._parts:
                log.info("told to read its files again: there are none")
            for what, read in self._parts.items():
                try:
                    pending = read()
                    if pending is not None:
                        await pending
                except (ValueError, OSError) as error:
                    log.error("%s not read again, the old ones stay: %s", what, error)  # noqa: TRY400  no stack
                except Exception:  # a fault of ours must not end the server either
                    log.exception("%s not read again, the old ones stay", what)
                else:
                    log.info("%s read again", what)
