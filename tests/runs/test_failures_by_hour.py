"""The hours of a group of failures: its failed runs of the last 24 hours, by the hour of their start."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bedrockjobs.base.clock import after_seconds
from tests.runs.bearer import admin_of
from tests.runs.rig import Site

HOUR_S, DAY_S = 3_600, 86_400


async def failed(site: Site, name: str = "a", worker: str | None = "w", **more: Any) -> int:
    """Let a job fail; return its jobID."""
    job_id = await site.create(name, **more)
    await site.fail(await site.take(name, worker), error="it broke")
    return job_id


async def hours(site: Any, kind: str = "jobs", **given: Any) -> dict[int, int]:
    """Return the hours of the only group that has some: by how many hours ago each ends."""
    (group,) = (await site.ok("ListFailures", **given))[kind]
    counts = group["hours"]
    assert len(counts) in (0, 24)
    return {ago: count for ago, count in enumerate(reversed(counts)) if count}


async def test_each_run_counts_in_the_hour_in_which_it_started(site: Site) -> None:
    await failed(site)
    await site.later(HOUR_S / 2)
    await failed(site)
    assert await hours(site) == {0: 2}
    await site.later(HOUR_S / 2)
    assert await hours(site) == {0: 2}, "the first is at the edge of the hour"
    await site.later(0.001)
    assert await hours(site) == {0: 1, 1: 1}
    await failed(site)
    await site.later(23 * HOUR_S - 0.001)
    assert await hours(site) == {22: 1, 23: 2}
    await site.later(0.001)
    assert await hours(site) == {22: 1, 23: 1}, "the first is older than a day, the third at an edge"
    await site.later(2 * HOUR_S)
    assert await hours(site) == {}


async def test_a_long_run_counts_when_it_started(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    await site.later(2 * HOUR_S + 60)
    await site.fail(job, error="it broke")
    assert await hours(site) == {2: 1}


async def test_failed_jobs_and_their_earlier_runs_have_the_same_hours(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    for _ in range(2):
        await site.later(HOUR_S)
        await site.fail(await site.take("a"), error="it broke")
    assert await hours(site) == await hours(site, "runs") == {0: 2}
    await site.later(60)
    assert await hours(site) == await hours(site, "runs") == {0: 1, 1: 1}


async def test_failures_without_runs_have_no_hours(site: Site) -> None:
    await failed(site, worker=None)
    assert await hours(site) == {}


async def test_runs_that_are_no_longer_kept_do_not_count(site: Site) -> None:
    for _ in range(5):
        await failed(site, keepFail=3)
    assert await hours(site) == {0: 3}
    runs = await site.select("SELECT runID FROM runs ORDER BY runID")
    await site.ok("DeleteRuns", runIDs=[runs[0]["runID"]])
    assert await hours(site) == {0: 2}


async def test_a_caller_counts_only_names_that_it_may_see(site: Site) -> None:
    admin = await admin_of(site)
    mine = await admin.token_for("mine", "operate", "mine/*")
    for name in ("mine/a", "mine/b", "others"):
        await admin.ok("CreateJob", name=name)
        job = await admin.ok("GetJob", name=name, worker="w")
        await admin.ok("FailJob", jobID=job["jobID"], runID=job["runID"], error="it broke")
    assert await hours(admin) == {0: 3}
    assert await hours(mine) == await hours(admin, name="mine/*") == {0: 2}
    assert await hours(mine, name="mine/b") == {0: 1}


async def test_later_pages_of_one_group_have_no_hours(site: Site) -> None:
    for _ in range(101):
        await failed(site)
    first = await site.ok("ListFailures", name="a")
    fingerprint = first["jobs"][0]["fingerprint"]
    first = await site.ok("ListFailures", fingerprint=fingerprint)
    assert sum(first["jobs"][0]["hours"]) == 101
    assert await hours(site, fingerprint=fingerprint, before=first["before"]) == {}


RUN = (
    "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, ended, worker, status,"
    " error, fingerprint) VALUES "
)


@pytest.mark.parametrize("seed", range(3))
async def test_hours_are_those_of_the_rows(site: Site, seed: int) -> None:
    """RunIDs are missing, some runs are of others or no failures, and some were stored when they ended."""
    random = Random(seed)
    await failed(site, "of/job")
    (known,) = (await site.ok("ListFailures"))["jobs"]
    await site.later(4 * DAY_S)
    now, run_id, ago_s = site.now, 100, 3 * DAY_S
    rows: list[str] = []
    expected: dict[str, dict[int, int]] = {"of/*": {}, "of/b": {}}
    while ago_s > 0:
        run_id += random.choice((1, 1, 2, 50, 5_000))
        ago_s = max(ago_s - random.choice((0, 1, 30, 600, 900, HOUR_S)), 0)
        at = after_seconds(now, -ago_s)
        name, status, worker, fingerprint, started = (
            random.choice(("of/a", "of/b", "out")),
            "fail",
            "w",
            "",
            at,
        )
        if random.random() < 0.3:
            status = "success"
            if random.random() < 0.5:  # kept, of a take without a worker
                worker, started = "", after_seconds(at, -2 * DAY_S)
        else:
            fingerprint = random.choice((known["fingerprint"], "f" * 16))
        rows.append(
            f"({run_id}, {run_id}, '{name}', 1, 'manual', '{started}', '{started}', '{at}', '{worker}',"
            f" '{status}', 'it broke', '{fingerprint}')"
        )
        if fingerprint == known["fingerprint"] and ago_s <= DAY_S:
            place = max((ago_s - 1) // HOUR_S, 0)
            for pattern in ("of/*", "of/b"):
                if name.startswith(pattern.rstrip("*")):
                    expected[pattern][place] = expected[pattern].get(place, 0) + 1
    await site.change(RUN + ", ".join(rows))
    for pattern, counts in expected.items():
        found = await hours(site, "runs", name=pattern, fingerprint=known["fingerprint"])
        assert found == counts, pattern
