"""Workers: which are alive, which are drained, and the events about them."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import WORKER_EVENTS_A_MINUTE
from bedrockjobs.commands import GetJob, GetJobs, Heartbeat
from bedrockjobs.engine.workers import LISTED_MAX
from tests.runs.bearer import Bearer, admin_of
from tests.runs.rig import Site


async def workers(site: Site) -> dict[str, dict[str, Any]]:
    """Return the live workers by name."""
    await site.settle()
    found = (await site.ok("ListWorkers"))["workers"]
    assert [worker["name"] for worker in found] == sorted(worker["name"] for worker in found)
    return {worker["name"]: worker for worker in found}


async def test_a_heartbeat_makes_a_worker(site: Site) -> None:
    assert await workers(site) == {}
    await site.beat(host="h", pid=42, version="1.2", names=["a*", "b"], slots=4)
    found = (await workers(site))["w"]
    assert found["joined"][:19] == found["heartbeat"][:19] == "2026-11-21 03:29:56"
    expected = {
        "name": "w",
        "host": "h",
        "pid": 42,
        "version": "1.2",
        "names": ["a*", "b"],
        "slots": 4,
        "status": "active",
        "runIDs": [],
    }
    assert {name: found[name] for name in expected} == expected


async def test_a_getjob_that_waits_makes_a_worker(site: Site) -> None:
    await site.asking("a*", "w1")
    assert (await workers(site))["w1"]["names"] == ["a*"]


async def test_a_getjob_without_a_worker_makes_none(site: Site) -> None:
    await site.create("a")
    await site.take("a", None)
    assert await workers(site) == {}


async def test_its_runs(site: Site) -> None:
    for _ in range(2):
        await site.create("a")
        await site.leased("a")
    await site.beat(1, 2)
    assert sorted((await workers(site))["w"]["runIDs"]) == [1, 2]
    await site.ok("FinishJob", jobID=1, runID=1)
    assert (await workers(site))["w"]["runIDs"] == [2]


async def test_it_is_gone_after_45_silent_seconds(site: Site) -> None:
    await site.beat()
    await site.beat(worker="v")
    await site.both(44)
    await site.beat(worker="v")
    await site.both(2)
    assert list(await workers(site)) == ["v"]


async def test_it_says_that_it_leaves(site: Site) -> None:
    await site.beat()
    await site.beat(leaving=True)
    assert await workers(site) == {}
    assert len(await site.events("worker left")) == 1


async def test_quiet(site: Site) -> None:
    await site.beat(quiet=True)
    assert (await workers(site))["w"]["status"] == "quiet"
    await site.beat(quiet=False)
    assert (await workers(site))["w"]["status"] == "active"


async def test_joining_and_leaving_with_the_full_list(site: Site) -> None:
    for name in ("c", "a", "b"):
        await site.beat(worker=name)
        await site.known()
    await site.beat(worker="a")
    joined = await site.events("worker joined")
    assert [event["name"] for event in joined] == ["c", "a", "b"]
    assert [event["detail"] for event in joined] == [
        "1 worker(s) now running [c]",
        "2 worker(s) now running [a c]",
        "3 worker(s) now running [a b c]",
    ]
    await site.beat(worker="b", leaving=True)
    (left,) = await site.events("worker left")
    assert (left["name"], left["detail"]) == ("b", "2 worker(s) now running [a c]")
    await site.both(46)
    left_all = await site.events("worker left")
    assert {event["name"] for event in left_all} == {"a", "b", "c"}
    assert left_all[-1]["detail"].startswith("0 worker(s) now running")


# --- drained ---------------------------------------------------------------------------------------------


async def test_a_drained_worker_gets_nothing(site: Site) -> None:
    await site.beat()
    await site.create("a")
    await site.ok("DrainWorker", worker="w", by="ann")
    assert await site.nothing("a", worker="w")
    assert (await site.http("GetJobs", {"name": "a", "worker": "w", "numResults": 3})).code == 404
    talk = await site.asking("a", "w")
    assert await talk.silent()
    assert (await site.take("a", "v"))["jobID"] == 1
    (event,) = await site.events("drained")
    assert (event["name"], event["by"]) == ("w", "ann")


async def test_who_waits_already_gets_nothing_more(site: Site) -> None:
    talk = await site.asking("a", "w")
    await site.ok("DrainWorker", worker="w")
    await site.create("a")
    assert await talk.silent()
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await talk.reply()).json["jobID"] == 1
    assert len(await site.events("undrained")) == 1


async def test_thenget_gets_nothing(site: Site) -> None:
    for _ in range(2):
        await site.create("a")
    job = await site.take("a")
    await site.ok("DrainWorker", worker="w")
    answer = await site.ok("FinishJob", jobID=1, runID=job["runID"], thenGet="a", worker="w")
    assert answer == {"job": None}


async def test_heartbeat_answers_quiet(site: Site) -> None:
    await site.beat()
    await site.ok("DrainWorker", worker="w")
    assert await site.beat() == {"stop": [], "quiet": True}
    assert (await site.beat(worker="v"))["quiet"] is False
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await site.beat())["quiet"] is False


async def test_a_change_of_quiet_wakes_a_waiting_heartbeat(site: Site) -> None:
    talk = await site.waiting_beat()
    assert await talk.silent()
    await site.ok("DrainWorker", worker="w")
    assert (await talk.reply()).json == {"stop": [], "quiet": True}
    talk = await site.waiting_beat(quiet=True)
    assert await talk.silent(), "it knows"
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await talk.reply()).json == {"stop": [], "quiet": False}


async def test_a_drain_that_is_taken_back_between_two_heartbeats_is_heard_at_once(site: Site) -> None:
    await site.beat()
    await site.ok("DrainWorker", worker="w")
    assert (await site.beat())["quiet"] is True
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await (await site.waiting_beat()).reply()).json == {"stop": [], "quiet": False}
    assert await (await site.waiting_beat()).silent(), "now it knows"


async def test_its_runs_go_on_and_then_it_is_drained(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.beat(1)
    await site.ok("DrainWorker", worker="w")
    assert (await workers(site))["w"]["status"] == "draining"
    await site.ok("UpdateJob", jobID=1, runID=1, data={"x": 1})
    await site.finish(job)
    await site.beat()
    assert (await workers(site))["w"]["status"] == "drained"
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await workers(site))["w"]["status"] == "active"


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_drains_survive_a_restart(site: Site, how: str) -> None:
    await site.beat()
    await site.ok("DrainWorker", worker="w")
    await site.create("a")
    await getattr(site, how)(down=100)
    assert await site.nothing("a", worker="w")
    assert (await site.beat())["quiet"] is True
    await site.ok("DrainWorker", worker="w", undo=True)
    assert (await site.take("a"))["jobID"] == 1


# --- events ----------------------------------------------------------------------------------------------


async def test_a_starting_server_is_an_event(site: Site) -> None:
    kind = "server started" if site.databases.name == "sqlite" else "server joined"
    assert len(await site.events(kind)) == 1
    await site.restart()
    assert len(await site.events(kind)) == 2


async def test_events_in_order_filtered_and_paged(site: Site) -> None:
    for name in ("a1", "b1", "a2"):
        await site.ok("PauseJobs", name=name)
    await site.ok("ResumeJobs", name="a1")
    found = await site.events()
    assert [event["seq"] for event in found] == sorted({event["seq"] for event in found})
    assert all(event["at"][:19] == "2026-11-21 03:29:56" for event in found)
    paused = (await site.ok("Events", kind="paused"))["events"]
    assert [event["name"] for event in paused] == ["a1", "b1", "a2"]
    named = (await site.ok("Events", name="a?"))["events"]
    assert [(event["kind"], event["name"]) for event in named] == [
        ("paused", "a1"),
        ("paused", "a2"),
        ("resumed", "a1"),
    ]
    after = (await site.ok("Events", kind="paused", after=paused[0]["seq"], limit=1))["events"]
    assert [event["name"] for event in after] == ["b1"]


async def test_a_waiting_reader_of_events(site: Site) -> None:
    talk = await site.posted("Events", after=-1, kind="paused", connection="wait", timeout=60_000)
    assert await talk.silent()
    await site.beat()
    await site.ok("DrainWorker", worker="w")
    assert await talk.silent(), "of another kind"
    await site.ok("PauseJobs", name="a")
    (event,) = (await talk.reply()).json["events"]
    assert (event["kind"], event["name"]) == ("paused", "a")


async def test_a_wait_for_events_runs_out(site: Site) -> None:
    patient = await site.posted("Events", after=-1, connection="wait", timeout=60_000)
    hasty = await site.posted("Events", after=-1, connection="wait", timeout=50)
    reply = await hasty.reply()
    assert (reply.code, reply.json) == (200, {"events": []})
    assert await patient.silent()


async def test_events_survive_a_crash(site: Site) -> None:
    await site.ok("PauseJobs", name="a")
    before = await site.events()
    await site.crash()
    assert (await site.events())[: len(before)] == before


async def test_an_event_lists_no_more_than_so_many(site: Site) -> None:
    for number in range(LISTED_MAX + 2):
        await site.beat(worker=f"w{number:03}")
    last = (await site.events("worker joined"))[-1]["detail"]
    assert last.startswith(f"{LISTED_MAX + 2} worker(s) now running [w000 w001 ")
    assert last.endswith(f" w{LISTED_MAX - 1:03} and 2 more]")


async def test_one_that_left_is_not_back_when_its_other_connection_ends(site: Site) -> None:
    talk = await site.waiting_beat(worker="w", names=["*"])
    await site.settle()
    await site.beat(worker="w", leaving=True)
    assert await workers(site) == {}
    await talk.close()
    for _ in range(5):
        await site.settle()
    assert await workers(site) == {}


async def test_one_whose_wait_was_left_is_gone_after_45_seconds(site: Site) -> None:
    talk = await site.asking("a", "left")
    await site.asking("a", "waits")
    await talk.close()
    await site.waiting(1)
    await site.both(46)
    assert list(await workers(site)) == ["waits"]


async def test_very_many_are_counted_in_one_event(site: Site) -> None:
    more = 5
    for number in range(WORKER_EVENTS_A_MINUTE + more):
        await site.beat(worker=f"w{number:03}")
    assert len(await site.events("worker joined")) == WORKER_EVENTS_A_MINUTE
    await site.both(30)
    await site.beat(worker="x")
    await site.both(31)
    last = (await site.events("worker joined"))[-1]
    assert last["name"] == ""
    assert last["detail"].startswith(f"{more + 1} more in a minute; ")


async def test_they_are_listed_page_by_page(site: Site) -> None:
    for number in range(5):
        await site.beat(worker=f"w{number}")
    await site.known()
    found: list[str] = []
    while page := (await site.ok("ListWorkers", after=found[-1] if found else "", limit=2))["workers"]:
        assert len(page) <= 2
        found += [worker["name"] for worker in page]
    assert found == [f"w{number}" for number in range(5)]
    chosen = (await site.ok("ListWorkers", name="w[13]"))["workers"]
    assert [worker["name"] for worker in chosen] == ["w1", "w3"]


SAID: dict[str, Any] = {
    "host": "elsewhere",
    "pid": 9,
    "version": "9",
    "names": ["theirs/*"],
    "name": "theirs/*",
    "slots": 9,
    "quiet": True,
    "leaving": True,
    "accepts": ["url"],
    "runIDs": [1],
    "heartbeat": True,
}
"""What a request may say of a worker."""

SAYS_NOTHING = {
    *("worker", "connection", "timeout", "getmockedjobs", "mockrequest", "runtoken"),
    *("jobpriority", "numresults"),
}
"""The other attributes of these requests."""

STRANGERS = (("work", "b*"), ("work", "a*"), ("work", ""), ("operate", "a*"), ("admin", ""))


async def test_no_other_token_changes_a_worker(site: Site) -> None:
    """Each attribute, times roles, scopes and protocols; what has the same name is another one's."""
    root = await admin_of(site)
    own = await root.token_for("own", "work", "a*")
    await own.ok("Heartbeat", worker="w", host="h", pid=1, version="1", names=["a*"], slots=2)
    assert (await own.http("GetJob", name="a*", worker="w", accepts=["cmd"])).code == 404

    async def shown() -> list[dict[str, Any]]:
        await root.ok("ListLimits")  # the writer has finished what came before
        found: list[dict[str, Any]] = (await root.ok("ListWorkers"))["workers"]
        return found

    before = await shown()
    assert [(one["name"], one["host"], one["names"], one["slots"]) for one in before] == [
        ("w", "h", ["a*"], 2)
    ]
    for at, (role, scope) in enumerate(STRANGERS):
        stranger = await root.token_for(f"stranger{at}", role, scope)
        for kind in (Heartbeat, GetJob, GetJobs):
            fields = kind.wire_names.keys()
            assert fields <= SAYS_NOTHING | {key.lower() for key in SAID}, "judge it here"
            said = {key: value for key, value in SAID.items() if key.lower() in fields}
            about: dict[str, Any] = {"worker": "w"}
            if kind is not Heartbeat:
                about["name"] = "theirs/*"
                said.pop("names")
            if kind is GetJobs:
                about["numResults"] = 1
            for asked in (stranger.http, stranger.raw):
                for one in ({}, *({key: value} for key, value in said.items()), said):
                    reply = await asked(kind.__name__, **{**about, **one})
                    assert reply.code in (200, 404, 303), (kind, one, reply)
                    assert await shown() == before, (role, scope, kind, one)
    await own.ok("Heartbeat", worker="w", leaving=True)
    assert await shown() == []
    await stranger.ok("Heartbeat", worker="w", host="elsewhere")
    assert [one["host"] for one in await shown()] == ["elsewhere"], "the name is free again"
    await own.ok("Heartbeat", worker="w", leaving=True)
    assert [one["host"] for one in await shown()] == ["elsewhere"]
    rotated = await root.ok("RotateToken", name=f"stranger{at}")
    await Bearer(site, rotated["token"]).ok("Heartbeat", worker="w", leaving=True)
    assert await shown() == [], "a rotated token goes on with its workers"
