"""The pages of workflows: the list, the graph with the critical path, the buttons, and what a token sees."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import workflows
from bedrockjobs.pages import workflows as module
from bedrockjobs.pages.workflows import BOX_HEIGHT, BOX_WIDTH, Drawing, draw
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS: list[dict[str, Any]] = [
    {"ref": "export", "name": "etl/export"},
    {"ref": "resize", "name": "etl/resize", "after": ["export"]},
    {"ref": "report", "name": "etl/report", "after": ["export", "resize"]},
]


async def created(site: Site, name: str = "etl", jobs: list[dict[str, Any]] | None = None) -> int:
    """Create a workflow; return its workflowID, which the jobIDs follow."""
    answer = await site.ask("CreateWorkflow", name=name, jobs=jobs or JOBS)
    return int(answer["workflowID"])


async def failed(site: Site) -> int:
    """Create a workflow of which the second job fails."""
    workflow = await created(site)
    run = await site.take("etl/export")
    await site.ask("FinishJob", jobID=run["jobID"], runID=run["runID"])
    run = await site.take("etl/resize")
    await site.ask("FailJob", jobID=run["jobID"], runID=run["runID"], error="no space left on device")
    return workflow


async def test_the_list_tells_states_and_progress(site: Site, page: Page) -> None:
    broken = await failed(site)
    running = await created(site, "other")
    await site.open(page, "ui/workflows")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(page.locator(f"#workflow-{running}")).to_contain_text("0 of 3")
    await expect(page.locator(f"#workflow-{broken}")).to_contain_text("failed")
    await page.get_by_role("link", name="Failed 1").click()
    await expect(rows).to_have_count(1)
    await page.get_by_label("Name, such as").fill("o*")
    await page.get_by_role("button", name="Filter").click()
    await expect(rows).to_contain_text("No workflow matches the filter.")
    await check(page)


async def test_the_graph_leads_to_jobs_and_marks_the_critical_path(site: Site, page: Page) -> None:
    workflow = await failed(site)
    await site.open(page, f"ui/workflows/{workflow}")
    box = page.locator(f"#box-{workflow + 2}")
    await expect(box).to_contain_text("failed")
    await expect(page.locator(".box.critical")).to_have_count(2)
    await expect(page.locator(".line.critical")).to_have_count(1)
    await expect(page.locator(".line")).to_have_count(3)
    await expect(page.locator(".facts")).to_contain_text("export → resize")
    await expect(page.locator(".problem").filter(has_text="no space left on device")).to_have_count(1)
    await expect(page.locator(f"#job-{workflow + 3}")).to_contain_text("cancelled")
    await check(page)
    await box.click()
    await expect(page.locator("h1")).to_contain_text("etl/resize")
    await page.get_by_role("link", name=f"workflow {workflow}", exact=True).click()
    await expect(page.locator("h1")).to_have_text(f"Workflow {workflow}: etl")


async def test_it_is_retried_and_cancelled_by_buttons(site: Site, page: Page) -> None:
    workflow = await failed(site)
    await site.open(page, f"ui/workflows/{workflow}")
    await page.get_by_role("button", name="Retry from what failed").click()
    await expect(page.locator("#confirm-which")).to_contain_text(f"workflow {workflow} (etl)")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_have_text(f"Started again: workflow {workflow}.")
    await expect(page.locator(f"#box-{workflow + 2}")).to_contain_text("queued")
    await expect(page.locator(f"#box-{workflow + 3}")).to_contain_text("waiting")
    await (
        page.get_by_role("group", name="Actions on this workflow")
        .get_by_role("button", name="Cancel")
        .click()
    )
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#workflow .badge").first).to_have_text("cancelled")
    answer = await site.ask("QueryWorkflow", workflowID=workflow)
    assert answer["state"] == "CANCELLED"


async def test_a_job_that_is_gone_still_leads_to_its_workflow(site: Site, page: Page) -> None:
    workflow = await failed(site)
    await site.open(page, f"ui/jobs/{workflow + 1}")
    await expect(page.locator("#job")).to_contain_text(f"export of workflow {workflow} (etl)")
    waiting = await created(site)
    await site.open(page, f"ui/jobs/{waiting + 2}")
    await expect(page.locator("#job")).to_contain_text("waiting workflow: export of workflow etl")
    await site.open(page, "ui/jobs?state=PAUSED")
    await expect(page.locator(f"#job-{waiting + 2}")).to_contain_text(f"for others in workflow {waiting}")


async def test_more_jobs_than_are_drawn_are_a_table_by_step(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "GRAPH_JOBS_MAX", 2)
    monkeypatch.setattr(module, "JOB_ROWS", 2)
    workflow = await created(site)
    await site.open(page, f"ui/workflows/{workflow}")
    await expect(page.locator(".graph")).to_have_count(0)
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f"#job-{workflow + 3}")).to_contain_text("report")
    monkeypatch.setattr(module, "LAYERED_MAX", 3)
    await site.open(page, f"ui/workflows/{workflow}?after={workflow + 1}")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator(".note").filter(has_text="In the order in which")).to_have_count(1)


GRAPHS = {
    "one": {"a": []},
    "chain": {f"r{at}": [f"r{at - 1}"] if at else [] for at in range(6)},
    "fan": {"a": [], **{f"p{at}": ["a"] for at in range(40)}, "z": [f"p{at}" for at in range(40)]},
    "long edges": {"a": [], "b": ["a"], "c": ["b", "a"], "d": ["c", "a", "b"], "e": []},
    "tangle": {f"n{at}": [f"n{at // 2}", f"n{at // 3}"] if at > 2 else [] for at in range(60)},
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_boxes_of_a_drawing_neither_overlap_nor_leave_it(name: str) -> None:
    drawing = draw({ref: list(dict.fromkeys(refs)) for ref, refs in GRAPHS[name].items()}, [])
    assert isinstance(drawing, Drawing)
    boxes = sorted(drawing.boxes, key=lambda box: (box.x, box.y))
    assert {box.ref for box in boxes} == GRAPHS[name].keys()
    for box, below in pairwise(boxes):
        assert box.x + BOX_WIDTH < below.x or box.y + BOX_HEIGHT < below.y, (box, below)
    for box in boxes:
        assert 0 <= box.x <= drawing.width - BOX_WIDTH
        assert 0 <= box.y <= drawing.height - BOX_HEIGHT
    x_of = {box.ref: box.x for box in boxes}
    assert all(x_of[before] < x_of[ref] for ref, refs in GRAPHS[name].items() for before in refs)
    assert (boxes[0].y == workflows.MARGIN) == (name in ("one", "chain", "fan", "tangle")), (
        "a tall one is cut"
    )


async def test_a_drawing_with_too_many_parts_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert draw({}, []) is None
    monkeypatch.setattr(workflows, "GRAPH_LINES_MAX", 5)
    assert draw(GRAPHS["chain"], ["r0"]) is not None
    assert draw(GRAPHS["long edges"], []) is None
