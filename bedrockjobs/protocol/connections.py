"""What all connections of a server share: their limits, their deadlines, and their end.

A sweep each half second closes the connections whose deadline has passed; each has at most one deadline.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections import Counter
from contextlib import suppress
from typing import Protocol

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import (
    ARRIVALS_REMEMBERED_MAX,
    CONNECTION_BYTES_FREE,
    LARGE_BYTES,
    MEMORY_COUNTED_LEAST_BYTES,
    MEMORY_RESERVE_BYTES,
    TOKEN_SHARE,
    TRIM_BYTES,
)
from bedrockjobs.base.errors import TooMany, Unavailable
from bedrockjobs.base.principal import net_of
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol.raw import RequestCache
from bedrockjobs.service import Service

# One budget of memory for all that clients send and do not read: heads, bodies, and answers under way.
#
# A connection may hold a little without being counted. Where the budget is used up, the connections of
# those who do not read their answers are closed, the one that holds the most first; if that gives no room,
# whoever wants more is refused.


_MMAP_THRESHOLD = -3
"""What glibc's malloc.h calls M_MMAP_THRESHOLD."""


def full() -> Unavailable:
    """Return the refusal of what would need more memory than there is."""
    return Unavailable("Too much is under way", "the server's memory for requests is used up; try again soon")


class Holder(Protocol):
    """A connection."""

    @property
    def unread_bytes(self) -> int:
        """Return the size of the answers that its client leaves unread: one sent in part is kept whole."""
        ...

    def shed(self) -> None:
        """Close at once: others need the memory."""
        ...


class MemoryBudget:
    """The bytes that the connections of one server hold."""

    def __init__(self, bytes_max: int) -> None:
        """Let the memory of the process grow by so many; the part that is counted is smaller."""
        self._bytes_max = max(bytes_max - MEMORY_RESERVE_BYTES, min(bytes_max, MEMORY_COUNTED_LEAST_BYTES))
        self._held: dict[Holder, int] = {}
        self._used = 0
        self._most = 0
        self._shed = 0

    @property
    def used(self) -> int:
        """Return how many bytes are held."""
        return self._used

    def borrow(self, size: int) -> bool:
        """Count bytes of a request under way, until ``give_back``; return False where they are too many."""
        if size <= CONNECTION_BYTES_FREE:
            return True
        if self._used + size > self._bytes_max and not self._made_room(size):
            return False
        self._add(size)
        return True

    def give_back(self, size: int) -> None:
        """Count bytes no longer that were borrowed."""
        if size > CONNECTION_BYTES_FREE:
            self._used -= size

    def hold(self, holder: Holder, size: int) -> bool:
        """Note how many bytes a connection holds now; return False where it may not, and is to be closed."""
        before = self._held.get(holder, 0)
        if size <= CONNECTION_BYTES_FREE:
            size = 0
        if size == before:
            return True
        if size:
            self._held[holder] = size
        else:
            del self._held[holder]
        self._add(size - before)
        return size < before or self._used <= self._bytes_max or self._made_room(0)

    def _add(self, size: int) -> None:
        self._used += size
        self._most = max(self._most, self._used)

    def _made_room(self, size: int) -> bool:
        """Close those who do not read until there is room for ``size`` more; return whether there is."""
        slow = sorted(self._held, key=lambda holder: holder.unread_bytes)
        while self._used + size > self._bytes_max and slow and slow[-1].unread_bytes:
            holder = slow.pop()
            held = self._held.pop(holder, 0)
            self._used -= held
            self._shed += held
            holder.shed()
        return self._used + size <= self._bytes_max

    def trim(self) -> None:
        """Free what closed connections leave behind in circles, and give it back to the system.

        To be called twice a second: it does something in a storm, and once it is over.
        """
        over = self._most > TRIM_BYTES and self._used < self._most // 4
        if over or self._shed > TRIM_BYTES:
            self._most, self._shed = self._used, 0
            gc.collect()
            _return_to_system()


def keep_large_apart() -> None:
    """Let the system give large pieces of memory out one by one; without glibc this does nothing."""
    allocator = _allocator()
    if allocator is not None:
        allocator.mallopt(_MMAP_THRESHOLD, LARGE_BYTES)


def _return_to_system() -> None:
    allocator = _allocator()
    if allocator is not None:
        allocator.malloc_trim(0)


def _allocator() -> ctypes.CDLL | None:
    """Return glibc; others keep what they like."""
    allocator = ctypes.CDLL(None)
    return allocator if hasattr(allocator, "malloc_trim") and hasattr(allocator, "mallopt") else None


SWEEP_S = 0.5
"""Time between two looks at the deadlines: how late a slow client is closed."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1", ""})
"""Addresses without a limit of their own; the empty one is a unix socket's."""


class Connection(Protocol):
    """One open connection of either protocol."""

    deadline: float

    def expire(self) -> None:
        """Close the connection: its client was too slow."""
        ...

    def finish(self) -> None:
        """Close the connection once what it has been promised is written."""
        ...

    @property
    def unread_bytes(self) -> int:
        """Return the size of the answers that its client leaves unread."""
        ...

    def shed(self) -> None:
        """Close at once: others need the memory."""
        ...


class Connections:
    """The open connections of a server."""

    def __init__(self, service: Service, clock: Clock, settings: Settings) -> None:
        """Count and time connections to ``service``."""
        self.service = service
        self.clock = clock
        self.settings = settings
        self.requests = RequestCache()
        """The raw requests that clients repeat, with the commands they were read as."""
        self.memory = MemoryBudget(settings.memory_bytes)
        """What they hold together."""
        self.open: set[Connection] = set()
        self._timed: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._arrivals: dict[str, tuple[float, float]] = {}
        """How many connections may come at once from an address, and since when that is so."""
        self._tokens: Counter[str] = Counter()
        self._token_of: dict[Connection, str] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._ended: asyncio.Event | None = None

    def arrives(self, address: str) -> bool:
        """Count a connection that comes from an address; return False if too many came of late.

        Whoever opens connections without a pause so costs little: others wait for each that is served.
        """
        if address in LOOPBACK:
            return True
        settings, now, place = self.settings, self.clock.monotonic(), net_of(address)
        most = settings.connections_per_address_max
        left, since = self._arrivals.pop(place, (float(most), now))
        left = min(most, left + (now - since) * settings.connections_per_address_s_max)
        if len(self._arrivals) >= ARRIVALS_REMEMBERED_MAX:
            del self._arrivals[next(iter(self._arrivals))]
        self._arrivals[place] = max(left - 1, 0.0), now
        return left >= 1

    def belongs(self, connection: Connection, token: str) -> None:
        """Note the token that a connection uses; raises TooMany if others use too many with it already."""
        before = self._token_of.get(connection, "")
        if token == before or connection not in self.open:
            return
        most = max(self.settings.connections_max // TOKEN_SHARE, 1)
        if token and self._tokens[token] >= most:
            raise TooMany("Too many connections", f"token {token}: expected at most {most} at once")
        self._forget_token(connection)
        if token:
            self._tokens[token] += 1
            self._token_of[connection] = token

    def _forget_token(self, connection: Connection) -> None:
        token = self._token_of.pop(connection, "")
        if token:
            self._tokens[token] -= 1
            if not self._tokens[token]:
                del self._tokens[token]

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a new connection; return False if it is one too many, which the caller must close."""
        if len(self.open) >= self.settings.connections_max or self.service.draining:
            return False
        if address not in LOOPBACK:
            place = net_of(address)
            if self._addresses[place] >= self.settings.connections_per_address_max:
                return False
            self._addresses[place] += 1
        self.open.add(connection)
        self.service.connections += 1
        return True

    def dismiss(self, connection: Connection, address: str) -> None:
        """Forget a connection that ``admit`` let in."""
        self.open.discard(connection)
        self.memory.hold(connection, 0)
        if self._token_of:
            self._forget_token(connection)
        self.expect_nothing(connection)
        self.service.connections -= 1
        if not self.open and self._ended is not None:
            self._ended.set()
        if address not in LOOPBACK:
            place = net_of(address)
            self._addresses[place] -= 1
            if not self._addresses[place]:
                del self._addresses[place]

    def expect(self, connection: Connection, seconds: float) -> None:
        """Set the deadline of ``connection``, in place of the one it has: ``expire`` in so many seconds.

        ``expect_nothing`` takes it away.
        """
        connection.deadline = self.clock.monotonic() + seconds
        self._timed.add(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look)

    def expects(self, connection: Connection) -> bool:
        """Tell whether a connection has a deadline."""
        return connection in self._timed

    def expect_nothing(self, connection: Connection) -> None:
        """Take the deadline of a connection away."""
        self._timed.discard(connection)

    def _look(self) -> None:
        now = self.clock.monotonic()
        for connection in [each for each in self._timed if each.deadline <= now]:
            self._timed.discard(connection)
            connection.expire()
        self.memory.trim()
        again = self._timed or self.open
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look) if again else None

    async def close(self, *, at_once: bool = False) -> None:
        """End every connection; each may first write what it has been promised, unless ``at_once``."""
        for connection in list(self.open):
            connection.finish()
        if self.open and not at_once:
            self._ended = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self.settings.drain_s)
        for connection in list(self.open):
            connection.expire()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
