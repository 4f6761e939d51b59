"""``If-Match``: a job is changed only while it matches its entity tag."""

from __future__ import annotations

from bedrockjobs.base.config import IF_MATCH_CHARS_MAX
from tests.conftest import Live
from tests.protocol.talk import Talk


async def test_a_job_that_changed_meanwhile_is_not_overwritten(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a"})).json["jobID"]
    tag = (await live.http("QueryJob", {"jobID": job_id})).headers["etag"]
    change = {"jobID": job_id, "data": {"by": "first"}}
    assert (await live.http("UpdateJob", change, **{"If-Match": tag})).code == 200
    refused = await live.http("UpdateJob", {"jobID": job_id, "data": {}}, **{"If-Match": tag})
    assert (refused.code, refused.json["code"], refused.json["reason"]) == (412, 412, "Job has changed")
    now = await live.http("QueryJob", {"jobID": job_id})
    assert now.json["data"] == {"by": "first"}
    assert now.headers["etag"] in refused.json["detail"]


async def test_any_of_several_tags_or_a_star_will_do(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a"})).json["jobID"]
    tag = (await live.http("QueryJob", {"jobID": job_id})).headers["etag"]
    change = {"jobID": job_id, "jobPriority": 1000}
    assert (await live.http("UpdateJob", change, **{"If-Match": f'"other", {tag}'})).code == 200
    assert (await live.http("UpdateJob", change, **{"If-Match": "*"})).code == 200
    assert (await live.http("UpdateJob", {"jobID": 99, "data": {}}, **{"If-Match": "*"})).code == 404


async def test_the_raw_protocol_has_it_as_an_attribute(live: Live) -> None:
    job_id = (await live.ask("CreateJob", name="a")).json["jobID"]
    refused = await live.ask("UpdateJob", jobID=job_id, jobPriority=0, ifMatch='"old"')
    assert refused.status == "412 Job has changed"
    long = await live.ask("UpdateJob", jobID=job_id, jobPriority=0, ifMatch="x" * (IF_MATCH_CHARS_MAX + 1))
    assert long.status == "402 Malformed ifMatch"


async def test_a_condition_that_a_command_does_not_heed_is_refused(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a"})).json["jobID"]
    refused = await live.http("DeleteJob", {"jobID": job_id}, **{"If-Match": '"old"'})
    assert (refused.code, refused.json["reason"]) == (400, "Unexpected If-Match")
    assert "expected with UpdateJob only" in refused.json["detail"]
    twice = await live.http("CreateJobs", {"jobs": [{"name": "b"}]}, **{"Idempotency-Key": "k"})
    assert (twice.code, twice.json["reason"]) == (400, "Unexpected Idempotency-Key")
    assert [job["name"] for job in (await live.http("ListJobs", {})).json["jobs"]] == ["a"]
    assert (await live.http("QueryJob", {"jobID": job_id}, **{"Idempotency-Key": "k"})).code == 200


async def test_a_job_is_looked_at_by_get_with_its_tag(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a"})).json["jobID"]
    tag = (await live.http("QueryJob", {"jobID": job_id})).headers["etag"]
    async with await Talk.open(live.port) as talk:
        talk.send(f"GET /QueryJob?jobID={job_id} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = await talk.reply()
    assert (reply.code, reply.headers["etag"], reply.json["name"]) == (200, tag, "a")
