"""The history of a name: what is counted, when it is written, how long it is kept, and who sees it."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest

from bedrockjobs.base import config
from bedrockjobs.commands import QueueHistory
from bedrockjobs.commands.overview import HISTORY_RANGES
from bedrockjobs.observe import stats
from bedrockjobs.observe.stats import SPAN_S
from bedrockjobs.views import queues
from bedrockjobs.views.overview import DepthSampler, quantile
from tests.runs.bearer import admin_of
from tests.runs.rig import Site

COUNTS = ("created", "taken", "finished", "failed", "retried", "lost")
DAY = 86_400


async def history(site: Site, name: str, chosen: str = "1h") -> dict[str, Any]:
    """Return the history of a name."""
    found: dict[str, Any] = await site.ok("QueueHistory", name=name, range=chosen)
    assert QueueHistory.reply.model_validate(found)
    return found


async def counted(site: Site, name: str, chosen: str = "1h") -> dict[str, int]:
    """Return the counts of a name that are not zero."""
    total = (await history(site, name, chosen))["total"]
    return {count: total[count] for count in COUNTS if total[count]}


async def a_minute(site: Site) -> None:
    """Let a minute pass, and write what was counted in it."""
    await site.both(60)
    for _ in range(2):  # the first one ends the minute
        await site.ok("PauseJobs", name="x")


async def stored(site: Site, name: str, step: int = 60) -> list[dict[str, Any]]:
    """Return the rows of a name."""
    return await site.select(f"SELECT * FROM stats WHERE name = '{name}' AND step = {step} ORDER BY at")


def test_the_ranges_are_those_of_the_command() -> None:
    assert get_args(QueueHistory.model_fields["range"].annotation) == tuple(HISTORY_RANGES)
    for length_s, step_s in HISTORY_RANGES.values():
        kept_s = (90 * 86_400) if step_s % 3_600 == 0 else 86_400
        assert length_s <= kept_s
        assert length_s % step_s == 0
        assert length_s // step_s <= 200


def test_percentiles_are_estimated_within_a_bucket() -> None:
    empty = [0] * (len(SPAN_S) + 1)
    assert quantile(empty, 0.5) is None
    for place, (below, above) in enumerate(zip((0.0, *SPAN_S), SPAN_S, strict=False)):
        one = [*empty]
        one[place] = 10
        for part in (0.05, 0.5, 0.95, 1):
            found = quantile(one, part)
            assert found is not None
            assert below <= found <= above * 1.05
        assert quantile(one, 1) == pytest.approx(above, rel=0.05)
    beyond = [*empty[:-1], 3]
    assert quantile(beyond, 0.5) == SPAN_S[-1]
    assert quantile([95, *empty[1:-1], 5], 0.5) == pytest.approx(0.0053, rel=0.05)


async def test_every_way_of_a_job_is_countersby_its_name(site: Site) -> None:
    await site.ok("CreateJobs", jobs=[{"name": "a"}, {"name": "b"}, {"name": "a", "retries": 1}])
    await site.finish(await site.take("a"))
    again = await site.take("a")
    await site.fail(again, error="no disk")
    plain = await site.create("plain")
    await site.take("plain", None)
    await site.finish({"jobID": plain})
    assert await counted(site, "a") == {"created": 2, "taken": 2, "finished": 1, "failed": 1, "retried": 1}
    assert await counted(site, "b") == {"created": 1}
    assert await counted(site, "plain") == {"created": 1, "taken": 1, "finished": 1}
    assert await counted(site, "nobody") == {}
    lost = await site.create("lost")
    await site.leased("lost")
    await site.silence(60)
    assert await counted(site, "lost") == {"created": 1, "taken": 1, "lost": 1}
    assert await site.state(lost) == "QUEUED"


async def test_a_refused_command_counts_nothing(site: Site) -> None:
    assert await site.refused("FinishJob", jobID=99) == (404, "No job with this jobID")
    await site.create("a")
    job = await site.take("a")
    bad = {"jobID": job["jobID"], "runID": job["runID"] + 1}
    found = await site.ok("FinishJobs", jobs=[bad, {"jobID": job["jobID"], "runID": job["runID"]}])
    assert [one["code"] for one in found["results"]][1] == 200
    assert await counted(site, "a") == {"created": 1, "taken": 1, "finished": 1}


async def test_steps_have_waits_and_durations_of_their_minute(site: Site) -> None:
    await site.create("a")
    await site.both(40)
    job = await site.take("a")
    await site.both(200)
    await site.finish(job)
    found = await history(site, "a")
    assert len(found["steps"]) == 60
    busy = [step for step in found["steps"] if step["created"] or step["taken"] or step["finished"]]
    assert [step["at"] for step in busy] == [
        "2026-11-21 03:29:00",
        "2026-11-21 03:30:00",
        "2026-11-21 03:33:00",
    ]
    assert [step["created"] for step in busy] == [1, 0, 0]
    assert 30 < busy[1]["waitP50"] <= busy[1]["waitP95"] <= 100
    assert busy[1]["tookP50"] is None
    assert 100 < busy[2]["tookP50"] <= busy[2]["tookP95"] <= 300
    assert (found["total"]["waitP50"], found["total"]["tookP95"]) == (busy[1]["waitP50"], busy[2]["tookP95"])


async def test_a_minute_is_written_once_and_survives_a_restart(site: Site) -> None:
    await site.create("a")
    assert await stored(site, "a") == []
    await a_minute(site)
    for step in (60, 3_600):
        (row,) = await stored(site, "a", step)
        assert (row["at"], row["created"]) == (
            "2026-11-21 03:29:00" if step == 60 else "2026-11-21 03:00:00",
            1,
        )
    await site.restart()
    assert await counted(site, "a") == {"created": 1}
    await site.create("a")
    assert await counted(site, "a") == {"created": 2}, "what is in memory is added"
    await a_minute(site)
    assert [row["created"] for row in await stored(site, "a")] == [1, 1]
    assert [row["created"] for row in await stored(site, "a", 3_600)] == [2]
    for chosen in HISTORY_RANGES:
        assert await counted(site, "a", chosen) == {"created": 2}, chosen


async def test_minutes_are_kept_for_a_day_and_hours_for_90(site: Site) -> None:
    await site.create("a")
    await a_minute(site)
    await site.later(DAY + 7_200)
    for _ in range(4):
        await site.both(2)
    assert (await stored(site, "a"), len(await stored(site, "a", 3_600))) == ([], 1)
    assert await counted(site, "a", "24h") == {}
    assert await counted(site, "a", "7d") == {"created": 1}
    await site.later(90 * DAY)
    for _ in range(4):
        await site.both(2)
    assert await stored(site, "a", 3_600) == []


async def test_as_many_names_as_there_is_room_for_have_a_series(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "STATS_NAMES_MAX", 2)
    await site.ok("CreateJobs", jobs=[{"name": name} for name in ("a", "b", "b", "c", "c", "c")])
    await a_minute(site)
    assert {row["name"] for row in await site.select("SELECT name FROM stats WHERE name <> ''")} == {"b", "c"}
    await site.ok("CreateJobs", jobs=[{"name": name} for name in ("a", "a", "b")])
    await a_minute(site)
    assert [row["created"] for row in await stored(site, "b")] == [2, 1]
    assert await stored(site, "a") == [], "the room of an hour stays with its names"
    await site.both(3_600)
    await site.ok("CreateJobs", jobs=[{"name": "a"}])
    await a_minute(site)
    assert [row["created"] for row in await stored(site, "a")] == [1]


async def test_rows_are_written_in_slices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "STATS_AT_ONCE", 4)
    await site.ok("CreateJobs", jobs=[{"name": f"n{number}"} for number in range(5)])
    await site.both(60)
    seen = []
    for _ in range(5):
        await site.ok("PauseJobs", name="x")
        seen.append(len(await site.select("SELECT name FROM stats WHERE name <> ''")))
        for number in range(5):
            assert await counted(site, f"n{number}") == {"created": 1}, "no row is lost or counted twice"
    assert seen == [2, 6, 10, 10, 10], "the first rows are those of all names together"


async def test_what_waits_to_be_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "STATS_PENDING_MAX", 6)
    counters = stats.Stats()
    for minute in range(5):
        counters.begin_minute(f"2026-11-21 03:0{minute}:00")
        counters._count(stats.CREATED, "a")
    assert len(counters.unwritten({"", "a"})) == 6 + 4
    for name in range(30_000):
        counters._count(stats.CREATED, f"n{name}")
    assert len(counters._names) == config.STATS_COUNTED_MAX


async def test_a_narrow_token_sees_the_names_in_its_scope(site: Site) -> None:
    root = await admin_of(site)
    await root.ok("CreateJobs", jobs=[{"name": "mail/a"}, {"name": "pay/a"}])
    other = await root.token_for("reader", "read", "mail/*")
    assert (await other.ok("QueueHistory", name="mail/a"))["total"]["created"] == 1
    hidden, never = [await other.ok("QueueHistory", name=name) for name in ("pay/a", "pay/never")]
    assert {**hidden, "name": ""} == {**never, "name": ""}


async def test_two_servers_add_up(site: Site) -> None:
    """Rows that another server has written for the same minute are added to."""
    await site.change(
        "INSERT INTO stats SELECT 'a', 60, '2026-11-21 03:29:00', 5, 0, 0, 0, 0, 0, " + "0, " * 30 + "NULL"
    )
    await site.create("a")
    await a_minute(site)
    (row,) = await stored(site, "a")
    assert row["created"] == 6


async def test_jobs_that_are_created_at_once_are_each_counted(site: Site) -> None:
    await asyncio.gather(*(site.create(f"n{number % 3}") for number in range(30)))
    assert [(await counted(site, f"n{number}"))["created"] for number in range(3)] == [10, 10, 10]


async def depths(site: Site, name: str) -> list[int]:
    """Return the known depths of a name, oldest first."""
    return [one["depth"] for one in (await history(site, name))["steps"] if one["depth"] is not None]


async def test_depths_are_counted_while_something_happens_and_once_after_it(site: Site) -> None:
    sampler = site.server.depths
    await sampler.sample()
    assert await depths(site, "a") == []
    await site.ok("CreateJobs", jobs=[{"name": "a"}, {"name": "a"}, {"name": "b", "firstRun": "1h"}])
    await sampler.sample()
    await site.create("a")
    assert (await depths(site, "a"), await depths(site, "b")) == ([2], [1]), "the third one came later"
    await a_minute(site)
    await sampler.sample()
    assert await depths(site, "a") == [2, 3]
    await a_minute(site)
    assert await depths(site, "a") == [2, 3]
    assert [row["depth"] for row in await stored(site, "")] == [3, 4], "of all names together"
    await site.ok("DeleteJob", jobID=1)
    await sampler.sample()
    assert await depths(site, "a") == [2, 3], "nothing was counted, so nothing is looked at"
    await site.take("a")
    await sampler.sample()
    assert await depths(site, "a") == [2, 3, 1]


async def test_no_depth_is_told_of_a_queue_that_is_too_large(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "NAMES_COUNTED_MAX", 1)
    await site.ok("CreateJobs", jobs=[{"name": name} for name in "abc"])
    await site.server.depths.sample()
    assert await depths(site, "a") == []


async def test_the_server_counts_depths_by_itself(site: Site) -> None:
    await site.create("a")
    counters = stats.Stats()
    counters._count(stats.CREATED, "a")
    sampler = DepthSampler(site.server.service.views.queues, counters, every_s=0.001)
    sampler.start()
    async with asyncio.timeout(10):
        while not [row for row in counters.unwritten({"a"}) if row[-1] == 1]:
            await asyncio.sleep(0.001)
    await sampler.stop()
