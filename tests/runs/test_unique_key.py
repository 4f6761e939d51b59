"""Unique keys on a live server: over both protocols, after a restart, and when they are cleaned."""

from __future__ import annotations

from bedrockjobs.base.config import UNIQUE_KEY_AGE_S_MIN
from tests.runs.rig import Site

CLEANED_S = 3_600 + UNIQUE_KEY_AGE_S_MIN
KEYS = "SELECT jobID FROM keys ORDER BY jobID"


async def test_both_protocols_say_whether_a_job_is_new(site: Site) -> None:
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": 1, "created": True}
    assert (await site.ask("CreateJob", name="a", uniqueKey="k")).json == {"jobID": 1, "created": False}
    reply = await site.ask("CreateJob", name="a", uniqueKey="k", onConflict="reject")
    assert reply.status == "405 Unique key is held"
    assert (await site.http("CreateJob", {"name": "a", "uniqueKey": "k", "onConflict": "reject"})).code == 409


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
