"""Schedules with hosts: all, whose ticks create a job for each live worker."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.engine import maintenance
from bedrockjobs.engine.maintenance import SETTLE_S
from tests.runs.rig import Site

TICK, NEXT, THIRD = "2026-11-21 04:00:00", "2026-11-21 05:00:00", "2026-11-21 06:00:00"


async def schedule(site: Site, repeat: str = "CRON 0 * * * *", **more: Any) -> None:
    """Make a schedule that runs on all hosts, and let two workers be there."""
    await site.create("s", repeat=repeat, hosts="all", **more)
    for worker in ("v", "w"):
        await site.beat(worker=worker, names=["*"])


async def workers_that_get_it(site: Site, **more: Any) -> list[str]:
    """Let three workers ask for a job; return those that get one."""
    found = []
    for worker in ("u", "v", "w"):
        reply = await site.http("GetJob", {"name": "s", "worker": worker, **more})
        if reply.code == 200:
            found.append(worker)
            await site.finish(reply.json)
    return found


async def test_each_worker_gets_its_own(site: Site) -> None:
    await schedule(site, data={"n": 1}, runTimeout=60)
    await site.until_time(TICK)
    for worker in ("v", "w"):
        job = await site.take("s", worker)
        assert (job["data"], job["runTimeout"], job["repeat"]) == ({"n": 1}, 60, "")
        run = await site.run(job["runID"])
        assert (run["scheduledFor"], run["cause"]) == (TICK, "queue")
        assert await site.nothing("s", worker=worker), "one each"
        await site.finish(job)
    assert await site.due(1) == NEXT
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]
    assert len(await site.select("SELECT * FROM jobs")) == 1, "nothing is left of them"


async def test_nobody_else_gets_it(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    assert await site.nothing("s", worker="u")
    assert await site.nothing("s"), "nor does who names no worker"
    assert await workers_that_get_it(site) == ["v", "w"]


async def test_who_waits_gets_it_in_its_moment(site: Site) -> None:
    await schedule(site, "CRON * * * * *")
    talks = {worker: await site.asking("s", worker) for worker in ("v", "w")}
    await site.until_time("2026-11-21 03:30:00")
    for worker, talk in talks.items():
        job = (await talk.reply()).json
        assert (await site.run(job["runID"]))["worker"] == worker


async def test_those_who_wait_are_served_from_the_rest_as_before(site: Site) -> None:
    await schedule(site, "CRON * * * * *")
    talk = await site.asking("*", "w")
    await site.until_time("2026-11-21 03:30:00")
    job = (await talk.reply()).json
    assert job["name"] == "s"
    talk = await site.asking("*", "w")
    await site.create("plain")
    assert (await talk.reply()).json["name"] == "plain"


async def test_who_joins_later_gets_the_next(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    await site.beat(worker="u", names=["s"])
    assert await workers_that_get_it(site) == ["v", "w"]
    await site.until_time(NEXT)
    assert await workers_that_get_it(site) == ["u", "v", "w"]


async def test_no_worker_at_all(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *", hosts="all")
    await site.until_time(TICK)
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "no worker")]
    assert await site.due(1) == NEXT
    waits = (await site.ok("ExplainJob", jobID=1))["waitsFor"]
    assert [wait["reason"] for wait in waits] == ["nextRun", "no worker"]


async def test_those_that_may_not(site: Site) -> None:
    """One asks for other names, one is drained, one is quiet, one does not accept the command."""
    await site.create("s", repeat="CRON * * * * *", hosts="all", cmd="true")
    for worker in ("other", "drained", "quiet", "plain", "good"):
        names = "x*" if worker == "other" else "s"
        accepts = [] if worker == "plain" else ["cmd"]
        await site.asking(names, worker, **({"accepts": "cmd"} if accepts else {}))
    await site.beat(worker="quiet", names=["s"], quiet=True)
    await site.ok("DrainWorker", worker="drained")
    await site.until_time("2026-11-21 03:30:00")
    assert [run["worker"] for run in await site.runs()] == ["good"]
    assert await site.select("SELECT * FROM jobs WHERE jobID > 1 AND state <> 'RUNNING'") == []


async def test_one_that_is_still_busy_is_left_out(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.take("s", "v")
    await site.finish(await site.take("s", "w"))
    await site.until_time(NEXT)
    assert await workers_that_get_it(site) == ["w"]
    await site.finish(job)
    await site.until_time(THIRD)
    assert await workers_that_get_it(site) == ["u", "v", "w"], "the third asked, so it is there now"


async def test_with_overlap_queue_it_is_not(site: Site) -> None:
    await schedule(site, overlap="queue")
    await site.until_time(TICK)
    await site.take("s", "v")
    await site.until_time(NEXT)
    assert "v" in await workers_that_get_it(site)


async def test_what_its_worker_does_not_take_is_dropped_before_the_next_tick(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    assert len(await site.select("SELECT * FROM jobs WHERE jobID > 1")) == 2
    await site.until_time("2026-11-21 04:59:59.500")
    assert await site.select("SELECT * FROM jobs WHERE jobID > 1") == []
    assert len(await site.events("expired")) == 2


async def test_a_failed_one_leaves_its_run_alone(site: Site) -> None:
    await schedule(site, retries=1, backoff=0)
    await site.until_time(TICK)
    await site.fail(await site.take("s", "v"), error="no")
    job = await site.take("s", "v")
    assert (await site.run(job["runID"]))["cause"] == "retry"
    assert await site.nothing("s", worker="u")
    await site.fail(job, error="no")
    assert await site.state(job["jobID"]) == "(deleted)"
    assert [run["status"] for run in await site.runs(name="s")] == ["fail", "fail"]
    assert len(await site.events("failed")) == 1


async def test_a_lost_one_waits_for_its_worker(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.leased("s", "v")
    await site.silence(46)
    assert await site.state(job["jobID"]) == "QUEUED"
    assert await site.nothing("s", worker="u")
    assert (await site.take("s", "v"))["jobID"] == job["jobID"]


async def test_trigger(site: Site) -> None:
    await schedule(site)
    await site.ok("PauseJobs", name="s")
    await site.ok("TriggerJob", name="s")
    await site.rest()
    assert await site.due(1) == TICK
    assert await site.ticks(1) == []
    await site.ok("ResumeJobs", name="s")
    job = await site.take("s", "v")
    assert (await site.run(job["runID"]))["cause"] == "manual"


async def test_paused(site: Site) -> None:
    await schedule(site)
    await site.ok("PauseJobs", name="s")
    await site.until_time(TICK)
    assert await site.select("SELECT * FROM jobs WHERE jobID > 1") == []
    await site.ok("ResumeJobs", name="s")
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "paused")]
    await site.until_time(NEXT)
    assert await workers_that_get_it(site) == ["v", "w"]


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_after_a_restart_workers_may_come_back_first(site: Site, how: str) -> None:
    await schedule(site)
    await getattr(site, how)(down=3_600)
    assert await site.ticks(1) == []
    for worker in ("v", "w"):
        await site.beat(worker=worker, names=["*"])
    await site.later(SETTLE_S + 1)
    assert await workers_that_get_it(site) == ["v", "w"]
    assert await site.ticks(1) == [(TICK, TICK, 1, "caught up", "")]


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_jobs_of_workers_survive(site: Site, how: str) -> None:
    await schedule(site)
    await site.until_time(TICK)
    await getattr(site, how)()
    assert await workers_that_get_it(site) == ["v", "w"]


async def test_it_can_be_set_and_taken_back(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *")
    await site.ok("UpdateJob", jobID=1, hosts="all")
    await site.beat(worker="v", names=["s"])
    await site.until_time(TICK)
    assert await workers_that_get_it(site) == ["v"]
    await site.ok("UpdateJob", jobID=1, hosts="")
    await site.until_time(NEXT)
    assert (await site.take("s", "u"))["jobID"] == 1


async def test_deleting_it(site: Site) -> None:
    await schedule(site)
    await site.ok("DeleteJob", jobID=1)
    await site.until_time(TICK)
    assert await site.select("SELECT * FROM jobs") == []


async def test_where_it_may_not_be(site: Site) -> None:
    assert (await site.refused("CreateJob", name="a", hosts="all"))[1] == "Malformed hosts"
    assert (await site.refused("CreateJob", name="a", hosts="some", repeat="CRON 0 * * * *"))[0] == 402
    lock = {"repeat": "CRON 0 * * * *", "hosts": "all", "lock": "x"}
    assert (await site.refused("CreateJob", name="a", **lock))[1] == "Malformed hosts"
    assert await site.select("SELECT * FROM jobs") == []


async def test_a_lock_that_is_taken_off_a_running_job_is_free_at_its_end(site: Site) -> None:
    await site.create("a", lock="x")
    job = await site.take("a")
    await site.create("b", lock="x")
    await site.ok("UpdateJob", jobID=1, lock="")
    await site.end("RetryJob", job, delay=100)
    assert (await site.take("b"))["name"] == "b"


@pytest.mark.parametrize("change", [{"shouldClearRepeat": True}, {"repeat": "SCHEDULED, +1 HOUR"}])
async def test_it_stays_a_schedule_while_it_runs_on_all_hosts(site: Site, change: dict[str, Any]) -> None:
    await schedule(site)
    assert await site.refused("UpdateJob", jobID=1, **change) == (402, "Malformed hosts")
    await site.restart(down=3_600)
    await site.create("other")
    assert (await site.row(1))["repeat"] == "CRON 0 * * * *"


async def test_a_job_that_was_triggered_may_become_one(site: Site) -> None:
    await site.beat(worker="w", names=["*"])
    await site.create("s", firstRun="2027-01-01 00:00:00")
    await site.ok("TriggerJob", jobID=1)
    await site.ok("UpdateJob", jobID=1, repeat="CRON 0 * * * *", hosts="all")
    await site.rest()
    job = await site.take("s", "w")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.due(1) == TICK
    await site.until_time(TICK)
    assert await workers_that_get_it(site) == ["w"]
    assert await site.create("other") > 1


async def test_a_refused_list_leaves_none_behind(site: Site) -> None:
    await site.beat(worker="w", names=["*"])
    jobs = [{"name": "s", "repeat": "CRON 0 * * * *", "hosts": "all"}, {"name": "c", "parentJobID": 999}]
    await site.refused("CreateJobs", jobs=jobs)
    await site.until_time(NEXT)
    assert await site.select("SELECT * FROM jobs") == []
    assert await site.select("SELECT * FROM ticks") == []


async def test_a_worker_whose_job_crashed_gets_the_next(site: Site) -> None:
    await schedule(site)
    await site.ok("CrashBedrockJob", names=["s"])
    await site.until_time(TICK)
    assert await workers_that_get_it(site) == []
    await site.ok("ClearCrashedBedrockJobs")
    await site.until_time(NEXT)
    assert await workers_that_get_it(site) == ["u", "v", "w"]


async def test_its_jobs_do_not_make_its_name_ambiguous(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    assert len(await site.select("SELECT * FROM jobs")) == 3
    assert await site.ok("TriggerJob", name="s") == {"jobID": 1, "pending": False}


async def test_only_the_manual_run_passes_a_pause(site: Site) -> None:
    await schedule(site)
    await site.ok("PauseJobs", name="s")
    await site.ok("TriggerJob", jobID=1)
    await site.rest()
    job = await site.take("s", "v")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.nothing("s", worker="v")
    await site.until_time(TICK)
    assert await site.nothing("s", worker="v")


async def test_catchup_all_is_one_run_as_well(site: Site) -> None:
    """Of many missed ticks each worker makes up for the latest, and the ledger says so."""
    await schedule(site, "CRON * * * * *", catchup="all")
    await site.restart(down=600)
    for worker in ("v", "w"):
        await site.beat(worker=worker, names=["*"])
    await site.later(SETTLE_S + 1)
    assert await workers_that_get_it(site) == ["v", "w"]
    assert await site.ticks(1) == [
        ("2026-11-21 03:30:00", "2026-11-21 03:39:00", 10, "skipped", "server down"),
        ("2026-11-21 03:40:00", "2026-11-21 03:40:00", 1, "caught up", ""),
    ]
    assert await site.due(1) == "2026-11-21 03:41:00"


async def test_a_worker_asks_for_all_the_names_of_its_requests(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", hosts="all")
    talk = await site.asking("s", "w")
    other = await site.asking("other", "w")
    await site.until_time("2026-11-21 03:30:00")
    assert (await talk.reply()).json["name"] == "s"
    assert await other.silent()
    assert [tick[3] for tick in await site.ticks(1)] == ["fired"]


async def test_a_schedule_that_is_tried_again_may_become_one(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", retries=3, backoff=300)
    await site.beat(worker="w", names=["*"])
    await site.until_time("2026-11-21 03:30:00")
    await site.fail(await site.take("s"))
    await site.ok("UpdateJob", jobID=1, hosts="all")
    for _ in range(10):
        await site.later(60)
        reply = await site.http("GetJob", {"name": "s", "worker": "w"})
        if reply.code == 200:
            await site.finish(reply.json)
    ticks = await site.ticks(1)
    assert (ticks[0][0], ticks[-1][1]) == ("2026-11-21 03:30:00", "2026-11-21 03:40:00")
    assert not {"failures", "cause"} & set(await site.memory(1))


async def test_one_that_fails_for_good_cancels_its_children(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.take("s", "w")
    child = await site.create("c", parentJobID=job["jobID"])
    await site.fail(job, final=True)
    assert await site.state(child) == "CANCELLED"


async def test_one_token_gets_jobs_for_a_limited_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of workers are free to invent: those come first that were given a job before."""
    monkeypatch.setattr(maintenance, "HOSTS_PER_CALLER_MAX", 2)
    await schedule(site)
    for worker in ("a", "b", "c", "d"):
        await site.beat(worker=worker, names=["*"])
    await site.create("other")
    await site.leased("other", "w")
    await site.until_time(TICK)
    bound = await site.select("SELECT lane FROM jobs WHERE name = 's' AND jobID > 2")
    assert sorted(row["lane"].split()[-1] for row in bound) == ["a", "w"], bound
    (event,) = await site.events("limited")
    assert event["detail"].startswith("2 of 6 workers got a job")
