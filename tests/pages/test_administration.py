"""The pages of what operators and admins set and did: limits, rules, tokens and the audit."""

from __future__ import annotations

import re
from html import unescape

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import tables
from tests.conftest import Live
from tests.pages.looking import THEMES, Site
from tests.pages.test_every_page import NARROW, SIZES, faults, resize
from tests.runs.bearer import Bearer, admin_of


async def shown(who: Bearer, path: str, selector: str) -> str:
    """Return the text of the first element of a page that begins with ``selector``."""
    reply = await who.get(path, Accept="text/html")
    assert reply.code == 200, reply
    tag = re.match(r"<(\w+)", selector)
    assert tag is not None
    begin = reply.body.index(selector)
    part = reply.body[begin : reply.body.index(f"</{tag[1]}>", begin)]
    return " ".join(re.sub(r"<[^>]*>", " ", part.replace("<wbr>", "")).replace("\N{EN DASH}", "-").split())


async def test_limits_and_pauses_are_shown_to_readers_and_changed_by_operators(live: Live) -> None:
    root = await admin_of(live)
    ann, reader = await root.token_for("ann", "operate"), await root.token_for("reader", "read")
    await ann.ok("SetLimit", name="mail/*", running=1, starts="2/1h", burst=1, perSecond=50)
    await ann.ok("SetLimit", name="import/*", queued=1)
    await ann.ok("PauseJobs", name="report", reason="the printer is jammed", until="1h")
    for name in ("mail/a", "import/a"):
        await root.ok("CreateJob", name=name)
    await root.ok("GetJob", name="mail/a", worker="w1")
    assert (await root.http("CreateJob", name="import/b")).code == 429
    for who in (reader, ann):
        pauses = await shown(who, "/ui/limits", '<ul class="needs"')
        assert "report has been paused by ann since" in pauses
        assert ", until" in pauses
        assert ": the printer is jammed" in pauses
        mail = await shown(who, "/ui/limits", '<tr id="limited-mail/*"')
        assert mail.startswith("mail/* 1 of 1 others wait 2/1h, 1 at once next ")
        assert " UTC - 50 0 ann " in mail
        imported = await shown(who, "/ui/limits", '<tr id="limited-import/*"')
        assert imported.startswith("import/* - - 1 - 1 last ")
    found = [
        set(re.findall(r'data-command="(\w+)"', (await who.get("/ui/limits", Accept="text/html")).body))
        for who in (reader, ann)
    ]
    assert found == [set(), {"SetLimit", "RemoveLimit", "ResumeJobs"}]
    await ann.ok("ResumeJobs", name="report")
    assert await shown(reader, "/ui/limits", '<div id="pauses"') == "Nothing is paused."


@pytest.mark.asyncio(loop_scope="session")
async def test_a_limit_is_set_changed_and_removed(site: Site, page: Page) -> None:
    await site.open(page, "ui/limits")
    await page.get_by_role("button", name="Set a limit…").click()
    new = page.locator("#new-limit")
    await new.get_by_label("Names").fill("mail/*")
    await new.get_by_label("Running at once").fill("4")
    await new.get_by_role("button", name="Set the limit").click()
    await expect(page.locator("#confirm-which")).to_contain_text("Limit mail/*?")
    await page.locator("#confirm-yes").click()
    row = page.locator('[id="limited-mail/*"]')
    await expect(row).to_contain_text("0 of 4")
    await row.get_by_role("button", name="Change…").click()
    form = row.get_by_role("dialog")
    await expect(form).to_have_css("top", re.compile(r"[1-9]"))  # it stands below its button
    place = await form.bounding_box()
    await site.ask("SetLimit", name="a", running=1)
    await expect(page.locator("[data-row]")).to_have_count(2)
    await site.ask("RemoveLimit", name="a")
    await expect(page.locator("[data-row]")).to_have_count(1)
    assert await form.bounding_box() == place, "a refresh moves no open form"
    await row.get_by_label("Starts in a time").fill("100/1m")
    await row.get_by_label("each concurrency key").check()
    await row.get_by_label("in turn").check()
    await row.get_by_role("button", name="Change", exact=True).click()
    await page.locator("#confirm-yes").click()
    await expect(row.locator("td").nth(1)).to_have_text("100/1m with each key")
    (limit,) = (await site.ask("ListLimits"))["limits"]
    assert (limit["name"], limit["running"], limit["starts"], limit["queued"]) == ("mail/*", 4, "100/1m", 0)
    assert (limit["perKey"], limit["fair"]) == (True, True)
    await expect(row.get_by_role("rowheader")).to_have_text(re.compile(r"^mail/\S*\* in turn$"))
    await expect(row.locator("td").nth(0)).to_contain_text("4 with each key")
    await row.get_by_role("button", name="Remove").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#limits")).to_contain_text("No limits.")


async def test_tokens_and_the_audit_are_shown_to_admins(live: Live) -> None:
    root = await admin_of(live)
    ann = await root.token_for("ann", "operate", "mail/*", expires="1d")
    old = await root.token_for("old", "read", noData=True)
    await root.ok("RevokeToken", name="old")
    job = (await ann.ok("CreateJob", name="mail/digest", repeat="CRON 0 7 * * *"))["jobID"]
    await ann.ok("UpdateJob", jobID=job, repeat="CRON 0 8 * * *")
    await ann.ok("PauseJobs", name="mail/digest", reason="r" * 300)
    found = await shown(root, "/ui/access", '<tr id="token-ann"')
    assert found.startswith("ann active operate mail/* 2")
    assert found.endswith("root Revoke")
    found = await shown(root, "/ui/access", '<tr id="token-old"')
    assert re.fullmatch(r"old revoked \S+ \S+ UTC read all names no data never never \S+ \S+ UTC root", found)
    assert (await shown(root, "/ui/access", '<tr id="token-root"')).startswith("root yours active admin ")
    audit = await shown(root, "/ui/access", '<section id="audit"')
    paused, updated = audit.index("PauseJobs mail/digest "), audit.index("UpdateJob mail/digest ")
    assert paused < updated < audit.index("CreateJob mail/digest ")
    assert f"reason: {'r' * 199}… " in audit
    assert "repeat: CRON 0 7 * * * → CRON 0 8 * * *" in audit
    assert "PauseJobs" not in await shown(root, "/ui/access?command=UpdateJob", '<section id="audit"')
    body = (await root.get("/ui/access", Accept="text/html")).body
    assert not any(who.token in body for who in (root, ann, old))


async def test_tokens_and_the_audit_come_in_pages(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TOKEN_ROWS", 1)
    monkeypatch.setattr(tables, "ROWS", 2)
    root = await admin_of(live)
    for name in ("ann", "ben"):
        await root.token_for(name, "read")
    for name in ("a", "b"):
        await root.ok("PauseJobs", name=name)
    seqs = [str(entry["seq"]) for entry in (await root.ok("ListAudit"))["entries"]]
    for rows, link, wanted in (
        (r'id="change-(\d+)"', r'href="([^"]*)" rel="next"', seqs),
        (r'id="token-(\w+)"', r'href="([^"]*)">More tokens', ["ann", "ben", "root"]),
    ):
        seen: list[str] = []
        query = ""
        for _ in wanted:
            body = (await root.get(f"/ui/access{query}", Accept="text/html")).body
            seen += re.findall(rows, body)
            following = re.search(link, body)
            if following is None:
                break
            query = unescape(following[1])
        assert seen == wanted


@pytest.mark.asyncio(loop_scope="session")
async def test_a_token_is_revoked(site: Site, page: Page) -> None:
    root = await Bearer(site.live).token_for("root", "admin")
    await root.token_for("w" * 100, "read,produce", f"{'W' * 200}*,mail/*", noData=True, expires="90d")
    web = await root.token_for("web", "operate")
    await web.ok("PauseJobs", name="mail/*", reason="r" * 300)
    await page.goto(f"{site.root}/ui/login?to=%2Fui%2Faccess")
    await page.get_by_label("Token").fill(root.token)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/ui/access")
    await page.locator('#link[data-state="open"]').wait_for()
    for size in SIZES:
        await resize(page, size)
        assert await faults(page, size[0], theme="" if size[0] < NARROW else THEMES[0]) == []
    row = page.locator("#token-web")
    await row.get_by_role("button", name="Revoke").click()
    await expect(page.locator("#confirm-which")).to_contain_text("Revoke the token web?")
    await page.locator("#confirm-yes").click()
    await expect(row).to_contain_text("revoked")
    await expect(row.get_by_role("button")).to_have_count(0)
    assert (await web.http("ListJobs")).code in (401, 403)


async def test_rules_are_shown_to_admins_with_their_deliveries(live: Live) -> None:
    root = await admin_of(live)
    operator = await root.token_for("ann", "operate")
    quiet = {"groupFor": "10m", "quiet": "22:00-07:00", "noData": True}
    await root.ok("PutRule", name="hook", on=["failed"], names=["mail/*"], to="http://127.0.0.1:1/x", **quiet)
    await root.ok("PutRule", name="stuck", on=["late", "backlog"], to="mailto:ann@example.com", older="15m")
    await operator.ok("MuteRule", name="stuck", until="1h")
    hook = await shown(root, "/ui/notifications", '<tr id="rule-hook"')
    assert (
        "active failed mail/* http://127.0.0.1:1/x at most one in 10 min quiet 22:00-07:00 no data 0 sent"
        in hook
    )
    assert "Send a test Mute…" in hook
    pressed = await root.http("TestRule", name="hook", send="true")
    assert (pressed.code, pressed.json["reason"]) == (409, "Message was not sent")
    stuck = await shown(root, "/ui/notifications", '<tr id="rule-stuck"')
    assert re.search(r" muted until \S+ \S+ UTC late for 15 min backlog over 1,000 all mailto:ann@", stuck)
    assert stuck.endswith("Send a test Unmute")
    assert (await operator.get("/ui/notifications", Accept="text/html")).code == 403
    for who, may in ((root, True), (operator, False)):
        body = (await who.get("/ui/limits", Accept="text/html")).body
        led = [f'href="../ui/{path}"' in body for path in ("limits", "notifications", "access")]
        assert led == [True, may, may]
