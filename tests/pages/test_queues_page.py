"""The page of queues: backlogs by name, folded at slashes, and pausing and resuming with a reason."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import tables
from bedrockjobs.views import name_tree, queues
from bedrockjobs.views.name_tree import spread
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def cells(page: Page, name: str) -> dict[str, str]:
    """Return what stands in the row of a name, by its head."""
    row = page.locator("#queues tbody tr", has=page.get_by_role("link", name=name, exact=True))
    heads = await page.locator("#queues thead th").all_inner_texts()
    return dict(zip(heads, await row.locator("> *").all_inner_texts(), strict=True))


async def test_names_are_folded_and_those_that_pile_up_come_first(site: Site, page: Page) -> None:
    await site.fail("mail/a")
    for name in ("mail/a", "mail/b", "mail/b", "report"):
        await site.create(name)
    await site.ask("Heartbeat", worker="w1", names=["mail/*"])
    await site.ask("Heartbeat", worker="w2", names=["mail/b"])
    await site.ask("FinishJob", jobID=(await site.take("mail/b"))["jobID"])
    await site.take("mail/b", worker="w2")
    await site.open(page, "ui/queues")
    names = await page.locator("#queues tbody th > a").all_inner_texts()
    assert names == ["mail/", "report"]
    mail = await cells(page, "mail/")
    assert [mail[head] for head in ("Ready", "Running", "Failed")] == ["1", "1", "1"]
    assert mail["Taken by"] == "w1, w2"
    assert mail["In / out a min"] == "0.8 / 0.4"
    assert " · " in mail["Wait p50 · p95"]
    report = await cells(page, "report")
    assert report["Taken by"] == "no live worker"
    assert "no worker takes 1" in report["Name"]
    await check(page)
    await page.get_by_role("link", name="mail/", exact=True).click()
    await page.wait_for_url("**/ui/queues?under=mail%2F")
    assert await page.locator("#queues tbody th > a").all_inner_texts() == ["mail/a", "mail/b"]
    assert (await cells(page, "mail/b"))["Running"] == "1"
    await page.get_by_role("link", name="all names").click()
    await page.wait_for_url("**/ui/queues")


async def test_a_fold_is_paused_with_a_reason_and_resumed(site: Site, page: Page) -> None:
    for name in ("mail/a", "mail/b", "report"):
        await site.create(name)
    await site.open(page, "ui/queues")
    row = page.locator("#queues tbody tr").first
    await row.get_by_role("button", name="Pause…").click()
    await row.get_by_label("Reason").fill("the mail server is down")
    await row.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator("#confirm-which")).to_contain_text("mail/*")
    await page.locator("#confirm-yes").click()
    await expect(row.locator(".why")).to_contain_text("the mail server is down")
    pauses = (await site.ask("ListPauses"))["pauses"]
    assert [(one["pattern"], one["reason"]) for one in pauses] == [("mail/*", "the mail server is down")]
    await row.get_by_role("button", name="Resume").click()
    await page.locator("#confirm-yes").click()
    await expect(row).not_to_contain_text("has been paused")


async def test_a_pattern_is_not_folded_and_rows_have_a_limit(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS", 2)
    for name in ("mail/a", "mail/b", "mail/c", "mail/d/e"):
        await site.create(name)
    await site.open(page, "ui/queues?name=mail/*")
    assert len(await page.locator("#queues tbody tr").all()) == 2
    await expect(page.locator("#queues .notice")).to_contain_text("2 rows are left out")
    monkeypatch.setattr(name_tree, "NAMES_MAX", 1)
    await site.open(page, "ui/queues?under=mail/")
    await expect(page.locator("#queues .notice")).to_contain_text("There are very many names")


async def test_a_pattern_is_sought_among_a_bounded_number_of_names(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a count of all takes too long."""
    assert name_tree.NAMES_WALKED == 40_000
    monkeypatch.setattr(queues, "COUNT_S", 0)
    for name in ("a/1", "b/7", "c/1", "d/7"):
        await site.create(name)
    found: dict[int, tuple[list[str], int]] = {}
    for walked in (1, 2, 3, 4, 5):
        monkeypatch.setattr(name_tree, "NAMES_WALKED", walked)
        await site.open(page, "ui/queues?name=*7")
        rows = await page.locator("#queues tbody th > a").all_inner_texts()
        found[walked] = (rows, await page.locator("#queues .notice").count())
        if walked == 1:
            await expect(page.locator("#queues tbody")).to_have_text("No match among the names searched.")
    both = ["b/7", "d/7"]
    assert found == {1: ([], 1), 2: (["b/7"], 1), 3: (["b/7"], 1), 4: (both, 1), 5: (both, 0)}


async def test_an_empty_page_teaches_the_first_command(site: Site, page: Page) -> None:
    await site.open(page, "ui/queues")
    await expect(page.locator("#queues tbody code")).to_contain_text("bedrockjobs job create")


async def test_a_spread_is_of_what_was_measured() -> None:
    assert spread([]) is None
    assert spread([3.0]) == (3.0, 3.0)
    assert spread([float(n) for n in range(1, 101)]) == (50.0, 95.0)


async def test_rates_reach_as_far_back_as_all_is_known(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_tree, "MEASURED_MAX", 2)
    monkeypatch.setattr(name_tree, "MEASURED_S", 60.0)
    for _ in range(3):
        await site.create("mail")
    await site.open(page, "ui/queues")
    said = (await cells(page, "mail"))["In / out a min"]
    assert float(said.partition(" / ")[0].replace(",", "")) > 2, "the newest two came within seconds"
