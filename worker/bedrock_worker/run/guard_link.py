"""The worker's end of one guard, which is kept for one command after the other; its own end is ``guard``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from bedrock_worker.run import packet
from bedrock_worker.run.pooled import PooledProcess
from bedrock_worker.run.pump import Pump

HANDLES = 1
"""Handles that come with what a guard says at the most: the way to a process."""

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
        self.process: PooledProcess | None = None
        """The process for functions that is given its runs by us, where there is one."""
        self._handed: list[int] = []
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
        self.drop_process()  # the guard ends it
        packet.send(self._way, b"run", b"\n".join((head, template, data.encode())), output)
        self.hear = hear

    def tell(self, word: bytes) -> None:
        """Say something about its command."""
        with suppress(OSError):  # the guard is dead, and so is the command
            self._way.send(word)

    def keep_process(self, pid: int, *, kind: bytes, folder: str, data: str, runs: int) -> None:
        """Keep the process whose way came with what was just heard, for so many runs of its kind."""
        try:
            way = socket.socket(fileno=self._handed.pop())
            process = PooledProcess(way, pid, kind=kind, folder=folder, data=data, runs=runs)
        except (IndexError, OSError):  # we have as many handles as we may
            self.tell(b"retire %d" % pid)
            return
        with suppress(OSError):  # the guard is dead, and so is the process
            packet.send(self._way, b"alarm", handles=[process.alarm.handle])
        self.process = process

    def drop_process(self) -> None:
        """Be without a process."""
        if self.process is not None:
            self.process.close()
            self.process = None

    def rest(self) -> None:
        """Be without a command."""
        self.hear = self._idle

    def close(self) -> None:
        """Let go of the guard: what still runs ends, and a folder that is left is removed."""
        if self.alive:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
        self.drop_process()
        for pump in self.pumps:
            pump.close()

    def _read(self) -> None:
        try:
            word, self._handed, _, _ = socket.recv_fds(self._way, READ_BYTES, HANDLES)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if not word:
            process, resting = self.process, self.hear == self._idle
            self.close()
            self.hear(None)
            if process is not None and resting:  # else its run looks what is there
                shutil.rmtree(process.folder, ignore_errors=True)
            return
        self._heard(json.loads(word))
        for handle in self._handed:
            os.close(handle)
        self._handed = []

    def _heard(self, found: dict[str, Any]) -> None:
        if "gone" not in found:
            self.hear(found)
            return
        resting = True
        if self.process is not None and self.process.pid == found["gone"]:
            process, self.process = self.process, None
            resting = self.hear == self._idle
            self.hear(found)
            process.close()
        if resting:  # else its run looks what is there
            shutil.rmtree(found["folder"], ignore_errors=True)
