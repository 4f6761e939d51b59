"""Cronken's events, posted as they are."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import CRONKEN_EVENT_CHARS_MAX, PAUSES_MAX
from tests.protocol.talk import post
from tests.runs.rig import Site

DEFINITION = {
    "cron_args": {"cronstring": "0 * * * *"},
    "job_args": {"cmd": "echo hi", "lock": True, "ttl": 10},
    "job_state": {},
}


async def send(site: Site, action: Any, args: Any = None, where: str = "") -> tuple[int, Any]:
    """Post an event; return the status and the answer."""
    talk = await site.connect()
    talk.send(post(f"cronken/events{where}", {"action": action, "args": args}))
    reply = await talk.reply()
    return reply.code, reply.json


async def add(site: Site, name: str = "a", where: str = "", **change: Any) -> Any:
    """Add a job; return the answer."""
    code, answer = await send(site, "add", {"job_name": name, "job_def": {**DEFINITION, **change}}, where)
    assert code == 200, answer
    return answer


async def test_add(site: Site) -> None:
    answer = await add(site)
    assert (answer["jobID"], answer["repeat"], answer["warnings"]) == (1, "CRON 0 * * * *", [])
    job = await site.ok("QueryJob", jobID=1)
    assert (job["cmd"], job["nextRun"]) == ("echo hi", "2026-11-21 04:00:00")


async def test_add_again_leaves_it(site: Site) -> None:
    await add(site, job_args={"cmd": "echo hi", "lock": "disk", "ttl": 90})
    before = await site.row(1)
    answer = await add(site, cron_args={"cronstring": "30 * * * *"}, job_state={"paused": True})
    warning = "there is a job a already: it was left as it is"
    assert answer == {"jobID": 1, "repeat": "CRON 0 * * * *", "warnings": [warning]}
    assert await site.row(1) == before
    assert (await site.ok("ListPauses"))["pauses"] == []


async def test_add_never_touches_what_belongs_to_a_source(site: Site) -> None:
    await site.ok("SyncSchedules", source="ops", schedules=[{"name": "a", "repeat": "CRON 5 * * * *"}])
    before = await site.row(1)
    answer = await add(site)
    assert "which belongs to the source ops: it was left as it is" in answer["warnings"][0]
    assert await site.row(1) == before


async def test_add_leaves_a_plain_job_of_the_name(site: Site) -> None:
    await site.create("a", data={"n": 1})
    assert (await add(site))["repeat"] == ""
    assert (await site.take("a"))["data"] == {"n": 1}


async def test_add_with_cronkens_week(site: Site) -> None:
    await add(site, cron_args={"cronstring": "0 0 * * 0"})
    await add(site, "b", "?weekday_0=monday", cron_args={"cronstring": "0 0 * * 0"})
    assert await site.due(1) == "2026-11-22 00:00:00", "a Sunday, as crontab has it"
    assert await site.due(2) == "2026-11-23 00:00:00", "a Monday, as Cronken has it"


async def test_add_paused(site: Site) -> None:
    await add(site, job_state={"paused": True})
    await site.until_time("2026-11-21 04:00:01")
    assert await site.nothing("a", accepts="cmd")


async def test_pause_and_resume(site: Site) -> None:
    await site.create("a*")
    await site.create("ab")
    assert await send(site, "pause", "a*") == (200, {})
    assert (await site.take("a*"))["name"] == "ab", "a name, not a pattern"
    assert await send(site, "resume", "a*") == (200, {})
    assert (await site.take("a*"))["name"] == "a*"
    assert await send(site, "resume", "a*") == (200, {}), "one that is not paused is left alone"


async def test_all(site: Site) -> None:
    await site.create("a")
    assert await send(site, "pause", "all") == (200, {})
    assert await site.nothing("*")
    assert await send(site, "resume", "all") == (200, {})
    assert (await site.take("*"))["name"] == "a"


async def test_pause_all_and_resume_one(site: Site) -> None:
    for name in ("a", "b*", "plain"):
        await site.create(name)
    await add(site, "c")
    assert await send(site, "pause", "all") == (200, {})
    assert await send(site, "resume", "b*") == (200, {})
    assert (await site.take("*"))["name"] == "b*"
    await site.until_time("2026-11-21 04:00:01")
    assert await site.nothing("*", accepts="cmd")
    patterns = {pause["pattern"] for pause in (await site.ok("ListPauses"))["pauses"]}
    assert patterns == {"a", "plain", "c"}
    assert await send(site, "resume", "c") == (200, {})
    await site.until_time("2026-11-21 05:00:01")
    assert (await site.take("*", accepts="cmd"))["name"] == "c"
    assert await send(site, "resume", "all") == (200, {})
    assert {(await site.take("*"))["name"] for _ in range(2)} == {"a", "plain"}


async def test_pause_all_and_one_and_resume_it(site: Site) -> None:
    await site.create("a")
    await site.create("b")
    await send(site, "pause", "a")
    await send(site, "pause", "all")
    assert await send(site, "resume", "a") == (200, {})
    assert (await site.take("*"))["name"] == "a"
    assert await site.nothing("*")


async def test_a_pause_of_somebody_else_is_told_and_stays(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs", name="*", by="ann")
    assert await send(site, "resume", "a") == (200, {"still_paused_by": ["*"]})
    assert await site.nothing("a")


async def test_more_names_than_can_be_paused(site: Site) -> None:
    jobs = [{"name": f"n{number}"} for number in range(PAUSES_MAX)]
    await site.ok("CreateJobs", jobs=jobs)
    await send(site, "pause", "all")
    await site.create("a")
    code, answer = await send(site, "resume", "a")
    assert (code, answer["reason"]) == (429, "Too many pauses")
    assert [pause["pattern"] for pause in (await site.ok("ListPauses"))["pauses"]] == ["**"]
    assert await site.nothing("*")


@pytest.mark.parametrize(("action", "signal"), [("terminate_run", "TERM"), ("kill_run", "KILL")])
async def test_stop(site: Site, action: str, signal: str) -> None:
    await site.create("a")
    job = await site.leased("a")
    assert await send(site, action, str(job["runID"])) == (200, {})
    assert (await site.beat(job["runID"]))["stop"] == [{"runID": job["runID"], "signal": signal}]
    assert (await send(site, action, "77"))[0] == 404


async def test_trigger(site: Site) -> None:
    await add(site)
    assert await send(site, "trigger", "a") == (200, {})
    assert (await site.take("a", accepts="cmd"))["cmd"] == "echo hi"
    assert (await send(site, "trigger", "b"))[0] == 404


async def test_remove(site: Site) -> None:
    await add(site)
    assert await send(site, "remove", "a") == (200, {})
    assert await site.state(1) == "(deleted)"
    assert (await send(site, "remove", "a"))[0] == 404


async def test_a_removed_jobs_pause_goes_with_it(site: Site) -> None:
    await add(site, "a*")
    await add(site, "b")
    await send(site, "pause", "a*")
    await send(site, "pause", "b")
    assert await send(site, "remove", "a*") == (200, {})
    assert [pause["pattern"] for pause in (await site.ok("ListPauses"))["pauses"]] == ["b"]
    await add(site, "a*")
    await site.until_time("2026-11-21 04:00:01")
    assert (await site.take("*", accepts="cmd"))["name"] == "a*"


async def test_remove_during_a_run(site: Site) -> None:
    await add(site)
    await send(site, "trigger", "a")
    job = await site.take("a", accepts="cmd")
    assert await send(site, "remove", "a") == (200, {})
    await site.finish(job)
    assert await site.state(1) == "(deleted)"


async def test_reload_and_validate(site: Site) -> None:
    await add(site)
    assert await send(site, "reload", {}) == (200, {})
    for names in ([], ["a"]):
        assert await send(site, "validate", names) == (200, {"validation_errors": {}})
    assert await send(site, "validate", ["b", "a"]) == (200, {"validation_errors": {}, "unknown": ["b"]})


async def test_drain_nodes(site: Site) -> None:
    await site.beat(worker="v", host="here")
    await site.beat(worker="w", host="there")
    assert await send(site, "drain_nodes", ["here"]) == (200, {"drained": ["v"]})
    unknown = {"drained": ["v"], "unknown": ["nowhere"]}
    assert await send(site, "drain_nodes", ["nowhere", "here"]) == (200, unknown)
    assert (await site.beat(worker="v"))["quiet"] is True
    assert (await site.beat(worker="w"))["quiet"] is False


@pytest.mark.parametrize(
    ("action", "args", "named"),
    [
        (None, None, "action"),
        ("dance", None, "action"),
        ("pause", None, "args"),
        ("pause", ["a"], "args"),
        ("kill_run", "x", "args"),
        ("kill_run", True, "args"),
        ("add", {"job_name": "a"}, "args"),
        ("add", {"job_name": "", "job_def": DEFINITION}, "args"),
        ("add", {"job_name": "a", "job_def": {}}, "args"),
        ("add", {"job_name": "a", "job_def": {**DEFINITION, "cron_args": {"cronstring": "x"}}}, "args"),
        ("validate", "a", "args"),
        ("drain_nodes", [1], "args"),
    ],
)
async def test_nonsense_is_refused_by_name(site: Site, action: Any, args: Any, named: str) -> None:
    code, answer = await send(site, action, args)
    assert code == 400
    assert named in answer["reason"]
    assert await site.select("SELECT * FROM jobs") == []


async def test_a_body_that_is_no_object(site: Site) -> None:
    for body in ("", "[", "[]", "7"):
        talk = await site.connect()
        talk.send(
            f"POST /cronken/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        assert (await talk.reply()).code == 400
    assert (await send(site, "pause", "a", "?weekday_0=friday"))[0] == 400
    code, answer = await send(site, "pause", "a" * CRONKEN_EVENT_CHARS_MAX)
    assert (code, answer["detail"]) == (400, f"body: expected at most {CRONKEN_EVENT_CHARS_MAX} characters")
