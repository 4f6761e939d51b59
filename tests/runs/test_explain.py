"""ExplainJob: what a job is waiting for, the most decisive first; and ListSchedules and ValidateSchedule."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from tests.runs.rig import Site


async def why(site: Site, job_id: int) -> list[str]:
    """Return the reasons."""
    answer = await site.ok("ExplainJob", jobID=job_id)
    return [entry["reason"] for entry in answer["waitsFor"]]


async def detail(site: Site, job_id: int, reason: str) -> str:
    """Return the detail of a reason that must be there."""
    answer = await site.ok("ExplainJob", jobID=job_id)
    (found,) = [entry["detail"] for entry in answer["waitsFor"] if entry["reason"] == reason]
    return str(found)


async def test_a_due_job_for_which_there_is_a_worker_waits_for_nothing(site: Site) -> None:
    await site.beat(names=["a*"], slots=2)
    await site.create("a")
    assert await site.ok("ExplainJob", jobID=1) == {
        "jobID": 1,
        "state": "QUEUED",
        "name": "a",
        "waitsFor": [],
    }


ASKED = {
    "a,b": "the names a and b; ask for a?b",
    "b[1": "it does not match itself; ask for b[[]1",
    "c[x]": "it does not match itself; ask for c[[]x]",
    ",": "asks for nothing; ask for ?",
    "[" * 255: f"it does not match itself; ask for {'?' * 255}",
}
"""Names that ask for something else, and what is said of them."""


@pytest.mark.parametrize("name", ASKED)
async def test_a_name_that_does_not_ask_for_itself(site: Site, name: str) -> None:
    """The worker asks for the name as it stands, gets nothing, and is told how to ask."""
    await site.beat(names=[name.replace(",", "+")], slots=2)
    job = await site.create(name)
    assert (await site.ask("GetJob", name=name)).code in (402, 404)
    assert (await why(site, job))[:2] == ["name", "no worker"]
    said = await detail(site, job, "name")
    assert ASKED[name] in said
    advice = said.rpartition("ask for ")[2].partition(", or in a list")[0]
    assert (await site.ok("GetJob", name=advice))["jobID"] == job


@pytest.mark.parametrize("name", ["a", "a*", "a?", "a]", "é b", "x^y", "a-b"])
async def test_other_names_ask_for_themselves(site: Site, name: str) -> None:
    job = await site.create(name)
    assert (await why(site, job)) == ["no worker"]
    assert (await site.ok("GetJob", name=name))["jobID"] == job


async def test_each_name_of_special_characters_asks_for_itself_or_is_told_how(site: Site) -> None:
    """All pairs, and some of three: an advice, where one is given, gets the job."""
    special = "a,[]!^-"
    names = ["".join(letters) for size in (1, 2) for letters in product(special, repeat=size)]
    names += Random(1).sample(["".join(letters) for letters in product(special, repeat=3)], 30)
    advised = 0
    for name in names:
        created = await site.http("CreateJob", {"name": name})
        if created.code != 200:
            continue
        job = created.json["jobID"]
        if "name" in await why(site, job):
            assert (await site.ask("GetJob", name=name)).code in (402, 404), name
            advice = (
                (await detail(site, job, "name")).rpartition("ask for ")[2].partition(", or in a list")[0]
            )
            assert (await site.ok("GetJob", name=advice))["jobID"] == job, (name, advice)
            advised += 1
        else:
            assert (await site.ok("GetJob", name=name))["jobID"] == job, name
    assert advised > 10


async def test_who_asks_by_another_pattern_needs_no_advice(site: Site) -> None:
    await site.beat(names=["a*"], slots=2)
    assert await why(site, await site.create("a,b")) == []


async def test_an_unknown_job(site: Site) -> None:
    assert await site.refused("ExplainJob", jobID=7) == (404, "No job with this jobID")


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "CANCELLED"])
async def test_state(site: Site, state: str) -> None:
    await site.create("p")
    if state == "CANCELLED":
        parent = await site.take("p")
        for _ in range(2):
            await site.create("c", parentJobID=1)
        await site.finish(parent)
        await site.ok("CancelJob", jobID=2)
        assert await site.state(2) == "CANCELLED"
    else:
        job = await site.take("p")
        if state == "FAILED":
            await site.fail(job, error="no disk")
    job_id = 2 if state == "CANCELLED" else 1
    assert (await why(site, job_id))[0] == "state"
    assert await detail(site, job_id, "state") != ""


async def test_children(site: Site) -> None:
    await site.create("p")
    parent = await site.take("p")
    for _ in range(2):
        await site.create("c", parentJobID=1)
    await site.finish(parent)
    reasons = await why(site, 1)
    assert "children" in reasons
    assert reasons == [reason for reason in ("state", "children") if reason in reasons]
    assert "2" in await detail(site, 1, "children")


async def test_paused_says_who_why_and_until_when(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("a")
    await site.ok("PauseJobs", name="a", by="ann", reason="a flood", until="2026-12-01 00:00:00")
    assert await why(site, 1) == ["paused"]
    text = await detail(site, 1, "paused")
    assert "ann" in text
    assert "a flood" in text
    assert "2026-12-01" in text
    await site.ok("ResumeJobs", name="a")
    assert await why(site, 1) == []


async def test_next_run(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("a", firstRun="2026-11-21 03:31:00")
    assert await why(site, 1) == ["nextRun"]
    assert "2026-11-21 03:31:00" in await detail(site, 1, "nextRun")
    await site.until_time("2026-11-21 03:31:00")
    await site.beat(names=["*"])
    assert await why(site, 1) == []


async def test_a_lock_says_which_job_holds_it(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("holder", lock="disk")
    await site.create("a", lock="disk")
    job = await site.take("holder", None)
    assert await why(site, 2) == ["lock"]
    text = await detail(site, 2, "lock")
    assert "disk" in text
    assert "1" in text
    await site.finish(job)
    assert await why(site, 2) == []


@pytest.mark.parametrize(
    ("own", "option"),
    [
        ({"cmd": "ls"}, "--allow-shell"),
        ({"argv": ["ls"]}, "--allow-cmd"),
        ({"url": "http://localhost/"}, "--allow-url"),
    ],
)
async def test_an_own_command_that_nobody_accepts(own: dict[str, Any], option: str, site: Site) -> None:
    (kind,) = own
    await site.create("a", **own)
    told = await detail(site, 1, "own command")
    assert told.endswith(f" accepts jobs with {kind}; `bedrock-worker --name a {option} a` starts one")
    await site.beat(names=["*"])
    await site.asking("b", "w1", accepts="cmd" if kind == "url" else "url")
    assert await why(site, 1) == ["own command"]
    assert kind in await detail(site, 1, "own command")
    await site.ok("PauseJobs", name="a")
    await site.asking("a", "w2", accepts=kind)
    assert await why(site, 1) == ["paused"]


async def test_no_worker(site: Site) -> None:
    await site.create("a")
    assert await why(site, 1) == ["no worker"]
    await site.beat(names=["b*", "c"])
    assert await why(site, 1) == ["no worker"]
    await site.beat(worker="w2", names=["b", "a"])
    assert await why(site, 1) == []


async def test_a_worker_that_waits_is_a_worker(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:31:00")
    await site.asking("a*")
    assert await why(site, 1) == ["nextRun"]


async def test_a_worker_that_fell_silent_is_none(site: Site) -> None:
    await site.create("a")
    await site.beat(names=["*"])
    assert await why(site, 1) == []
    await site.both(46)
    assert await why(site, 1) == ["no worker"]


async def test_ahead(site: Site) -> None:
    await site.beat(names=["*"])
    for _ in range(3):
        await site.create("a")
    await site.create("a", jobPriority=1000)
    await site.create("a", jobPriority=0)
    assert await why(site, 4) == []
    assert await why(site, 3) == ["ahead"]
    assert "3" in await detail(site, 3, "ahead")
    assert "4" in await detail(site, 5, "ahead")


async def test_what_is_not_due_is_not_ahead(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("a", jobPriority=1000, firstRun="2026-11-21 04:00:00")
    await site.create("a")
    assert await why(site, 2) == []


async def test_the_order(site: Site) -> None:
    await site.create("holder", lock="disk")
    await site.take("holder")
    await site.create("a", lock="disk", cmd="ls", firstRun="2026-11-21 04:00:00")
    await site.ok("PauseJobs", name="a")
    order = ["state", "children", "paused", "nextRun", "lock", "own command", "no worker", "ahead"]
    reasons = await why(site, 2)
    assert reasons[:3] == ["paused", "nextRun", "lock"]
    assert "own command" in reasons
    assert reasons == [reason for reason in order if reason in reasons]


async def test_a_triggered_job_passes_the_pause(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("s", repeat="CRON @daily")
    await site.ok("PauseJobs")
    assert await why(site, 1) == ["paused", "nextRun"]
    await site.ok("TriggerJob", name="s")
    assert await why(site, 1) == []


async def test_a_schedule_without_a_further_tick_says_so(site: Site) -> None:
    await site.beat(names=["*"])
    await site.create("ends", repeat="CRON 30 3 21 11 * 2026")
    assert await why(site, 1) == ["nextRun"]
    await site.until_time("2026-11-21 03:30:00")
    await site.finish(await site.take("ends"))
    assert await why(site, 1) == ["no tick"]
    assert "the last one has passed" in await detail(site, 1, "no tick")
    await site.create("by hand", repeat="CRON @never")
    assert "never fires by itself" in await detail(site, 2, "no tick")
    await site.ok("TriggerJob", jobID=2)
    assert await why(site, 2) == []


async def test_a_schedule_that_is_over_is_refused_in_these_words(site: Site) -> None:
    repeat = "CRON 0 0 1 1 * 2020-2025"
    words = "a tick that is still to come; its last one has passed, so it never fires"
    assert await site.refused("CreateJob", name="s", repeat=repeat) == (402, "Malformed repeat")
    reply = await site.ask("CreateJob", name="s", repeat=repeat)
    assert f"expression '0 0 1 1 * 2020-2025': expected {words}" in str(reply)
    answer = await site.ok("ValidateSchedule", repeat=repeat)
    assert answer["valid"] is False
    assert words in answer["errors"][0]


# --- ListSchedules ---------------------------------------------------------------------------------------


async def schedules(site: Site, **which: Any) -> list[dict[str, Any]]:
    """Return schedules as they are listed."""
    await site.settle()
    return list((await site.ok("ListSchedules", **which))["schedules"])


async def test_only_cron_repeats_are_listed(site: Site) -> None:
    await site.create("a", repeat="FINISHED, +1 HOUR")
    await site.create("plain")
    await site.create("s", repeat="CRON 0 9 * * 1-5")
    (found,) = await schedules(site)
    expected = {
        "jobID": 3,
        "name": "s",
        "state": "QUEUED",
        "repeat": "CRON 0 9 * * 1-5",
        "nextRun": "2026-11-23 09:00:00",
        "lastRun": "",
        "lastStatus": "",
        "runID": 0,
        "paused": "",
        "source": "",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["words"]


async def test_what_they_show_of_runs_and_pauses(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await site.until_time("2026-11-21 03:30:00")
    job = await site.take("s")
    (found,) = await schedules(site)
    assert (found["state"], found["runID"]) == ("RUNNING", job["runID"])
    await site.fail(job)
    await site.ok("PauseJobs", name="s*")
    (found,) = await schedules(site)
    assert (found["state"], found["lastStatus"]) == ("QUEUED", "fail")
    assert found["lastRun"][:19] == "2026-11-21 03:30:00"
    assert found["paused"] != ""


async def test_filters_and_pages(site: Site) -> None:
    for number in range(5):
        await site.create(f"a/{number}", repeat="CRON @daily")
    assert [s["jobID"] for s in await schedules(site, limit=2)] == [1, 2]
    assert [s["jobID"] for s in await schedules(site, limit=2, after=2)] == [3, 4]
    assert [s["name"] for s in await schedules(site, name="*[13]")] == ["a/1", "a/3"]
    await site.ok("SyncSchedules", source="src", schedules=[{"name": "b", "repeat": "CRON @daily"}])
    assert [(s["name"], s["source"]) for s in await schedules(site, source="src")] == [("b", "src")]
    assert await schedules(site, source="other") == []


# --- ValidateSchedule ------------------------------------------------------------------------------------


async def test_a_valid_schedule(site: Site) -> None:
    for repeat in ("CRON 0 9 * * 1-5", "0 9 * * 1-5"):
        answer = await site.ok("ValidateSchedule", repeat=repeat)
        assert (answer["valid"], answer["errors"]) == (True, [])
        assert answer["next"] == [f"2026-11-{day} 09:00:00" for day in (23, 24, 25, 26, 27)]
        assert "9" in answer["words"]


async def test_a_zone(site: Site) -> None:
    answer = await site.ok("ValidateSchedule", repeat="CRON TZ=Europe/Berlin 0 9 * * *")
    assert answer["next"][0] == "2026-11-21 08:00:00"


@pytest.mark.parametrize(
    ("after", "first"),
    [("2027-03-28 12:00:00", "2027-03-29 07:00:00"), ("+2 DAYS", "2026-11-23 08:00:00"), ("-9h", None)],
)
async def test_the_ticks_after_another_time(site: Site, after: str, first: str | None) -> None:
    answer = await site.ok("ValidateSchedule", repeat="CRON TZ=Europe/Berlin 0 9 * * *", after=after)
    assert answer["next"][0] == (first or "2026-11-21 08:00:00")


@pytest.mark.parametrize(
    "repeat",
    ["CRON 61 * * * *", "0 0 30 2 *", "CRON TZ=Nowhere/Land 0 9 * * *", "* * * *", "10-5 * * * *", "soon"],
)
async def test_an_invalid_schedule_is_an_answer_and_no_refusal(site: Site, repeat: str) -> None:
    answer = await site.ok("ValidateSchedule", repeat=repeat)
    assert answer["valid"] is False
    assert answer["errors"]
    assert answer["next"] == []


async def test_the_message_names_field_value_and_range(site: Site) -> None:
    (error, *_) = (await site.ok("ValidateSchedule", repeat="61 * * * *"))["errors"]
    assert "minute" in error
    assert "61" in error
    assert "59" in error


async def test_never_has_no_ticks(site: Site) -> None:
    answer = await site.ok("ValidateSchedule", repeat="CRON @never")
    assert (answer["valid"], answer["next"]) == (True, [])


async def test_the_retry_of_a_manual_run_waits_for_the_end_of_the_pause(site: Site) -> None:
    await site.create("s", retries=3, backoff=1)
    await site.ok("PauseJobs", name="s")
    await site.ok("TriggerJob", jobID=1)
    await site.fail(await site.take("s"))
    await site.later(10)
    await site.beat(worker="w", names=["*"])
    assert [wait["reason"] for wait in (await site.ok("ExplainJob", jobID=1))["waitsFor"]] == ["paused"]
    assert await site.nothing("s", worker="w")


async def test_a_mocked_job_waits_for_one_who_asks_for_it(site: Site) -> None:
    await site.beat(names=["*"])
    job = await site.create("a", mockRequest=True)
    waits = (await site.ok("ExplainJob", jobID=job))["waitsFor"]
    assert [wait["reason"] for wait in waits] == ["mocked"]
