"""Actions on a page are recorded with the name of the token of the login."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site
from tests.runs.bearer import Bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_is_done_on_a_page_is_done_by_who_logged_in(site: Site, page: Page) -> None:
    root = await Bearer(site.live).token_for("root", "admin")
    ann = await root.token_for("ann", "operate")
    await root.ok("CreateJob", name="mail/welcome")
    await page.goto(f"{site.root}/ui/queues")
    await page.get_by_label("Token").fill(ann.token)
    await page.get_by_role("button", name="Log in").click()
    row = page.locator("[data-row]")
    await row.get_by_text("Pause…").click()
    assert await row.locator("[name=by]").count() == 0, "nobody is asked who they are"
    await row.get_by_label("Reason").fill("the address book is being cleaned")
    await row.get_by_role("button", name="Pause", exact=True).click()
    await page.locator("#confirm-yes").click()
    await expect(row).to_contain_text("mail/welcome has been paused by ann since ")
    await expect(page.get_by_role("button", name="Log out ann")).to_be_visible()
    for width in (1400, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
