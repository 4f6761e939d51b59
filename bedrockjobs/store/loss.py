"""Whether something of a database is missing that its last server left: asked before SQLite opens it.

SQLite would make a new database in place of one that is gone, and forget a log that is gone, in silence.
"""

from __future__ import annotations

from pathlib import Path

STOPPED = "nobody: the last one stopped well"
"""What the lock file says of its last owner where that one closed the database."""

REMEDY = "Put back what is missing, or a backup; --accept-loss starts with what is there."


def loss_of(database: Path, last: str, touched_ns: int) -> str | None:
    """Return what is missing, in sentences; None where nothing is known to be.

    ``last`` is what the lock file says of its last owner, empty where it says nothing. ``touched_ns`` is when
    the server last wrote to the database itself: if somebody did so later, it was another program that
    copied the log into it and removed it, as SQLite does where it closes a database.
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
