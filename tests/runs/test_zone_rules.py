"""The rules of a time zone change after a tick was planned: by an update of the system's tzdata."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs.rig import Site

DAILY = "CRON TZ=Test/Moving 0 0 * * *"

Rules = Callable[[int], None]


def zone_file(hours: int) -> bytes:
    """Return a zone, as compiled, that is always so many hours ahead of UTC."""
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    block = b"TZif2" + bytes(15) + counts + struct.pack(">lbB", hours * 3600, 0, 0) + b"XXX\0"
    return block + block + f"\n<+{hours:02d}>-{hours}\n".encode()


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[Rules]:
    """Return a function that sets how many hours the zone Test/Moving is ahead of UTC: 3 at first."""

    def change(hours: int) -> None:
        (tmp_path / "Test" / "Moving").write_bytes(zone_file(hours))

    (tmp_path / "Test").mkdir()
    change(3)
    zoneinfo.reset_tzpath([str(tmp_path), *zoneinfo.TZPATH])
    zoneinfo.ZoneInfo.clear_cache()
    yield change
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


async def test_a_planned_tick_follows_new_rules_after_a_restart(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    assert await site.due(1) == "2026-11-21 21:00:00"
    rules(2)
    await site.restart()
    assert await site.due(1) == "2026-11-21 22:00:00"
    (event,) = await site.events("replanned")
    assert event["detail"].startswith("from 2026-11-21 21:00:00 to 2026-11-21 22:00:00: ")
    await site.restart()
    assert len(await site.events("replanned")) == 1


async def test_a_planned_tick_follows_new_rules_within_a_day(site: Site, rules: Rules) -> None:
    await site.create("s", repeat="CRON TZ=Test/Moving 0 0 * * 5")
    assert await site.due(1) == "2026-11-26 21:00:00"
    rules(2)
    await site.both(3600)
    assert await site.due(1) == "2026-11-26 21:00:00", "it is looked at once a day"
    await site.both(86_400)
    assert await site.due(1) == "2026-11-26 22:00:00"


async def test_one_time_of_the_wall_clock_runs_once(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    await site.until_time("2026-11-21 21:00:00")
    await site.finish(await site.take("s"))
    await site.until_time("2026-11-21 21:30:00")
    rules(2)
    await site.restart()
    assert await site.due(1) == "2026-11-22 22:00:00", "midnight of the 22nd has run"


async def test_it_runs_once_if_its_run_spans_the_change(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    await site.until_time("2026-11-21 21:00:00")
    job = await site.take("s")
    rules(2)
    await site.restart(down=60)
    await site.finish(job)
    assert await site.due(1) == "2026-11-22 22:00:00"


async def test_a_tick_that_is_over_by_new_rules_is_due(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    await site.until_time("2026-11-21 20:30:00")
    rules(4)
    await site.restart()
    assert await site.due(1) == "2026-11-21 20:00:00"
    await site.finish(await site.take("s"))
    assert await site.due(1) == "2026-11-22 20:00:00"


async def test_a_triggered_run_is_left_and_the_tick_behind_it_follows(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY, jitter=0)
    await site.ok("TriggerJob", name="s")
    rules(2)
    await site.restart()
    await site.finish(await site.take("s"))
    assert await site.due(1) == "2026-11-21 22:00:00"


async def test_a_paused_schedule_follows_too(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    await site.ok("PauseJobs", name="s")
    rules(2)
    await site.restart()
    assert await site.due(1) == "2026-11-21 22:00:00"
    await site.ok("ResumeJobs", name="s")
    assert await site.due(1) == "2026-11-21 22:00:00"


async def test_one_that_expects_pings_follows_too(site: Site, rules: Rules) -> None:
    """The time until which the ping may come moves with its tick."""
    await site.create("s", repeat=DAILY, expect="ping", pingGrace=600)
    before = await site.ok("QueryJob", jobID=1)
    rules(2)
    await site.restart()
    after = await site.ok("QueryJob", jobID=1)
    assert (before["nextRun"], after["nextRun"]) == ("2026-11-21 21:00:00", "2026-11-21 22:00:00")
    await site.until_time("2026-11-21 21:30:00")
    assert await site.events("missed") == []
    await site.until_time("2026-11-21 22:10:01")
    assert len(await site.events("missed")) == 1


async def test_one_on_all_hosts_follows_too(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY, hosts="all")
    rules(2)
    await site.restart()
    assert await site.due(1) == "2026-11-21 22:00:00"


async def test_the_jitter_of_a_tick_stays_within_its_bounds(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY, jitter=600)
    assert "2026-11-21 21:00:00" <= await site.due(1) <= "2026-11-21 21:10:00"
    rules(2)
    await site.restart()
    assert "2026-11-21 22:00:00" <= await site.due(1) <= "2026-11-21 22:10:00"
    assert (await site.memory(1))["tick"] == "2026-11-21 22:00:00"


async def test_what_somebody_set_is_left_alone(site: Site, rules: Rules) -> None:
    await site.create("s", repeat=DAILY)
    await site.create("t", repeat=DAILY, firstRun="2026-11-25 10:00:00")
    await site.ok("UpdateJob", jobID=1, nextRun="2026-11-24 11:00:00")
    rules(2)
    await site.restart()
    assert (await site.due(1), await site.due(2)) == ("2026-11-24 11:00:00", "2026-11-25 10:00:00")


async def test_one_in_utc_is_left_alone(site: Site, rules: Rules) -> None:
    await site.create("s", repeat="CRON 0 21 * * *")
    assert await site.memory(1) == {}
    rules(2)
    await site.restart()
    assert await site.due(1) == "2026-11-21 21:00:00"
