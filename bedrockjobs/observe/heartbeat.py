"""A sign of life for somebody else's watch: each minute the server calls a URL, while all is well.

Where the calls stop, whoever watches the URL tells people: the server cannot tell that it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""Seconds between two calls: services that watch count in minutes."""

LOOK_AGAIN_S = 1.0
"""Seconds until the next look where all is not well, or not yet: a start takes about that long."""

CALL_S_MAX = 10.0
"""Time that one call may take: the next one comes soon."""


class HeartbeatURL:
    """Calls one URL; a call that fails is told in the log once, and so is the next that does not."""

    def __init__(self, url: str, is_well: Callable[[], bool], *, every_s: float = EVERY_S) -> None:
        """Call ``url`` while ``is_well``, the first time at once."""
        self._url, self._is_well, self._every_s = url, is_well, every_s
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to call."""
        self._task = asyncio.get_running_loop().create_task(self._go())

    async def stop(self) -> None:
        """Call no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _go(self) -> None:
        limit = aiohttp.ClientTimeout(total=CALL_S_MAX)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while True:
                well = self._is_well()
                if well:
                    await self._call(session)
                await asyncio.sleep(self._every_s if well else min(LOOK_AGAIN_S, self._every_s))

    async def _call(self, session: aiohttp.ClientSession) -> None:
        why = ""
        try:
            async with session.get(self._url) as answer:
                if answer.status >= 400:
                    why = f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # with no word of the URL, a secret
            why = type(error).__name__
        if why and not self._failed:
            log.warning("the heartbeat URL was not reached: %s", why)
        elif self._failed and not why:
            log.info("the heartbeat URL is reached again")
        self._failed = bool(why)
