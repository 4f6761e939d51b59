"""The groups of a lane: its queued jobs by name and priority, each with its first job, found by seeks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from bedrockjobs.base.config import PRIORITIES, SLICE
from bedrockjobs.base.turns import give_turn
from bedrockjobs.job.take_request import Names
from bedrockjobs.store.statements import STATEMENTS as SQL

NamedGroup = tuple[str, int, str, int]
"""Name, priority, and nextRun and jobID of the first job."""


def groups(
    execute: Callable[..., sqlite3.Cursor], lane: str, names: Names, limit: int
) -> list[NamedGroup] | None:
    """Return the head of every group that ``names`` match, None where they are more than ``limit``."""
    found: list[NamedGroup] = []
    if names.exact:
        for name in names.exact:
            group = execute(SQL["next_group_of_name"], (lane, name, PRIORITIES[0] + 1)).fetchone()
            while group is not None:
                found.append(group)
                group = execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
        return found
    prefix = names.prefix()
    first = execute(SQL["first_two"], (lane, prefix)).fetchall()
    if len(first) < 2:  # so it is in most lanes with locks, of which there are very many
        return [group for group in first if names.match(group[0])]
    group, seeks = first[0], 0
    while group is not None and group[0].startswith(prefix):
        seeks += 1
        if not seeks % SLICE:
            give_turn()
        name = group[0]
        if names.match(name):
            while group is not None:
                found.append(group)
                group = execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
            if len(found) > limit:
                return None
        group = execute(SQL["next_group"], (lane, name)).fetchone()
    return found
