"""One budget of memory for all that clients send and do not read: heads, bodies, and answers under way.

A connection may hold a little without being counted. Where the budget is used up, the connections of those
who do not read their answers are closed, the one that holds the most first; if that gives no room, whoever
wants more is refused.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Protocol

from bedrockjobs.base.config import (
    CONNECTION_BYTES_FREE,
    LARGE_BYTES,
    MEMORY_COUNTED_LEAST_BYTES,
    MEMORY_RESERVE_BYTES,
    TRIM_BYTES,
)
from bedrockjobs.base.errors import Unavailable

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
