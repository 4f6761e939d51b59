"""Schedules whose work is done elsewhere: pings end their ticks; without one a tick is missed."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.control import PING_OUTPUT_CHARS_MAX
from bedrockjobs.commands.options import NOT_WITH_PINGS
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.handlers.pings import PING_EARLY_S
from bedrockjobs.job.eligibility import PING_GRACE_S_DEFAULT
from bedrockjobs.server import Server
from tests.protocol.talk import Reply, Talk
from tests.runs.bearer import Bearer, admin_of
from tests.runs.rig import Site

TICK, NEXT, THIRD = "2026-11-21 04:00:00", "2026-11-21 05:00:00", "2026-11-21 06:00:00"


async def expected(site: Site, **more: Any) -> str:
    """Make a schedule that expects pings each hour; return the path to which they are sent."""
    await site.create("nas", repeat="CRON 0 * * * *", expect="ping", **more)
    found = await site.ok("GetPingSecret", name="nas")
    return str(found["path"])


async def ping(site: Site, path: str, body: str = "") -> Reply:
    """POST to a path without any token."""
    async with await Talk.open(site.port) as talk:
        data = body.encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        talk.send(head.encode() + data)
        return await talk.reply()


async def kinds(site: Site) -> list[str]:
    """Return the kinds of events of the schedule, the oldest first."""
    return [
        row["kind"] for row in await site.select("SELECT kind FROM events WHERE name = 'nas' ORDER BY seq")
    ]


async def test_a_ping_ends_its_tick(site: Site) -> None:
    path = await expected(site)
    await site.until_time(TICK)
    assert await site.nothing("nas", worker="w", accepts="cmd,argv,url"), "no worker gets it"
    assert await site.nothing("*")
    await site.both(20)
    reply = await ping(site, path, "copied 3 files\nall well")
    assert reply.code == 200, reply
    run = await site.run(reply.json["runID"])
    assert (run["status"], run["scheduledFor"], run["worker"], run["host"]) == (
        "success",
        TICK,
        "ping",
        "127.0.0.1",
    )
    assert run["output"] == ["copied 3 files", "all well"]
    assert await site.due(1) == NEXT
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]


async def test_what_begins_and_fails_and_recovers(site: Site) -> None:
    path = await expected(site)
    await site.until_time(TICK)
    begun = (await ping(site, f"{path}/start")).json
    assert (await ping(site, f"{path}/start")).json == begun, "a start that is sent again changes nothing"
    assert await site.state(1) == "RUNNING"
    await site.both(60)
    assert (await ping(site, f"{path}/3", "disk full")).json == begun
    run = await site.run(begun["runID"])
    assert (run["status"], run["exitCode"], run["error"]) == ("fail", 3, "Exit status 3")
    assert run["output"] == ["disk full"]
    assert await kinds(site) == ["failed"]
    assert await site.due(1) == NEXT, "nothing here can try it again"
    await site.until_time(NEXT)
    assert (await ping(site, f"{path}/0")).code == 200
    assert await kinds(site) == ["failed", "recovered"]
    await site.until_time(THIRD)
    failed = (await ping(site, f"{path}/fail")).json
    assert (await site.run(failed["runID"]))["error"] == "A ping reported a failure"


async def test_a_tick_without_a_ping_is_missed(site: Site) -> None:
    path = await expected(site)
    await site.until_time(TICK)
    await site.both(PING_GRACE_S_DEFAULT - 1)
    assert await kinds(site) == []
    await site.both(1)
    assert await kinds(site) == ["missed"]
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "no ping")]
    assert await site.due(1) == NEXT
    health = await Bearer(site).get("/healthz?schedule=nas")
    assert (health.code, "no ping" in health.json["reason"]) == (503, True)
    await site.until_time(NEXT)
    await ping(site, path)
    assert await kinds(site) == ["missed", "recovered"]
    assert (await Bearer(site).get("/healthz?schedule=nas")).code == 200


async def test_what_began_and_is_not_heard_of_again_has_failed(site: Site) -> None:
    path = await expected(site, pingGrace=100)
    await site.until_time(TICK)
    begun = (await ping(site, f"{path}/start")).json
    await site.both(100)
    run = await site.run(begun["runID"])
    assert (run["status"], run["error"]) == ("timeout", "Run over its time: 100 s")
    assert await site.due(1) == NEXT
    assert "failed" in await kinds(site)


async def test_a_ping_just_before_its_tick_stands_for_it_another_one_for_none(site: Site) -> None:
    path = await expected(site)
    early = (await ping(site, path)).json
    assert (await site.run(early["runID"]))["cause"] == "manual"
    assert (await site.due(1), await site.ticks(1)) == (TICK, [])
    await site.until_time("2026-11-21 03:59:51")
    assert PING_EARLY_S == 10
    begun = (await ping(site, f"{path}/start")).json
    await ping(site, path)
    run = await site.run(begun["runID"])
    assert (run["status"], run["scheduledFor"]) == ("success", TICK)
    assert run["started"] <= run["ended"]
    assert (await site.due(1), await site.ticks(1)) == (NEXT, [(TICK, TICK, 1, "fired", "")])


async def test_nobody_is_blamed_for_a_pause_or_for_the_server_being_down(site: Site) -> None:
    await expected(site)
    await site.ok("PauseJobs", name="nas")
    await site.until_time(TICK)
    await site.both(PING_GRACE_S_DEFAULT)
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "paused")]
    await site.ok("ResumeJobs", name="nas")
    await site.restart(down=3600 + PING_GRACE_S_DEFAULT)
    assert await site.due(1) > NEXT
    assert (await site.ticks(1))[-1][3:] == ("skipped", "server down")
    assert await kinds(site) == ["paused", "resumed"]


async def test_a_secret_is_for_its_schedule_and_needs_no_token(site: Site) -> None:
    path = await expected(site)
    root = await admin_of(site)
    worker = await root.token_for("w", "work", "other/*")
    assert (await ping(site, path)).code == 200
    for wrong in (path[:-1] + ("a" if path[-1] != "a" else "b"), path.replace("_1_", "_2_"), "/ping/x"):
        refused = await ping(site, wrong)
        assert (refused.code, refused.json["reason"]) == (404, "No such schedule"), wrong
    assert (await ping(site, f"{path}/256")).code == 404
    assert (await worker.http("GetPingSecret", name="nas")).code == 403
    assert (await worker.http("PingSchedule", name="nas")).code == 404, "it does not see it"
    assert (await Bearer(site).http("PingSchedule", name="nas")).code == 401
    assert (await root.raw("PingSchedule", name="nas", event="fail", exitCode=2)).code == 200


async def test_long_output_keeps_its_end(site: Site) -> None:
    path = await expected(site)
    reply = await ping(site, path, "x\n" * PING_OUTPUT_CHARS_MAX + "the end \0")
    run = await site.run(reply.json["runID"])
    assert run["output"][-1] == "the end \ufffd"


async def test_it_goes_with_no_option_of_runs(site: Site) -> None:
    given: dict[str, Any] = {
        "cmd": "ls",
        "argv": ["ls"],
        "url": "http://a",
        "hosts": "all",
        "lock": True,
        "concurrencyKey": "k",
        "concurrencyLimit": 2,
        "retries": 1,
        "expireAfter": 5,
        "maxLate": 5,
        "jitter": 5,
        "overlap": "queue",
        "catchup": "all",
    }
    assert set(given) == set(map(wire_name, NOT_WITH_PINGS))
    for option, value in given.items():
        wanted = {"name": "a", "repeat": "CRON 0 * * * *", "expect": "ping", option: value}
        assert await site.refused("CreateJob", **wanted) == (402, "Malformed expect"), option


async def test_it_is_for_schedules(site: Site) -> None:
    assert await site.refused("CreateJob", name="a", expect="ping") == (402, "Malformed expect")
    await site.create("a", repeat="CRON 0 * * * *")
    assert await site.refused("PingSchedule", name="a") == (405, "No pings are expected")
    await expected(site)
    assert await site.refused("TriggerJob", name="nas") == (405, "It runs nowhere here")
    waits = await site.ok("ExplainJob", jobID=2)
    assert [one["reason"] for one in waits["waitsFor"]] == ["nextRun", "ping"]


async def test_a_ping_is_not_lost_with_a_killed_server(site: Site) -> None:
    path = await expected(site)
    await site.until_time(TICK)
    begun = (await ping(site, f"{path}/start")).json
    await site.crash(down=5)
    assert (await ping(site, path, "done")).json == begun, "the secret is the same, and so is the run"
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]


async def test_a_secret_is_known_before_the_server_writes_anything(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping that comes right after a start is none with a wrong secret: 404 would be the end of it."""
    path = await expected(site)
    await site.server.stop()
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "start", lambda _: None)
        again = Server(site.server.settings, site.clock, site.databases.lease_clock(site.clock, site.leases))
        await again.start()
    known = again.service.presence.job_of_ping(path.removeprefix("/ping/"))
    again.dispatcher.start()
    site.server = again
    assert known == 1
    assert (await ping(site, path)).code == 200
