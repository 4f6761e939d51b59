"""lock and concurrencyKey: no two jobs with the same lock run at once, and so many with the same key."""

from __future__ import annotations

import asyncio

import pytest

from bedrockjobs.base.config import LEASE_S_DEFAULT
from tests.runs.rig import Site


async def test_while_one_runs_no_other_with_the_lock_is_taken(site: Site) -> None:
    await site.create("a", lock="disk")
    await site.create("b", lock="disk")
    await site.create("c", lock="net")
    await site.create("d")
    first = await site.take("*")
    assert first["name"] == "a"
    assert [(await site.take("*"))["name"] for _ in range(2)] == ["c", "d"]
    assert await site.nothing("*")
    assert await site.nothing("b")
    await site.finish(first)
    assert (await site.take("*"))["name"] == "b"


async def test_without_a_worker_too(site: Site) -> None:
    for _ in range(2):
        await site.create("a", lock="disk")
    await site.take("a", None)
    assert await site.nothing("a")
    await site.ok("FinishJob", jobID=1)
    assert (await site.take("a", None))["jobID"] == 2


async def test_true_is_the_jobs_own_name(site: Site) -> None:
    for name in ("a", "a", "b"):
        await site.create(name, lock=True)
    await site.create("other", lock="a")
    assert [(await site.take("*"))["jobID"] for _ in range(2)] == [1, 3]
    assert await site.nothing("*"), "a lock of this name is the same lock"


async def test_getjobs_takes_one_of_each_lock(site: Site) -> None:
    for lock in ("x", "x", "y", "y", "x"):
        await site.create("a", lock=lock)
    jobs = (await site.ok("GetJobs", name="a", numResults=10, worker="w"))["jobs"]
    assert [job["jobID"] for job in jobs] == [1, 3]


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob", "RequeueJobs", "DeleteRun", "lease"])
async def test_however_the_run_ends_the_lock_is_free(site: Site, end: str) -> None:
    await site.create("a", lock="x", onLost="fail")
    await site.create("b", lock="x")
    job = await site.leased("a")
    talk = await site.asking("b")
    assert await talk.silent()
    if end == "lease":
        await site.silence(LEASE_S_DEFAULT + 1)
    elif end == "RequeueJobs":
        await site.ok(end, jobIDs=[1])
    elif end == "DeleteRun":
        await site.end("RetryJob", job, returned=True)
    else:
        await site.end(end, job)
    assert (await talk.reply()).json["name"] == "b", "who waits is woken"


async def test_a_timeout_frees_the_lock(site: Site) -> None:
    await site.create("a", lock="x", runTimeout=10, grace=1, onLost="fail")
    await site.create("b", lock="x")
    await site.take("a")
    talk = await site.asking("b")
    await site.later(10)
    await site.later(1)
    assert await talk.silent()
    await site.later(10)
    assert (await talk.reply()).json["name"] == "b"


async def test_thenget_gets_what_its_own_finish_set_free(site: Site) -> None:
    for _ in range(2):
        await site.create("a", lock="x")
    job = await site.take("a")
    answer = await site.ok("FinishJob", jobID=1, runID=job["runID"], thenGet="a", worker="w")
    assert answer["job"]["jobID"] == 2


async def test_many_waiters_get_one_at_a_time(site: Site) -> None:
    talks = [await site.asking("a") for _ in range(5)]
    jobs = [{"name": "a", "lock": "x"} for _ in range(5)]
    await site.ok("CreateJobs", jobs=jobs)
    for talk in talks:
        job = (await talk.reply()).json
        running = await site.select("SELECT jobID FROM jobs WHERE state = 'RUNNING'")
        assert [row["jobID"] for row in running] == [job["jobID"]]
        await site.finish(job)


async def test_priority_counts_across_locks(site: Site) -> None:
    await site.create("plain", jobPriority=500, firstRun="2026-11-21 03:00:00")
    await site.create("high", jobPriority=1000, lock="x")
    await site.create("higher", jobPriority=1000, lock="y", firstRun="2026-11-21 03:10:00")
    assert [(await site.take("*"))["name"] for _ in range(3)] == ["higher", "high", "plain"]


async def test_nextrun_and_jobid_order_counts_across_lanes(site: Site) -> None:
    for name, lock in (("1", "x"), ("2", ""), ("3", "y"), ("4", "")):
        await site.create(name, firstRun="2026-11-21 03:00:00", **({"lock": lock} if lock else {}))
    assert [(await site.take("*"))["name"] for _ in range(4)] == ["1", "2", "3", "4"]


async def test_a_backlog_under_a_lock_does_not_hide_others(site: Site) -> None:
    jobs = [{"name": "a", "lock": "x", "jobPriority": 1000} for _ in range(500)]
    await site.ok("CreateJobs", jobs=jobs)
    await site.create("z")
    await site.take("*")
    assert (await site.take("*"))["name"] == "z"


async def test_a_retry_obeys_the_lock(site: Site) -> None:
    await site.create("a", lock="x", retries=3, backoff=0)
    await site.create("b", lock="x", firstRun="2026-11-21 03:00:00")
    first = await site.take("b")
    assert await site.nothing("a")
    await site.finish(first)
    job = await site.take("a")
    await site.fail(job)
    await site.create("c", lock="x", jobPriority=1000)
    other = await site.take("*")
    assert other["name"] == "c"
    assert await site.nothing("a")
    await site.finish(other)
    assert (await site.take("a"))["attempt"] == 2


async def test_a_triggered_schedule_obeys_the_lock(site: Site) -> None:
    await site.create("s", lock="x", repeat="CRON @never")
    await site.create("b", lock="x")
    other = await site.take("b")
    await site.ok("TriggerJob", name="s")
    assert await site.nothing("s")
    await site.finish(other)
    assert (await site.take("s"))["name"] == "s"


async def test_a_lock_that_is_set_on_a_running_job_counts(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    await site.create("b", lock="x")
    await site.ok("UpdateJob", jobID=1, lock="x")
    assert await site.nothing("b")
    await site.finish(job)
    assert (await site.take("b"))["name"] == "b"


async def test_a_lock_that_is_taken_from_a_queued_job_counts(site: Site) -> None:
    for name in "ab":
        await site.create(name, lock="x")
    await site.take("a")
    talk = await site.asking("b")
    assert await talk.silent()
    await site.ok("UpdateJob", jobID=2, lock="")
    assert (await talk.reply()).json["name"] == "b"


async def test_a_failed_or_deleted_job_holds_no_lock(site: Site) -> None:
    for name in "abc":
        await site.create(name, lock="x")
    await site.fail(await site.take("a"))
    assert await site.state(1) == "FAILED"
    await site.ok("DeleteJob", jobID=2)
    assert (await site.take("*"))["name"] == "c"


async def test_a_parent_that_waits_for_its_children_holds_no_lock(site: Site) -> None:
    await site.create("p", lock="x")
    parent = await site.take("p")
    await site.create("c", parentJobID=1, lock="x")
    await site.finish(parent)
    child = await site.take("c")
    await site.finish(child)
    assert (await site.take("p"))["jobID"] == 1


async def test_the_lock_with_a_command_of_its_own(site: Site) -> None:
    for _ in range(2):
        await site.create("a", lock="x", cmd="ls")
    assert await site.nothing("a", worker="w")
    first = await site.take("a", accepts=["cmd"])
    assert await site.nothing("a", worker="w", accepts=["cmd"])
    await site.finish(first)
    assert (await site.take("a", accepts=["cmd"]))["jobID"] == 2


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_lock_survives_a_restart(site: Site, how: str) -> None:
    for name in "ab":
        await site.create(name, lock="x")
    job = await site.take("a")
    await getattr(site, how)(down=100)
    assert await site.nothing("b")
    await site.finish(job)
    assert (await site.take("b"))["name"] == "b"


async def test_a_storm_on_one_lock(site: Site) -> None:
    jobs = [{"name": "a", "lock": "x"} for _ in range(60)]
    await site.ok("CreateJobs", jobs=jobs)
    busy = 0
    done: list[int] = []

    async def work() -> None:
        nonlocal busy
        while len(done) < 60:
            reply = await site.http("GetJob", {"name": "a", "worker": "w"})
            if reply.code != 200:
                continue
            busy += 1
            assert busy == 1
            done.append(reply.json["jobID"])
            busy -= 1
            await site.finish(reply.json)

    async with asyncio.timeout(20):
        await asyncio.gather(*(work() for _ in range(6)))
    assert sorted(done) == list(range(1, 61))


async def test_a_refused_list_changes_no_lock(site: Site) -> None:
    await site.create("a", lock="x")
    await site.create("b", lock="x")
    job = await site.take("a")
    again = {"name": "a", "unique": True, "overwrite": True, "lock": "y", "data": {"q": 1}}
    await site.refused("CreateJobs", jobs=[again, {"name": "c", "parentJobID": 999}])
    assert await site.nothing("b"), "its lock is still held"
    await site.finish(job)
    assert (await site.take("b"))["name"] == "b"


async def test_who_waits_hears_of_any_of_very_many_names_under_a_lock(site: Site) -> None:
    for letter in "ab":
        await site.ok("CreateJobs", jobs=[{"name": f"{letter}{n}", "lock": "x"} for n in range(300)])
    job = await site.take("*", None)
    talks = [await site.asking("b*", f"w{number}") for number in range(3)]
    await site.finish(job)
    for talk in talks:
        found = (await talk.reply()).json
        assert found["name"].startswith("b")
        await site.finish(found)


# --- concurrencyKey ------------------------------------------------------------------------------------

KEYED = {"concurrencyKey": "customer-7", "concurrencyLimit": 3}


async def test_so_many_jobs_with_a_key_run_at_once(site: Site) -> None:
    for name in "abcde":
        await site.create(name, **KEYED)
    await site.create("other", concurrencyKey="customer-8")
    taken = [await site.take("*") for _ in range(4)]
    assert [job["name"] for job in taken] == ["a", "b", "c", "other"]
    assert await site.nothing("*")
    talk = await site.asking("e")
    assert await talk.silent()
    await site.finish(taken[1])
    assert (await talk.reply()).json["name"] == "e"
    assert await site.nothing("*")


async def test_without_a_limit_one_runs(site: Site) -> None:
    for _ in range(2):
        await site.create("a", concurrencyKey="k")
    await site.take("a")
    assert await site.nothing("a")


async def test_getjobs_takes_as_many_as_may_run(site: Site) -> None:
    await site.ok("CreateJobs", jobs=[{"name": "a", **KEYED} for _ in range(5)] + [{"name": "a"}])
    jobs = (await site.ok("GetJobs", name="a", numResults=10, worker="w"))["jobs"]
    assert [job["jobID"] for job in jobs] == [1, 2, 3, 6]


async def test_a_lock_is_a_key_with_one_slot(site: Site) -> None:
    await site.create("a", lock="disk")
    await site.create("b", concurrencyKey="disk")
    job = await site.take("*")
    assert await site.nothing("b")
    await site.finish(job)
    assert (await site.take("*"))["name"] == "b"


async def test_waiters_get_each_free_slot(site: Site) -> None:
    talks = [await site.asking("a", f"w{number}") for number in range(6)]
    await site.ok("CreateJobs", jobs=[{"name": "a", **KEYED} for _ in range(6)])
    running = [(await talk.reply()).json for talk in talks[:3]]
    assert await talks[3].silent()
    for job, talk in zip(running, talks[3:], strict=True):
        await site.finish(job)
        assert (await talk.reply()).code == 200


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_the_slots_in_use_survive_a_restart(site: Site, how: str) -> None:
    for _ in range(4):
        await site.create("a", **KEYED)
    jobs = [await site.take("a") for _ in range(3)]
    await getattr(site, how)(down=100)
    assert await site.nothing("a")
    await site.finish(jobs[0])
    assert (await site.take("a"))["jobID"] == 4


async def test_a_changed_limit_counts_for_the_job(site: Site) -> None:
    for _ in range(3):
        await site.create("a", concurrencyKey="k")
    await site.take("a")
    assert await site.nothing("a")
    await site.ok("UpdateJob", jobID=2, concurrencyLimit=2)
    assert (await site.take("a"))["jobID"] == 2
    assert await site.nothing("a")
    await site.ok("UpdateJob", jobID=3, concurrencyKey="", concurrencyLimit="")
    assert (await site.take("a"))["jobID"] == 3


async def test_explain_says_how_many_run(site: Site) -> None:
    for _ in range(4):
        await site.create("a", **KEYED)
    for _ in range(3):
        await site.take("a")
    waits = (await site.ok("ExplainJob", jobID=4))["waitsFor"]
    assert {"reason": "concurrency", "detail": "3 of 3 running with key customer-7"} in waits


# --- a limit per key ------------------------------------------------------------------------------------


async def keys_taken(site: Site, name: str = "*") -> list[str]:
    """Take jobs until there are no more; return their keys."""
    found = []
    while (reply := await site.http("GetJob", {"name": name, "worker": "w"})).code == 200:
        found.append(reply.json.get("concurrencyKey", ""))
    assert reply.code == 404
    return sorted(found)


@pytest.mark.parametrize("name", ["*", "t/*", "t/a"])
async def test_a_limit_per_key_is_that_of_each_key(site: Site, name: str) -> None:
    await site.ok("SetLimit", name="t/*", running=2, perKey=True)
    for key in ("k", "l", "k", "k", "l", "m", "k"):
        await site.create("t/a", concurrencyKey=key)
    for _ in range(3):
        await site.create("t/a")
        await site.create("t/a", lock="x")
        await site.create("u", concurrencyKey="n")
    found = await keys_taken(site, name)
    keyed = ["k", "k", "l", "l", "m"]
    assert [key for key in found if key in ("k", "l", "m")] == keyed
    assert found.count("") == 3 + 1, "without a key all, with a lock one"
    assert found.count("n") == (name == "*"), "other names are not limited by it"
    (limit,) = (await site.ok("ListLimits"))["limits"]
    assert (limit["running"], limit["perKey"], limit["runs"]) == (2, True, 9)
    assert await keys_taken(site, name) == []


@pytest.mark.parametrize("name", ["*", "t/a"])
@pytest.mark.parametrize(
    ("own", "rules", "most"), [(1, [2], 1), (3, [2], 2), (None, [4, 3], 3), (None, [], 1)]
)
async def test_the_smallest_limit_of_a_key_holds(
    site: Site, own: int | None, rules: list[int], most: int, name: str
) -> None:
    options = {"concurrencyKey": "k"} | ({"concurrencyLimit": own} if own else {})
    await site.ok("CreateJobs", jobs=[{"name": "t/a", **options} for _ in range(6)])
    for pattern, running in zip(("t/*", "t/a"), rules, strict=False):
        await site.ok("SetLimit", name=pattern, running=running, perKey=True)
    assert await keys_taken(site, name) == ["k"] * most
    waits = (await site.ok("ExplainJob", jobID=6))["waitsFor"]
    assert {"reason": "concurrency", "detail": f"{most} of {most} running with key k"} in waits


@pytest.mark.parametrize("name", ["*", "t/*", "t/a"])
async def test_a_changed_limit_per_key_holds_at_once(site: Site, name: str) -> None:
    """Also for jobs that a search has found to be blocked, and for a client that waits."""
    await site.ok("CreateJobs", jobs=[{"name": "t/a", "concurrencyKey": "k"} for _ in range(9)])
    assert len(await keys_taken(site, name)) == 1
    await site.ok("SetLimit", name="t/*", running=3, perKey=True)
    assert len(await keys_taken(site, name)) == 2
    talk = await site.asking(name)
    assert await talk.silent()
    await site.ok("SetLimit", name="t/*", running=4, perKey=True)
    job = (await talk.reply()).json
    await site.ok("SetLimit", name="t/*", running=2, perKey=True)
    await site.finish(job)
    assert await keys_taken(site, name) == [], "three still run"
    await site.ok("RemoveLimit", name="t/*")
    assert await keys_taken(site, name) == [], "one may run"
    await site.ok("SetLimit", name="t/*", running=4)
    assert await keys_taken(site, name) == [], "a limit of all keys together is none of a key"


async def test_a_limit_per_key_survives_a_restart(site: Site) -> None:
    await site.ok("SetLimit", name="t/*", running=2, perKey=True)
    await site.ok("CreateJobs", jobs=[{"name": "t/a", "concurrencyKey": "k"} for _ in range(5)])
    await site.take("*")
    await site.crash(down=100)
    assert await keys_taken(site) == ["k"]


async def test_a_limit_per_key_is_one_of_running_jobs_or_of_starts(site: Site) -> None:
    assert await site.refused("SetLimit", name="t/*", queued=5, perKey=True) == (402, "Malformed perKey")
    assert (await site.ok("ListLimits"))["limits"] == []


@pytest.mark.parametrize(
    ("given", "attribute"),
    [
        ({"concurrencyKey": "k", "lock": "x"}, "concurrencyKey"),
        ({"concurrencyKey": "k", "retryAfter": "+1 HOUR"}, "concurrencyKey"),
        ({"concurrencyLimit": 2}, "concurrencyLimit"),
        ({"concurrencyKey": "k", "concurrencyLimit": 0}, "concurrencyLimit"),
        ({"concurrencyKey": "k", "concurrencyLimit": 10_001}, "concurrencyLimit"),
        ({"concurrencyKey": "k\n"}, "concurrencyKey"),
        ({"concurrencyKey": "k" * 256}, "concurrencyKey"),
        ({"concurrencyKey": "k", "repeat": "CRON @daily", "hosts": "all"}, "hosts"),
    ],
)
async def test_what_contradicts_itself_is_refused(
    site: Site, given: dict[str, object], attribute: str
) -> None:
    assert await site.refused("CreateJob", name="a", **given) == (402, f"Malformed {attribute}")
    assert await site.select("SELECT * FROM jobs") == []
