"""When locks were held last: consecutive holders are one period, and the number of locks is limited."""

from __future__ import annotations

from bedrockjobs.base.config import LOCKS_CACHED_MAX
from bedrockjobs.store.base import LockPeriod
from bedrockjobs.store.ready_queue import LockHistory


def test_a_lock_is_held_until_it_is_let_go() -> None:
    history = LockHistory()
    assert history.last("db") is None
    history.hold("db", "2026-01-05 10:00:00")
    assert history.last("db") == LockPeriod("2026-01-05 10:00:00")
    history.release("db", "2026-01-05 10:05:00.250")
    assert history.last("db") == LockPeriod("2026-01-05 10:00:00", "2026-01-05 10:05:00.250")
    assert history.last("net") is None


def test_who_takes_it_at_once_goes_on_with_the_stretch() -> None:
    history = LockHistory()
    history.hold("db", "2026-01-05 10:00:00")
    history.release("db", "2026-01-05 10:05:00.250")
    history.hold("db", "2026-01-05 10:05:00")
    assert history.last("db") == LockPeriod("2026-01-05 10:00:00")
    history.release("db", "2026-01-05 10:06:00")
    history.hold("db", "2026-01-05 10:06:01")
    assert history.last("db") == LockPeriod("2026-01-05 10:06:01")


def test_locks_that_were_held_long_ago_are_forgotten() -> None:
    history = LockHistory()
    for number in range(LOCKS_CACHED_MAX):
        history.hold(str(number), "2026-01-05 10:00:00")
    history.hold("0", "2026-01-05 10:00:01")
    history.hold("one more", "2026-01-05 10:00:02")
    assert history.last("1") is None
    assert history.last("0") is not None
    assert history.last("one more") is not None
