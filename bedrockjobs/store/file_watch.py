"""Notices when somebody removes or replaces the files of an open database.

SQLite goes on writing to files that have no name any more, and all of it would be lost. Only paths are looked
at: opening a file of SQLite's and closing it would drop SQLite's own locks.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from struct import Struct

from bedrockjobs.store.faults import StoreBroken
from bedrockjobs.store.lock import lock_path

LOOK_S = 1.0
"""Time between two looks at all files; database and log are looked at after each sync as well."""


_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock: the call is short
_AT_FDCWD, _STATX_INO, _STATX_SIZE = -100, 0x100, 0x200
_statx = getattr(_libc, "statx", None)
"""None where the C library has none: before glibc 2.28 and musl 1.2.4, and on other systems than Linux."""
_Statx = ctypes.c_char * 256
_ino_and_size_of = Struct("=32xQQ").unpack_from
_device_of = Struct("=136xII").unpack_from


class FileGone(StoreBroken):
    """A file of the database is no longer where it was; the message says what happened and what to do."""

    def __init__(self, words: str, *, only_log: bool) -> None:
        """Hold the sentence; ``only_log`` says that the log was removed, and nothing is in its place."""
        super().__init__(words)
        self.only_log = only_log


class FileWatch:
    """The files of one database that SQLite has open in write-ahead mode."""

    def __init__(self, database: str) -> None:
        """Note which files there are."""
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
        """Look at all files; raises FileGone."""
        self.look_after_sync()
        for path, identity in self._others.items():
            try:
                found = _identity(Path(path).stat())
            except FileNotFoundError:
                raise self._removed(path) from None
            if found != identity:
                raise self._replaced(path)

    def look_after_sync(self) -> None:
        """Look whether what was just synced is where it will be sought; raises FileGone."""
        try:
            found = os.stat(self._database)  # noqa: PTH116 - asked after each sync, and twice as fast
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
            if not beside_size:  # whoever opened the database since made a new one, to read only
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
        """Let the lock file keep when the database itself was last written, for ``loss_of``."""
        if self._lock in self._others:
            os.utime(self._lock, ns=(written_ns, written_ns), follow_symlinks=False)
        self._written_ns = written_ns


def _identity_and_size(path: str) -> tuple[tuple[int, int], int]:
    """Return device and inode of a file, and its size; raises OSError.

    It does not ask when the file was written. Who asks that lets Linux note the time of the next write to the
    microsecond (multigrain timestamps, since 6.13), and each sync then writes the inode too: 40 us more.
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
