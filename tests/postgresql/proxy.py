"""A proxy to PostgreSQL that a test can cut, delay, or let drop what goes in one direction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

from tests.postgresql.cluster import quiet_port

Direction = Literal["up", "down"]
"""``up``: what clients send. ``down``: what PostgreSQL answers."""

READ_BYTES = 65_536
POLL_S = 0.01
DONE_S = 60
"""Time limit for a task in the proxy's loop."""


class Proxy:
    """Forwards connections to a port of loopback, with its own event loop and thread."""

    def __init__(self, target: int) -> None:
        """Forward to ``target``."""
        self.port = quiet_port()
        """Where clients connect to."""
        self._target = target
        self._swallowed: frozenset[Direction] = frozenset()
        self._cut_by_answer = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self._is_open = False
        self.open()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DONE_S)

    # --- what a test does with it ------------------------------------------------------------------------

    def swallow(self, *directions: Direction) -> None:
        """Silently drop all bytes in these directions."""
        self._swallowed = frozenset(directions)

    def cut(self, after_s: float = 0.0) -> None:
        """Break all connections after some time; new connections work."""
        self._loop.call_soon_threadsafe(self._loop.call_later, after_s, self._cut)

    def cut_when_answered(self) -> None:
        """Drop PostgreSQL's reply, and break all connections when it has replied."""
        self._cut_by_answer = True
        self.swallow("down")

    def shut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._do(self._stop())

    def open(self) -> None:
        """Accept connections again."""
        self._do(self._listen())

    def close(self) -> None:
        """Stop it, unless it has stopped."""
        if self._loop.is_closed():
            return
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DONE_S)
        self._loop.close()

    # --- in its loop -------------------------------------------------------------------------------------

    def _cut(self) -> None:
        self._swallowed, self._cut_by_answer = frozenset(), False
        for writer in self._writers:
            writer.transport.abort()

    async def _stop(self) -> None:
        """Stop accepting before closing, as a server that closes while it accepts leaves sockets open."""
        self._is_open = False
        mine = {asyncio.current_task()}
        while others := asyncio.all_tasks() - mine:
            self._cut()
            await asyncio.wait(others, timeout=POLL_S)
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(POLL_S)  # until all of them are closed

    async def _listen(self) -> None:
        self._is_open = True
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._is_open:
                raise ConnectionRefusedError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            await asyncio.gather(
                self._forward(reader, far_writer, "up"), self._forward(far_reader, writer, "down")
            )
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if direction == "down" and self._cut_by_answer:
                    self._cut()
                elif direction not in self._swallowed:
                    writer.write(data)
                    await writer.drain()
        if not writer.transport.is_closing():
            writer.close()
