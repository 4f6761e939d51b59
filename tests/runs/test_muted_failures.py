"""Failures that are muted count as seen: until a time, or until they occur in a new release."""

from __future__ import annotations

import asyncio
from typing import Any

from bedrockjobs.base.config import MUTED_RELEASES_MAX, MUTES_MAX
from tests.runs.bearer import admin_of
from tests.runs.rig import Site


async def fail(site: Site, name: str = "mail/a", error: str = "no disk 7", worker: str = "w1") -> int:
    """Let a job fail for good; return its jobID."""
    job_id = await site.create(name)
    await site.fail(await site.take(name, worker), error=error)
    return job_id


async def unseen(site: Site) -> int:
    return int((await site.ok("Overview"))["unseen"])


async def group(site: Site) -> Any:
    """Return the only group of failed jobs."""
    (found,) = (await site.ok("ListFailures"))["jobs"]
    return found


async def mute(site: Site, **given: Any) -> str:
    """Mute the only group; return its fingerprint."""
    fingerprint = str((await group(site))["fingerprint"])
    await site.ok("MuteFailures", fingerprint=fingerprint, **given)
    return fingerprint


async def test_until_a_time(site: Site) -> None:
    await fail(site)
    await mute(site, until="1h", reason="the disk is ordered", by="ann")
    assert await unseen(site) == 0
    await fail(site, error="no disk 8")
    await site.restart()
    await fail(site, "mail/b", error="no disk 9")
    assert await unseen(site) == 0
    found = await group(site)
    assert (found["count"], found["unseen"], found["trend"]) == (3, 0, "muted")
    assert (found["muted"]["reason"], found["muted"]["by"], found["muted"]["name"]) == (
        "the disk is ordered",
        "ann",
        "*",
    )
    assert {one["seenBy"] for one in found["failures"]} == {"ann"}
    await fail(site, error="another cause")
    assert await unseen(site) == 1
    await site.later(3_600)
    await fail(site)
    assert await unseen(site) == 2
    assert all(each["muted"] is None for each in (await site.ok("ListFailures"))["jobs"])


async def test_until_a_new_release(site: Site) -> None:
    await site.ok("Heartbeat", worker="w1", version="1.0 a")
    await fail(site)
    await mute(site)
    await fail(site)
    assert ((await group(site))["trend"], await unseen(site)) == ("muted", 0)
    await site.ok("Heartbeat", worker="w2", version="1.0 b")
    await fail(site, worker="w2")
    assert ((await group(site))["trend"], await unseen(site)) == ("came back", 1)
    assert [run["unseen"] for run in (await site.ok("ListFailures"))["runs"]] == []


async def test_another_mute_covers_a_new_release(site: Site) -> None:
    await site.ok("Heartbeat", worker="w1", version="1.0 a")
    await fail(site)
    fingerprint = await mute(site)
    await site.ok("MuteFailures", fingerprint=fingerprint, name="mail/*", until="1h")
    await site.ok("Heartbeat", worker="w2", version="1.0 b")
    await fail(site, worker="w2")
    assert await unseen(site) == 0
    await fail(site, "b", worker="w2")
    assert await unseen(site) == 1


async def test_runs_of_jobs_that_go_on(site: Site) -> None:
    await site.create("mail/a", retries=3)
    await site.fail(await site.take("mail/a"), error="no disk 7")
    (found,) = (await site.ok("ListFailures"))["runs"]
    await site.ok("MuteFailures", fingerprint=found["fingerprint"], name="mail/*")
    await site.later(60)
    await site.fail(await site.take("mail/a"), error="no disk 7")
    (found,) = (await site.ok("ListFailures"))["runs"]
    assert (found["count"], found["unseen"], found["trend"]) == (2, 0, "muted")


async def test_other_names_are_not_muted_and_undo_ends_it(site: Site) -> None:
    await fail(site)
    await fail(site, "b")
    fingerprint = await mute(site, name="mail/*")
    assert await unseen(site) == 1
    await fail(site, "b")
    await fail(site)
    assert await unseen(site) == 2
    await site.ok("MuteFailures", fingerprint=fingerprint, name="mail/*", undo=True)
    await fail(site)
    assert await unseen(site) == 3
    given = {"fingerprint": fingerprint, "name": "mail/*", "undo": True}
    assert await site.refused("MuteFailures", **given) == (404, "Not muted")
    kinds = [event["kind"] for event in (await site.ok("Events"))["events"]]
    assert [kind for kind in kinds if "muted" in kind] == ["muted", "unmuted"]


async def test_as_many_as_there_may_be(site: Site) -> None:
    assert await site.refused("MuteFailures", fingerprint="a", until="2020-01-01") == (402, "Malformed until")
    for number in range(MUTED_RELEASES_MAX):
        await site.ok("Heartbeat", worker=f"w{number}", version=f"{number:0100}")
    await site.create("mail/a")
    await site.fail(await site.take("mail/a", "w0"), error="no disk 7")
    fingerprint = await mute(site)
    for number in range(1, MUTES_MAX):
        await site.ok("MuteFailures", fingerprint=f"{number}", until="1h" if number < 2 else "2h")
    assert await site.refused("MuteFailures", fingerprint="b") == (429, "Too many mutes")
    await site.ok("MuteFailures", fingerprint=fingerprint)
    await fail(site, worker=f"w{MUTED_RELEASES_MAX - 1}")
    assert ((await group(site))["trend"], await unseen(site)) == ("muted", 0)
    await site.ok("Heartbeat", worker="w", version="2.0")
    assert await site.refused("MuteFailures", fingerprint=fingerprint) == (429, "Too many releases")
    await site.later(3_600)
    await site.ok("MuteFailures", fingerprint="b", until="2h")


async def test_failures_of_the_same_commit(site: Site) -> None:
    await fail(site)
    fingerprint = (await group(site))["fingerprint"]
    jobs = []
    for _ in range(6):
        await site.create("mail/a")
        jobs.append(await site.take("mail/a"))
    failing = [site.fail(job, error="no disk 7") for job in jobs]
    await asyncio.gather(*failing[:3], site.ok("MuteFailures", fingerprint=fingerprint), *failing[3:])
    assert ((await group(site))["count"], await unseen(site)) == (7, 0)


async def test_within_a_scope(site: Site) -> None:
    await fail(site)
    await mute(site, reason="between us")
    root = await admin_of(site)
    mail = await root.token_for("mail", "operate", "mail/*")
    (found,) = (await mail.ok("ListFailures"))["jobs"]
    assert found["muted"] is None
