"""The idempotency key of CreateJob and of each spec of CreateJobs."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import KEY_CHARS_MAX
from tests.runs.bearer import Bearer, admin_of
from tests.runs.rig import Site

KEYS_KEPT_S = 86_400


async def test_the_same_key_answers_the_first_jobid_and_does_nothing(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k", data={"n": 1}) == 1
    assert await site.create("a", idempotencyKey="k", data={"n": 2}) == 1
    assert await site.create("a", idempotencyKey="k", jobPriority=1000) == 1
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
        {"name": "b", "idempotencyKey": "k2"},
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


async def test_a_key_of_a_job_with_another_name_is_refused(site: Site) -> None:
    assert await site.create("a", idempotencyKey="k") == 1
    assert await site.refused("CreateJob", name="b", idempotencyKey="k") == (405, "Key is used")
    reply = await site.http("CreateJobs", {"jobs": [{"name": "c"}, {"name": "b", "idempotencyKey": "k"}]})
    assert (reply.code, reply.json["reason"]) == (409, "Key is used")
    assert "job 1, a; expected that name" in reply.json["detail"]
    await site.finish(await site.take("a"))
    assert await site.state(1) == "(deleted)"
    assert await site.refused("CreateJob", name="b", idempotencyKey="k") == (405, "Key is used")
    assert await site.create("a", idempotencyKey="k") == 1
    await site.later(KEYS_KEPT_S + 1)
    assert await site.create("b", idempotencyKey="k") == 2, "it is forgotten, and c was not made"


@pytest.mark.parametrize("key", ["a\x1fb", "\x1f\x1fk", "shop\x1f\x1fk", "\n", "a\x7f"])
async def test_control_characters_are_refused(site: Site, key: str) -> None:
    assert (await site.refused("CreateJob", name="a", idempotencyKey=key))[0] == 402
    assert (await site.http("CreateJobs", {"jobs": [{"name": "a", "idempotencyKey": key}]})).code == 400


async def _by_http(who: Bearer, name: str, more: dict[str, Any]) -> Any:
    return (await who.http("CreateJob", **{"name": name, "idempotencyKey": "k", **more})).json


async def _by_raw(who: Bearer, name: str, more: dict[str, Any]) -> Any:
    reply = await who.raw("CreateJob", name=name, idempotencyKey="k", **more)
    return reply.json if reply.code == 200 else {"code": reply.code}


async def _by_list(who: Bearer, name: str, more: dict[str, Any]) -> Any:
    found = (await who.http("CreateJobs", jobs=[{"name": name, "idempotencyKey": "k", **more}])).json
    return {"jobID": found["jobIDs"][0]} if "jobIDs" in found else found


async def _owners(site: Site) -> dict[str, tuple[Bearer, dict[str, Any]]]:
    """Return all who may own a key: nobody's is that of the rest of the file."""
    root = await admin_of(site)
    owners: dict[str, tuple[Bearer, dict[str, Any]]] = {"root": (root, {})}
    for role in ("produce", "operate", "admin"):
        for scope in ("", "a/*") if role != "admin" else ("",):
            name = f"{role}{scope[:1]}"
            owners[name] = (await root.token_for(name, role, scope), {})
    for name, scope in (("wide", ""), ("narrow", "a/*")):
        worker = await root.token_for(name, "work,produce", scope)
        owners[name] = (worker, {})
        for run in range(2):
            parent = f"a/{name}{run}"
            await root.ok("CreateJob", name=parent)
            taken = await worker.ok("GetJob", name=parent, worker="w", runToken=True)
            owners[parent] = (Bearer(site, taken["runToken"]), {"parentJobID": taken["jobID"]})
    return owners


async def test_keys_belong_to_a_token_and_to_a_run(site: Site) -> None:
    """Every role, scope and run, and each way to create: the same key of each is another one."""
    nobodys = await site.create("a/b", idempotencyKey="k")
    owners = await _owners(site)
    made = {}
    for way, (name, (who, more)) in zip(
        [_by_http, _by_raw, _by_list] * len(owners), owners.items(), strict=False
    ):
        made[name] = (await way(who, "a/b", more))["jobID"]
    assert len({nobodys, *made.values()}) == 1 + len(owners), made
    for name, (who, more) in owners.items():
        for way in (_by_http, _by_raw, _by_list):
            assert (await way(who, "a/b", more))["jobID"] == made[name], (name, way)
            assert (await way(who, "a/c", more))["code"] == 405, (name, way)
    steps = [{"ref": "one", "name": "a/b"}]
    workflows: dict[str, int] = {}
    for again in (False, True):
        for name, (who, more) in owners.items():
            if more:  # a run may not make workflows
                assert (
                    await who.http("CreateWorkflow", name="a/b", jobs=steps, idempotencyKey="v")
                ).code == 403
                continue
            for asked in (who.http, who.raw):
                reply = await asked("CreateWorkflow", name="a/b", jobs=steps, idempotencyKey="v")
                assert reply.code == 200, (name, reply)
                assert workflows.setdefault(name, reply.json["workflowID"]) == reply.json["workflowID"], name
                if again:
                    other = await asked("CreateWorkflow", name="a/c", jobs=steps, idempotencyKey="v")
                    assert other.code in (405, 409), (name, other)
                taken = await asked("CreateWorkflow", name="a/b", jobs=steps, idempotencyKey="k")
                assert taken.code in (405, 409), "it was used for a job"
            assert (await _by_http(who, "a/c", {"idempotencyKey": "v"}))["code"] == 405, (
                "and this for a workflow"
            )
    assert len(set(workflows.values())) == len(workflows) == 8, workflows


async def test_keys_of_an_older_server_go_on(site: Site) -> None:
    """Before version 6 of the schema narrowed tokens alone had keys of their own, and no name was kept."""
    job = await site.create("a/b")
    gone = job + 1_000
    root = await admin_of(site)
    wide, other = [await root.token_for(name, "produce") for name in ("wide", "other")]
    narrow = await root.token_for("narrow", "produce", "a/*")
    for key, job_id in (("k", job), ("narrow\x1fk", job), ("gone", gone)):
        await site.change(f"INSERT INTO keys (key, jobID, created) VALUES ('{key}', {job_id}, '{site.now}')")
    for who in (root, wide, other, narrow):
        assert (await who.ok("CreateJob", name="a/b", idempotencyKey="k"))["jobID"] == job
        assert (await who.http("CreateJob", name="a/c", idempotencyKey="k")).code == 409
    assert (await wide.ok("CreateJob", name="a/c", idempotencyKey="gone"))["jobID"] == gone
    assert (await narrow.ok("CreateJob", name="a/c", idempotencyKey="gone"))["jobID"] not in (job, gone)
    site.advance(KEYS_KEPT_S + 1)
    made = {(await who.ok("CreateJob", name="a/b", idempotencyKey="k"))["jobID"] for who in (wide, other)}
    assert len(made) == 2
