"""The next page of a list: where it is, as ``Link`` of RFC 8288 tells it.

A page is followed by another where it is as long as it may be. The address is that of a GET with the same
parameters and the cursor moved behind the last row.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlencode

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import ANSWER_BYTES_MAX, JSON_DEPTH_MAX
from bedrockjobs.commands import (
    Command,
    Events,
    ListJobs,
    ListQueues,
    ListRuns,
    ListSchedules,
    ListTicks,
    ReadOutput,
)

ASIDE_CHARS = 256 * 1024
"""Length from which an answer is read in a thread, so that nobody else waits for it."""


class Paging(NamedTuple):
    """How a list goes on."""

    rows: str
    """Member of the answer that holds the rows."""
    key: str
    """Member of a row at which the next page begins."""
    cursor: str
    """Parameter that takes it."""


PAGED: dict[type[Command[Any]], Paging] = {
    ListJobs: Paging("jobs", "jobID", "after"),
    ListSchedules: Paging("schedules", "jobID", "after"),
    ListQueues: Paging("queues", "name", "after"),
    ListRuns: Paging("runs", "runID", "before"),
    ListTicks: Paging("ticks", "tick", "before"),
    Events: Paging("events", "seq", "after"),
    ReadOutput: Paging("lines", "seq", "after"),
}
"""The lists that are answered page by page."""

_NOT_REPEATED = frozenset({"connection", "timeout"})


async def next_page(command: Command[Any], body: str) -> str | None:
    """Return the address of the page behind an answer, None where it was the last or the command no list."""
    paging = PAGED.get(type(command))
    if paging is None:
        return None
    rows = (await asyncio.to_thread(_parsed, body) if len(body) > ASIDE_CHARS else _parsed(body))[paging.rows]
    limit: int = getattr(command, "limit")  # noqa: B009 - each of them has one
    if not rows or (len(rows) < limit and len(body) < ANSWER_BYTES_MAX):
        return None
    given = jsontext.parse(command.wire())
    kept = {name: value for name, value in given.items() if name not in _NOT_REPEATED}
    return f"/{type(command).__name__}?{urlencode({**kept, paging.cursor: rows[-1][paging.key]})}"


def _parsed(body: str) -> Any:
    return jsontext.parse(body, levels=JSON_DEPTH_MAX + jsontext.ENVELOPE_LEVELS)
