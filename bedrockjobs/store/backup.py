"""Copies a database that may be in use into one new file: whole, checked, and there or not there.

It reads one snapshot through SQLite's backup API; the server goes on meanwhile. It knows no command line.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS, rest
from bedrockjobs.store.schema import version_of

PAGES_PER_STEP = 32
"""
Pages copied between two syncs and reports of progress: 128 KiB.

What waits to be written is what the commits of a server on the same disk wait for.
"""

COMPANIONS = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database; a copy must never be taken for the file they belong to."""

Progress = Callable[[int, int], None]
"""Told the pages copied and the pages in all."""


class CopyError(RuntimeError):
    """The copy was not made; the message is a sentence for whoever asked for it."""


class Copy(NamedTuple):
    """What was written."""

    size: int
    jobs: int


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a database that must not change; raises CopyError where there is none."""
    if not path.is_file():
        raise CopyError(f"there is no database {path}")
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)


def copy_database(source: Path, target: Path, *, overwrite: bool, progress: Progress | None = None) -> Copy:
    """Copy ``source`` to ``target`` (mode 0600), which appears only when the copy is whole and sound.

    Raises CopyError where the target is in the way or the copy is damaged, sqlite3.Error and OSError where
    a file cannot be read or written.
    """
    with draft_of(target, overwrite=overwrite, source=source) as draft:
        copy_snapshot(source, draft, progress)
        return checked(draft)


@contextmanager
def draft_of(target: Path, *, overwrite: bool, source: Path | None = None) -> Iterator[Path]:
    """Context an empty file beside ``target`` (mode 0600), which takes its place if all goes well.

    Raises CopyError where the target is in the way, or is ``source``; OSError where it cannot be written.
    """
    _check_target(target, overwrite, source)
    with empty_beside(target) as draft:
        yield draft
        sync(draft)
        _check_target(target, overwrite, source)
        draft.replace(target)
        sync(target.parent)


@contextmanager
def empty_beside(target: Path) -> Iterator[Path]:
    """Context an empty file beside ``target`` (mode 0600), which is gone afterwards unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
    finally:
        for suffix in ("", *COMPANIONS):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _check_target(target: Path, overwrite: bool, source: Path | None) -> None:
    if not target.parent.is_dir():
        raise CopyError(f"there is no folder {target.parent}")
    if target.exists():
        if not target.is_file():
            raise CopyError(f"{target} is not a file")
        if source is not None and source.exists() and target.samefile(source):
            raise CopyError(f"{target} is the database itself")
        if not overwrite:
            raise CopyError(f"{target} exists; --force replaces it")
    for suffix in COMPANIONS:
        # SQLite would take a log left by another database for this copy's own and play it into the copy.
        if Path(f"{target}{suffix}").exists():
            raise CopyError(f"{target}{suffix} exists: {target} is a database in use, or was not closed")


def copy_snapshot(source: Path, draft: Path, progress: Progress | None = None) -> None:
    """Copy one snapshot of a database into an empty file; raises CopyError where it is not one of ours."""

    def report(_: int, remaining: int, total: int) -> None:
        os.fdatasync(file.fileno())
        if progress is not None:
            progress(total - remaining, total)

    with (
        closing(open_read_only(source)) as live,
        closing(sqlite3.connect(draft)) as copy,
        draft.open() as file,
    ):
        for pragma in ("synchronous = OFF", "journal_mode = OFF"):  # a draft that is not whole is removed
            copy.execute(f"PRAGMA {pragma}")
        # One snapshot for all steps: without it each commit of the server would start the copy anew.
        live.execute("BEGIN")
        if version_of(live) == 0:
            raise CopyError(f"{source} is not a database of bedrockjobs")
        live.backup(copy, pages=PAGES_PER_STEP, progress=report)
        live.execute("ROLLBACK")


def checked(draft: Path) -> Copy:
    """Check a file that is to be a database, with its indexes; raises CopyError where it is damaged."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.set_progress_handler(rest, STEPS_BETWEEN_RESTS)
        faults = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(5)")]
        if faults != ["ok"]:
            raise CopyError(f"the copy is damaged: {'; '.join(faults)}")
        jobs = int(copy.execute("SELECT count(*) FROM jobs").fetchone()[0])
    return Copy(draft.stat().st_size, jobs)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
