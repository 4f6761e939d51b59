"""The mark on a queue that was moved to another database: a server of it refuses to start.

Two servers that go on from the same jobs would do each of them twice.
"""

from __future__ import annotations

import sqlite3

MARK = "movedTo"
"""The row of ``meta`` that says where the queue was moved to."""


class MoveError(RuntimeError):
    """A queue cannot be moved, or not as asked; the message is a sentence for whoever asked."""


class BadName(MoveError):
    """A database is named in a way that it cannot be; the message says what was expected."""


def refusal(place: str) -> str:
    """Return why a queue is not served that was moved to ``place``, and what to do."""
    return (
        f"The queue was moved to {place}; serve it there. If that did not come to its end, or was taken back,"
        " `bedrockjobs move --undo` lets this one be served again."
    )


def mark_of(connection: sqlite3.Connection) -> str:
    """Return where the queue in a SQLite file was moved to; empty where it was not."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (MARK,)).fetchone()
    return str(found[0]) if found else ""


def put_mark(connection: sqlite3.Connection, place: str) -> None:
    """Note in the open transaction that the queue was moved to ``place``."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (MARK, place))


def take_mark(connection: sqlite3.Connection) -> None:
    """Note, in the open transaction or in one of its own, that the queue is where it was."""
    connection.execute("DELETE FROM meta WHERE key = ?", (MARK,))
