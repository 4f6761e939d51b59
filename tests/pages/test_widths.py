"""No page is wider than its window, even with a long name that cannot be broken."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.base.config import NAME_CHARS_MAX, REF_CHARS_MAX, WORKER_CHARS_MAX
from tests.effort import PROFILE
from tests.pages.looking import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

WIDTHS = (390, 1400)
OPENED = [WIDTHS] if PROFILE != "random" else [WIDTHS[:1], WIDTHS[1:]]
"""By day each page is opened in a narrow window and then widened, as ``test_every_page.py`` opens it wide and
narrows it; at night each width has a page that was opened in it."""

LONG = "W" * NAME_CHARS_MAX
ERROR = "E" * 2_000

MEASURE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const beyond = [...document.querySelectorAll("body *")].filter((place) =>
    !place.closest(".scroll *") && place.getBoundingClientRect().left + place.scrollWidth > width);
  return `${document.documentElement.scrollWidth} px of ${width}: `
    + beyond.slice(-3).map((place) => place.outerHTML.slice(0, 200)).join(" ");
}"""
"""Says what is wider than the window; nothing where all is within."""

UNFOLD = (
    "all => all.filter((each) => each.checkVisibility()).forEach((each) => { each.parentNode.open = true; })"
)


async def fill(site: Site) -> list[str]:
    """Put long names wherever there are names; return the addresses of all pages."""
    worker = {"worker": "w" * WORKER_CHARS_MAX}
    schedule = await site.create(LONG, repeat="CRON * * * * *", firstRun="2031-01-01 00:00:00")
    for letter in "XYZ":
        await site.create(letter * NAME_CHARS_MAX, repeat="CRON 0 0 1 1 *", tags=["t" * 100])
    await site.ask("PauseJobs", name=f"{LONG[1:]}*", reason="r" * 1_000, by="b" * 200)
    failing = await site.create("F" * NAME_CHARS_MAX, repeat="CRON * * * * *", lock="l" * NAME_CHARS_MAX)
    await site.ask("TriggerJob", jobID=failing, by="b" * 200)
    taken = await site.take("F*", **worker)
    await site.ask("FailJob", jobID=failing, runID=taken["runID"], error=ERROR)
    failed = await site.create("D" * NAME_CHARS_MAX, data={"k" * 300: "v" * 5_000}, cmd="c" * 500)
    taken = await site.take("D*", heartbeat=True, accepts=["cmd"], **worker)
    await site.ask("AppendOutput", runID=taken["runID"], seq=1, lines=["o" * 4_000])
    await site.ask("FailJob", jobID=failed, runID=taken["runID"], error=ERROR, exitCode=3)
    running = await site.create("R" * NAME_CHARS_MAX)
    run = (await site.take("R*", heartbeat=True, **worker))["runID"]
    await site.create("C" * NAME_CHARS_MAX, parentJobID=running)
    await site.ask("UpdateJob", jobID=running, progress={"percent": 5, "message": "p" * 500})
    jobs = [{"ref": letter * REF_CHARS_MAX, "name": LONG} for letter in "AB"]
    jobs[1]["after"] = [jobs[0]["ref"]]
    workflow = (await site.ask("CreateWorkflow", name=LONG, jobs=jobs))["workflowID"]
    told = {"host": "h" * NAME_CHARS_MAX, "version": "v" * 100, "names": [LONG], "slots": 4, "pid": 1}
    await site.ask("Heartbeat", **worker, runIDs=[run], **told)
    rule = {
        "name": "n" * 100,
        "to": f"mailto:{'m' * 2_000}@example.com",
        "names": [LONG],
        "tags": ["t" * 100],
    }
    await site.ask("PutRule", on=["failed"], **rule, by="b" * 200)
    await site.ask(
        "SetLimit", name=f"{LONG[1:]}*", queued=1, perSecond=1, running=1, starts="1/1m", by="b" * 200
    )
    return [
        "ui/",
        "ui/?range=7d",
        "ui/queues",
        "ui/queues?name=*",
        f"ui/queue?name={LONG}",
        "ui/runs",
        "ui/jobs",
        f"ui/jobs?name={LONG}",
        f"ui/jobs/{schedule}",
        f"ui/jobs/{failed}",
        f"ui/jobs/{running}",
        "ui/workflows",
        f"ui/workflows/{workflow}",
        f"ui/jobs/{workflow + 2}",
        "ui/schedules",
        f"ui/schedules/{schedule}",
        f"ui/schedules/{failing}",
        "ui/upcoming",
        f"ui/runs/{taken['runID']}",
        f"ui/runs/{taken['runID']}?find={'o' * 200}",
        f"ui/runs/{run}",
        "ui/workers",
        "ui/failures",
        "ui/jobs?state=FAILED",
        "ui/events",
        f"ui/events?name={LONG}",
        "ui/limits",
        "ui/notifications",
        "ui/access",
    ]


@pytest.mark.parametrize("widths", OPENED)
async def test_no_page_is_wider_than_its_window(site: Site, page: Page, widths: tuple[int, ...]) -> None:
    wide: dict[str, list[str]] = {}

    async def measure(path: str) -> None:
        wide[path] = []
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 900})
            await page.locator("details:not([open]) > summary").evaluate_all(UNFOLD)
            wide[path] += filter(None, [await page.evaluate(MEASURE)])

    for path in await fill(site):
        await page.set_viewport_size({"width": widths[0], "height": 900})
        await site.open(page, path)
        if path.startswith(("ui/?", "ui/queue?")) or path == "ui/":
            await expect(page.locator(".chart canvas")).to_have_count(4)
        await measure(path)
    site.expected = {400, 404}
    for path in (f"ui/{LONG}", f"ui/schedules/{LONG}"):
        await page.goto(f"{site.root}/{path}")
        await measure(path)
    assert not {path: found for path, found in wide.items() if found}


LINES = {
    "ui/jobs": 4,
    "ui/jobs?state=QUEUED": 5,
    "ui/jobs?state=FAILED": 4,
    "ui/runs": 3,
    "ui/events": 3,
    "ui/workflows": 4,
    "ui/schedules": 7,
    "ui/queues": 7,
}
"""Lines that a card may have on each page with a table."""


async def test_a_card_is_a_few_lines_in_which_nothing_overlaps(site: Site, page: Page) -> None:
    await site.fail("mail/receipt", "no mailbox")
    await site.create("mail/newsletter")
    await site.create("backup/nightly", repeat="CRON 30 2 * * *")
    await site.ask("CreateWorkflow", name="etl", jobs=[{"ref": "load", "name": "etl/load"}])
    await page.set_viewport_size({"width": 390, "height": 844})
    for path, lines in LINES.items():
        await site.open(page, path)
        rows = page.locator(".cards tbody tr")
        await expect(rows.first).to_be_visible()
        high, found = await rows.evaluate_all(
            f"""(rows, most) => [
                rows.filter((row) => row.getBoundingClientRect().height > most).map((row) => row.innerText),
                rows.flatMap({OVERLAPS})]""",
            lines * 25 + 20,
        )
        assert high == found == [], path


OVERLAPS = """row => {
  const parts = [...row.querySelectorAll("td > *, th > *, td:not(:has(> *))")].filter((part) =>
    part.getClientRects().length && !part.matches(".hidden, wbr"));
  const found = [];
  for (const [at, one] of parts.entries()) for (const other of parts.slice(at + 1)) {
    const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
      found.push(`${one.textContent.trim()} | ${other.textContent.trim()}`);
  }
  return found;
}"""
"""Says which parts of a card stand on each other."""


@pytest.mark.parametrize("path", ["ui/jobs", "ui/runs"])
async def test_filters_are_folded_on_a_narrow_screen(site: Site, page: Page, path: str) -> None:
    await site.fail("mail/receipt")
    await page.set_viewport_size({"width": 390, "height": 844})
    await site.open(page, path)
    row = await page.locator(".cards tbody tr").first.bounding_box()
    assert row is not None
    assert row["y"] < 844 / 2, "what is asked for stands on the upper half"
    text, fold = page.locator(".filter [name=text]"), page.get_by_role("button", name="More filters")
    await expect(text).to_be_hidden()
    await fold.click()
    await expect(fold).to_have_attribute("aria-expanded", "true")
    await text.fill("it broke")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.wait_for_url("**text=it+broke*")
    await expect(text).to_be_visible()
    await fold.click()
    await expect(text).to_be_hidden()
    await page.set_viewport_size({"width": 1400, "height": 900})
    await expect(text).to_be_visible()
    await expect(fold).to_be_hidden()


async def test_filters_stand_on_one_line(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 1400, "height": 900})
    for path in ("ui/jobs", "ui/runs"):
        await site.open(page, path)
        ends = await page.locator(".filter > :not(datalist):visible").evaluate_all(
            "all => all.map((place) => place.getBoundingClientRect().bottom)"
        )
        assert max(ends) - min(ends) < 2, (path, ends)
