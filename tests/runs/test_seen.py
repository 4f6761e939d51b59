"""Failures that somebody has seen: marked, counted no more, and new again when they fail anew."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import SEEN_AT_ONCE_MAX, SEEN_MAX
from bedrockjobs.store import seen_records
from tests.runs.rig import Site


async def failed(site: Site, name: str = "a", error: str = "it broke", **more: Any) -> tuple[int, int]:
    """Let a job fail for good; return its jobID and the runID."""
    job_id = await site.create(name, **more)
    job = await site.take(name)
    await site.fail(job, error=error)
    return job_id, job["runID"]


async def fail_anew(site: Site, job_id: int, name: str = "a") -> int:
    """Revive a job and let it fail once more; return the runID."""
    await site.ok("RetryJob", jobID=job_id, revive=True)
    job = await site.take(name)
    await site.fail(job, error="it broke")
    return int(job["runID"])


async def unseen(site: Site) -> int:
    return int((await site.ok("Overview"))["unseen"])


async def problems(site: Site) -> list[str]:
    return [problem["detail"] for problem in (await site.ok("Overview"))["problems"]]


async def groups(site: Site, **given: Any) -> dict[str, list[tuple[str, str, int, list[int]]]]:
    """Return what ListFailures lists: state, line, how many are new, and the numbers."""
    found = await site.ok("ListFailures", **given)
    return {
        kind: [
            (group["name"], group["line"], group["unseen"], [one["id"] for one in group["failures"]])
            for group in found[kind]
        ]
        for kind in ("jobs", "runs")
    }


async def test_what_failed_alike_stands_together_the_new_first(site: Site) -> None:
    first, run = await failed(site)
    second, _ = await failed(site)
    other, _ = await failed(site, "b", "exit status 1\nno space")
    found = await groups(site)
    assert found["jobs"] == [("b", "no space", 1, [other]), ("a", "it broke", 2, [second, first])]
    assert [len(numbers) for *_, numbers in found["runs"]] == [1, 2]
    assert await site.ok("MarkSeen", jobIDs=[other], by="ann") == {"jobs": 1, "runs": 0}
    assert [name for name, *_ in (await groups(site))["jobs"]] == ["a", "b"]
    assert (await groups(site, name="b"))["jobs"] == [("b", "no space", 0, [other])]
    (group,) = (await site.ok("ListFailures", name="b"))["jobs"]
    assert (group["failures"][0]["seenBy"], group["failures"][0]["seen"]) == ("ann", site.now[:19])
    await site.ok("MarkSeen", runIDs=[run])
    runs = (await groups(site, name="a"))["runs"]
    assert [(new, len(numbers)) for _, _, new, numbers in runs] == [(1, 2)]


async def test_the_overview_counts_what_nobody_has_seen(site: Site) -> None:
    first, _ = await failed(site)
    second, _ = await failed(site)
    assert "2 jobs have failed" in await problems(site)
    await site.ok("MarkSeen", jobIDs=[first])
    assert "1 job has failed" in await problems(site)
    await site.ok("MarkSeen", jobIDs=[first, second])
    assert not [words for words in await problems(site) if "failed" in words]
    found = await site.ok("Overview")
    assert (found["failed"], found["unseen"]) == (2, 0)
    await site.ok("MarkSeen", jobIDs=[first], seen=False)
    assert await unseen(site) == 1


async def test_it_comes_back_when_it_fails_anew(site: Site) -> None:
    job_id, run = await failed(site)
    await site.ok("MarkSeen", jobIDs=[job_id], runIDs=[run])
    await site.restart()
    assert await unseen(site) == 0
    again = await fail_anew(site, job_id)
    assert await unseen(site) == 1
    assert (await groups(site))["runs"] == [("a", "it broke", 1, [again, run])]


async def test_a_schedule_whose_run_was_seen_is_no_problem_until_it_fails_anew(site: Site) -> None:
    job_id = await site.create("night", repeat="CRON * * * * *")
    await site.ok("TriggerJob", jobID=job_id)
    job = await site.take("night")
    await site.fail(job, error="x")
    assert "the last run of night failed" in await problems(site)
    await site.ok("MarkSeen", runIDs=[job["runID"]])
    assert not [words for words in await problems(site) if "last run" in words]
    await site.later(60)
    await site.fail(await site.take("night"), error="x")
    assert "the last run of night failed" in await problems(site)


async def test_a_schedule_that_was_mended_and_breaks_again_is_new(site: Site) -> None:
    job_id = await site.create("zone", repeat="CRON @daily")
    site.change(f"UPDATE jobs SET state = 'FAILED', memory = '{{\"broken\":true}}' WHERE jobID = {job_id}")
    await site.known()
    assert await site.ok("MarkSeen", jobIDs=[job_id]) == {"jobs": 1, "runs": 0}
    await site.ok("UpdateJob", jobID=job_id, repeat="CRON @hourly")
    assert await site.select("SELECT number FROM seen") == []


async def test_only_what_has_failed_is_marked_and_the_first_who_saw_it_counts(site: Site) -> None:
    queued = await site.create("q")
    job_id, run = await failed(site)
    answer = await site.ok("MarkSeen", jobIDs=[queued, job_id, 99], runIDs=[run, 99], by="ann")
    assert answer == {"jobs": 1, "runs": 1}
    await site.ok("MarkSeen", jobIDs=[job_id], by="bob")
    rows = await site.select('SELECT kind, number, "by" FROM seen ORDER BY kind')
    assert [tuple(row.values()) for row in rows] == [("job", job_id, "ann"), ("run", run, "ann")]


async def test_what_is_refused(site: Site) -> None:
    assert await site.ok("MarkSeen") == {"jobs": 0, "runs": 0}
    many = list(range(1, SEEN_AT_ONCE_MAX + 2))
    assert await site.refused("MarkSeen", jobIDs=many) == (402, "Malformed jobIDs")


async def test_of_very_many_the_oldest_count_as_new_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SEEN_MAX == 10_000
    monkeypatch.setattr(seen_records, "SEEN_MAX", 2)
    jobs = [(await failed(site))[0] for _ in range(3)]
    for job_id in jobs:
        await site.ok("MarkSeen", jobIDs=[job_id])
    rows = await site.select("SELECT number FROM seen ORDER BY number")
    assert [row["number"] for row in rows] == jobs[1:]


async def test_a_schedule_that_somebody_has_killed_waits_for_nobody(site: Site) -> None:
    """What was killed is among no failures, so nobody could mark it as seen."""
    await site.create("nightly", repeat="CRON * * * * *", retries=0)
    for word, runs in (("KillRun", []), ("TerminateRun", []), ("", ["nightly"])):
        await site.later(60)
        job = await site.leased("nightly")
        if word:
            await site.ok(word, runID=job["runID"])
        await site.fail(job, error="it broke")
        assert [name for name, *_ in (await groups(site))["runs"]] == runs, word
        failing = [words for words in await problems(site) if "last run" in words]
        assert bool(failing) == bool(runs), (word, failing)
