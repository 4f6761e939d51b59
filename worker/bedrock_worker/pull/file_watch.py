"""Detects whether a file was replaced since the worker started (``--version-watch``), by polling."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

FileState = tuple[int, int, int]
"""Inode, size and ctime in ns: a cheap sign that a file may have changed."""


class FileWatch:
    """Detects changed content; touching a file or copying the same content is no change."""

    def __init__(self, mark: Callable[[], FileState | None], digest: Callable[[], bytes | None]) -> None:
        """Create a watch from two functions that return None for a missing file.

        ``digest`` is called only if ``mark`` changed.
        """
        self._read_mark, self._read_digest = mark, digest
        self._mark, self._digest = mark(), digest()
        self._changed = False

    @classmethod
    def of(cls, path: Path) -> FileWatch:
        """Watch a file; symbolic links are followed on every check."""
        return cls(lambda: mark_of(path), lambda: digest_of(path))

    def changed(self) -> bool:
        """Return whether the file has changed; stays True. A missing file does not count as changed."""
        mark = None if self._changed else self._read_mark()
        if mark is not None and mark != self._mark:
            digest = self._read_digest()
            if digest is not None:
                self._changed = digest != self._digest
                self._mark = mark
        return self._changed


def mark_of(path: Path) -> FileState | None:
    """Return a file's mark, or None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def digest_of(path: Path) -> bytes | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
