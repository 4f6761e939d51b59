"""The site of the documentation has every page, asks no other site, and is searched without a server."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from playwright.async_api import async_playwright

from docs import build
from tests.effort import PROFILE
from tests.pages.looking import CHROMIUM, FLAGS

AT_NIGHT = pytest.mark.skipif(PROFILE != "random", reason="builds the site, for 8 s: at night only")


def test_the_navigation_has_every_page_once() -> None:
    named = []
    for group in build.navigation():
        ((_, found),) = group.items()
        named += (
            [target for page in found for target in page.values()] if isinstance(found, list) else [found]
        )
    assert sorted(map(str, named)) == sorted(str(page) for page, _ in build.pages())


def test_links_into_the_repository_become_text() -> None:
    page = PurePosixPath("how-to/limit.md")
    text = "See [kills](../../tests/run.py), [retries](runs-and-retries.md#x) and [here](#y).\n"
    assert build.staged(page, text) == (
        'See <span title="tests/run.py">kills</span>, [retries](runs-and-retries.md#x) and [here](#y).\n'
    )
    fence = "```\n[a](../../b)\n```\n"
    assert build.staged(page, fence) == fence


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://unpkg.com/mermaid"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        "@import url(https://fonts.example/a.css)",
    ],
)
def test_a_request_to_another_site_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<script src="assets/a.js"></script><a href="https://example.com">there</a>')
    build.check(tmp_path)
    page.write_text(text)
    with pytest.raises(build.BrokenSite, match=r"a\.html is not self-contained"):
        build.check(tmp_path)


def test_only_an_earlier_site_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(build.BrokenSite, match="expected a new folder"):
        build.build(tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"


@AT_NIGHT
async def test_the_search_works_without_a_server(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    build.build(folder)
    build.build(folder)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        try:
            page = await browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.goto((folder / "index.html").as_uri())
            await page.get_by_role("button", name="Search").first.click()
            await page.locator("input[aria-label=Search]").fill("idempotency")
            await page.get_by_text("Repeat a create safely").first.wait_for()
        finally:
            await browser.close()
    assert asked
    assert all(url.startswith("file:") for url in asked)


@AT_NIGHT
@pytest.mark.parametrize("link", ["nowhere.md", "explanation/glossary.md#nowhere"])
def test_a_broken_link_ends_the_build(link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [
        (page, f"{text}\n[there]({link})\n" if str(page) == build.INDEX else text)
        for page, text in build.pages()
    ]
    monkeypatch.setattr(build, "pages", lambda: pages)
    with pytest.raises(build.BrokenSite, match=r"README\.md"):
        build.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()
