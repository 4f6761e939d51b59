"""The page of retention: the limits of the server and of names, and the current usage."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages.tables import KEPT_KINDS
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_limit_is_shown_with_what_is_there(site: Site, page: Page) -> None:
    await site.create("mail/a")
    job = await site.take("mail/a")
    await site.ask("FinishJob", jobID=job["jobID"], runID=job["runID"])
    await site.ask("SetRetention", name="mail/*", runs="30d", runsBytes=1_000_000, by="ada")
    await site.open(page, "ui/")
    await page.get_by_role("link", name="Retention").click()
    rows = page.locator("[data-row]")
    await expect(rows).to_have_count(len(KEPT_KINDS) + 1)
    for text in ("mail/*", "Runs", "30 d", "1,000,000 bytes", "ada"):
        await expect(rows.last).to_contain_text(text)
    await expect(rows.first).to_contain_text("the last 1,000,000")
    await check(page)
