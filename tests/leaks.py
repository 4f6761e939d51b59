"""Report resources that a test leaves open in that test, and release them before the next one.

Without this, Python warns when it collects the resource, which may be during another test.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import warnings
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from psycopg import AsyncConnection, Connection

from bedrockjobs.store.postgresql.session import CONNECTING
from tests.postgresql.cluster import CLUSTER

DEADLINE_S = 30
"""Time in which a thread has connected."""

FRAMES = 12
"""Innermost calls that are shown of where a connection was opened."""

AnyConnection = Connection[Any] | AsyncConnection[Any]

_opened: WeakKeyDictionary[AnyConnection, str] = WeakKeyDictionary()
_failed = pytest.StashKey[bool]()


def _watch(kind: type[AnyConnection]) -> None:
    connect = kind.__init__

    def noted(self: AnyConnection, *given: Any, **named: Any) -> None:
        connect(self, *given, **named)
        _opened[self] = "".join(traceback.format_stack(limit=FRAMES))

    kind.__init__ = noted  # type: ignore[method-assign, assignment]


_watch(Connection)
_watch(AsyncConnection)


def connections() -> dict[AnyConnection, str]:
    """Return the connections to PostgreSQL that are open, each with where it was opened.

    A thread that connects for a session that has ended closes its connection.
    """
    for thread in threading.enumerate():
        if thread.name == CONNECTING:
            thread.join(DEADLINE_S)
    return {
        each: where for each, where in list(_opened.items()) if not each.closed and not CLUSTER.owns(each)
    }


def close(connection: AnyConnection) -> None:
    """Close a connection of either kind, also outside of its event loop."""
    if isinstance(connection, Connection):
        connection.close()
    else:
        connection.pgconn.finish()


def has_failed(item: pytest.Item) -> bool:
    """Return whether any phase of a test has failed so far."""
    return item.stash.get(_failed, False)


def note(item: pytest.Item, report: pytest.TestReport) -> None:
    """Record that a test has failed."""
    item.stash[_failed] = has_failed(item) or report.failed


def let_go() -> None:
    """Drop, without a warning, what the traceback of a failed test keeps alive."""
    traceback.clear_frames(getattr(sys, "last_traceback", None))
    sys.last_type = sys.last_value = sys.last_traceback = None  # type: ignore[assignment]
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
    finally:
        sys.unraisablehook = hook
