"""The options of a job: where they are stored, shown and changed, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import (
    ARGV_MAX,
    DURATION_S_MAX,
    HISTORY_MAX,
    NOTE_CHARS_MAX,
    OUTPUT_TAIL_MAX,
    RETRIES_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import CreateJob, UpdateJob
from bedrockjobs.commands.options import EMPTIED, OPTIONS
from bedrockjobs.commands.take import JobReply
from tests.protocol.talk import Talk
from tests.runs.conftest import Open
from tests.runs.rig import Site

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

ALL: dict[str, tuple[Any, Any]] = {
    "runTimeout": ("90s", 90),
    "grace": ("1m", 60),
    "lease": (30, 30),
    "onLost": ("fail", "fail"),
    "retries": (3, 3),
    "backoff": ("+90 SECONDS", 90),
    "maxBackoff": ("1h30m", 5400),
    "expireAfter": ("2d", 172_800),
    "lock": ("disk", "disk"),
    "catchup": ("all", "all"),
    "overlap": ("queue", "queue"),
    "maxLate": ("10m", 600),
    "jitter": ("5s", 5),
    "keepSuccess": (7, 7),
    "keepFail": (8, 8),
    "outputLines": (9, 9),
    "tags": (["a", "b"], ["a", "b"]),
    "note": ("asked for by finance", "asked for by finance"),
    "traceparent": (TRACE, TRACE),
}
GIVEN = {name: given for name, (given, _) in ALL.items()}
KEPT = {name: kept for name, (_, kept) in ALL.items()}


async def test_the_column_keeps_them_by_wire_name_with_durations_as_whole_seconds(site: Site) -> None:
    job_id = await site.create("a", **GIVEN, argv=["/bin/true", "x y"])
    options = await site.options(job_id)
    assert {name: options.get(name) for name in KEPT} == KEPT
    assert options["argv"] == ["/bin/true", "x y"]


async def test_every_command_that_shows_a_job_shows_them_beside_bedrocks_members(site: Site) -> None:
    job_id = await site.create("a", **GIVEN, cmd="echo hi")
    expected = {**KEPT, "cmd": "echo hi"}
    shown = await site.ok("QueryJob", jobID=job_id)
    listed = (await site.ok("ListJobs"))["jobs"][0]
    taken = await site.take("a", accepts=["cmd"])
    await site.finish(taken)
    await site.create("a", **GIVEN, cmd="echo hi")
    taken_by_jobs = (await site.ok("GetJobs", name="a", numResults=5, accepts=["cmd"]))["jobs"][0]
    for job in (shown, listed, taken, taken_by_jobs):
        assert {name: job.get(name) for name in expected} == expected
        assert job["name"] == "a"
        assert job["data"] == {}


async def test_what_was_not_set_is_not_shown(site: Site) -> None:
    job_id = await site.create("a", retries=1)
    shown = await site.ok("QueryJob", jobID=job_id)
    assert shown["retries"] == 1
    assert not (set(ALL) - {"retries"}) & set(shown)
    assert not {"cmd", "argv", "url"} & set(shown)


async def test_a_plain_job_keeps_an_empty_object(site: Site) -> None:
    job_id = await site.create("a")
    assert await site.options(job_id) == {}


async def test_raw_headers_give_them_too(site: Site) -> None:
    reply = await site.ask(
        "CreateJob", name="a", argv='["ls","-l"]', runTimeout="1m30s", tags="x, y", lock="true", retries="2"
    )
    assert reply.code == 200
    shown = await site.ok("QueryJob", jobID=1)
    assert (shown["argv"], shown["runTimeout"], shown["tags"], shown["retries"]) == (
        ["ls", "-l"],
        90,
        ["x", "y"],
        2,
    )
    assert shown["lock"] is True


async def test_createjobs_takes_them_in_each_spec(site: Site) -> None:
    jobs = [{"name": "a", "retries": 2}, {"name": "b", "backoff": "5m"}, {"name": "c"}]
    assert (await site.ok("CreateJobs", jobs=jobs))["jobIDs"] == [1, 2, 3]
    assert (await site.options(1))["retries"] == 2
    assert (await site.options(2))["backoff"] == 300
    assert await site.options(3) == {}


async def test_unique_with_overwrite_replaces_what_is_given(site: Site) -> None:
    await site.create("a", retries=2, backoff=5)
    assert await site.create("a", unique=True, retries=4) == 1
    assert (await site.options(1))["retries"] == 4


async def test_unique_without_overwrite_leaves_them(site: Site) -> None:
    await site.create("a", retries=2)
    assert await site.create("a", unique=True, overwrite=False, retries=4) == 1
    assert (await site.options(1))["retries"] == 2


async def test_updatejob_changes_what_is_given_and_leaves_the_rest(site: Site) -> None:
    job_id = await site.create("a", retries=2, backoff=5, tags=["x"])
    await site.ok("UpdateJob", jobID=job_id, retries=7, runTimeout="2m")
    shown = await site.ok("QueryJob", jobID=job_id)
    assert (shown["retries"], shown["backoff"], shown["tags"], shown["runTimeout"]) == (7, 5, ["x"], 120)


@pytest.mark.parametrize(
    ("name", "value", "empty"),
    [
        ("cmd", "ls", ""),
        ("tags", ["x"], []),
        ("lock", "disk", ""),
        ("lock", True, False),
        ("concurrencyKey", "k", ""),
    ],
)
async def test_an_option_that_is_emptied_is_removed(site: Site, name: str, value: Any, empty: Any) -> None:
    job_id = await site.create("a", **{name: value})
    assert name in await site.ok("QueryJob", jobID=job_id)
    await site.ok("UpdateJob", jobID=job_id, **{name: empty})
    assert name not in await site.ok("QueryJob", jobID=job_id)
    assert name not in await site.options(job_id)


def test_every_option_can_be_emptied() -> None:
    shown = {"argv", "url", "cmd", "hosts", "expect", "pingGrace", "keep", "onChildFailure"}
    shown |= {"concurrencyKey", "concurrencyLimit"}  # not together with a lock: see test_locks.py
    assert {*ALL, *shown} == OPTIONS


async def test_an_empty_text_takes_any_option_back(site: Site) -> None:
    more = {"argv": ["ls"], "url": "http://x/", "keep": "1d", "onChildFailure": "fail"}
    for name in [*ALL, *more]:
        given = {**GIVEN, **more}[name]
        others = {"note": "stays"} if name != "note" else {"tags": ["stays"]}
        job_id = await site.create("a", **{name: given}, **others)
        await site.ok("UpdateJob", jobID=job_id, **{name: None}, jobPriority=250)
        assert name in await site.options(job_id), "null is left out"
        await site.ok("UpdateJob", jobID=job_id, **{name: ""})
        assert list(await site.options(job_id)) == list(others), name
        assert name not in await site.ok("QueryJob", jobID=job_id)


async def test_on_the_raw_protocol_an_empty_header_takes_an_option_back(site: Site) -> None:
    job_id = await site.create("a", retries=3, runTimeout="5m", cmd="ls")
    async with await Talk.open(site.port) as talk:
        talk.send(f"UpdateJob\njobID: {job_id}\nretries: \nRunTimeout:\ndata:\njobPriority:\n\n")
        assert (await talk.reply()).code == 200
        talk.send("CreateJob\nname: b\nretries:\ngrace: 5s\n\n")
        assert (await talk.reply()).code == 200
    assert await site.options(job_id) == {"cmd": "ls"}
    assert await site.options(job_id + 1) == {"grace": 5}


async def test_a_job_without_a_timeout_again_is_not_stopped(site: Site) -> None:
    job_id = await site.create("a", runTimeout="5s", retries=9)
    await site.ok("UpdateJob", jobID=job_id, runTimeout="", retries="")
    job = await site.take("a")
    await site.later(3_600)
    assert (await site.run(job["runID"]))["status"] == "running"
    await site.fail(job)
    assert await site.state(job_id) == "FAILED"


def test_a_client_says_so_by_an_empty_text_and_none_is_left_out() -> None:
    assert UpdateJob(job_id=1, retries=None, run_timeout=EMPTIED, cmd=None).wire() == (
        '{"jobID":1,"runTimeout":""}'
    )
    assert UpdateJob(job_id=1, argv=EMPTIED, note=EMPTIED).chosen() == {"argv": "null", "note": "null"}
    assert CreateJob(name="a", retries=None).wire() == '{"name":"a"}'


async def test_a_command_can_be_exchanged_for_one_of_another_kind(site: Site) -> None:
    job_id = await site.create("a", cmd="ls")
    await site.ok("UpdateJob", jobID=job_id, cmd="", argv=["ls"])
    shown = await site.ok("QueryJob", jobID=job_id)
    assert shown["argv"] == ["ls"]
    assert "cmd" not in shown


@pytest.mark.parametrize(
    "commands",
    [
        {"cmd": "ls", "argv": ["ls"]},
        {"cmd": "ls", "url": "http://x/"},
        {"argv": ["ls"], "url": "http://x/"},
        {"cmd": "ls", "argv": ["ls"], "url": "http://x/"},
    ],
)
async def test_at_most_one_command(site: Site, commands: dict[str, Any]) -> None:
    code, reason = await site.refused("CreateJob", name="a", **commands)
    assert code == 402
    assert reason in [f"Malformed {name}" for name in commands]
    detail = await site.detail("CreateJob", name="a", **commands)
    assert any(name in detail for name in commands)
    assert await site.select("SELECT * FROM jobs") == []


async def test_updatejob_cannot_add_a_second_command(site: Site) -> None:
    job_id = await site.create("a", cmd="ls")
    code, _ = await site.refused("UpdateJob", jobID=job_id, argv=["ls"])
    assert code == 402
    assert "argv" not in await site.options(job_id)


async def test_a_lock_and_a_retry_after_exclude_each_other(site: Site) -> None:
    assert (await site.refused("CreateJob", name="a", lock="x", retryAfter="+5 MINUTES"))[0] == 402
    job_id = await site.create("a", retryAfter="+5 MINUTES")
    assert (await site.refused("UpdateJob", jobID=job_id, lock="x"))[0] == 402
    jobs = [{"name": "b"}, {"name": "a", "lock": True, "retryAfter": "+1 DAY"}]
    assert (await site.refused("CreateJobs", jobs=jobs))[0] == 402
    assert len(await site.select("SELECT * FROM jobs")) == 1


BAD = [
    ("runTimeout", "soon"),
    ("runTimeout", -1),
    ("grace", 1.5),
    ("lease", DURATION_S_MAX + 1),
    ("onLost", "maybe"),
    ("retries", -1),
    ("retries", RETRIES_MAX + 1),
    ("retries", "many"),
    ("backoff", "1 fortnight"),
    ("lock", "a\nb"),
    ("catchup", "never"),
    ("overlap", "run"),
    ("keepSuccess", HISTORY_MAX + 1),
    ("keepFail", -1),
    ("outputLines", OUTPUT_TAIL_MAX + 1),
    ("argv", "ls -l"),
    ("argv", []),
    ("argv", [""]),
    ("argv", ["a\0b"]),
    ("argv", ["x"] * (ARGV_MAX + 1)),
    ("argv", [1]),
    ("url", "ftp://x/"),
    ("url", {"url": 7}),
    ("tags", [1]),
    ("traceparent", "00-4bf9"),
    ("tags", ["t"] * (TAGS_MAX + 1)),
    ("tags", ["t" * (TAG_CHARS_MAX + 1)]),
]
"""Options with values that none of them takes."""


async def test_a_bad_value_is_refused_by_name(site: Site) -> None:
    job_id = await site.create("a")
    for name, bad in BAD:
        refused = (402, f"Malformed {name}")
        assert await site.refused("CreateJob", name="a", **{name: bad}) == refused, bad
        assert name in await site.detail("CreateJob", name="a", **{name: bad})
        if bad != []:
            assert await site.refused("UpdateJob", jobID=job_id, **{name: bad}) == refused, bad
        assert await site.options(job_id) == {}, (name, bad)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("lease", DURATION_S_MAX),
        ("retries", RETRIES_MAX),
        ("keepSuccess", HISTORY_MAX),
        ("outputLines", OUTPUT_TAIL_MAX),
        ("argv", ["x"] * ARGV_MAX),
        ("tags", ["t" * TAG_CHARS_MAX] * TAGS_MAX),
    ],
)
async def test_the_largest_value_of_a_limit_is_taken(site: Site, name: str, good: Any) -> None:
    job_id = await site.create("a", **{name: good})
    assert (await site.options(job_id))[name] == good


async def test_a_url_with_more_about_the_request(site: Site) -> None:
    url = {"url": "https://x/y", "method": "POST", "headers": {"A": "b"}, "body": "c", "status": [201]}
    await site.create("a", url=url)
    await site.create("b", url="https://x/z")
    shown = (await site.ok("QueryJob", jobID=1))["url"]
    assert {name: shown[name] for name in url} == url
    assert (await site.ok("QueryJob", jobID=2))["url"]["url"] == "https://x/z"


async def test_options_survive_a_restart(site: Site) -> None:
    job_id = await site.create("a", **GIVEN)
    before = await site.options(job_id)
    await site.restart()
    assert await site.options(job_id) == before


async def test_options_stay_with_a_job_that_repeats(site: Site) -> None:
    job_id = await site.create("a", repeat="FINISHED, +1 HOUR", retries=2, tags=["x"])
    await site.finish(await site.take("a"))
    shown = await site.ok("QueryJob", jobID=job_id)
    assert (shown["retries"], shown["tags"], shown["state"]) == (2, ["x"], "QUEUED")


async def test_a_mocked_job_ignores_lock_and_own_command(site: Site) -> None:
    for _ in range(2):
        await site.create("a", mockRequest=True, lock="x", argv=["ls"])
    rows = await site.select("SELECT lane FROM jobs")
    assert [row["lane"] for row in rows] == ["mock", "mock"]
    for _ in range(2):
        assert (await site.http("GetJob", {"name": "a", "getMockedJobs": True})).code == 200


async def test_current_compatibility_overwrites_what_bedrock_does_not_know(open_site: Open) -> None:
    """There the same data means that nothing changes; options and schedules are not part of that rule."""
    site = await open_site(compatibility="current")
    await site.create("a", repeat="CRON 0 * * * *")
    again = {"name": "a", "unique": True, "overwrite": True}
    await site.ok("CreateJob", **again, repeat="CRON * * * * *", retries=3)
    row = await site.row(1)
    assert (row["repeat"], row["options"], row["nextRun"]) == (
        "CRON * * * * *",
        {"retries": 3},
        "2026-11-21 03:30:00",
    )


async def test_unique_with_overwrite_keeps_what_is_not_given(site: Site) -> None:
    await site.create("a", repeat="CRON 0 * * * *", runTimeout=60, retries=2)
    again = {"name": "a", "repeat": "CRON 0 * * * *", "unique": True, "overwrite": True}
    await site.ok("CreateJob", **again, jobPriority=750)
    assert await site.options(1) == {"retries": 2, "runTimeout": 60}


async def test_a_note_is_changed_and_taken_back_and_has_a_longest_length(site: Site) -> None:
    job_id = await site.create("a", note="for the audit\nof 2026: see ticket 12")
    assert (await site.ok("QueryJob", jobID=job_id))["note"] == "for the audit\nof 2026: see ticket 12"
    await site.ok("UpdateJob", jobID=job_id, note="é" * NOTE_CHARS_MAX)
    assert (await site.ok("GetJob", name="a"))["note"] == "é" * NOTE_CHARS_MAX
    await site.ok("UpdateJob", jobID=job_id, note="")
    assert "note" not in await site.ok("QueryJob", jobID=job_id)
    refused = await site.refused("CreateJob", name="a", note="x" * (NOTE_CHARS_MAX + 1))
    assert refused[:2] == (402, "Malformed note")


def test_an_answer_has_a_place_for_every_option() -> None:
    assert {wire_name(field) for field in JobReply.model_fields} >= OPTIONS


async def test_a_job_that_is_refused_uses_up_no_number(site: Site) -> None:
    await site.create("a")
    assert (await site.refused("CreateJob", name="a", cmd="x", argv=["y"]))[0] == 402
    assert (await site.refused("CreateJob", name="a", parentJobID=99))[0] == 404
    assert await site.create("a", retries=1) == 2
