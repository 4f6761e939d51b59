"""Reloading of files on SIGHUP: settings and certificates.

Each reloadable part has a name and a function. The function applies all of the new contents, or nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Read = Callable[[], Awaitable[None] | None]
"""Function that reads a file and applies it; if it raises ValueError or OSError, it has changed nothing."""


class Reloads:
    """The reloadable parts of one server."""

    def __init__(self) -> None:
        self._parts: dict[str, Read] = {}
        self._one_by_one = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, name: str, read: Read) -> None:
        """Register a part; ``name`` is its name in the log, such as ``certificates``."""
        self._parts[name] = read

    def start(self) -> None:
        """Start reloading all parts in the background."""
        task = asyncio.get_running_loop().create_task(self.run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def run(self) -> None:
        """Reload all parts and log each result; if one fails, the others are still reloaded."""
        async with self._one_by_one:
            if not self._parts:
                log.info("reload requested, but no files are configured")
            for name, read in self._parts.items():
                try:
                    pending = read()
                    if pending is not None:
                        await pending
                except (ValueError, OSError) as error:
                    log.error("%s not reloaded, the previous ones stay in use: %s", name, error)  # noqa: TRY400  without a stack
                except Exception:  # a bug must not end the server
                    log.exception("%s not reloaded, the previous ones stay in use", name)
                else:
                    log.info("%s reloaded", name)
