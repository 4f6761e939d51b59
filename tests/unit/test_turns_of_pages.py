"""A page is made in turns: others are served between its rows, and two pages do not mix."""

from __future__ import annotations

import asyncio

from bedrockjobs.base.config import PAGE_SLICE
from bedrockjobs.base.turns import done_in_turns, in_turns


async def test_others_go_on_between_the_slices() -> None:
    seen: list[str] = []

    def page(name: str) -> str:
        for number in in_turns(range(3 * PAGE_SLICE), PAGE_SLICE):
            if not number % PAGE_SLICE:
                seen.append(f"{name}{number // PAGE_SLICE}")
        return name

    made = await asyncio.gather(*(done_in_turns(lambda name=name: page(name)) for name in "ab"))
    assert made == ["a", "b"]
    assert seen == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_what_fails_between_two_slices_fails_who_asked() -> None:
    def page() -> None:
        for number in in_turns(range(PAGE_SLICE + 1), PAGE_SLICE):
            if number == PAGE_SLICE:
                raise KeyError(number)

    made = asyncio.ensure_future(done_in_turns(page))
    await asyncio.wait({made})
    assert isinstance(made.exception(), KeyError)
