"""The disk of a simulated machine: calls may fail, and a power cut keeps synced data and some of the rest.

Its files are real ones, below which ``tests/reliability/shim.c`` stands; this process must have preloaded it.
"""

from __future__ import annotations

import ctypes
import errno
import random
import shutil
from pathlib import Path

from tests.reliability.power import DiskFile, records_of

CALL_FAILED, POWER_GONE = 1, 2

FAULTS = [
    *((number, kinds) for number in (errno.EIO, errno.ENOSPC, 0) for kinds in ("01w", "1w", "0w")),
    *((errno.EIO, kinds) for kinds in ("01s", "1s", "01r", "0r", "1r", "01t")),
    *((0, "01r"), (0, "1r")),
]
"""Error and kinds of calls, as ``shim_fail`` takes them; error 0 is half a write, or half a read."""


class Disk:
    """The files of one database, under a new path in each life of the server."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        """Keep the files in a folder."""
        self._folder = folder
        self._dice = dice
        self._shim = ctypes.CDLL(None)
        if not hasattr(self._shim, "shim_watch"):
            raise RuntimeError("start with LD_PRELOAD: see tests/simulation/__main__.py")
        self._lives = 0
        self._before: tuple[bytes, bytes] = (b"", b"")
        self.path = folder / "none"

    def begin(self) -> None:
        """Copy the files to a new path, and record changes there."""
        self._lives += 1
        content, log = self._before
        self.path = self._folder / f"{self._lives}.db"
        for path, data in ((self.path, content), (self._log, log)):
            path.unlink(missing_ok=True)
            if data:
                path.write_bytes(data)
        self._record.unlink(missing_ok=True)
        self._shim.shim_watch(str(self.path).encode(), str(self._record).encode())

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    @property
    def _record(self) -> Path:
        return self._folder / "record"

    def fail_once(self) -> None:
        """Let one of the next calls fail."""
        number, kinds = self._dice.choice(FAULTS)
        self._shim.shim_fail(self._dice.randint(1, 40), number, kinds.encode())

    def cut_power(self) -> None:
        """Cut the power at one of the next changes."""
        self._shim.shim_cut(self._dice.randint(1, 60))

    @property
    def happened(self) -> int:
        """Return which of these faults happened."""
        return int(self._shim.shim_happened())

    def end_of_process(self) -> None:
        """Keep the files as a killed server leaves them."""
        self._shim.shim_watch(None, None)
        self._before = (self.path.read_bytes(), self._log.read_bytes() if self._log.exists() else b"")

    def end_of_power(self) -> str:
        """Keep the files as a power cut leaves them; return how."""
        self._shim.shim_watch(None, None)
        how = self._dice.choice(("all", "none", "prefix", "some"))
        files = (DiskFile(self._before[0]), DiskFile(self._before[1]))
        for kind, file, offset, data, _ in records_of(self._record.read_bytes()):
            if kind == b"s":
                files[file].sync()
            else:
                files[file].since.append((kind, offset, data))
        self._before = (files[0].after_a_cut(self._dice, how), files[1].after_a_cut(self._dice, how))
        return how

    def copy(self, target: Path) -> Path:
        """Copy the files, to inspect them without changing them; return the path of the database."""
        target.write_bytes(self._before[0])
        log = Path(f"{target}-wal")
        log.unlink(missing_ok=True)
        if self._before[1]:
            log.write_bytes(self._before[1])
        return target

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
