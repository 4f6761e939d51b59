"""Limits, deadlines, memory budget and shutdown shared by all connections of a server.

A sweep every half second closes connections whose deadline has passed. Each connection has one deadline,
possibly ``NEVER``. Most requests move it twice, so moving it is a plain assignment.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import (
    ADDRESSES_TRACKED_MAX,
    CONNECTION_BYTES_FREE,
    MEMORY_COUNTED_LEAST_BYTES,
    MEMORY_RESERVE_BYTES,
    TRIM_BYTES,
)
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.principal import TokenShares, net_of, token_share
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol.raw import RequestCache
from bedrockjobs.service import Service

# One memory budget for requests being received, requests in progress and unread replies.
#
# Small amounts per connection are not counted. If the budget is used up, connections with unread replies are
# closed, largest first; if that does not free enough, the new request is refused. If clients need tokens,
# each token has a share, and all clients that have not sent a token yet have one share together.


def full() -> Unavailable:
    """Return the refusal for requests that do not fit into the memory budget."""
    return Unavailable("Too much is under way", "the server's memory for requests is used up; try again soon")


class Holder(Protocol):
    """A connection that the memory budget can close."""

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of unread replies; a partially sent reply counts whole."""

    def shed(self) -> None:
        """Abort the connection to free its memory."""


class MemoryBudget:
    """The memory that the connections of one server may hold."""

    def __init__(
        self,
        bytes_max: int,
        token_of: Callable[[Any], str] = lambda holder: "",
        needs_token: Callable[[], bool] = lambda: False,
    ) -> None:
        """Limit the growth of the process to ``bytes_max``, less a reserve for what is not counted.

        ``token_of`` returns the token of a connection, empty if it is unknown.
        """
        self._token_of, self._needs_token = token_of, needs_token
        self._bytes_max = max(bytes_max - MEMORY_RESERVE_BYTES, min(bytes_max, MEMORY_COUNTED_LEAST_BYTES))
        self._held: dict[Holder, tuple[int, str]] = {}
        """By connection, the bytes that it holds, and the token against whose share these count."""
        self._used = 0
        self._used_by: Counter[str] = Counter()
        self._most = 0
        self._shed = 0

    @property
    def used(self) -> int:
        """Return the bytes held at present."""
        return self._used

    def borrow(self, size: int, token: str = "") -> bool:
        """Reserve bytes for a request in progress until ``give_back``; return False if they do not fit."""
        if size <= CONNECTION_BYTES_FREE:
            return True
        if not self._made_room(size, token):
            return False
        self._add(size, token)
        return True

    def give_back(self, size: int, token: str = "") -> None:
        """Release bytes that were reserved by ``borrow``."""
        if size > CONNECTION_BYTES_FREE:
            self._add(-size, token)

    def hold(self, holder: Holder, size: int) -> bool:
        """Set the bytes that a connection holds; return False if the caller must close the connection."""
        before, token_before = self._held.get(holder, (0, ""))
        if size <= CONNECTION_BYTES_FREE:
            size = 0
        if size == before:
            return True
        token = self._token_of(holder)
        if size:
            self._held[holder] = size, token
        else:
            del self._held[holder]
        self._add(-before, token_before)
        self._add(size, token)
        return size < before or self._made_room(0, token)

    def _add(self, size: int, token: str) -> None:
        self._used += size
        self._used_by[token] += size
        if not self._used_by[token]:
            del self._used_by[token]
        self._most = max(self._most, self._used)

    def _fits(self, size: int, token: str) -> bool:
        return self._used + size <= self._bytes_max and self._within_share(size, token)

    def _within_share(self, size: int, token: str) -> bool:
        return self._used_by[token] + size <= token_share(self._bytes_max) or not self._needs_token()

    def _made_room(self, size: int, token: str) -> bool:
        """Close connections with unread replies until ``size`` more bytes fit; return whether they do.

        If the token would exceed its share, only connections of this token are closed.
        """
        if self._fits(size, token):
            return True
        own = not self._within_share(size, token)
        slow = sorted(
            (holder for holder, (_, by) in self._held.items() if by == token or not own),
            key=lambda holder: holder.unread_bytes,
        )
        while not self._fits(size, token) and slow and slow[-1].unread_bytes:
            holder = slow.pop()
            held, by = self._held.pop(holder, (0, ""))
            self._add(-held, by)
            self._shed += held
            holder.shed()
        return self._fits(size, token)

    def trim(self) -> None:
        """Collect cyclic garbage of closed connections and return free memory to the system.

        Called with every sweep; it acts only after a burst of large requests or closed connections.
        """
        over = self._most > TRIM_BYTES and self._used < self._most // 4
        if over or self._shed > TRIM_BYTES:
            self._most, self._shed = self._used, 0
            gc.collect()
            _return_to_system()


def keep_large_apart() -> None:
    """Make glibc, if it is used, allocate large blocks by mmap, so that it can return them to the system."""
    allocator = _allocator()
    if allocator is not None:
        # From this size on, memory is mapped separately and returned as soon as it is freed: large requests
        # and replies would otherwise leave holes that small objects cannot fill
        allocator.mallopt(-3, 1024 * 1024)  # M_MMAP_THRESHOLD in glibc's malloc.h


def _return_to_system() -> None:
    allocator = _allocator()
    if allocator is not None:
        allocator.malloc_trim(0)


def _allocator() -> ctypes.CDLL | None:
    """Return glibc, or None for other C libraries."""
    allocator = ctypes.CDLL(None)
    return allocator if hasattr(allocator, "malloc_trim") and hasattr(allocator, "mallopt") else None


SWEEP_S = 0.5
"""Seconds between sweeps: a slow client is closed at most this late."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1", ""})
"""Addresses exempt from the limits per address; an empty address is the unix socket."""


NEVER = float("inf")
"""The deadline of a connection from which nothing is expected."""


T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which addresses or networks take turns, so that a flood delays only its sender."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def put(self, place: str, item: T) -> None:
        """Add an item of an address or network."""
        self._of.setdefault(place, deque()).append(item)
        self._count += 1

    def some(self, most: int) -> list[T]:
        """Remove and return the next items, at most ``most``."""
        items: list[T] = []
        while self._of and len(items) < most:
            place, waiting = self._of.popitem(last=False)
            if waiting:
                items.append(waiting.popleft())
                self._count -= 1
            if waiting:
                self._of[place] = waiting
        return items


class Connection(Protocol):
    """An open connection, raw or HTTP."""

    deadline: float
    """When ``expire`` is called, in monotonic seconds."""

    def expire(self) -> None:
        """Close the connection because its deadline has passed."""

    def finish(self) -> None:
        """Close the connection after all pending replies are written."""

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of replies that the client has not read."""

    def shed(self) -> None:
        """Abort the connection to free its memory."""


class Connections:
    """The open connections of a server."""

    def __init__(self, service: Service, clock: Clock, settings: Settings) -> None:
        """Manage connections to ``service``."""
        self.service = service
        self.clock = clock
        self.settings = settings
        self.requests = RequestCache()
        """Cache of parsed raw requests."""
        self.memory = MemoryBudget(
            settings.memory_bytes,
            lambda connection: self._token_of.get(connection, ""),
            lambda: service.access.on,
        )
        """The memory budget of all connections."""
        self.open: dict[Connection, None] = {}
        """All connections, in the order in which they were opened."""
        self._addresses: Counter[str] = Counter()
        self._arrivals: dict[str, tuple[float, float]] = {}
        """Per network, how many new connections may still arrive, and when that number was computed."""
        self._shares = TokenShares("Too many connections")
        self._token_of: dict[Connection, str] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._ended: asyncio.Event | None = None

    def arrives(self, address: str) -> bool:
        """Count a new connection of an address; return False if its rate is too high.

        This bounds the work for clients that open connections without pause.
        """
        if address in LOOPBACK:
            return True
        settings, now, place = self.settings, self.clock.monotonic(), net_of(address)
        most = settings.connections_per_address_max
        left, since = self._arrivals.pop(place, (float(most), now))
        left = min(most, left + (now - since) * settings.new_connections_per_address_max)
        if len(self._arrivals) >= ADDRESSES_TRACKED_MAX:
            del self._arrivals[next(iter(self._arrivals))]
        self._arrivals[place] = max(left - 1, 0.0), now
        return left >= 1

    def belongs(self, connection: Connection, token: str) -> None:
        """Record the token of a connection; raises TooMany if the token has too many connections already."""
        before = self._token_of.get(connection, "")
        if token == before or connection not in self.open:
            return
        self._shares.check(token, self.settings.connections_max)
        self._forget_token(connection)
        if token:
            self._shares.add(token)
            self._token_of[connection] = token

    def _forget_token(self, connection: Connection) -> None:
        token = self._token_of.pop(connection, "")
        if token:
            self._shares.remove(token)

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a new connection; return False if it exceeds a limit and the caller must close it."""
        if len(self.open) >= self.settings.connections_max or self.service.draining:
            return False
        if address not in LOOPBACK:
            place = net_of(address)
            if self._addresses[place] >= self.settings.connections_per_address_max:
                return False
            self._addresses[place] += 1
        self.open[connection] = None
        self.service.connections += 1
        return True

    def dismiss(self, connection: Connection, address: str) -> None:
        """Remove a connection that ``admit`` counted."""
        self.open.pop(connection, None)
        self.memory.hold(connection, 0)
        if self._token_of:
            self._forget_token(connection)
        self.service.connections -= 1
        if not self.open and self._ended is not None:
            self._ended.set()
        if address not in LOOPBACK:
            place = net_of(address)
            self._addresses[place] -= 1
            if not self._addresses[place]:
                del self._addresses[place]

    def expect(self, connection: Connection, seconds: float) -> None:
        """Set or replace the deadline of a connection: ``expire`` is called after ``seconds``."""
        connection.deadline = self.clock.monotonic() + seconds
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._check_deadlines)

    def expect_nothing(self, connection: Connection) -> None:
        """Remove the deadline of a connection."""
        connection.deadline = NEVER

    def _check_deadlines(self) -> None:
        now = self.clock.monotonic()
        for connection in [each for each in self.open if each.deadline <= now]:
            connection.deadline = NEVER
            connection.expire()
        self.memory.trim()
        self._sweep = None
        if self.open:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._check_deadlines)

    async def close(self, *, at_once: bool = False) -> None:
        """Close all connections, each after its pending replies unless ``at_once``.

        When this method returns, each connection has told the service which replies were not sent.
        """
        for connection in list(self.open):
            connection.finish()
        self._ended = asyncio.Event()
        if self.open and not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self.settings.drain_s)
        for connection in list(self.open):
            connection.expire()
        if self.open:
            with suppress(TimeoutError):
                # Aborted connections end within milliseconds.
                await asyncio.wait_for(self._ended.wait(), 1.0)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
