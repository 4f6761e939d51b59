"""Retention by name pattern: set, listed, and obeyed by the cleanup and by output."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import (
    COUNTED_KEPT_MAX,
    EVENTS_KEPT_MAX,
    EVENTS_KEPT_S_MIN,
    KEPT_BYTES_MAX,
    LIMITS_MAX,
    RUN_OUTPUT_BYTES_MIN,
    RUNS_KEPT_MAX,
    TICK_ROWS_MAX,
)
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.engine.handlers import rules as handlers
from bedrockjobs.job.limits import Retention, rule_for, rules_of, value_for
from bedrockjobs.store.records import MEASURED_MAX
from tests.runs.bearer import admin_of
from tests.runs.conftest import Open
from tests.runs.rig import Site

DAY = 86_400


async def ran(site: Site, name: str, lines: list[str] | None = None, **options: Any) -> int:
    """Let a job run and end well; return its run."""
    await site.create(name, data={"text": "x" * 500}, **options)
    job = await site.take(name)
    if lines:
        await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=lines)
    await site.finish(job)
    return int(job["runID"])


async def clean(site: Site, seconds: float = 3_600) -> None:
    """Let time pass, and the server forget what is old; what is left takes it another second."""
    await site.later(max(seconds, 3_600))
    for _ in range(4):
        await site.both(2)


async def kept(site: Site) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is kept by pattern and kind."""
    return {(row["name"], row["kind"]): row for row in (await site.ok("ListRetention"))["kept"]}


def test_the_longest_pattern_decides() -> None:
    rows = [Retention("*", "", "", 1), Retention("mail/*", "", "", 2, output=7), Retention("m*", "", "", 3)]
    rules = rules_of(rows, "runs")
    assert [value_for(rules, name, 0) for name in ("mail/a", "mob", "x")] == [2, 3, 1]
    assert rule_for(rules_of(rows, "output"), "mob") is None
    assert rules_of(rows, "ticks") == ()


async def test_the_servers_own_limits_are_listed_with_what_is_there(site: Site) -> None:
    await ran(site, "a", ["one", "two"])
    found = await kept(site)
    assert {kind for name, kind in found if name == "*"} == {
        "runs",
        "output",
        "events",
        "ticks",
        "audit",
        "keys",
    }
    runs, output = found["*", "runs"], found["*", "output"]
    assert (runs["most"], runs["seconds"], runs["count"], runs["more"]) == (RUNS_KEPT_MAX, None, 1, False)
    assert (runs["used"] > 500, runs["oldest"][:19]) == (True, "2026-11-21 03:29:56")
    assert (output["seconds"], output["bytes"], output["count"]) == (DAY, 10 * 1024 * 1024, 1)
    assert found["*", "events"]["most"] == EVENTS_KEPT_MAX
    assert found["*", "ticks"]["most"] == TICK_ROWS_MAX
    assert found["*", "audit"]["seconds"] == 90 * DAY


async def test_more_than_can_be_counted_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.views.administration.COUNTED_KEPT_MAX", 2)
    assert COUNTED_KEPT_MAX > 2
    for _ in range(3):
        await ran(site, "a")
    runs = (await kept(site))["*", "runs"]
    assert (runs["count"], runs["more"]) == (2, True)


async def test_what_takes_too_long_to_count_is_listed_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = site.server.service.views

    async def slow(*_: Any, **__: Any) -> Any:
        raise TimedOut

    monkeypatch.setattr(views, "page", slow)
    row = (await kept(site))["*", "runs"]
    assert (row["most"], row["count"], row["more"]) == (RUNS_KEPT_MAX, 0, True)


async def test_runs_of_names_go_after_their_time_and_only_they(site: Site) -> None:
    await site.ok("SetRetention", name="mail/*", runs="2h", by="ada")
    old, other, asked = await ran(site, "mail/a"), await ran(site, "b"), await ran(site, "mail/k", keep="30d")
    await clean(site)
    assert len(await site.runs()) == 3
    young = await ran(site, "mail/a")
    await clean(site)
    assert {run["runID"] for run in await site.runs()} == {other, asked, young}, old
    row = (await kept(site))["mail/*", "runs"]
    assert (row["seconds"], row["count"], row["by"]) == (7_200, 2, "ada")


async def test_runs_have_room_for_the_newest(site: Site) -> None:
    runs = [await ran(site, f"mail/{number}", ["y" * 1_000]) for number in range(6)]
    other = await ran(site, "b")
    await site.ok("SetRetention", name="mail/*", runsBytes=6_000)
    await clean(site)
    left = sorted(run["runID"] for run in await site.runs())
    assert left == [*runs[-(len(left) - 1) :], other]
    assert 1 <= len(left) - 1 < 6
    room = await kept(site)
    assert room["mail/*", "runs"]["used"] <= 6_000
    with_output = await site.select("SELECT DISTINCT runID FROM output")
    assert {row["runID"] for row in with_output} <= set(left)


async def test_a_walk_goes_on_where_a_look_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.EXAMINED_MAX", 2)
    for _ in range(5):
        await ran(site, "a")
    await site.ok("SetRetention", name="a", runs=60, runsBytes=KEPT_BYTES_MAX)
    await clean(site)
    assert await site.runs() == []


async def test_jobs_that_were_asked_to_be_kept_count_for_the_room_and_go(site: Site) -> None:
    """A disk is no larger for them; a time that was set for the names leaves them."""
    asked = [await ran(site, "mail/k", keep="30d") for _ in range(4)]
    await site.ok("SetRetention", name="mail/*", runs=60)
    await clean(site)
    assert sorted(run["runID"] for run in await site.runs()) == asked
    used = (await kept(site))["mail/*", "runs"]["used"]
    await site.ok("SetRetention", name="mail/*", runs=60, runsBytes=used // 2)
    await clean(site)
    assert sorted(run["runID"] for run in await site.runs()) == asked[2:]
    assert (await kept(site))["mail/*", "runs"]["used"] == used // 2


async def test_output_goes_after_its_own_time(site: Site) -> None:
    await site.ok("SetRetention", name="*", output="1h")
    await site.ok("SetRetention", name="long", output="3d")
    await ran(site, "short", ["x"])
    long = await ran(site, "long", ["x"])
    await clean(site, 2 * DAY)
    assert [row["runID"] for row in await site.select("SELECT runID FROM output")] == [long]
    assert len(await site.runs()) == 2


async def test_the_output_of_one_run_has_the_limit_of_its_name(site: Site) -> None:
    await site.ok("SetRetention", name="small", outputBytes=RUN_OUTPUT_BYTES_MIN)
    sizes = {}
    for name in ("small", "large"):
        await site.create(name)
        run = (await site.take(name))["runID"]
        for seq in range(1, 301, 20):
            await site.ok("AppendOutput", runID=run, seq=seq, lines=["z" * 1_000] * 20)
        (row,) = await site.select(f"SELECT sum(size) AS size FROM output WHERE runID = {run}")
        sizes[name] = row["size"]
    assert sizes["large"] == 300 * 1_001
    assert sizes["small"] <= 2 * RUN_OUTPUT_BYTES_MIN


async def test_events_of_names_go_but_not_within_a_day(site: Site) -> None:
    await site.ok("SetRetention", name="a", events=60)
    for name in ("a", "b"):
        await site.ok("PauseJobs", name=name)
    await clean(site, EVENTS_KEPT_S_MIN - 7_200)
    assert {event["name"] for event in await site.events("paused")} == {"a", "b"}
    await clean(site, 3 * 3_600)
    assert [event["name"] for event in await site.events("paused")] == ["b"]


async def test_events_have_room_for_the_newest_and_stay_for_a_day(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.EXAMINED_MAX", 2)
    for name in ("a", "b"):
        for number in range(5):
            await site.ok("PauseJobs", name=name, reason=f"{number}" + "x" * 100)
            await site.later(60)
    await site.ok("SetRetention", name="a", eventsBytes=250)
    for seconds in (EVENTS_KEPT_S_MIN - 7_200, 3 * 3_600):
        assert len(await site.events("paused")) == 10
        await site.later(seconds)
        for _ in range(12):
            await site.both(2)
    left = [(event["name"], event["detail"][0]) for event in await site.events("paused")]
    assert left == [("a", "3"), ("a", "4"), *(("b", str(number)) for number in range(5))]


async def test_keys_and_what_operators_changed_have_settings(open_site: Open) -> None:
    site = await open_site(keep_keys_s=2 * DAY, keep_audit_s=DAY)
    await site.ok("PauseJobs", name="x")
    assert await site.select("SELECT seq FROM audit") != []
    first = await site.create("a", idempotencyKey="k")
    await clean(site, 1.5 * DAY)
    assert await site.create("a", idempotencyKey="k") == first
    assert await site.select("SELECT seq FROM audit") == []
    found = {row["kind"]: row["seconds"] for row in (await site.ok("ListRetention"))["kept"]}
    assert (found["keys"], found["audit"]) == (2 * DAY, DAY)
    await clean(site, DAY)
    assert await site.create("a", idempotencyKey="k") != first


async def test_old_ticks_go_but_for_the_newest(site: Site) -> None:
    job_id = await site.create("s", repeat="CRON 0 * * * *")
    for _ in range(3):
        await site.later(3_600)
        await site.finish(await site.take("s"))
        await site.later(1)
    await site.ok("SetRetention", name="s", ticks=0)
    assert len(await site.ticks(job_id)) >= 2
    await clean(site, 60)
    assert len(await site.select(f"SELECT tick FROM ticks WHERE jobID = {job_id}")) == 1


async def ticks_of(site: Site, job_id: int) -> list[str]:
    """Return the history of a schedule, as it is stored."""
    rows = await site.select(f"SELECT tick FROM ticks WHERE jobID = {job_id} ORDER BY tick")
    return [row["tick"] for row in rows]


async def test_the_history_of_each_schedule_has_room_for_the_newest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.MEASURED_MAX", 1)
    assert MEASURED_MAX > 1
    jobs = [await site.create(name, repeat="CRON 0 * * * *") for name in ("s/a", "s/b", "other")]
    for _ in range(6):
        await site.later(3_600)
        for name in ("s/a", "s/b", "other"):
            await site.finish(await site.take(name))
    before = {
        job: await site.select(f"SELECT tick FROM ticks WHERE jobID = {job} ORDER BY tick") for job in jobs
    }
    assert all(len(ticks) >= 6 for ticks in before.values())
    room = (await kept(site))["*", "ticks"]["used"] // len(jobs) // 2
    await site.ok("SetRetention", name="s/*", ticksBytes=room)
    await clean(site, 60)
    left = {
        job: await site.select(f"SELECT tick FROM ticks WHERE jobID = {job} ORDER BY tick") for job in jobs
    }
    for job in jobs[:2]:
        assert 2 <= len(left[job]) < len(before[job])
        assert left[job] == before[job][-len(left[job]) :]
    assert left[jobs[2]] == before[jobs[2]]
    assert (await kept(site))["s/*", "ticks"]["used"] <= 2 * room
    await site.ok("SetRetention", name="s/*", ticksBytes=0)
    await clean(site, 60)
    assert len(await ticks_of(site, jobs[0])) == 1


async def test_it_is_set_anew_kept_over_a_restart_and_taken_back(site: Site) -> None:
    await site.ok("SetRetention", name="a*", runs="30d", output="7d")
    await site.ok("SetRetention", name="a*", runs="1d", by="bob")
    await site.restart()
    rows = {key: row["seconds"] for key, row in (await kept(site)).items() if key[0] == "a*"}
    assert rows == {("a*", "runs"): DAY}
    (first, second) = await site.events("retention set")
    assert (first["detail"], second["by"]) == ("runs for 30d, output for 7d", "bob")
    await site.ok("RemoveRetention", name="a*")
    assert await site.refused("RemoveRetention", name="a*") == (404, "No such limit")
    assert [key for key in await kept(site) if key[0] != "*"] == []


async def test_what_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await site.refused("SetRetention", name="a") == (402, "Missing limit")
    assert (await site.refused("SetRetention", name="a", outputBytes=1))[0] == 402
    monkeypatch.setattr(handlers, "LIMITS_MAX", 1)
    assert LIMITS_MAX > 1
    await site.ok("SetRetention", name="a", runs=1)
    await site.ok("SetRetention", name="a", runs=2)
    assert await site.refused("SetRetention", name="b", runs=1) == (429, "Too many limits")


async def test_a_narrow_token_limits_its_own_names_and_lists_nothing(site: Site) -> None:
    admin = await admin_of(site)
    mail = await admin.token_for("mail", "operate", "mail/*")
    await mail.ok("SetRetention", name="mail/a*", runs="1d")
    codes = [
        (await mail.http("SetRetention", name="*", runs="1d")).code,
        (await mail.http("ListRetention")).code,
    ]
    assert codes == [404, 403]
    assert {row["by"] for row in (await admin.ok("ListRetention"))["kept"]} == {"", "mail"}
