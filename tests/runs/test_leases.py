"""Leases and Heartbeat: what renews a run's lease, and runs whose worker is silent."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import LEASE_S_DEFAULT, LOST_RUNS_MAX, RUNS_PER_HEARTBEAT_MAX
from bedrockjobs.engine.workers import BEATS_PER_LEASE
from tests.runs.rig import Site

LEASE = LEASE_S_DEFAULT


async def test_a_silent_worker_loses_its_run_after_the_lease(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.silence(LEASE - 0.1)
    assert await site.state(1) == "RUNNING"
    assert (await site.run(1))["status"] == "running"
    await site.silence(0.2)
    assert await site.state(1) == "QUEUED"
    run = await site.run(1)
    assert run["status"] == "frozen"
    assert run["ended"] != ""
    assert (await site.row(1))["runID"] == 0
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == (405, "Run is over")


async def test_it_is_queued_at_once_and_its_next_run_is_for_the_lost_one(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    talk = await site.asking("a", "w2")
    await site.silence(LEASE + 1)
    job = (await talk.reply()).json
    assert (job["jobID"], job["runID"], job["attempt"]) == (1, 2, 2)
    assert (await site.run(2))["cause"] == "lost"
    assert (await site.memory(1))["losses"] == 1


async def test_the_job_brings_its_own_lease(site: Site) -> None:
    await site.create("a", lease=5)
    await site.create("b", lease=500)
    for name in "ab":
        await site.leased(name)
    await site.silence(4.9)
    assert (await site.state(1), await site.state(2)) == ("RUNNING", "RUNNING")
    await site.silence(0.2)
    assert (await site.state(1), await site.state(2)) == ("QUEUED", "RUNNING")
    await site.silence(494)
    assert await site.state(2) == "RUNNING"
    await site.silence(2)
    assert await site.state(2) == "QUEUED"


async def test_without_heartbeat_there_is_no_lease(site: Site) -> None:
    await site.create("a", lease=5)
    await site.create("b")
    await site.take("a")
    await site.take("b", None)
    await site.both(100_000)
    assert (await site.state(1), await site.state(2)) == ("RUNNING", "RUNNING")


async def test_the_wall_clock_moves_no_lease(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.later(100_000)
    assert await site.state(1) == "RUNNING"
    await site.silence(LEASE - 1)
    assert await site.state(1) == "RUNNING"
    site.clock.advance(-200_000)
    await site.rest()
    assert await site.state(1) == "RUNNING"


async def test_a_heartbeat_renews_the_lease_from_its_moment(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    for _ in range(5):
        await site.silence(LEASE - 1)
        assert await site.beat(job["runID"]) == {"stop": [], "quiet": False}
    await site.silence(LEASE - 1)
    assert await site.state(1) == "RUNNING"
    await site.silence(2)
    assert await site.state(1) == "QUEUED"


async def test_a_heartbeat_renews_only_the_runs_it_names(site: Site) -> None:
    for name in "ab":
        await site.create(name)
        await site.leased(name)
    await site.silence(LEASE - 1)
    await site.beat(1)
    await site.silence(2)
    assert (await site.state(1), await site.state(2)) == ("RUNNING", "QUEUED")


async def test_a_heartbeat_of_another_worker_renews_nothing(site: Site) -> None:
    await site.create("a")
    await site.leased("a", "w1")
    await site.silence(LEASE - 1)
    answer = await site.beat(1, worker="w2")
    assert answer["stop"] == [{"runID": 1, "signal": "LOST"}], "it is not an open run of this worker"
    await site.silence(2)
    assert await site.state(1) == "QUEUED"


async def test_a_waiting_heartbeat_renews_when_it_comes(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.silence(LEASE - 1)
    talk = await site.waiting_beat(1)
    assert await talk.silent()
    await site.silence(LEASE - 1)
    assert await site.state(1) == "RUNNING"


async def test_lost_is_told_of_what_is_no_open_run_of_this_worker(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.silence(LEASE + 1)
    answer = await site.beat(1, 999)
    assert sorted(answer["stop"], key=lambda stop: stop["runID"]) == [
        {"runID": 1, "signal": "LOST"},
        {"runID": 999, "signal": "LOST"},
    ]


async def test_a_waiting_heartbeat_hears_that_its_run_is_lost(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    talk = await site.waiting_beat(1)
    await site.silence(1)
    assert await talk.silent()
    await site.ok("RequeueJobs", jobIDs=[1])
    assert (await talk.reply()).json == {"stop": [{"runID": 1, "signal": "LOST"}], "quiet": False}


async def test_an_empty_heartbeat_is_answered_at_once_without_wait(site: Site) -> None:
    assert await site.beat() == {"stop": [], "quiet": False}
    reply = await site.ask("Heartbeat", worker="w")
    assert (reply.status, reply.json) == ("200 OK", {"stop": [], "quiet": False})
    reply = await site.ask("Heartbeat", worker="w", runIDs="[5]")
    assert reply.json["stop"] == [{"runID": 5, "signal": "LOST"}]


async def test_a_waiting_heartbeat_runs_out_with_the_empty_answer(site: Site) -> None:
    await site.create("a")
    await site.take("a")
    talk = await site.waiting_beat(1, timeout=2_000)
    await site.both(1.9)
    assert await talk.silent()
    await site.both(0.2)
    reply = await talk.reply()
    assert (reply.code, reply.json) == (200, {"stop": [], "quiet": False})


async def test_a_heartbeat_needs_a_worker(site: Site) -> None:
    assert await site.refused("Heartbeat", runIDs=[]) == (402, "Missing worker")
    many = list(range(1, RUNS_PER_HEARTBEAT_MAX + 1))
    assert len((await site.beat(*many))["stop"]) == RUNS_PER_HEARTBEAT_MAX
    assert (await site.refused("Heartbeat", worker="w", runIDs=[*many, 9999]))[0] == 402


# --- what becomes of the job -----------------------------------------------------------------------------


async def test_on_lost_fail(site: Site) -> None:
    await site.create("a", onLost="fail")
    await site.leased("a")
    await site.silence(LEASE + 1)
    assert await site.state(1) == "FAILED"
    assert (await site.run(1))["status"] == "frozen"
    assert await site.nothing("a")


async def test_the_tenth_loss_fails_the_job(site: Site) -> None:
    await site.create("a", retries=100)
    for number in range(1, LOST_RUNS_MAX):
        await site.leased("a")
        await site.silence(LEASE + 1)
        assert await site.state(1) == "QUEUED"
        assert (await site.memory(1))["losses"] == number
    await site.leased("a")
    await site.silence(LEASE + 1)
    assert await site.state(1) == "FAILED"
    assert len(await site.events("lost")) == LOST_RUNS_MAX
    assert len(await site.events("failed")) == 1


async def test_a_loss_does_not_count_against_the_retries(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    await site.leased("a")
    await site.silence(LEASE + 1)
    await site.fail(await site.leased("a"))
    assert await site.state(1) == "QUEUED", "the retry is still there"
    await site.fail(await site.leased("a"))
    assert await site.state(1) == "FAILED"


async def test_revive_resets_the_losses(site: Site) -> None:
    await site.create("a", onLost="retry")
    for _ in range(LOST_RUNS_MAX):
        await site.leased("a")
        await site.silence(LEASE + 1)
    assert await site.state(1) == "FAILED"
    await site.ok("RetryJob", jobID=1, revive=True)
    await site.leased("a")
    await site.silence(LEASE + 1)
    assert await site.state(1) == "QUEUED"


@pytest.mark.parametrize("on_lost", ["retry", "fail"])
async def test_a_schedule_goes_to_its_next_tick(site: Site, on_lost: str) -> None:
    await site.create("s", repeat="CRON * * * * *", onLost=on_lost)
    await site.until_time("2026-11-21 03:30:00")
    await site.leased("s")
    await site.silence(LEASE + 1)
    assert await site.state(1) == "QUEUED"
    assert await site.due(1) == "2026-11-21 03:31:00"
    assert (await site.run(1))["status"] == "frozen"
    await site.until_time("2026-11-21 03:31:00")
    await site.leased("s")
    assert (await site.run(2))["cause"] == "schedule"


async def test_a_lost_child_lets_its_parent_go_on(site: Site) -> None:
    await site.create("p")
    parent = await site.take("p")
    await site.create("c", parentJobID=1, onLost="fail")
    await site.finish(parent)
    await site.leased("c")
    await site.silence(LEASE + 1)
    assert (await site.state(2), await site.state(1)) == ("FAILED", "QUEUED")


async def test_a_lost_run_is_an_event(site: Site) -> None:
    await site.create("a")
    await site.leased("a", "w7")
    await site.silence(LEASE + 1)
    (event,) = await site.events("lost")
    assert (event["name"], event["jobID"], event["runID"]) == ("a", 1, 1)


async def test_many_leases_end_at_once(site: Site) -> None:
    for _ in range(200):
        await site.create("a", keepFail=300)
    await site.ok("GetJobs", name="a", numResults=200, worker="w", heartbeat=True)
    await site.silence(LEASE + 1)
    await site.rest()
    rows = await site.select("SELECT state, count(*) AS n FROM jobs GROUP BY state")
    assert [(row["state"], row["n"]) for row in rows] == [("QUEUED", 200)]
    assert len(await site.runs(status="frozen", limit=1000)) == 200


# --- restarts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_starting_server_gives_every_open_run_a_full_new_lease(site: Site, how: str) -> None:
    await site.create("a", lease=20)
    job = await site.leased("a")
    await site.silence(19)
    await getattr(site, how)(down=3600, leases=3600)
    assert await site.state(1) == "RUNNING"
    await site.silence(19)
    assert await site.state(1) == "RUNNING"
    assert (await site.beat(job["runID"]))["stop"] == [], "it is still this worker's run"
    await site.silence(19)
    assert await site.state(1) == "RUNNING"
    await site.silence(2)
    assert await site.state(1) == "QUEUED"
    assert (await site.run(1))["status"] == "frozen"


async def test_a_run_without_a_lease_gets_none_at_a_restart(site: Site) -> None:
    await site.create("a")
    await site.take("a")
    await site.restart()
    await site.both(100_000)
    assert await site.state(1) == "RUNNING"


async def test_losses_survive_a_restart(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.silence(LEASE + 1)
    await site.restart()
    assert (await site.memory(1))["losses"] == 1
    await site.leased("a")
    assert (await site.run(2))["cause"] == "lost"


async def test_who_waited_on_a_stopping_server_is_answered(site: Site) -> None:
    talk = await site.waiting_beat()
    assert await talk.silent()
    await site.server.stop()
    try:
        reply = await talk.reply()
    except EOFError:
        pytest.fail("a waiting Heartbeat was cut off instead of answered")
    assert reply.code in (200, 503)


async def test_a_waiting_heartbeat_is_answered_within_its_lease(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it asks for: one whose answer is lost must cost no run."""
    assert BEATS_PER_LEASE >= 2
    monkeypatch.setattr("bedrockjobs.engine.workers.BEATS_PER_LEASE", 10_000)
    await site.create("a", lease=9)
    job = await site.leased("a")
    for run_ids in ([job["runID"]], []):
        talk = await site.waiting_beat(*run_ids)
        assert (await talk.reply()).json == {"stop": [], "quiet": False}


async def test_a_waiting_heartbeat_of_a_worker_that_counts_as_gone_hears_of_its_loss(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    talk = await site.waiting_beat(job["runID"])
    await site.settle()
    await site.both(LEASE + 1)
    assert (await talk.reply()).json["stop"] == [{"runID": job["runID"], "signal": "LOST"}]
    assert (await site.run(job["runID"]))["status"] == "frozen"


async def test_a_heartbeat_whose_client_went_away_renews_nothing_more(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    talk = await site.waiting_beat(job["runID"])
    await site.settle()
    await site.silence(10)
    await talk.close()
    for _ in range(5):
        await site.settle()
    await site.silence(LEASE - 9)
    assert (await site.run(job["runID"]))["status"] == "frozen"
