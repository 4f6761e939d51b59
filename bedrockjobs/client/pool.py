"""The idle connections of one client, for threads and for asyncio alike. No I/O of its own, no clock.

A process that was forked makes connections of its own: on one that two processes use, each may read the
answer that was meant for the other.
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from bedrockjobs.client.address import AnyAddress

IDLE_MAX = 32
"""Idle connections that are kept; one more is closed when its call is over."""


class Connection(Protocol):
    """What the pool must know of a connection."""

    @property
    def address(self) -> AnyAddress:
        """Return where it leads."""

    @property
    def fresh(self) -> bool:
        """Tell whether it can take another request."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Connection)


class Pool(Generic[C]):
    """Connections that no call uses at the moment. Safe to share between threads."""

    def __init__(self) -> None:
        """Begin empty."""
        self.closed = threading.Event()
        """Set once the client is closed; who pauses between two tries may wait for it."""
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._left: list[C] = []
        """Connections of the process that we were forked from: kept, as to close one may reach into that."""

    def forget(self) -> None:
        """Begin empty in a process that was just forked; another thread may have held the lock."""
        self._left += self._idle
        self._idle, self._lock = [], threading.Lock()
        was_closed, self.closed = self.closed.is_set(), threading.Event()
        if was_closed:
            self.closed.set()

    def drop(self) -> None:
        """Close the idle connections; the pool stays open."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def take(self, address: AnyAddress) -> C | None:
        """Return the connection to an address that was used last, None where one is to be made.

        Closes those on the way that lead elsewhere or have ended. Raises RuntimeError for a closed client.
        """
        while True:
            with self._lock:
                if self.closed.is_set():
                    raise RuntimeError("the client is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None or (connection.address == address and connection.fresh):
                return connection
            connection.close()

    def give_back(self, connection: C, *, reusable: bool) -> None:
        """Keep a connection for the next call; close it where it is not reusable or one too many."""
        with self._lock:
            if reusable and not self.closed.is_set() and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all of them, and each that is given back after this."""
        self.closed.set()
        self.drop()
