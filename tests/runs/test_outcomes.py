"""How the ends of runs are reported, and how attempts are counted."""

from __future__ import annotations

from tests.runs.rig import Site

TOLD = ("failed", "retried", "recovered", "lost", "timeout")


async def told(site: Site) -> list[tuple[str, int, str]]:
    """Return kind, runID and detail of what was told so far of ends."""
    return [(event["kind"], event["runID"], event["detail"]) for event in await site.events(*TOLD)]


async def test_a_schedule_has_failed_after_its_last_try_only_and_recovers(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *", retries=1, backoff=1)
    await site.later(60)
    await site.fail(await site.take("a"), error="no disk")
    assert await told(site) == [("retried", 1, "no disk")]
    await site.later(5)
    await site.fail(await site.take("a"), error="still no disk")
    failed = [("retried", 1, "no disk"), ("failed", 2, "still no disk")]
    assert await told(site) == failed
    await site.later(60)
    await site.finish(await site.take("a"))
    assert await told(site) == [*failed, ("recovered", 3, "")]
    await site.later(60)
    await site.finish(await site.take("a"))
    assert len(await told(site)) == 3, "once"


async def test_a_try_that_helps_is_no_recovery(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    await site.fail(await site.take("a"))
    await site.finish(await site.take("a"))
    assert await told(site) == [("retried", 1, "")]


async def test_a_job_that_is_revived_recovers(site: Site) -> None:
    await site.create("a")
    await site.fail(await site.take("a"))
    await site.ok("RetryJob", jobID=1, revive=True)
    await site.finish(await site.take("a"))
    assert await told(site) == [("failed", 1, ""), ("recovered", 2, "")]


async def test_a_schedule_whose_worker_was_lost_has_failed(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *", lease=20)
    await site.later(60)
    await site.leased("a")
    await site.silence(21)
    words = "Run lost: worker w was silent for 20 s"
    assert await told(site) == [("lost", 1, words), ("failed", 1, words)]


async def test_a_parent_that_failed_with_a_child_is_told(site: Site) -> None:
    await site.create("p", onChildFailure="fail")
    parent = await site.take("p")
    await site.create("c", parentJobID=1)
    await site.finish(parent)
    await site.fail(await site.take("c"), error="no disk")
    failed = [(event["jobID"], event["detail"]) for event in await site.events("failed")]
    assert sorted(failed) == [(1, "Child job 2 (c) failed: no disk"), (2, "no disk")]


async def test_what_is_failed_instead_of_handed_out_says_why(site: Site) -> None:
    await site.create("a")
    await site.ok("CrashBedrockJob", names=["a"])
    assert await site.nothing("a")
    assert await told(site) == [("failed", 0, "Its name is on the crash list")]


async def test_a_time_that_the_worker_set_is_a_timeout(site: Site) -> None:
    await site.create("a", retries=1)
    await site.fail(await site.take("a"), error="timed out after 5 s", timedOut=True, exitCode=143)
    assert (await site.run(1))["status"] == "timeout"
    assert [kind for kind, _, _ in await told(site)] == ["timeout", "retried"]


async def test_attempts_count_anew_with_each_tick_and_each_trigger(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *", retries=5, backoff=1)
    for _ in range(2):
        await site.later(60)
        for attempt in (1, 2):
            job = await site.take("a")
            assert job["attempt"] == attempt
            await site.fail(job)
            await site.later(5)
        await site.finish(await site.take("a"))
    await site.ok("TriggerJob", jobID=1)
    job = await site.take("a")
    assert job["attempt"] == 1
    await site.fail(job)
    await site.later(5)
    await site.finish(await site.take("a"))
    await site.later(60)
    assert (await site.take("a"))["attempt"] == 1


async def test_attempts_of_what_repeats_otherwise_go_on(site: Site) -> None:
    await site.create("a", repeat="FINISHED, +1 HOUR")
    await site.finish(await site.take("a"))
    await site.later(3600)
    assert (await site.take("a"))["attempt"] == 2
