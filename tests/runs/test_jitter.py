"""jitter: schedules of one time that run apart."""

from __future__ import annotations

from tests.runs.rig import Site
from tests.runs.ticks import at, every_minute, row


async def test_jitter_moves_the_run_and_not_the_tick(site: Site) -> None:
    moved = []
    for number in range(20):
        job_id = await site.create(f"s{number}", repeat="CRON 0 4 * * *", jitter="10m")
        due = await site.due(job_id)
        assert "2026-11-21 04:00:00" <= due <= "2026-11-21 04:10:00"
        assert (await site.memory(job_id))["tick"] == "2026-11-21 04:00:00"
        moved.append(due)
    assert len(set(moved)) > 10, "each job has its own"
    await site.until_time("2026-11-21 04:10:00")
    job = await site.take("s0")
    assert (await site.run(job["runID"]))["scheduledFor"] == "2026-11-21 04:00:00"
    assert [tick[:2] for tick in await site.ticks(1)] == [("2026-11-21 04:00:00", "2026-11-21 04:00:00")]
    await site.finish(job)
    assert "2026-11-22 04:00:00" <= await site.due(1) <= "2026-11-22 04:10:00"
    assert (await site.memory(1))["tick"] == "2026-11-22 04:00:00"


async def test_jitter_is_a_fixed_function_of_job_and_tick(site: Site) -> None:
    await site.create("s", repeat="CRON 0 4 * * *", jitter="10m")
    due = await site.due(1)
    await site.restart(down=5)
    assert await site.due(1) == due
    await site.create("s", repeat="CRON 0 4 * * *", jitter="10m", unique=True)
    assert await site.due(1) == due


async def test_jitter_longer_than_the_interval_loses_no_tick(site: Site) -> None:
    await every_minute(site, jitter="3m")
    for _ in range(10):
        due = await site.due(1)
        if due > site.now:
            await site.until_time(due)
        await site.finish(await site.take("s"))
    covered: list[int] = []
    for tick, until, _, _, _ in await site.ticks(1):
        covered += range(int(tick[14:16]), int(until[14:16]) + 1)
    assert covered == list(range(30, 30 + len(covered)))


async def test_a_new_repeat_has_its_own_jitter(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *", jitter=3000)
    await site.ok("CreateJob", name="s", repeat="CRON * * * * *", unique=True, overwrite=True)
    assert (await site.memory(1))["tick"] == at(30)
    due = await site.due(1)
    assert at(30) <= due <= "2026-11-21 04:20:00"
    await site.until_time(due)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == (await site.ticks(1))[-1][1]


async def test_with_a_new_repeat_the_jitter_moves_the_run_and_not_the_tick(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *", jitter=300)
    await site.ok("UpdateJob", jobID=1, repeat="CRON */15 * * * *")
    assert (await site.memory(1))["tick"] == at(30)
    await site.until_time("2026-11-21 03:55:30")
    await site.take("s")
    assert await site.ticks(1) == [row(30, 30, "skipped", "no worker"), row(45, 45, "caught up")]
