"""Damaged data is never handed out: its job is set aside with an event, and affects no other."""

from __future__ import annotations

import logging

import pytest

from tests.engines import sqlite_only
from tests.protocol.talk import Reply
from tests.runs.rig import Site

DAMAGE = "UPDATE jobs SET checksum = checksum + 1 WHERE jobID = {}"
"""What a disk does to a row, the other way round: the checksum is changed and not the data."""
WORDS = "The data of job 1 was damaged in the file: it is not what was stored."


async def refused(site: Site, command: str, **body: object) -> Reply:
    """Do a command that must be refused for damaged data."""
    reply = await site.http(command, dict(body))
    assert (reply.code, reply.json["reason"]) == (500, "Damaged data")
    return reply


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("QueryJob", {}),
        ("UpdateJob", {"jobPriority": 750}),
        ("FinishJob", {"data": {"b": 2}}),
        ("RetryJob", {}),
        ("FailJob", {}),
    ],
)
async def test_a_command_that_needs_the_row_is_refused_by_name(
    site: Site, command: str, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    await site.create("a", data={"k": 1}, repeat="STARTED, +1 HOUR")
    if command in ("FinishJob", "RetryJob", "FailJob"):
        await site.take("a")
    await site.change(DAMAGE.format(1))
    reply = await refused(site, command, jobID=1, **body)
    assert reply.json["detail"].startswith(WORDS)
    assert WORDS in caplog.messages
    assert [record.levelno for record in caplog.records if record.message == WORDS] == [logging.ERROR]
    (event,) = await site.events("damaged")
    assert (event["jobID"], event["name"], event["detail"]) == (1, "a", WORDS)


async def test_the_job_is_kept_as_failed_with_what_was_found_and_can_be_brought_back(site: Site) -> None:
    await site.create("a", data={"k": 1})
    await site.change(DAMAGE.format(1))
    assert await site.nothing("a")
    job = await site.ok("QueryJob", jobID=1)
    assert (job["state"], job["error"], job["data"]) == ("FAILED", WORDS, {"damagedData": '{"k": 1}'})
    await site.ok("UpdateJob", jobID=1, data={"k": 1})
    await site.ok("RetryJob", jobID=1, revive=True)
    assert (await site.take("a"))["data"] == {"k": 1}
    assert len(await site.events("damaged")) == 1


async def test_the_next_job_is_handed_out(site: Site) -> None:
    for _ in range(4):
        await site.create("a")
    await site.change(DAMAGE.format("1 OR jobID = 3"))
    found = await site.ok("GetJobs", name="a*", numResults=10)
    assert [job["jobID"] for job in found["jobs"]] == [2, 4]
    assert [await site.state(job_id) for job_id in (1, 3)] == ["FAILED", "FAILED"]


async def test_who_waits_gets_the_job_behind_it(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:29:57")
    await site.create("a", firstRun="2026-11-21 03:29:58")
    await site.change(DAMAGE.format(1))
    talk = await site.asking("a")
    await site.later(10)
    assert (await talk.reply()).json["jobID"] == 2


async def test_a_run_whose_time_is_over_is_closed(site: Site) -> None:
    await site.create("a", runTimeout=5, grace=1)
    await site.take("a")
    await site.change(DAMAGE.format(1))
    for _ in range(5):
        await site.both(30)
    assert await site.state(1) == "FAILED"
    (run,) = await site.runs()
    assert (run["status"], run["error"]) == ("fail", WORDS)


async def test_a_family_goes_on(site: Site) -> None:
    await site.create("parent")
    await site.take("parent", None)
    await site.create("child", parentJobID=1)
    await site.create("child", parentJobID=1)
    await site.finish({"jobID": 1})
    await site.change(DAMAGE.format(2))
    await site.finish(await site.take("child", None))
    assert await site.state(2) == "FAILED"
    parent = await site.take("parent", None)
    assert [child["jobID"] for child in parent["finishedChildJobs"]] == [3]


async def test_a_damaged_parent_is_set_aside_by_the_end_of_its_child(site: Site) -> None:
    await site.create("parent")
    await site.take("parent", None)
    await site.create("child", parentJobID=1)
    await site.finish({"jobID": 1})
    child = await site.take("child", None)
    await site.change(DAMAGE.format(1))
    await refused(site, "FinishJob", jobID=child["jobID"])
    assert await site.state(1) == "FAILED"
    assert await site.state(2) in ("RUNNING", "CANCELLED")


async def test_schedules_of_a_source_and_on_all_hosts_do_not_hurt_each_other(site: Site) -> None:
    for name in ("a", "b"):
        await site.create(name, repeat="CRON * * * * *", hosts="all")
    await site.asking("a")
    await site.change(DAMAGE.format(1))
    await site.both(120)
    assert [await site.state(job_id) for job_id in (1, 2)] == ["FAILED", "QUEUED"]


async def test_what_lists_show_of_it_is_marked(site: Site) -> None:
    await site.create("a", data={"k": 1})
    await site.change(DAMAGE.format(1))
    (job,) = (await site.ok("ListJobs"))["jobs"]
    assert job["data"] == {"damagedData": '{"k": 1}'}


@sqlite_only("PostgreSQL stores no invalid text")
async def test_bytes_that_are_no_text_are_damage(site: Site) -> None:
    await site.create("a", data={"k": "abcdef"})
    await site.create("a")
    await site.change(
        "UPDATE jobs SET data = CAST(x'7b226b223a22ff62636465662227d' || '' AS TEXT), checksum = 5"
        " WHERE jobID = 1".replace("27d", "7d")
    )
    (job, _) = (await site.ok("ListJobs"))["jobs"]
    assert "damagedData" in job["data"]
    assert (await site.take("a"))["jobID"] == 2
    assert await site.state(1) == "FAILED"


async def test_data_changed_by_hand_is_right(site: Site) -> None:
    await site.create("a", data={"k": 1})
    assert (await site.row(1))["checksum"] is not None
    await site.change("UPDATE jobs SET data = '{\"k\":2}' WHERE jobID = 1")
    assert (await site.row(1))["checksum"] is None
    assert (await site.take("a"))["data"] == {"k": 2}
    await site.ok("UpdateJob", jobID=1, data={"k": 3})
    assert (await site.row(1))["checksum"] is not None


async def test_a_change_of_all_else_leaves_the_checksum(site: Site) -> None:
    await site.create("a", data={"k": 1})
    before = (await site.row(1))["checksum"]
    await site.change("UPDATE jobs SET name = 'b', data = data WHERE jobID = 1")
    assert (await site.row(1))["checksum"] == before
    await site.ok("UpdateJob", jobID=1, jobPriority=1000)
    assert (await site.take("b"))["data"] == {"k": 1}
