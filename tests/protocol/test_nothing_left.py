"""An answered request leaves nothing behind that waits for the garbage collector.

The collector comes after many requests only, so what it has to find adds up to gigabytes before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.rows import Job
from tests.conftest import Live
from tests.protocol.talk import Reply, Talk

REQUESTS = 20


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Let the collector not come."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def living(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


async def look(live: Live, path: str) -> Reply:
    async with await Talk.open(live.port) as talk:
        talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return await talk.reply()


async def test_a_transaction_that_is_over(live: Live) -> None:
    for _ in range(REQUESTS):
        assert (await live.ask("CreateJob", name="a")).code == 200
        job = (await live.ask("GetJob", name="a")).json["jobID"]
        assert (await live.ask("FinishJob", jobID=job)).code == 200
    assert living(Context) <= 1


@pytest.mark.parametrize("path", ["/ui/jobs", "/ui/jobs/1", "/ui/", "/ui/schedules/2", "/ExplainJob?jobID=1"])
async def test_a_page_lets_go_of_the_jobs_it_showed(live: Live, path: str) -> None:
    await live.ask("CreateJob", name="a")
    await live.ask("CreateJob", name="s", repeat="CRON 0 0 1 1 *")
    assert (await look(live, path)).code == 200
    before = living(Job)
    for _ in range(REQUESTS):
        assert (await look(live, path)).code == 200
    assert living(Job) <= before + 1
