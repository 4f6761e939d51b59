"""The list of workflows, and the page of one: its graph, its jobs with their times, and its critical path."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.errors import line_of
from bedrockjobs.commands import ListWorkflows, QueryWorkflow
from bedrockjobs.commands.workflows import WORKFLOW_STATES
from bedrockjobs.job.layers import ENDED_STATES, TimedJob, critical_path, layers
from bedrockjobs.pages.formatting import number
from bedrockjobs.pages.jobs import progress_bar
from bedrockjobs.pages.site import ROWS, Pages, Site, cursor
from bedrockjobs.views.states import FamilyCounts

JOB_ROWS = 200
"""Maximum jobs of a workflow on a page."""

LAYERED_MAX = 1_000
"""Maximum jobs of a workflow that is read whole and shown by layer; the jobs of a larger one are listed as
they were created. A page is refreshed each second: reading 10,000 jobs with their edges takes 0.3 s."""


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
        problems=[row for row in rows if row.state == "FAILED"][:3] if is_whole else [],
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
    return ", ".join(refs[:3]) + (f" and {number(len(refs[3:]))} more" if refs[3:] else "")


# The graph: boxes in layers from left to right, and lines that pass between them.
#
# A line that crosses layers gets a narrow lane in each of them, so that it crosses no box. The jobs of a
# layer are ordered by the places of the jobs before and after them, so that few lines cross.


GRAPH_JOBS_MAX = 200
"""Maximum jobs of a drawn graph: with more, lines cannot be followed, and a refresh exceeds 200 KB."""

GRAPH_LINES_MAX = 1_000
"""Maximum segments of all lines in a drawn graph: more would hide the boxes. A line has a segment in each
layer that it crosses."""

BOX_WIDTH, BOX_HEIGHT, LANE_HEIGHT = 184, 50, 6
GAP_ACROSS, GAP_DOWN, MARGIN = 64, 16, 6
"""Sizes of boxes, lanes and gaps in pixels."""


class Box(NamedTuple):
    """The place of a job."""

    ref: str
    x: int
    y: int
    critical: bool


class EdgeLine(NamedTuple):
    """A line from one job to another, as an SVG path."""

    path: str
    critical: bool


class Drawing(NamedTuple):
    """A graph with its size in pixels."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[EdgeLine]


class _Position(NamedTuple):
    """A place in a layer: the box of a job or, if ``line`` is the number of a line, a lane of that line."""

    ref: str
    line: int = -1
    layer: int = 0
    """The layer of a lane, since a line has a lane in each layer that it crosses."""

    @property
    def height(self) -> int:
        return BOX_HEIGHT if self.line < 0 else LANE_HEIGHT


def draw(after: Mapping[str, Collection[str]], critical: Sequence[str]) -> Drawing | None:
    """Draw jobs, given by ref with the refs after which each comes; return None if there are too many.

    ``critical`` are the refs of the critical path.
    """
    if not after or len(after) > GRAPH_JOBS_MAX:
        return None
    layer = layers(after)
    edges = [(before, ref) for ref, refs in after.items() for before in refs if before in after]
    if sum(layer[ref] - layer[before] for before, ref in edges) > GRAPH_LINES_MAX:
        return None
    columns: list[list[_Position]] = [[] for _ in range(max(layer.values()) + 1)]
    for ref in after:
        columns[layer[ref]].append(_Position(ref))
    routes = []
    for line, (before, ref) in enumerate(edges):
        lanes = [_Position(ref, line, at) for at in range(layer[before] + 1, layer[ref])]
        for lane in lanes:
            columns[lane.layer].append(lane)
        routes.append([_Position(before), *lanes, _Position(ref)])
    left, right = _neighbours(routes)
    _order(columns, left, right)
    middles = _aligned(columns, left, right)
    across = {place: at for at, column in enumerate(columns) for place in column}
    path = set(pairwise(critical))
    boxes = [
        Box(place.ref, _x(at), middles[place] - BOX_HEIGHT // 2, place.ref in critical)
        for at, column in enumerate(columns)
        for place in column
        if place.line < 0
    ]
    lines = [
        EdgeLine(_path(route, across, middles), edge in path)
        for route, edge in sorted(zip(routes, edges, strict=True), key=lambda one: one[1] in path)
    ]
    height = max(middles[place] + place.height // 2 for column in columns for place in column)
    return Drawing(_x(len(columns) - 1) + BOX_WIDTH + MARGIN, height + MARGIN, boxes, lines)


_Neighbours = dict[_Position, list[_Position]]


def _neighbours(routes: list[list[_Position]]) -> tuple[_Neighbours, _Neighbours]:
    """Return by place the places connected with it on its left, and the places connected on its right."""
    left: _Neighbours = {}
    right: _Neighbours = {}
    for route in routes:
        for one, other in pairwise(route):
            right.setdefault(one, []).append(other)
            left.setdefault(other, []).append(one)
    return left, right


def _sweeps(
    columns: list[list[_Position]], left: _Neighbours, right: _Neighbours
) -> list[tuple[list[_Position], _Neighbours]]:
    """Return the columns in the order in which they are arranged, each with the neighbours that decide."""
    there = [(column, left) for column in columns[1:]]
    back = [(column, right) for column in columns[-2::-1]]
    return [*there, *back] * 4  # more passes change little


def _order(columns: list[list[_Position]], left: _Neighbours, right: _Neighbours) -> None:
    """Sort each column by the mean position of its neighbours."""
    at = {place: number for column in columns for number, place in enumerate(column)}
    for column, others in _sweeps(columns, left, right):
        wanted = {
            place: fmean(at[other] for other in others[place]) if place in others else at[place]
            for place in column
        }
        column.sort(key=wanted.__getitem__)
        at.update((place, number) for number, place in enumerate(column))


def _aligned(columns: list[list[_Position]], left: _Neighbours, right: _Neighbours) -> dict[_Position, int]:
    """Return the vertical middle of each place: near the middles of its neighbours, without overlaps."""
    middle = {place: 0.0 for column in columns for place in column}
    for column in columns:
        _spread(column, middle, dict.fromkeys(column, 0.0))
    for column, others in _sweeps(columns, left, right):
        wanted = {
            place: fmean(middle[other] for other in others[place]) if place in others else middle[place]
            for place in column
        }
        _spread(column, middle, wanted)
    top = min(middle[place] - place.height / 2 for column in columns for place in column)
    # Above 600 pixels, layers begin at the top: centred, the first jobs would be out of sight.
    if max(middle.values()) - top > 600:
        for column in columns:
            _spread(column, middle, dict.fromkeys(column, 0.0))
            up = middle[column[0]] - column[0].height / 2
            middle.update((place, middle[place] - up) for place in column)
        top = 0
    return {place: round(at - top) + MARGIN for place, at in middle.items()}


def _spread(
    column: list[_Position], middle: dict[_Position, float], wanted: Mapping[_Position, float]
) -> None:
    """Move the places of a column towards the ``wanted`` middles, keeping their order and distances."""
    below = float("-inf")
    for place in column:
        middle[place] = max(wanted[place], below + place.height / 2)
        below = middle[place] + place.height / 2 + GAP_DOWN
    off = fmean(middle[place] - wanted[place] for place in column)
    for place in column:
        middle[place] -= off


def _x(layer: int) -> int:
    return MARGIN + layer * (BOX_WIDTH + GAP_ACROSS)


def _path(route: list[_Position], across: Mapping[_Position, int], middles: Mapping[_Position, int]) -> str:
    """Return the SVG path of a line: curves between layers, straight parts in the lanes within layers."""
    first, *_, last = route
    x, y = _x(across[first]) + BOX_WIDTH, middles[first]
    parts = [f"M{x} {y}"]
    for place in route[1:]:
        to_x, to_y = _x(across[place]), middles[place]
        bend = (x + to_x) // 2
        parts.append(f"C{bend} {y} {bend} {to_y} {to_x} {to_y}")
        x, y = to_x, to_y
        if place is not last:
            x += BOX_WIDTH
            parts.append(f"H{x}")
    return "".join(parts)
