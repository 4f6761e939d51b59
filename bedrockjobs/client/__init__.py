"""The clients: ``Client`` for plain code and threads, ``AsyncClient`` for asyncio.

Both speak the raw protocol and share everything that does no I/O: addresses, the bytes of a request and of
an answer, the connections that are kept, and the rules by which a command is sent again. Nothing here knows
what a command does.
"""

from __future__ import annotations

from bedrockjobs.client.address import (
    RUN_SERVER_VARIABLE,
    SERVER_VARIABLE,
    Address,
    AnyAddress,
    UnixAddress,
    addresses_of,
)
from bedrockjobs.client.asynchronous import AsyncClient
from bedrockjobs.client.blocking import Client
from bedrockjobs.client.credentials import CA_VARIABLE, RUN_TOKEN_VARIABLE
from bedrockjobs.client.exchange import (
    Answer,
    ConnectionLost,
    ServerNotTrusted,
    ServerUnreachable,
    UnreadableAnswer,
)
from bedrockjobs.client.shared import shared_client
from bedrockjobs.client.tries import backoff_s

__all__ = [
    "CA_VARIABLE", "RUN_SERVER_VARIABLE", "RUN_TOKEN_VARIABLE", "SERVER_VARIABLE", "Address", "Answer",
    "AnyAddress", "AsyncClient", "Client", "ConnectionLost", "ServerNotTrusted", "ServerUnreachable",
    "UnixAddress", "UnreadableAnswer", "addresses_of", "backoff_s", "shared_client",
]  # fmt: skip
