"""The heartbeat: the server calls a URL every minute while it is healthy.

The URL belongs to an external monitor, which raises an alarm if the calls stop: a server that is down cannot
report that itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from bedrockjobs.base.background import BackgroundTask

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""Seconds between two calls; monitoring services work in minutes."""

RECHECK_S = 1.0
"""Seconds between health checks while the server is not healthy, for instance during its start."""

CALL_S_MAX = 10.0
"""Maximum seconds of one call; if it takes longer, it counts as failed, and the next one follows soon."""


class HeartbeatURL(BackgroundTask):
    """Calls a URL regularly; logs the first failure, and the first success after failures."""

    def __init__(self, url: str, is_healthy: Callable[[], bool], *, every_s: float = EVERY_S) -> None:
        """Call ``url`` immediately and then every ``every_s`` seconds, while ``is_healthy`` returns True."""
        self._url, self._is_healthy, self._every_s = url, is_healthy, every_s
        self._failed = False

    async def _run(self) -> None:
        limit = aiohttp.ClientTimeout(total=CALL_S_MAX)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while True:
                well = self._is_healthy()
                if well:
                    await self._call(session)
                await asyncio.sleep(self._every_s if well else min(RECHECK_S, self._every_s))

    async def _call(self, session: aiohttp.ClientSession) -> None:
        why = ""
        try:
            async with session.get(self._url) as answer:
                if answer.status >= 400:
                    why = f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # without the secret URL
            why = type(error).__name__
        if why and not self._failed:
            log.warning("the heartbeat URL was not reached: %s", why)
        elif self._failed and not why:
            log.info("the heartbeat URL is reached again")
        self._failed = bool(why)
