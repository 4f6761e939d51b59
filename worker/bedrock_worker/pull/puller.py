"""Requests jobs from the server, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bedrock_worker.options import Options
from bedrock_worker.pull.job import TakenJob, jobs_of
from bedrock_worker.pull.server_status import ServerStatus
from bedrockjobs.base.errors import CommandError, NotFound
from bedrockjobs.client import AsyncClient, backoff_s

EARLY_S = 1.0
"""An empty answer within this time did not wait; the next request is then delayed."""


class Puller:
    """Pulls jobs for the free slots of one worker."""

    def __init__(
        self,
        client: AsyncClient,
        server: ServerStatus,
        options: Options,
        *,
        names: Callable[[], tuple[str, ...]],
        changed: asyncio.Event,
    ) -> None:
        """Request jobs for the patterns that ``names`` returns; ``changed`` ends a wait or a pause."""
        self._client, self._server, self._options = client, server, options
        self._names, self._changed = names, changed
        self.failures = 0
        """Requests in a row without a usable answer."""

    async def pull(self, free: int) -> list[TakenJob]:
        """Request jobs; without jobs or an answer, return an empty list after a suitable pause."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            take = self._options.take(free, self._names())
            answer = await self._client.exchange(take, hurry=self._changed)
            jobs = jobs_of(answer.body)
        except NotFound:
            self._server.up()
            self.failures = 0
            if not self._options.burst and loop.time() - asked_at < EARLY_S:
                await self._pause(EARLY_S)
            return []
        except (CommandError, ConnectionError, ValueError) as error:
            self._server.down(error)
            self.failures += 1
            await self._pause(backoff_s(self.failures))
            return []
        self._server.up()
        self.failures = 0
        return jobs

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
