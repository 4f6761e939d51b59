"""The tick history of a schedule whose lock another job holds: the ticks that were skipped for it."""

from __future__ import annotations

from typing import Any

from tests.runs.rig import Site
from tests.runs.ticks import at, every_minute, row


async def _held(site: Site, **more: Any) -> dict[str, Any]:
    """Create a schedule of each minute and another job with its lock, which is taken before 03:30."""
    await every_minute(site, lock="db", **more)
    await site.create("other", lock="db", runTimeout="1h")
    return await site.take("other")


async def test_ticks_behind_a_held_lock_have_their_own_reason(site: Site) -> None:
    other = await _held(site)
    await site.until_time(at(32))
    assert await site.nothing("s")
    await site.finish(other)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 31, "skipped", "lock held"), row(32, 32, "caught up")]


async def test_a_tick_that_could_run_before_the_next_came_was_missed_for_want_of_a_worker(site: Site) -> None:
    other = await _held(site)
    await site.until_time(at(32))
    await site.finish(other)
    await site.until_time(at(35))
    await site.take("s")
    assert await site.ticks(1) == [
        row(30, 31, "skipped", "lock held"),
        row(32, 34, "skipped", "no worker"),
        row(35, 35, "caught up"),
    ]


async def test_a_tick_before_the_lock_was_taken_is_told_apart(site: Site) -> None:
    await every_minute(site, lock="db")
    await site.create("other", lock="db")
    await site.until_time("2026-11-21 03:31:30")
    other = await site.take("other")
    await site.until_time("2026-11-21 03:33:30")
    await site.finish(other)
    await site.take("s")
    assert await site.ticks(1) == [
        row(30, 31, "skipped", "no worker"),
        row(32, 32, "skipped", "lock held"),
        row(33, 33, "caught up"),
    ]


async def test_holders_one_after_another_are_one_stretch(site: Site) -> None:
    first = await _held(site)
    await site.create("other", lock="db", jobPriority=1000)
    await site.until_time("2026-11-21 03:31:30")
    await site.finish(first)
    second = await site.take("other")
    await site.until_time("2026-11-21 03:33:30")
    await site.finish(second)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 32, "skipped", "lock held"), row(33, 33, "caught up")]


async def test_too_late_for_the_lock(site: Site) -> None:
    other = await _held(site, maxLate="30s")
    await site.until_time("2026-11-21 03:30:50")
    await site.finish(other)
    assert await site.nothing("s")
    assert await site.ticks(1) == [row(30, 30, "skipped", "lock held")]


async def test_too_late_although_the_lock_was_free_in_time(site: Site) -> None:
    other = await _held(site, maxLate="30s")
    await site.until_time("2026-11-21 03:30:10")
    await site.finish(other)
    await site.until_time("2026-11-21 03:30:50")
    assert await site.nothing("s")
    assert await site.ticks(1) == [row(30, 30, "skipped", "too late")]


async def test_a_lock_that_is_held_when_expireafter_is_over(site: Site) -> None:
    await _held(site, expireAfter="20s")
    await site.until_time("2026-11-21 03:30:21")
    assert await site.ticks(1) == [row(30, 30, "skipped", "lock held")]


async def test_all_ticks_that_are_made_up_for_are_no_skipped_ones(site: Site) -> None:
    other = await _held(site, catchup="all")
    await site.until_time(at(32))
    await site.finish(other)
    for _ in range(3):
        await site.finish(await site.take("s"))
    reasons = {tick["reason"] for tick in (await site.ok("ListTicks", jobID=1))["ticks"]}
    assert reasons == {""}


async def test_another_lock_counts_for_nothing(site: Site) -> None:
    await every_minute(site, lock="db")
    await site.create("other", lock="net")
    other = await site.take("other")
    await site.until_time(at(32))
    await site.finish(other)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 31, "skipped", "no worker"), row(32, 32, "caught up")]


async def test_the_holder_of_before_a_restart_counts(site: Site) -> None:
    other = await _held(site)
    await site.until_time(at(31))
    await site.restart()
    await site.until_time(at(33))
    await site.finish(other)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 32, "skipped", "lock held"), row(33, 33, "caught up")]


async def test_metrics_and_health_have_the_reason(site: Site) -> None:
    await _held(site, expireAfter="20s")
    await site.until_time("2026-11-21 03:30:21")
    async with await site.connect() as talk:
        talk.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert 'bedrockjobs_ticks_skipped_total{reason="lock held"} 1' in (await talk.reply()).body
