"""What an operator does at three in the morning by the pages alone, in at most five clicks.

A scenario begins on the overview. Typing is no click. ``tests/cli/test_terminal_scenarios.py`` has the same
scenarios by the terminal alone. To create a token is not among them: only the terminal does that.
"""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from bedrockjobs.views import overview
from tests.pages.conftest import StartSite
from tests.pages.looking import Site, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLICKS_MAX = 5


class Operator:
    """Uses the pages, and counts clicks."""

    def __init__(self, site: Site, page: Page, patch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.page = page
        self.patch = patch
        self.clicks = 0

    async def begin(self) -> None:
        """Open the overview."""
        await self.site.open(self.page, "ui/")
        self.clicks = 0

    async def click(self, what: Locator) -> None:
        """Click, and wait for the page that follows; fail if it was one click too many."""
        await what.click()
        self.clicks += 1
        assert self.clicks <= CLICKS_MAX
        await self.page.wait_for_load_state()
        await whole(self.page)

    async def go(self, page: str) -> None:
        """Open a page by the navigation."""
        await self.click(self.page.locator("nav").get_by_role("link", name=page, exact=True).first)

    async def press(self, name: str, within: Locator | None = None) -> None:
        """Press a button, and confirm."""
        place: Any = within or self.page
        await self.click(place.get_by_role("button", name=name, exact=True).first)
        await self.click(self.page.locator("#confirm-yes"))
        await expect(self.page.locator("#confirm")).to_be_hidden()


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def a_failed_backup(operator: Operator) -> None:
    job = await operator.site.fail("backup/nas", "exit status 1\nno space left on device")
    await operator.begin()
    problem = operator.page.locator("#problems li", has_text="1 job has failed")
    await operator.click(problem.get_by_role("link", name="Show"))
    group = operator.page.locator("#jobs .group")
    await expect(group.locator("summary")).to_contain_text("no space left on device")
    await operator.click(group.locator("summary"))
    await operator.press("Retry all", group)
    await expect(operator.page.locator("#jobs .problem.well")).to_be_visible()
    assert await operator.site.state(job) == "QUEUED"


async def a_growing_queue(operator: Operator) -> None:
    for _ in range(30):
        await operator.site.create("export/csv")
    await operator.site.ask("Heartbeat", worker="w1", names=["mail/*"])
    await operator.begin()
    await expect(operator.page.locator("#problems")).to_contain_text("No worker takes export/csv")
    await operator.click(operator.page.locator("#by-name").get_by_role("link", name="export/csv"))
    await expect(operator.page.locator("#queue")).to_contain_text("Taken by no live worker")
    await expect(operator.page.locator('[data-series^="created"]')).to_have_attribute("data-sum", "30")
    assert operator.clicks == 1


async def a_hang_of_three_hours(operator: Operator) -> None:
    await operator.site.create("import")
    run = (await operator.site.take("import", heartbeat=True))["runID"]
    await operator.begin()
    await operator.click(operator.page.locator(f'#now-running a[href$="/runs/{run}"]'))
    await operator.press("Terminate")
    await expect(operator.page.locator("#head")).to_contain_text("TERM sent")
    assert (await operator.site.ask("QueryRun", runID=run))["stop"] == "TERM"


async def a_pause_of_everything_beside_a_colleagues(operator: Operator) -> None:
    await operator.site.create("mail/a")
    await operator.site.ask("PauseJobs", name="mail/*", by="ann", reason="the mail server is down")

    async def paused() -> set[str]:
        return {row["pattern"] for row in (await operator.site.ask("ListPauses"))["pauses"]}

    await operator.begin()
    await operator.go("Queues")
    await operator.click(operator.page.get_by_role("button", name="Pause everything…"))
    popover = operator.page.locator("#pause-everything")
    await popover.get_by_label("Reason").fill("moving the disks")
    await operator.press("Pause", popover)
    bar = operator.page.locator("#pauses li", has_text="moving the disks")
    await expect(bar).to_be_visible()
    assert await paused() == {"*", "mail/*"}
    await operator.begin()
    await operator.go("Queues")
    await operator.press("Resume", bar)
    await expect(bar).to_have_count(0)
    assert await paused() == {"mail/*"}
    await operator.site.ask("ResumeJobs", name="mail/*")


async def a_night_of_daylight_saving(operator: Operator) -> None:
    site = operator.site
    await site.ask("AdvanceClock", to="2027-03-27 12:00:00")
    await site.create("nightly", repeat="CRON TZ=Europe/Berlin 30 2 * * *")
    await site.ask("AdvanceClock", to="2027-03-28 01:00:00")
    job = await site.take("nightly")
    await site.ask("FinishJob", jobID=job["jobID"], runID=job["runID"])
    await operator.begin()
    await operator.go("Schedules")
    await operator.click(operator.page.locator("main").get_by_role("link", name="nightly", exact=True).first)
    note = "02:30 does not exist in Europe/Berlin, ran at 03:00"
    await expect(operator.page.locator("#history")).to_contain_text(note)


async def a_receipt_of_last_week(operator: Operator) -> None:
    for order in (4710, 4711, 4712):
        await operator.site.create("mail/receipt", keep=1_000_000)
        job = await operator.site.take("mail/receipt")
        lines = [f"order {order}: sent to ann@example.com"]
        await operator.site.ask("AppendOutput", runID=job["runID"], seq=1, lines=lines)
        await operator.site.ask("FinishJob", jobID=job["jobID"], runID=job["runID"])
    await operator.begin()
    await operator.go("Runs")
    await operator.page.get_by_label("Text").fill("order 4711")
    await operator.click(operator.page.get_by_role("button", name="Filter"))
    rows = operator.page.locator("#runs tbody tr")
    await expect(rows).to_have_count(1)
    await operator.click(rows.get_by_role("link").first)
    await expect(operator.page.locator("main")).to_contain_text("order 4711: sent to ann@example.com")


async def the_failures_of_one_deploy_among_others(operator: Operator) -> None:
    alike = [await operator.site.fail("mail/send", f"KeyError: 'vat' in order {n}") for n in range(40)]
    others = [
        await operator.site.fail("import", "no route to host"),
        await operator.site.fail("mail/send", "x"),
    ]
    await operator.begin()
    await operator.click(operator.page.locator("nav").get_by_role("link", name="Failures").first)
    group = operator.page.locator("#jobs .group", has_text="KeyError")
    await expect(group.locator("summary")).to_contain_text("40 jobs")
    await operator.click(group.locator("summary"))
    await operator.press("Retry all 40", group)
    await expect(operator.page.locator("#jobs .group")).to_have_count(2)
    states = [await operator.site.state(job) for job in (*alike, *others)]
    assert states == ["QUEUED"] * 40 + ["FAILED"] * 2


async def a_leaked_secret(operator: Operator) -> None:
    root = (await operator.site.ask("CreateToken", name="root", roles=["admin"]))["token"]
    await operator.page.set_extra_http_headers({"Authorization": f"Bearer {root}"})
    made = await operator.page.request.post(
        f"{operator.site.root}/CreateToken",
        data={"name": "ci", "roles": ["produce"]},
        headers={"Authorization": f"Bearer {root}"},
    )
    leaked = (await made.json())["token"]
    await operator.begin()
    await operator.go("Access")
    row = operator.page.locator("#token-ci")
    await operator.press("Revoke", row)
    await expect(row).to_contain_text("revoked")
    refused = await operator.page.request.post(
        f"{operator.site.root}/CreateJob", data={"name": "a"}, headers={"Authorization": f"Bearer {leaked}"}
    )
    await operator.page.set_extra_http_headers({})
    assert refused.status == 401


async def a_full_disk(operator: Operator) -> None:
    operator.patch.setattr(overview, "free_bytes", lambda _: 1_000)
    await operator.begin()
    problem = operator.page.locator("#problems li", has_text="disk")
    await operator.click(problem.get_by_role("link", name="Show"))
    await expect(operator.page.locator("h1")).to_have_text("Retention")


SCENARIOS = (
    a_failed_backup,
    a_growing_queue,
    a_hang_of_three_hours,
    a_pause_of_everything_beside_a_colleagues,
    a_receipt_of_last_week,
    the_failures_of_one_deploy_among_others,
    a_full_disk,
    a_night_of_daylight_saving,
    a_leaked_secret,
)
"""One server and one page are for all. The last one creates a token, which is needed from then on."""


async def test_scenarios(site: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    for scenario in SCENARIOS:
        await page.goto("about:blank")  # what is prepared may end the stream of a page
        with monkeypatch.context() as patch:
            await scenario(Operator(site, page, patch))
