"""The first byte of a connection to a server with a certificate: TLS or not. What that costs is bounded."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.protocol.connections import LOOPBACK, Connections
from bedrockjobs.tls.contexts import why
from bedrockjobs.tls.stream import TLSStream

log = logging.getLogger(__name__)

TLS_BYTE = 0x16
"""What a connection with TLS begins with, and no request does: the type of a record of a handshake."""

NO_TLS = b"\x15\x03\x01\x00\x02\x02\x28"
"""What a server without a certificate answers to TLS: its alert 40, that the handshake failed."""

HANDSHAKES_MAX = 1_000
"""Handshakes under way at once, some 60 KiB each; for one more the oldest is ended. A client that means it
needs two round trips, so that nobody who sends thousands of others a second keeps it out."""

FAILURES_TOLD_MAX = 10
"""Handshakes that failed and are told in the log, in the time of ``FAILURES_EVERY_S``: scanners try many."""

FAILURES_EVERY_S = 60.0
"""Time after which as many are told again, with the number of those that were not."""


class Doorway:
    """Lets connections with TLS in, and says whether one without may go on."""

    def __init__(self, context: ssl.SSLContext, connections: Connections) -> None:
        """Shake hands by ``context``, which may be replaced: what has begun goes on with its own."""
        self.context = context
        self._connections = connections
        self._under_way: dict[Handshake, None] = {}
        self._told = self._untold = 0
        self._tell_again = 0.0

    def shake_hands(
        self, transport: asyncio.Transport, address: str, data: bytes, inside: Callable[[], asyncio.Protocol]
    ) -> None:
        """Begin TLS with what has come, on a connection that nobody counts; then ``inside`` has it."""
        handshake = Handshake(self, transport, address, inside)
        if not self._connections.admit(handshake, address):
            transport.abort()
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            next(iter(self._under_way)).expire()
        self._under_way[handshake] = None
        self._connections.expect(handshake, self._connections.settings.handshake_s)
        handshake.begin(self.context, data)

    def over(self, handshake: Handshake, address: str) -> None:
        """Count a handshake no longer."""
        if handshake in self._under_way:
            del self._under_way[handshake]
            self._connections.dismiss(handshake, address)

    def failed(self, address: str, error: Exception) -> None:
        """Tell of a handshake that failed, unless many were told just now."""
        now = self._connections.clock.monotonic()
        if now >= self._tell_again:
            if self._untold:
                log.info("%d more handshakes of TLS failed", self._untold)
            self._told, self._untold, self._tell_again = 0, 0, now + FAILURES_EVERY_S
        if self._told < FAILURES_TOLD_MAX:
            self._told += 1
            words = why(error) if isinstance(error, ssl.SSLError) else str(error)
            log.info("a handshake of TLS with %s failed: %s", address or "a unix socket", words)
        else:
            self._untold += 1

    @staticmethod
    def refusal(address: str) -> Forbidden | None:
        """Return what to answer a plain connection; None where it may go on: it comes from this machine."""
        if address in LOOPBACK:
            return None
        return Forbidden(
            "TLS required", "this server takes plain connections from its own machine only; use TLS"
        )


class Handshake:
    """A connection from the first byte of TLS to the end of the handshake."""

    deadline = 0.0
    unread_bytes = 0

    def __init__(
        self,
        doorway: Doorway,
        transport: asyncio.Transport,
        address: str,
        inside: Callable[[], asyncio.Protocol],
    ) -> None:
        """Belong to ``doorway``; ``inside`` makes the protocol that goes on with the connection."""
        self._doorway = doorway
        self._transport = transport
        self._address = address
        self._inside = inside

    def begin(self, context: ssl.SSLContext, data: bytes) -> None:
        """Take the first bytes."""
        stream = TLSStream(context, self._ready, self._failed)
        self._transport.set_protocol(stream)
        stream.connection_made(self._transport)
        stream.data_received(data)

    def expire(self) -> None:
        """Close: it takes too long, or newer ones need its place."""
        self._doorway.over(self, self._address)
        self._transport.abort()

    finish = shed = expire

    def _ready(self, stream: TLSStream) -> None:
        self._doorway.over(self, self._address)
        protocol = self._inside()
        stream.set_protocol(protocol)
        protocol.connection_made(stream)

    def _failed(self, error: Exception) -> None:
        self._doorway.over(self, self._address)
        self._doorway.failed(self._address, error)
