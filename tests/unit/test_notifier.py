"""No notification between a read and a wait is lost, and no subscription outlives its subscriber."""

from __future__ import annotations

import asyncio
import time

import pytest

from bedrockjobs.engine.events import Notifier
from tests.pace import in_time

OUTPUT = ("output", 7)
LONG_S = 60.0
"""A wait that must not last."""


async def _listening(notifier: Notifier, topics: int) -> None:
    while len(notifier) != topics:
        await asyncio.sleep(0)


async def test_a_ring_wakes_everybody_who_waits_for_its_topic() -> None:
    notifier = Notifier()
    waits = [asyncio.ensure_future(notifier.wait(OUTPUT, LONG_S)) for _ in range(50)]
    other = asyncio.ensure_future(notifier.wait(("output", 8), 0.05))
    await _listening(notifier, 2)
    notifier.notify(OUTPUT)
    assert await asyncio.gather(*waits) == [True] * 50
    assert await other is False, "another run's output is no news"


async def test_a_ring_between_the_read_and_the_wait_is_heard() -> None:
    notifier = Notifier()
    with notifier.listen(OUTPUT) as subscription:
        notifier.notify(OUTPUT)
        assert await subscription.wait(LONG_S)
        assert not await subscription.wait(0.01), "each is told once"


async def test_rings_while_a_listener_reads_are_told_as_one() -> None:
    notifier = Notifier()
    with notifier.listen(OUTPUT) as subscription:
        for _ in range(3):
            notifier.notify(OUTPUT)
        assert await subscription.wait(LONG_S)
        assert not await subscription.wait(0.01)
        notifier.notify(OUTPUT)
        assert await subscription.wait(LONG_S)


async def test_a_ring_before_somebody_listens_is_not_kept() -> None:
    notifier = Notifier()
    notifier.notify(OUTPUT)
    assert len(notifier) == 0
    assert await notifier.wait(OUTPUT, 0.01) is False


@pytest.mark.parametrize("timeout_s", [0, -1])
async def test_no_time_is_no_wait(timeout_s: float) -> None:
    notifier = Notifier()
    with notifier.listen(OUTPUT) as subscription:
        notifier.notify(OUTPUT)
        assert await subscription.wait(timeout_s) is False


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    notifier = Notifier()
    stays = asyncio.ensure_future(notifier.wait(OUTPUT, LONG_S))
    goes = asyncio.ensure_future(notifier.wait(OUTPUT, LONG_S))
    await _listening(notifier, 1)
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    assert len(notifier) == 1
    notifier.notify(OUTPUT)
    assert await stays
    assert len(notifier) == 0, "the last listener frees the topic"


async def test_a_drain_wakes_all_and_lets_nobody_wait() -> None:
    notifier = Notifier()
    waits = [asyncio.ensure_future(notifier.wait(("output", n), LONG_S)) for n in range(5)]
    await _listening(notifier, 5)
    begun = time.monotonic()
    notifier.end()
    assert await asyncio.gather(*waits) == [False] * 5
    assert await notifier.wait(OUTPUT, LONG_S) is False
    assert in_time(time.monotonic() - begun, LONG_S / 10)
    assert notifier.ended
    assert len(notifier) == 0
