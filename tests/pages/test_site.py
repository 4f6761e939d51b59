"""Parts shared by all pages: access, headers, static files, errors, keys, themes, times and the stream."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, Page, expect

from bedrockjobs import pages
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.pages.site import FOLDER, NAVIGATION, POLICY
from tests.pages.looking import Site, check
from tests.pages.vendor import fetch as vendor
from tests.protocol.talk import Talk

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def get(site: Site, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{site.root}{path}", headers=headers, allow_redirects=False) as answer,
    ):
        return answer, await answer.text()


async def test_a_browser_is_sent_to_the_pages(site: Site, page: Page) -> None:
    await page.goto(site.root)
    assert page.url == f"{site.root}/ui/"
    assert (await page.title()).startswith("Overview ")


LEFT = "[localStorage.getItem('left'), sessionStorage.getItem('left'), document.cookie]"


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_page_of_another_test_leaves_nothing(site: Site, page: Page, turn: int) -> None:
    """Servers of these tests have the same address, by which a browser keeps what pages store."""
    await page.goto(f"{site.root}/ui/login")
    assert await page.evaluate(LEFT) == [None, None, ""]
    await page.evaluate(
        "localStorage.left = sessionStorage.left = document.cookie = 'left=1; path=/; max-age=1000'"
    )
    assert None not in await page.evaluate(LEFT)


async def test_others_are_told_what_this_is(site: Site) -> None:
    answer, text = await get(site, "/", Accept="*/*")
    assert answer.status == 200
    assert answer.content_type == "text/plain"
    assert text.startswith("bedrockjobs ")
    assert answer.headers["Vary"] == "Accept"


async def test_a_page_lets_nothing_in_from_outside(site: Site) -> None:
    answer, text = await get(site, "/ui/")
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<style|style=|javascript:|\son\w+=|https?://", text)
    assert not re.findall(r"<script(?![^>]*src=)", text)


async def test_a_page_asks_whether_its_turns_are_needed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [True] * 3
    monkeypatch.setattr(Dispatcher, "begins", property(lambda _: bool(left and left.pop())))
    answer, _ = await get(site, "/ui/events")
    assert answer.status == 200
    assert not left, "it has left three turns to transactions"


async def test_static_files_are_kept_by_their_mark(site: Site) -> None:
    _, text = await get(site, "/ui/")
    found = re.findall(r'(?:src|href)="\.\.(/ui/static/[^"]+)"', text)
    assert len(found) >= 6
    for path in found:
        answer, _ = await get(site, path)
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
    answer, _ = await get(site, "/ui/static/pages.css")
    assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("path", ["/ui/static/none.js", "/ui/static/../site.py", "/ui/static/%2e%2e/site.py"])
async def test_nothing_else_is_a_static_file(site: Site, path: str) -> None:
    answer, text = await get(site, path)
    assert answer.status == 404
    assert "import" not in text


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/ui/jobs/77", 404, "there is no job 77"),
        ("/ui/jobs?state=ASLEEP", 400, "state"),
        ("/ui/jobs?before=x", 400, "before: expected a jobID"),
        ("/ui/jobs?from=soon", 400, "from: expected a date"),
        ("/ui/jobs?to=2031-13-01", 400, "to: expected a date"),
        ("/ui/jobs?time=ended", 400, "time: expected one of created, next, last"),
        ("/ui/jobs?text=" + "x" * 201, 400, "text: expected at most 200"),
        ("/ui/?range=1y", 400, "range: expected one of 15m, 1h, 24h, 7d, 30d"),
    ],
)
async def test_a_refusal_is_a_page_that_says_it(site: Site, path: str, status: int, word: str) -> None:
    answer, text = await get(site, path)
    assert answer.status == status
    assert answer.content_type == "text/html"
    assert word in text


UNKNOWN = ["/ui/nope", "/ui/jobs/x", "/ui/jobs/5/more/", "/ui/jobs/a%2Fb", "/ui/schedules/1/2"]


async def test_what_is_no_page_is_told_to_a_browser_by_a_page(site: Site, page: Page) -> None:
    for path in UNKNOWN:
        answer, text = await get(site, path, Accept="text/html")
        assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<h1>No such page</h1>" in text
        assert re.search(r'<p class="problem">[^\n]* There is no page /ui/', text), path
        (back,) = re.findall(r'href="([^"]*)"[^>]*>Back to the overview<', text)
        assert urljoin(f"{site.root}{path}", back) == f"{site.root}/ui/", path
    site.expected = {404}
    await page.goto(f"{site.root}{UNKNOWN[0]}")
    assert await page.locator("h1").inner_text() == "No such page"
    assert "There is no page /ui/" in await page.locator(".problem").inner_text()
    await check(page)
    await page.get_by_role("link", name="Back to the overview").click()
    await page.wait_for_url(f"{site.root}/ui/")


async def test_a_browser_that_leaves_out_the_folder_of_the_pages_gets_there(site: Site, page: Page) -> None:
    await page.goto(f"{site.root}/failures?name=a*")
    assert page.url == f"{site.root}/ui/failures?name=a*"
    assert (await page.title()).startswith("Failures ")
    site.expected = {404}
    await page.goto(f"{site.root}/nope")
    assert "There is no page /ui/nope" in await page.locator(".problem").inner_text()


async def test_what_a_browser_asks_outside_of_the_pages_leads_to_this_server_alone(site: Site) -> None:
    for path in ("/nope", "//elsewhere.example/x", "/jobs/a%2Fb?x=%0d%0aA:b", "/%0d%0aA:b"):
        async with await Talk.open(site.live.port) as talk:
            talk.send(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
            )
            answer = (await talk.ended()).decode()
        assert answer.startswith("HTTP/1.1 302 "), path
        assert f"\r\nLocation: /ui{path}\r\n" in answer, path
    for accept, method in (("application/json", "GET"), ("text/html", "POST"), ("text/html", "HEAD")):
        async with (
            aiohttp.ClientSession(headers={"Accept": accept}) as session,
            session.request(method, f"{site.root}/nope", allow_redirects=False) as told,
        ):
            assert (told.status, told.content_type) == (404, "application/problem+json")


async def test_what_is_no_page_is_told_to_others_as_by_commands(site: Site) -> None:
    for path in UNKNOWN:
        answer, text = await get(site, path, Accept="application/json")
        assert (answer.status, answer.content_type) == (404, "application/problem+json"), path
        assert "No such page" in text, path


async def test_what_people_typed_is_shown_as_text(site: Site, page: Page) -> None:
    evil = "<img src=x onerror=alert(1)>{{7*7}}"
    job = await site.create(evil, data={evil: [evil]})
    await site.open(page, f"ui/jobs/{job}")
    assert evil in await page.locator("h1").inner_text()
    assert await page.locator("main img").count() == 0


async def test_keys_lead_everywhere(site: Site, page: Page) -> None:
    await site.create("a")
    await site.open(page, "ui/")
    await page.keyboard.press("?")
    help_ = page.locator("#help")
    assert await help_.is_visible()
    for _, label, _ in NAVIGATION:
        assert label in await help_.inner_text()
    await page.keyboard.press("Escape")
    assert not await help_.is_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await page.wait_for_url("**/ui/jobs")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.name") == "name"
    await page.keyboard.type("jx?")
    assert await page.locator("[data-search]").input_value() == "jx?"
    assert not await help_.is_visible()


async def test_the_palette_leads_to_pages_numbers_names_and_actions(site: Site, page: Page) -> None:
    job = await site.fail("mail/receipt", "no mailbox")
    await site.open(page, f"ui/jobs/{job}")
    palette = page.locator("#palette")
    rows = palette.get_by_role("option")
    await page.keyboard.press("Control+k")
    await check(page)
    await page.keyboard.type("upcom")
    await expect(rows).to_have_text(["Upcomingpage"])
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/upcoming")
    await page.get_by_role("button", name="Go to").click()
    await page.keyboard.type("mail/r")
    await expect(rows).to_have_text(["mail/receiptjobs", "mail/receiptqueue"])
    await page.keyboard.press("ArrowDown")
    await expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/queues?name=mail%2Freceipt")
    await page.locator('#link[data-state="open"]').wait_for()
    await page.keyboard.press("Control+k")
    await page.keyboard.type(str(job))
    await expect(rows).to_have_text([f"Job {job}number", f"Run {job}number"])
    await rows.first.click()
    await page.wait_for_url(f"**/ui/jobs/{job}")
    await page.locator('#link[data-state="open"]').wait_for()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("retry")
    await rows.first.click()
    await expect(page.locator("#confirm-which")).to_contain_text("mail/receipt")


async def test_a_row_opens_escape_clears_and_failures_are_counted(site: Site, page: Page) -> None:
    jobs = [await site.fail("mail/receipt", "no mailbox") for _ in range(2)]
    await site.open(page, "ui/jobs?name=mail/*")
    await expect(page.locator("[data-failures]")).to_have_text("2")
    row = page.locator(f"#job-{jobs[0]}")
    await row.get_by_role("checkbox").check()
    await expect(page.locator("#selected")).to_have_text("1 selected")
    await page.keyboard.press("Escape")
    await expect(row.get_by_role("checkbox")).not_to_be_checked()
    await page.keyboard.press("Escape")
    await page.wait_for_url("**/ui/jobs")
    await page.locator('#link[data-state="open"]').wait_for()
    await row.locator("td.name").click()
    await page.wait_for_url(f"**/ui/jobs/{jobs[0]}")
    await page.locator('#link[data-state="open"]').wait_for()
    await page.keyboard.press("R")
    await expect(page.locator("#confirm-yes")).to_have_text("Retry")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_contain_text("Retried")


async def test_the_menu_of_a_narrow_window_has_all_pages(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await site.open(page, "ui/")
    pages = page.get_by_role("navigation", name="Pages").get_by_role("link")
    await expect(pages).to_have_count(0)
    menu = page.get_by_role("button", name="Menu")
    await menu.click()
    await expect(menu).to_have_attribute("aria-expanded", "true")
    await expect(pages).to_have_text([label for _, label, _ in NAVIGATION])
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    await check(page)
    await pages.filter(has_text="Workers").click()
    await page.wait_for_url("**/ui/workers")


async def test_the_skip_link_comes_first(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "content"


async def test_the_theme_is_chosen_and_kept(site: Site, page: Page) -> None:
    async def ground() -> str:
        return str(await page.evaluate("getComputedStyle(document.body).backgroundColor"))

    await page.emulate_media(color_scheme="light")
    await site.open(page, "ui/")
    light = await ground()
    await page.emulate_media(color_scheme="dark")
    dark = await ground()
    assert light != dark
    await page.locator("#theme").click()
    assert await page.locator("#theme").inner_text() == "Theme: light"
    assert await ground() == light
    await page.keyboard.press("t")
    assert await ground() == dark
    await page.emulate_media(color_scheme="light")
    await page.reload()
    assert await ground() == dark
    assert await page.locator("#theme").inner_text() == "Theme: dark"


async def test_times_tell_how_long_ago_or_the_moment_here_or_in_utc(site: Site, page: Page) -> None:
    job = await site.create("a", firstRun="2031-05-06 07:08:09")
    await site.open(page, f"ui/jobs/{job}")
    time = page.locator('.facts time[datetime="2031-05-06T07:08:09Z"]')
    await expect(time).to_have_text(re.compile(r"^6 May 2031, 12:38:09 \(in "), use_inner_text=True)
    assert await time.get_attribute("title") == "6 May 2031, 12:38:09\n2031-05-06 07:08:09 UTC"
    await site.open(page, "ui/jobs")
    row = page.locator('td time[datetime="2031-05-06T07:08:09Z"]')
    await expect(row).to_have_text(re.compile(r"^in [\d,]+ days"), use_inner_text=True)
    clock = page.get_by_role("button", name="Times: relative")
    await clock.click()
    await expect(row).to_have_text("6 May 2031, 12:38:09", use_inner_text=True)
    await page.keyboard.press("u")
    await expect(row).to_have_text("2031-05-06 07:08:09 UTC", use_inner_text=True)
    await page.reload()
    await expect(row).to_have_text("2031-05-06 07:08:09 UTC", use_inner_text=True)


async def test_the_stream_rests_while_the_page_is_hidden(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(hide % "true")
    assert await page.locator("#link").inner_text() == "paused"
    await site.create("a")
    await page.evaluate(hide % "false")
    await page.locator('#link[data-state="open"]').wait_for()
    await page.locator("#tiles .figure", has_text="1").first.wait_for()


async def test_a_page_whose_server_is_gone_says_so_as_a_whole(site: Site, context: BrowserContext) -> None:
    page = await context.new_page()  # whose console may complain
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    await site.server.stop()
    told = page.locator("#gone")
    await expect(told).to_contain_text("The server has not answered since ")
    await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()


async def test_pages_do_not_wake_themselves(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    asked: list[str] = []
    await page.wait_for_timeout(round(pages.POLL_S * 1000) + 200)
    page.on("request", lambda request: asked.append(request.url))
    await page.wait_for_timeout(round(pages.POLL_S * 2000))
    assert asked == []


async def test_there_is_a_limit_to_streams(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "STREAMS_MAX", 1)
    async with aiohttp.ClientSession() as session, session.get(f"{site.root}/ui/live") as first:
        assert first.content_type == "text/event-stream"
        assert await first.content.readline() == b"retry: 2000\n"
        answer, _ = await get(site, "/ui/live")
        assert answer.status == 429


async def test_an_unknown_job_is_said_for_everybody(site: Site, page: Page) -> None:
    site.expected = {404}
    await page.goto(f"{site.root}/ui/jobs/9")
    await check(page)


async def test_pages_work_below_any_path(site: Site, page: Page) -> None:
    service, settings = site.server.service, site.server.settings
    app = web.Application()
    for one in pages.routes(service, settings):
        app.router.add_route(one.method, f"/a/b{one.path}", one.handler)  # type: ignore[attr-defined]
    app.router.add_post("/a/b/{verb}", _hand_on(site))
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        job = await site.create("a")
        site.root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        site.expected = {404}
        await page.goto(f"{site.root}/a/b/ui/jobs/5/more")
        await page.get_by_role("link", name="Back to the overview").click()
        await page.wait_for_url("**/a/b/ui/")
        await page.goto(f"{site.root}/a/b/")
        await page.get_by_role("link", name="Jobs", exact=True).click()
        await page.get_by_role("link", name=str(job), exact=True).click()
        await page.wait_for_url(f"**/a/b/ui/jobs/{job}")
        assert await page.locator("nav [aria-current]").inner_text() == "Jobs"
        await page.locator('#link[data-state="open"]').wait_for()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.locator("#confirm-yes").click()
        await page.wait_for_url("**/a/b/ui/jobs")
        assert await site.state(job) == "gone"
        await page.goto("about:blank")
    finally:
        await runner.cleanup()


def _hand_on(site: Site) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def hand_on(request: web.Request) -> web.Response:
        status, answer = await site.http(request.match_info["verb"], **await request.json())
        return web.json_response(answer, status=status)

    return hand_on


# --- libraries -------------------------------------------------------------------------------------------


async def test_libraries_have_their_licences_beside() -> None:
    folder = FOLDER / "static" / "vendor"
    named = {name for package in vendor.PACKAGES for name in package.files.values()}
    assert {path.name for path in folder.iterdir()} == named
    for package in vendor.PACKAGES:
        (licence,) = [name for name in package.files.values() if "LICENSE" in name]
        text = (folder / licence).read_text()
        assert "permission" in text.lower()


async def test_a_package_that_is_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pack(command: list[str], *, cwd: str, **_: Any) -> None:
        assert command[:2] == ["npm", "pack"]
        (Path(cwd) / "htmx.org-4.0.1.tgz").write_bytes(b"another")

    monkeypatch.setattr(vendor.subprocess, "run", pack)
    monkeypatch.setattr(vendor, "PAGES", tmp_path)
    with pytest.raises(ValueError, match="expected sha512-"):
        vendor.main([])
    assert list(tmp_path.iterdir()) == []
