"""Unique keys on a live server: over both protocols, after a restart, and when they are cleaned."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, get_args

import pytest
from click.testing import CliRunner

from bedrockjobs.base.config import UNIQUE_KEY_AGE_S_MIN
from bedrockjobs.cli import main
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import COMMANDS, Reply
from tests.runs.bearer import Bearer, admin_of
from tests.runs.restored import restored
from tests.runs.rig import Site

CLEANED_S = 3_600 + UNIQUE_KEY_AGE_S_MIN
KEYS = "SELECT jobID FROM keys ORDER BY jobID"


async def test_both_protocols_say_whether_a_job_is_new(site: Site) -> None:
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": 1, "created": True}
    assert (await site.ask("CreateJob", name="a", uniqueKey="k")).json == {"jobID": 1, "created": False}
    reply = await site.ask("CreateJob", name="a", uniqueKey="k", onConflict="reject")
    assert reply.status == "405 Unique key is held"
    assert (await site.http("CreateJob", {"name": "a", "uniqueKey": "k", "onConflict": "reject"})).code == 409


async def test_requests_with_new_data_and_a_new_key_each_mean_what_they_say(site: Site) -> None:
    """Such requests share what is known of the others of their kind."""
    for ask, first in ((site.ask, 0), (site.ok, 100)):
        for number in range(first, first + 20):
            given = {"name": "a", "data": {"n": number}, "uniqueKey": f"k{number % 15}-{first}"}
            reply = await ask("CreateJob", **given)
            found = reply if isinstance(reply, dict) else reply.json
            assert found["created"] is (number - first < 15)
            job = await site.ok("QueryJob", jobID=found["jobID"])
            assert job["uniqueKey"] == given["uniqueKey"]
            assert job["data"]["n"] % 15 == number % 15


async def test_a_lost_answer_and_a_key(site: Site) -> None:
    given = {"name": "a", "uniqueKey": "k", "idempotencyKey": "i"}
    assert await site.ok("CreateJob", **given) == {"jobID": 1, "created": True}
    await site.finish(await site.take("a"))
    assert await site.ok("CreateJob", **given) == {"jobID": 1, "created": True}, "the same answer again"
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": 2, "created": True}


async def test_a_key_outlives_a_crash(site: Site) -> None:
    await site.create("a", uniqueKey="k")
    await site.crash()
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": 1, "created": False}


async def test_keys_of_jobs_that_are_gone_are_deleted(site: Site) -> None:
    for name, until in {"finished": "finished", "started": "started", "short": "1h", "long": "3h"}.items():
        await site.create(name, uniqueKey="k", uniqueFor=until)
        await site.finish(await site.take(name))
    await site.create("waits", uniqueKey="k")
    await site.create("other", idempotencyKey="k")
    await site.later(CLEANED_S)
    assert [row["jobID"] for row in await site.select(KEYS)] == [4, 5, 6]


UNTIL = {"finished": "until the job has ended", "started": "until the job starts", "1h": "until 2026-"}


@pytest.mark.parametrize("until", UNTIL)
async def test_a_held_key_is_shown_everywhere(site: Site, until: str) -> None:
    """By QueryJob, by ListJobs, by ExplainJob, on its page, and in the refusal of another create."""
    await site.create("before")
    job = await site.create("a", uniqueKey="user-7", uniqueFor=until, firstRun="2027-01-01")
    await site.create("a", firstRun="2027-01-01")
    listed = {each["jobID"]: each for each in (await site.ok("ListJobs"))["jobs"]}
    assert listed[job] == await site.ok("QueryJob", jobID=job)
    assert [each for each in listed if "uniqueKey" in listed[each]] == [job]
    for command in ("QueryJob", "ExplainJob"):
        shown = await site.ok(command, jobID=job)
        assert shown["uniqueKey"] == "user-7"
        assert shown["uniqueUntil"] == until or shown["uniqueUntil"].startswith("2026-")
    page = (await Bearer(site).get(f"/ui/jobs/{job}", Accept="text/html")).body
    said = "until" if until == "1h" else UNTIL[until]
    assert re.search(rf"<dt>Unique key</dt><dd><code>user-7</code>\s+{said}", page)
    refused = await site.http("CreateJob", {"name": "a", "uniqueKey": "user-7", "onConflict": "reject"})
    assert UNTIL[until] in refused.json["detail"]
    assert f"job {job} holds it" in refused.json["detail"]


class Asked(NamedTuple):
    """Two jobs that are asked for: one that holds a key, and its parent."""

    job: int
    parent: int


SHOWING: dict[str, Callable[[Asked], dict[str, int]]] = {
    "QueryJob": lambda asked: {"jobID": asked.job},
    "ListJobs": lambda _: {},
    "ListChildren": lambda asked: {"jobID": asked.parent},
    "ExplainJob": lambda asked: {"jobID": asked.job},
}
"""The commands that show a job as it is. A take shows it as it was; CreateJob says whether a key was free."""


def replies(kind: Any) -> Iterator[type[Reply]]:
    """Yield the classes of a reply and of the replies in it."""
    if isinstance(kind, type) and issubclass(kind, Reply):
        yield kind
        for field in kind.model_fields.values():
            yield from replies(field.annotation)
    for part in get_args(kind):
        yield from replies(part)


async def held(site: Site, asked: Asked) -> dict[str, tuple[str, str]]:
    """Return the key of a job, and until when it is held, as each command and each client shows them."""
    server = f"127.0.0.1:{site.port}"
    found = {}
    async with AsyncClient(server) as client:
        for command, parameters in SHOWING.items():
            given = parameters(asked)
            arguments = [f"{key}={value}" for key, value in given.items()]
            called = await asyncio.to_thread(
                CliRunner().invoke, main, ["-o", "json", "-s", server, "call", command, *arguments]
            )
            told = {
                "HTTP": (await site.ok(command, **given)),
                "raw": (await site.ask(command, **given)).json,
                "client": json.loads(
                    (await client.call(COMMANDS[command].read(given))).model_dump_json(by_alias=True)
                ),
                "CLI": json.loads(called.stdout),
            }
            for way, reply in told.items():
                jobs = reply if isinstance(reply, list) else reply.get("jobs", [reply])
                (shown,) = (each for each in jobs if each["jobID"] == asked.job)
                found[f"{command}, {way}"] = shown["uniqueKey"], shown["uniqueUntil"]
                assert all(each.get("uniqueKey") is None for each in jobs if each["name"] != "child")
    for words in ("list", "show", "explain"):
        given = [] if words == "list" else [str(asked.job)]
        said = await asyncio.to_thread(CliRunner().invoke, main, ["job", words, *given, "-s", server])
        assert f"key {asked.job}" in said.stdout, said.stdout
    page = await Bearer(site).get(f"/ui/jobs/{asked.job}", Accept="text/html")
    assert f"<code>key {asked.job}</code>" in page.body
    return found


async def test_whatever_shows_a_job_shows_its_key_alike(site: Site) -> None:
    """By both protocols, clients and pages; also after a crash, and in a restored database."""
    showing = {
        name
        for name, command in COMMANDS.items()
        if any("unique_key" in each.model_fields for each in replies(command.reply))
    }
    assert showing == set(SHOWING)
    parent = await site.create("parent")
    await site.take("parent", worker=None)
    await site.create("plain", parentJobID=parent)
    until = {}
    for number, way in enumerate(UNTIL, parent + 2):
        job = await site.create("child", parentJobID=parent, uniqueKey=f"key {number}", uniqueFor=way)
        assert job == number
        until[job] = way
    await site.ok("FinishJob", jobID=parent)
    for change in (None, site.crash, partial(restored, site)):
        if change is not None:
            await change()
        for job, way in until.items():
            told = set((await held(site, Asked(job, parent))).values())
            assert len(told) == 1, "all say the same"
            ((key, end),) = told
            assert key == f"key {job}"
            assert end == way or (way == "1h" and end.startswith("2026-11-21 04:29:56"))
    admin = await admin_of(site)
    blind = await admin.token_for("blind", "read", noData=True)
    for job in until:
        for command, parameters in SHOWING.items():
            reply = await blind.ok(command, **parameters(Asked(job, parent)))
            (shown,) = (each for each in reply.get("jobs", [reply]) if each["jobID"] == job)
            assert "uniqueKey" not in shown
            assert "uniqueKey" in shown["hidden"]


async def test_a_key_that_is_free_is_not_shown(site: Site) -> None:
    """Its job has started or failed, another job has it, or the job has another name."""
    jobs = {until: await site.create("a", uniqueKey=until, uniqueFor=until) for until in ("started", "1s")}
    jobs["finished"] = await site.create("a", uniqueKey="f")
    jobs["renamed"] = await site.create("b", uniqueKey="r")
    plain = await site.create("plain")
    taken = [await site.take("a") for _ in range(3)]
    assert "uniqueKey" not in await site.ok("QueryJob", jobID=jobs["started"])
    assert (await site.ok("QueryJob", jobID=jobs["finished"]))["uniqueKey"] == "f"
    await site.later(2)
    for job in taken:
        await site.fail(job, error="no disk")
    assert await site.create("a", uniqueKey="f") != jobs["finished"]
    await site.ok("RetryJob", jobID=jobs["finished"], revive=True)
    await site.ok("RetryJob", jobID=(await site.take("b"))["jobID"], name="c")
    for job_id in (*jobs.values(), plain):
        for command in ("QueryJob", "ExplainJob"):
            assert "uniqueKey" not in await site.ok(command, jobID=job_id), (command, job_id)
    for listed in (await site.ok("ListJobs"))["jobs"]:
        assert listed == await site.ok("QueryJob", jobID=listed["jobID"])


async def test_a_key_may_outlive_its_job(site: Site) -> None:
    """Then a look at the job says why creates are answered with it, for as long as that is so."""
    job = await site.create("a", uniqueKey="k", uniqueFor="1h")
    kept = await site.create("b", uniqueKey="k", uniqueFor="1h", keep="1d")
    for name in ("a", "b"):
        await site.finish(await site.leased(name))
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": job, "created": False}
    for command in ("QueryJob", "ExplainJob"):
        gone = await site.http(command, {"jobID": job})
        assert (gone.code, "it has ended, and holds its unique key until 2026-" in gone.body) == (404, True)
    assert (await site.ok("QueryJob", jobID=kept))["uniqueKey"] == "k"
    page = (await Bearer(site).get(f"/ui/jobs/{job}", Accept="text/html")).body
    assert "It has ended, and holds its unique key until" in page
    await site.later(3_600)
    gone = await site.http("QueryJob", {"jobID": job})
    assert (gone.code, "unique key" in gone.body) == (404, False)
    assert "uniqueKey" not in await site.ok("QueryJob", jobID=kept)
    assert (await site.ok("CreateJob", name="a", uniqueKey="k"))["created"] is True


async def test_a_key_is_told_to_those_who_see_its_name(site: Site) -> None:
    job = await site.create("theirs", uniqueKey="k", uniqueFor="1h")
    await site.finish(await site.leased("theirs"))
    admin = await admin_of(site)
    narrow = await admin.token_for("narrow", "read", "mine/*")
    wide = await admin.token_for("wide", "read", "the*")
    for command in ("QueryJob", "ExplainJob"):
        assert "unique key" in (await wide.http(command, jobID=job)).body
        assert "unique key" not in (await narrow.http(command, jobID=job)).body


async def test_a_changed_key_changes_the_entity_tag_for_both_who_read_and_change(site: Site) -> None:
    job = await site.create("a", uniqueKey="k", firstRun="2027-01-01")
    tag = (await site.http("QueryJob", {"jobID": job})).headers["etag"]
    await site.ok("UpdateJob", jobID=job, data={"n": 1}, ifMatch=tag)
    assert await site.refused("UpdateJob", jobID=job, data={"n": 2}, ifMatch=tag) == (412, "Job has changed")


async def test_keys_stay_in_a_restored_database(site: Site) -> None:
    await site.create("a", uniqueKey="k", firstRun="2027-01-01")
    await site.create("b", uniqueKey="k", uniqueFor="1h")
    await site.finish(await site.leased("b"))
    await restored(site)
    for job, name in enumerate("ab", 1):
        assert await site.ok("CreateJob", name=name, uniqueKey="k") == {"jobID": job, "created": False}
