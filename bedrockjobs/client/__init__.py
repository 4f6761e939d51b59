"""The clients: ``Client`` for blocking code and threads, ``AsyncClient`` for asyncio.

Both speak the raw protocol and share the core without I/O (``base``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedrockjobs.client.address import (
    CA_VARIABLE,
    RUN_SERVER_VARIABLE,
    RUN_TOKEN_VARIABLE,
    SERVER_VARIABLE,
    Address,
    AnyAddress,
    UnixAddress,
    addresses_of,
)
from bedrockjobs.client.base import backoff_s
from bedrockjobs.client.blocking import Client, shared_client
from bedrockjobs.client.exchange import (
    ConnectionLost,
    Response,
    ServerNotTrusted,
    ServerUnreachable,
    UnreadableAnswer,
)

if TYPE_CHECKING:
    from bedrockjobs.client.asynchronous import AsyncClient
else:

    def __getattr__(name: str) -> Any:
        """Load ``AsyncClient`` at first use: blocking programs need no event loop."""
        if name != "AsyncClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from bedrockjobs.client.asynchronous import AsyncClient

        globals()[name] = AsyncClient
        return AsyncClient


__all__ = [
    "CA_VARIABLE",
    "RUN_SERVER_VARIABLE",
    "RUN_TOKEN_VARIABLE",
    "SERVER_VARIABLE",
    "Address",
    "AnyAddress",
    "AsyncClient",
    "Client",
    "ConnectionLost",
    "Response",
    "ServerNotTrusted",
    "ServerUnreachable",
    "UnixAddress",
    "UnreadableAnswer",
    "addresses_of",
    "backoff_s",
    "shared_client",
]
