"""Times from now: each attribute that takes a date also takes ``5m`` or ``-24h``, by the server's clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from bedrockjobs import commands
from bedrockjobs.base.clock import timestamp
from bedrockjobs.base.wire import wire_name
from tests.effort import crossed
from tests.runs.bearer import Bearer
from tests.runs.conftest import Open
from tests.runs.rig import Site, moment


def takes_dates(kind: type[BaseModel]) -> set[str]:
    """Return the wire names of a command's fields with a date."""
    fields = kind.model_fields.items()
    return {
        wire_name(name) for name, field in fields if "_timestamp at" in f"{field.annotation}{field.metadata}"
    }


def at(site: Site, seconds: float) -> str:
    """Return the timestamp some seconds from now."""
    return timestamp(moment(site.now) + timedelta(seconds=seconds))


async def first_run(site: Site, delay: str) -> str:
    return await site.due(await site.create("a", firstRun=delay))


async def next_run(site: Site, delay: str) -> str:
    job = await site.create("a")
    await site.ok("UpdateJob", jobID=job, nextRun=delay)
    return await site.due(job)


async def retried(site: Site, delay: str) -> str:
    await site.create("a")
    job = await site.take("a")
    await site.ok("RetryJob", jobID=job["jobID"], nextRun=delay)
    return await site.due(job["jobID"])


async def paused_until(site: Site, delay: str) -> str:
    await site.ok("PauseJobs", name="a", until=delay)
    return str((await site.ok("ListPauses"))["pauses"][0]["until"])


async def muted_until(site: Site, delay: str) -> str:
    await site.ok("PutRule", name="r", on=["failed"], to="mailto:ops@example.com")
    await site.ok("MuteRule", name="r", until=delay)
    return str((await site.ok("ListRules"))["rules"][0]["mutedUntil"])


async def failures_muted_until(site: Site, delay: str) -> str:
    await site.create("a")
    await site.fail(await site.take("a"), error="no disk")
    (group,) = (await site.ok("ListFailures"))["jobs"]
    await site.ok("MuteFailures", fingerprint=group["fingerprint"], until=delay)
    (group,) = (await site.ok("ListFailures"))["jobs"]
    return str(group["muted"]["until"])


async def expires(site: Site, delay: str) -> str:
    token = (await site.ok("CreateToken", name="ann", roles=["admin"], expires=delay))["token"]
    root = Bearer(site, token)
    await root.ok("CreateToken", name="bob", roles=["read"])
    await root.ok("RotateToken", name="bob", expires=delay)
    ann, bob = (await root.ok("ListTokens"))["tokens"]
    assert ann["expires"] == bob["expires"]
    return str(bob["expires"])


async def anonymous_until(site: Site, delay: str) -> str:
    first = await site.ok("CreateToken", name="ann", roles=["admin"], anonymousUntil=delay)
    root = Bearer(site, first["token"])
    return str((await root.ok("ListTokens"))["tokens"][0]["expires"])


async def anonymous_expires(site: Site, delay: str) -> str:
    root = Bearer(site, (await site.ok("CreateToken", name="ann", roles=["admin"]))["token"])
    return str((await root.ok("AllowAnonymous", roles=["read"], expires=delay))["expires"])


AHEAD = {
    ("CreateJob", "firstRun"): first_run,
    ("UpdateJob", "nextRun"): next_run,
    ("RetryJob", "nextRun"): retried,
    ("PauseJobs", "until"): paused_until,
    ("MuteRule", "until"): muted_until,
    ("MuteFailures", "until"): failures_muted_until,
    ("CreateToken", "expires"): expires,
    ("CreateToken", "anonymousUntil"): anonymous_until,
    ("AllowAnonymous", "expires"): anonymous_expires,
}
"""Attributes that say when something is to happen, and what reads them back."""

OTHERS = {
    ("RotateToken", "expires"),
    ("AdvanceClock", "to"),
    ("DeleteRuns", "endedBefore"),
    ("ListAudit", "since"),
    ("ListTicks", "before"),
    ("ValidateSchedule", "after"),
}
"""Attributes with a test of their own below."""


def test_each_attribute_with_a_date_is_tested_here() -> None:
    found = {(kind.__name__, name) for kind in commands.ALL for name in takes_dates(kind)}
    assert found == {*AHEAD, *OTHERS}
    assert takes_dates(commands.JobSpec) == {"firstRun"}


@pytest.mark.parametrize(
    ("attribute", "delayed"), crossed(AHEAD, [("5m", 300), ("+5 MINUTES", 300), ("1h30m", 5_400)])
)
async def test_a_time_from_now(site: Site, attribute: tuple[str, str], delayed: tuple[str, int]) -> None:
    delay, seconds = delayed
    assert (await AHEAD[attribute](site, delay))[:19] == at(site, seconds)


async def test_a_bad_delay_names_its_attribute(site: Site) -> None:
    known = {"jobID": 1, "name": "a", "roles": ["read"], "repeat": "FINISHED, +1 DAY", "fingerprint": "a"}
    for command, name in [*AHEAD, *sorted(OTHERS)]:
        fields = getattr(commands, command).wire_names.values()
        needed = {key: value for key, value in known.items() if key in fields}
        reply = await site.http(command, {**needed, name: "5 parsecs"})
        assert (reply.code, reply.json["reason"]) == (400, f"Malformed {name}"), command
        assert reply.json["detail"].startswith(f"{name}: expected a date like")
        assert reply.json["detail"].endswith("or a time from now like 5m, +5 MINUTES or -24h")
        reply = await site.http(command, {**needed, name: "9999d"})
        assert f"{name}: expected at most" in reply.json["detail"], command


async def test_the_same_request_again_counts_from_its_own_time(site: Site) -> None:
    """Parsed requests are cached, so the cached one must not hold the time of the first."""
    due = []
    for _ in range(4):
        reply = await site.ask("CreateJob", name="a", firstRun="+90 SECONDS")
        due.append((await site.due(reply.json["jobID"]), at(site, 90)))
        await site.later(60)
    assert [found[:19] for found, _ in due] == [expected for _, expected in due]


async def test_fractions_and_both_protocols(site: Site) -> None:
    raw = (await site.ask("CreateJob", name="a", firstRun="1.5s")).json["jobID"]
    http = await site.create("a", firstRun="1.5s")
    assert await site.due(raw) == await site.due(http)
    assert moment(await site.due(raw)) > moment(at(site, 1))


async def test_a_time_ago_is_due_at_once(site: Site) -> None:
    await site.create("a", firstRun="-24h")
    assert (await site.take("a"))["nextRun"][:19] == at(site, -86_400)


async def test_a_list_of_jobs_has_one_now(site: Site) -> None:
    ids = (
        await site.ok("CreateJobs", jobs=[{"name": "a", "firstRun": "1m"}, {"name": "b", "firstRun": "1m"}])
    )["jobIDs"]
    assert {await site.due(job) for job in ids} == {await site.due(ids[0])}


async def test_a_schedule_that_is_declared_again_keeps_its_first_run(site: Site) -> None:
    """The delay counts from when the schedule is added: the same file changes nothing later."""
    declared: dict[str, Any] = {
        "source": "file",
        "schedules": [{"name": "s", "repeat": "CRON 0 * * * *", "firstRun": "+5 MINUTES"}],
    }
    assert (await site.ok("SyncSchedules", **declared))["added"] == ["s"]
    due = await site.due(1)
    assert due[:19] == at(site, 300)
    await site.later(120)
    again = await site.ok("SyncSchedules", **declared)
    assert (again["added"], again["changed"], await site.due(1)) == ([], [], due)


async def test_a_replacement_by_unique_key(site: Site) -> None:
    keyed = {"uniqueKey": "k", "onConflict": "replace", "firstRun": "10m"}
    job = await site.create("a", **keyed)
    await site.later(60)
    assert await site.create("a", **keyed) == job
    assert (await site.due(job))[:19] == at(site, 600)


async def test_runs_that_ended_some_time_ago(site: Site) -> None:
    for _ in range(2):
        await site.create("a", keep="30d")
        await site.finish(await site.leased("a"))
        await site.later(3_600)
    found = await site.ok("DeleteRuns", endedBefore="-90m", dryRun=True)
    assert [run["runID"] for run in found["runs"]] == [1]
    assert len((await site.ok("DeleteRuns", endedBefore="-1m"))["runs"]) == 2


async def test_the_audit_since_some_time_ago(site: Site) -> None:
    await site.ok("PauseJobs", name="a", by="ann")
    await site.later(7_200)
    await site.ok("PauseJobs", name="b", by="ann")
    assert len((await site.ok("ListAudit", since="-24h"))["entries"]) == 2
    assert [entry["name"] for entry in (await site.ok("ListAudit", since="-1h"))["entries"]] == ["b"]


async def test_ticks_before_some_time_ago(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *")
    for _ in range(3):
        await site.later(60)
        await site.finish(await site.take("s"))
    ticks = [tick["tick"] for tick in (await site.ok("ListTicks", jobID=1))["ticks"]]
    older = [tick["tick"] for tick in (await site.ok("ListTicks", jobID=1, before="-90s"))["ticks"]]
    assert older == [tick for tick in ticks if tick < at(site, -90)]
    assert 0 < len(older) < len(ticks)


async def test_a_test_clock_moves_by_a_time_from_its_now(open_site: Open) -> None:
    own = await open_site(test_clock=True)
    before = await own.ok("AdvanceClock", to="2030-01-01 00:00:30")
    assert before["now"] == "2030-01-01 00:00:30"
    assert (await own.ok("AdvanceClock", to="+1 DAY"))["now"] == "2030-01-02 00:00:30"
    job = await own.create("a", firstRun="1h")
    assert (await own.due(job))[:19] == "2030-01-02 01:00:30"


async def test_the_pages_filter_by_a_time_ago(site: Site) -> None:
    await site.create("old/one")
    await site.later(7_200)
    await site.create("new/one")
    page = (await Bearer(site).get("/ui/jobs?from=-1h", Accept="text/html")).body
    assert ("new/one" in page, "old/one" in page) == (True, False)


async def test_the_ticks_that_a_schedule_has_after_a_time_from_now(site: Site) -> None:
    later = await site.ok("ValidateSchedule", repeat="CRON * * * * *", after="1h")
    assert later["next"][0] == f"{at(site, 3_660)[:17]}00"
