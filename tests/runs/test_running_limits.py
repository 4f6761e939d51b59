"""Concurrency limits: which jobs wait, and that they continue when a run ends, in whatever way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bedrockjobs.base.config import RUNNING_LIMIT_MAX, STARTS_MAX, STARTS_PER_S_MAX, STARTS_S_MAX
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest, names_from
from tests.effort import examples
from tests.engines import sqlite_only
from tests.protocol.talk import Talk, request
from tests.runs.rig import LONG_MS, Site
from tests.runs.test_clock_set import set_clock


@pytest.fixture
async def limited(site: Site) -> Site:
    """Return a server on which two of mail/* may run at once, with four such jobs and another one."""
    await site.ok("SetLimit", name="mail/*", running=2)
    for name in ("mail/a", "mail/b", "mail/a", "mail/b", "other"):
        await site.create(name)
    return site


async def test_no_more_run_at_once_than_may(limited: Site) -> None:
    first, second = await limited.take("mail/*"), await limited.take("mail/a")
    assert await limited.nothing("mail/*", worker="w")
    assert (await limited.take("*"))["name"] == "other", "the names of others are not held"
    await limited.finish(first)
    third = await limited.take("mail/*")
    assert third["jobID"] not in (first["jobID"], second["jobID"])
    assert await limited.nothing("mail/*", worker="w")
    (limit,) = (await limited.ok("ListLimits"))["limits"]
    assert (limit["running"], limit["runs"]) == (2, 2)


async def test_one_answer_has_no_more_than_may_run(limited: Site) -> None:
    jobs = (await limited.ok("GetJobs", name="*", numResults=10, worker="w"))["jobs"]
    assert sorted(job["name"] for job in jobs) == ["mail/a", "mail/b", "other"]


@pytest.mark.parametrize("how", ["fail", "retry", "hand back", "delete", "lost"])
async def test_whatever_ends_a_run_lets_the_next_one_begin(limited: Site, how: str) -> None:
    first, _ = await limited.leased("mail/*"), await limited.leased("mail/*")
    waiting = await limited.asking("mail/*", worker="w2")
    fence = {"jobID": first["jobID"], "runID": first["runID"]}
    if how == "fail":
        await limited.ok("FailJob", error="no", **fence)
    elif how == "retry":
        await limited.ok("RetryJob", delay=600, **fence)
    elif how == "hand back":
        await limited.ok("RequeueJobs", jobIDs=[first["jobID"]])
    elif how == "delete":
        await limited.ok("KillRun", runID=first["runID"])
        await limited.ok("FailJob", error="killed", **fence)
    else:
        await limited.beat(_["runID"])
        await limited.silence(40)
        await limited.beat(_["runID"])
        await limited.silence(40)
    reply = await waiting.reply()
    assert reply.code == 200
    assert reply.json["name"].startswith("mail/")
    assert (await limited.ok("ListLimits"))["limits"][0]["runs"] == 2


async def test_what_waits_is_told(limited: Site) -> None:
    for _ in range(2):
        await limited.take("mail/*")
    assert await limited.nothing("mail/*", worker="w")
    waits = min(job["jobID"] for job in (await limited.ok("ListJobs", state="QUEUED"))["jobs"])
    told = (await limited.ok("ExplainJob", jobID=waits))["waitsFor"]
    assert told[0]["reason"] == "limit"
    assert told[0]["detail"] == "mail/* waits for the end of a run: 2 runs in progress, the limit"
    assert not [one for one in (await limited.ok("Overview"))["problems"] if one["kind"] == "paused"]


async def test_a_limit_that_is_raised_or_removed_lets_jobs_go_on(limited: Site) -> None:
    for _ in range(2):
        await limited.take("mail/*")
    assert await limited.nothing("mail/*", worker="w")
    await limited.ok("SetLimit", name="mail/*", running=3)
    await limited.take("mail/*")
    assert await limited.nothing("mail/*", worker="w")
    await limited.ok("RemoveLimit", name="mail/*")
    await limited.take("mail/*")
    assert (await limited.ok("ListPauses"))["pauses"] == []


async def test_it_is_no_pause_of_a_person(limited: Site) -> None:
    first = await limited.take("mail/*")
    await limited.take("mail/*")
    assert await limited.nothing("mail/*", worker="w")
    await limited.refused("ResumeJobs", name="mail/*")
    assert await limited.nothing("mail/*", worker="w")
    await limited.ok("PauseJobs", name="mail/*", reason="no post today", by="(limit)")
    await limited.finish(first)
    assert await limited.nothing("mail/*", worker="w"), "a person's pause stays"
    await limited.ok("ResumeJobs", name="mail/*")
    await limited.take("mail/*")
    assert await limited.nothing("mail/*", worker="w")


async def test_a_schedule_that_had_to_wait_runs_then(site: Site) -> None:
    await site.ok("SetLimit", name="mail/*", running=1)
    first = await site.create("mail/a")
    taken = await site.take("mail/a")
    schedule = await site.create("mail/nightly", repeat="CRON * * * * *")
    await site.later(60)
    assert await site.nothing("mail/*", worker="w")
    await site.later(4)
    assert await site.nothing("mail/*", worker="w")
    await site.finish(taken)
    assert (await site.take("mail/*"))["jobID"] == schedule != first


async def test_who_gives_no_name_and_what_is_triggered_is_not_limited(limited: Site) -> None:
    for _ in range(2):
        await limited.take("mail/*")
    queued = [job["jobID"] for job in (await limited.ok("ListJobs", state="QUEUED"))["jobs"]]
    await limited.ok("TriggerJob", jobID=queued[0])
    assert (await limited.take("mail/*"))["jobID"] == queued[0]
    assert await limited.nothing("mail/*", worker="w")


async def test_it_outlasts_a_restart(limited: Site) -> None:
    first = await limited.leased("mail/*")
    await limited.leased("mail/*")
    assert await limited.nothing("mail/*", worker="w")
    await limited.restart()
    assert await limited.nothing("mail/*", worker="w")
    await limited.finish(first)
    await limited.take("mail/*")


async def test_what_is_no_limit_is_refused(site: Site) -> None:
    refused = (402, "Missing limit")
    assert await site.refused("SetLimit", name="a", running=0) == refused
    assert (await site.refused("SetLimit", name="a", running=RUNNING_LIMIT_MAX + 1))[0] == 402


async def waits(site: Site, name: str) -> Talk:
    """Send a GetJob that waits; return its connection."""
    talk = await site.connect()
    talk.send(request("GetJob", name=name, worker="w", Connection="wait", timeout=LONG_MS))
    return talk


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets what is asked for by each look for a job from now on."""
    looks: list[str] = []
    look = take.take

    def counting(context: Context, asked: TakeRequest, only: Job | None = None) -> Answer | None:
        looks.append(asked.names.single or asked.names.patterns[0])
        return look(context, asked, only)

    monkeypatch.setattr(take, "take", counting)
    return looks


@sqlite_only("on PostgreSQL, writing a pause makes each server retry all waiters, including its own")
async def test_the_end_of_a_run_wakes_no_more_than_there_is_room_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many waiters, each for another name, only the oldest looks for a job, and it is served."""
    await site.ok("SetLimit", name="mail/*", running=2)
    for _ in range(2):
        await site.create("mail/first")
    first, second = await site.take("mail/*"), await site.take("mail/*")
    names = [f"mail/{number}" for number in range(examples(200, night=1_000))]
    talks = [await waits(site, name) for name in names[:1]]
    await site.waiting(1)
    talks += [await waits(site, name) for name in names[1:]]
    others = [await waits(site, f"other/{number}") for number in range(10)]
    await site.waiting(len(names) + len(others))
    await site.ok("CreateJobs", jobs=[{"name": name} for name in names])
    looks = counted(monkeypatch)
    await site.finish(first)
    assert (await talks[0].reply()).json["name"] == names[0]
    await site.settle()
    assert looks == names[:1]
    await site.finish(second)
    await site.waiting(len(names) - 2 + len(others))
    assert len(looks) == 2
    assert await site.nothing("mail/*", worker="w")
    assert (await site.ok("ListLimits"))["limits"][0]["runs"] == 2


async def test_those_for_whom_there_is_nothing_are_passed_by(limited: Site) -> None:
    """In the order in which they came; and they are served when there is something."""
    first, _ = await limited.take("mail/*"), await limited.take("mail/*")
    for name in ("mail/none", "none/*", "mail/[ab]", "mail/*"):
        await limited.asking(name)
    await limited.finish(first)
    await limited.waiting(3)
    await limited.ok("SetLimit", name="mail/*", running=9)
    await limited.waiting(2)
    await limited.create("mail/none")
    await limited.waiting(1)
    await limited.create("none/x")
    await limited.waiting(0)


async def test_those_who_are_left_when_many_are_let_go_on_follow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.engine.batch.SERVED_AT_ONCE_MAX", 2)
    await site.ok("SetLimit", name="mail/*", running=1)
    for number in range(7):
        await site.create(f"mail/{number}")
    await site.take("mail/*")
    for number in range(1, 7):
        await site.asking(f"mail/{number}")
    await site.ok("RemoveLimit", name="mail/*")
    await site.waiting(0)


@pytest.mark.parametrize(
    ("asked", "pattern", "may"),
    [
        ("mail/a,mail/b", "mail/*", True),
        ("mail/a,x", "mail/*", True),
        ("x,y", "mail/*", False),
        ("mail/*", "mail/a*", True),
        ("m*", "mail/*", True),
        ("x*", "mail/*", False),
        ("*", "a", True),
        ("*a", "mail/*", True),
        ("mail/[ab]", "mail/*", True),
    ],
)
def test_who_may_ask_for_names_of_a_pattern(asked: str, pattern: str, may: bool) -> None:
    names = names_from(asked, None)
    assert names is not None
    assert names.may_match(pattern) == may


# --- starts --------------------------------------------------------------------------------------------


@pytest.fixture
async def paced(site: Site) -> Site:
    """Return a server on which three of api/* may start in a minute, with eight such jobs and another one."""
    await site.ok("SetLimit", name="api/*", starts="3/1m")
    await site.ok("CreateJobs", jobs=[{"name": f"api/{number}"} for number in range(8)] + [{"name": "other"}])
    return site


async def drained(site: Site, name: str = "api/*", worker: str | None = "w") -> int:
    """Take jobs until there is none; return how many there were."""
    count = 0
    while (await site.ask("GetJob", name=name, **({"worker": worker} if worker else {}))).code == 200:
        count += 1
    return count


@pytest.mark.parametrize("worker", ["w", None])
async def test_starts_come_at_their_rate(paced: Site, worker: str | None) -> None:
    assert await drained(paced, worker=worker) == 3
    assert (await paced.take("*", worker))["name"] == "other", "the names of others are not held"
    for seconds, count in ((19, 0), (1.1, 1), (20, 1), (40, 2), (0, 0)):
        await paced.later(seconds)
        assert await drained(paced, worker=worker) == count
    await paced.later(600)
    assert await drained(paced, worker=worker) == 1


async def test_one_reply_has_no_more_than_may_start(paced: Site) -> None:
    jobs = (await paced.ok("GetJobs", name="*", numResults=10, worker="w"))["jobs"]
    assert sorted(job["name"] for job in jobs) == ["api/0", "api/1", "api/2", "other"]


async def test_a_burst_of_one_spaces_starts_evenly(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/*", starts="3/1m", burst=1)
    for _ in range(3):
        assert await drained(paced) == 1
        await paced.later(20.001)


async def test_waiters_get_jobs_at_the_rate(paced: Site) -> None:
    assert await drained(paced) == 3
    talks = [await paced.asking("api/*", f"w{number}") for number in range(2)]
    assert await talks[0].silent()
    for talk in talks:
        await paced.later(20.001)
        assert (await talk.reply()).code == 200
    await paced.waiting(0)


async def test_a_take_after_an_end_is_limited_too(paced: Site) -> None:
    for _ in range(2):
        await paced.take("api/*", None)
    answer = await paced.ok("FinishJob", jobID=1, thenGet="api/*")
    assert answer["job"]["jobID"] == 3
    assert (await paced.ok("FinishJob", jobID=2, thenGet="api/*"))["job"] is None


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_the_rate_outlasts_a_restart(paced: Site, how: str) -> None:
    assert await drained(paced) == 3
    await getattr(paced, how)(down=0)
    assert await drained(paced) == 0
    await paced.later(20.001)
    assert await drained(paced) == 1


async def test_a_clock_that_is_set_back_holds_nobody_for_long(paced: Site) -> None:
    assert await drained(paced) == 3
    await set_clock(paced, timedelta(days=-1))
    await paced.ok("CreateJobs", jobs=[{"name": "api/now"}] * 8)
    assert await drained(paced) == 0
    await paced.later(20.001)
    assert await drained(paced) == 1
    await paced.later(60.001)
    assert await drained(paced) == 3


async def test_a_triggered_job_does_not_wait_but_counts(paced: Site) -> None:
    assert await drained(paced) == 3
    await paced.ok("TriggerJob", jobID=4)
    assert await drained(paced) == 1
    await paced.later(20.001)
    assert await drained(paced) == 0
    await paced.later(20)
    assert await drained(paced) == 1


async def test_when_the_next_one_starts_is_told(paced: Site) -> None:
    assert await drained(paced) == 3
    (limit,) = (await paced.ok("ListLimits"))["limits"]
    assert (limit["starts"], limit["burst"]) == ("3/1m", 0)
    told = (await paced.ok("ExplainJob", jobID=4))["waitsFor"][0]
    assert told["reason"] == "limit"
    assert told["detail"] == f"api/* waits until {limit['nextStart']}: next start by 3/1m"
    assert not [one for one in (await paced.ok("Overview"))["problems"] if one["kind"] == "paused"]
    await paced.later(20.001)
    assert (await paced.ok("ListLimits"))["limits"][0]["nextStart"] == ""


async def test_a_rate_that_is_removed_holds_nothing(paced: Site) -> None:
    assert await drained(paced) == 3
    talk = await paced.asking("api/*")
    await paced.ok("RemoveLimit", name="api/*")
    assert (await talk.reply()).code == 200
    await paced.ok("SetLimit", name="api/*", starts="3/1m")
    assert await drained(paced) == 3, "it begins anew"


async def test_both_limits_hold(paced: Site) -> None:
    await paced.ok("SetLimit", name="api/*", starts="3/1m", running=2)
    first = await paced.take("api/*")
    await paced.take("api/*")
    assert await paced.nothing("api/*", worker="w")
    await paced.finish(first)
    await paced.take("api/*")
    assert await paced.nothing("api/*", worker="w")


async def test_fast_rates_are_reached(site: Site) -> None:
    """Starts due within the same 50 ms come together, so that a rate of 1,000 a second needs few pauses."""
    await site.ok("SetLimit", name="api/*", starts="1000/1s", burst=1)
    await site.ok("CreateJobs", jobs=[{"name": "api/x"}] * 500)
    counts = []
    for _ in range(4):
        counts.append(len((await site.ok("GetJobs", name="api/*", numResults=500))["jobs"]))
        await site.later(0.05)
    assert counts[0] == 51
    assert all(49 <= count <= 51 for count in counts[1:])
    assert 200 <= sum(counts) <= 202


@pytest.mark.parametrize(
    ("given", "attribute"),
    [
        ({"starts": "0/1m"}, "starts"),
        ({"starts": "100"}, "starts"),
        ({"starts": "100/0s"}, "starts"),
        ({"starts": f"1/{STARTS_S_MAX + 1}s"}, "starts"),
        ({"starts": f"{STARTS_MAX + 1}/31d"}, "starts"),
        ({"starts": f"{STARTS_PER_S_MAX + 1}/1s"}, "starts"),
        ({"starts": 3}, "starts"),
        ({"starts": "1/1m", "burst": STARTS_MAX + 1}, "burst"),
        ({"running": 1, "burst": 3}, "burst"),
    ],
)
async def test_a_rate_no_clock_can_keep_is_refused(
    site: Site, given: dict[str, object], attribute: str
) -> None:
    assert await site.refused("SetLimit", name="a", **given) == (402, f"Malformed {attribute}")
    assert (await site.ok("ListLimits"))["limits"] == []
