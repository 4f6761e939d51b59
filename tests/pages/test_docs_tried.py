"""The page of the commands: links to and from the pages, and trying a command with the reader's rights."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.runs.bearer import Bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def tried(page: Page, command: str, parameters: str) -> None:
    """Send a command from its section."""
    section = page.locator(f"#{command}")
    if not await section.locator("textarea").count():
        await section.get_by_text("Try it").click()
    await section.locator("textarea").fill(parameters)
    await section.get_by_role("button", name=re.compile("^Send")).click()


async def test_commands_are_read_and_tried_and_one_comes_back(site: Site, page: Page) -> None:
    await site.open(page, "ui/jobs")
    await page.get_by_role("link", name="API reference").click()
    await page.wait_for_url("**/docs")
    await page.get_by_label("Search").fill("createjob")
    section = page.locator("#CreateJob")
    await section.get_by_text("Try it").click()
    assert '"name":"mail/welcome"' in (await section.locator("textarea").input_value()).replace(" ", "")
    await expect(section.get_by_role("button", name="Send, which changes something")).to_be_visible()
    await tried(page, "CreateJob", '{"name": "a", "data": {"n": 1.50}}')
    await expect(section.locator(".try pre")).to_have_text('200 OK\n{"jobID":1}')
    await check(page)
    site.expected.add(400)
    await tried(page, "CreateJob", '{"name": ""}')
    await expect(section.locator(".try pre")).to_contain_text("name is required")
    await page.get_by_label("Search").fill("queryjob")
    await tried(page, "QueryJob", '{"jobID": 1}')
    await expect(page.locator("#QueryJob .try pre")).to_contain_text('"data":{"n": 1.50}')
    await page.get_by_role("link", name="Back to the pages").click()
    await page.wait_for_url("**/ui/")


async def test_it_is_tried_with_the_rights_of_the_session(site: Site, page: Page) -> None:
    root = await Bearer(site.live).token_for("root", "admin")
    reader = await root.token_for("r", "read")
    site.expected.add(403)
    await page.goto(f"{site.root}/ui/jobs")
    await page.get_by_label("Token").fill(reader.token)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/ui/jobs")
    await page.goto(f"{site.root}/docs")
    await tried(page, "CreateJob", '{"name": "a"}')
    await expect(page.locator("#CreateJob .try pre")).to_contain_text("r has read")
    await tried(page, "ListJobs", "{}")
    await expect(page.locator("#ListJobs .try pre")).to_have_text('200 OK\n{"jobs":[]}')
