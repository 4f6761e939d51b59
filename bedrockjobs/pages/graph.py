"""Draws the graph of a workflow: boxes in layers from left to right, and lines that pass between them.

A line that crosses layers gets a narrow lane in each of them, so that it crosses no box. The jobs of a layer
are ordered by the places of the jobs before and after them, so that few lines cross.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from bedrockjobs.job.layers import layers

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
    for number, (before, ref) in enumerate(edges):
        lanes = [_Position(ref, number, at) for at in range(layer[before] + 1, layer[ref])]
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
