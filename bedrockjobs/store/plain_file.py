"""Opens the files next to a database without following links.

Anyone who may write to the folder could plant a link and make the server write to another user's file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FILLED_AT_ONCE = 1024 * 1024
"""Bytes of zeros per write."""


class PlantedFile(RuntimeError):
    """A link or foreign file is in place of one of our files; the message says what to do."""


def open_plain(path: Path) -> int:
    """Open a file for reading and writing, created with mode 0600 if missing; return its descriptor.

    Raises PlantedFile for a link, for a file with a second name, and for anything but a regular file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    try:
        file = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise PlantedFile(_words(path)) from None
        raise
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(file)
        raise PlantedFile(_words(path))
    return file


def check_owner(database: Path) -> None:
    """Raise PlantedFile if another user owns or may write to the database or its log.

    Trusted owners are this user, root and the owner of the folder, unless the folder is world-writable.
    """
    folder = database.parent.stat()
    trusted = {os.geteuid(), 0} | (set() if folder.st_mode & stat.S_IWOTH else {folder.st_uid})
    for suffix in ("", "-wal", "-shm", "-journal"):
        path = Path(f"{database}{suffix}")
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            if suffix:
                raise PlantedFile(_words(path))
            return  # opening it does not follow the link
        if found.st_uid not in trusted:
            raise PlantedFile(
                f"{path} belongs to the user {found.st_uid}, who may have put it there: expected a file of"
                " the server's user or of root. Remove it, or give it to that user by chown."
            )
        if found.st_mode & stat.S_IWOTH:
            raise PlantedFile(f"everybody may write to {path}: run chmod o-w {path}")


def make_plain(path: Path) -> int:
    """Replace a plain file with a new one; return its descriptor. Raises PlantedFile."""
    remove_plain(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, 0o600)


def fill(path: Path, size: int) -> None:
    """Extend a file to ``size`` bytes with zeros; a longer one is unchanged.

    Raises OSError if the disk is full, with the file unchanged, and PlantedFile.
    """
    file = open_plain(path)
    try:
        before = length = os.fstat(file).st_size
        try:
            while length < size:
                length += os.pwrite(file, bytes(min(size - length, FILLED_AT_ONCE)), length)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, before)
            raise
    finally:
        os.close(file)


def remove_plain(path: Path) -> None:
    """Remove a file if it is there; raises PlantedFile."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise PlantedFile(_words(path))
    path.unlink()


def _words(path: Path) -> str:
    return f"{path} is a link or no plain file: somebody put it there. Remove it."
