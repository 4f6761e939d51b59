"""Limits of the history: per name, successes and other runs separately."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import EVENTS_KEPT_MAX, HISTORY_DEFAULT, OUTPUT_KEPT_S, RUNS_KEPT_MAX
from bedrockjobs.store.records import CLEANED_MAX, COUNTED_MAX
from tests.runs.rig import Site

KEYS_KEPT_S = 86_400


async def runs_of(site: Site, name: str, good: int, bad: int = 0, **options: object) -> None:
    """Let so many jobs of a name end well, and so many badly."""
    total = good + bad
    jobs = [{"name": name, **options} for _ in range(total)]
    if not jobs:
        return
    await site.ok("CreateJobs", jobs=jobs)
    taken = (await site.ok("GetJobs", name=name, numResults=total, worker="w"))["jobs"]
    for number, job in enumerate(taken):
        await (site.finish if number < good else site.fail)(job)


async def counts(site: Site, name: str) -> tuple[int, int]:
    """Return how many successes and how many others there are."""
    rows = await site.select(
        f"SELECT status = 'success' AS good, count(*) AS n FROM runs WHERE name = '{name}' GROUP BY good"
    )
    found = {row["good"]: row["n"] for row in rows}
    return found.get(1, 0), found.get(0, 0)


async def test_the_default(site: Site) -> None:
    await runs_of(site, "a", HISTORY_DEFAULT + 60, HISTORY_DEFAULT + 60)
    good, bad = await counts(site, "a")
    most = HISTORY_DEFAULT + HISTORY_DEFAULT // 10
    assert HISTORY_DEFAULT <= good <= most
    assert HISTORY_DEFAULT <= bad <= most


async def test_what_the_job_asks_for(site: Site) -> None:
    await runs_of(site, "a", 35, 35, keepSuccess=20, keepFail=10)
    good, bad = await counts(site, "a")
    assert 20 <= good <= 22
    assert 10 <= bad <= 11


async def test_the_oldest_go_first(site: Site) -> None:
    await runs_of(site, "a", 40, keepSuccess=10)
    kept = [run["runID"] for run in await site.runs(name="a")]
    assert kept == list(range(40, 40 - len(kept), -1))
    assert await site.refused("QueryRun", runID=1) == (404, "No run with this runID")


async def test_names_do_not_displace_each_other(site: Site) -> None:
    await runs_of(site, "a", 5, 5, keepSuccess=10, keepFail=10)
    await runs_of(site, "b", 50, 50, keepSuccess=10, keepFail=10)
    assert await counts(site, "a") == (5, 5)


async def test_failures_do_not_displace_successes(site: Site) -> None:
    await runs_of(site, "a", 10, 0, keepSuccess=10, keepFail=10)
    await runs_of(site, "a", 0, 50, keepSuccess=10, keepFail=10)
    good, bad = await counts(site, "a")
    assert good == 10
    assert 10 <= bad <= 11


async def test_runs_in_progress_are_never_trimmed(site: Site) -> None:
    await site.create("a", keepSuccess=10, keepFail=10)
    first = await site.take("a")
    await runs_of(site, "a", 40, 40, keepSuccess=10, keepFail=10)
    assert (await site.run(first["runID"]))["status"] == "running"
    await site.finish(first)


@pytest.mark.parametrize("option", ["keepSuccess", "keepFail"])
async def test_none_at_all(site: Site, option: str) -> None:
    await runs_of(site, "a", 15, 15, **{"keepSuccess": 10, "keepFail": 10, option: 0})
    good, bad = await counts(site, "a")
    assert (good if option == "keepSuccess" else bad) == 0


async def test_lost_and_stopped_runs_count_as_the_others(site: Site) -> None:
    for _ in range(30):
        await site.create("a", keepFail=10, onLost="fail")
    await site.ok("GetJobs", name="a", numResults=30, worker="w", heartbeat=True)
    await site.silence(46)
    await site.rest()
    good, bad = await counts(site, "a")
    assert good == 0
    assert 10 <= bad <= 11


async def test_the_output_of_a_trimmed_run_goes_with_it(site: Site) -> None:
    await site.create("a", keepSuccess=10)
    job = await site.take("a")
    await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["x"])
    await site.finish(job)
    await runs_of(site, "a", 30, keepSuccess=10)
    assert await site.refused("ReadOutput", runID=job["runID"]) == (404, "No run with this runID")


async def test_the_history_of_a_job_outlives_it(site: Site) -> None:
    await runs_of(site, "a", 1)
    assert await site.state(1) == "(deleted)"
    await site.restart()
    (run,) = await site.runs(name="a")
    assert (run["jobID"], run["status"]) == (1, "success")


POLL_S = 3_600
"""Time between two looks of the server for what is old."""


async def clean(site: Site, seconds: float) -> None:
    """Let time pass, and at least until the server looks for what is old."""
    await site.later(max(seconds, POLL_S))


async def test_old_events_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.EVENTS_KEPT_MAX", 10)
    assert EVENTS_KEPT_MAX > 10
    for number in range(20):
        await site.ok("PauseJobs", name=f"n{number}")
    await clean(site, 1)
    left = await site.select("SELECT name FROM events ORDER BY seq")
    assert [row["name"] for row in left] == [f"n{number}" for number in range(10, 20)]


async def test_output_goes_a_day_after_its_run(site: Site) -> None:
    for name in ("ended", "running"):
        await site.create(name)
        job = await site.take(name)
        await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["text"])
        if name == "ended":
            await site.finish(job)
    await clean(site, OUTPUT_KEPT_S - 5)
    assert len(await site.select("SELECT * FROM output")) == 2
    await clean(site, 10)
    assert [row["runID"] for row in await site.select("SELECT runID FROM output")] == [2]
    assert (await site.run(1))["output"] == ["text"], "its last lines stay with the run"


async def test_a_date_that_was_set_back_delays_nothing(site: Site) -> None:
    await site.later(-400 * 86_400)
    await site.create("a")
    job = await site.take("a")
    await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["text"])
    await site.finish(job)
    await clean(site, OUTPUT_KEPT_S + 5)
    assert await site.select("SELECT * FROM output") == []


async def test_keys_go_after_a_day(site: Site) -> None:
    await site.create("a", idempotencyKey="k")
    await clean(site, KEYS_KEPT_S - 5)
    assert len(await site.select("SELECT * FROM keys")) == 1
    await clean(site, 10)
    assert await site.select("SELECT * FROM keys") == []


async def test_minutes_are_counted(site: Site) -> None:
    await site.until_time("2026-11-21 03:31:00")
    await site.ok("CreateJobs", jobs=[{"name": "a"}, {"name": "a"}])
    await site.create("a")
    await site.later(2)
    await site.finish(await site.take("a"))
    await site.fail(await site.take("a"))
    job = await site.leased("a")
    await site.silence(46)
    await site.end("RetryJob", await site.take("a"))
    assert job["jobID"] == 3
    total = "SELECT * FROM stats WHERE name = '' AND step = 60 AND at > '2026-11-21 03:30'"
    assert await site.select(total) == []
    await site.until_time("2026-11-21 03:32:00")
    await site.create("b")
    (row,) = await site.select(total)
    assert (row["at"], row["created"], row["taken"]) == ("2026-11-21 03:31:00", 3, 4)
    assert (row["finished"], row["failed"], row["retried"], row["lost"]) == (1, 1, 1, 1)
    assert sum(row[f"wait{bucket}"] for bucket in range(15)) == 4
    assert row["wait5"] >= 2, "three of them waited for 2 s or less"


async def test_old_minutes_go(site: Site) -> None:
    await site.create("a")
    await site.later(60)
    await site.create("a")
    await clean(site, 86_400 - 120)
    assert len(await site.select("SELECT * FROM stats WHERE step = 60")) >= 1
    before = (await site.select("SELECT min(at) AS first FROM stats WHERE step = 60"))[0]["first"]
    await clean(site, 200)
    left = await site.select("SELECT at FROM stats WHERE step = 60")
    assert before not in [row["at"] for row in left]


async def test_a_restart_does_not_make_the_history_longer(site: Site) -> None:
    for _ in range(8):
        await runs_of(site, "a", 5, keepSuccess=20)
        await site.restart()
    assert 20 <= (await counts(site, "a"))[0] <= 22


async def test_nor_do_very_many_names(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.COUNTED_MAX", 3)
    assert COUNTED_MAX > 3
    for _ in range(25):
        for name in "abcde":
            await runs_of(site, name, 1, keepSuccess=10)
    for name in "abcde":
        assert 10 <= (await counts(site, name))[0] <= 11


async def test_runs_of_very_many_names_go_after_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.RUNS_KEPT_MAX", 10)
    assert RUNS_KEPT_MAX > 10
    await site.create("running")
    running = await site.take("running")
    for number in range(20):
        await runs_of(site, f"n{number}", 1)
    await clean(site, 1)
    left = sorted(run["runID"] for run in await site.runs())
    assert left == [running["runID"], *range(12, 22)], "the newest, and what is in progress"


async def test_the_ledger_of_a_job_that_is_gone_goes_too(site: Site) -> None:
    for name in ("gone", "there"):
        await site.create(name, repeat="CRON * * * * *")
    await site.until_time("2026-11-21 03:31:00")
    for name in ("gone", "there"):
        job = await site.take(name)
        await site.finish(job, **({"data": {"delete": True}} if name == "gone" else {}))
    assert (await site.state(1), await site.state(2)) == ("(deleted)", "QUEUED")
    await clean(site, 1)
    assert {row["jobID"] for row in await site.select("SELECT jobID FROM ticks")} == {2}


async def test_one_look_deletes_so_many_and_the_next_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.CLEANED_MAX", 4)
    assert CLEANED_MAX > 4
    await site.ok("CreateJobs", jobs=[{"name": "a", "idempotencyKey": f"k{n}"} for n in range(10)])
    left = []
    for seconds in (KEYS_KEPT_S + 5, 1, 1):
        await clean(site, seconds)
        left.append(len(await site.select("SELECT * FROM keys")))
    assert left == [6, 2, 0]
