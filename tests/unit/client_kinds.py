"""The blocking client behind the interface of the asynchronous one, so that one test covers both."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from bedrockjobs.client import AnyAddress, Client
from bedrockjobs.client.exchange import Response
from bedrockjobs.commands import Command
from tests.worker.fake_server import DEADLINE_S


class Blocking:
    """A wrapper with the arguments of ``Client``."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Make the client."""
        self._client = Client(*arguments, **more)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        self._client.close()

    @property
    def server(self) -> AnyAddress:
        """Return the address in use."""
        return self._client.server

    async def call(self, command: Command[Any]) -> Any:
        """Call in a thread."""
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.to_thread(self._client.call, command)

    async def exchange(self, command: Command[Any]) -> Response:
        """Exchange in a thread."""
        return await asyncio.to_thread(self._client.exchange, command)
