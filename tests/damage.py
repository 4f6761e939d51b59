"""Damage a database file as a bad disk or a faulty program would."""

from __future__ import annotations

from pathlib import Path

PAGE = 4_096


def spoil(database: Path) -> None:
    """Overwrite half of the pages, except the first ones, which every start reads."""
    pages = database.stat().st_size // PAGE
    assert pages > 200, "too small to tell where it will be read"
    with database.open("r+b") as file:
        for page in range(pages // 4, 3 * pages // 4):
            file.seek(page * PAGE)
            file.write(b"\xa5" * PAGE)


def spoil_head(database: Path) -> None:
    """Overwrite the header that identifies the file as a database."""
    with database.open("r+b") as file:
        file.write(b"\xa5" * 100)
