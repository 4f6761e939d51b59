"""A page is rendered in slices: other tasks run in between, and two pages do not mix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import jinja2
import pytest

from bedrockjobs.base.background import LEFT_S, LONG_TURN_S, done_in_turns, pause_after_s
from bedrockjobs.base.config import PAGE_TURN_S, QUICK_COMMIT_S
from bedrockjobs.pages.templates import TemplateCode, Templates


def seconds() -> Callable[[], float]:
    """Return a clock that advances by a second at each reading."""
    return count().__next__


async def test_others_go_on_between_the_turns() -> None:
    seen: list[str] = []
    clock = seconds()

    def page(name: str) -> str:
        for number in range(3):
            seen.append(f"{name}{number}")
            pause_after_s(0, clock)
        return name

    made = await asyncio.gather(*(done_in_turns(lambda name=name: page(name), clock) for name in "ab"))
    assert made == ["a", "b"]
    assert seen == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_a_turn_is_given_when_the_present_one_has_lasted_so_long() -> None:
    turns = 0
    step = LEFT_S / 10
    clock = count(step=step).__next__

    def page() -> None:
        for _ in range(9):
            pause_after_s(2.5 * step, clock)

    async def others() -> None:
        nonlocal turns
        while not made.done():
            turns += 1
            await asyncio.sleep(0)

    made = asyncio.ensure_future(done_in_turns(page, clock))
    await others()
    assert turns == 1 + 3 + 2, "one before it, three in it, and those in which it has ended"


async def test_turns_are_left_to_who_is_busy() -> None:
    left = [True] * 5

    made = asyncio.ensure_future(
        done_in_turns(lambda: len(left), lambda: 0.0, lambda: bool(left and left.pop()))
    )
    assert await made == 0


async def test_where_others_are_always_busy_it_goes_on_after_some_time() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not made.done():
            turns += 1
            await asyncio.sleep(0)

    clock = count(step=LEFT_S / 10).__next__
    made = asyncio.ensure_future(done_in_turns(lambda: pause_after_s(0, clock), clock, lambda: True))
    await asyncio.wait_for(others(), timeout=10)
    assert 2 * 8 <= turns <= 2 * 12, "it is left out ten times, before each of its two turns"


async def turns_of_a_page(turn_s: float) -> int:
    """Return the number of slices of a page with a thousand parts, if other tasks take ``turn_s``."""
    now, turns = 0.0, 0

    def clock() -> float:
        return now

    def page() -> None:
        nonlocal now
        for _ in range(1_000):
            now += PAGE_TURN_S / 5
            pause_after_s(PAGE_TURN_S, clock)

    async def others() -> None:
        nonlocal now, turns
        while not made.done():
            now += turn_s
            turns += 1
            await asyncio.sleep(0)

    made = asyncio.ensure_future(done_in_turns(page, clock))
    await others()
    return turns


async def test_where_others_take_long_turns_so_does_it() -> None:
    assert 150 <= await turns_of_a_page(LEFT_S / 2) <= 250, "of five parts each"
    assert 8 <= await turns_of_a_page(10 * LONG_TURN_S) <= 15, "of a hundred more"


def test_elsewhere_no_turn_is_given() -> None:
    pause_after_s(0, seconds())


async def test_what_fails_between_two_turns_fails_who_asked() -> None:
    clock = seconds()

    def page() -> None:
        pause_after_s(0, clock)
        raise KeyError

    made = asyncio.ensure_future(done_in_turns(page, clock))
    await asyncio.wait({made})
    assert isinstance(made.exception(), KeyError)


@pytest.mark.parametrize(
    "text",
    [
        "{% macro row(n) %}{{ n }}{% endmacro %}{% for n in rows %}{{ row(n) }}{% endfor %}",
        "{% for n in rows | in_turns %}{{ n }}{% endfor %}",
    ],
)
async def test_a_template_gives_turns_where_it_calls_something_and_between_rows(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    given: list[float] = []
    monkeypatch.setattr("bedrockjobs.pages.templates.pause_after_s", lambda s, _: given.append(s))
    templates = Templates(TemplateCode())
    templates.loader = jinja2.DictLoader({"page.html": text})
    assert await templates.page("page.html", {"rows": range(5)}) == "01234"
    assert given == [PAGE_TURN_S] * 5


def test_a_turn_of_a_page_is_shorter_than_a_quick_commit() -> None:
    assert PAGE_TURN_S <= QUICK_COMMIT_S / 4
