"""A disk that hangs: the shim reports every write of the database to a pipe that nobody reads.

The server then hangs within a partly written commit until it is killed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from pathlib import Path

from tests.reliability.shim import built

PIPE_BYTES = 4_096
"""Size of the pipe: less than the report of one page, so that the first write of a commit fills it."""

READ_BYTES = 65_536


class StallingDisk:
    """Reads the shim's reports, or stops reading so that writes hang."""

    def __init__(self, folder: Path, database: Path) -> None:
        """Make the pipe; skips the test without a compiler."""
        self._path = folder / "writes"
        os.mkfifo(self._path)
        self.environment = {
            "LD_PRELOAD": str(built()),
            "SHIM_DATABASE": str(database),
            "SHIM_RECORD": str(self._path),
        }
        self._pipe = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def turn(self) -> None:
        """Let the writes reported so far continue."""
        try:
            while os.read(self._pipe, READ_BYTES):
                pass
        except BlockingIOError:
            pass

    @property
    def stalled(self) -> bool:
        """Return whether a write hangs, since its report has not been read."""
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4)))
        return bool(waiting)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)
