"""TerminateRun and KillRun, and the status of a run that a person stopped."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import LEASE_S_DEFAULT
from tests.runs.rig import Site

WAYS = [("TerminateRun", "TERM", "terminated"), ("KillRun", "KILL", "killed")]


@pytest.mark.parametrize(("command", "signal", "_status"), WAYS)
@pytest.mark.parametrize("by", ["runID", "jobID", "name"])
async def test_a_waiting_heartbeat_hears_of_it(
    site: Site, command: str, signal: str, _status: str, by: str
) -> None:
    await site.create("a")
    await site.leased("a")
    talk = await site.waiting_beat(1)
    assert await talk.silent()
    await site.ok(command, **{by: {"runID": 1, "jobID": 1, "name": "a"}[by]})
    assert (await talk.reply()).json == {"stop": [{"runID": 1, "signal": signal}], "quiet": False}
    run = await site.run(1)
    assert (run["stop"], run["status"]) == (signal, "running")


async def test_a_name_stops_the_runs_of_all_jobs_that_have_it(site: Site) -> None:
    for name in ("a", "a", "b"):
        await site.create(name)
        await site.leased(name)
    await site.ok("TerminateRun", name="a")
    stop = (await site.beat(1, 2, 3))["stop"]
    assert sorted((entry["runID"], entry["signal"]) for entry in stop) == [(1, "TERM"), (2, "TERM")]


async def test_a_stop_is_repeated_until_the_run_ends(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.ok("TerminateRun", runID=1)
    for _ in range(3):
        assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "TERM"}]
    await site.fail(job)
    assert (await site.beat())["stop"] == []


async def test_a_waiting_heartbeat_is_answered_at_once_only_for_a_new_stop(site: Site) -> None:
    await site.create("a")
    await site.create("b")
    await site.leased("a")
    await site.take("b")
    await site.ok("TerminateRun", runID=1)
    first = await site.waiting_beat(1, 2)
    assert (await first.reply()).json["stop"] == [{"runID": 1, "signal": "TERM"}]
    second = await site.waiting_beat(1, 2, timeout=5_000)
    assert await second.silent(), "it is known already: a client must not spin"
    await site.later(5.1)
    assert (await second.reply()).json["stop"] == [{"runID": 1, "signal": "TERM"}], "listed again at the end"
    third = await site.waiting_beat(1, 2)
    assert await third.silent()
    await site.ok("KillRun", runID=1)
    assert (await third.reply()).json["stop"] == [{"runID": 1, "signal": "KILL"}]


async def test_a_new_stop_comes_with_the_known_ones(site: Site) -> None:
    for name in "ab":
        await site.create(name)
        await site.leased(name)
    await site.ok("TerminateRun", runID=1)
    assert (await (await site.waiting_beat(1, 2)).reply()).json["stop"] == [{"runID": 1, "signal": "TERM"}]
    talk = await site.waiting_beat(1, 2)
    assert await talk.silent()
    await site.ok("TerminateRun", runID=2)
    stop = (await talk.reply()).json["stop"]
    assert sorted(entry["runID"] for entry in stop) == [1, 2]


async def test_term_does_not_weaken_kill(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.ok("KillRun", runID=1)
    await site.http("TerminateRun", {"runID": 1})
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "KILL"}]


@pytest.mark.parametrize(("command", "_signal", "status"), WAYS)
@pytest.mark.parametrize("end", ["FailJob", "RetryJob", "lease"])
async def test_a_stopped_run_is_not_retried(
    site: Site, command: str, _signal: str, status: str, end: str
) -> None:
    await site.create("a", retries=5, onLost="retry")
    job = await site.leased("a")
    await site.ok(command, runID=1, by="ann", reason="too loud")
    if end == "lease":
        await site.silence(LEASE_S_DEFAULT + 1)
    else:
        await site.end(end, job)
    assert (await site.run(1))["status"] == status
    assert await site.state(1) == "FAILED"
    assert await site.nothing("a")


@pytest.mark.parametrize(("command", "_signal", "status"), WAYS)
@pytest.mark.parametrize("end", ["FailJob", "RetryJob", "lease"])
async def test_a_stopped_run_of_a_schedule_goes_to_the_next_tick(
    site: Site, command: str, _signal: str, status: str, end: str
) -> None:
    await site.create("s", repeat="CRON * * * * *", retries=5)
    await site.until_time("2026-11-21 03:30:01")
    job = await site.leased("s")
    await site.ok(command, jobID=1)
    if end == "lease":
        await site.silence(LEASE_S_DEFAULT + 1)
    else:
        await site.end(end, job)
    assert (await site.run(1))["status"] == status
    row = await site.row(1)
    assert (row["state"], row["nextRun"][:19]) == ("QUEUED", "2026-11-21 03:31:00")


async def test_a_stopped_run_that_finishes_all_the_same_is_a_success(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.ok("TerminateRun", runID=1)
    await site.finish(job)
    assert (await site.run(1))["status"] == "success"
    assert await site.state(1) == "(deleted)"


async def test_a_stop_is_an_event_that_says_who(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await site.ok("KillRun", runID=1, by="ann", reason="too loud")
    (event,) = await site.events("stop")
    assert (event["name"], event["jobID"], event["runID"], event["by"]) == ("a", 1, 1, "ann")
    assert "too loud" in event["detail"]


@pytest.mark.parametrize("command", ["TerminateRun", "KillRun"])
async def test_refusals(site: Site, command: str) -> None:
    assert await site.refused(command, runID=7) == (404, "No run with this runID")
    assert (await site.refused(command, jobID=7))[0] == 404
    assert (await site.refused(command))[0] == 402
    await site.create("a")
    await site.finish(await site.take("a"))
    assert await site.refused(command, runID=1) == (405, "Run is over")


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_stop_survives_a_restart(site: Site, how: str) -> None:
    await site.create("a", retries=5)
    job: dict[str, Any] = await site.leased("a")
    await site.ok("TerminateRun", runID=1)
    await getattr(site, how)(down=5)
    talk = await site.waiting_beat(1)
    assert (await talk.reply()).json["stop"] == [{"runID": 1, "signal": "TERM"}]
    await site.fail(job)
    assert (await site.run(1))["status"] == "terminated"
    assert await site.state(1) == "FAILED"


async def test_the_next_run_is_not_stopped(site: Site) -> None:
    await site.create("a")
    await site.fail(await site.leased("a"))
    await site.ok("RetryJob", jobID=1, revive=True)
    job = await site.leased("a")
    await site.ok("TerminateRun", jobID=1)
    await site.fail(job)
    await site.ok("RetryJob", jobID=1, revive=True)
    again = await site.leased("a")
    assert (await site.beat(again["runID"]))["stop"] == []
    assert (await site.run(again["runID"]))["stop"] == ""


async def test_a_run_that_is_to_be_killed_is_not_asked_politely_again(site: Site) -> None:
    await site.create("a", runTimeout=10, grace=10)
    job = await site.leased("a")
    for _ in range(2):
        await site.later(10)
    kill = [{"runID": 1, "signal": "KILL"}]
    assert (await site.beat(job["runID"]))["stop"] == kill
    await site.ok("TerminateRun", runID=job["runID"])
    assert (await site.beat(job["runID"]))["stop"] == kill


async def test_that_nothing_runs_is_told_of_the_job(site: Site) -> None:
    await site.create("backup/nightly")
    for given, words in (
        ({"jobID": 1}, "jobID: job 1 (backup/nightly) has none; it is QUEUED"),
        ({"name": "backup/nightly"}, "name: no job named backup/nightly has one"),
        ({"name": "none"}, "name: no job named none has one"),
    ):
        assert await site.refused("KillRun", **given) == (404, "No run in progress")
        assert await site.detail("KillRun", **given) == words
