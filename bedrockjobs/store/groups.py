"""The groups of a lane: its queued jobs by name and priority, each with its first job, found by seeks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.statements import STATEMENTS as SQL

NamedGroup = tuple[str, int, str, int]
"""Name and priority; nextRun and jobID of the first job."""


Place = tuple[str, int, bool]
"""Position of a scan: name, priority, and whether the names there have many jobs each."""

SEEK_ROWS = 10
"""Cost of one index seek, in rows of a scan."""

_LOWEST = min(PRIORITIES)


def groups(
    execute: Callable[..., sqlite3.Cursor], lane: str, names: Names, limit: int
) -> list[NamedGroup] | None:
    """Return the head of every matching group, or None if a short scan does not find them all."""
    if names.exact:
        return [group for name in names.exact for group in _of_name(execute, lane, name, PRIORITIES[0] + 1)]
    found, after, _ = groups_after(execute, lane, None, names.prefix(), limit + 1)
    return None if after is not None else [group for group in found if names.match(group[0])]


def groups_after(
    execute: Callable[..., sqlite3.Cursor], lane: str, after: Place | None, prefix: str, limit: int
) -> tuple[list[NamedGroup], Place | None, int]:
    """Return the heads of the next groups whose names have a prefix, the position after them, and the cost.

    The position is None at the end of the lane. About ``limit`` rows are read.
    """
    found: list[NamedGroup] = []
    if after is None:
        rows = execute(SQL["queued_from"], (lane, prefix, limit)).fetchall()
    else:
        name, priority, crowded = after
        found = _of_name(execute, lane, name, priority)
        if crowded:
            return _by_seeks(execute, lane, name, prefix, limit, found)
        rows = execute(SQL["queued_behind"], (lane, name, limit)).fetchall()
    ended = len(rows) < limit
    if rows and not rows[-1][0].startswith(prefix):
        rows = [row for row in rows if row[0].startswith(prefix)]
        ended = True
    name, priority = "", -1
    for row in rows:
        if row[0] != name or row[1] != priority:
            found.append(row)
            name, priority = row[0], row[1]
    return found, None if ended else (name, priority, len(found) * SEEK_ROWS < len(rows)), len(rows)


def _of_name(execute: Callable[..., sqlite3.Cursor], lane: str, name: str, priority: int) -> list[NamedGroup]:
    """Return the group heads of a name below a priority."""
    found: list[NamedGroup] = []
    while priority > _LOWEST:
        group = execute(SQL["next_group_of_name"], (lane, name, priority)).fetchone()
        if group is None:
            break
        found.append(group)
        priority = group[1]
    return found


def _by_seeks(
    execute: Callable[..., sqlite3.Cursor],
    lane: str,
    name: str,
    prefix: str,
    limit: int,
    found: list[NamedGroup],
) -> tuple[list[NamedGroup], Place | None, int]:
    """Return the same by one seek per name, since a scan would read all jobs of each."""
    cost = 0
    while cost < limit:
        group = execute(SQL["next_group"], (lane, name)).fetchone()
        if group is None or not group[0].startswith(prefix):
            return found, None, cost
        name = group[0]
        found += [group, *_of_name(execute, lane, name, group[1])]
        cost += 3 * SEEK_ROWS
    return found, (name, _LOWEST, False), cost
