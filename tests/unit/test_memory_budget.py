"""Which connections are closed and which requests refused when the memory budget is used up."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from bedrockjobs.base.config import CONNECTION_BYTES_FREE, TRIM_BYTES
from bedrockjobs.protocol.connections import MemoryBudget

MIB = 1024 * 1024


class Client:
    """A connection."""

    def __init__(self, unread_bytes: int) -> None:
        """Hold a number of unread bytes."""
        self.unread_bytes = unread_bytes
        self.closed = False

    def shed(self) -> None:
        """Record that it was closed."""
        self.closed = True


def test_the_slowest_reader_goes_first_and_then_who_asks_is_refused() -> None:
    budget = MemoryBudget(10 * MIB)
    slow, slower, sender = Client(2 * MIB), Client(3 * MIB), Client(0)
    assert budget.hold(slow, 2 * MIB)
    assert budget.hold(slower, 3 * MIB)
    assert budget.hold(sender, 4 * MIB)
    assert budget.borrow(4 * MIB)
    assert (slow.closed, slower.closed, sender.closed) == (False, True, False)
    assert budget.used == 10 * MIB
    assert not budget.borrow(9 * MIB)
    assert (slow.closed, sender.closed) == (True, False)
    assert not budget.hold(sender, 20 * MIB)
    assert budget.hold(sender, 0)
    budget.give_back(4 * MIB)
    assert budget.used == 0


def test_a_little_is_not_counted() -> None:
    budget = MemoryBudget(1)
    assert budget.hold(Client(0), CONNECTION_BYTES_FREE)
    assert budget.borrow(CONNECTION_BYTES_FREE)
    budget.give_back(CONNECTION_BYTES_FREE)
    assert budget.used == 0
    assert not budget.borrow(CONNECTION_BYTES_FREE + 1)


def test_what_was_freed_is_given_back_once_a_storm_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(True))
    budget = MemoryBudget(100 * MIB)
    sender = Client(0)
    budget.hold(sender, TRIM_BYTES)
    budget.hold(sender, 0)
    budget.trim()
    assert not collected
    budget.hold(sender, TRIM_BYTES + 1)
    budget.trim()
    assert not collected
    budget.hold(sender, 0)
    budget.trim()
    budget.trim()
    assert len(collected) == 1


HOLES = f"""
from pathlib import Path
from bedrockjobs.protocol import connections as memory

def held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

memory.keep_large_apart()
b"x" * (30 * {MIB})  # freed: without what is tested, glibc takes pieces as large from its heap now
before = held()
many = [(b"x" * {(1024 * 1024)}, b"x" * 100_000) for _ in range(100)]
small = [each for _, each in many]
del many
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_large_pieces_leave_no_holes_between_small_ones() -> None:
    left = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True).stdout
    assert int(left) < 40 * MIB
