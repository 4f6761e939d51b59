"""Whether a file was replaced since the worker began (``--version-watch``).

It is asked now and then, and neither starts, waits for nor stops anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

Mark = tuple[int, int, int]
"""What tells cheaply that a file may have changed: inode, size and time of change in ns."""


class FileWatch:
    """Whether a file's content is another than at the start. Touching or copying it anew is no change."""

    def __init__(self, mark: Callable[[], Mark | None], digest: Callable[[], bytes | None]) -> None:
        """Watch through two readings, None where there is no file; ``digest`` is read only on a new mark."""
        self._read_mark, self._read_digest = mark, digest
        self._mark, self._digest = mark(), digest()
        self._changed = False

    @classmethod
    def of(cls, path: Path) -> FileWatch:
        """Watch a file; a link is followed each time, so that one that is turned to a new release counts."""
        return cls(lambda: mark_of(path), lambda: digest_of(path))

    def changed(self) -> bool:
        """Tell whether it changed; once it has, it stays so. A file that is gone is not changed yet."""
        mark = None if self._changed else self._read_mark()
        if mark is not None and mark != self._mark:
            digest = self._read_digest()
            if digest is not None:
                self._changed = digest != self._digest
                self._mark = mark
        return self._changed


def mark_of(path: Path) -> Mark | None:
    """Return a file's mark, None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def digest_of(path: Path) -> bytes | None:
    """Return the SHA-256 of a file, None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
