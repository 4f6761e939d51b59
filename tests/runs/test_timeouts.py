"""runTimeout: the worker is asked to terminate the run, then to kill it; then the server ends it."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import GRACE_S_DEFAULT, LEASE_S_DEFAULT, TAKE_BACK_S
from tests.runs.rig import Site, between

TERM, KILL = [{"runID": 1, "signal": "TERM"}], [{"runID": 1, "signal": "KILL"}]


async def overdue(site: Site, timeout: float, grace: float) -> None:
    """Let a run that has just begun be told to stop, told to end, and be taken back."""
    for seconds in (timeout, grace, TAKE_BACK_S):
        await site.later(seconds + 0.1)


async def test_expires_is_set_at_the_take(site: Site) -> None:
    await site.create("a", runTimeout="90s", firstRun="2026-11-21 03:29:58")
    assert (await site.row(1))["expires"] == ""
    await site.later(10)
    await site.take("a")
    row = await site.row(1)
    assert between(row["expires"], 90, 90, site.clock.now())


async def test_no_timeout_by_default(site: Site) -> None:
    await site.create("a")
    await site.take("a")
    assert (await site.row(1))["expires"] == ""
    await site.later(10 * 86_400)
    assert await site.state(1) == "RUNNING"


async def test_term_then_kill_then_the_job_is_taken_back(site: Site) -> None:
    await site.create("a", runTimeout=60, grace=20)
    job = await site.leased("a")
    talk = await site.waiting_beat(1)
    await site.later(59.9)
    assert await talk.silent()
    assert (await site.run(1))["stop"] == ""
    await site.later(0.2)
    assert (await talk.reply()).json["stop"] == TERM
    assert (await site.run(1))["stop"] == "TERM"
    talk = await site.waiting_beat(1)
    await site.later(19.7)
    assert await talk.silent()
    await site.later(0.4)
    assert (await talk.reply()).json["stop"] == KILL
    await site.later(TAKE_BACK_S - 0.5)
    assert await site.state(1) == "RUNNING"
    talk = await site.waiting_beat(1)
    await site.later(1)
    assert (await talk.reply()).json["stop"] == [{"runID": 1, "signal": "LOST"}]
    run = await site.run(1)
    assert run["status"] == "timeout"
    assert await site.state(1) == "QUEUED"
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == (405, "Run is over")
    assert len(await site.events("timeout")) == 1


async def test_the_grace_by_default(site: Site) -> None:
    await site.create("a", runTimeout=60)
    await site.take("a")
    await site.later(60)
    await site.later(GRACE_S_DEFAULT - 0.1)
    assert (await site.beat(1))["stop"] == TERM
    await site.later(0.2)
    assert (await site.beat(1))["stop"] == KILL
    await site.later(TAKE_BACK_S)
    assert await site.state(1) == "QUEUED"


async def test_all_at_once_when_time_jumped(site: Site) -> None:
    await site.create("a", runTimeout=60, grace=20)
    await site.leased("a")
    await site.later(60 + 20 + TAKE_BACK_S + 1)
    if await site.state(1) == "RUNNING":
        assert (await site.beat(1))["stop"] == TERM, "its worker still has the whole grace"
        await site.later(20)
        await site.later(TAKE_BACK_S)
    assert (await site.run(1))["status"] == "timeout"
    assert await site.state(1) == "QUEUED"


async def test_after_a_timeout_on_lost_decides(site: Site) -> None:
    await site.create("a", runTimeout=10, grace=1, onLost="fail")
    await site.take("a")
    await overdue(site, 10, 1)
    assert await site.state(1) == "FAILED"
    assert (await site.run(1))["status"] == "timeout"


async def test_a_schedule_goes_to_its_next_tick(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", runTimeout=100, grace=1, onLost="fail")
    await site.until_time("2026-11-21 03:30:00")
    await site.leased("s")
    await overdue(site, 100, 1)
    row = await site.row(1)
    assert (row["state"], row["runID"], row["expires"]) == ("QUEUED", 0, "")
    assert (await site.run(1))["status"] == "timeout"
    assert row["nextRun"][:19] == "2026-11-21 03:32:00"


@pytest.mark.parametrize("command", ["FailJob", "RetryJob"])
async def test_a_run_that_ends_by_itself_after_its_stop_is_a_timeout_by_failjobs_rules(
    site: Site, command: str
) -> None:
    await site.create("a", runTimeout=60, retries=1, backoff=10)
    job = await site.leased("a")
    await site.later(61)
    await site.end(command, job)
    assert (await site.run(1))["status"] == "timeout"
    row = await site.row(1)
    assert row["state"] == "QUEUED"
    assert between(row["nextRun"], 10, 12.5, site.clock.now())
    await site.later(13)
    job = await site.leased("a")
    await site.later(61)
    await site.end(command, job)
    assert (await site.run(2))["status"] == "timeout"
    assert await site.state(1) == "FAILED"


async def test_a_run_that_finishes_within_its_grace_is_a_success(site: Site) -> None:
    await site.create("a", runTimeout=60)
    job = await site.leased("a")
    await site.later(61)
    await site.finish(job)
    assert (await site.run(1))["status"] == "success"
    assert await site.state(1) == "(deleted)"


async def test_a_lease_that_ends_after_the_stop(site: Site) -> None:
    """The worker is gone as well: the job must come back once, and the run be closed once."""
    await site.create("a", runTimeout=60)
    await site.leased("a")
    await site.later(61)
    await site.silence(LEASE_S_DEFAULT + 1)
    assert await site.state(1) == "QUEUED"
    assert (await site.run(1))["status"] in ("timeout", "frozen")
    await site.take("a")
    await site.later(100)
    assert (await site.row(1))["runID"] == 2, "the old run's time does not count for the new one"


async def test_a_new_run_has_its_own_time(site: Site) -> None:
    await site.create("a", runTimeout=60, grace=5)
    await site.end("RetryJob", await site.take("a"), delay=50)
    assert (await site.row(1))["expires"] == ""
    await site.later(50)
    await site.take("a")
    await site.later(59)
    assert (await site.run(2))["stop"] == ""
    await site.later(2)
    assert (await site.run(2))["stop"] == "TERM"
    assert (await site.run(1))["stop"] == ""


async def test_returned_takes_the_time_back(site: Site) -> None:
    await site.create("a", runTimeout=60)
    before = await site.row(1)
    await site.end("RetryJob", await site.take("a"), returned=True)
    assert await site.row(1) == before
    await site.later(1000)
    assert await site.state(1) == "QUEUED"


@pytest.mark.parametrize(("grace", "after"), [(10, 10), (None, GRACE_S_DEFAULT)])
async def test_a_job_taken_without_a_worker_is_taken_back_after_the_grace(
    site: Site, grace: int | None, after: int
) -> None:
    await site.create("a", runTimeout=60, **({} if grace is None else {"grace": grace}))
    await site.take("a", None)
    await site.later(60 + after - 0.1)
    assert await site.state(1) == "RUNNING"
    await site.later(0.2)
    assert await site.state(1) == "QUEUED"
    assert await site.runs() == []
    assert (await site.take("a", None))["jobID"] == 1


async def test_one_taken_without_a_worker_with_on_lost_fail(site: Site) -> None:
    await site.create("a", runTimeout=60, grace=10, onLost="fail")
    await site.take("a", None)
    await site.later(71)
    assert await site.state(1) == "FAILED"


async def test_a_stop_by_a_person_wins_over_the_timeout(site: Site) -> None:
    await site.create("a", runTimeout=60, retries=3)
    job = await site.leased("a")
    await site.ok("TerminateRun", runID=1)
    await site.later(61)
    await site.fail(job)
    assert (await site.run(1))["status"] == "terminated"
    assert await site.state(1) == "FAILED"


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_timeout_passes_while_the_server_is_down(site: Site, how: str) -> None:
    await site.create("a", runTimeout=60, grace=10)
    await site.leased("a")
    await getattr(site, how)(down=65)
    assert (await site.beat(1))["stop"] == TERM
    await site.later(10)
    assert (await site.beat(1))["stop"] == KILL
    await site.later(TAKE_BACK_S)
    assert (await site.run(1))["status"] == "timeout"
    assert await site.state(1) == "QUEUED"


async def test_a_finished_job_times_out_no_more(site: Site) -> None:
    await site.create("a", runTimeout=60, repeat="FINISHED, +1 HOUR")
    await site.finish(await site.take("a"))
    assert (await site.row(1))["expires"] == ""
    await site.later(1000)
    assert (await site.run(1))["status"] == "success"
    assert await site.events("timeout") == []


async def test_a_paused_parent_times_out_no_more(site: Site) -> None:
    await site.create("p", runTimeout=60, grace=1)
    parent = await site.take("p")
    await site.create("c", parentJobID=1)
    await site.finish(parent)
    await site.later(1000)
    assert await site.state(1) == "PAUSED"
    await site.finish(await site.take("c"))
    assert await site.state(1) == "QUEUED"


async def test_a_parent_that_times_out_for_good_takes_its_unstarted_children_along(site: Site) -> None:
    await site.create("p", runTimeout=60, grace=1, onLost="fail")
    await site.take("p")
    await site.create("c", parentJobID=1)
    await overdue(site, 60, 1)
    assert (await site.state(1), await site.state(2)) == ("FAILED", "CANCELLED")


async def test_a_change_during_the_run_leaves_it_its_time(site: Site) -> None:
    hourly = {"repeat": "CRON 0 * * * *", "runTimeout": 60}
    await site.create("s", **hourly, firstRun="2026-11-21 03:00:00")
    await site.leased("s")
    expires = (await site.row(1))["expires"]
    assert between(expires, 60, 60, site.clock.now())
    await site.ok("CreateJob", name="s", **hourly, unique=True, overwrite=True, data={"x": 1})
    assert (await site.row(1))["expires"] == expires
    await site.ok("UpdateJob", jobID=1, repeat="CRON * * * * *")
    assert (await site.row(1))["expires"] == expires
    await site.later(60.1)
    assert (await site.beat(1))["stop"] == TERM
