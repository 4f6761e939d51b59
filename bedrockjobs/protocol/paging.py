"""The next page of a list: where it is, as ``Link`` of RFC 8288 tells it.

A page is followed by another where it is as long as it may be. The address is that of a GET with the same
parameters and the cursor moved behind the last row.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.commands import Command

_NOT_REPEATED = frozenset({"connection", "timeout"})


def next_page(command: Command[Any], body: str) -> str | None:
    """Return the address of the page behind an answer, None where it was the last or the command no list."""
    paging = command.paging
    if paging is None:
        return None
    rows = jsontext.elements(jsontext.members(body)[paging.rows])
    limit: int = getattr(command, "limit")  # noqa: B009 - each of them has one
    if not rows or (len(rows) < limit and len(body) < ANSWER_BYTES_MAX):
        return None
    given = jsontext.parse(command.wire())
    kept = {name: value for name, value in given.items() if name not in _NOT_REPEATED}
    last = jsontext.parse(jsontext.members(rows[-1])[paging.key])
    return f"/{type(command).__name__}?{urlencode({**kept, paging.cursor: last})}"
