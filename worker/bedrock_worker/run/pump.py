"""Reads the output of commands from their pipes and passes it on line by line."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence

from bedrock_worker.report.line_splitter import LineSplitter

READ_BYTES = 8_192
"""Size of one read; further output waits in the pipe instead of our memory."""

DRAIN_READS = 128
"""Max reads of the rest of a pipe at the end: the capacity of the largest pipe (``pipe-max-size``)."""

Listener = Callable[[str, str], None]
"""Called with the stream's name, ``out`` or ``err``, and a line."""


class Pump:
    """Reads one stream."""

    def __init__(self, pipe: int, name: str) -> None:
        """Take over a pipe."""
        self.ended = asyncio.Event()
        self.listener: Listener = lambda *_: None
        self._pipe, self._name = pipe, name
        self._lines = LineSplitter()
        self._begun = False
        os.set_blocking(pipe, False)

    def begin(self) -> None:
        """Start reading, unless it has started or ended."""
        if not self._begun and not self.ended.is_set():
            self._begun = True
            asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def drain(self) -> None:
        """Read what is left: the writer has ended, unless it may live on and keeps writing."""
        for _ in range(DRAIN_READS):
            if self.ended.is_set():
                return
            if not self._read():
                break

    def fileno(self) -> int:
        """Return the handle of the pipe, valid until the end."""
        return self._pipe

    def end_line(self) -> None:
        """Complete the last line: the next one belongs to another run."""
        for line in self._lines.end():
            self.listener(self._name, line)

    def _read(self) -> bool:
        """Read once; return whether there was anything."""
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
    """Read what is left in several pipes, with a single system call if there is nothing."""
    poll = select.poll()
    for pump in pumps:
        if not pump.ended.is_set():
            poll.register(pump.fileno(), select.POLLIN)
    filled = {handle for handle, _ in poll.poll(0)}
    for pump in pumps if filled else ():
        if pump.fileno() in filled:
            pump.drain()
