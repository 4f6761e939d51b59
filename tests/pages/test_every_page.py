"""Each page at both widths, in both themes: no overflow or overlap, and no complaint of axe."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from bedrockjobs import pages
from tests.effort import PROFILE, examples
from tests.pages.looking import THEMES, Site, check
from tests.pages.test_widths import MEASURE, OVERLAPS

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = ((1400, 900), (390, 844))
OPENED = [SIZES] if PROFILE != "random" else [SIZES[:1], SIZES[1:]]
"""By day each page is opened wide and then narrowed; at night each width has a page that was opened in it, as
``test_widths.py`` has them by day too."""

NARROW = 1_000
"""Below this width the layout is another one."""

NARROW_EACH = examples(8, night=1)
"""In a narrow window axe checks one page in so many: it finds there what it finds in a wide one."""

SELECTIONS_CHECKED = PROFILE == "random"
"""At night axe also checks pages with a query, which by day is enough for the page without."""

ALIKE = {"docs": "section[id]", "ui/upcoming": "[data-row]"}
"""What long pages consist of: commands, and ticks."""

ALIKE_MAX = examples(8, night=1_000)
"""How many of them are checked beyond their width: all have the same parts, and take the time of 15 pages."""

SCROLLED = """() => [...document.querySelectorAll(".scroll")].filter((place) =>
    place.getClientRects().length && place.scrollWidth > place.clientWidth + 1)
    .map((place) => `${place.getAttribute("aria-label")}: ${place.scrollWidth} px of ${place.clientWidth}`)"""
"""Says which tables have to be moved sideways to be read."""

ON_EACH_OTHER = """() => {
  const parts = [...document.querySelectorAll("a, button, input, select, textarea, summary, h1, h2, h3")]
    .filter((part) => part.checkVisibility() && !part.closest(".hidden, .skip, dialog, svg"));
  const drawn = (part) => {
    if (!part.matches("h1, h2, h3")) return part.getClientRects();
    const text = document.createRange();
    text.selectNodeContents(part);
    return text.getClientRects();
  };
  const found = [];
  const places = parts.map((part) => [part, [...drawn(part)]]).filter(([, mine]) => mine.length)
    .map(([part, mine]) => ({part, mine, top: Math.min(...mine.map((a) => a.top)),
      bottom: Math.max(...mine.map((a) => a.bottom))})).sort((a, b) => a.top - b.top);
  for (const [at, {part: one, mine, bottom}] of places.entries())
  for (const {part: other, mine: theirs, top} of places.slice(at + 1)) {
    if (top >= bottom) break;
    if (one.contains(other) || other.contains(one)) continue;
    for (const a of mine) for (const b of theirs)
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        found.push(`${one.outerHTML.slice(0, 90)} | ${other.outerHTML.slice(0, 90)}`);
  }
  return found;
}"""
"""Says which links, buttons, fields and titles stand on each other."""


async def fill(site: Site) -> dict[str, int]:
    """Make a bit of everything; return the numbers that addresses need."""
    nightly = await site.create("backup/nightly", repeat="CRON TZ=Europe/Berlin 30 2 * * *", retries=1)
    often = await site.create("clean/sessions", repeat="CRON */5 * * * *")
    taken = []
    for schedule in (nightly, often):
        await site.ask("TriggerJob", jobID=schedule, by="ann")
        taken.append(await site.take("*", "cron-1", heartbeat=True))
    ended = {"jobID": nightly, "runID": taken[0]["runID"]}
    await site.ask("FailJob", **ended, error="exit status 1\ntar: no space left on device", exitCode=1)
    await site.ask("FinishJob", jobID=often, runID=taken[1]["runID"])
    failed = await site.create("mail/receipt", data={"to": "ann@example.com", "order": 8412})
    taken = [await site.take("mail/receipt", "eu-1", heartbeat=True)]
    lines = ["connecting to smtp.example.com", {"line": "451 try again later", "stream": "err"}]
    await site.ask("AppendOutput", runID=taken[0]["runID"], seq=1, lines=lines)
    await site.ask("FailJob", jobID=failed, runID=taken[0]["runID"], error="451 try again later", exitCode=1)
    parent = await site.create("invoice/all")
    await site.take("invoice/all", "eu-2", heartbeat=True)
    for number in range(3):
        await site.create(f"invoice/{number}", parentJobID=parent)
    await site.ask("FinishJob", jobID=parent)
    await site.take("invoice/0", "eu-2", heartbeat=True)
    queued = await site.create("export/csv", priority=850)
    for number in range(3):
        await site.create(f"mail/{number}", data={"list": number})
    await site.ask("PauseJobs", name="mail/*", reason="the address book is being cleaned", by="ann")
    await site.ask("SetLimit", name="invoice/*", running=1, starts="100/1m", queued=1_000, by="ann")
    to = "mailto:ann@example.com,ben@example.com"
    await site.ask("PutRule", name="nightly", on=["failed", "late"], names=["backup/*"], to=to, by="ann")
    for worker, names in (("eu-1", ["mail/*"]), ("eu-2", ["invoice/*"]), ("cron-1", ["backup/*", "clean/*"])):
        more = {"host": f"{worker}.internal", "pid": 4711, "version": "1.2", "slots": 4}
        await site.ask("Heartbeat", worker=worker, names=names, **more)
    await site.ask("DrainWorker", worker="cron-1", by="ann")
    jobs = [{"ref": "export", "name": "etl/export"}, {"ref": "load", "name": "etl/load", "after": ["export"]}]
    workflow = (await site.ask("CreateWorkflow", name="etl", jobs=jobs))["workflowID"]
    numbers = {"nightly": nightly, "parent": parent, "queued": queued}
    return {**numbers, "workflow": workflow, "failed": failed, "run": taken[0]["runID"]}


PAGES = (
    "ui/",
    "ui/queues",
    "ui/queues?under=mail/",
    "ui/queues?name=*",
    "ui/queue?name=mail/a",
    "ui/jobs",
    "ui/jobs?state=QUEUED",
    "ui/jobs?state=RUNNING",
    "ui/jobs?state=PAUSED",
    "ui/jobs?state=FAILED",
    "ui/jobs?state=FINISHED",
    "ui/jobs/{failed}",
    "ui/jobs/{parent}",
    "ui/jobs/{queued}",
    "ui/jobs/new",
    "ui/jobs/{queued}/edit",
    "ui/jobs/new?like={failed}",
    "ui/runs",
    "ui/runs?status=failed",
    "ui/runs/{run}",
    "ui/workflows",
    "ui/workflows/{workflow}",
    "ui/schedules",
    "ui/schedules/{nightly}",
    "ui/schedules/new",
    "ui/schedules/{nightly}/edit",
    "ui/upcoming",
    "ui/workers",
    "ui/failures",
    "ui/events",
    "ui/limits",
    "ui/kept",
    "ui/notifications",
    "ui/access",
)
ELSEWHERE = ("docs", "ui/jobs/999", "ui/login")
"""Pages without a stream."""

NO_PAGES = (
    "ui/live",
    "ui/chart",
    "ui/jobs/names",
    "ui/jobs/matching",
    "ui/runs/matching",
    "ui/failures/count",
    "ui/failures/members",
    "ui/runs/{}/output.txt",
    "ui/static/{}",
    "ui/{}",
    "ui",
    "",
)
"""Routes that return data, files, redirects or errors."""


def without_numbers(path: str) -> str:
    """Return a path without its query, and with ``{}`` for each parameter."""
    plain = path.partition("?")[0].strip().removeprefix("/")
    return re.sub(r"\{\w+(:[^{}]*(\{[^{}]*\}[^{}]*)*)?\}|(?<=/)\d+(?=/|$)", "{}", plain)


async def test_every_page_is_listed(site: Site) -> None:
    """Each route that answers a GET is among the pages that the next test opens, or is no page."""
    found = {
        without_numbers(route.path)
        for route in pages.routes(site.server.service, site.server.settings)
        if route.method == "GET"
    }
    listed = {without_numbers(path) for path in (*PAGES, *ELSEWHERE, *NO_PAGES)}
    assert not found - listed, "add its path to PAGES, or to NO_PAGES if it returns no page"
    assert set(NO_PAGES) <= found, "no longer a route"


async def resize(page: Page, size: tuple[int, int]) -> None:
    """Give a page the size of a window."""
    await page.set_viewport_size({"width": size[0], "height": size[1]})


async def faults(page: Page, width: int, *, theme: str = THEMES[0]) -> list[str]:
    """Return the faults of a page in a window of this width, and what axe finds in a theme, if any."""
    if theme:
        await check(page, theme)
    found = [told for told in (await page.evaluate(MEASURE), *await page.evaluate(ON_EACH_OTHER)) if told]
    if width < NARROW:
        found += await page.evaluate(SCROLLED)
    found += await page.locator(".cards tbody tr").evaluate_all(f"rows => rows.flatMap({OVERLAPS})")
    return found


@pytest.mark.parametrize("sizes", OPENED)
async def test_every_page_can_be_read_by_everybody(
    site: Site, page: Page, sizes: tuple[tuple[int, int], ...]
) -> None:
    site.expected.add(404)
    numbers = await fill(site)
    wrong: dict[str, list[str]] = {}
    for number, path in enumerate((*PAGES, *ELSEWHERE)):
        await resize(page, sizes[0])
        if path in ELSEWHERE:
            await page.goto(f"{site.root}/{path}")
        else:
            await site.open(page, path.format(**numbers))
        await page.locator("details.group").evaluate_all(
            "all => all.forEach((group) => { group.open = true; })"
        )
        if path in ("ui/", "ui/queue?name=mail/a"):
            await expect(page.locator(".chart canvas")).to_have_count(4)
        wrong[path] = []
        if path in ALIKE:
            for size in sizes:
                await resize(page, size)
                wrong[path] += filter(None, [await page.evaluate(MEASURE)])
            await page.locator(ALIKE[path]).evaluate_all(
                "(all, most) => all.slice(most).forEach((each) => each.remove())", ALIKE_MAX
            )
        for size in sizes:
            await resize(page, size)
            axe = SELECTIONS_CHECKED or "?" not in path
            axe &= size[0] > NARROW or number % NARROW_EACH == 0
            theme = THEMES[(number + (size[0] <= NARROW)) % len(THEMES)]
            wrong[path] += await faults(page, size[0], theme=theme if axe else "")
    faulty = [f"{path}: {told}" for path, found in wrong.items() for told in found]
    assert not faulty, "\n".join(faulty)


async def test_what_stands_on_another_part_and_what_is_scrolled_is_found(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await site.create("a")
    await site.open(page, "ui/queues")
    assert await faults(page, 390) == []
    await page.evaluate(
        """() => {
          document.querySelector("h1").style.marginBottom = "-3rem";
          document.querySelector(".scroll table").style.width = "40rem";
        }"""
    )
    found = " ".join(await faults(page, 390))
    assert "<h1" in found
    assert "Queues: " in found
