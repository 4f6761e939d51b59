"""Jobs with their own command are given only to workers that accept its kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runs.rig import Site

KINDS: dict[str, Any] = {"cmd": "ls", "argv": ["ls", "-l"], "url": "http://example.org/"}


@pytest.mark.parametrize("kind", KINDS)
async def test_only_who_accepts_the_kind_gets_it(site: Site, kind: str) -> None:
    await site.create("a", **{kind: KINDS[kind]})
    others = [other for other in KINDS if other != kind]
    assert await site.nothing("a")
    assert await site.nothing("a", worker="w")
    assert await site.nothing("a", worker="w", accepts=others)
    assert await site.nothing("*", worker="w", getMockedJobs=True)
    job = await site.take("a", accepts=[kind])
    assert kind in job


async def test_accepts_as_comma_list_and_as_json(site: Site) -> None:
    for kind, value in KINDS.items():
        await site.create(kind, **{kind: value})
    for accepts, name in (("cmd,argv", "cmd"), ('["url"]', "url"), ("url, argv", "argv")):
        reply = await site.ask("GetJob", name="*", accepts=accepts, worker="w")
        assert reply.json["name"] == name


async def test_without_a_worker_too(site: Site) -> None:
    await site.create("a", cmd="ls")
    assert (await site.take("a", None, accepts=["cmd"]))["cmd"] == "ls"


async def test_it_is_no_hindrance_to_plain_jobs(site: Site) -> None:
    await site.create("a", cmd="ls", jobPriority=1000)
    await site.create("a")
    assert (await site.take("a"))["jobID"] == 2
    assert (await site.take("a", accepts=["cmd"]))["jobID"] == 1


async def test_who_accepts_gets_plain_jobs_in_the_promised_order(site: Site) -> None:
    for number, kind in enumerate([None, "cmd", None, "argv", "url", None]):
        more = {kind: KINDS[kind]} if kind else {}
        await site.create(f"{number}", firstRun="2026-11-21 03:00:00", **more)
    found = [(await site.take("*", accepts=["cmd", "argv", "url"]))["name"] for _ in range(6)]
    assert found == list("012345")


async def test_getjobs(site: Site) -> None:
    for kind, value in KINDS.items():
        await site.create("a", **{kind: value})
    await site.create("a")
    jobs = (await site.ok("GetJobs", name="a", numResults=10, worker="w", accepts=["argv"]))["jobs"]
    assert [job["jobID"] for job in jobs] == [2, 4]


async def test_thenget(site: Site) -> None:
    await site.create("p")
    await site.create("a", argv=["ls"])
    job = await site.take("p")
    answer = await site.ok("FinishJob", jobID=1, runID=job["runID"], thenGet="a", worker="w")
    assert answer["job"] is None
    await site.create("p")
    job = await site.take("p")
    answer = await site.ok("FinishJob", jobID=3, thenGet="a", worker="w", accepts=["argv"])
    assert answer["job"]["jobID"] == 2


async def test_only_a_waiter_that_accepts_is_woken(site: Site) -> None:
    plain, accepting = await site.asking("a"), await site.asking("a", "w2", accepts="cmd")
    await site.create("a", cmd="ls")
    assert (await accepting.reply()).json["cmd"] == "ls"
    assert await plain.silent()
    await site.create("a")
    assert (await plain.reply()).json["jobID"] == 2


async def test_a_command_that_is_set_or_taken_away_later(site: Site) -> None:
    await site.create("a")
    await site.ok("UpdateJob", jobID=1, cmd="ls")
    assert await site.nothing("a", worker="w")
    talk = await site.asking("a")
    await site.ok("UpdateJob", jobID=1, cmd="")
    assert (await talk.reply()).json["jobID"] == 1


async def test_a_retry_is_still_for_who_accepts(site: Site) -> None:
    await site.create("a", cmd="ls", retries=1, backoff=0)
    await site.fail(await site.take("a", accepts=["cmd"]))
    assert await site.nothing("a", worker="w")
    await site.restart()
    assert await site.nothing("a", worker="w")
    assert (await site.take("a", accepts=["cmd"]))["attempt"] == 2


async def test_an_unknown_kind_is_refused(site: Site) -> None:
    assert await site.refused("GetJob", name="a", accepts=["python"]) == (402, "Malformed accepts")
    assert (await site.ask("GetJob", name="a", accepts="python")).status == "402 Malformed accepts"


async def test_an_unknown_part_of_a_request_is_refused_by_its_name(site: Site) -> None:
    given = {"url": "http://x", "metod": "POST"}
    assert await site.refused("CreateJob", name="a", url=given) == (402, "Unknown attribute metod")
    assert "url.metod" in await site.detail("CreateJob", name="a", url=given)
