"""Conditions that last: a message at the start and one at the end, once for each rule."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from bedrockjobs.base.vocabulary import CONDITIONS
from bedrockjobs.commands.rules import CONDITIONS_MAX, OLDER_S_DEFAULT, OVER_DEFAULT
from bedrockjobs.notify import dispatcher
from bedrockjobs.notify.dispatcher import WATCH_S
from bedrockjobs.views.problems import SPACE_LOW_BYTES
from tests.runs.rig import Site

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def _looks_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers look at what is wrong only when a test says so: between two steps they would see half."""
    monkeypatch.setattr(dispatcher, "WATCH_S", float("inf"))


async def watch(site: Site) -> None:
    """Let the server look at what is wrong, as it does each minute."""
    messenger = site.server.service.messenger
    await messenger.watch(await messenger.rules())


async def told(site: Site) -> list[tuple[str, str, str]]:
    """Return kind, name and rule of the events about conditions, the oldest first."""
    events = (await site.ok("Events", limit=1000))["events"]
    kinds = {*CONDITIONS, *(f"{kind} over" for kind in CONDITIONS)}
    return [(each["kind"], each["name"], each["by"]) for each in events if each["kind"] in kinds]


async def put(site: Site, name: str, *on: str, **more: Any) -> None:
    """Write a rule."""
    await site.ok("PutRule", name=name, on=list(on), to=NOWHERE, **more)


async def test_a_name_that_nobody_takes_is_told_once_and_when_it_is_over(site: Site) -> None:
    await put(site, "r", "no worker", names=["mail/*"])
    for name in ("mail/a", "mail/a", "other"):
        await site.create(name)
    await watch(site)
    assert await told(site) == [], "it has not waited for long"
    await site.later(OLDER_S_DEFAULT + 1)
    for _ in range(3):
        await watch(site)
    assert await told(site) == [("no worker", "mail/a", "rule r")]
    (rule,) = (await site.ok("ListRules"))["rules"]
    assert list(rule["conditions"]) == ["no worker"]
    event = (await site.ok("Events", limit=1000))["events"][-1]
    assert event["detail"].startswith("its oldest ready job has waited for 5 min")
    for _ in range(2):
        await site.take("mail/a")
    await watch(site)
    assert (await told(site))[1:] == [("no worker over", "mail/a", "rule r")]
    assert (await site.ok("ListRules"))["rules"][0]["conditions"] == {}


async def test_late_is_what_a_worker_asks_for_and_does_not_come_to(site: Site) -> None:
    await put(site, "slow", "late", "no worker", older="10m")
    await put(site, "quick", "late", older=1)
    for _ in range(2):
        await site.create("a")
    run = await site.leased("a")
    await site.later(60)
    await site.beat(run["runID"])
    await watch(site)
    assert await told(site) == [("late", "a", "rule quick")]


async def test_a_backlog_is_counted_over_all_names_of_a_rule(site: Site) -> None:
    assert OVER_DEFAULT == 1_000
    await put(site, "r", "backlog", names=["a/*"], over=3)
    for number in range(5):
        await site.create(f"a/{number % 2}")
    await site.create("b")
    await watch(site)
    assert await told(site) == [("backlog", "a/*", "rule r")]
    event = (await site.ok("Events", limit=1000))["events"][-1]
    assert event["detail"] == "5 jobs are ready, the limit is 3"
    await site.ok("PauseJobs", name="a/0")
    await watch(site)
    assert (await told(site))[1:] == [("backlog over", "a/*", "rule r")]


async def test_a_disk_with_little_room_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(site, "r", "disk low")
    await watch(site)
    real = site.server.service.free_bytes
    if real is None:
        return  # the database is on another machine
    assert await told(site) == []
    usage = shutil.disk_usage("/")._replace(free=SPACE_LOW_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    await watch(site)
    monkeypatch.undo()
    await watch(site)
    assert await told(site) == [("disk low", "", "rule r"), ("disk low over", "", "rule r")]


async def test_a_rule_is_told_of_its_own_limits_only_and_begins_anew_when_it_is_changed(site: Site) -> None:
    await put(site, "many", "backlog", over=5)
    await put(site, "few", "backlog", over=1)
    for _ in range(2):
        await site.create("a")
    await watch(site)
    assert await told(site) == [("backlog", "", "rule few")]
    tested = await site.ok("TestRule", name="few")
    assert "the queue has a backlog" in tested["text"]
    assert "2 jobs are ready, the limit is 1" in tested["text"]
    await put(site, "few", "backlog", over=0)
    await watch(site)
    assert await told(site) == [("backlog", "", "rule few")] * 2


async def test_what_servers_say_is_checked(site: Site) -> None:
    await put(site, "r", "late")
    many = {str(number): "" for number in range(CONDITIONS_MAX + 1)}
    for wrong in ({"odd": {}}, {"late": "x"}, {"late": {"a": 1}}, {"late": many}, [1], "{"):
        refused = await site.refused("ReportConditions", name="r", conditions=wrong)
        assert refused == (402, "Malformed conditions")
    assert (await site.refused("ReportConditions", name="x", conditions={}))[0] == 404
    assert WATCH_S == 60
