"""Detects missing files of a database before SQLite opens it.

SQLite would silently create a new database in place of a missing one, and ignore a missing log.
"""

from __future__ import annotations

from pathlib import Path

STOPPED = "nobody: the last one stopped well"
"""Content of the lock file after a clean shutdown."""

REMEDY = "Put back what is missing, or a backup; --accept-loss starts with what is there."


def loss_of(database: Path, last: str, touched_ns: int) -> str | None:
    """Describe missing files, or return None.

    ``last`` is the last owner in the lock file, or empty. ``touched_ns`` is when the server last wrote to the
    database itself: after a later write, another program has checkpointed and removed the log, as SQLite does
    when it closes a database.
    """
    log_bytes = _size(Path(f"{database}-wal"))
    died = last not in ("", STOPPED)
    who = f" It was last used by {last}, which did not stop well." if died else ""
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
            f" Nobody wrote to the database since. {REMEDY}"
        )
    return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
