"""One raw connection of a test, one request at a time."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar, NamedTuple

WAITS_S = 30.0
"""Time in which a GetJob that was sent waits, on a busy machine."""


class Answer(NamedTuple):
    """A reply."""

    code: int
    reason: str
    reply: Any
    closing: bool


class Cut(Exception):
    """The connection ended without a reply: the outcome is unknown."""


class Wire:
    """A connection to a server on loopback."""

    ever: ClassVar[list[Wire]] = []
    """Every connection there is, for the end of a test to close."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use the streams that ``connect`` opened."""
        self.ever.append(self)
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Wire:
        """Open a connection; raises OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    def send(self, verb: str, asked: dict[str, Any]) -> None:
        """Send a request without waiting for its answer."""
        body = json.dumps(asked).encode()
        self._writer.write(b"%s\r\nContent-Length: %d\r\n\r\n%s" % (verb.encode(), len(body), body))

    async def receive(self) -> Answer:
        """Return the next answer; raises Cut."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self._reader.readexactly(int(headers["content-length"]))
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise Cut(str(error)) from None
        code, _, reason = head[0].partition(" ")
        reply = json.loads(body) if body else None
        return Answer(int(code), reason, reply, headers.get("connection") == "close")

    async def ask(self, verb: str, **asked: Any) -> Answer:
        """Send a request and return its answer; raises Cut."""
        self.send(verb, asked)
        return await self.receive()

    def end_input(self) -> None:
        """Close the sending side: no more requests follow."""
        self._writer.write_eof()

    def close(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


async def one_waits(port: int) -> None:
    """Return when a server has one waiting GetJob."""
    wire = await Wire.connect(port)
    async with asyncio.timeout(WAITS_S):
        while (await wire.ask("Status")).reply["waiting"] != 1:
            await asyncio.sleep(0.01)
    wire.close()
