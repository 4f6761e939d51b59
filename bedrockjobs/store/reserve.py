"""Room on the disk that is kept in reserve beside a database, so that runs can be ended on a full one."""

from __future__ import annotations

import os
from pathlib import Path

from bedrockjobs.store.plain_file import make_plain, remove_plain


class Reserve:
    """One file, ``…-ballast``, that stands for the room; none where it has no size."""

    def __init__(self, database: str, size: int) -> None:
        """Prepare to keep ``size`` bytes beside ``database``."""
        self._path = Path(f"{database}-ballast")
        self.bytes = 0 if database == ":memory:" else size

    def take(self) -> None:
        """Take the room; raises OSError where there is none, PlantedFile for a link in its place."""
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
        """Give the room back; raises PlantedFile for a link in its place."""
        if self.bytes:
            remove_plain(self._path)
