"""Helpers to talk to a live server: exact bytes on a socket, and the received replies.

It knows the framing of both protocols and nothing of the server's code, so that a fault there cannot hide
here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DEADLINE_S = 45.0
"""How long a test waits for something that must happen: many times what it needs on a busy machine. The first
page of a test's process waits for its templates, which are compiled at low priority, for 30 s at most."""


@dataclass(frozen=True)
class Reply:
    """One answer as it stood on the wire."""

    status: str
    """The first line."""
    lines: tuple[str, ...]
    """The header lines, in order."""
    body: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers by lower-case name."""
        return {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in self.lines)
        }

    @property
    def code(self) -> int:
        """Return the number in the first line, of either protocol."""
        words = self.status.split()
        return int(words[1] if words[0].startswith("HTTP/") else words[0])

    @property
    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


class Talk:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk over an open connection."""
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1", source: str | None = None) -> Self:
        """Connect, from ``source`` where it matters."""
        local = None if source is None else (source, 0)
        return cls(*await asyncio.open_connection(host, port, limit=64 * 1024 * 1024, local_addr=local))

    async def __aenter__(self) -> Self:
        """Use the connection."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    def send(self, data: bytes | str) -> None:
        """Send bytes as they are."""
        self.writer.write(data.encode() if isinstance(data, str) else data)

    async def drip(self, data: bytes) -> None:
        """Send bytes one at a time, each in its own packet."""
        for at in range(len(data)):
            self.writer.write(data[at : at + 1])
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def end(self) -> None:
        """Close the sending half, as ``nc -N`` does at the end of its input."""
        self.writer.write_eof()

    async def reply(self, deadline_s: float = DEADLINE_S) -> Reply:
        """Return the next answer; raises TimeoutError, or EOFError where the server closed instead."""
        async with asyncio.timeout(deadline_s):
            try:
                head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode()
            except asyncio.IncompleteReadError as error:
                raise EOFError(f"the server closed after {error.partial!r}") from None
            status, *lines = head.split("\r\n")
            assert "\n" not in head.replace("\r\n", ""), "a line of the head ends in LF alone"
            reply = Reply(status, tuple(lines), "")
            length = int(reply.headers.get("content-length", "0"))
            body = (await self.reader.readexactly(length)).decode()
        return Reply(status, tuple(lines), body)

    async def ask(self, verb: str, **parameters: Any) -> Reply:
        """Send a raw request and return its answer."""
        self.send(request(verb, **parameters))
        return await self.reply()

    async def ended(self, deadline_s: float = DEADLINE_S) -> bytes:
        """Wait until the server closes; return what it sent before."""
        async with asyncio.timeout(deadline_s):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def silent(self) -> bool:
        """Tell whether nothing has come, after the server had many chances to send something."""
        try:
            async with asyncio.timeout(0.05):
                await self.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await asyncio.wait_for(self.writer.wait_closed(), DEADLINE_S)
        except (ConnectionError, TimeoutError):
            self.writer.transport.abort()

    def reset(self) -> None:
        """Drop the connection without a goodbye."""
        self.writer.transport.abort()


def request(verb: str, **parameters: Any) -> bytes:
    """Return a raw request; ``Connection_`` style names are not needed, the wire names are Python names."""
    lines = [verb, *(f"{name}: {_text(value)}" for name, value in parameters.items()), "", ""]
    return "\r\n".join(lines).encode()


def post(
    command: str, body: Any = None, headers: Mapping[str, str] | None = None, *, host: str = "localhost"
) -> bytes:
    """Return an HTTP request with a JSON body."""
    data = (body if isinstance(body, str) else json.dumps({} if body is None else body)).encode()
    lines = [
        f"POST /{command} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + data


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
