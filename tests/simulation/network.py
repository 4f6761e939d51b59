"""Connections without sockets: bytes arrive later, in order, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.reliability.wire import Wire
from tests.simulation.loop import VirtualLoop

DELAY_S = 0.002
"""The longest way of a byte."""

CUT = 0.004
"""Share of sendings at which a connection breaks, and they are lost."""

SLOW = 0.02
"""Share of answers that a client does not read at once."""

SLOW_S = 0.05
"""How long it does not, at most."""


class Network:
    """The way to a server, if there is one."""

    def __init__(self, loop: VirtualLoop, dice: random.Random) -> None:
        """Use ``dice`` to decide which bytes are late and which are lost."""
        self.loop = loop
        self.dice = dice
        self.accept: Callable[[asyncio.Transport], None] | None = None
        """What the server does with a new connection; None where none listens."""
        self._links: list[_Link] = []

    async def connect(self, port: int) -> Wire:
        """Open a connection; raises OSError."""
        await asyncio.sleep(self.dice.random() * DELAY_S)
        if self.accept is None:
            raise ConnectionRefusedError
        link = _Link(self)
        self._links.append(link)
        self.accept(link)
        return Wire(link.reader, link.client)  # type: ignore[arg-type]

    def server_died(self) -> None:
        """Break all connections; bytes on their way may or may not arrive."""
        self.accept = None
        for link in self._links:
            link.broke()
        self._links.clear()


class _Link(asyncio.Transport):
    """One connection: the server's transport, and the reader and writer of its client."""

    def __init__(self, network: Network) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._network = network
        self._protocol: Any = None
        self.reader = asyncio.StreamReader(limit=1 << 24, loop=network.loop)
        self.client = _Client(self)
        self._times = {"up": 0.0, "down": 0.0}
        self._closing = self._lost = self._ended = self._paused = False
        self._held = b""  # what waits in the server until its client reads

    def _later(self, way: str, call: Callable[[], object]) -> None:
        """Call a function after everything sent earlier in this direction has arrived."""
        network = self._network
        at = max(self._times[way] + 1e-6, network.loop.time() + network.dice.random() * DELAY_S)
        self._times[way] = at
        network.loop.call_at(at, call)

    # --- from the client ---------------------------------------------------------------------------------

    def sent(self, data: bytes) -> None:
        """Receive bytes from the client."""
        if self._network.dice.random() < CUT:
            self.broke()
            self._later("up", partial(self._lose, None))
        else:
            self._later("up", partial(self._received, data))

    def left(self) -> None:
        """Record that the client has closed the connection."""
        self._ended = True
        self._later("up", partial(self._lose, ConnectionResetError()))

    def _received(self, data: bytes) -> None:
        if not self._lost:
            self._protocol.data_received(data)

    def _lose(self, why: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._protocol.connection_lost(why)

    # --- to the client -----------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send bytes to the client."""
        if self._lost:
            return
        dice = self._network.dice
        if dice.random() < CUT:
            self.broke()
            self._later("down", partial(self._lose, ConnectionResetError()))
            return
        self._held += data
        if not self._paused and dice.random() < SLOW:
            self._paused = True
            self._protocol.pause_writing()
            self._network.loop.call_later(dice.random() * SLOW_S, self._resume)
        if not self._paused:
            self._send()

    def _send(self) -> None:
        self._later("down", partial(self._deliver, self._held))
        self._held = b""

    def _resume(self) -> None:
        if not self._lost:
            self._paused = False
            self._send()
            self._protocol.resume_writing()

    def _deliver(self, data: bytes) -> None:
        if not self._ended:
            self.reader.feed_data(data)

    def broke(self) -> None:
        """End the client's stream, with or without the bytes that are on their way."""
        if not self._ended:
            if self._network.dice.random() < 0.5:
                self._end_of_client()
            else:
                self._later("down", self._end_of_client)

    def _end_of_client(self) -> None:
        if not self._ended:
            self._ended = True
            self.reader.feed_eof()

    # --- asyncio.Transport -------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that receives the client's bytes."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self._closing

    def close(self) -> None:
        """Close after everything written has been sent."""
        if self._closing:
            return
        self._closing = True
        if self._held:
            self._resume()
        self._later("down", self._end_of_client)
        self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self.broke()
        self._network.loop.call_soon(self._lose, None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the dice decide when writing pauses."""

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return len(self._held)

    def pause_reading(self) -> None:
        """Do nothing: simulated clients never send far ahead."""

    def resume_reading(self) -> None:
        """Do nothing."""


class _Client:
    """The client's writer: the part of ``asyncio.StreamWriter`` that it uses."""

    def __init__(self, link: _Link) -> None:
        self.transport = self
        self._link = link

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._link.sent(data)

    def abort(self) -> None:
        """Close the connection."""
        self._link.left()
