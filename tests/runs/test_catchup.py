"""Ticks that passed while the server was down."""

from __future__ import annotations

import pytest

from tests.runs.rig import Site, moment


def at(minute: int) -> str:
    """Return a tick."""
    return f"2026-11-21 03:{minute:02d}:00"


def row(first: int, last: int, outcome: str, reason: str = "") -> tuple[str, str, int, str, str]:
    """Return a row of the ledger."""
    return at(first), at(last), last - first + 1, outcome, reason


HOW = pytest.mark.parametrize("how", ["restart", "crash"])


async def down(site: Site, how: str, until: str) -> None:
    """Let the server be down until a moment."""
    await getattr(site, how)(down=(moment(until) - site.clock.now()).total_seconds())


@HOW
async def test_once(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await down(site, how, "2026-11-21 03:33:10")
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(33)
    assert await site.ticks(1) == [row(30, 32, "skipped", "server down"), row(33, 33, "caught up")]
    await site.finish(job)
    assert await site.due(1) == at(34)


@HOW
async def test_once_a_single_tick(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await down(site, how, "2026-11-21 03:30:10")
    await site.later(3)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 30, "caught up")]
    assert (await site.ok("ListTicks", jobID=1))["ticks"][0]["late"] == 13


@HOW
async def test_once_down_and_then_no_worker(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await down(site, how, "2026-11-21 03:31:30")
    await site.until_time("2026-11-21 03:34:30")
    await site.take("s")
    assert await site.ticks(1) == [
        row(30, 31, "skipped", "server down"),
        row(32, 33, "skipped", "no worker"),
        row(34, 34, "caught up"),
    ]


@HOW
async def test_skip(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await down(site, how, "2026-11-21 03:33:10")
    assert await site.due(1) == at(34)
    assert await site.ticks(1) == [row(30, 33, "skipped", "server down")]
    assert await site.nothing("s")
    await site.until_time(at(34))
    await site.finish(await site.take("s"))
    assert (await site.ticks(1))[-1] == row(34, 34, "fired")


@HOW
async def test_all(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup="all")
    await down(site, how, "2026-11-21 03:33:10")
    for minute in (30, 31, 32, 33):
        job = await site.take("s")
        assert (await site.run(job["runID"]))["scheduledFor"] == at(minute)
        await site.finish(job)
    assert await site.nothing("s")
    assert await site.due(1) == at(34)
    ledger = await site.ticks(1)
    assert {tick[3] for tick in ledger} == {"caught up"}
    assert sum(tick[2] for tick in ledger) == 4


@pytest.mark.parametrize("catchup", ["once", "skip", "all"])
async def test_nothing_missed_nothing_said(site: Site, catchup: str) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup=catchup)
    await site.restart(down=3)
    assert await site.due(1) == at(30)
    assert await site.ticks(1) == []
    await site.until_time(at(30))
    await site.take("s")
    assert await site.ticks(1) == [row(30, 30, "fired")]


@HOW
async def test_a_run_goes_on_while_the_server_is_down(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await site.until_time(at(30))
    job = await site.leased("s")
    await down(site, how, "2026-11-21 03:33:10")
    assert await site.state(1) == "RUNNING"
    await site.later(5)
    await site.finish(job)
    assert await site.due(1) == at(34)
    first, *rest = await site.ticks(1)
    assert first == row(30, 30, "fired")
    assert sum(tick[2] for tick in rest) == 3
    assert {tick[3] for tick in rest} == {"skipped"}


@HOW
async def test_max_late_after_a_long_time(site: Site, how: str) -> None:
    await site.create("s", repeat="CRON 0 4 * * *", maxLate="1h")
    await down(site, how, "2026-11-23 12:00:00")
    assert await site.nothing("s")
    assert await site.due(1) == "2026-11-24 04:00:00"
    ledger = await site.ticks(1)
    assert sum(tick[2] for tick in ledger) == 3
    assert {tick[3] for tick in ledger} == {"skipped"}
    assert ledger[-1][4] == "too late"


async def test_skip_with_a_manual_run_waiting(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await site.ok("TriggerJob", name="s")
    await site.restart(down=200)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    due = await site.due(1)
    covered = sum(tick[2] for tick in await site.ticks(1))
    assert due == at(30 + covered), "each tick before the next one is in the ledger"
    assert due > site.now


async def test_two_restarts(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await down(site, "restart", "2026-11-21 03:31:10")
    await down(site, "restart", "2026-11-21 03:33:10")
    assert sum(tick[2] for tick in await site.ticks(1)) == 4
    assert await site.due(1) == at(34)


async def test_many_schedules(site: Site) -> None:
    jobs = [{"name": f"s{n}", "repeat": "CRON * * * * *", "catchup": "skip"} for n in range(500)]
    await site.ok("CreateJobs", jobs=jobs)
    await site.restart(down=3600)
    found = await site.select("SELECT nextRun, count(*) AS n FROM jobs GROUP BY nextRun")
    assert [(r["nextRun"], r["n"]) for r in found] == [("2026-11-21 04:30:00", 500)]
    (counted,) = await site.select("SELECT sum(count) AS n, count(*) AS r FROM ticks")
    assert (counted["n"], counted["r"]) == (500 * 60, 500)


async def test_other_repeats_keep_bedrocks_rule(site: Site) -> None:
    await site.create("a", repeat="SCHEDULED, +1 MINUTE", firstRun=at(30))
    await site.restart(down=300)
    assert (await site.take("a"))["nextRun"] == at(30)


async def test_a_server_that_was_up_and_idle_was_not_down(site: Site) -> None:
    """It stops in order, and says until when it was there."""
    await site.create("s", repeat="CRON * * * * *")
    await site.until_time("2026-11-21 03:32:30")
    await site.restart(down=60)
    await site.take("s")
    assert await site.ticks(1) == [row(30, 32, "skipped", "no worker"), row(33, 33, "caught up")]
