"""The idempotency key of CreateJob and of each spec of CreateJobs."""

from __future__ import annotations

from bedrockjobs.base.config import KEY_CHARS_MAX, KEYS_KEPT_S
from tests.runs.rig import Site


async def test_the_same_key_answers_the_first_jobid_and_does_nothing(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k", data={"n": 1}) == 1
    assert await site.create("a", idempotencyKey="k", data={"n": 2}) == 1
    assert await site.create("b", idempotencyKey="k", jobPriority=1000) == 1
    rows = await site.select("SELECT * FROM jobs")
    assert [(row["name"], row["data"], row["priority"]) for row in rows] == [("a", {"n": 1}, 500)]
    assert await site.create("a") == 2, "no jobID was used up"


async def test_other_keys_and_no_key_create(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k") == 1
    assert await site.create("a", idempotencyKey="K") == 2
    assert await site.create("a") == 3
    assert await site.create("a") == 4


async def test_it_does_not_matter_what_became_of_the_job(site: Site) -> None:
    await site.create("a", idempotencyKey="k")
    assert await site.create("a", idempotencyKey="k") == 1
    await site.finish(await site.take("a"))
    assert await site.state(1) == "(deleted)"
    assert await site.create("a", idempotencyKey="k") == 1
    assert await site.select("SELECT * FROM jobs") == []


async def test_a_key_is_remembered_for_a_day(site: Site) -> None:
    await site.create("a", idempotencyKey="k")
    await site.later(KEYS_KEPT_S - 1)
    assert await site.create("a", idempotencyKey="k") == 1
    await site.later(2)
    assert await site.create("a", idempotencyKey="k") == 2
    await site.later(KEYS_KEPT_S - 1)
    assert await site.create("a", idempotencyKey="k") == 2, "the day begins anew with the second job"


async def test_in_each_spec_of_createjobs(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k1") == 1
    jobs = [
        {"name": "b", "idempotencyKey": "k2"},
        {"name": "a", "idempotencyKey": "k1"},
        {"name": "c"},
        {"name": "d", "idempotencyKey": "k2"},
    ]
    assert (await site.ok("CreateJobs", jobs=jobs))["jobIDs"] == [2, 1, 3, 2]
    assert len(await site.select("SELECT * FROM jobs")) == 3
    assert await site.create("b", idempotencyKey="k2") == 2


async def test_a_refused_job_does_not_use_up_its_key(site: Site) -> None:
    reply = await site.http("CreateJob", {"name": "a", "parentJobID": 99, "idempotencyKey": "k"})
    assert reply.json["code"] in (404, 405)
    jobs = [{"name": "a", "idempotencyKey": "k"}, {"name": "b", "parentJobID": 99}]
    assert (await site.http("CreateJobs", {"jobs": jobs})).code >= 400
    assert await site.create("a", idempotencyKey="k") == 1
    assert (await site.row(1))["name"] == "a"


async def test_it_survives_a_restart_and_a_crash(site: Site) -> None:
    await site.create("a", idempotencyKey="k")
    await site.restart(down=100)
    assert await site.create("a", idempotencyKey="k") == 1
    await site.crash(down=100)
    assert await site.create("a", idempotencyKey="k") == 1


async def test_over_the_raw_protocol(site: Site) -> None:
    for _ in range(2):
        assert (await site.ask("CreateJob", name="a", idempotencyKey="k")).json == {"jobID": 1}


async def test_its_length(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k" * KEY_CHARS_MAX) == 1
    assert await site.refused("CreateJob", name="a", idempotencyKey="k" * (KEY_CHARS_MAX + 1)) == (
        402,
        "Malformed idempotencyKey",
    )
    assert (await site.refused("CreateJob", name="a", idempotencyKey=""))[0] == 402


async def test_it_is_no_option_of_the_job(site: Site) -> None:
    await site.create("a", idempotencyKey="k")
    assert await site.options(1) == {}
    assert "idempotencyKey" not in await site.ok("QueryJob", jobID=1)
