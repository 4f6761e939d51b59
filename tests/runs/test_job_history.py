"""The history of a job: in the order of events, also within one moment, and with the right actors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from html import unescape
from random import Random
from typing import Any

import aiohttp
import pytest

from tests.effort import examples
from tests.protocol.streams import STREAM, Stream
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer
from tests.runs.rig import Site, moment


class Story:
    """A schedule on a server whose clock stands still, and what has happened to it."""

    def __init__(self, site: Site) -> None:
        """Begin before there is a schedule."""
        self.site = site
        self.told: list[str] = []
        """What happened, in the words of the timeline."""
        self.job = 0
        self.failed = False

    async def begin(self) -> None:
        """Create the schedule."""
        self.job = await self.site.create("a/x", repeat="CRON 0 5 * * *", retries=0)
        self.told.append("created")

    async def trigger(self) -> dict[str, Any]:
        """Trigger a run, and take it."""
        await self.site.ok("TriggerJob", jobID=self.job)
        self.told.append("triggered")
        taken = await self.site.take("a/x")
        self.told.append("taken")
        return taken

    async def succeed(self) -> None:
        """Let a run succeed."""
        await self._finish(await self.trigger())

    async def _finish(self, taken: dict[str, Any]) -> None:
        await self.site.finish(taken)
        self.told += ["success", *(["recovered"] if self.failed else [])]
        self.failed = False

    async def fail(self) -> None:
        """Let a run fail for good."""
        await self.site.fail(await self.trigger(), error="no", final=True)
        self.told.append("fail")
        self.failed = True

    async def stop(self) -> None:
        """Stop a run, which then fails."""
        taken = await self.trigger()
        await self.site.ok("TerminateRun", runID=taken["runID"])
        await self.site.fail(taken, error="stopped", final=True)
        self.told += ["stop", "terminated"]
        self.failed = True

    async def hand_back(self) -> None:
        """Let a worker hand back its run, and take it again."""
        taken = await self.trigger()
        await self.site.end("RetryJob", taken, returned=True)
        self.told += ["returned", "handed back"]
        taken = await self.site.take("a/x")
        self.told.append("taken")
        await self._finish(taken)

    async def again(self) -> None:
        """Repeat a run."""
        await self.succeed()
        (run,) = await self.site.runs(jobID=self.job, limit=1)
        await self.site.ok("RunAgain", runID=run["runID"])
        self.told.append("triggered")
        taken = await self.site.take("a/x")
        self.told.append("taken")
        await self._finish(taken)

    async def cancel(self) -> None:
        """Cancel a run that is due."""
        await self.site.ok("TriggerJob", jobID=self.job)
        await self.site.ok("CancelJob", jobID=self.job, any=True)
        self.told += ["triggered", "cancelled"]

    async def end(self) -> None:
        """Delete the schedule."""
        await self.site.ok("DeleteJob", jobID=self.job)
        self.told.append("deleted")


DEEDS: dict[str, Callable[[Story], Awaitable[None]]] = {
    "succeed": Story.succeed,
    "fail": Story.fail,
    "stop": Story.stop,
    "hand back": Story.hand_back,
    "again": Story.again,
    "cancel": Story.cancel,
}
FEW = ["succeed", "cancel", "fail"]
"""Deeds before the last ones, so that the page, which shows the newest runs, has all of them."""


async def shown(site: Site, job: int) -> list[str]:
    """Return the timeline of a job's page, the oldest first, by its first words."""
    page = (await Bearer(site).get(f"/ui/jobs/{job}")).body
    listed = page[page.index('<ol class="timeline">') : page.index("</ol>", page.index('class="timeline"'))]
    texts = [unescape(re.sub(r"<[^>]*>", " ", each)).strip() for each in listed.split("<li>")[1:]]
    words = [re.match(r"\W*(handed back|\w+)", text) for text in texts]
    return [word[1] if word else "" for word in words][::-1]


@pytest.mark.parametrize("seed", range(examples(2, night=20)))
async def test_each_history_of_one_moment_is_told_in_its_order(site: Site, seed: int) -> None:
    story = Story(site)
    await story.begin()
    deeds = Random(seed).sample(sorted(DEEDS), len(DEEDS)) + FEW[: seed % 3]
    for name in deeds:
        await DEEDS[name](story)
    await site.rest()
    assert await shown(site, story.job) == story.told, deeds
    await story.end()
    assert await shown(site, story.job) == story.told[1:], "without its creation, as the job is gone"


@pytest.mark.parametrize("seed", range(examples(2, night=20)))
async def test_each_history_is_told_in_its_order_although_the_clock_is_set(site: Site, seed: int) -> None:
    """Forward and back before each deed, but never to a tick of the schedule."""
    random, story = Random(seed), Story(site)
    await story.begin()
    deeds = random.sample(sorted(DEEDS), len(DEEDS)) + FEW[: seed % 3]
    for name in deeds:
        minutes = random.randrange(290)
        site.clock.set_to(
            moment(f"2026-11-21 {minutes // 60:02}:{minutes % 60:02}:{random.randrange(60):02}")
        )
        await site.rest()
        await DEEDS[name](story)
    await site.rest()
    assert len(await site.events("clock set")) >= len(deeds) - 2, "each time but for the same minute"
    assert await shown(site, story.job) == story.told, deeds
    runs = [run["runID"] for run in await site.runs(jobID=story.job)]
    assert runs == sorted(runs, reverse=True)
    events = [event["seq"] for event in await site.events()]
    assert events == sorted(events)


async def _from_page(site: Site) -> list[int]:
    page = (await Bearer(site).get("/ui/events")).body
    return [int(number) for number in re.findall(r'<tr id="event-(\d+)"', page)][::-1]


async def _from_stream(site: Site, count: int) -> list[int]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{site.port}/events?after=0", headers=STREAM) as response,
    ):
        stream, found = Stream(response), list[int]()
        while len(found) < count:
            block = await stream.block()
            assert block is not None, "the stream ended early"
            found += [block.data["seq"]] if "data" in block else []
    return found


async def test_each_list_of_events_has_the_order_of_their_numbers(site: Site) -> None:
    story = Story(site)
    await story.begin()
    for name in sorted(DEEDS):
        await DEEDS[name](story)
    over_http = await site.events()
    raw = (await site.ask("Events")).json["events"]
    assert raw == over_http
    numbers = [event["seq"] for event in over_http]
    assert numbers == sorted(set(numbers))
    assert await _from_page(site) == numbers
    assert await _from_stream(site, len(numbers)) == numbers
    ours = [event["kind"] for event in over_http if event["name"] == "a/x"]
    once = {"triggered", "stop", "recovered", "handed back", "cancelled"}
    assert [kind for kind in ours if kind in once] == [word for word in story.told if word in once]


async def _queued(site: Site) -> int:
    return await site.create("b/queued")


async def _planned(site: Site) -> int:
    return await site.create("b/planned", repeat="CRON 0 5 * * *")


async def _triggered(site: Site) -> int:
    job = await _planned(site)
    await site.ok("TriggerJob", jobID=job)
    return job


async def _skipped(site: Site) -> int:
    job = await _planned(site)
    await site.ok("PauseJobs", name="b/planned")
    await site.later(2 * 3_600)
    await site.ok("ResumeJobs", name="b/planned")
    await site.rest()
    return job


async def _expired(site: Site) -> int:
    job = await site.create("b/expired", expireAfter=5)
    await site.later(10)
    return job


async def _cancelled(site: Site) -> int:
    job = await _queued(site)
    await site.ok("CancelJob", jobID=job, any=True)
    return job


async def _deleted(site: Site) -> int:
    job = await _triggered(site)
    await site.ok("DeleteJob", jobID=job)
    return job


async def _on_all_hosts(site: Site) -> int:
    await site.beat(worker="there", names=["b/hosts"])
    job = await site.create("b/hosts", repeat="CRON * * * * *", hosts="all")
    await site.later(120)
    assert (await site.row(job))["lastRun"], "it counts as run"
    return job


async def _pinged(site: Site) -> int:
    job = await site.create("b/pinged", repeat="CRON 0 5 * * *", expect="ping")
    path = (await site.ok("GetPingSecret", jobID=job))["path"]
    for event in ("", "/start"):
        async with await Talk.open(site.port) as talk:
            talk.send(f"POST {path}{event} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            assert (await talk.reply()).code == 200
    return job


async def _pings_forgotten(site: Site) -> int:
    job = await _pinged(site)
    await site.later(60)
    ended = [run["runID"] for run in await site.runs(jobID=job, status="success")]
    await site.ok("DeleteRuns", runIDs=ended)
    return job


UNTAKEN = [
    *(_queued, _planned, _triggered, _skipped, _expired, _cancelled, _deleted, _on_all_hosts),
    *(_pinged, _pings_forgotten),
]
"""Ways for a job to have a page, each of which takes no worker."""

BY_A_WORKER = re.compile(r"taken by|took this|gave no name|>Worker<(?!/th)|no worker named")
"""What only a job that was taken may be told with."""


async def test_nobody_is_said_to_have_taken_what_nobody_took(site: Site) -> None:
    for make in UNTAKEN:
        job = await make(site)
        runs = [run["runID"] for run in await site.runs(jobID=job)]
        for path in (f"/ui/jobs/{job}", *(f"/ui/runs/{run}" for run in runs)):
            page = (await Bearer(site).get(path)).body
            assert not BY_A_WORKER.search(page), (make.__name__, path, page)
    taken = await site.create("b/taken")
    await site.take("b/taken")
    assert BY_A_WORKER.search((await Bearer(site).get(f"/ui/jobs/{taken}")).body), "a control"
