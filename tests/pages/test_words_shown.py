"""Display names on the pages for values that have other names on the wire."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.pages.conftest import StartSite
from tests.pages.looking import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAID = """() => {
  const told = [document.body.innerText];
  for (const place of document.querySelectorAll("[title], [aria-label], [data-tip]"))
    for (const name of ["title", "aria-label", "data-tip"]) told.push(place.getAttribute(name) || "");
  return told.join(" ");
}"""
"""All that a page says: its text, and what it tells who points at something, or listens."""


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def test_nothing_is_called_as_on_the_wire(site: Site, page: Page) -> None:
    schedule = await site.create("nightly", repeat="CRON * * * * *", onLost="fail")
    await site.ask("AdvanceClock", seconds=60)
    await site.take("nightly")
    await site.ask("FinishJob", jobID=schedule)
    await site.ask("AdvanceClock", seconds=60)
    run = (await site.take("nightly"))["runID"]
    await site.ask("RequeueJobs", jobIDs=[schedule])
    parent = await site.create("parent")
    await site.take("parent")
    await site.create("child", parentJobID=parent)
    await site.ask("FinishJob", jobID=parent)
    jobs = [{"ref": "a", "name": "a"}, {"ref": "b", "name": "b", "after": ["a"]}]
    workflow = (await site.ask("CreateWorkflow", name="w", jobs=jobs))["workflowID"]
    told = ""
    for path in (
        "ui/",
        "ui/jobs",
        "ui/jobs?state=PAUSED",
        f"ui/jobs/{parent}",
        f"ui/jobs/{schedule}",
        "ui/workflows",
        f"ui/workflows/{workflow}",
        f"ui/jobs/{workflow + 2}",
        "ui/runs",
        f"ui/runs/{run}",
        "ui/schedules",
        f"ui/schedules/{schedule}",
        "ui/failures",
        "ui/events",
    ):
        await site.open(page, path)
        said = await page.evaluate(SAID)
        assert not re.search(r"\b(frozen|fired|PAUSED|ledger|Look)\b", said), (path, said)
        told += said
    for word in ("lost", "ran", "waiting for other jobs", "History"):
        assert word in told, word
