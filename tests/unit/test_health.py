"""`/healthz` for schedules, and both pages over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families
from scraped import DUE, OLD, Site, scraped

from bedrockjobs.base.errors import NotFound
from bedrockjobs.observe.prometheus import routes
from bedrockjobs.protocol.http_answers import problem


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return an empty database with its metrics."""
    async with scraped(tmp_path / "jobs.db") as found:
        yield found


async def test_an_unknown_schedule_is_not_found(site: Site) -> None:
    site.job("nightly", repeat="FINISHED, +1 DAY")
    with pytest.raises(NotFound, match="No such schedule"):
        await site.metrics.health("nightly")


async def test_a_schedule_that_has_not_run_is_well(site: Site) -> None:
    site.schedule()
    assert await site.metrics.health("nightly") == (True, "no run has ended yet")


async def test_the_last_run_that_ended_decides(site: Site) -> None:
    job = site.schedule()
    site.run(1, job, "fail", exitCode=3)
    assert await site.metrics.health("nightly") == (False, f"run 1 ended {OLD}.000: fail, exit status 3")
    site.run(2, job)
    site.run(3, job, "running")
    assert await site.metrics.health("nightly") == (True, f"run 2 ended {OLD}.000: success")


async def test_a_run_that_was_put_off_says_nothing(site: Site) -> None:
    job = site.schedule()
    site.run(1, job)
    site.run(2, job, "snoozed", exitCode=101)
    assert await site.metrics.health("nightly") == (True, f"run 1 ended {OLD}.000: success")


@pytest.mark.parametrize(("before", "well"), [("success", True), ("fail", False)])
async def test_a_tick_that_is_tried_again_has_not_failed_yet(site: Site, before: str, well: bool) -> None:
    """Until its last attempt, the previous tick determines the schedule's health."""
    job = site.schedule(memory='{"cause":"retry"}')
    site.run(1, job, before)
    site.run(2, job, "fail", exitCode=75)
    site.run(3, job, "fail", cause="retry", exitCode=75)
    found, why = await site.metrics.health("nightly")
    assert (found, why) == (well, f"run 1 ended {OLD}.000: {before}")


async def test_a_tick_has_failed_with_its_last_try(site: Site) -> None:
    job = site.schedule()
    site.run(1, job)
    site.run(2, job, "fail")
    site.run(3, job, "fail", cause="retry")
    assert await site.metrics.health("nightly") == (False, f"run 3 ended {OLD}.000: fail")


SKIPS = {"no worker": False, "server down": False, "lock held": False, "paused": True, "running": True}


@pytest.mark.parametrize(("reason", "well"), SKIPS.items())
async def test_a_skipped_tick_is_unhealthy_where_nobody_meant_it(site: Site, reason: str, well: bool) -> None:
    job = site.schedule()
    site.run(1, job)
    site.tick(job, DUE, "skipped", reason)
    found, why = await site.metrics.health("nightly")
    assert found is well
    if not well:
        assert why == f"the tick of {DUE} was skipped: {reason}"


async def test_a_run_after_a_skipped_tick_makes_it_well(site: Site) -> None:
    job = site.schedule()
    site.tick(job, "2026-11-21 00:00:00", "skipped", "no worker")
    site.run(1, job)
    assert (await site.metrics.health("nightly"))[0] is True


async def test_a_schedule_that_ended_is_not_well(site: Site) -> None:
    job = site.schedule(state="FAILED")
    assert await site.metrics.health("nightly") == (False, f"job {job} is FAILED: it has no further ticks")


async def test_one_of_several_of_a_name_is_enough(site: Site) -> None:
    site.run(1, site.schedule(), "timeout")
    site.run(2, site.schedule())
    assert (await site.metrics.health("nightly"))[0] is False


# --- over HTTP -------------------------------------------------------------------------------------------


@web.middleware
async def _told(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        return await handler(request)  # type: ignore[no-any-return]
    except NotFound as error:
        return problem(error)


@pytest.fixture
async def client(site: Site) -> AsyncIterator[aiohttp.ClientSession]:
    """Return a client of an application with only these routes."""
    app = web.Application(middlewares=[_told])
    app.router.add_routes(routes(site.metrics, lambda: 2, lambda _: None))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(app))
        yield await stack.enter_async_context(aiohttp.ClientSession(base_url=server.make_url("/")))


def _families(text: str) -> Iterable[Any]:
    return text_string_to_metric_families(text)


async def test_the_text_is_read_by_prometheus_own_parser(site: Site, client: aiohttp.ClientSession) -> None:
    site.job('we"ird\\/x')
    async with client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        families = {family.name: family for family in _families(await response.text())}
    assert families["bedrockjobs_connections"].samples[0].value == 2
    assert families["bedrockjobs_jobs"].samples[0].labels == {"state": "ready", "prefix": 'we"ird\\'}
    assert families["process_open_fds"].samples[0].value > 0
    for family in families.values():
        assert family.documentation, family.name


async def test_openmetrics_is_spoken_to_who_asks_for_it(client: aiohttp.ClientSession) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with client.get("/metrics", headers=accept) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await response.text()).endswith("# EOF\n")


async def test_health_over_http(site: Site, client: aiohttp.ClientSession) -> None:
    async def ask(**query: str) -> tuple[int, Any]:
        async with client.get("/healthz", params=query) as response:
            return response.status, json.loads(await response.text())

    assert await ask() == (200, {"status": "ok", "reason": "serving"})
    job = site.schedule()
    assert (await ask(schedule="nightly"))[0] == 200
    site.run(1, job, "killed")
    assert await ask(schedule="nightly") == (
        503,
        {"status": "failing", "reason": f"run 1 ended {OLD}.000: killed", "schedule": "nightly"},
    )
    status, body = await ask(schedule="unknown")
    assert (status, body["code"]) == (404, 404)
    site.work.health.problem = "disk full"
    assert await ask() == (503, {"status": "failing", "reason": "disk full"})
    site.notifier.end()
    assert await ask() == (503, {"status": "failing", "reason": "stopping"})
