"""The idle connections of one client, blocking or not.

A forked process makes its own connections: on a shared one, either process might read the other's answers.
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from bedrockjobs.client.address import AnyAddress

IDLE_MAX = 32
"""Max idle connections; excess ones are closed after their call."""


class Connection(Protocol):
    """A connection, as the pool sees it."""

    @property
    def address(self) -> AnyAddress:
        """Return the address of the server."""

    @property
    def fresh(self) -> bool:
        """Return whether it can take another request."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Connection)


class Pool(Generic[C]):
    """The connections that no call uses. Thread-safe."""

    def __init__(self) -> None:
        """Create an empty pool."""
        self.closed = threading.Event()
        """Set once the client is closed; interrupts pauses between attempts."""
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._left: list[C] = []
        """Connections of the parent process: kept alive, since closing one may affect the parent."""

    def forget(self) -> None:
        """Reset the pool in a forked process; another thread may have held the lock."""
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
        """Return the most recently used idle connection to an address, or None.

        Closes stale connections and those to other addresses. Raises RuntimeError if the client is closed.
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
        """Keep a connection for the next call, or close it if it is not reusable or the pool is full."""
        with self._lock:
            if reusable and not self.closed.is_set() and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections, including those returned later."""
        self.closed.set()
        self.drop()
