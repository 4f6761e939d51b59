"""The worker's end of one guard, which is kept for one command after the other; its own end is ``guard``."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from bedrock_worker.run import packet
from bedrock_worker.run.pump import Pump

READ_BYTES = 65_536
"""Size of one read of what a guard says: each message is much shorter."""

Hear = Callable[[dict[str, Any] | None], None]
"""Takes what a guard says, None where it is dead."""


class GuardLink:
    """The way to one guard. Belongs to the event loop of the main thread."""

    def __init__(self, way: socket.socket, idle: Hear) -> None:
        """Listen; ``idle`` hears it while it has no command."""
        way.setblocking(False)
        self._way, self._idle = way, idle
        self.pumps: list[Pump] = []
        """The output of its processes for functions, which several runs share."""
        self.hear = idle
        self.pid = 0
        """The guard's process id, 0 until its first command has been started."""
        asyncio.get_running_loop().add_reader(way.fileno(), self._read)

    @property
    def alive(self) -> bool:
        """Tell whether nothing was heard of its death, and nobody has let go of it."""
        return self._way.fileno() >= 0

    def give(self, head: bytes, template: bytes, data: str, output: Sequence[int], hear: Hear) -> None:
        """Have a run begun; ``hear`` hears of it.

        Both ``head``, how it is run, and ``template``, what forks its process, are a line of JSON. Then come
        the text of its job, and its stdout and stderr. Raises OSError where the guard is dead.
        """
        packet.send(self._way, b"run", b"\n".join((head, template, data.encode())), output)
        self.hear = hear

    def tell(self, word: bytes) -> None:
        """Say something about its command."""
        with suppress(OSError):  # the guard is dead, and so is the command
            self._way.send(word)

    def rest(self) -> None:
        """Be without a command."""
        self.hear = self._idle

    def close(self) -> None:
        """Let go of the guard: what still runs ends, and a folder that is left is removed."""
        if self.alive:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
        for pump in self.pumps:
            pump.close()

    def _read(self) -> None:
        try:
            word = self._way.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word:
            self.hear(json.loads(word))
        else:
            self.close()
            self.hear(None)
