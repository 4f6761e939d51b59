"""Carries the output of commands from their pipes to whoever listens, line by line. Knows no process."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence

from bedrock_worker.report.line_splitter import LineSplitter

READ_BYTES = 8_192
"""Size of one read of a child's output: what it prints in between waits in the pipe, not in our memory."""

DRAIN_READS = 128
"""Reads of what is left in a pipe at the end: as much as the largest one holds (``pipe-max-size``)."""

Listener = Callable[[str, str], None]
"""Called with the stream's name, ``out`` or ``err``, and a line."""


class Pump:
    """Carries one stream to its listener."""

    def __init__(self, pipe: int, name: str) -> None:
        """Take a pipe, which is ours from now on."""
        self.ended = asyncio.Event()
        self.listener: Listener = lambda *_: None
        self._pipe, self._name = pipe, name
        self._lines = LineSplitter()
        self._begun = False
        os.set_blocking(pipe, False)

    def begin(self) -> None:
        """Read from now on; does nothing where it does so already, or has ended."""
        if not self._begun and not self.ended.is_set():
            self._begun = True
            asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def drain(self) -> None:
        """Read what is there: who wrote it has ended, unless it may live on and goes on writing."""
        for _ in range(DRAIN_READS):
            if self.ended.is_set():
                return
            if not self._read():
                break

    def fileno(self) -> int:
        """Return the handle of the pipe, for as long as it has not ended."""
        return self._pipe

    def end_line(self) -> None:
        """Take the last line as it is: the next one is of another run."""
        for line in self._lines.end():
            self.listener(self._name, line)

    def _read(self) -> bool:
        """Read once; tell whether there was something."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        for line in self._lines.feed(data) if data else self._lines.end():
            self.listener(self._name, line)
        if not data:
            self.close()
        return True

    def close(self) -> None:
        """Stop reading; a process that still writes gets SIGPIPE."""
        if not self.ended.is_set():
            if self._begun:
                asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
        self.ended.set()


def drain(pumps: Sequence[Pump]) -> None:
    """Read what is left in several pipes: one question to the kernel if there is nothing, as mostly."""
    poll = select.poll()
    for pump in pumps:
        if not pump.ended.is_set():
            poll.register(pump.fileno(), select.POLLIN)
    filled = {handle for handle, _ in poll.poll(0)}
    for pump in pumps if filled else ():
        if pump.fileno() in filled:
            pump.drain()
