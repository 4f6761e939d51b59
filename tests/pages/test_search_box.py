"""The search box of jobs and runs takes tokens, and presets say since when."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.protocol.talk import Talk

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def led_to(site: Site, path: str, typed: str) -> dict[str, str] | None:
    """Return the parameters of the page that typed text leads to; None for none."""
    async with await Talk.open(site.server.port) as talk:
        talk.send(f"GET /{path}name={quote(typed)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        reply = await talk.reply()
    if reply.code == 200:
        return None
    assert reply.code == 303
    (location,) = [line.split(": ", 1)[1] for line in reply.lines if line.startswith("Location: ")]
    return {key: one for key, (one,) in parse_qs(urlsplit(location).query).items()}


async def test_tokens_become_filters(site: Site) -> None:
    for path, typed, found in (
        ("ui/runs?", "mail/* error:timeout since:24h", {"name": "mail/*", "text": "timeout", "from": "-24h"}),
        (
            "ui/runs?",
            'name:a text:"no route" status:failed',
            {"name": "a", "text": "no route", "status": "failed"},
        ),
        ("ui/runs?status=failed&before=9&", "type:KeyError", {"status": "failed", "errorType": "KeyError"}),
        ("ui/runs?from=-1h&", "since:2026-11-21 until:-5m", {"from": "2026-11-21", "to": "-5m"}),
        ("ui/runs?", "worker:eu-*", {"worker": "eu-*"}),
        ("ui/runs?status=failed&", 'text:""', {"status": "failed"}),
        ("ui/runs?", 'text:""', {}),
        ("ui/jobs?", "mail/* state:FAILED time:next", {"name": "mail/*", "state": "FAILED", "time": "next"}),
        ("ui/failures?", "mail/* error:timeout", {"name": "mail/*", "text": "timeout"}),
        ("ui/failures?runsBefore=9&", "type:KeyError a", {"name": "a", "errorType": "KeyError"}),
        ("ui/failures?", "since:24h", None),
        ("ui/events?", 'mail/* kind:"clock set"', {"name": "mail/*", "kind": "clock set"}),
        ("ui/jobs?", "name:since:24h", {"name": "since:24h"}),
        ("ui/jobs?", "worker:a", None),
        ("ui/jobs?", "mail:a b", None),
        ("ui/jobs?", "mail/*", None),
    ):
        assert await led_to(site, path, typed) == found, typed


async def test_an_operator_types_and_presses(site: Site, page: Page) -> None:
    await site.fail("mail/a", "timeout of the server")
    await site.fail("mail/a", "no disk")
    await site.open(page, "ui/runs")
    await page.get_by_label("Name, such as").fill("mail/* error:timeout since:1h")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"text=timeout&name=mail/\*&from=-1h$"))
    await expect(page.locator("#runs tbody tr")).to_have_count(1)
    await expect(page.get_by_label("Text in error, output")).to_have_value("timeout")
    since = page.get_by_role("navigation", name="Since")
    await expect(since.locator("[aria-current]")).to_have_text("1 h")
    await check(page)
    await since.get_by_role("link", name="any time").click()
    await page.wait_for_url(re.compile(r"text=timeout&name=[^&]*$"))
    await site.open(page, "ui/jobs")
    await page.get_by_role("navigation", name="Since").get_by_role("link", name="24 h").click()
    await page.wait_for_url("**from=-24h")
    await expect(page.locator("#jobs tbody tr")).to_have_count(2)
