"""Bells: no ring between a read and a wait is lost, and nobody is remembered who no longer waits."""

from __future__ import annotations

import asyncio
import time

import pytest

from bedrockjobs.bells import Bells

OUTPUT = ("output", 7)
LONG_S = 60.0
"""A wait that must not last."""


async def _listening(bells: Bells, topics: int) -> None:
    while len(bells) != topics:
        await asyncio.sleep(0)


async def test_a_ring_wakes_everybody_who_waits_for_its_topic() -> None:
    bells = Bells()
    waits = [asyncio.ensure_future(bells.wait(OUTPUT, LONG_S)) for _ in range(50)]
    other = asyncio.ensure_future(bells.wait(("output", 8), 0.05))
    await _listening(bells, 2)
    bells.ring(OUTPUT)
    assert await asyncio.gather(*waits) == [True] * 50
    assert await other is False, "another run's output is no news"


async def test_a_ring_between_the_read_and_the_wait_is_heard() -> None:
    bells = Bells()
    with bells.listen(OUTPUT) as bell:
        bells.ring(OUTPUT)
        assert await bell.wait(LONG_S)
        assert not await bell.wait(0.01), "each ring is told once"


async def test_rings_while_a_listener_reads_are_told_as_one() -> None:
    bells = Bells()
    with bells.listen(OUTPUT) as bell:
        for _ in range(3):
            bells.ring(OUTPUT)
        assert await bell.wait(LONG_S)
        assert not await bell.wait(0.01)
        bells.ring(OUTPUT)
        assert await bell.wait(LONG_S)


async def test_a_ring_before_somebody_listens_is_not_kept() -> None:
    bells = Bells()
    bells.ring(OUTPUT)
    assert len(bells) == 0
    assert await bells.wait(OUTPUT, 0.01) is False


@pytest.mark.parametrize("timeout_s", [0, -1])
async def test_no_time_is_no_wait(timeout_s: float) -> None:
    bells = Bells()
    with bells.listen(OUTPUT) as bell:
        bells.ring(OUTPUT)
        assert await bell.wait(timeout_s) is False


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    bells = Bells()
    stays = asyncio.ensure_future(bells.wait(OUTPUT, LONG_S))
    goes = asyncio.ensure_future(bells.wait(OUTPUT, LONG_S))
    await _listening(bells, 1)
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    assert len(bells) == 1
    bells.ring(OUTPUT)
    assert await stays
    assert len(bells) == 0, "the last listener frees the topic"


async def test_a_drain_wakes_all_and_lets_nobody_wait() -> None:
    bells = Bells()
    waits = [asyncio.ensure_future(bells.wait(("output", n), LONG_S)) for n in range(5)]
    await _listening(bells, 5)
    begun = time.monotonic()
    bells.end()
    assert await asyncio.gather(*waits) == [False] * 5
    assert await bells.wait(OUTPUT, LONG_S) is False
    assert time.monotonic() - begun < LONG_S / 10
    assert bells.ended
    assert len(bells) == 0
