"""The list of workflows, and the page of one: its graph, its jobs with their times, and its critical path."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.errors import line_of
from bedrockjobs.commands import ListWorkflows, QueryWorkflow
from bedrockjobs.commands.workflows import WORKFLOW_STATES
from bedrockjobs.job.layers import ENDED_STATES, TimedJob, critical_path, layers
from bedrockjobs.pages.formatting import number
from bedrockjobs.pages.graph import BOX_HEIGHT, BOX_WIDTH, GRAPH_JOBS_MAX, draw
from bedrockjobs.pages.jobs import progress_bar
from bedrockjobs.pages.site import Pages, Site, cursor
from bedrockjobs.views.states import FamilyCounts

ROWS = 50
"""Maximum workflows on a page."""

JOB_ROWS = 200
"""Maximum jobs of a workflow on a page."""

LAYERED_MAX = 1_000
"""Maximum jobs of a workflow that is read whole and shown by layer; the jobs of a larger one are listed as
they were created. A page is refreshed each second: reading 10,000 jobs with their edges takes 0.3 s."""

REFS_SHOWN = 3
"""Maximum earlier jobs that a row names as the jobs after which its job comes; the others are counted."""


class JobOfWorkflow(NamedTuple):
    """One job: a row of the table, and the text of a box of the graph."""

    job: dict[str, Any]
    step: int
    """The number of its layer, from 1; 0 if the layer is not known."""
    state: str
    """The job's state; ``waiting`` if it waits for other jobs."""
    after: str
    why: str
    critical: bool


async def workflows(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of workflows, newest first."""
    filters = {key: request.query[key] for key in ("state", "name") if request.query.get(key)}
    before = cursor(request, "before", "a workflowID")
    page = {"limit": ROWS + 1, **({} if before is None else {"before": before})}
    command = ListWorkflows.read({**filters, **page})
    found = (await site.read(command))["workflows"]
    counts = {state: await site.views.workflows_counted(state, command.name) for state in WORKFLOW_STATES}
    return await site.show(
        request,
        "workflows.html",
        title="Workflows",
        rows=found[:ROWS],
        asked={"state": command.state, "name": command.name},
        tabs=[("", "All", None), *((state, state.capitalize(), counts[state]) for state in WORKFLOW_STATES)],
        begins=before is None,
        following=found[ROWS - 1]["workflowID"] if len(found) > ROWS else None,
    )


async def workflow(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a workflow with its jobs."""
    workflow_id = QueryWorkflow.read({"workflowID": request.match_info["workflowID"]}).workflow_id
    after = cursor(request, "after", "a jobID") or 0
    head = await site.read(QueryWorkflow(workflow_id=workflow_id, limit=LAYERED_MAX))
    jobs = head["jobs"]
    newest = (await site.read(ListWorkflows(before=workflow_id + 1, limit=1)))["workflows"]
    total = next((one["jobs"] for one in newest if one["workflowID"] == workflow_id), len(jobs))
    is_whole = len(jobs) < LAYERED_MAX
    now = site.views.now_ms
    path = critical_path({job["ref"]: _step_of(job) for job in jobs}, now) if is_whole else []
    if not is_whole and after:
        jobs = (await site.read(QueryWorkflow(workflow_id=workflow_id, after=after, limit=JOB_ROWS + 1)))[
            "jobs"
        ]
    rows = _rows(jobs, path, by_layer=is_whole)
    counts: dict[str, int] = {}
    for row in rows if is_whole else ():
        counts[row.job["state"]] = counts.get(row.job["state"], 0) + 1
    drawing = draw({row.job["ref"]: row.job["after"] for row in rows}, path) if is_whole else None
    begin = next((at for at, row in enumerate(rows, 1) if row.job["jobID"] == after), 0) if is_whole else 0
    shown = rows[begin : begin + JOB_ROWS]
    more = len(rows) > begin + JOB_ROWS
    times = {row.job["ref"]: row.job for row in rows}
    return await site.show(
        request,
        "workflow.html",
        title=f"Workflow {workflow_id}",
        workflow=head,
        workflow_id=workflow_id,
        total=total,
        bar=progress_bar(FamilyCounts(counts, False), [], ("job", "jobs")) if counts else None,
        problems=[row for row in rows if row.state == "FAILED"][:REFS_SHOWN] if is_whole else [],
        drawing=drawing,
        box=(BOX_WIDTH, BOX_HEIGHT),
        graph_jobs_max=GRAPH_JOBS_MAX,
        row_of={row.job["ref"]: row for row in rows} if drawing else {},
        critical=path,
        critical_times=(times[path[0]]["started"], times[path[-1]]["ended"] or now) if path else ("", ""),
        by_layer=is_whole,
        rows=shown,
        begins=not after,
        following=shown[-1].job["jobID"] if more else None,
        now_ms=now,
    )


PAGES: Pages = (("/ui/workflows", workflows), ("/ui/workflows/{workflowID:[0-9]{1,18}}", workflow))


def _step_of(job: dict[str, Any]) -> TimedJob:
    return TimedJob(job["after"], job["waits"], job["state"], job["started"], job["ended"])


def _rows(jobs: list[dict[str, Any]], path: list[str], *, by_layer: bool) -> list[JobOfWorkflow]:
    """Return the rows of jobs, by layer or as they were created."""
    layer = layers({job["ref"]: job["after"] for job in jobs}) if by_layer else {}
    critical = set(path)
    rows = [
        JobOfWorkflow(
            job,
            layer.get(job["ref"], -1) + 1,
            "waiting" if job["waits"] and job["state"] not in ENDED_STATES else job["state"],
            _listed(job["after"]),
            line_of(job["reason"]),
            job["ref"] in critical,
        )
        for job in jobs
    ]
    return sorted(rows, key=lambda row: row.step)


def _listed(refs: list[str]) -> str:
    more = len(refs) - REFS_SHOWN
    return ", ".join(refs[:REFS_SHOWN]) + (f" and {number(more)} more" if more > 0 else "")
