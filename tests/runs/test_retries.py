"""retries and backoff, permanently failed jobs, and snoozed runs."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import BACKOFF_S_DEFAULT, BACKOFF_S_MAX_DEFAULT, UNFIT_MAX
from tests.runs.conftest import Open
from tests.runs.rig import Site, between, failed_once_more


async def test_no_retries_by_default(site: Site) -> None:
    await site.create("a")
    await failed_once_more(site, error="no disk")
    assert await site.state(1) == "FAILED"
    assert (await site.ok("QueryJob", jobID=1))["error"] == "no disk"


async def test_each_retry_waits_twice_as_long_up_to_a_limit(site: Site) -> None:
    await site.create("a", retries=6, backoff=10, maxBackoff=100)
    for wait in (10, 20, 40, 80, 100, 100):
        due = await failed_once_more(site)
        assert await site.state(1) == "QUEUED"
        assert between(due, wait, wait * 1.25, site.clock.now()), (wait, due, site.now)
        await site.later(wait - 0.2)
        assert await site.nothing("a"), "not before its time"
    await failed_once_more(site)
    assert await site.state(1) == "FAILED"


async def test_the_times_by_default(site: Site) -> None:
    await site.create("a", retries=20)
    for number in range(12):
        wait = min(BACKOFF_S_DEFAULT * 2**number, BACKOFF_S_MAX_DEFAULT)
        assert between(await failed_once_more(site), wait, wait * 1.25, site.clock.now())


async def test_the_jitter_is_a_fixed_function_of_job_and_number(open_site: Open) -> None:
    waits = []
    for _ in range(2):
        site = await open_site()
        for number in range(30):
            await site.create(f"a{number}", retries=3, backoff=1000)
        waits.append([await failed_once_more(site, f"a{number}") for number in range(30)])
    assert waits[0] == waits[1]
    assert len(set(waits[0])) > 10, "and differs from job to job"


async def test_no_time_at_all(site: Site) -> None:
    await site.create("a", retries=2, backoff=0)
    for state in ("QUEUED", "QUEUED", "FAILED"):
        await failed_once_more(site)
        assert await site.state(1) == state


async def test_what_is_kept_with_the_job(site: Site) -> None:
    await site.create("a", retries=2)
    await failed_once_more(site, error="no disk", exitCode=3)
    shown = await site.ok("QueryJob", jobID=1)
    assert (shown["error"], shown["state"]) == ("no disk", "QUEUED")
    assert (await site.memory(1))["failures"] == 1
    await failed_once_more(site, error="still no disk")
    assert (await site.memory(1))["failures"] == 2
    assert (await site.ok("QueryJob", jobID=1))["error"] == "still no disk"


async def test_runs_and_causes_of_retries(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    await failed_once_more(site, error="one")
    await failed_once_more(site, error="two")
    found = [(run["attempt"], run["cause"], run["status"], run["error"]) for run in await site.runs()]
    assert found == [(2, "retry", "fail", "two"), (1, "queue", "fail", "one")]


async def test_data_given_by_the_failed_run_is_there_for_the_next_one(site: Site) -> None:
    await site.create("a", retries=1, backoff=0, data={"at": 0})
    await failed_once_more(site, data={"at": 5})
    assert (await site.take("a"))["data"] == {"at": 5}


async def test_final_leaves_no_retry(site: Site) -> None:
    await site.create("a", retries=5)
    await failed_once_more(site, final=True)
    assert await site.state(1) == "FAILED"


async def test_without_a_worker_it_is_retried_too(site: Site) -> None:
    await site.create("a", retries=1)
    await site.take("a", None)
    await site.ok("FailJob", jobID=1)
    assert await site.state(1) == "QUEUED"
    assert between((await site.row(1))["nextRun"], 10, 12.5, site.clock.now())


async def test_finishjob_resets_the_count(site: Site) -> None:
    await site.create("a", retries=1, backoff=0, repeat="FINISHED, +1 HOUR")
    await failed_once_more(site)
    await site.finish(await site.take("a"))
    assert (await site.memory(1)).get("failures", 0) == 0
    await failed_once_more(site)
    assert await site.state(1) == "QUEUED"
    await failed_once_more(site)
    assert await site.state(1) == "FAILED"


async def test_revive_resets_the_count(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    for _ in range(2):
        await failed_once_more(site)
    assert await site.state(1) == "FAILED"
    await site.ok("RetryJob", jobID=1, revive=True)
    assert (await site.memory(1)).get("failures", 0) == 0
    await failed_once_more(site)
    assert await site.state(1) == "QUEUED"
    assert (await site.runs())[0]["cause"] == "retry"


async def test_a_waiting_worker_gets_the_retry_when_it_is_due(site: Site) -> None:
    await site.create("a", retries=1, backoff=10)
    due = await failed_once_more(site)
    talk = await site.asking("a")
    await site.later(9.9)
    assert await talk.silent()
    await site.until_time(due)
    assert (await talk.reply()).json["attempt"] == 2


async def test_the_last_failure_is_an_event(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    await failed_once_more(site)
    assert await site.events("failed") == []
    await failed_once_more(site, error="no disk")
    (event,) = await site.events("failed")
    assert (event["name"], event["jobID"]) == ("a", 1)


async def test_a_schedules_run_is_retried_before_its_next_tick(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", retries=1, backoff=10)
    await site.until_time("2026-11-21 03:30:00")
    due = await failed_once_more(site, "s")
    assert between(due, 10, 12.5, site.clock.now())
    await failed_once_more(site, "s", error="no disk")
    row = await site.row(1)
    assert (row["state"], row["nextRun"][:19]) == ("QUEUED", "2026-11-21 03:35:00")
    assert [run["cause"] for run in await site.runs()] == ["retry", "schedule"]
    assert (await site.ok("QueryJob", jobID=1))["error"] == "no disk"
    assert await site.ticks(1) == [("2026-11-21 03:30:00", "2026-11-21 03:30:00", 1, "fired", "")]


async def test_a_fresh_tick_resets_the_count(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", retries=1, backoff=10)
    for tick in ("03:30:00", "03:35:00", "03:40:00"):
        await site.until_time(f"2026-11-21 {tick}")
        due = await failed_once_more(site, "s")
        assert between(due, 10, 12.5, site.clock.now()), tick
        await failed_once_more(site, "s")
    assert [run["cause"] for run in await site.runs()] == ["retry", "schedule"] * 3


async def test_a_retry_that_succeeds_ends_the_tick(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", retries=3, backoff=10)
    await site.until_time("2026-11-21 03:30:00")
    await site.until_time(await failed_once_more(site, "s"))
    await site.finish(await site.take("s"))
    assert await site.due(1) == "2026-11-21 03:35:00"
    assert (await site.memory(1)).get("failures", 0) == 0


async def test_a_retry_outlives_a_new_repeat(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *", retries=3)
    await site.until_time("2026-11-21 04:00:00")
    await site.fail(await site.take("s"))
    await site.ok("UpdateJob", jobID=1, repeat="CRON 30 * * * *")
    await site.until_time("2026-11-21 04:10:00")
    job = await site.take("s")
    run = await site.run(job["runID"])
    assert (run["cause"], run["scheduledFor"]) == ("retry", "2026-11-21 04:00:00")
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 04:30:00"
    await site.until_time("2026-11-21 04:30:00")
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "schedule"
    assert [tick[:3] for tick in await site.ticks(1)] == [("2026-11-21 04:00:00", "2026-11-21 04:30:00", 2)]


async def test_ticks_that_pass_while_a_retry_waits_are_each_accounted_for_once(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *", retries=1, backoff="5m")
    await site.until_time("2026-11-21 03:30:00")
    due = await failed_once_more(site, "s")
    await site.until_time(due)
    await site.finish(await site.take("s"))
    following = await site.due(1)
    seen = list(range(30, int(following[14:16])))
    covered: list[int] = []
    for tick, until, count, _, _ in await site.ticks(1):
        assert count == int(until[14:16]) - int(tick[14:16]) + 1
        covered += range(int(tick[14:16]), int(until[14:16]) + 1)
    assert sorted(covered) == seen


async def test_counts_survive_a_restart(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    await failed_once_more(site, error="no disk")
    await site.restart(down=60)
    assert (await site.ok("QueryJob", jobID=1))["error"] == "no disk"
    assert [run["cause"] for run in await site.runs()] == ["queue"]
    await failed_once_more(site)
    assert await site.state(1) == "FAILED"
    assert [run["cause"] for run in await site.runs()] == ["retry", "queue"]


async def test_a_requeued_job_has_all_its_retries(site: Site) -> None:
    await site.create("a", retries=1, backoff=1)
    for _ in range(2):
        await site.fail(await site.take("a"))
        await site.later(5)
    assert await site.state(1) == "FAILED"
    await site.ok("RequeueJobs", jobIDs=[1])
    job = await site.take("a")
    assert (await site.run(job["runID"]))["cause"] == "queue"
    await site.fail(job)
    assert await site.state(1) == "QUEUED"


async def test_a_job_that_is_queued_again_by_its_retries_is_counted(site: Site) -> None:
    await site.create("a", retries=1)
    await site.fail(await site.take("a"))
    async with await site.connect() as talk:
        talk.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await talk.ended()).decode()
    assert 'bedrockjobs_jobs_done_total{what="retried"} 1.0' in text
    assert 'bedrockjobs_jobs_done_total{what="failed"} 1.0' in text


async def test_a_retried_schedule_keeps_no_count_of_losses_in_its_data(site: Site) -> None:
    job_id = await site.create("a", repeat="CRON */5 * * * *", firstRun="2026-11-21 03:00:00")
    job = await site.take("a")
    await site.ok("UpdateJob", jobID=job_id, data={"retryAfterCount": 9, "x": 1})
    await site.end("RetryJob", job)
    assert (await site.ok("QueryJob", jobID=job_id))["data"] == {"x": 1}


# --- families --------------------------------------------------------------------------------------------


async def test_a_child_with_retries_keeps_its_parent_waiting_until_it_has_failed(site: Site) -> None:
    await site.create("p")
    parent = await site.take("p")
    await site.create("a", parentJobID=1, retries=1, backoff=0)
    await site.finish(parent)
    await failed_once_more(site)
    assert (await site.state(1), await site.state(2)) == ("PAUSED", "QUEUED")
    await failed_once_more(site)
    assert (await site.state(1), await site.state(2)) == ("QUEUED", "FAILED")


# --- put off ---------------------------------------------------------------------------------------------


async def test_a_run_that_was_put_off_has_not_failed_and_costs_no_attempt(site: Site) -> None:
    await site.create("a", retries=0)
    for _ in range(3):
        job = await site.take("a")
        assert job["attempt"] == 1
        await site.end("RetryJob", job, snoozed=True, exitCode=101, data={"seen": 1})
    runs = [await site.run(number) for number in (1, 2, 3)]
    assert [(run["status"], run["exitCode"], run["error"]) for run in runs] == [("snoozed", 101, "")] * 3
    assert [run["runID"] for run in await site.runs(status="snoozed")] == [3, 2, 1]
    assert await site.state(1) == "QUEUED"


async def test_a_run_that_was_stopped_is_not_put_off(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.ok("TerminateRun", runID=job["runID"])
    await site.end("RetryJob", job, snoozed=True)
    assert (await site.run(1))["status"] == "terminated"
    assert await site.state(1) == "FAILED"


async def test_what_was_tried_again_keeps_its_exit_status(site: Site) -> None:
    await site.create("a")
    await site.end("RetryJob", await site.take("a"), exitCode=75)
    run = await site.run(1)
    assert (run["status"], run["exitCode"]) == ("fail", 75)


async def test_a_run_may_say_when_it_wants_to_be_tried_again(site: Site) -> None:
    """That is a failure, and uses up a retry."""
    await site.create("a", retries=1, backoff=100)
    await site.end("FailJob", await site.take("a"), delay=5, error="busy")
    assert between(await site.due(1), 5, 5, site.clock.now())
    assert (await site.run(1))["status"] == "fail"
    assert [event["detail"] for event in await site.events("retried")] == ["busy"]
    await site.later(5)
    await site.end("FailJob", await site.take("a"), delay=5)
    assert await site.state(1) == "FAILED"


@pytest.mark.parametrize(("own", "asked", "tries"), [(None, 3, 4), (1, 3, 2), (0, 3, 1), (None, None, 1)])
async def test_retries_of_a_job_that_does_not_say_how_many(
    site: Site, own: int | None, asked: int | None, tries: int
) -> None:
    await site.create("a", **({} if own is None else {"retries": own}))
    more = {} if asked is None else {"retries": asked}
    for left in reversed(range(tries)):
        await site.end("FailJob", await site.take("a"), delay=0, **more)
        assert await site.state(1) == ("QUEUED" if left else "FAILED")


async def test_a_job_for_which_a_worker_is_unfit_waits_for_another(site: Site) -> None:
    await site.create("a", retries=0)
    for number in range(UNFIT_MAX):
        job = await site.take("a", "old")
        assert job["attempt"] == 1, "it counts as if it had not been taken"
        await site.end("RetryJob", job, unfit="no parameter b", exitCode=103)
        shown = await site.ok("QueryJob", jobID=1)
        assert (shown["state"], shown["error"]) == ("QUEUED", "no parameter b")
        wait = min(2**number, 60)
        assert between(await site.due(1), wait, wait, site.clock.now())
        await site.later(wait)
    told = await site.events("handed back")
    assert [event["detail"] for event in told] == ["no parameter b"] * UNFIT_MAX
    assert {(run["status"], run["error"]) for run in await site.runs()} == {("returned", "no parameter b")}
    await site.end("RetryJob", await site.take("a", "old"), unfit="no parameter b")
    assert await site.state(1) == "FAILED"
    words = f"No worker could run it in {UNFIT_MAX + 1} tries: no parameter b"
    assert (await site.ok("QueryJob", jobID=1))["error"] == words


async def test_another_worker_can_do_what_one_was_unfit_for(site: Site) -> None:
    """And then it is forgotten."""
    await site.create("a", repeat="CRON 0 * * * *", firstRun="2026-11-21 03:00:00")
    for _ in range(2):
        tick = (await site.ok("QueryJob", jobID=1))["nextRun"]
        await site.until_time(tick)
        for wait in (1, 2):
            job = await site.take("a", "old")
            await site.end("RetryJob", job, unfit="no parameter b")
            await site.later(wait)
        job = await site.take("a", "new")
        assert (await site.run(job["runID"]))["scheduledFor"][:19] == tick
        await site.finish(job)
