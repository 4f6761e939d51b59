"""SyncSchedules: a source's schedules become what they should be, in one transaction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bedrockjobs.base.config import (
    DECLARERS_KEPT_MAX,
    REDECLARE_S,
    SCHEDULE_GRACE_S,
    SCHEDULES_PER_SYNC_MAX,
    VERSIONS_KEPT_MAX,
)
from bedrockjobs.commands.schedules import SYNC_PROBLEMS_MAX
from tests.conftest import Live
from tests.effort import crossed, examples
from tests.runs.bearer import admin_of
from tests.runs.rig import Site

DECLARED = "SELECT value FROM meta WHERE key = 'declared src'"

HOURLY, DAILY = "CRON 0 * * * *", "CRON 0 0 * * *"


async def sync(site: Site, *specs: dict[str, Any], source: str = "src", **more: Any) -> dict[str, Any]:
    """Sync; return the names that were added, changed, removed, unchanged."""
    found: dict[str, Any] = await site.ok("SyncSchedules", source=source, schedules=list(specs), **more)
    return found


def answer(**lists: list[str]) -> dict[str, list[str]]:
    """Return an answer, of which the lists left out are empty."""
    return {"added": [], "changed": [], "removed": [], "unchanged": [], **lists}


def spec(name: str, repeat: str = HOURLY, **more: Any) -> dict[str, Any]:
    """Return a schedule."""
    return {"name": name, "repeat": repeat, **more}


async def names(site: Site) -> list[str]:
    """Return the names of all jobs."""
    return [row["name"] for row in await site.select("SELECT name FROM jobs ORDER BY name")]


async def test_added(site: Site) -> None:
    found = await sync(site, spec("a", cmd="ls", tags=["x"]), spec("b", DAILY, data={"n": 1}))
    assert found == answer(added=["a", "b"])
    shown = await site.ok("QueryJob", jobID=1)
    assert (shown["repeat"], shown["cmd"], shown["tags"], shown["source"]) == (HOURLY, "ls", ["x"], "src")
    assert shown["nextRun"] == "2026-11-21 04:00:00"
    assert (await site.ok("QueryJob", jobID=2))["data"] == {"n": 1}
    assert (await site.options(1))["source"] == "src"


async def test_nothing_is_removed_without_pruning(site: Site) -> None:
    await sync(site, spec("a"), spec("b"))
    assert await sync(site, spec("c"), prune=False) == answer(added=["c"])
    assert await names(site) == ["a", "b", "c"]
    assert await sync(site, spec("c"), prune=False, dryRun=True) == answer(unchanged=["c"])
    assert await sync(site, spec("c"), prune=True) == answer(removed=["a", "b"], unchanged=["c"])
    assert await names(site) == ["c"]


async def test_unchanged(site: Site) -> None:
    specs = [spec("a", cmd="ls", data={"x": 1}, jobPriority=750), spec("b")]
    await sync(site, *specs)
    before = [await site.row(1), await site.row(2)]
    await site.later(10)
    assert await sync(site, *specs) == answer(unchanged=["a", "b"])
    assert [await site.row(1), await site.row(2)] == before


@pytest.mark.parametrize(
    "change",
    [
        {"repeat": DAILY},
        {"cmd": "ls -l"},
        {"jobPriority": 1000},
        {"retries": 3},
        {"tags": ["y"]},
        {"data": {"n": 2}},
        {"lock": True},
    ],
)
async def test_changed(site: Site, change: dict[str, Any]) -> None:
    old = spec("a", cmd="ls", data={"n": 1}, tags=["x"])
    await sync(site, old, spec("b"))
    assert await sync(site, {**old, **change}, spec("b")) == answer(changed=["a"], unchanged=["b"])
    shown = await site.ok("QueryJob", jobID=1)
    for name, value in change.items():
        assert shown["priority" if name == "jobPriority" else name] == value
    assert await sync(site, {**old, **change}, spec("b")) == answer(unchanged=["a", "b"])


async def test_an_attribute_left_out_counts_as_its_default(site: Site) -> None:
    await sync(site, spec("a", retries=3, jobPriority=1000))
    assert await sync(site, spec("a")) == answer(changed=["a"])
    shown = await site.ok("QueryJob", jobID=1)
    assert "retries" not in shown
    assert shown["priority"] == 500


async def test_data_left_out_counts_as_its_default(site: Site) -> None:
    await sync(site, spec("a", data={"n": 1}))
    assert await sync(site, spec("a")) == answer(changed=["a"])
    assert (await site.ok("QueryJob", jobID=1))["data"] == {}


async def test_only_a_changed_repeat_moves_the_next_tick(site: Site) -> None:
    await sync(site, spec("a"))
    await site.until_time("2026-11-21 04:00:10")
    await sync(site, spec("a", retries=1))
    assert await site.due(1) == "2026-11-21 04:00:00", "the tick that is due is not lost"
    await sync(site, spec("a", DAILY, retries=1))
    assert await site.due(1) == "2026-11-21 04:00:00", "nor is it by another repeat"
    await site.finish(await site.take("a"))
    assert await site.due(1) == "2026-11-22 00:00:00"
    await sync(site, spec("a", "CRON 0 12 * * *", retries=1))
    assert await site.due(1) == "2026-11-21 12:00:00"


async def test_removed(site: Site) -> None:
    await sync(site, spec("a"), spec("b"))
    assert await sync(site, spec("b")) == answer(removed=["a"], unchanged=["b"])
    assert await names(site) == ["b"]
    (event,) = await site.events("deleted")
    assert event["name"] == "a"
    assert await sync(site) == answer(removed=["b"])
    assert await names(site) == []


async def test_one_with_a_run_in_progress_ends_with_that_run(site: Site) -> None:
    await sync(site, spec("a"))
    await site.until_time("2026-11-21 04:00:00")
    job = await site.leased("a")
    assert await sync(site) == answer(removed=["a"])
    row = await site.row(1)
    assert (row["state"], row["repeat"], row["runID"]) == ("RUNNING", "", job["runID"])
    assert "source" not in await site.options(1)
    assert (await site.beat(job["runID"]))["stop"] == []
    await site.finish(job)
    assert await names(site) == []


async def test_one_that_is_running_is_changed_without_harm(site: Site) -> None:
    await sync(site, spec("a"))
    await site.until_time("2026-11-21 04:00:00")
    job = await site.take("a")
    assert await sync(site, spec("a", DAILY)) == answer(changed=["a"])
    assert await site.state(1) == "RUNNING"
    await site.finish(job)
    assert await site.due(1) == "2026-11-22 00:00:00"


async def test_sources_do_not_see_each_other(site: Site) -> None:
    await sync(site, spec("a"), source="one")
    await sync(site, spec("b"), source="two")
    await site.create("c", repeat=HOURLY)
    assert await sync(site, source="one") == answer(removed=["a"])
    assert await names(site) == ["b", "c"]


@pytest.mark.parametrize("of", ["nobody", "other", "plain"])
async def test_a_job_of_that_name_without_this_source_is_refused_by_name(site: Site, of: str) -> None:
    if of == "other":
        await sync(site, spec("taken"), source="other")
    else:
        await site.create("taken", **({"repeat": HOURLY} if of == "nobody" else {}))
    body = {"source": "src", "schedules": [spec("fine"), spec("taken")]}
    reply = await site.http("SyncSchedules", body)
    assert reply.json["code"] == 405
    assert "taken" in reply.json["reason"] + reply.json["detail"]
    assert await names(site) == ["taken"], "one transaction: nothing was added"


async def test_dry_run_changes_nothing(site: Site) -> None:
    await sync(site, spec("a"), spec("b"), spec("c"))
    before = await site.select("SELECT * FROM jobs")
    events = await site.events()
    found = await sync(site, spec("a", DAILY), spec("b"), spec("d"), dryRun=True)
    assert found == answer(added=["d"], changed=["a"], removed=["c"], unchanged=["b"])
    assert await site.select("SELECT * FROM jobs") == before
    assert await site.events() == events
    assert await site.create("next") == 4, "no jobID was used up"


@pytest.mark.parametrize(
    "specs",
    [
        [spec("a"), spec("a")],
        [{"name": "a"}],
        [{"name": "a", "repeat": "FINISHED, +1 HOUR"}],
        [{"repeat": HOURLY}],
        [spec("a", "CRON 61 * * * *")],
        [spec("a", colour="red")],
        [spec("a", retries=-1)],
        [spec("a", cmd="ls", argv=["ls"])],
        [spec("a", retryAfter="+1 HOUR")],
    ],
    ids=[
        "twice",
        "no repeat",
        "no CRON",
        "no name",
        "bad",
        "unknown",
        "option",
        "two commands",
        "retryAfter",
    ],
)
async def test_a_bad_spec_is_refused_and_nothing_is_done(site: Site, specs: list[dict[str, Any]]) -> None:
    await sync(site, spec("old"))
    code, _ = await site.refused("SyncSchedules", source="src", schedules=[spec("fine"), *specs])
    assert code == 402
    assert await names(site) == ["old"]


async def test_the_source_is_needed(site: Site) -> None:
    assert await site.refused("SyncSchedules", schedules=[]) == (402, "Missing source")
    assert (await site.refused("SyncSchedules", source="src"))[0] in (401, 402)


async def test_it_is_an_event(site: Site) -> None:
    await sync(site, spec("a"), by="ann")
    (event,) = await site.events("synced")
    assert (event["name"], event["by"]) == ("src", "ann")


async def test_it_survives_a_restart(site: Site) -> None:
    await sync(site, spec("a"), spec("b"))
    await site.restart()
    assert await sync(site, spec("b"), spec("c")) == answer(added=["c"], removed=["a"], unchanged=["b"])


async def test_many(site: Site) -> None:
    many = examples(1_000, night=5_000)
    specs = [spec(f"s{number:05}") for number in range(many)]
    assert len((await sync(site, *specs))["added"]) == many
    assert len((await sync(site, *specs[10:]))["removed"]) == 10


async def test_what_a_finished_run_left_is_no_change(site: Site) -> None:
    """The job's own memory of errors and counts is not a part of its definition."""
    await sync(site, spec("a", retries=1, backoff=0))
    await site.until_time("2026-11-21 04:00:00")
    await site.fail(await site.take("a"), error="no disk")
    await site.fail(await site.take("a"), error="no disk")
    assert await sync(site, spec("a", retries=1, backoff=0)) == answer(unchanged=["a"])


async def test_too_many(site: Site) -> None:
    specs = [spec(str(number)) for number in range(SCHEDULES_PER_SYNC_MAX + 1)]
    body = {"source": "src", "schedules": specs}
    assert await site.refused("SyncSchedules", **body) == (402, "Malformed schedules")
    assert str(SCHEDULES_PER_SYNC_MAX) in await site.detail("SyncSchedules", **body)
    assert await names(site) == []


async def test_a_change_is_checked_as_a_new_one(site: Site) -> None:
    await sync(site, spec("a", cmd="ls"))
    before = await site.row(1)
    for change in ({"argv": ["a"]}, {"hosts": "all", "lock": "x"}):
        bad = spec("a", cmd="ls", **change)
        assert (await site.refused("SyncSchedules", source="src", schedules=[bad]))[0] == 402
        assert await site.row(1) == before


@pytest.mark.parametrize("end", ["FinishJob", "FailJob"])
async def test_a_removed_one_is_gone_when_its_run_ends(site: Site, end: str) -> None:
    await sync(site, spec("a", "CRON * * * * *"))
    await site.until_time("2026-11-21 03:31:00")
    job = await site.take("a")
    assert await sync(site) == answer(removed=["a"])
    await site.end(end, job)
    assert await site.state(1) == "(deleted)"
    assert await sync(site, spec("a")) == answer(added=["a"])


async def test_a_dry_run_tells_all_problems_at_once(site: Site) -> None:
    """Each with its place, its name, and what was expected; without it the first is refused, and counted."""
    await site.create("taken")
    await sync(site, spec("other's"), source="other")
    bad = [
        spec("fine"),
        spec("taken"),
        spec("both", hosts="all", lock="x"),
        spec("other's"),
        spec("gone", "CRON 0 0 1 1 * 2020"),
        spec("fine"),
        spec("plain", "FINISHED, +1 HOUR"),
        spec("pinged", expect="ping", cmd="ls"),
        spec("once", unique=True),
    ]
    found = await sync(site, *bad, dryRun=True)
    told = [(each["place"], each["name"], each["reason"]) for each in found["problems"]]
    assert told == [
        (1, "taken", "Name is taken"),
        (2, "both", "Malformed hosts"),
        (3, "other's", "Name is taken"),
        (4, "gone", "Malformed repeat"),
        (5, "fine", "Malformed schedules"),
        (6, "plain", "Malformed repeat"),
        (7, "pinged", "Malformed expect"),
        (8, "once", "Malformed schedules"),
    ]
    assert found["problems"][0]["detail"] == "name: job 1 has this name and is no schedule (QUEUED)"
    assert found["problems"][1]["detail"] == "hosts: expected nothing together with lock"
    detail = await site.detail("SyncSchedules", source="src", schedules=bad)
    assert (
        detail == "schedules.1.name: job 1 has this name and is no schedule (QUEUED); dryRun reports 7 more"
    )
    assert await names(site) == ["other's", "taken"]


async def test_a_dry_run_tells_a_change_that_cannot_be(site: Site) -> None:
    await sync(site, spec("a", cmd="ls"))
    found = await sync(site, spec("a", hosts="all", lock="x"), spec("b"), dryRun=True)
    assert [each["name"] for each in found["problems"]] == ["a"]
    assert "problems" not in await sync(site, spec("a", lock="x"), spec("b"), dryRun=True)


async def test_the_problems_told_have_a_limit(site: Site) -> None:
    bad = [spec(f"s{number}", hosts="all", lock="x") for number in range(SYNC_PROBLEMS_MAX + 5)]
    assert len((await sync(site, *bad, dryRun=True))["problems"]) == SYNC_PROBLEMS_MAX


async def test_a_dry_run_tells_each_name_that_is_not_the_tokens(live: Live) -> None:
    """Without a word on what there is of that name."""
    root = await admin_of(live)
    await root.ok("CreateJob", name="theirs/there")
    mine = await root.token_for("m", "operate", "mine/*")
    given = [spec("theirs/there"), spec("mine/a"), spec("theirs/new")]
    found = await mine.ok("SyncSchedules", source="s", schedules=given, dryRun=True)
    assert [(each["place"], each["detail"]) for each in found["problems"]] == [
        (0, "name: expected names within mine/*"),
        (2, "name: expected names within mine/*"),
    ]
    refused = await mine.http("SyncSchedules", source="s", schedules=given)
    assert (refused.code, refused.json["detail"]) == (404, "schedules.0.name: expected names within mine/*")


# --- what live workers declare ---------------------------------------------------------------------------


async def beat(site: Site, worker: str, **more: Any) -> None:
    """Let a worker be there; with ``leaving`` it ends."""
    await site.ok("Heartbeat", worker=worker, **more)


async def declare(site: Site, worker: str, *specs: dict[str, Any]) -> dict[str, Any]:
    """Let a worker be there and declare its schedules; return what became of them."""
    await beat(site, worker)
    found = await sync(site, *specs, worker=worker, by=worker)
    assert REDECLARE_S < found.pop("again") <= 600
    return found


async def settled(site: Site) -> None:
    """Let the time pass in which workers of before a restart count as alive."""
    await site.later(60)


async def test_a_rolling_restart_removes_nothing_that_a_live_worker_declares(site: Site) -> None:
    """An old worker that restarts, or comes from a laptop, neither removes nor changes the new one's."""
    await settled(site)
    old, new = [spec("a"), spec("gone")], [spec("a", DAILY), spec("new")]
    assert await declare(site, "old", *old) == answer(added=["a", "gone"])
    assert await declare(site, "new", *new) == answer(added=["new"], changed=["a"], kept=["gone"])
    for _ in range(2):  # however often it starts
        await beat(site, "old", leaving=True)
        assert await declare(site, "old", *old) == answer(unchanged=["gone"], kept=["a", "new"])
        assert await declare(site, "new", *new) == answer(unchanged=["a", "new"], kept=["gone"])
        await site.later(SCHEDULE_GRACE_S)
    assert (await site.ok("QueryJob", jobID=1))["repeat"] == DAILY
    assert await site.events("deleted") == await site.events("undeclared") == []


async def test_one_that_nobody_declares_is_removed_after_a_grace_and_told_before(site: Site) -> None:
    await settled(site)
    await declare(site, "old", spec("a"), spec("gone"))
    await beat(site, "old", leaving=True)
    for _ in range(2):
        assert await declare(site, "new", spec("a")) == answer(unchanged=["a"], undeclared=["gone"])
    (told,) = await site.events("undeclared")
    assert (told["name"], told["by"]) == ("gone", "new")
    assert told["detail"].startswith("no live worker of src declares it; it is removed at 2026-11-21 ")
    await site.later(SCHEDULE_GRACE_S - 1)
    assert await declare(site, "new", spec("a")) == answer(unchanged=["a"], undeclared=["gone"])
    await site.later(1)
    assert await declare(site, "new", spec("a")) == answer(removed=["gone"], unchanged=["a"])
    assert [event["name"] for event in await site.events("deleted")] == ["gone"]
    assert await declare(site, "new", spec("a")) == answer(unchanged=["a"])
    assert await declare(site, "old", spec("a"), spec("gone")) == answer(added=["gone"], unchanged=["a"])


async def test_the_grace_begins_anew_with_a_worker_that_was_back(site: Site) -> None:
    await settled(site)
    await declare(site, "old", spec("a"), spec("gone"))
    await beat(site, "old", leaving=True)
    await declare(site, "new", spec("a"))
    await site.later(SCHEDULE_GRACE_S - 1)
    await declare(site, "old", spec("a"), spec("gone"))
    await beat(site, "old", leaving=True)
    await site.later(SCHEDULE_GRACE_S)
    assert (await declare(site, "new", spec("a")))["undeclared"] == ["gone"]
    assert await names(site) == ["a", "gone"]


async def test_an_older_version_holds_again_once_the_newer_one_has_ended(site: Site) -> None:
    """As after somebody tried a branch against the real server, or went back to the version before."""
    await settled(site)
    await declare(site, "main", spec("a"))
    assert (await declare(site, "branch", spec("a", DAILY), spec("b")))["changed"] == ["a"]
    assert await declare(site, "main", spec("a")) == answer(kept=["a", "b"])
    await beat(site, "branch", leaving=True)
    assert await declare(site, "main", spec("a")) == answer(changed=["a"], undeclared=["b"])
    assert (await site.ok("QueryJob", jobID=1))["repeat"] == HOURLY


async def test_one_that_was_removed_comes_back_by_itself(site: Site) -> None:
    await declare(site, "w", spec("a"), spec("b"))
    await site.ok("DeleteJob", jobID=1)
    assert await declare(site, "w", spec("a"), spec("b")) == answer(added=["a"], unchanged=["b"])


async def test_a_sync_by_hand_spares_what_a_live_worker_declares(site: Site) -> None:
    """Such as one of a worker of an older release, which does not say who it is."""
    await settled(site)
    await sync(site, spec("a"), spec("before"))
    await declare(site, "w", spec("a"), spec("b"))
    assert await sync(site, spec("a")) == answer(unchanged=["a"], removed=["before"], kept=["b"])
    await beat(site, "w", leaving=True)
    assert await sync(site, spec("a")) == answer(unchanged=["a"], removed=["b"])


async def test_schedules_of_an_older_release_have_their_grace_too(site: Site) -> None:
    await sync(site, spec("a"), spec("old"))
    for _ in range(2):
        assert (await declare(site, "w", spec("a")))["undeclared"] == ["old"]
    assert len(await site.events("undeclared")) == 1
    await site.later(SCHEDULE_GRACE_S)
    assert (await declare(site, "w", spec("a")))["removed"] == ["old"]


async def test_a_restart_of_the_server_lets_workers_come_back(site: Site) -> None:
    """It knows none of them at first, and must not take that for their end."""
    await settled(site)
    await declare(site, "old", spec("a"), spec("gone"))
    await declare(site, "new", spec("a", DAILY))
    await site.restart()
    assert await declare(site, "old", spec("a"), spec("gone")) == answer(unchanged=["gone"], kept=["a"])
    await site.restart()
    assert await declare(site, "new", spec("a", DAILY)) == answer(unchanged=["a"], kept=["gone"])
    await settled(site)
    await beat(site, "old", leaving=True)
    assert (await declare(site, "new", spec("a", DAILY)))["undeclared"] == ["gone"]


async def test_a_dry_run_declares_nothing(site: Site) -> None:
    await settled(site)
    await sync(site, spec("a"))
    await sync(site, spec("a", DAILY), worker="w", dryRun=True)
    assert await site.events("undeclared") == []
    assert await sync(site, prune=True) == answer(removed=["a"])


async def test_how_many_workers_and_versions_are_remembered(site: Site) -> None:
    """What is kept of a source does not grow with its workers or with the days."""
    await settled(site)
    for number in range(DECLARERS_KEPT_MAX + 5):
        await declare(site, f"w{number}", spec("a"))
    for number in range(VERSIONS_KEPT_MAX + 5):
        await declare(site, "w0", spec("a", retries=number))
    ((text,),) = [list(row.values()) for row in await site.select(DECLARED)]
    versions = json.loads(text)
    assert [len(workers) for _, _, workers, gone in versions if not gone] == [DECLARERS_KEPT_MAX, 1]
    assert sum(bool(gone) for *_, gone in versions) == VERSIONS_KEPT_MAX
    assert versions[-1][2] == ["w0"]


# --- put back, taken over, and good yesterday -------------------------------------------------------------


@pytest.mark.parametrize("source", ["src", "renamed.toml"])
async def test_what_was_removed_while_it_ran_is_put_back(site: Site, source: str) -> None:
    await sync(site, spec("a", "CRON */10 * * * *"), spec("b"))
    await site.until_time("2026-11-21 03:30:00")
    job = await site.take("a")
    assert await sync(site, spec("b")) == answer(removed=["a"], unchanged=["b"])
    await site.until_time("2026-11-21 03:55:00")
    found = await site.ok(
        "SyncSchedules", source=source, schedules=[spec("a", "CRON */7 * * * *", retries=2)]
    )
    assert found["added"] == ["a"]
    row = await site.row(1)
    assert (row["state"], row["repeat"], row["runID"]) == ("RUNNING", "CRON */7 * * * *", job["runID"])
    assert (await site.options(1)) == {"source": source, "retries": 2}
    await site.until_time("2026-11-21 03:57:00")
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 04:00:00"
    ledger = [(tick[0][14:16], tick[1][14:16], *tick[2:]) for tick in await site.ticks(1)]
    assert ledger == [("30", "30", 1, "fired", ""), ("56", "56", 1, "skipped", "running")]


async def test_a_schedule_of_another_source_is_taken_over_on_request(site: Site) -> None:
    await sync(site, spec("a"))
    await site.create("hand", repeat=HOURLY)
    await site.create("job")
    other = [spec("a"), spec("hand", DAILY), spec("new")]
    found = await site.ok("SyncSchedules", source="new.toml", schedules=[*other, spec("job")], dryRun=True)
    assert [problem["detail"] for problem in found["problems"]] == [
        "name: it belongs to the source 'src' (job 1); takeOver moves it to this source",
        "name: it was added by hand (job 2); takeOver moves it to this source",
        "name: job 3 has this name and is no schedule (QUEUED)",
    ]
    found = await site.ok("SyncSchedules", source="new.toml", schedules=other, takeOver=True)
    assert found == answer(added=["new"], changed=["a", "hand"])
    assert [(await site.options(number))["source"] for number in (1, 2)] == ["new.toml"] * 2
    assert await sync(site) == answer(), "the other source has it no longer, and does not remove it"
    code = await site.refused("SyncSchedules", source="new.toml", schedules=[spec("job")], takeOver=True)
    assert code == (405, "Name is taken")


DOING = {
    "waiting": (),
    "triggered": ("trigger",),
    "running": ("trigger", "take"),
    "asked to stop": ("trigger", "take", "stop"),
    "tried again": ("trigger", "take", "fail"),
    "paused": ("pause",),
    "paused while it runs": ("trigger", "take", "pause"),
    "waiting for its lock": ("lock", "trigger"),
}
"""What a schedule does when it is removed, and how it comes to that."""

REMOVED = {
    "left out": [("src", False), ("src", True)],
    "left out and put into another file": [("src", False), ("new", True)],
    "put into a renamed file": [("new", True)],
    "put into a renamed file and back": [("new", True), ("src", False), ("src", True), ("new", False)],
    "left out twice": [("src", False), ("src", True), ("src", False), ("src", True)],
}
"""Ways to remove a schedule and to put it back: sources in order, and whether each has the schedule."""


async def doing(site: Site, name: str, steps: tuple[str, ...]) -> dict[str, Any] | None:
    """Bring a schedule to what it does; return its run if it is in progress."""
    run: dict[str, Any] | None = None
    for step in steps:
        if step == "trigger":
            await site.ok("TriggerJob", name=name)
        elif step == "take":
            run = await site.take(name)
        elif step == "stop":
            assert run is not None
            await site.ok("TerminateRun", runID=run["runID"])
        elif step == "fail":
            assert run is not None
            await site.fail(run, error="no")
            run = None
        elif step == "pause":
            await site.ok("PauseJobs", name=name)
        else:
            await site.create(f"holds/{name}", lock=name)
            await site.take(f"holds/{name}")
    return run


async def test_a_schedule_is_put_back_whatever_it_does(site: Site) -> None:
    for number, (what, way) in enumerate(crossed(DOING, REMOVED)):
        steps = DOING[what]
        name, case = f"s{number}", f"{way}, {what}"
        given = spec(name, retries=1, lock=name)
        await sync(site, given)
        run = await doing(site, name, steps)
        for source, has in REMOVED[way]:
            wanted = [{**given, "repeat": DAILY}] if has else []
            found = await sync(site, *wanted, source=source, takeOver=True)
            assert "problems" not in found, case
        (row,) = await site.select(f"SELECT jobID, repeat, state FROM jobs WHERE name = '{name}'")
        assert row["repeat"] == DAILY, case
        assert (row["state"] == "RUNNING") == (run is not None), case
        kept = [source for source, has in REMOVED[way] if has][-1]
        assert (await site.options(row["jobID"]))["source"] == kept, case
        if run is not None:
            await site.finish(run)
            assert await site.state(row["jobID"]) == "QUEUED", case
        for source in ("src", "new"):
            await sync(site, source=source)
        assert await site.select(f"SELECT * FROM jobs WHERE name = '{name}'") == [], f"{case}: it is removed"


OVER = "CRON 0 0 4 * * * 2026"
"""Its last tick is at the end of 2026."""


async def test_a_file_that_was_good_yesterday_is_good_today(site: Site) -> None:
    await sync(site, spec("over", OVER), spec("b"))
    await site.until_time("2027-01-01 00:00:10")
    await site.finish(await site.take("over"))
    assert await site.due(1) == "9999-12-31 23:59:59"
    found = await sync(site, spec("over", OVER), spec("b", DAILY))
    (warning,) = found.pop("warnings")
    assert (warning["place"], warning["name"]) == (0, "over")
    assert "its last one has passed" in warning["detail"]
    assert found == answer(changed=["b"], unchanged=["over"])
    found = await sync(site, spec("over", OVER, retries=1), spec("b", DAILY))
    assert (found["changed"], len(found["warnings"])) == (["over"], 1)
    await site.ok("UpdateJob", jobID=1, repeat=OVER, jobPriority=1000)
    await site.ok("CreateJob", name="over", repeat=OVER, unique=True, data={"x": 1})
    assert await site.refused("CreateJob", name="new", repeat=OVER) == (402, "Malformed repeat")
    assert await site.refused("UpdateJob", jobID=2, repeat=OVER) == (402, "Malformed repeat")


async def test_a_zone_that_is_gone_is_left_as_it_is(site: Site) -> None:
    await sync(site, spec("gone"), spec("b"))
    gone = "CRON TZ=Mars/Base 0 4 * * *"
    await site.change(f"UPDATE jobs SET repeat = '{gone}' WHERE jobID = 1")
    found = await sync(site, spec("gone", gone), spec("b", DAILY))
    assert (found["changed"], found["unchanged"]) == (["b"], ["gone"])
    assert "Mars/Base" in found["warnings"][0]["detail"]
    assert (await site.refused("SyncSchedules", source="x", schedules=[spec("new", gone)]))[0] == 402
