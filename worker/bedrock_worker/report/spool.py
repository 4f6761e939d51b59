"""Lines of output on their way to the server: a few in memory, the others in files without a name.

First in, first out, and bounded: what does not fit is counted, and a line in its place says how many are
missing. Two files take turns, one written while the other is read, so that what was read gives its space
back. They vanish with the worker, however it ends.
"""

from __future__ import annotations

import io
import tempfile
from collections import deque
from dataclasses import dataclass
from typing import cast

MEMORY_BYTES_MAX = 131_072
"""Size of the lines of one run kept in memory; further ones go to a file."""

SPOOL_BYTES_MAX = 64 * 1024 * 1024
"""Size of the lines of one run that wait for the server; further ones are dropped and counted."""

LINE_OVERHEAD_BYTES = 64
"""What a short line costs in memory beyond its text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output."""

    stream: str
    """``out`` or ``err``."""
    text: str
    missing: int = 0
    """How many lines it stands for, if it says that they are missing."""

    @property
    def size(self) -> int:
        """Return about how many bytes of memory it takes."""
        return len(self.text) + LINE_OVERHEAD_BYTES


class Spool:
    """The lines of one run that were not sent yet."""

    def __init__(self) -> None:
        """Begin empty; files are made when they are needed."""
        self._fresh: deque[Line] = deque()
        self._fresh_size = 0
        self._written: io.FileIO | None = None
        self._read: io.BufferedReader | None = None
        self._filed = 0
        self._waiting_size = 0
        self._dropped = 0
        self._reason = ""

    def __len__(self) -> int:
        """Return how many lines wait."""
        return self._filed + len(self._fresh)

    def add(self, line: Line) -> None:
        """Take a line, or count it where there is no room."""
        if self._waiting_size + line.size > SPOOL_BYTES_MAX:
            self._drop(line, f"{SPOOL_BYTES_MAX >> 20} MiB wait for the server")
        elif self._dropped and self._waiting_size > SPOOL_BYTES_MAX // 2:  # not one by one at the brim
            self._drop(line, self._reason)
        else:
            if self._dropped:
                self._put(self._notice())
            self._put(line)

    def end(self) -> None:
        """Say how many of the last lines are missing, if any are; nothing is added after this."""
        if self._dropped:
            self._keep(self._notice())

    def take(self, lines_max: int, bytes_max: int) -> list[Line]:
        """Remove and return the oldest lines, within the limits but for the last of them."""
        found: list[Line] = []
        size = 0
        while len(self) and len(found) < lines_max and size < bytes_max:
            line = self._oldest()
            found.append(line)
            size += line.size
        self._waiting_size -= size
        return found

    def close(self) -> None:
        """Forget everything."""
        for file in (self._written, self._read):
            if file is not None:
                file.close()
        self._written = self._read = None
        self._fresh.clear()
        self._fresh_size = self._waiting_size = self._filed = 0

    def _drop(self, line: Line, reason: str) -> None:
        self._dropped += line.missing or 1
        self._reason = reason

    def _notice(self) -> Line:
        missing, self._dropped = self._dropped, 0
        return Line("err", f"[{missing} lines dropped: {self._reason}]", missing)

    def _put(self, line: Line) -> None:
        self._keep(line)
        if self._fresh_size > MEMORY_BYTES_MAX:
            self._file()

    def _keep(self, line: Line) -> None:
        self._fresh.append(line)
        self._fresh_size += line.size
        self._waiting_size += line.size

    def _file(self) -> None:
        """Move the lines in memory into the file."""
        data = b"".join(b"%s%s\n" % (line.stream[:1].encode(), line.text.encode()) for line in self._fresh)
        try:
            if self._written is None:
                self._written = _new_file()
            _append(self._written, data)
        except OSError as error:
            self._waiting_size -= self._fresh_size
            for line in self._fresh:
                self._drop(line, f"they could not be kept: {error.strerror}")
        else:
            self._filed += len(self._fresh)
        self._fresh.clear()
        self._fresh_size = 0

    def _oldest(self) -> Line:
        if not self._filed:
            line = self._fresh.popleft()
            self._fresh_size -= line.size
            return line
        raw = b"" if self._read is None else self._read.readline()
        if not raw:
            raw = self._turn().readline()
        self._filed -= 1
        return Line("out" if raw[:1] == b"o" else "err", raw[1:-1].decode())

    def _turn(self) -> io.BufferedReader:
        """Read what was written so far, and write where everything has been read."""
        assert self._written is not None
        empty = None if self._read is None else cast("io.FileIO", self._read.detach())
        if empty is not None:
            empty.seek(0)
            empty.truncate()
        self._written.seek(0)
        self._read, self._written = io.BufferedReader(self._written), empty
        return self._read


def _new_file() -> io.FileIO:
    return tempfile.TemporaryFile(buffering=0, prefix="bedrock-output-")


def _append(file: io.FileIO, data: bytes) -> None:
    """Write all of it or nothing; raises OSError."""
    at, rest = file.tell(), memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.seek(at)
        file.truncate()
        raise
