"""The files of a SQLite database: safe opening, loss and replacement, the disk reserve, and the owner's lock.

Files are opened without following links: a user who may write to the folder could plant a link, and make the
server write to another user's file.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct

from bedrockjobs.store.base import StoreBroken

FILLED_AT_ONCE = 1024 * 1024
"""Bytes of zeros per write."""


class UnsafeFile(RuntimeError):
    """A file of the database is a link, not regular, or another user's; the message says what to do."""


JOURNAL = "-journal"
SIDE_FILES = ("-wal", "-shm", JOURNAL)
"""Endings of the files that SQLite opens next to a database, and whose content it trusts."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_plain(path: Path) -> int:
    """Open a file for reading and writing, created with mode 0600 if missing; return its descriptor.

    Raises UnsafeFile for a link, for a file with several hard links, for anything but a regular file, and if
    ``check_owner`` would refuse the file.
    """
    try:
        file = _open_ours(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UnsafeFile(_unsafe_words(path)) from None
        raise
    if os.fstat(file).st_nlink > 1:
        os.close(file)
        raise UnsafeFile(_unsafe_words(path))
    return file


def _open_ours(path: Path) -> int:
    """Open or create a file; an existing file is checked through its descriptor, so it cannot be swapped.

    Raises UnsafeFile or OSError.
    """
    try:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        file = os.open(path, _FLAGS)
    try:
        _check_found(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def check_owner(database: Path) -> None:
    """Raise UnsafeFile if a file of the database is world-writable or belongs to an untrusted user.

    Trusted users are this user, root and, unless the folder is world-writable, the owner of the folder. A
    file may be group-writable: only a trusted owner can permit that, as Kubernetes does in volumes with an
    fsGroup.
    """
    for suffix in ("", *SIDE_FILES, "-lock"):
        path = Path(f"{database}{suffix}")
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if not suffix and stat.S_ISLNK(found.st_mode):
            return  # opening it does not follow the link
        _check_found(path, found)


def _check_found(path: Path, found: os.stat_result) -> None:
    """Raise UnsafeFile unless a file is regular, belongs to a trusted owner and is not world-writable."""
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFile(_unsafe_words(path))
    trusted = {os.geteuid(), 0} | (set() if _is_world_writable(path.parent) else {path.parent.stat().st_uid})
    if found.st_uid not in trusted:
        raise UnsafeFile(
            f"{path} belongs to the user {found.st_uid}, who may have put it there: expected a file of"
            " the server's user or of root. Remove it, or give it to that user by chown."
        )
    if found.st_mode & stat.S_IWOTH:
        raise UnsafeFile(f"everybody may write to {path}: run chmod o-w {path}")


def occupy_names(database: Path, suffixes: Iterable[str] = SIDE_FILES) -> None:
    """Create the missing side files of a database if its folder is world-writable.

    Otherwise another user could create these files after ``check_owner``, and SQLite would open them. SQLite
    ignores empty side files. Once SQLite has the database open, ``suffixes`` may only be ``-journal``, since
    closing another side file would drop SQLite's locks. Raises UnsafeFile or OSError.
    """
    if _is_world_writable(database.parent):
        for suffix in suffixes:
            os.close(open_plain(Path(f"{database}{suffix}")))


@contextmanager
def names_protected(database: Path) -> Iterator[None]:
    """Check a database, and occupy the names of its side files while SQLite uses it.

    A server may have the database open, but this process must not. Raises UnsafeFile or OSError.
    """
    check_owner(database)
    has_journal = Path(f"{database}{JOURNAL}").exists()  # then the server made it
    occupy_names(database)
    try:
        yield
    finally:
        if not has_journal:
            _remove_journal(database)


def _remove_journal(database: Path) -> None:
    """Remove the empty journal that ``occupy_names`` made."""
    journal = Path(f"{database}{JOURNAL}")
    with suppress(OSError, UnsafeFile):
        if _is_world_writable(database.parent) and not journal.lstat().st_size:
            remove_plain(journal)


def _is_world_writable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def make_plain(path: Path) -> int:
    """Create an empty file, replacing an existing regular file; return its descriptor. Raises UnsafeFile."""
    remove_plain(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, 0o600)


def fill(path: Path, size: int) -> None:
    """Extend a file to ``size`` bytes with zeros; a longer file is left unchanged.

    Raises OSError if the disk is full, and then leaves the file unchanged. Raises UnsafeFile.
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
    """Remove a regular file, if there is one; raises UnsafeFile."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    _check_found(path, found)
    if found.st_nlink > 1:
        raise UnsafeFile(_unsafe_words(path))
    path.unlink()


def _unsafe_words(path: Path) -> str:
    return f"{path} is a link or not a regular file, and may have been put there by another user. Remove it."


# Detects missing files of a database before SQLite opens it.
#
# SQLite would silently create a new database in place of a missing one, and ignore a missing log.


STOPPED = "no server: the last one stopped cleanly"
"""Content of the lock file after a clean shutdown."""

_WITHOUT_OWNER = ("", STOPPED, "nobody: the last one stopped well")
"""Contents of a lock file without an owner: of a new file, and after a clean shutdown of this version and of
an older one."""

REMEDY = "Restore the missing file or a backup; --accept-loss starts without it."


def loss_of(database: Path, last: str, touched_ns: int) -> str | None:
    """Return a sentence about the missing or truncated files of a database, or None.

    ``last`` is the text of the lock file, empty for a new one. ``touched_ns`` is when the server last wrote
    to the database file, in nanoseconds. If the file was written later, another program has checkpointed and
    removed the log, as SQLite does when it closes a database.
    """
    log_bytes = _size(Path(f"{database}-wal"))
    died = last not in _WITHOUT_OWNER
    who = f" It was last used by {last}, which did not stop cleanly." if died else ""
    log = f" Its log {database}-wal holds {log_bytes} bytes." if log_bytes else ""
    try:
        found = database.stat()
    except FileNotFoundError:
        return f"The database {database} is gone.{who}{log} {REMEDY}" if died or log else None
    if found.st_size == 0:
        return f"The database {database} was cut to 0 bytes.{who}{log} {REMEDY}" if last or log else None
    if died and log_bytes is None and found.st_mtime_ns <= touched_ns:
        return (
            f"The log {database}-wal is gone, with the last commits.{who}"
            f" The database was not written since. {REMEDY}"
        )
    return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


# Reserved disk space next to a database, so that runs can end on a full disk.


class DiskReserve:
    """The disk reserve: one file, ``…-ballast``, or none if its size is 0."""

    def __init__(self, database: str, size: int) -> None:
        """Prepare to reserve ``size`` bytes next to ``database``."""
        self._path = Path(f"{database}-ballast")
        self.bytes = 0 if database == ":memory:" else size

    def take(self) -> None:
        """Allocate the reserve; raises OSError if the disk is full, UnsafeFile for a link in its place."""
        if not self.bytes:
            return
        file = make_plain(self._path)
        try:
            os.posix_fallocate(file, 0, self.bytes)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def give_up(self) -> None:
        """Free the reserve; raises UnsafeFile for a link in its place."""
        if self.bytes:
            remove_plain(self._path)


# Ownership of a database by one server: a lock on a file next to it and one on the database itself.
#
# The lock file names the owner. The lock on the database also holds if the database has another name, or if
# the lock file is removed. It is an flock, which does not affect SQLite's locks. But closing any descriptor
# of the database drops all of SQLite's locks in this process. So the lock's descriptor is opened before
# SQLite opens the database and closed after SQLite has closed it, nothing else in the process opens the
# database, and child processes are started by exec, which closes the descriptor.


log = logging.getLogger(__name__)


class Owned(RuntimeError):
    """Another server owns the database; the message names it."""


class Lost(RuntimeError):
    """The database or its log is missing or truncated; the message says which, and what to do."""


class DatabaseLock:
    """The lock on one database, held until ``release`` or the end of the process."""

    def __init__(self, database: Path, *, accept_loss: bool = False, replaces: bool = False) -> None:
        """Prepare to lock ``database``, a path without links.

        With ``accept_loss``, missing files are only logged. With ``replaces``, missing files are not looked
        for, since the caller is going to replace the database.
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

        Raises Owned if another process has the lock, Lost if a file of the database is missing, UnsafeFile
        for a link or a file of another user.
        """
        check_owner(self._database)
        file = open_plain(self._path)
        held: int | None = None
        try:
            self._lock(file, _owner(file))
            self._check_loss(file)
            held = _open_ours(self._database)
            self._lock(held, "another server, under another name or with its lock file removed")
            occupy_names(self._database)
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

    def describe(self, owner: str) -> None:
        """Write the owner of the database to the lock file."""
        assert self._file is not None
        self._described = True
        self._write(self._file, owner)

    def _write(self, file: int, text: str) -> None:
        line = f"{text}\n".encode()
        os.pwrite(file, line, 0)  # before truncating: on a full disk, freed space may be gone
        os.ftruncate(file, len(line))
        os.fsync(file)

    def release(self) -> None:
        """Release the lock after the database is closed.

        The lock file is not removed: otherwise two servers could lock two files of that name.
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
            _remove_journal(self._database)


def lock_path(database: Path) -> Path:
    """Return the path of the lock file of a database."""
    return database.with_name(f"{database.name}-lock")


def _words(file: int) -> str:
    # Maximum bytes read of the description of an owner: a sentence with its addresses.
    return os.pread(file, 1_000, 0).decode(errors="replace").partition("\n")[0].strip()


def _owner(file: int) -> str:
    owner = _words(file)
    return "another server" if owner in _WITHOUT_OWNER else owner


def owner_of(database: Path) -> str | None:
    """Return the owner of a database as described in the lock file, or None.

    Must not be called in a process that has the database open. Raises OSError if a file cannot be read.
    """
    database = database.resolve()
    for path in (lock_path(database), database):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another server" if path == database else _owner(file)
        finally:
            os.close(file)
    return None


# Detects when the files of an open database are removed or replaced.
#
# SQLite keeps writing to deleted files, and that data would be lost. Only paths are checked: opening and
# closing a file of SQLite would drop SQLite's own locks.


POLL_S = 1.0
"""Seconds between two checks of all files; database and log are also checked after each sync."""


_libc = ctypes.PyDLL(None, use_errno=True)  # holds the GIL: the call is short
_AT_FDCWD, _STATX_INO, _STATX_SIZE = -100, 0x100, 0x200
_statx = getattr(_libc, "statx", None)
"""The function of the C library, or None before glibc 2.28 and musl 1.2.4 and on systems other than Linux."""
_Statx = ctypes.c_char * 256
_ino_and_size_of = Struct("=32xQQ").unpack_from
_device_of = Struct("=136xII").unpack_from


class FileGone(StoreBroken):
    """A file of the database was removed or replaced; the message says what to do."""

    def __init__(self, message: str, *, only_log: bool) -> None:
        """Hold the message; ``only_log``: only the log was removed."""
        super().__init__(message)
        self.only_log = only_log


class FileWatch:
    """Checks that the files of a database, which SQLite has open in write-ahead mode, stay in place."""

    def __init__(self, database: str) -> None:
        """Record the identities of the files."""
        self._database = database
        self._log = f"{database}-wal"
        self._log_bytes = os.fsencode(self._log)
        self._lock = str(lock_path(Path(database)))
        self._others = {
            path: _identity(Path(path).stat())
            for path in (f"{database}-shm", self._lock)
            if Path(path).exists()
        }
        self._seen = _identity(Path(database).stat())
        self._log_seen, _ = _identity_and_size(self._log, self._log_bytes)
        self._written_ns = 0
        self.look()

    def look(self) -> None:
        """Check all files; raises FileGone."""
        self.check_after_sync()
        for path, identity in self._others.items():
            try:
                found = _identity(Path(path).stat())
            except FileNotFoundError:
                raise self._removed(path) from None
            if found != identity:
                raise self._replaced(path)

    def check_after_sync(self) -> None:
        """Check database and log after a sync; raises FileGone."""
        try:
            found = os.stat(self._database)  # noqa: PTH116 - runs after each sync, and is twice as fast
            beside, beside_size = _identity_and_size(self._log, self._log_bytes)
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


def _identity_and_size(path: str, encoded: bytes) -> tuple[tuple[int, ...], int]:
    """Return device, inode and size of a file; ``encoded`` is its ``path`` as bytes. Raises OSError.

    It does not read the modification time. With multigrain timestamps (Linux 6.13) reading it makes the next
    write store a fine-grained time, and each sync then also writes the inode: 40 us more.
    """
    if _statx is None:
        plain = os.stat(path)  # noqa: PTH116
        return _identity(plain), plain.st_size
    found = _Statx()
    if _statx(_AT_FDCWD, encoded, 0, _STATX_INO | _STATX_SIZE, found):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    inode, size = _ino_and_size_of(found)
    return (*_device_of(found), inode), size


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
