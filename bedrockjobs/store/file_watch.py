"""Detects when the files of an open database are removed or replaced.

SQLite keeps writing to deleted files, and that data would be lost. Only paths are checked: opening and
closing a file of SQLite would drop SQLite's own locks.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from struct import Struct

from bedrockjobs.store.faults import StoreBroken
from bedrockjobs.store.lock import lock_path

LOOK_S = 1.0
"""Interval between two checks of all files; database and log are also checked after each sync."""


_libc = ctypes.PyDLL(None, use_errno=True)  # holds the GIL: the call is short
_AT_FDCWD, _STATX_INO, _STATX_SIZE = -100, 0x100, 0x200
_statx = getattr(_libc, "statx", None)
"""None if the C library lacks it: before glibc 2.28 and musl 1.2.4, and on systems other than Linux."""
_Statx = ctypes.c_char * 256
_ino_and_size_of = Struct("=32xQQ").unpack_from
_device_of = Struct("=136xII").unpack_from


class FileGone(StoreBroken):
    """A file of the database was removed or replaced; the message says what to do."""

    def __init__(self, words: str, *, only_log: bool) -> None:
        """Hold the message; ``only_log``: only the log was removed."""
        super().__init__(words)
        self.only_log = only_log


class FileWatch:
    """The files of one database that SQLite has open in write-ahead mode."""

    def __init__(self, database: str) -> None:
        """Record the identities of the files."""
        self._database = database
        self._log = f"{database}-wal"
        self._lock = str(lock_path(Path(database)))
        self._others = {
            path: _identity(Path(path).stat())
            for path in (f"{database}-shm", self._lock)
            if Path(path).exists()
        }
        self._seen = _identity(Path(database).stat())
        self._log_seen, _ = _identity_and_size(self._log)
        self._written_ns = 0
        self.look()

    def look(self) -> None:
        """Check all files; raises FileGone."""
        self.look_after_sync()
        for path, identity in self._others.items():
            try:
                found = _identity(Path(path).stat())
            except FileNotFoundError:
                raise self._removed(path) from None
            if found != identity:
                raise self._replaced(path)

    def look_after_sync(self) -> None:
        """Check database and log after a sync; raises FileGone."""
        try:
            found = os.stat(self._database)  # noqa: PTH116 - runs after each sync, and is twice as fast
            beside, beside_size = _identity_and_size(self._log)
        except FileNotFoundError as error:
            raise self._removed(error.filename) from None
        if (found.st_dev, found.st_ino) != self._seen:
            raise self._replaced(self._database)
        if not found.st_size:
            raise FileGone(
                f"{self._database} was cut to 0 bytes while the server used it. Restore a backup.",
                only_log=False,
            )
        if beside != self._log_seen:
            if not beside_size:  # created by a reader that opened the database since
                raise self._removed(self._log)
            raise self._replaced(self._log)
        if found.st_mtime_ns != self._written_ns:
            self._note_written(found.st_mtime_ns)

    def _removed(self, path: str) -> FileGone:
        return FileGone(
            f"{path} was removed or moved while the server used it."
            " Put it back, or restore a backup, before the next start.",
            only_log=path == self._log,
        )

    def _replaced(self, path: str) -> FileGone:
        return FileGone(
            f"{path} was replaced by another file while the server used it."
            " Put the right one in its place before the next start.",
            only_log=False,
        )

    def _note_written(self, written_ns: int) -> None:
        """Store the modification time of the database in that of the lock file, for ``loss_of``."""
        if self._lock in self._others:
            os.utime(self._lock, ns=(written_ns, written_ns), follow_symlinks=False)
        self._written_ns = written_ns


def _identity_and_size(path: str) -> tuple[tuple[int, int], int]:
    """Return device, inode and size of a file; raises OSError.

    It does not read the modification time. With multigrain timestamps (Linux 6.13) reading it makes the next
    write store a fine-grained time, and each sync then also writes the inode: 40 us more.
    """
    if _statx is None:
        plain = os.stat(path)  # noqa: PTH116
        return _identity(plain), plain.st_size
    found = _Statx()
    if _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_INO | _STATX_SIZE, found):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    inode, size = _ino_and_size_of(found)
    return (os.makedev(*_device_of(found)), inode), size


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
