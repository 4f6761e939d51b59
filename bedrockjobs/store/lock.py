"""Who owns a database file: one server at a time, told by a lock file beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Owned(RuntimeError):
    """Another server owns the database; the message names it."""


class DatabaseLock:
    """The lock on one database; held until ``release`` or the end of the process."""

    def __init__(self, database: Path) -> None:
        """Prepare to lock ``database``."""
        self._database = database
        self._path = database.with_name(f"{database.name}-lock")
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises Owned where another process has it."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 1_000).decode(errors="replace").strip() or "another server"
            os.close(file)
            raise Owned(f"The database {self._database} is owned by {owner}.") from None
        self._file = file

    def describe(self, owner: str) -> None:
        """Write who owns the database, for whoever is refused."""
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{owner}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two servers lock two files."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None
