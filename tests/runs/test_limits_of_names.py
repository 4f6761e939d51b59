"""Limits by name pattern: how many jobs may be queued, and created per second, and their events."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import LIMITS_MAX, PER_SECOND_MAX, QUEUED_LIMIT_MAX
from bedrockjobs.engine.handlers import rules as handlers
from tests.runs.bearer import admin_of
from tests.runs.rig import Site

FULL = (429, "Too many jobs")


async def limits(site: Site) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in (await site.ok("ListLimits"))["limits"]}


async def test_no_more_jobs_are_queued_than_the_limit(site: Site) -> None:
    await site.ok("SetLimit", name="mail/*", queued=3)
    for number in range(3):
        await site.create(f"mail/{number}")
    assert await site.refused("CreateJob", name="mail/4") == FULL
    await site.create("other")
    await site.take("mail/*")
    await site.create("mail/5", firstRun="2030-01-01 00:00:00")
    reply = await site.http("CreateJob", {"name": "mail/6"})
    assert (reply.code, reply.json["detail"]) == (429, "name: the limit of mail/* is reached: 3 queued")


async def test_all_of_a_list_or_none(site: Site) -> None:
    await site.ok("SetLimit", name="*", queued=3)
    jobs = [{"name": "a"}, {"name": "b"}]
    await site.ok("CreateJobs", jobs=jobs)
    assert await site.refused("CreateJobs", jobs=jobs) == FULL
    await site.create("c")
    assert (await site.select("SELECT count(*) AS n FROM jobs"))[0]["n"] == 3


async def test_creates_a_second_are_a_bucket_of_tokens(site: Site) -> None:
    await site.ok("SetLimit", name="a*", perSecond=2)
    for _ in range(2):
        await site.create("a")
    assert await site.refused("CreateJob", name="ab") == FULL
    await site.create("b")
    await site.later(0.5)
    await site.create("a")
    assert await site.refused("CreateJob", name="a") == FULL
    await site.later(60)
    for _ in range(2):
        await site.create("a")
    assert await site.refused("CreateJob", name="a") == FULL


async def test_the_narrowest_of_several_counts(site: Site) -> None:
    await site.ok("SetLimit", name="*", queued=5)
    await site.ok("SetLimit", name="a", queued=1)
    await site.create("a")
    assert await site.refused("CreateJob", name="a") == FULL
    for _ in range(4):
        await site.create("b")
    assert await site.refused("CreateJob", name="b") == FULL


async def test_what_exists_already_is_not_created(site: Site) -> None:
    await site.ok("SetLimit", name="a", queued=1)
    assert await site.create("a", unique=True) == await site.create("a", unique=True, data={"x": 1})
    assert await site.refused("CreateJob", name="a") == FULL


async def test_jobs_that_are_tried_again_count_soon(site: Site) -> None:
    await site.ok("SetLimit", name="a", queued=10)
    await site.create("a")
    job = await site.take("a")
    for _ in range(9):
        await site.create("a")
    await site.ok("RetryJob", jobID=job["jobID"], runID=job["runID"])
    await site.both(5.0)
    assert await site.refused("CreateJob", name="a") == FULL


async def test_a_limit_outlasts_a_kill_and_can_be_changed_and_removed(site: Site) -> None:
    await site.ok("SetLimit", name="a", queued=1, by="ann")
    await site.create("a")
    await site.crash()
    assert await site.refused("CreateJob", name="a") == FULL
    one = (await limits(site))["a"]
    assert (one["queued"], one["perSecond"], one["refused"], one["by"]) == (1, 0, 1, "ann")
    assert one["lastRefused"] == site.now[:19]
    await site.ok("SetLimit", name="a", queued=2)
    await site.create("a")
    assert await site.refused("CreateJob", name="a") == FULL
    await site.ok("RemoveLimit", name="a")
    await site.create("a")
    assert await limits(site) == {}
    assert await site.refused("RemoveLimit", name="a") == (404, "No such limit")


async def test_that_it_is_reached_is_an_event_a_minute(site: Site) -> None:
    await site.ok("SetLimit", name="a", queued=1)
    await site.create("a")
    for _ in range(3):
        await site.refused("CreateJob", name="a")
    (event,) = await site.events("limited")
    assert (event["name"], event["detail"]) == ("a", "1 job was refused: 1 may be queued")
    await site.both(60.0)
    await site.refused("CreateJob", name="a")
    _, event = await site.events("limited")
    assert event["detail"] == "2 jobs were refused: 1 may be queued"


async def test_a_token_of_some_names_limits_these_alone(site: Site) -> None:
    root = await admin_of(site)
    of_mail = await root.token_for("m", "operate", "mail/*")
    assert (await of_mail.http("SetLimit", name="mail/a", queued=1)).code == 200
    for name in ("*", "other"):
        assert (await of_mail.http("SetLimit", name=name, queued=1)).code == 404
    assert (await of_mail.http("ListLimits")).code == 403
    (one,) = (await root.ok("ListLimits"))["limits"]
    assert (one["name"], one["by"]) == ("mail/a", "m")


async def test_what_is_no_limit_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await site.refused("SetLimit", name="a") == (402, "Missing limit")
    for given in ({"queued": QUEUED_LIMIT_MAX + 1}, {"perSecond": PER_SECOND_MAX + 1}, {"queued": -1}):
        assert (await site.refused("SetLimit", name="a", **given))[0] == 402
    assert LIMITS_MAX == 100
    monkeypatch.setattr(handlers, "LIMITS_MAX", 3)
    for number in range(3):
        await site.ok("SetLimit", name=f"a{number}", queued=1)
    assert await site.refused("SetLimit", name="b", queued=1) == (429, "Too many limits")
    await site.ok("SetLimit", name="a0", queued=2)
