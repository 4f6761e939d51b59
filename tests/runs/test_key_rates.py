"""Limits of starts per key: each concurrency key has a token bucket of its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bedrockjobs.job.limits import limits_from, text_of_limits
from tests.runs.rig import Site
from tests.runs.test_clock_set import set_clock


@pytest.fixture
async def paced(site: Site) -> Site:
    """Return a server on which three jobs of api/* with one key may start in a minute."""
    await site.ok("SetLimit", name="api/*", starts="3/1m", perKey=True)
    return site


async def add(site: Site, keys: str, name: str = "api/x") -> None:
    """Create a job for each letter, which is its key; ``-`` has none."""
    jobs = [{"name": name, **({} if key == "-" else {"concurrencyKey": key})} for key in keys]
    own = [{"concurrencyLimit": 10} if "concurrencyKey" in job else {} for job in jobs]
    await site.ok("CreateJobs", jobs=[job | limit for job, limit in zip(jobs, own, strict=True)])


async def started(site: Site, name: str = "*", worker: str | None = "w") -> str:
    """Take and finish every job that is due; return their keys, in the order in which they were taken."""
    found = ""
    asked = {"name": name, **({"worker": worker} if worker else {})}
    while (reply := await site.ask("GetJob", **asked)).code == 200:
        found += reply.json.get("concurrencyKey", "-")
        run = {"runID": reply.json["runID"]} if worker else {}
        await site.ok("FinishJob", jobID=reply.json["jobID"], **run)
    assert reply.code == 404
    return found


@pytest.mark.parametrize("worker", ["w", None])
@pytest.mark.parametrize("name", ["*", "api/*", "api/x", "api/x,api/y"])
async def test_each_key_starts_at_its_own_rate(paced: Site, name: str, worker: str | None) -> None:
    await add(paced, "aaaaaabab-aabb-")
    assert await started(paced, name, worker) == "aaabb-b-"
    for seconds, more in ((19, ""), (1.1, "ab"), (20, "a"), (40, "aa"), (0, "")):
        await paced.later(seconds)
        assert await started(paced, name, worker) == more


async def test_one_reply_has_no_more_than_may_start(paced: Site) -> None:
    await add(paced, "aaaabaab")
    jobs = (await paced.ok("GetJobs", name="*", numResults=10, worker="w"))["jobs"]
    assert [job["jobID"] for job in jobs] == [1, 2, 3, 5, 8]


async def test_a_burst_of_one_spaces_the_starts_of_a_key(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/*", starts="3/1m", burst=1, perKey=True)
    await add(paced, "aaabbb")
    for _ in range(3):
        assert await started(paced) == "ab"
        await paced.later(20.001)


@pytest.mark.parametrize("name", ["*", "other/x"])
async def test_jobs_of_other_names_with_the_key_do_not_wait(paced: Site, name: str) -> None:
    await add(paced, "aaaaa")
    assert await started(paced) == "aaa"
    await add(paced, "aa", "other/x")
    assert await started(paced, name) == "aa"
    assert await started(paced) == ""


async def test_the_slowest_of_two_rates_holds(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/x", starts="1/1h", perKey=True)
    await add(paced, "aab")
    await add(paced, "aaa", "api/y")
    assert await started(paced) == "abaa"
    await paced.later(3_600)
    assert await started(paced) == "aa"


async def test_a_rate_holds_beside_a_limit_of_running_jobs(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/*", starts="3/1m", running=2, perKey=True)
    await add(paced, "aaaaab")
    taken = [await paced.take("*") for _ in range(3)]
    assert [job["concurrencyKey"] for job in taken] == ["a", "a", "b"]
    await paced.finish(taken[0])
    await paced.finish(taken[1])
    assert await started(paced) == "a"


@pytest.mark.parametrize("name", ["*", "api/*", "api/x"])
async def test_who_waits_gets_a_job_at_the_next_start_of_a_key(paced: Site, name: str) -> None:
    await add(paced, "aaaaa")
    assert await started(paced) == "aaa"
    talks = [await paced.asking(name, f"w{number}") for number in range(2)]
    for talk in talks:
        assert await talk.silent()
        await paced.later(20.001)
        assert (await talk.reply()).json["concurrencyKey"] == "a"
    await paced.waiting(0)


async def test_who_waits_before_a_job_is_created_gets_it_at_the_next_start(paced: Site) -> None:
    await add(paced, "aaa")
    assert await started(paced) == "aaa"
    talks = [await paced.asking("api/*", "w1"), await paced.asking("api/x", "w2")]
    await add(paced, "aa")
    assert await talks[0].silent()
    await paced.later(20.001)
    assert (await talks[0].reply()).json["concurrencyKey"] == "a"
    await paced.later(20.001)
    assert (await talks[1].reply()).json["concurrencyKey"] == "a"


async def test_who_waits_gets_the_job_of_another_key_at_once(paced: Site) -> None:
    await add(paced, "aaaa")
    assert await started(paced) == "aaa"
    talk = await paced.asking("api/*")
    await add(paced, "ab")
    assert (await talk.reply()).json["concurrencyKey"] == "b"


async def test_a_take_after_an_end_skips_a_key_too(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/*", starts="1/1m", perKey=True)
    await add(paced, "aab")
    await paced.take("api/*", None)
    assert (await paced.ok("FinishJob", jobID=1, thenGet="api/*"))["job"]["jobID"] == 3
    assert (await paced.ok("FinishJob", jobID=3, thenGet="api/*"))["job"] is None


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_the_rate_outlasts_a_restart(paced: Site, how: str) -> None:
    await add(paced, "aaaaab")
    assert await started(paced) == "aaab"
    await getattr(paced, how)(down=0)
    await add(paced, "b")
    assert await started(paced) == "b"
    talk = await paced.asking("*")
    assert await talk.silent()
    await paced.later(20.001)
    assert (await talk.reply()).code == 200


async def test_a_clock_that_is_set_back_holds_no_key_for_long(paced: Site) -> None:
    await add(paced, "aaa")
    assert await started(paced) == "aaa"
    await set_clock(paced, timedelta(days=-1))
    await add(paced, "aaaaa")
    assert await started(paced) == ""
    await paced.later(20.001)
    assert await started(paced) == "a"
    await paced.later(60.001)
    assert await started(paced) == "aaa"


async def test_a_triggered_job_does_not_wait_but_counts(paced: Site) -> None:
    await add(paced, "aaaaaa")
    assert await started(paced) == "aaa"
    await paced.ok("TriggerJob", jobID=4)
    assert await started(paced) == "a"
    await paced.later(20.001)
    assert await started(paced) == ""
    await paced.later(20)
    assert await started(paced) == "a"


async def test_a_rate_that_is_changed_or_removed_holds_at_once(paced: Site) -> None:
    await add(paced, "aaaaaaaaaa")
    assert await started(paced) == "aaa"
    talk = await paced.asking("api/*")
    await paced.ok("SetLimit", name="api/*", starts="3/1m", burst=4, perKey=True)
    assert (await talk.reply()).code == 200
    await paced.ok("SetLimit", name="api/*", starts="1/1h", perKey=True)
    await paced.later(60)
    assert await started(paced) == ""
    talk = await paced.asking("api/x")
    await paced.ok("RemoveLimit", name="api/*")
    assert (await talk.reply()).code == 200
    await paced.ok("SetLimit", name="api/*", starts="3/1m", perKey=True)
    assert await started(paced) == "aaa", "the new limit starts with a full bucket"
    await paced.ok("SetLimit", name="api/*", starts="1/1m")
    assert await started(paced) == "a", "of all keys together"


async def test_when_a_key_may_start_is_told(paced: Site) -> None:
    await add(paced, "aaaaa")
    assert await started(paced) == "aaa"
    await paced.later(8)
    waits = (await paced.ok("ExplainJob", jobID=4))["waitsFor"]
    assert {"reason": "limit", "detail": "next start in 12 s by 3/1m with key a"} in waits
    (limit,) = (await paced.ok("ListLimits"))["limits"]
    assert (limit["starts"], limit["perKey"], limit["nextStart"]) == ("3/1m", True, "")
    await paced.later(600)
    assert not (await paced.ok("ExplainJob", jobID=4))["waitsFor"][:-1]


async def test_jobs_whose_key_waits_are_counted_as_blocked(paced: Site) -> None:
    await add(paced, "aaaaa")
    assert await started(paced) == "aaa"
    await add(paced, "a", "other")
    overview = await paced.ok("Overview")
    assert (overview["blocked"], overview["ready"]) == (2, 1)
    assert not [one for one in overview["problems"] if one["kind"] == "blocked"]
    await paced.later(21)
    assert (await paced.ok("Overview"))["blocked"] == 0


async def test_buckets_that_are_full_leave_nothing(paced: Site) -> None:
    await add(paced, "abcdefghij")
    await started(paced)
    assert len(await paced.select("SELECT key FROM paced")) == 10
    await paced.later(2 * 3_600)
    assert await paced.select("SELECT key FROM paced") == []


async def test_a_key_of_very_many_jobs_holds_back_no_other(paced: Site) -> None:
    for _ in range(20):
        await add(paced, "a" * 500)
    await add(paced, "b")
    assert await started(paced) == "aaab"


async def test_what_is_limited_is_noted(paced: Site) -> None:
    (event,) = await paced.events("limit set")
    assert event["detail"] == "3/1m starts with each key"


def test_a_limit_that_an_earlier_version_stored_has_its_burst() -> None:
    stored = '[["api/*", 0, 0, 2, "ann", "2026-11-21 03:29:56", "3/1m", 0, "api/.*"]]'
    (limit,) = limits_from(stored)
    assert (limit.starts_by_key, limit.ahead_us) == ("3/1m", 40_000_000)
    assert limits_from(text_of_limits([limit])) == (limit,)
