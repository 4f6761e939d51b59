"""One definition of ready, later, paused, blocked, mocked and untaken, in every view.

Each situation is built over the wire on a live server. Then Overview, ListQueues, ExplainJob, the metrics,
`top`, `doctor` and the overview page are asked.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from bedrockjobs.cli import main
from tests.runs.rig import Site

COUNTS = ("ready", "later", "running", "paused", "blocked", "mocked", "failed")
QUEUED = ("ready", "later", "paused", "blocked", "mocked")


class Told(NamedTuple):
    """What everybody must say of the jobs of the name ``a``."""

    counts: dict[str, int]
    reasons: list[str]
    untaken: int = 0
    problems: frozenset[str] = frozenset()
    workers: int = 1
    paused_by: str = ""


async def plain(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a")
    return Told({"ready": 1}, [])


async def future(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a", firstRun="2026-11-21 04:00:00")
    return Told({"later": 1}, ["nextRun"])


async def paused(site: Site) -> Told:
    await site.beat(names=["*"])
    for _ in range(3):
        await site.create("a")
    await site.create("a", firstRun="2026-11-21 04:00:00")
    await site.ok("PauseJobs", name="[^b]*", by="ann", reason="a flood")
    return Told({"paused": 4}, ["paused"], problems=frozenset({"paused"}), paused_by="[^b]*")


async def paused_but_triggered(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a", repeat="CRON @daily")
    await site.ok("PauseJobs", name="a")
    await site.ok("TriggerJob", jobID=1)
    return Told({"ready": 1}, [], problems=frozenset({"paused"}), paused_by="a")


async def resumed(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a")
    await site.ok("PauseJobs", name="a", until="2026-11-21 03:30:00")
    await site.until_time("2026-11-21 03:30:01")
    await site.beat(names=["*"])
    return Told({"ready": 1}, [])


async def mocked(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a", mockRequest=True)
    return Told({"mocked": 1}, ["mocked"])


async def locked(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a", lock="disk")
    await site.take("a")
    await site.create("a", lock="disk")
    return Told({"blocked": 1, "running": 1}, ["lock"])


async def out_of_slots(site: Site) -> Told:
    await site.beat(names=["*"])
    keyed = {"concurrencyKey": "disk", "concurrencyLimit": 2}
    for _ in range(2):
        await site.create("a", **keyed)
        await site.take("a")
    await site.create("a", **keyed)
    return Told({"blocked": 1, "running": 2}, ["concurrency"])


async def own_command_that_nobody_accepts(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a", cmd="ls")
    return Told({"ready": 1}, ["own command"], 1, frozenset({"own command"}), 0)


async def drained(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.beat(worker="other", names=["b"])
    await site.create("a")
    await site.ok("DrainWorker", worker="w", by="ann")
    return Told({"ready": 1}, ["no worker"], 1, frozenset({"no worker", "drained"}), 0)


async def draining(site: Site) -> Told:
    """It still runs a job when it is told to take no more."""
    await site.beat(names=["*"])
    await site.create("a")
    await site.take("a")
    await site.create("a")
    await site.ok("DrainWorker", worker="w", by="ann")
    problems = frozenset({"no worker", "drained"})
    return Told({"ready": 1, "running": 1}, ["no worker"], 1, problems, 0)


async def quiet(site: Site) -> Told:
    await site.beat(names=["*"], quiet=True)
    await site.create("a")
    return Told({"ready": 1}, ["no worker"], 1, frozenset({"no worker"}), 0)


async def gone(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a")
    await site.both(46)
    return Told({"ready": 1}, ["no worker"], 1, frozenset({"no worker"}), 0)


async def not_asked_for(site: Site) -> Told:
    await site.beat(names=["[^a]*", "b"])
    await site.create("a")
    return Told({"ready": 1}, ["no worker"], 1, frozenset({"no worker"}), 0)


async def on_all_hosts_with_nobody(site: Site) -> Told:
    await site.beat(names=["b"])
    await site.create("a", repeat="CRON 0 * * * *", hosts="all")
    return Told({"later": 1}, ["nextRun", "no worker"], 0, frozenset({"no worker"}), 0)


async def on_all_hosts(site: Site) -> Told:
    await site.beat(names=["a"])
    await site.create("a", repeat="CRON 0 * * * *", hosts="all")
    return Told({"later": 1}, ["nextRun"])


async def running_until_its_loss(site: Site) -> Told:
    await site.create("a", retryAfter="+1 HOUR")
    await site.beat(names=["*"])
    await site.take("a")
    return Told({"running": 1}, ["state"])


async def running_for_a_client_without_a_name(site: Site) -> Told:
    await site.create("a", retryAfter="+1 HOUR")
    await site.create("a")
    await site.beat(names=["*"])
    await site.take("a", None)
    await site.take("a", None)
    return Told({"running": 2}, ["state"])


async def failed(site: Site) -> Told:
    await site.beat(names=["*"])
    await site.create("a")
    await site.fail(await site.take("a"))
    return Told({"failed": 1}, ["state"], problems=frozenset({"failed"}))


SITUATIONS = (
    plain,
    future,
    paused,
    paused_but_triggered,
    resumed,
    mocked,
    locked,
    out_of_slots,
    own_command_that_nobody_accepts,
    drained,
    draining,
    quiet,
    gone,
    not_asked_for,
    on_all_hosts_with_nobody,
    on_all_hosts,
    running_until_its_loss,
    running_for_a_client_without_a_name,
    failed,
)


def program(port: int, *arguments: str) -> Any:
    """Return what a command of the command line answers as JSON."""
    done = CliRunner().invoke(main, [*arguments, "-s", f"127.0.0.1:{port}", "-o", "json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


async def page(port: int, path: str) -> str:
    """Return the text of a page."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/{path}") as answer:
        assert answer.status == 200
        return await answer.text()


def without_marks(text: str) -> str:
    """Return what a person reads of a part of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def shown(text: str) -> tuple[dict[str, int], str]:
    """Return the counts of the overview page, and what it says is wrong."""
    tiles = re.findall(r'<span class="figure">([0-9]+)</span><span class="what">(.*?)</span>\s*<', text, re.S)
    words = {without_marks(what): int(figure) for figure, what in tiles}
    problems = without_marks(text[text.index('class="status"') : text.index('id="tiles"')])
    return words, problems


def some(counts: dict[str, int], names: tuple[str, ...]) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: counts[name] for name in names if counts.get(name)}


@pytest.mark.parametrize("build", SITUATIONS)
async def test_all_who_are_asked_say_the_same(
    site: Site, build: Callable[[Site], Awaitable[Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEDROCKJOBS_SERVER", raising=False)
    told = await build(site)
    await site.settle()

    overview = await site.ok("Overview")
    assert some(overview, COUNTS) == told.counts
    assert overview["untaken"] == told.untaken
    problems = {problem["kind"] for problem in overview["problems"]}
    assert problems == told.problems, overview["problems"]
    assert overview["more"] == []

    (queue,) = (await site.ok("ListQueues"))["queues"]
    assert queue["name"] == "a"
    assert some(queue, COUNTS) == told.counts
    assert (queue["untaken"], queue["workers"]) == (told.untaken, told.workers)
    assert queue["pausedBy"] == told.paused_by
    assert bool(queue["oldestReady"]) == bool(told.counts.get("ready"))
    assert queue["oldestReady"] == overview["oldestReady"]

    newest = (await site.ok("ListJobs", limit=1000))["jobs"]
    job_id = next(job["jobID"] for job in newest if job["state"] != "RUNNING" or len(newest) == 1)
    waits = (await site.ok("ExplainJob", jobID=job_id))["waitsFor"]
    assert [wait["reason"] for wait in waits] == told.reasons

    metrics = {
        (sample.name, sample.labels.get("state"), sample.labels.get("prefix")): sample.value
        for family in text_string_to_metric_families(await page(site.port, "metrics"))
        for sample in family.samples
    }
    counted = {name: int(metrics.get(("bedrockjobs_jobs", name, "a"), 0)) for name in QUEUED}
    assert some(counted, QUEUED) == some(told.counts, QUEUED)
    assert metrics.get(("bedrockjobs_jobs_untaken", None, "a"), 0) == told.untaken
    assert metrics["bedrockjobs_pauses", None, None] == overview["pauses"]

    top = await asyncio.to_thread(program, site.port, "top")
    assert some(top, COUNTS) == told.counts
    assert top["untaken"] == told.untaken
    assert top["problems"] == overview["problems"]

    doctor = await asyncio.to_thread(program, site.port, "doctor")
    (sentence,) = [
        found["finding"] for found in doctor if found["check"] == "jobs" and found["level"] == "ok"
    ]
    said = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", sentence)}
    assert some(said, COUNTS) == told.counts
    wrong = {found["finding"] for found in doctor if found["check"] in ("paused", "workers", "jobs")}
    for problem in overview["problems"]:
        without_zones = {finding.replace(" UTC", "") for finding in wrong}
        assert problem["detail"] in without_zones, problem

    figures, words = shown(await page(site.port, "ui/"))
    assert some(figures, COUNTS) == told.counts
    assert ("Nothing is wrong." in words) == (not told.problems)
    for problem in overview["problems"]:
        begin = problem["detail"].partition(" since ")[0]  # a moment is shown in the reader's own way
        assert begin[1:] in words, (problem, words)  # a sentence there, it begins with a capital


async def test_the_words_say_who_and_since_when(site: Site) -> None:
    await drained(site)
    for _ in range(500):
        await site.create("mail/x")
    await site.ok("PauseJobs", name="mail/*", by="ann", reason="a flood")
    details = {one["kind"]: one["detail"] for one in (await site.ok("Overview"))["problems"]}
    since = "2026-11-21 03:29:56"
    assert details == {
        "no worker": f"no worker takes a: w asks for it but has been drained since {since}, by ann",
        "paused": f"mail/* has been paused by ann since {since}: 500 jobs wait; reason: a flood",
        "drained": f"worker w takes no jobs: it has been drained since {since}, by ann",
    }
    (wait,) = (await site.ok("ExplainJob", jobID=1))["waitsFor"]
    assert wait == {
        "reason": "no worker",
        "detail": f"w asks for it but has been drained since {since}, by ann",
    }


async def test_what_waits_for_long_is_told(site: Site) -> None:
    await site.beat(names=["*"])
    for _ in range(2):
        await site.create("a", lock="disk")
    await site.take("a")
    await site.create("b")
    await site.later(400)
    await site.beat(names=["*"])
    problems = (await site.ok("Overview"))["problems"]
    assert [(one["kind"], one["detail"]) for one in problems] == [
        ("late", "the oldest ready job has waited for 6 min 40 s"),
        ("blocked", "1 job waits for the lock disk, which job 1 holds, the oldest for 6 min 40 s"),
    ]


async def test_a_job_that_was_lost_is_ready_again(site: Site) -> None:
    await site.create("a", retryAfter="+10 SECONDS")
    await site.take("a")
    await site.later(11)
    await site.beat(names=["*"])
    assert (await site.ok("Overview"))["ready"] == 1
    assert (await site.ok("ExplainJob", jobID=1))["waitsFor"] == []


async def test_lists_of_pauses_and_of_queues_page_by_page(site: Site) -> None:
    for name in ("a", "b", "b", "c"):
        await site.create(name)
    await site.ok("PauseJobs", name="b*", by="ann", reason="why", until="2026-12-01 00:00:00")
    await site.ok("PauseJobs", name="a")
    assert (await site.ok("ListPauses"))["pauses"] == [
        {"pattern": "a", "by": "", "reason": "", "since": "2026-11-21 03:29:56", "until": ""},
        {
            "pattern": "b*",
            "by": "ann",
            "reason": "why",
            "since": "2026-11-21 03:29:56",
            "until": "2026-12-01 00:00:00",
        },
    ]
    page = (await site.ok("ListQueues", limit=2))["queues"]
    assert [(queue["name"], queue["paused"]) for queue in page] == [("a", 1), ("b", 2)]
    page = (await site.ok("ListQueues", after="b"))["queues"]
    assert [(queue["name"], queue["ready"]) for queue in page] == [("c", 1)]
    page = (await site.ok("ListQueues", name="[^a]"))["queues"]
    assert [queue["name"] for queue in page] == ["b", "c"]
