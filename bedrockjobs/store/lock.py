"""Ownership of a database by one server: a lock on a file next to it and one on the database itself.

The lock file names the owner. The lock on the database also works under another name of it, and if the lock
file is removed. It is an flock, which does not affect SQLite's locks. But closing any descriptor of the
database drops all of SQLite's locks in this process, so this one is opened before SQLite opens the file and
closed after it, nothing else in the process opens it, and child processes are started by exec, which closes
it.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from bedrockjobs.store.loss import STOPPED, loss_of
from bedrockjobs.store.plain_file import check_owner, open_plain

log = logging.getLogger(__name__)

OWNER_BYTES_MAX = 1_000
"""Max bytes read of the description of an owner: a sentence with its addresses."""


class Owned(RuntimeError):
    """Another server owns the database; the message names it."""


class Lost(RuntimeError):
    """Something of the database is missing; the message says what, and what to do."""


class DatabaseLock:
    """The lock on one database, held until ``release`` or the end of the process."""

    def __init__(self, database: Path, *, accept_loss: bool = False, replaces: bool = False) -> None:
        """Prepare to lock ``database``, a path without links; ``accept_loss`` ignores missing files.

        With ``replaces`` missing files are not checked.
        """
        self._database = database
        self._path = lock_path(database)
        self._accept_loss = accept_loss
        self._replaces = replaces
        self._file: int | None = None
        self._held: int | None = None
        self._described = False

    def acquire(self) -> None:
        """Acquire the lock; create an empty file if there is no database.

        Raises Owned if another process has it, Lost if a part of it is missing, PlantedFile for a link or a
        file of another user.
        """
        check_owner(self._database)
        file = open_plain(self._path)
        held: int | None = None
        try:
            self._lock(file, _owner(file))
            self._check_loss(file)
            held = self._open_database()
            self._lock(held, "another server, under another name or with its lock file removed")
        except BaseException:
            if held is not None:
                os.close(held)
            os.close(file)
            raise
        self._file, self._held = file, held

    def _lock(self, file: int, owner: str) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Owned(f"The database {self._database} is owned by {owner}.") from None

    def _check_loss(self, file: int) -> None:
        loss = None
        if not self._replaces:
            loss = loss_of(self._database, _words(file), os.fstat(file).st_mtime_ns)
        if loss is None:
            return
        if not self._accept_loss:
            raise Lost(loss)
        log.warning("the loss is accepted: %s", loss)

    def _open_database(self) -> int:
        return os.open(self._database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def describe(self, owner: str) -> None:
        """Write the owner of the database to the lock file."""
        assert self._file is not None
        self._described = True
        self._write(self._file, owner)

    def _write(self, file: int, words: str) -> None:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{words}\n".encode(), 0)
        os.fsync(file)

    def release(self) -> None:
        """Release the lock after the database is closed.

        The file is not removed, since two servers could then lock two files.
        """
        if self._file is None or self._held is None:
            return
        try:
            if self._described:
                self._write(self._file, STOPPED)
        finally:
            os.close(self._file)
            os.close(self._held)
            self._file = self._held = None


def lock_path(database: Path) -> Path:
    """Return the path of the lock file of a database."""
    return database.with_name(f"{database.name}-lock")


def _words(file: int) -> str:
    return os.pread(file, OWNER_BYTES_MAX, 0).decode(errors="replace").strip()


def _owner(file: int) -> str:
    words = _words(file)
    return "another server" if words in ("", STOPPED) else words


def owner_of(database: Path) -> str | None:
    """Return the owner of a database as described in the lock file, or None.

    Must not be called in a process that has the database open. Raises OSError if a file cannot be read.
    """
    database = database.resolve()
    for path in (lock_path(database), database):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another server" if path == database else _owner(file)
        finally:
            os.close(file)
    return None
