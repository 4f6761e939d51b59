"""A schedule that is changed while a tick waits: every way to change it times every reason to wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from bedrockjobs.base.config import FORMER_REPEATS_MAX
from tests.effort import crossed
from tests.runs.rig import Site
from tests.runs.ticks import at, outcomes

OLD = "CRON */10 * * * *"
"""Its tick at 03:30 waits."""

NEW = "CRON */7 * * * *"
"""It is changed to this at 03:36: a tick at 03:35 never was, and the next one is at 03:42."""

RESPELLED = "cron TZ=UTC 0,10-50/10 * * * *"
"""The same ticks as the old one in other words."""

Act = Callable[[Site, dict[str, Any]], Awaitable[object]]


async def sync(site: Site, repeat: str, options: dict[str, Any]) -> object:
    return await site.ok(
        "SyncSchedules", source="src", schedules=[{"name": "s", "repeat": repeat, **options}]
    )


# --- why a tick waits: each is at 03:36 when it is changed -----------------------------------------------


class Reason(NamedTuple):
    """Why the tick of 03:30 waits, and what ends that."""

    options: dict[str, Any]
    wait: Callable[[Site], Awaitable[Any]]
    proceed: Callable[[Site, Any], Awaitable[Any]]
    runs: bool = True
    """Whether a run for the tick follows, or is in progress; otherwise it is entered as skipped."""
    asked: bool = False
    """Whether a run that somebody asked for comes before."""


async def nobody(site: Site) -> None:
    await site.until_time(at(36))


async def locked(site: Site) -> Any:
    await site.create("other", lock="door")
    holder = await site.take("other")
    await site.until_time(at(36))
    assert await site.nothing("s")
    return holder


async def paused(site: Site) -> None:
    await site.ok("PauseJobs", name="s")
    await site.until_time(at(36))


async def down(site: Site) -> None:
    await site.restart(down=364)


async def tried_again(site: Site) -> None:
    await site.until_time(at(30))
    await site.fail(await site.take("s"))
    await site.until_time(at(36))


async def triggered(site: Site) -> None:
    await site.until_time(at(36))
    await site.ok("TriggerJob", name="s")


async def running(site: Site) -> Any:
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time(at(36))
    return job


async def with_children(site: Site) -> Any:
    await site.until_time(at(30))
    job = await site.take("s")
    await site.create("child", parentJobID=job["jobID"])
    await site.finish(job)
    await site.until_time(at(36))
    return await site.take("child")


async def take(site: Site, _: object = None) -> None:
    await site.until_time(at(37))
    await site.finish(await site.take("s"))


async def unlock(site: Site, holder: Any) -> None:
    await site.finish(holder)
    await take(site)


async def resume(site: Site, _: object) -> None:
    await site.until_time(at(37))
    await site.ok("ResumeJobs", name="s")


async def after_jitter(site: Site, _: object) -> None:
    await site.until_time(at(40))
    await site.finish(await site.take("s"))


async def finish(site: Site, job: Any) -> None:
    await site.until_time(at(37))
    await site.finish(job)


async def finish_child(site: Site, child: Any) -> None:
    await site.finish(child)
    await take(site)


async def no_ping(site: Site, _: object) -> None:
    await site.until_time(at(41))


async def settle_hosts(site: Site, _: object) -> None:
    await site.silence(20)
    await site.until_time(at(37))


REASONS = {
    "no worker": Reason({}, nobody, take),
    "locked": Reason({"lock": "door"}, locked, unlock),
    "jitter": Reason({"jitter": 599}, nobody, after_jitter),
    "paused": Reason({}, paused, resume, runs=False),
    "server down": Reason({}, down, take),
    "tried again": Reason({"retries": 3}, tried_again, take),
    "triggered": Reason({}, triggered, take, asked=True),
    "running": Reason({}, running, finish),
    "with children": Reason({}, with_children, finish_child),
    "ping": Reason({"expect": "ping", "pingGrace": 600}, nobody, no_ping, runs=False),
    "on all hosts": Reason({"hosts": "all"}, down, settle_hosts, runs=False),
}

# --- ways to change it -------------------------------------------------------------------------------------


def update(**changes: Any) -> Act:
    async def act(site: Site, _: dict[str, Any]) -> object:
        return await site.ok("UpdateJob", jobID=1, **changes)

    return act


def create(repeat: str, *, several: bool = False) -> Act:
    async def act(site: Site, _: dict[str, Any]) -> object:
        spec = {"name": "s", "repeat": repeat, "unique": True}
        return await site.ok("CreateJobs", jobs=[spec]) if several else await site.ok("CreateJob", **spec)

    return act


def synced(repeat: str) -> Act:
    async def act(site: Site, options: dict[str, Any]) -> object:
        return await sync(site, repeat, options)

    return act


async def often(site: Site, _: dict[str, Any]) -> None:
    for minute in range(FORMER_REPEATS_MAX + 5):
        await site.ok("UpdateJob", jobID=1, repeat=f"CRON {minute} * * * *")
    await site.ok("UpdateJob", jobID=1, repeat=NEW)


WAYS: dict[str, Act] = {
    "UpdateJob": update(repeat=NEW),
    "CreateJob unique": create(NEW),
    "CreateJobs unique": create(NEW, several=True),
    "SyncSchedules": synced(NEW),
    "very often": often,
}

SAME: dict[str, Act] = {
    "UpdateJob respelled": update(repeat=RESPELLED),
    "CreateJob respelled": create(RESPELLED),
    "SyncSchedules respelled": synced(RESPELLED),
    "an option": update(note="x"),
}


async def waiting(site: Site, reason: Reason) -> Any:
    await sync(site, OLD, reason.options)
    held = await reason.wait(site)
    assert site.now.startswith("2026-11-21 03:36:00")
    return held


async def ticks_told(site: Site) -> list[int]:
    return outcomes(await site.ticks(1))[0]


@pytest.mark.parametrize(("way", "why"), crossed(WAYS, REASONS))
async def test_the_due_tick_is_not_lost(site: Site, way: str, why: str) -> None:
    reason = REASONS[why]
    held = await waiting(site, reason)
    await WAYS[way](site, reason.options)
    await reason.proceed(site, held)
    if reason.asked:
        await take(site)
    assert await ticks_told(site) == [30], "the tick that was due, once, and none that never was"
    runs = [run for run in await site.runs() if run["scheduledFor"] == at(30)]
    assert bool(runs) == reason.runs
    (tick,) = await site.ticks(1)
    assert (tick[3] != "skipped") == reason.runs
    assert why == "jitter" or await site.due(1) == at(42)
    if why == "ping":
        (missed,) = await site.events("missed")
        assert at(30) in missed["detail"]
    memory = await site.memory(1)
    assert "formers" not in memory, "nothing is kept once the next tick is one of the new repeat"


@pytest.mark.parametrize(("way", "why"), crossed(SAME, REASONS))
async def test_the_same_ticks_in_other_words_change_nothing(site: Site, way: str, why: str) -> None:
    reason = REASONS[why]
    held = await waiting(site, reason)
    before = await site.row(1)
    await SAME[way](site, reason.options)
    after = await site.row(1)
    kept = ("state", "nextRun", "lastRun", "attempt", "runID", "expires", "lane", "memory")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    await reason.proceed(site, held)
    if reason.asked:
        await take(site)
    assert 30 in await ticks_told(site)


@pytest.mark.parametrize(
    ("changes", "why"),
    crossed([{"nextRun": "2026-11-21 12:00:00"}, {"nextRun": "2026-11-21 12:00:00", "repeat": NEW}], REASONS),
)
async def test_a_tick_that_somebody_moves_is_told(site: Site, changes: dict[str, Any], why: str) -> None:
    reason = REASONS[why]
    await waiting(site, reason)
    await site.ok("UpdateJob", jobID=1, **changes)
    ran = why in ("tried again", "running", "with children")
    if why == "triggered":  # that run was moved; the tick is still to come
        await site.until_time("2026-11-21 12:00:00")
        await site.finish(await site.take("s"))
        await site.finish(await site.take("s"))
        assert (await site.ticks(1))[0][0] == at(30)
        return
    (tick,) = await site.ticks(1)
    assert (tick[0], tick[3], tick[4]) == (at(30), *(("fired", "") if ran else ("skipped", "moved")))
    if not ran and why != "ping":
        assert [event["detail"] for event in await site.events("missed")] == [f"{at(30)}: moved"]


@pytest.mark.parametrize(
    ("changes", "why"),
    crossed(
        [{"shouldClearRepeat": True}, {"repeat": "FINISHED, +1 DAY"}],
        [why for why, reason in REASONS.items() if not reason.options.get("hosts")],
    ),
)
async def test_a_due_run_outlives_the_schedule(site: Site, changes: dict[str, Any], why: str) -> None:
    reason = REASONS[why]
    held = await waiting(site, reason)
    if why == "ping":
        await site.ok("UpdateJob", jobID=1, expect="", pingGrace=0)
    await site.ok("UpdateJob", jobID=1, **changes)
    if why == "paused":
        await site.ok("ResumeJobs", name="s")
    await (take if why in ("ping", "paused") else reason.proceed)(site, held)
    wanted = "(deleted)" if "repeat" not in changes else "QUEUED"
    assert await site.state(1) == wanted
    assert len([run for run in await site.runs() if run["name"] == "s"]) >= 1


async def test_each_missed_tick_of_the_old_repeat_is_made_up_for(site: Site) -> None:
    await sync(site, OLD, {"catchup": "all"})
    await site.until_time("2026-11-21 03:56:00")
    await site.ok("UpdateJob", jobID=1, repeat=NEW)
    for _ in range(3):
        await site.finish(await site.take("s"))
    assert await site.nothing("s")
    assert sorted(run["scheduledFor"] for run in await site.runs()) == [at(30), at(40), at(50)]
    assert await site.due(1) == "2026-11-21 04:00:00"


async def test_a_tick_that_waits_for_the_end_of_a_run_stays_due(site: Site) -> None:
    await sync(site, OLD, {"overlap": "queue"})
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time(at(41))
    await site.ok("UpdateJob", jobID=1, repeat="CRON 0 12 * * *")
    await site.until_time(at(45))
    await site.finish(job)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(40)
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 12:00:00"


async def test_a_run_handed_back_after_a_change_is_taken_for_its_tick(site: Site) -> None:
    await sync(site, OLD, {})
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time(at(36))
    await site.ok("UpdateJob", jobID=1, repeat=NEW)
    await site.end("RetryJob", job, returned=True)
    await take(site)
    assert await ticks_told(site) == [30]
    assert await site.due(1) == at(42)


async def test_what_was_kept_of_former_repeats_outlives_a_restart(site: Site) -> None:
    await sync(site, OLD, {})
    await site.until_time(at(36))
    await site.ok("UpdateJob", jobID=1, repeat=NEW)
    await site.ok("UpdateJob", jobID=1, repeat="CRON 0 12 * * *")
    await site.crash()
    await take(site)
    assert await ticks_told(site) == [30]
    assert await site.due(1) == "2026-11-21 12:00:00"
