"""Reserved disk space next to a database, so that runs can end on a full disk."""

from __future__ import annotations

import os
from pathlib import Path

from bedrockjobs.store.plain_file import make_plain, remove_plain


class Reserve:
    """The disk reserve: one file, ``…-ballast``, or none if its size is 0."""

    def __init__(self, database: str, size: int) -> None:
        """Prepare to reserve ``size`` bytes next to ``database``."""
        self._path = Path(f"{database}-ballast")
        self.bytes = 0 if database == ":memory:" else size

    def take(self) -> None:
        """Allocate the reserve; raises OSError if the disk is full, PlantedFile for a link in its place."""
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
        """Free the reserve; raises PlantedFile for a link in its place."""
        if self.bytes:
            remove_plain(self._path)
